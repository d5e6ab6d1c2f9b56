#!/usr/bin/env python3
"""`examples/webtransport` with aioquic and with a headless Chromium: foreign clients that open a session, and send streams in both
directions and datagrams through it. The README beside this file describes how to repeat it.

`--browser` runs Chromium alone, without it aioquic alone. A tool that is missing is skipped with a line.
"""

import asyncio
import base64
import hashlib
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile

import program
from browser import Browser
from program import Failure

SECONDS_MAX = 60
# Where `cargo xtask ci` installs aioquic.
VENV = program.ROOT / "target/tools/aioquic/bin/python3"
EXAMPLE = program.ROOT / "target/debug/examples/webtransport"


def certificate(folder):
    """A certificate for localhost, and its key. Browsers accept the hash of one that is valid for at most 14 days."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "10"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


def expect(name, seen, expected):
    if seen != expected:
        raise Failure(f"{name}: {seen!r} and not {expected!r}")


def client_of_aioquic():
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3Connection
    from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived, WebTransportStreamDataReceived
    from aioquic.quic.events import StreamDataReceived, StreamReset

    class Client(QuicConnectionProtocol):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.http = H3Connection(self._quic, enable_webtransport=True)
            self.heads, self.capsules, self.datagrams = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()
            self.streams, self.resets, self.own = {}, asyncio.Queue(), set()

        def quic_event_received(self, event):
            if isinstance(event, StreamReset):
                self.resets.put_nowait((event.stream_id, event.error_code))
            if isinstance(event, StreamDataReceived) and event.stream_id in self.own:
                # aioquic takes the bytes of a bidirectional stream that it has opened itself for frames of HTTP/3.
                self.streams.setdefault(event.stream_id, asyncio.Queue()).put_nowait((event.data, event.end_stream))
                return
            for received in self.http.handle_event(event):
                if isinstance(received, HeadersReceived):
                    self.heads.put_nowait(dict(received.headers))
                elif isinstance(received, DataReceived):
                    self.capsules.put_nowait(received.data)
                elif isinstance(received, DatagramReceived):
                    self.datagrams.put_nowait(received.data)
                elif isinstance(received, WebTransportStreamDataReceived):
                    queue = self.streams.setdefault(received.stream_id, asyncio.Queue())
                    queue.put_nowait((received.data, received.stream_ended))

        async def open(self, authority, path, fields=()):
            session = self._quic.get_next_available_stream_id()
            head = [(":method", "CONNECT"), (":scheme", "https"), (":authority", authority), (":path", path)]
            head += [(":protocol", "webtransport"), *fields]
            self.http.send_headers(session, [(name.encode(), value.encode()) for name, value in head])
            self.transmit()
            return session, (await self.heads.get())[b":status"].decode()

        async def read(self, stream):
            queue, content = self.streams.setdefault(stream, asyncio.Queue()), b""
            while True:
                data, ended = await queue.get()
                content += data
                if ended:
                    return content

        async def echo(self, session, content):
            stream = self.http.create_webtransport_stream(session)
            self.own.add(stream)
            for start in range(0, len(content), 50_000):
                self._quic.send_stream_data(stream, content[start : start + 50_000])
            self._quic.send_stream_data(stream, b"", end_stream=True)
            self.transmit()
            return await self.read(stream)

    return Client


async def check_aioquic(port):
    from aioquic.asyncio.client import connect
    from aioquic.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    configuration.max_datagram_frame_size = 65536
    authority = f"localhost:{port}"
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=client_of_aioquic()) as client:
        session, status = await client.open(authority, "/echo")
        expect("a session", status, "200")
        expect("a stream", await client.echo(session, b"ebb and flow"), b"ebb and flow")
        contents = [os.urandom(20_000) for _ in range(50)]
        echoes = await asyncio.gather(*[client.echo(session, content) for content in contents])
        expect("50 streams at once", echoes == contents, True)
        large = os.urandom(3_000_000)
        expect("a large stream", await client.echo(session, large) == large, True)
        client.http.send_datagram(session, b"high water")
        client.transmit()
        expect("a datagram", await client.datagrams.get(), b"high water")
        one_way = client.http.create_webtransport_stream(session, is_unidirectional=True)
        client._quic.send_stream_data(one_way, b"one way", end_stream=True)
        client.transmit()
        while not (back := [stream for stream in client.streams if stream & 3 == 3]):
            await asyncio.sleep(0.01)
        expect("a stream of the server", await client.read(back[0]), b"one way")
        other, status = await client.open(authority, "/echo")
        expect("a second session", (status, await client.echo(other, b"x")), ("200", b"x"))
        # CLOSE_WEBTRANSPORT_SESSION with the code 9.
        client.http.send_data(session, b"\x68\x43\x07\0\0\0\x09bye", end_stream=True)
        client.transmit()
        expect("the other session goes on", await client.echo(other, b"y"), b"y")
        late = client.http.create_webtransport_stream(session)
        client._quic.send_stream_data(late, b"late")
        client.transmit()
        expect("a stream of a session that is over", await client.resets.get(), (late, 0x170D7B68))
        _, status = await client.open(authority, "/echo", [("origin", "https://other.example")])
        expect("another site", status, "403")
        _, status = await client.open(authority, "/nothing")
        expect("another path", status, "404")


PAGE_SCRIPT = """
const [port, hash] = arguments;
window.seen = null;
(async () => {
    const value = Uint8Array.from(atob(hash), byte => byte.charCodeAt(0));
    const text = new TextDecoder(), bytes = new TextEncoder();
    const options = {serverCertificateHashes: [{algorithm: "sha-256", value}]};
    const session = new WebTransport(`https://127.0.0.1:${port}/echo`, options);
    await session.ready;
    const seen = [];
    const readAll = async readable => text.decode(await new Response(readable).arrayBuffer());
    for (const content of ["ebb and flow", "x".repeat(300000)]) {
        const stream = await session.createBidirectionalStream();
        const writer = stream.writable.getWriter();
        writer.write(bytes.encode(content));
        writer.close();
        seen.push(await readAll(stream.readable) === content ? content.length : "another content");
    }
    const datagrams = session.datagrams.readable.getReader();
    const sender = (session.datagrams.writable || session.datagrams.createWritable()).getWriter();
    await sender.write(bytes.encode("high water"));
    seen.push(text.decode((await datagrams.read()).value));
    const oneWay = (await session.createUnidirectionalStream()).getWriter();
    await oneWay.write(bytes.encode("one way"));
    await oneWay.close();
    const incoming = session.incomingUnidirectionalStreams.getReader();
    seen.push(await readAll((await incoming.read()).value));
    const closing = await session.createBidirectionalStream();
    const writer = closing.writable.getWriter();
    await writer.write(bytes.encode("close"));
    const {closeCode, reason} = await session.closed;
    seen.push(`${closeCode} ${reason}`);
    window.seen = seen;
})().catch(error => { window.seen = [String(error)]; });
"""


def check_browser(port, chain):
    der = ssl.PEM_cert_to_DER_cert(chain.read_text())
    digest = base64.b64encode(hashlib.sha256(der).digest()).decode()
    with Browser(accept_insecure=True) as browser:
        browser.open(f"https://127.0.0.1:{port}/")
        browser.run(PAGE_SCRIPT, port, digest)
        seen = browser.until("return window.seen", "the page has its echoes")
    expect("Chromium", seen, [12, 300000, "high water", "one way", "5 as you wish"])


def skip(tool):
    if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
        sys.exit(f"not there: {tool}")
    print(f"skipped: there is no {tool}")


def has_aioquic():
    try:
        import aioquic  # noqa: F401
    except ImportError:
        if VENV.exists() and os.environ.get("TIDEGATE_WEBTRANSPORT_IN_VENV") != "1":
            os.environ["TIDEGATE_WEBTRANSPORT_IN_VENV"] = "1"
            os.execv(VENV, [VENV, *sys.argv])
        return False
    return True


def main():
    with_browser = "--browser" in sys.argv
    if with_browser and not shutil.which("chromedriver"):
        return skip("chromedriver")
    if not with_browser and not has_aioquic():
        return skip("aioquic")
    with tempfile.TemporaryDirectory() as folder:
        chain, key = certificate(pathlib.Path(folder))
        for backend in program.BACKENDS:
            environment = {**os.environ, "TIDEGATE_BACKEND": backend}
            command = [EXAMPLE, "127.0.0.1:0", chain, key]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            try:
                port = int(server.stdout.readline().rsplit(":", 1)[1])
                if with_browser:
                    check_browser(port, chain)
                else:
                    asyncio.run(asyncio.wait_for(check_aioquic(port), SECONDS_MAX))
            finally:
                server.kill()
                server.wait()
            print(f"WebTransport with {'Chromium' if with_browser else 'aioquic'}: {backend}: fine", flush=True)


if __name__ == "__main__":
    main()
