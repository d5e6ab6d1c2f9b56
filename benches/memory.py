#!/usr/bin/env python3
"""The memory cost of connections: the server's resident bytes before and after, as the kernel counts them.

Works with any server that answers /plaintext (and /bytes/16384 for `stuck`). The README in this folder describes how to
repeat it.
"""

import argparse
import collections
import contextlib
import json
import selectors
import socket
import time

import servers
from clients import OPENING_MAX, PROBE_ANSWER_SECONDS_MAX, SILENCE_SECONDS_MAX
from clients import Clients, allow_descriptors, fetch, is_established, is_response, probe, request, split_response
from servers import Failure, Server

ECHO_BYTES = b"sixteen bytes ok"
STUCK_DEPTH = 256
STUCK_TARGET = "/bytes/16384"
STUCK_BODY_BYTES = 16384

HEAP_TARGET = "/heap"
COLLECTION_SECONDS_MAX = 30

BROADCAST_LINES = 5
BROADCAST_LINE_BYTES = 1024
BROADCAST_PAUSE_SECONDS = 0.3

ROOM_MARKER = b"flotsam and jetsam"
ROOM_MESSAGE_BYTES = 1024
ROOM_TURNS_PER_SAMPLE = 8


def is_echo(data):
    if not ECHO_BYTES.startswith(data):
        raise Failure(f"sent {ECHO_BYTES!r}, got {data!r}")
    return data == ECHO_BYTES


class Footprint:
    """A server's memory before and with so many connections: resident bytes, and for a garbage-collected runtime also
    the live heap, which the server reports after a collection."""

    def __init__(self, server, options):
        self.server = server
        self.options = options
        self.start = self.sample()

    def sample(self, between=time.sleep):
        sizes = {"": self.server.settled_rss(between)}
        if self.options.collected:
            sizes["heap_"] = live_heap(self.server)
            # Resident garbage belongs to no connection.
            sizes[""] = self.server.settled_rss(between)
        return sizes

    def growth(self, between=time.sleep):
        figures, after = {}, self.sample(between)
        for kind, start in self.start.items():
            each = round((after[kind] - start) / self.options.connections)
            figures.update({f"{kind}start": start, f"{kind}after": after[kind], f"{kind}growth_each": each})
        return figures


def live_heap(server):
    with socket.create_connection(server.address, timeout=COLLECTION_SECONDS_MAX) as connection:
        said = fetch(connection, HEAP_TARGET)
    if not said.strip().isdigit():
        raise Failure(f"{HEAP_TARGET} returned {said[:40]!r}, which is no number of bytes")
    return int(said)


def growth_of_answered(server, options, *client):
    # The first request makes code of the program resident, which is no connection's.
    with Clients() as clients:
        clients.open(1, server, *client)
    footprint = Footprint(server, options)
    with Clients() as clients:
        clients.open(options.connections, server, *client)
        figures = footprint.growth()
        clients.check_open()
    return figures


def idle(server, options):
    return growth_of_answered(server, options, request("/plaintext"), is_response)


def echo(server, options):
    return growth_of_answered(server, options, ECHO_BYTES, is_echo)


def await_accepted(server):
    """Returns once all earlier connections are accepted: the accept queue is ordered, and this one is the last."""
    with socket.create_connection(server.address, timeout=SILENCE_SECONDS_MAX) as connection:
        fetch(connection, "/plaintext")


def stuck(server, options):
    footprint = Footprint(server, options)
    with socket.create_connection(server.address, timeout=options.answer_seconds_max) as connection:
        expected = fetch(connection, STUCK_TARGET)
    if len(expected) != STUCK_BODY_BYTES:
        raise Failure(f"{STUCK_TARGET} is {len(expected)} bytes long")
    with Clients() as clients, probe(server, options.answer_seconds_max) as asking:
        for opened in range(options.connections):
            clients.add(server, request(STUCK_TARGET) * STUCK_DEPTH)
            if opened % OPENING_MAX == 0:
                clients.drive(0)
                await_accepted(server)
                server.bounded_rss()
        # The server need not read all requests, so some clients may never be done.
        figures = footprint.growth(between=clients.drive_for)
        clients.check_open()
        read_stuck(clients.all[0], expected)
        asking.check()
    return figures | {"probes": asking.answers, "slowest_probe_milliseconds": round(asking.slowest * 1000)}


def shed(server, options):
    """The same with a memory budget below the need: the server sheds some connections, and the probe is not delayed."""
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
        cut_off = sum(not is_established(client) for client in sockets)
    return {
        "start": start,
        "peak": peak,
        "growth": peak - start,
        "cut_off": cut_off,
        "slowest_probe_milliseconds": round(asking.slowest * 1000),
    }


