#!/usr/bin/env python3
"""System calls per request, on epoll and on io_uring, by strace.

The server runs under strace from start to exit, so the counts include start-up and exit; next to a few seconds of load
these are negligible. strace slows every call, which makes batches larger than usual: the comparison is of the number of
calls of the two backends, not of their speed. The README in this folder describes how to repeat it.
"""

import argparse
import tempfile

import compare
import servers

BACKENDS = ["epoll", "uring"]
SHOWN = 3


def calls_by_name(report):
    """Parses the table of `strace -c`: {name: calls}."""
    counts = {}
    for line in report.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[0].replace(".", "").isdigit() and fields[-1] != "total":
            counts[fields[-1]] = int(fields[3])
    if not counts:
        raise servers.Failure(f"strace has counted nothing\n{report}")
    return counts


def measure(backend, depth, options):
    program = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet --backend {backend}"
    with tempfile.NamedTemporaryFile(mode="r") as report:
        # With -D the server is the child process, and strace its grandchild.
        command = f"strace -D -f -c -o {report.name} {program}"
        with servers.Server(command, core=options.server_core) as server:
            requests = compare.load(server, options.load_core, depth, options.seconds, ["/plaintext"])
        counts = calls_by_name(servers.read_when_written(report))
    return {name: count / requests for name, count in counts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--depths", type=int, nargs="+", default=compare.DEPTHS)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    print(f"{'depth':>5}  {'backend':10}{'calls per request':>18}  of them")
    for depth in options.depths:
        for backend in BACKENDS:
            calls = measure(backend, depth, options)
            most = sorted(calls.items(), key=lambda entry: -entry[1])[:SHOWN]
            shown = ", ".join(f"{name} {each:.4f}" for name, each in most)
            print(f"{depth:5}  {backend:10}{sum(calls.values()):18.4f}  {shown}", flush=True)


if __name__ == "__main__":
    servers.run(main)
