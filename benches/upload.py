#!/usr/bin/env python3
"""CPU seconds and memory per GiB of an upload: Tidegate and hyper 1.

Each runs on one core and computes the checksum of the body posted to /sum; curl sends zeros from the other core, once
with a Content-Length and once in chunks. Memory is the peak during the upload, above that of an idle server. Servers
take turns, round by round, and ratios are taken within a round. The README in this folder describes how to repeat it.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time
import zlib

import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
TIDEGATE = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet"
HYPER = "{}/hyper1 127.0.0.1:0"
UPLOAD_SECONDS_MAX = 120
SAMPLE_SECONDS = 0.01
GIB = 1 << 30
FRAMINGS = {"length": [], "chunked": ["--header", "Transfer-Encoding: chunked"]}


def expected(length):
    """The response of /sum to `length` zeros."""
    block, remainder = bytes(1 << 20), 0
    for start in range(0, length, len(block)):
        remainder = zlib.crc32(block[: length - start], remainder)
    return f"{length} {remainder:08x}\n"


def upload(server, source, framing, answer, options):
    """Uploads the file; returns the server's CPU seconds, and the peak of its anonymous memory above that before."""
    command = ["taskset", "-c", options.load_core, "curl", "--silent", "--fail", "--http1.1", "--header", "Expect:"]
    command += [*FRAMINGS[framing], "--upload-file", source, "--request", "POST", f"http://127.0.0.1:{server.port}/sum"]
    server.settled_rss()
    before, memory = server.cpu_seconds(), server.anonymous()
    highest, deadline = memory, time.monotonic() + UPLOAD_SECONDS_MAX
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    curl = subprocess.Popen(command, text=True, **pipes)
    try:
        while curl.poll() is None:
            if time.monotonic() > deadline:
                raise Failure(f"{server.command}: an upload took longer than {UPLOAD_SECONDS_MAX} s")
            highest = max(highest, server.anonymous())
            time.sleep(SAMPLE_SECONDS)
        said = curl.stdout.read()
    finally:
        servers.end(curl)
    if curl.returncode != 0 or said != answer:
        raise Failure(f"{server.command}: curl ended with {curl.returncode} and received {said!r} instead of {answer!r}")
    return server.cpu_seconds() - before, highest - memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=TIDEGATE, help="the command of Tidegate")
    parser.add_argument("--peers-dir", default=f"{HERE}/peers/target/release", help="where hyper1 is")
    parser.add_argument("--alone", action="store_true", help="measure Tidegate only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1, help="to upload for each figure")
    parser.add_argument("--max", type=int, help="fail if an upload to Tidegate takes more bytes of memory")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    if options.gib * GIB < 1:
        parser.error("--gib: must be positive")

    length = int(options.gib * GIB)
    answer = expected(length)
    commands = {"tidegate": options.server}
    if not options.alone:
        commands["hyper1"] = HYPER.format(options.peers_dir)
    figures = {(name, framing): [] for framing in FRAMINGS for name in commands}
    with tempfile.NamedTemporaryFile() as source:
        # A sparse file: reading it needs no disk.
        source.truncate(length)
        for number in range(1, options.rounds + 1):
            for name, framing in figures:
                with Server(commands[name], options.server_core) as server:
                    seconds, memory = upload(server, source.name, framing, answer, options)
                figures[name, framing].append((seconds / options.gib, memory))
                print(f"round {number}: {framing} {name} {seconds:.3f} s, {memory} bytes", flush=True)
    print("\nframing   server    CPU s/GiB: median      min      max  to hyper1    bytes at most")
    for (name, framing), each in figures.items():
        seconds = [second for second, _ in each]
        others = [second for second, _ in figures.get(("hyper1", framing), [])]
        # The kernel counts CPU time in hundredths of a second; a short upload may take none.
        ratios = [one / other for one, other in zip(seconds, others) if other]
        ratio = f"{statistics.median(ratios):.2f}" if len(ratios) == len(seconds) else "-"
        middle, most = statistics.median(seconds), max(memory for _, memory in each)
        print(f"{framing:9} {name:9} {middle:17.3f} {min(seconds):8.3f} {max(seconds):8.3f} {ratio:>10} {most:16}")
        if name == "tidegate" and options.max is not None and most > options.max:
            raise Failure(f"an upload took {most} bytes of memory, more than {options.max}")


if __name__ == "__main__":
    servers.run(main)
