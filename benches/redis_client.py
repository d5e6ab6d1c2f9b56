#!/usr/bin/env python3
"""CPU time of a command by our Redis client, beside redis-rs and fred: GET of 16 bytes from redis-server on one connection.

Each client has one thread and one connection; redis-server answers all of them on another core. The CPU time, user and system,
is that of the client's whole process. Clients take turns, round by round, ratios are taken within a round, and the median of
the rounds counts. The README in this folder describes how to repeat it.
"""

import argparse
import os
import pathlib
import statistics

import client
import redis
import servers
from servers import Failure, Server

PEERS = pathlib.Path(__file__).resolve().parent / "peers/target/release"
CLIENTS = ["tidegate", "redis-rs", "fred"]
# Commands at a time, and the most that our client's CPU time may be of another one's.
BARS = {64: {"redis-rs": 0.6, "fred": 0.7}, 1: {"redis-rs": 0.9, "fred": 0.9}}


def measure(name, server, depth, options):
    """Microseconds of CPU for a command of a client."""
    command = f"{PEERS}/client-{name} 127.0.0.1:{server.address[1]} {depth} {options.seconds}"
    usage, requests = client.run_load(command.split(), options.load_core, options.seconds)
    return (usage.ru_utime + usage.ru_stime) / requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--backends", default="uring,epoll", help="of our client, by commas")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    if not all((PEERS / f"client-{name}").exists() for name in CLIENTS):
        raise Failure("(cd benches/peers && cargo build --release -p redis-clients)")
    too_much = []
    with Server(redis.redis_server(), options.server_core) as server:
        redis.connect(server).close()
        for depth, bars in BARS.items():
            for backend in options.backends.split(","):
                os.environ["TIDEGATE_BACKEND"] = backend
                figures = {name: [] for name in CLIENTS}
                for _ in range(options.rounds):
                    for name in CLIENTS:
                        figures[name].append(measure(name, server, depth, options))
                print(f"\n{depth} at a time, {backend}: CPU of a command, us\n{'':12}  median     min     max  tidegate is")
                for name, each in figures.items():
                    ratio = statistics.median(ours / other for ours, other in zip(figures["tidegate"], each))
                    shown = f"{ratio:6.2f}x, bar {bars[name]}" if name in bars else ""
                    print(f"{name:12}{statistics.median(each):8.2f}{min(each):8.2f}{max(each):8.2f}  {shown}", flush=True)
                    if name in bars and ratio > bars[name]:
                        too_much.append(f"{depth} at a time on {backend}: {ratio:.2f} of {name}")
    if too_much and options.check:
        raise Failure("; ".join(too_much))


if __name__ == "__main__":
    servers.run(main)
