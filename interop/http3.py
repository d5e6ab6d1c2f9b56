#!/usr/bin/env python3
"""HTTP/3: `tidegate serve --http3` on both backends with a client of aioquic.

Pages, bodies both ways, 500 requests at once and a WebSocket (RFC 9220) on one connection, and `Alt-Svc` over TCP with the same
port. The README beside this file describes how to repeat it.
"""

import asyncio
import os
import pathlib
import ssl
import sys
import urllib.request

VENV = pathlib.Path(__file__).resolve().parent.parent / "target/tools/aioquic/bin/python3"
try:
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
except ImportError:
    if VENV.exists() and os.environ.get("TIDEGATE_HTTP3_VENV") != "1":
        os.environ["TIDEGATE_HTTP3_VENV"] = "1"
        os.execv(VENV, [str(VENV), *sys.argv])
    if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
        sys.exit("not there: aioquic")
    print("skipped: there is no aioquic")
    sys.exit(0)

import program  # noqa: E402
import servers  # noqa: E402
from program import Failure  # noqa: E402

SECONDS_MAX = 60


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.events = {}

    def quic_event_received(self, event):
        for received in self.http.handle_event(event):
            if isinstance(received, (HeadersReceived, DataReceived)):
                self.events[received.stream_id].put_nowait(received)

    def send(self, authority, method, path, body=None, fields=(), ends=True):
        stream = self._quic.get_next_available_stream_id()
        self.events[stream] = asyncio.Queue()
        head = [(":method", method), (":scheme", "https"), (":authority", authority), (":path", path), *fields]
        head = [(name.encode(), value.encode()) for name, value in head]
        self.http.send_headers(stream, head, end_stream=ends and body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=ends)
        self.transmit()
        return stream

    async def fetch(self, *arguments, **named):
        events, status, content = self.events[self.send(*arguments, **named)], None, b""
        while True:
            event = await events.get()
            if isinstance(event, HeadersReceived):
                status = status or dict(event.headers)[b":status"].decode()
            else:
                content += event.data
            if event.stream_ended:
                return status, content


def expect(name, seen, expected):
    if seen != expected:
        raise Failure(f"{name}: {seen!r} and not {expected!r}")


async def websocket(client, authority):
    fields = [(":protocol", "websocket"), ("sec-websocket-version", "13")]
    stream = client.send(authority, "CONNECT", "/ws", b"\x81\x83\0\0\0\0ebb", fields, ends=False)
    head = await client.events[stream].get()
    expect("a WebSocket", dict(head.headers)[b":status"], b"200")
    content = b""
    while len(content) < 5:
        content += (await client.events[stream].get()).data
    expect("a WebSocket's echo", content, b"\x81\x03ebb")


async def check(host, port):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    authority = f"localhost:{port}"
    async with connect(host, port, configuration=configuration, create_protocol=Client) as client:
        expect("/plaintext", await client.fetch(authority, "GET", "/plaintext"), ("200", b"Hello, World!"))
        expect("/nothing", (await client.fetch(authority, "GET", "/nothing"))[0], "404")
        status, content = await client.fetch(authority, "GET", "/stream/3000000")
        expect("/stream", (status, len(content)), ("200", 3000000))
        body = bytes(range(256)) * 4000
        expect("/echo", await client.fetch(authority, "POST", "/echo", body), ("200", body))
        pages = await asyncio.gather(*[client.fetch(authority, "GET", "/bytes/1000") for _ in range(500)])
        expect("500 at once", {(status, len(content)) for status, content in pages}, {("200", 1000)})
        await websocket(client, authority)


def check_alt_svc(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/plaintext", context=context) as response:
        expect("Alt-Svc", response.headers["Alt-Svc"], f'h3=":{port}"; ma=86400')


def main():
    for backend in program.BACKENDS:
        with program.serve(backend, "--loops", "2", "--tls-self-signed", "--http3") as server:
            asyncio.run(asyncio.wait_for(check("127.0.0.1", int(server.port)), SECONDS_MAX))
            check_alt_svc(server.port)
            print(f"HTTP/3 with aioquic: {backend}: fine")


if __name__ == "__main__":
    servers.run(main)
