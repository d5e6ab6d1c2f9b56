#!/usr/bin/env python3
"""Dynamic QPACK tables over HTTP/3: aioquic, whose tables are those of ls-qpack, with `tidegate serve` and with `tidegate load`.

Both sides fill a table, of 4,096 bytes and of sizes in which entries are evicted. The fields of requests and responses repeat, and some
change. With loss, sections arrive before the instructions that they need, so streams wait. The README beside this file describes how to
repeat it.
"""

import asyncio
import contextlib
import pathlib
import random
import re
import ssl
import subprocess
import sys
import tempfile

import http3  # It begins anew in the environment of aioquic, or skips the script.
import program
import servers
from http3 import Client, expect
from program import Failure

import pylsqpack
from aioquic.asyncio import serve
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

SECONDS_MAX = 120
# Bytes of the table that each side may fill, and streams that may wait. 128 bytes hold two or three entries.
TABLES = [(4096, 16), (512, 4), (128, 2), (4096, 0)]
LOSSES = [0, 0.1]
REQUESTS = 800
AT_ONCE = 40
# Different values of a field in turn: each comes again before the encoder forgets it, and all together are more than a table.
VALUES = 48


class CountedDecoder:
    """The decoder of aioquic, which counts the sections that had to wait, and those with references."""

    def __init__(self, decoder):
        self.decoder, self.waited, self.with_references = decoder, 0, 0

    def feed_header(self, stream, section):
        # The Required Insert Count is 0 without references.
        self.with_references += section[0] != 0
        try:
            return self.decoder.feed_header(stream, section)
        except pylsqpack.StreamBlocked:
            self.waited += 1
            raise

    def __getattr__(self, name):
        return getattr(self.decoder, name)


def count_sections(http):
    http._decoder = CountedDecoder(http._decoder)


