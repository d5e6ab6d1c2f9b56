#!/usr/bin/env python3
"""How long a look at a server holds its loops: a scrape of the metrics, the figures of the live page, a list of all
connections.

One loop has many idle connections. Each kind of request is sent many times, one after the other; then the loop has
counted how long its turns took meanwhile. The first line is without requests: what other programs of the machine do to
turns. The README in this folder describes how to repeat it.
"""

import argparse
import http.client
import json
import re
import resource
import socket
import statistics
import time

import servers
from servers import Failure, Server

TIDEGATE = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet --admin 127.0.0.1:0"
ADMIN = re.compile(r"tidegate: admin at http://127\.0\.0\.1:(\d+)")
ANSWER_SECONDS_MAX = 20
REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"
KINDS = {
    "nothing": None,
    "a scrape": "/metrics",
    "figures of the page": "/dashboard/snapshot",
    "a list, by age": "/dashboard/connections?sort=age&rows=100",
    "a list, by peer": "/dashboard/connections?sort=peer&ascending=true&rows=100&search=127",
}


def admin_port(server):
    for _ in range(ANSWER_SECONDS_MAX * 20):
        for line in server.last_lines:
            if found := ADMIN.match(line):
                return int(found.group(1))
        time.sleep(0.05)
    raise Failure("the server does not print where its admin is")


def crowd(port, count):
    """Connections that made one request each."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)
        connection.sendall(REQUEST)
        if not connection.recv(4096).endswith(b"Hello, World!"):
            raise Failure("a connection gets another response")
        connections.append(connection)
    return connections


class Admin:
    """The administrative server, on one connection."""

    def __init__(self, port):
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)

    def get(self, path):
        self.client.request("GET", path)
        response = self.client.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failure(f"{path}: {response.status} {body!r}")
        return body

    def turns(self):
        """Turns of the loop by powers of two of microseconds."""
        return json.loads(self.get("/dashboard/snapshot"))["loops"][0]["turn_times"]


def measure(admin, path, times, pause):
    """Milliseconds of each response, and the turns of the loop meanwhile."""
    before, took = admin.turns(), []
    for _ in range(times):
        if path is not None:
            began = time.perf_counter()
            admin.get(path)
            took.append((time.perf_counter() - began) * 1000)
        time.sleep(pause)
    return took, [now - then for now, then in zip(admin.turns(), before)]


def bound(turns, share=1.0):
    """The bound below which this share of the turns was, in microseconds."""
    left = sum(turns) * share
    for bucket, count in enumerate(turns):
        left -= count
        if left <= 0:
            return 1 << bucket
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=TIDEGATE, help="the command of Tidegate, with one loop and an admin")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=200, help="requests of each kind")
    parser.add_argument("--pause", type=float, default=0.02, metavar="SECONDS", help="between two requests")
    parser.add_argument(
        "--max", type=int, metavar="US", help="fail if more turns are longer than one for a hundred requests"
    )
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    failures = []
    with Server(options.server) as server:
        connections = crowd(server.port, options.connections)
        admin = Admin(admin_port(server))
        for label, path in KINDS.items():
            took, turns = measure(admin, path, options.times, options.pause)
            response = f"; a response takes {statistics.median(took):.2f} ms" if took else ""
            of_turns = "no turn"
            if any(turns):
                shorter = f"99 % shorter than {bound(turns, 0.99)} us, all than {bound(turns)} us"
                of_turns = f"{sum(turns)} turns, {shorter}"
            print(f"{label}: {of_turns}{response}", flush=True)
            if options.max is not None:
                longer = sum(count for bucket, count in enumerate(turns) if 1 << bucket > options.max)
                if longer * 100 > options.times:
                    failures.append(f"{label}: {longer} turns take longer than {options.max} us")
        for connection in connections:
            connection.close()
    if failures:
        raise Failure("; ".join(failures))


if __name__ == "__main__":
    servers.run(main)
