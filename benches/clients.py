"""Many connections to a server under test, from one thread: opened a few at a time, used, and kept open.

`Clients` owns the connections; `fetch` and `probe` send requests next to them and wait for the response. A server that
closes a connection, is silent or answers with a status other than 200 is a `Failure`, never a figure.
"""

import contextlib
import resource
import selectors
import socket
import time

import servers
from servers import Failure

# Several addresses, so that connections do not run out of ports.
CLIENT_ADDRESSES = [f"127.0.0.{last}" for last in range(1, 21)]
# Concurrent connection attempts: more than a server's accept queue holds would wait for retransmissions.
OPENING_MAX = 100
SILENCE_SECONDS_MAX = 10
DESCRIPTORS_SPARE = 64
PROBE_ANSWER_SECONDS_MAX = 1
STATUS_BYTES_SHOWN = 60

# From Linux's headers: Python defines neither. The first byte of TCP_INFO is the connection's state.
IP_BIND_ADDRESS_NO_PORT = 24
TCP_ESTABLISHED = 1


def request(target, body=None):
    """A GET request, or a POST request with a body."""
    head = (
        f"{'GET' if body is None else 'POST'} {target} HTTP/1.1\r\nHost: localhost\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nConnection: keep-alive\r\n"
    )
    return f"{head}\r\n".encode() if body is None else f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def split_response(data):
    """Splits a response off the front of `data`: (body, rest), or None while it is incomplete."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    status, *fields = head.split(b"\r\n")
    if not status.startswith(b"HTTP/1.1 200 "):
        raise Failure(f"the server answered {status[:STATUS_BYTES_SHOWN].decode(errors='replace')!r}")
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


class Client:
    """One connection: connects, sends all of `outgoing`, then reads until `is_answer` returns true.

    Without `is_answer` it never reads.
    """

    def __init__(self, server, source, outgoing, is_answer=None):
        self.outgoing = outgoing
        self.incoming = b""
        self.is_answer = is_answer
        self.socket = socket.socket()
        self.socket.setblocking(False)
        # The kernel chooses the port at connect, when the remote address is known: each address pair has all ports.
        self.socket.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((source, 0))
        self.socket.connect_ex(server.address)

    def fileno(self):
        return self.socket.fileno()

    def handle_ready(self):
        """Makes progress without blocking; returns the event to wait for, or None when done."""
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[self.socket.send(self.outgoing) :]
            if not self.is_answer:
                return None
            while not self.is_answer(self.incoming):
                received = self.socket.recv(1 << 16)
                if not received:
                    raise Failure("the server closed a connection without an answer")
                self.incoming += received
        except BlockingIOError:
            return selectors.EVENT_WRITE if self.outgoing else selectors.EVENT_READ
        return None

    def close(self):
        self.socket.close()


class Clients:
    """Opens connections a few at a time and drives each until it is done; done connections stay open."""

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
        """Handles the connections that are ready within `seconds`, and returns their number."""
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
        """Opens `count` connections, and returns once all are done."""
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
        """Fails if the server has closed connections: that saves memory, but is not what is measured."""
        closed = sum(not is_established(client.socket) for client in self.all)
        if closed:
            raise Failure(f"the server closed {closed} of {len(self.all)} connections")


def is_established(connection):
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED


def fetch(connection, target, body=None):
    """Sends one request on a new, blocking connection; returns the body of the response."""
    connection.sendall(request(target, body))
    data = b""
    while not (parts := split_response(data)):
        received = connection.recv(1 << 16)
        if not received:
            raise Failure(f"the server closed the connection in its answer to {target}")
        data += received
    return parts[0]


@contextlib.contextmanager
def probe(server, seconds_max=PROBE_ANSWER_SECONDS_MAX):
    """Requests /plaintext repeatedly during the load, and fails if a response is late."""
    with socket.create_connection(server.address, timeout=seconds_max) as connection:
        with servers.Probe(lambda: fetch(connection, "/plaintext"), seconds_max) as asking:
            yield asking


def allow_descriptors(count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count + DESCRIPTORS_SPARE > hard:
        raise Failure(f"{count} connections need more descriptors than the {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
