#!/usr/bin/env python3
"""Checks that each peer answers as the comparison requires: figures of different answers are not comparable.

    benches/peers/check.py [PEER...]

Starts every variant of the named peers, or of all built ones, and prints a line for each. It checks every endpoint on
one persistent connection, bodies sent after their heads and in halves, pipelined requests in one write with responses
in order, and the exit on SIGTERM. Exit code 1 if anything failed.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import time

from bench import ROOT, peers

import servers

DEPTH = 256
# Fewer than 64 KiB: at that size some servers stop reading until they have answered.
ECHO_DEPTH = 8
ECHO_BYTES = 4096
BODIES = (1024, 16384)
PIPELINED_BODY = BODIES[0]
ANSWER_SECONDS_MAX = 15
APART_SECONDS = 0.05
HELLO = b"Hello, World!"
HEAD_BYTES_MAX = 4096
RECEIVE_BYTES = 64 * 1024


class Connection:
    """A persistent connection that fails on incomplete or wrong responses."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, what):
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            have = len(self.received)
            raise servers.Failure(f"{what}: nothing for {ANSWER_SECONDS_MAX} seconds, with {have} bytes of it") from None
        if not data:
            raise servers.Failure(f"{what}: the connection was closed")
        self.received += data

    def take(self, count, what):
        while len(self.received) < count:
            self.receive(what)
        data = bytes(self.received[:count])
        del self.received[:count]
        return data

    def expect(self, body, what):
        """Reads one response, whose body has to be `body`, or any for `None`. Returns headers and body."""
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            if len(self.received) > HEAD_BYTES_MAX:
                raise servers.Failure(f"{what}: no end of a head in {len(self.received)} bytes")
            self.receive(what)
        status, *lines = self.take(end + 4, what)[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if not status.startswith("HTTP/1.1 200"):
            raise servers.Failure(f"{what}: {status}")
        if "content-length" not in headers or "transfer-encoding" in headers:
            raise servers.Failure(f"{what}: its length is not said by Content-Length")
        if headers.get("connection", "keep-alive").lower() != "keep-alive":
            raise servers.Failure(f"{what}: Connection: {headers['connection']}")
        found = self.take(int(headers["content-length"]), what)
        if body is not None and found != body:
            raise servers.Failure(f"{what}: {len(found)} bytes, not the {len(body)} expected, or others")
        return headers, found

    def expect_nothing(self, what):
        if self.received:
            raise servers.Failure(f"{what}: {len(self.received)} bytes too many")


def get(target):
    return (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nConnection: keep-alive\r\n\r\n"
    ).encode()


def post(body):
    return f"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()


def echoed(seed):
    """A body that differs from all others at every offset."""
    return bytes((seed + i) % 251 for i in range(ECHO_BYTES))


def check_headers(headers, what):
    if "date" not in headers:
        raise servers.Failure(f"{what}: it has no Date")
    if headers.get("content-type", "").partition(";")[0] != "text/plain":
        raise servers.Failure(f"{what}: Content-Type: {headers.get('content-type')}")


def check_bodies(connection):
    """The server chooses the bytes, which must be the same each time."""
    for size in BODIES:
        what = f"GET /bytes/{size}"
        body = ask(connection, size)
        if len(body) != size:
            raise servers.Failure(f"{what}: {len(body)} bytes")
        connection.send(get(f"/bytes/{size}"))
        connection.expect(body, f"{what} again")


def ask(connection, size):
    connection.send(get(f"/bytes/{size}"))
    return connection.expect(None, f"GET /bytes/{size}")[1]


def check_echo(connection):
    body, half = echoed(0), ECHO_BYTES // 2
    connection.send(post(body) + body)
    connection.expect(body, "POST /echo")
    arrivals = {
        "its body after its head": [post(body), body],
        "in two halves": [post(body) + body[:half], body[half:]],
        "head and two halves": [post(body), body[:half], body[half:]],
    }
    for how, parts in arrivals.items():
        for part in parts:
            connection.send(part)
            time.sleep(APART_SECONDS)
        connection.expect(body, f"POST /echo, {how}")
    bodies = [echoed(seed) for seed in range(1, 1 + ECHO_DEPTH)]
    connection.send(b"".join(post(body) + body for body in bodies))
    for at, body in enumerate(bodies):
        connection.expect(body, f"POST /echo, number {at} of {ECHO_DEPTH} pipelined")


def check_pipelining(connection):
    # Two lengths that alternate irregularly, so that a misplaced answer shows.
    long = [at * at % 7 == 2 for at in range(DEPTH)]
    pipelined_body = ask(connection, PIPELINED_BODY)
    for kinds in ([False] * DEPTH, long):
        targets = [f"/bytes/{PIPELINED_BODY}" if kind else "/plaintext" for kind in kinds]
        connection.send(b"".join(map(get, targets)))
        for at, kind in enumerate(kinds):
            body = pipelined_body if kind else HELLO
            connection.expect(body, f"GET {targets[at]}, number {at} of {DEPTH} pipelined")


def check_peer(address, variant):
    """Checks all endpoints on one connection."""
    with Connection(address) as connection:
        check_endpoints(connection, variant)


def check_endpoints(connection, variant):
    connection.send(get("/plaintext"))
    check_headers(connection.expect(HELLO, "GET /plaintext")[0], "GET /plaintext")
    check_bodies(connection)
    if "echo" not in variant.without:
        check_echo(connection)
    check_pipelining(connection)
    if variant.collected:
        connection.send(get("/heap"))
        heap = connection.expect(None, "GET /heap")[1]
        if not heap.strip().isdigit():
            raise servers.Failure(f"GET /heap: {heap[:40]!r}")
    connection.send(get("/plaintext"))
    connection.expect(HELLO, "GET /plaintext at last")
    connection.expect_nothing("GET /plaintext at last")


def check_floor(address, body):
    with Connection(address) as connection:
        for depth in (1, DEPTH):
            connection.send(get("/plaintext") * depth)
            for at in range(depth):
                check_headers(connection.expect(body, f"number {at} of {depth}")[0], "GET /plaintext")
        connection.expect_nothing(f"{DEPTH} requests")


def check_end(server):
    server.process.terminate()
    try:
        server.process.wait(servers.START_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise servers.Failure(f"SIGTERM did not end it in {servers.START_SECONDS_MAX} seconds") from None


def check_variant(variant):
    if variant.parses_headers:
        check = lambda address: check_peer(address, variant)
    else:
        _, _, size = variant.command.partition("--body ")
        check = lambda address: check_floor(address, b"x" * int(size) if size else HELLO)
    with servers.Server(variant.command) as server:
        check(server.address)
        check_end(server)


def missing(peer, command):
    """The reason why a variant cannot start, or `None`."""
    if reason := peers.missing_tools(peer):
        return reason
    words = shlex.split(command)
    if not shutil.which(words[0]):
        return f"{words[0]} is not there"
    for word in words[1:]:
        if word.startswith(str(ROOT)) and not pathlib.Path(word).exists():
            return f"{word} is not there"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", nargs="*", help="a peer's folder, or a variant; all that are built unless said")
    named = parser.parse_args().peer
    # Commands may contain paths relative to the root of the repository.
    os.chdir(ROOT)
    known = peers.chosen(peers.read_all(), named)
    failures = 0
    for folder, peer in known.items():
        for variant in peers.variants(folder, peer):
            name = f"{folder}: {variant.name}"
            if reason := missing(peer, variant.command):
                print(f"{name}: {'FAILED' if named else 'skipped'}: {reason}", flush=True)
                failures += bool(named)
                continue
            try:
                check_variant(variant)
            except (servers.Failure, OSError) as failure:
                # A failure may quote output of the server.
                print(f"{name}: FAILED: {' '.join(str(failure).split())}", flush=True)
                failures += 1
            else:
                print(f"{name}: ok{', without ' + ', '.join(variant.without) if variant.without else ''}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    servers.run(main)