@contextlib.contextmanager
def link(port, loss, seed):
    """A port that leads to this one, with loss and 5 ms of delay each way."""
    if not loss:
        yield port
        return
    flags = ["--loss", str(loss), "--delay", "0.005", "--seed", str(seed)]
    command = [sys.executable, program.ROOT / "benches/lossy.py", str(port), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.kill()
        process.wait()


def fields(chance):
    """Fields that repeat, and some that change."""
    return [
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"),
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("accept-language", "de,en-US;q=0.7,en;q=0.3"),
        ("x-harbour", f"harbour {chance.randrange(6)}"),
        ("x-tide", str(chance.randrange(10_000))),
    ]


async def client_of_server(port, seed):
    """Requests by aioquic. Returns the counts of both directions."""
    chance = random.Random(seed)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        count_sections(client.http)
        # aioquic fills no table before the server's SETTINGS have come.
        expect("a page", await client.fetch("localhost", "GET", "/plaintext"), ("200", b"Hello, World!"))
        for _ in range(REQUESTS // AT_ONCE):
            lengths = [10 + chance.randrange(VALUES) for _ in range(AT_ONCE)]
            requests = [client.fetch("localhost", "GET", f"/bytes/{length}", None, fields(chance)) for length in lengths]
            pages = await asyncio.gather(*requests)
            expected = [("200", program.letters(length)) for length in lengths]
            expect("pages", pages, expected)
        http = client.http
        await client.ping()
        return {
            "instructions out": http._encoder_bytes_sent,
            "answers back": http._decoder_bytes_received,
            "instructions back": http._encoder_bytes_received,
            "sections with references": http._decoder.with_references,
            "waited": http._decoder.waited,
        }


def check_server(backend, capacity, blocked, loss, seed, path):
    flags = ["--qpack-max-table-capacity", str(capacity), "--qpack-blocked-streams", str(blocked)]
    flags += ["--qpack-encoder-table-capacity", str(capacity), "--loops", "1", "--tls-self-signed", "--http3"]
    with program.serve(backend, *flags, program=path) as server, link(server.port, loss, seed) as port:
        counts = asyncio.run(asyncio.wait_for(client_of_server(port, seed), SECONDS_MAX))
    report(f"aioquic to our server, {backend}", capacity, blocked, loss, counts)


class Server(QuicConnectionProtocol):
    """Answers each request with fields that repeat."""

    made = []

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http, self.seen, self.chance = None, [], random.Random(len(self.made))
        self.made.append(self)

    def quic_event_received(self, event):
        if self.http is None:
            if type(event).__name__ != "ProtocolNegotiated":
                return
            self.http = Tables(self._quic)
            count_sections(self.http)
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.seen.append(received.headers)
                self.answer(received.stream_id)

    def answer(self, stream):
        head = [(":status", "200"), ("content-length", "3"), ("server", "aioquic"), *fields(self.chance)]
        head = [(name.encode(), value.encode()) for name, value in head]
        self.http.send_headers(stream, head)
        self.http.send_data(stream, b"ebb", end_stream=True)
        self.transmit()


class Tables(H3Connection):
    """aioquic's HTTP/3 with another capacity than its own, and fewer streams that may wait."""

    capacity, blocked = TABLES[0]

    def __init__(self, quic):
        super().__init__(quic)
        self._decoder = pylsqpack.Decoder(self.capacity, self.blocked)

    def _get_local_settings(self):
        self._max_table_capacity, self._blocked_streams = self.capacity, self.blocked
        return super()._get_local_settings()


async def client_of_ours(capacity, blocked, loss, seed, folder, path):
    """Requests by `tidegate load` at aioquic. Returns the counts of both directions."""
    chain, key = http3_certificate(folder)
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(chain, key)
    Tables.capacity, Tables.blocked, Server.made = capacity, blocked, []
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Server)
    try:
        port = server._transport.get_extra_info("sockname")[1]
        with link(port, loss, seed) as port:
            sent = await load(port, capacity, blocked, path)
    finally:
        server.close()
    used = [connection for connection in Server.made if connection.seen]
    count = 0
    for connection in used:
        for head in connection.seen:
            head = {name.decode(): value.decode() for name, value in head}
            at = head[":path"]
            expect("a request", (head[":method"], head["x-path"], at in sent), ("GET", "the same", True))
            count += 1
    if count < REQUESTS:
        raise Failure(f"{count} requests arrived of {REQUESTS}")
    sums = [
        (
            http._encoder_bytes_received,
            http._decoder_bytes_sent,
            http._encoder_bytes_sent,
            http._decoder_bytes_received,
            http._decoder.with_references,
            http._decoder.waited,
        )
        for http in (connection.http for connection in used)
    ]
    names = ["instructions out", "answers back", "instructions back", "answers out", "sections with references", "waited"]
    return dict(zip(names, map(sum, zip(*sums))))


async def load(port, capacity, blocked, path):
    """Runs `tidegate load`. Returns the paths of its requests."""
    paths = [f"/{number:060}" for number in range(VALUES)]
    flags = ["--http3", "--insecure", "-c", "2", "-m", str(AT_ONCE // 2), "-n", str(REQUESTS), "--timeout", "30s", "--threads", "1"]
    flags += ["-H", "x-path: the same", "-H", "user-agent: a load with a name that is long enough for a table"]
    flags += ["--qpack-max-table-capacity", str(capacity), "--qpack-blocked-streams", str(blocked)]
    flags += ["--qpack-encoder-table-capacity", str(capacity)]
    urls = [f"https://127.0.0.1:{port}{at}" for at in paths]
    process = await asyncio.create_subprocess_exec(
        path, "load", *flags, *urls, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or not re.search(rf"\b{REQUESTS}\b", output) or re.search(r"[1-9]\d* (failed|bad)", output):
        raise Failure(output)
    return paths


def http3_certificate(folder):
    chain, key = pathlib.Path(folder, "chain.pem"), pathlib.Path(folder, "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", key, "-out", chain]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


def report(name, capacity, blocked, loss, counts, unused=()):
    """Prints the counts. Both directions have to use their tables, apart from the named counts."""
    unused = [count for count, number in counts.items() if count not in ("waited", *unused) and number == 0]
    shown = ", ".join(f"{count} {number}" for count, number in counts.items())
    print(f"{name}: {capacity} bytes, {blocked} streams may wait, {loss:.0%} lost: {shown}", flush=True)
    if unused:
        raise Failure(f"tables were not used: {', '.join(unused)}")


def main():
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else random.randrange(1 << 31)
    path = sys.argv[sys.argv.index("--program") + 1] if "--program" in sys.argv else program.PROGRAM
    print(f"--seed {seed}", flush=True)
    for loss in LOSSES:
        for capacity, blocked in TABLES:
            for backend in program.BACKENDS:
                check_server(backend, capacity, blocked, loss, seed, path)
            with tempfile.TemporaryDirectory() as folder:
                counts = client_of_ours(capacity, blocked, loss, seed, folder, path)
                counts = asyncio.run(asyncio.wait_for(counts, SECONDS_MAX))
            # aioquic acknowledges sections and no instructions, so without streams that may wait no entry is ever known to it.
            unused = () if blocked else ("answers back", "sections with references")
            report("our client to aioquic", capacity, blocked, loss, counts, unused)


if __name__ == "__main__":
    servers.run(main)
