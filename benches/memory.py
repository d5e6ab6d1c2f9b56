#!/usr/bin/env python3
"""What connections cost a server in memory: its resident bytes before and after, by the kernel's count.

Works with any server that answers /plaintext (and /bytes/16384 for `stuck`). The README beside this file says how to
repeat it.
"""

import argparse
import contextlib
import json
import resource
import selectors
import socket
import struct
import time

import servers
from servers import Failure, Server

# Spread over addresses, connections do not run out of ports.
CLIENT_ADDRESSES = [f"127.0.0.{last}" for last in range(1, 21)]
# Connections on their way at a time: more than a server's accept queue holds would wait for retransmissions.
OPENING_MAX = 100
SILENCE_SECONDS_MAX = 10
DESCRIPTORS_SPARE = 64

ECHO_BYTES = b"sixteen bytes ok"
STUCK_DEPTH = 256
STUCK_TARGET = "/bytes/16384"
STUCK_BODY_BYTES = 16384
PROBE_ANSWER_SECONDS_MAX = 1

BROADCAST_LINES = 5
BROADCAST_LINE_BYTES = 1024
BROADCAST_PAUSE_SECONDS = 0.3

# From Linux's headers: Python names neither. The first byte of TCP_INFO is the connection's state.
IP_BIND_ADDRESS_NO_PORT = 24
TCP_ESTABLISHED = 1


def request(target):
    return (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nConnection: keep-alive\r\n\r\n"
    ).encode()