def read_stuck(client, expected):
    """Reads all responses of one stuck connection, and checks every byte."""
    answered = 0
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        while answered < STUCK_DEPTH:
            # Some requests may still be unsent, since nothing was read so far.
            selector.modify(client, selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outgoing else 0))
            if not selector.select(SILENCE_SECONDS_MAX):
                raise Failure(f"nothing arrived after {answered} responses")
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
                    raise Failure(f"response {answered} has another body than that of a single request")
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
    """One chat member sends lines to all others: the maximum growth of the server meanwhile."""
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


class Member:
    """A member of a room that reads: counts the messages with the marker, and keeps none."""

    def __init__(self, client):
        self.client = client
        self.messages = 0
        self.end = b""

    def read(self):
        received = self.client.socket.recv(1 << 16)
        if not received:
            raise Failure("the server closed the connection of a member that reads")
        data = self.end + received
        self.messages += data.count(ROOM_MARKER)
        # A marker may lie on both sides of the next receive.
        self.end = data[1 - len(ROOM_MARKER) :]


def handshake(room):
    lines = [f"GET /chat/ws?room={room} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
    return "\r\n".join(lines).encode()


def has_entered(data):
    """Whether the response to the handshake and the first message of the room are there."""
    if data and not b"HTTP/1.1 101".startswith(data[:12]):
        raise Failure(f"the handshake was refused: {data[:200]!r}")
    return b'"present"' in data


def masked_text(text):
    """A WebSocket frame of a client, with a mask of zeros: its bytes stay as they are."""
    return b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text


def room(server, options):
    """One member of a chat room sends messages to all, each when all that read have the last: the maximum growth of the
    server meanwhile, and its CPU for each message that a member receives."""
    never_reads = options.connections // 10 if options.stuck_tenth else 0
    text = ROOM_MARKER + b"x" * (ROOM_MESSAGE_BYTES - len(ROOM_MARKER))
    with Clients() as clients:
        clients.open(options.connections, server, handshake("memory"), has_entered)
        readers = [Member(client) for client in clients.all[never_reads:]]
        for reader in readers:
            clients.selector.register(reader.client, selectors.EVENT_READ, reader)
        author = readers[0].client.socket

        def send():
            author.setblocking(True)
            author.sendall(masked_text(text))
            author.setblocking(False)
            wanted = readers[0].messages + 1
            missing = len(readers)
            while missing:
                ready = clients.selector.select(SILENCE_SECONDS_MAX)
                if not ready:
                    raise Failure(f"{missing} members did not get a message")
                for key, _ in ready:
                    before = key.data.messages
                    key.data.read()
                    missing -= before < wanted <= key.data.messages
                yield

        # The first message makes code of the program resident.
        collections.deque(send(), maxlen=0)
        server.settled_rss()
        start = peak = server.anonymous()
        cpu = server.cpu_seconds()
        for _ in range(options.messages):
            for turn, _ in enumerate(send()):
                if turn % ROOM_TURNS_PER_SAMPLE == 0:
                    peak = max(peak, server.anonymous())
            peak = max(peak, server.anonymous())
        cpu = server.cpu_seconds() - cpu
        server.settled_rss()
        after = server.anonymous()
        closed = sum(not is_established(client.socket) for client in clients.all[:never_reads])
    deliveries = options.messages * len(readers)
    return {
        "start": start,
        "peak": peak,
        "after": after,
        "growth": peak - start,
        "never_read": never_reads,
        "of_these_closed": closed,
        "cpu_nanoseconds_each": round(cpu / deliveries * 1e9),
    }


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
        (stuck, 1_000, f"connections that request {STUCK_TARGET} {STUCK_DEPTH} times and never read"),
        (shed, 1_000, "as `stuck`, with a server that has a memory budget: give --max"),
        (waves, 10_000, "connections that make one request each and close, in waves"),
        (room, 10_000, "members of a chat room over WebSocket: give --chat-rate to the server"),
        (broadcast, 10_000, f"chat members that read {BROADCAST_LINES} lines of 1 KiB of one sender"),
    ]:
        command = commands.add_parser(measure.__name__, help=help, description=help)
        command.set_defaults(measure=measure)
        command.add_argument("--server", required=True, help="the server's command line")
        command.add_argument("--connections", type=int, default=default)
        command.add_argument("--collected", action="store_true", help=f"the server reports its heap at {HEAP_TARGET}")
        command.add_argument("--json", action="store_true", help="print one line of JSON")
        whose = "in all" if measure in (waves, shed, broadcast, room) else "per connection"
        command.add_argument("--max", type=int, metavar="BYTES", help=f"fail above this growth, {whose}")
    commands.choices["stuck"].add_argument(
        "--answer-seconds-max", type=float, default=PROBE_ANSWER_SECONDS_MAX, help="fail if a probe waits longer"
    )
    commands.choices["waves"].add_argument("--waves", type=int, default=2)
    commands.choices["room"].add_argument("--messages", type=int, default=20)
    commands.choices["room"].add_argument("--stuck-tenth", action="store_true", help="a tenth of the members never reads")
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
