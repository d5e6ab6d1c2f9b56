#!/usr/bin/env python3
"""CPU time over HTTP/3: Tidegate beside h3 on quinn on tokio, and beside its own HTTP/2 over TLS, one core each.

The load is `tidegate load`, on another core. A certificate of ECDSA P-256; both with AWS-LC. Servers take turns, round by
round, and ratios are taken within a round. The README in this folder describes how to repeat it.

    requests    CPU microseconds of a request, on 64 connections with 64 streams each and with one
    bulk        CPU seconds of 200 MB in one response
    handshakes  CPU microseconds of a full handshake with one request
"""

import argparse
import json
import pathlib
import shlex
import statistics
import tempfile

import servers
from servers import Failure, Server
from tls import SERVE, Certificate

TIDEGATE = f"{servers.BUILT}/tidegate"
PEERS = pathlib.Path(__file__).resolve().parent / "peers" / "target" / "release"
OURS, PEER, HTTP2 = "http3", "h3-quinn", "http2"
CONNECTIONS = 64
BULK_BYTES = 200_000_000
LOADS = 10
LOAD_SECONDS_MAX = 120
# A figure may be at most so much of another one.
BARS = {"requests": {(OURS, PEER): 0.5}, "bulk": {(OURS, PEER): 0.9}, "handshakes": {(OURS, PEER): 1.0}}


class Bench:
    def __init__(self, options, directory):
        self.options = options
        certificate = Certificate(directory)
        own = SERVE.format(tidegate=options.tidegate, cert=certificate.cert, key=certificate.key)
        self.commands = {
            OURS: f"{own} --http3",
            PEER: f"{options.peer} 127.0.0.1:0 {certificate.cert} {certificate.key}",
            HTTP2: own,
        }
        self.load = ["taskset", "-c", options.load_core, options.tidegate, "load", "--insecure", "-t", "1", "--json", "-"]

    def server(self, name):
        return Server(self.commands[name], self.options.server_core)

    def loaded(self, name, server, path, *flags):
        """CPU seconds of the server for a load without errors."""
        before = server.cpu_seconds()
        version = "--http2" if name == HTTP2 else "--http3"
        command = [*self.load, version, *flags, f"https://127.0.0.1:{server.port}{path}"]
        _, output = servers.complete(command, LOAD_SECONDS_MAX)
        try:
            results = json.loads(output)
        except ValueError:
            raise Failure(f"{shlex.join(command)}: {output}") from None
        if any(results["errors"].values()) or not results["requests"]:
            raise Failure(f"{self.commands[name]}: {results['errors']}")
        return server.cpu_seconds() - before, results["requests"]

    def requests(self, name, streams):
        flags = ["-c", str(CONNECTIONS), "-m", str(streams)]
        with self.server(name) as server:
            self.loaded(name, server, "/plaintext", *flags, "-d", "500ms")
            seconds, requests = self.loaded(name, server, "/plaintext", *flags, "-d", f"{self.options.seconds}s")
        return seconds / requests * 1e6

    def bulk(self, name):
        with self.server(name) as server:
            flags = ["-c", "1", "--timeout", "1m"]
            self.loaded(name, server, f"/bytes/{BULK_BYTES // 10}", *flags, "-n", "1")
            seconds, _ = self.loaded(name, server, f"/bytes/{BULK_BYTES}", *flags, "-n", "2")
        return seconds / 2

    def handshakes(self, name):
        flags = ["-c", "1", "--rate", "10", "-d", "200ms", "--idle", str(CONNECTIONS)]
        with self.server(name) as server:
            self.loaded(name, server, "/plaintext", *flags)
            # The idle connections of one load begin at once, before there is a ticket to resume with.
            seconds = sum(self.loaded(name, server, "/plaintext", *flags)[0] for _ in range(LOADS))
        return seconds / (LOADS * (CONNECTIONS + 1)) * 1e6


def table(title, figures, bars, missed):
    """Prints medians, and the ratios of Tidegate's HTTP/3 to the others."""
    print(f"\n{title}\n             median      min      max   ours / it")
    for name, each in figures.items():
        ratio = statistics.median(one / two for one, two in zip(figures[OURS], each))
        bar = bars.get((OURS, name))
        print(
            f"{name:10} {statistics.median(each):8.3f} {min(each):8.3f} {max(each):8.3f} {ratio:11.2f}"
            + (f"  the bar is {bar}" if bar else "")
        )
        if bar and ratio > bar:
            missed.append(f"{title}: {ratio:.2f} of {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=["requests", "bulk", "handshakes"])
    parser.add_argument("--tidegate", default=TIDEGATE, help="the program, which is the load as well")
    parser.add_argument("--peer", default=PEERS / "h3-quinn-peer", help="h3 on quinn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each load")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 1], help="of a connection")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    if not pathlib.Path(options.peer).exists():
        raise Failure("build it first: cargo build --release --manifest-path benches/peers/Cargo.toml -p h3-quinn-peer")
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        jobs = {
            "requests": [
                (f"CPU of a request, {streams} streams on each of {CONNECTIONS} connections, us", bench.requests, (streams,))
                for streams in options.streams
            ],
            "bulk": [("CPU of 200 MB, s", bench.bulk, ())],
            "handshakes": [("CPU of a full handshake with a request, us", bench.handshakes, ())],
        }
        for job in options.jobs:
            if job not in jobs:
                parser.error(f"there is no job {job}: {', '.join(jobs)}")
            for title, measure, arguments in jobs[job]:
                figures = {name: [] for name in bench.commands}
                for _ in range(options.rounds):
                    for name, each in figures.items():
                        each.append(measure(name, *arguments))
                table(title, figures, BARS[job], missed)
    if missed and options.check:
        raise Failure("; ".join(missed))


if __name__ == "__main__":
    servers.run(main)