def split_response(data):
    """Splits a response off the front of `data`: (body, rest), or None while it is not all there."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    status, *fields = head.split(b"\r\n")
    if not status.startswith(b"HTTP/1.1 200 "):
        raise Failure(f"the server answered {status!r}")
    pairs = (field.partition(b":") for field in fields)
    lengths = [value for name, _, value in pairs if name.lower() == b"content-length"]
    if len(lengths) != 1:
        raise Failure(f"a response without one Content-Length: {head!r}")
    length = int(lengths[0])
    return (rest[:length], rest[length:]) if len(rest) >= length else None


def is_response(data):
    parts = split_response(data)
    if parts and parts[1]:
        raise Failure(f"more than one response to one request: {data!r}")
    return parts is not None


def is_echo(data):
    if not ECHO_BYTES.startswith(data):
        raise Failure(f"sent {ECHO_BYTES!r}, got {data!r}")
    return data == ECHO_BYTES


class Client:
    """One connection: connects, sends all of `outgoing`, then reads until `is_answer` says that it is answered.

    Without `is_answer` it never reads.
    """

    def __init__(self, server, source, outgoing, is_answer=None):
        self.outgoing = outgoing
        self.incoming = b""
        self.is_answer = is_answer
        self.socket = socket.socket()
        self.socket.setblocking(False)
        # The port is chosen at connect, when the other end is known: each pair of addresses has all ports to itself.
        self.socket.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((source, 0))
        self.socket.connect_ex(server.address)

    def fileno(self):
        return self.socket.fileno()

    def handle_ready(self):
        """Gets on as far as it can without waiting; returns the event to wait for, or None when done."""
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[self.socket.send(self.outgoing) :]
            if not self.is_answer:
                return None
            while not self.is_answer(self.incoming):
                received = self.socket.recv(1 << 16)
                if not received:
                    raise Failure("the server closed a connection that it should have answered")
                self.incoming += received
        except BlockingIOError:
            return selectors.EVENT_WRITE if self.outgoing else selectors.EVENT_READ
        return None

    def close(self):
        self.socket.close()


class Clients:
    """Connections that are opened a few at a time and driven until each is done; done ones stay open."""

    def __init__(self):
        self.all = []
        self.selector = selectors.DefaultSelector()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.selector.close()
        for client in self.all:
            client.close()

    def add(self, server, *client):
        source = CLIENT_ADDRESSES[len(self.all) % len(CLIENT_ADDRESSES)]
        self.all.append(Client(server, source, *client))
        self.selector.register(self.all[-1], selectors.EVENT_WRITE)

    def drive(self, seconds):
        """Serves those that are ready within `seconds` and returns how many there were."""
        ready = self.selector.select(seconds)
        for key, _ in ready:
            wanted = key.fileobj.handle_ready()
            if wanted is None:
                self.selector.unregister(key.fileobj)
            elif wanted != key.events:
                self.selector.modify(key.fileobj, wanted)
        return len(ready)

    def drive_for(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.selector.get_map():
                self.drive(left)
            else:
                time.sleep(left)

    def open(self, count, server, *client):
        """Opens `count` connections and returns once all are done."""
        for _ in range(count):
            self.add(server, *client)
            while len(self.selector.get_map()) >= OPENING_MAX:
                self.drive_on()
        while self.selector.get_map():
            self.drive_on()

    def drive_on(self):
        if not self.drive(SILENCE_SECONDS_MAX):
            raise Failure(f"{len(self.selector.get_map())} connections, and nothing in {SILENCE_SECONDS_MAX} seconds")

    def check_open(self):
        """A server that closes connections saves memory, but not the way that is measured here."""
        states = [client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for client in self.all]
        closed = sum(state != TCP_ESTABLISHED for state in states)
        if closed:
            raise Failure(f"the server closed {closed} of {len(states)} connections")


def fetch(connection, target):
    """One request on a connection of its own, a blocking one; returns the body."""
    connection.sendall(request(target))
    data = b""
    while not (parts := split_response(data)):
        received = connection.recv(1 << 16)
        if not received:
            raise Failure(f"the server closed the connection in its answer to {target}")
        data += received
    return parts[0]


@contextlib.contextmanager
def probe(server):
    """Asks for /plaintext again and again from beside the load, and demands every answer in time."""
    with socket.create_connection(server.address, timeout=PROBE_ANSWER_SECONDS_MAX) as connection:
        with servers.Probe(lambda: fetch(connection, "/plaintext"), PROBE_ANSWER_SECONDS_MAX) as asking:
            yield asking


def growth_of_answered(server, options, *client):
    start = server.settled_rss()
    with Clients() as clients:
        clients.open(options.connections, server, *client)
        after = server.settled_rss()
        clients.check_open()
    return {"start": start, "after": after, "growth_each": round((after - start) / options.connections)}


def idle(server, options):
    return growth_of_answered(server, options, request("/plaintext"), is_response)


def echo(server, options):
    return growth_of_answered(server, options, ECHO_BYTES, is_echo)


def stuck(server, options):
    start = server.settled_rss()
    with socket.create_connection(server.address, timeout=PROBE_ANSWER_SECONDS_MAX) as connection:
        expected = fetch(connection, STUCK_TARGET)
    if len(expected) != STUCK_BODY_BYTES:
        raise Failure(f"{STUCK_TARGET} is {len(expected)} bytes long")
    with Clients() as clients, probe(server) as asking:
        for opened in range(options.connections):
            clients.add(server, request(STUCK_TARGET) * STUCK_DEPTH)
            if opened % OPENING_MAX == 0:
                clients.drive(0)
        # The server need not take in all that is sent, so some of these may never be done.
        after = server.settled_rss(between=clients.drive_for)
        clients.check_open()
        read_stuck(clients.all[0], expected)
        asking.check()
    return {
        "start": start,
        "after": after,
        "growth_each": round((after - start) / options.connections),
        "probes": asking.answers,
        "slowest_probe_milliseconds": round(asking.slowest * 1000),
    }


def shed(server, options):
    """The same against a server whose memory is too little for all of them: some are cut off, nobody else waits."""
    start = peak = server.settled_rss()
    sockets = []
    with contextlib.ExitStack() as stack, probe(server) as asking:
        for _ in range(options.connections):
            client = stack.enter_context(socket.create_connection(server.address))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.send(request(STUCK_TARGET) * STUCK_DEPTH)
            sockets.append(client)
            peak = max(peak, server.rss()) if len(sockets) % OPENING_MAX == 0 else peak
        peak = max(peak, server.settled_rss())
        asking.check()
        states = [client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for client in sockets]
    return {
        "start": start,
        "peak": peak,
        "growth": peak - start,
        "cut_off": sum(state != TCP_ESTABLISHED for state in states),
        "slowest_probe_milliseconds": round(asking.slowest * 1000),
    }


def read_stuck(client, expected):
    """Reads all that one stuck connection is owed, and checks every byte of it."""
    answered = 0
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        while answered < STUCK_DEPTH:
            # Some of its requests may still be waiting to be sent, for as long as nothing was read.
            selector.modify(client, selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outgoing else 0))
            if not selector.select(SILENCE_SECONDS_MAX):
                raise Failure(f"after {answered} responses, nothing more came")
            client.handle_ready()
            try:
                received = client.socket.recv(1 << 18)
            except BlockingIOError:
                continue
            if not received:
                raise Failure(f"after {answered} responses, the connection was closed")
            data += received
            while parts := split_response(data):
                body, data = parts
                answered += 1
                if body != expected:
                    raise Failure(f"response {answered} has another body than a plain request gets")
    if data:
        raise Failure(f"{len(data)} bytes after the last response")


def waves(server, options):
    start = server.settled_rss()
    after = []
    for _ in range(options.waves):
        with Clients() as clients:
            clients.open(options.connections, server, request("/plaintext"), is_response)
            clients.check_open()
        after.append(server.settled_rss())
    return {"start": start, "after_each_wave": after, "growth": max(after) - start}


def broadcast(server, options):
    """Lines of one guest to all the others of a chat: what the server grows by meanwhile, at most."""
    with Clients() as clients:
        clients.open(options.connections, server, b"reader\n", lambda data: data.count(b"\n") == 2)
        start = peak = server.settled_rss()
        for client in clients.all:
            client.incoming = b""
            client.is_answer = lambda data: data.count(b"\n") == BROADCAST_LINES
            clients.selector.register(client, selectors.EVENT_READ)
        with socket.create_connection(server.address) as crier:
            crier.sendall(b"crier\n")
            for _ in range(BROADCAST_LINES):
                crier.sendall(b"x" * (BROADCAST_LINE_BYTES - 1) + b"\n")
                time.sleep(BROADCAST_PAUSE_SECONDS)
                peak = max(peak, server.rss())
            while clients.selector.get_map():
                peak = max(peak, server.rss())
                clients.drive_on()
        for client in clients.all:
            if not client.incoming.endswith(b"x\n") or len(client.incoming) < BROADCAST_LINES * BROADCAST_LINE_BYTES:
                raise Failure(f"a reader got {len(client.incoming)} bytes")
        after = server.settled_rss()
        clients.check_open()
    return {"start": start, "peak": peak, "after": after, "growth": peak - start}


def allow_descriptors(count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count + DESCRIPTORS_SPARE > hard:
        raise Failure(f"{count} connections need more descriptors than the {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def report(result):
    for name, figure in result.items():
        shown = ", ".join(f"{one:,}" for one in figure) if isinstance(figure, list) else f"{figure:,}"
        print(f"{name.replace('_', ' '):28}{shown}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for measure, default, help in [
        (idle, 10_000, "keep-alive connections that made one request each"),
        (echo, 10_000, "connections to an echo server that had 16 bytes echoed each"),
        (stuck, 1_000, f"connections that ask {STUCK_DEPTH} times for {STUCK_TARGET} and never read"),
        (shed, 1_000, "the same against a server with little memory: give it a budget, and --max"),
        (waves, 10_000, "connections that came, made one request each, and went"),
        (broadcast, 10_000, f"readers of a chat, to whom one other says {BROADCAST_LINES} lines of 1 KiB"),
    ]:
        command = commands.add_parser(measure.__name__, help=help, description=help)
        command.set_defaults(measure=measure)
        command.add_argument("--server", required=True, help="the server's command line")
        command.add_argument("--connections", type=int, default=default)
        command.add_argument("--json", action="store_true", help="print one line of JSON")
        whose = "in all" if measure in (waves, shed, broadcast) else "per connection"
        command.add_argument("--max", type=int, metavar="BYTES", help=f"fail above this growth, {whose}")
    commands.choices["waves"].add_argument("--waves", type=int, default=2)
    options = parser.parse_args()

    allow_descriptors(options.connections)
    with Server(options.server) as server:
        result = options.measure(server, options)
    if options.json:
        print(json.dumps({"measure": options.command, "connections": options.connections} | result))
    else:
        report(result)
    growth = result.get("growth_each", result.get("growth"))
    if options.max is not None and growth > options.max:
        raise Failure(f"grew by {growth} bytes, more than the {options.max} allowed")


if __name__ == "__main__":
    servers.run(main)
