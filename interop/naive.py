"""A deliberately careless proxy and origin: requests can be smuggled between the two.

The proxy believes `Content-Length` before it believes anything else, and hands everything on as it came, over the one
connection to the origin that all its clients share. The origin believes whatever looks like `Transfer-Encoding: chunked`.
A tool that finds nothing between these two finds nothing anywhere. With our server as the origin the proxy is as
careless as before.
"""

import contextlib
import re
import socket
import threading

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\n[^\r\n]*encoding[^\r\n]*chunked", re.IGNORECASE)
CLIENT_SECONDS_MAX = 30
# The proxy's timeout for a body. A tool that sends less than it has declared must not report a timeout as a finding.
BODY_SECONDS_MAX = 0.5
# The proxy's timeout for the origin.
ORIGIN_SECONDS_MAX = 1.5
PAGE = b"<html><title>Harbour</title><body>A page that is long enough to be told from an error.</body></html>\n"


class Listener:
    """Listens on a free port, a context manager; serves each connection on a new thread."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        # Otherwise the thread in `accept` keeps the socket open.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_to_its_end, args=(client,), daemon=True).start()

    def serve_to_its_end(self, client):
        client.settimeout(CLIENT_SECONDS_MAX)
        with client, client.makefile("rb") as reader, contextlib.suppress(OSError, ValueError):
            self.serve(client, reader)


def read_head(reader):
    """A head with its empty line; empty at the end of the stream."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline(1 << 16)
        if not line:
            return b""
        head += line
    return head


def read_chunks(reader):
    body = b""
    while True:
        line = reader.readline(1 << 16)
        size = int(line.split(b";")[0], 16)
        body += line + reader.read(size) + reader.readline(1 << 16)
        if size == 0:
            return body


def length(head):
    found = LENGTH.search(head)
    return int(found[1]) if found else 0


def response(status, body):
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Origin(Listener):
    """Accepts GET and POST for any path, on persistent connections."""

    def serve(self, client, reader):
        while head := read_head(reader):
            if CHUNKED.search(head):
                read_chunks(reader)
            else:
                reader.read(length(head))
            is_known = head.startswith((b"GET ", b"POST "))
            client.sendall(response("200 OK", PAGE) if is_known else response("405 Method Not Allowed", b"no\n"))


class Proxy(Listener):
    """One request per client connection, one shared connection to the origin."""

    def __init__(self, origin_port):
        self.origin_port = origin_port
        self.turn = threading.Lock()
        self.origin = None

    def __exit__(self, *_):
        super().__exit__()
        self.part()

    def serve(self, client, reader):
        head = read_head(reader)
        if not head:
            return
        client.settimeout(BODY_SECONDS_MAX)
        try:
            body = reader.read(length(head)) if LENGTH.search(head) or not CHUNKED.search(head) else read_chunks(reader)
        except (TimeoutError, ValueError):
            client.sendall(response("400 Bad Request", b""))
            return
        request = head.replace(b"Connection: close", b"Connection: keep-alive") + body
        with self.turn:
            try:
                answer = self.ask(request)
            except (OSError, ValueError):
                self.part()
                answer = response("504 Gateway Timeout", b"")
        client.sendall(answer)

    def ask(self, request):
        if self.origin is None:
            self.origin = socket.create_connection(("127.0.0.1", self.origin_port))
            self.origin.settimeout(ORIGIN_SECONDS_MAX)
            self.reader = self.origin.makefile("rb")
        self.origin.sendall(request)
        head = read_head(self.reader)
        while head.startswith(b"HTTP/1.1 100 "):
            head = read_head(self.reader)
        if not head:
            raise ConnectionResetError
        body = read_chunks(self.reader) if CHUNKED.search(head) else self.reader.read(length(head))
        if b"\r\nconnection: close\r\n" in head.lower():
            self.part()
        return head + body

    def part(self):
        if self.origin is not None:
            self.reader.close()
            self.origin.close()
            self.origin = None
