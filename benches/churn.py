#!/usr/bin/env python3
"""Short connections, one request each, as fast as one core of load can open them, without leaks or delayed clients.

During the load a probe client connects repeatedly, and the server must answer it. Afterwards the server must have as many
descriptors as before, and as much memory, plus at most --growth-max. Works with any server that answers /plaintext. The
README in this folder describes how to repeat it.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import time

import servers
from servers import Failure, Probe, Server

REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CONNECTIONS = 100
WARM_UP_SECONDS = 2
# These bounds end a run that hangs. A busy machine needs several times what an idle one does.
PROBE_SECONDS_MAX = 60
GONE_SECONDS_MAX = 60


def come(server):
    """A client that connects, sends one request and closes."""
    with socket.create_connection(server.address, timeout=PROBE_SECONDS_MAX) as connection:
        connection.sendall(REQUEST)
        answer = b""
        while received := connection.recv(1 << 16):
            answer += received
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise Failure(f"the server answered {answer[:40]!r}")


def load(server, options, seconds):
    """Opens connections for so long; returns their number. A connection without an answer is a failure."""
    command = ["taskset", "-c", str(options.load_core), "wrk", "--threads", "1", "--connections", str(CONNECTIONS)]
    command += ["--duration", f"{seconds}s", "--header", "Connection: close", f"http://127.0.0.1:{server.port}/plaintext"]
    output = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout
    errors = [line.strip() for line in output.splitlines() if "errors" in line or "Non-2xx" in line]
    found = re.search(r"(\d+) requests in", output)
    if errors or not found:
        raise Failure(f"{server.command}: {'; '.join(errors) or output}")
    return int(found[1])


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def measure(server, options):
    load(server, options, WARM_UP_SECONDS)
    memory = server.settled_rss()
    before, cpu = descriptors(server), server.cpu_seconds()
    with Probe(lambda: come(server), options.probe_max or PROBE_SECONDS_MAX) as probe:
        count = load(server, options, options.seconds)
        probe.check()
    cost = (server.cpu_seconds() - cpu) / count * 1e6
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while descriptors(server) > before and time.monotonic() < deadline:
        time.sleep(0.1)
    return {
        "connections": count,
        "per_second": round(count / options.seconds),
        "cpu_microseconds_each": round(cost, 1),
        "slowest_beside_milliseconds": round(probe.slowest * 1000),
        "descriptors_left": descriptors(server) - before,
        "growth": server.settled_rss() - memory,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the server's command line")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--rate-min", type=int, default=0, help="fail below so many connections a second")
    parser.add_argument("--probe-max", type=float, metavar="SECONDS", help="fail if the probe gets an answer later than this")
    parser.add_argument("--growth-max", type=int, default=1 << 20, metavar="BYTES", help="fail above this growth")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    with Server(options.server, core=options.server_core) as server:
        result = measure(server, options)
    if options.json:
        print(json.dumps({"measure": "churn"} | result))
    else:
        for name, figure in result.items():
            print(f"{name.replace('_', ' '):28}{figure:,}")
    if result["descriptors_left"] > 0:
        raise Failure(f"{result['descriptors_left']} descriptors are left")
    if result["growth"] > options.growth_max:
        raise Failure(f"grew by {result['growth']} bytes, more than the {options.growth_max} allowed")
    if result["per_second"] < options.rate_min:
        raise Failure(f"{result['per_second']} connections a second, fewer than {options.rate_min}")


if __name__ == "__main__":
    servers.run(main)
