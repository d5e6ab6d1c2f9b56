#!/usr/bin/env python3
"""A heavy load with counts per connection: pipelined `GET /plaintext`, or endless uploads to `/sum`.

It prints JSON: for each window, the throughput of the slowest connection relative to the mean. A window takes a second
or longer: until a connection has had several batches on average. One batch more or less, by where the window begins and
ends, is then a small part of them. It uses one thread and epoll. `tidegate load` is the faster generator, but has no
counts per connection, so `light.py` measures latencies under that one; here only the proportions between connections
matter.
"""

import argparse
import gc
import json
import select
import socket
import statistics
import sys
import time
import zlib

from clients import allow_descriptors, request, split_response
from servers import Failure

DEPTH = 256
RECEIVE_BYTES = 256 * 1024
UPLOAD_BYTES = 64 * 1024 * 1024
SEND_BYTES = 256 * 1024
SILENCE_SECONDS_MAX = 60
# Batches of the mean connection in a window: pipelines that were answered, or pieces of an upload.
BATCHES = 20
REQUEST = request("/plaintext")
# Two batches: a send starts within the first request, and covers up to a whole batch from there.
REQUESTS = memoryview(REQUEST * (DEPTH + 1))
ZEROS = memoryview(bytes(SEND_BYTES))


class Connection:
    """A nonblocking connection; `done` counts responses, or upload bytes that the kernel accepted, and `batch` is how many
    come at once."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=SILENCE_SECONDS_MAX)
        self.socket.setblocking(False)
        self.done = 0


class Pipelined(Connection):
    """Keeps 256 requests in flight."""

    batch = DEPTH

    # All responses of a server have the same length: that of the first one.
    response_bytes = 0

    def __init__(self, address):
        super().__init__(address)
        self.unsent = DEPTH * len(REQUEST)
        self.sent = self.received = 0

    @classmethod
    def prepare(cls, address):
        with socket.create_connection(address, timeout=SILENCE_SECONDS_MAX) as connection:
            connection.sendall(REQUEST)
            data = b""
            while not (parts := split_response(data)):
                if not (received := connection.recv(RECEIVE_BYTES)):
                    raise Failure("the server closed a connection")
                data += received
        cls.response_bytes = len(data) - len(parts[1])

    def handle_readable(self, buffer):
        count = self.socket.recv_into(buffer)
        if count == 0:
            raise Failure("the server closed a connection")
        aligned = -self.received % self.response_bytes
        if count >= aligned + 12 and bytes(buffer[aligned : aligned + 12]) != b"HTTP/1.1 200":
            raise Failure("the responses differ in length, or one has another status than 200")
        self.received += count
        answered = self.received // self.response_bytes - self.done
        self.done += answered
        self.unsent += answered * len(REQUEST)

    def handle_writable(self):
        """Returns whether it waits for the socket to be writable."""
        if self.unsent:
            offset = self.sent % len(REQUEST)
            count = self.socket.send(REQUESTS[offset : offset + self.unsent])
            self.sent += count
            self.unsent -= count
        return self.unsent > 0


class Upload(Connection):
    """Posts zeros to `/sum`, one body after another."""

    batch = SEND_BYTES

    expected = b""

    def __init__(self, address):
        super().__init__(address)
        self.incoming = b""
        self.begin()

    @classmethod
    def prepare(cls, _):
        remainder = 0
        for _ in range(UPLOAD_BYTES // SEND_BYTES):
            remainder = zlib.crc32(ZEROS, remainder)
        cls.expected = f"{UPLOAD_BYTES} {remainder:08x}\n".encode()

    def begin(self):
        self.head = f"POST /sum HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n".encode()
        self.unsent = UPLOAD_BYTES

    def handle_readable(self, buffer):
        count = self.socket.recv_into(buffer)
        if count == 0:
            raise Failure("the server closed a connection")
        self.incoming += bytes(buffer[:count])
        parts = split_response(self.incoming)
        if not parts:
            return
        if parts[0] != self.expected or parts[1] or self.unsent:
            raise Failure(f"the server answered /sum with {parts[0][:40]!r} instead of {self.expected!r}")
        self.incoming = b""
        self.begin()

    def handle_writable(self):
        if self.head:
            self.head = self.head[self.socket.send(self.head) :]
        elif self.unsent:
            count = self.socket.send(ZEROS[: min(self.unsent, SEND_BYTES)])
            self.unsent -= count
            self.done += count
        return bool(self.head or self.unsent)


KINDS = {"plaintext": Pipelined, "uploads": Upload}


class Load:
    """All connections of one load, driven by one epoll instance."""

    def __init__(self, kind, address, count):
        KINDS[kind].prepare(address)
        self.connections = [KINDS[kind](address) for _ in range(count)]
        self.epoll = select.epoll()
        self.by_descriptor = {}
        self.waits = set()
        for connection in self.connections:
            self.by_descriptor[connection.socket.fileno()] = connection
            self.waits.add(connection.socket.fileno())
            self.epoll.register(connection.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))

    def drive_until(self, end):
        while (left := end - time.monotonic()) > 0:
            ready = self.epoll.poll(min(left, SILENCE_SECONDS_MAX), maxevents=2 * len(self.connections))
            if not ready and left > SILENCE_SECONDS_MAX:
                raise Failure(f"nothing moved for {SILENCE_SECONDS_MAX} seconds")
            for descriptor, events in ready:
                self.handle(descriptor, events)

    def handle(self, descriptor, events):
        connection = self.by_descriptor[descriptor]
        try:
            if events & ~select.EPOLLOUT:
                connection.handle_readable(self.buffer)
            waits = connection.handle_writable()
        except BlockingIOError:
            waits = True
        if waits != (descriptor in self.waits):
            self.epoll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if waits else 0))
            (self.waits.add if waits else self.waits.discard)(descriptor)

    def drive_window(self, seconds, batches):
        """Drives for so long, and on until the mean connection has had so many batches."""
        wanted = sum(self.counts()) + batches * self.connections[0].batch * len(self.connections)
        self.drive_until(time.monotonic() + seconds)
        before, give_up = 0, time.monotonic() + SILENCE_SECONDS_MAX
        while (done := sum(self.counts())) < wanted:
            if done > before:
                before, give_up = done, time.monotonic() + SILENCE_SECONDS_MAX
            if time.monotonic() > give_up:
                raise Failure(f"the server answered nothing for {SILENCE_SECONDS_MAX} seconds")
            self.drive_until(time.monotonic() + seconds / 10)

    def counts(self):
        return [connection.done for connection in self.connections]


def shares(before, after):
    """The throughput of the slowest and of the fastest connection in a window, relative to the mean."""
    grown = [now - then for then, now in zip(before, after)]
    mean = statistics.mean(grown)
    return {"slowest": min(grown) / mean, "fastest": max(grown) / mean, "mean": mean} if mean else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="plaintext")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seconds", type=int, default=3, help="windows, of a second each or longer")
    parser.add_argument("--batches", type=int, default=BATCHES, help="of the mean connection in a window, at least")
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    allow_descriptors(options.connections)
    gc.disable()
    load = Load(options.kind, ("127.0.0.1", options.port), options.connections)
    # The first second fills buffers.
    load.drive_until(time.monotonic() + 1)
    start, windows, before, done = time.monotonic(), [], load.counts(), sum(load.counts())
    for _ in range(options.seconds):
        load.drive_window(1, options.batches)
        after = load.counts()
        windows.append(shares(before, after))
        before = after
    if not all(windows):
        raise Failure("the server answered nothing for a second")
    seconds = time.monotonic() - start
    print(json.dumps({"per_second": (sum(before) - done) / seconds, "windows": windows}))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"heavy client: {failure or type(failure).__name__}")
