#!/usr/bin/env python3
"""`examples/udp_proxy` and `tidegate serve --connect-udp` with aioquic: a foreign client of UDP over HTTP/3 (RFC 9298), with a target of this machine. The README beside
this file describes how to repeat it.
"""

import asyncio
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile

import program
import webtransport
from webtransport import certificate, expect

SECONDS_MAX = 60
EXAMPLE = program.ROOT / "target/debug/examples/udp_proxy"
H3_DATAGRAM_ERROR = 0x33


def client_of_aioquic():
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3Connection
    from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
    from aioquic.quic.events import StreamReset

    class Client(QuicConnectionProtocol):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            # It announces HTTP datagrams with WebTransport alone.
            self.http = H3Connection(self._quic, enable_webtransport=True)
            self.heads, self.capsules = asyncio.Queue(), asyncio.Queue()
            self.datagrams, self.resets = asyncio.Queue(), asyncio.Queue()

        def quic_event_received(self, event):
            if isinstance(event, StreamReset):
                self.resets.put_nowait((event.stream_id, event.error_code))
            for received in self.http.handle_event(event):
                if isinstance(received, HeadersReceived):
                    self.heads.put_nowait(dict(received.headers))
                elif isinstance(received, DataReceived):
                    self.capsules.put_nowait(received.data)
                elif isinstance(received, DatagramReceived):
                    self.datagrams.put_nowait((received.stream_id, received.data))

        def ask(self, host, port):
            stream = self._quic.get_next_available_stream_id()
            path = f"/.well-known/masque/udp/{host}/{port}/"
            head = [(":method", "CONNECT"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
            head += [(":protocol", "connect-udp"), ("capsule-protocol", "?1")]
            self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in head])
            return stream

        def send(self, stream, payload):
            self.http.send_datagram(stream, payload)
            self.transmit()

        async def status(self):
            return (await self.heads.get())[b":status"].decode()

    return Client


async def check(port):
    from aioquic.asyncio.client import connect
    from aioquic.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    configuration.max_datagram_frame_size = 65536
    target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    target.bind(("127.0.0.1", 0))
    target.setblocking(False)
    at = target.getsockname()[1]
    loop = asyncio.get_running_loop()
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=client_of_aioquic()) as client:
        # Datagrams leave with the request, before the response has come.
        tunnel = client.ask("127.0.0.1", at)
        client.send(tunnel, b"\0early")
        expect("a tunnel", await client.status(), "200")
        content, proxy = await loop.sock_recvfrom(target, 2048)
        expect("a datagram before the response", content, b"early")
        for content in [b"", b"ebb", b"x" * 1000]:
            client.send(tunnel, b"\0" + content)
            received, proxy = await loop.sock_recvfrom(target, 2048)
            expect("a datagram", received, content)
            target.sendto(received, proxy)
            expect("its answer", await client.datagrams.get(), (tunnel, b"\0" + content))
        # A datagram of an unknown context is dropped, and one in a capsule is passed on.
        client.send(tunnel, b"\x02unknown")
        client.http.send_data(tunnel, b"\0\x05\0flow", end_stream=False)
        client.transmit()
        expect("a capsule", (await loop.sock_recvfrom(target, 2048))[0], b"flow")
        # An answer that no QUIC datagram has room for is lost, and the next one is not.
        target.sendto(b"x" * 5000, proxy)
        target.sendto(b"slack", proxy)
        expect("an answer behind a long one", await client.datagrams.get(), (tunnel, b"\0slack"))
        other = client.ask("127.0.0.1", at)
        client.send(other, b"\0neap")
        expect("a second tunnel", (await client.status(), (await loop.sock_recvfrom(target, 2048))[0]), ("200", b"neap"))
        for host, number, expected in [("10.0.0.1", at, "403"), ("%3A%3A1", at, "403"), ("127.0.0.1", 0, "400")]:
            client.ask(host, number)
            client.transmit()
            expect(f"{host} {number}", await client.status(), expected)
        client.send(other, b"")
        expect("a datagram without a context", await client.resets.get(), (other, H3_DATAGRAM_ERROR))
        client.http.send_data(tunnel, b"", end_stream=True)
        client.transmit()
    target.close()


def main():
    if not webtransport.has_aioquic():
        return webtransport.skip("aioquic")
    with tempfile.TemporaryDirectory() as folder:
        chain, key = certificate(pathlib.Path(folder))
        for backend in program.BACKENDS:
            environment = {**os.environ, "TIDEGATE_BACKEND": backend}
            command = [EXAMPLE, "127.0.0.1:0", chain, key]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            try:
                port = int(server.stdout.readline().rsplit(":", 1)[1])
                asyncio.run(asyncio.wait_for(check(port), SECONDS_MAX))
            finally:
                server.kill()
                server.wait()
            flags = ["--loops", "1", "--tls-self-signed", "--http3", "--connect-udp", "--connect-udp-allow", "127.0.0.0/8"]
            with program.serve(backend, *flags) as server:
                asyncio.run(asyncio.wait_for(check(int(server.port)), SECONDS_MAX))
            print(f"UDP over HTTP with aioquic: {backend}: fine", flush=True)


if __name__ == "__main__":
    main()
