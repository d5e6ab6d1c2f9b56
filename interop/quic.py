#!/usr/bin/env python3
"""`examples/quic_echo` with aioquic: a foreign client against our server, with streams, a reset, a key update, a new path, and an
address that has to be proved. The README beside this file describes how to repeat it.

Without aioquic it prints a line and is skipped.
"""

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile

import program
from program import Failure

SECONDS_MAX = 60
# Where `cargo xtask ci` installs aioquic.
VENV = program.ROOT / "target/tools/aioquic/bin/python3"


def certificate(folder):
    """A certificate for localhost, and its key."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", chain]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


async def exchange(client, payload, pieces=1):
    """Sends a payload on a stream in pieces, and compares the echo."""
    reader, writer = await client.create_stream()
    size = len(payload) // pieces or 1
    for start in range(0, len(payload), size):
        writer.write(payload[start : start + size])
        await asyncio.sleep(0)
    writer.write_eof()
    echoed = await reader.read()
    if echoed != payload:
        raise Failure(f"{len(payload)} bytes came back as {len(echoed)}")


async def reset(client):
    """A stream that the client resets: the server resets its side."""
    stream = client._quic.get_next_available_stream_id()
    client._quic.send_stream_data(stream, b"ebb")
    client.transmit()
    await asyncio.sleep(0.1)
    client._quic.reset_stream(stream, 42)
    client.transmit()
    await client.ping()


async def check(port, chain):
    from aioquic.asyncio import connect
    from aioquic.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=True, alpn_protocols=["echo"], server_name="localhost")
    configuration.load_verify_locations(str(chain))
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        await exchange(client, b"ebb and flow")
        print("a stream: right", flush=True)
        await asyncio.gather(*(exchange(client, bytes([number]) * 5000) for number in range(90)))
        print("90 streams at once: right", flush=True)
        await exchange(client, os.urandom(3_000_000), pieces=30)
        print("a large transfer: right", flush=True)
        await reset(client)
        print("a reset: right", flush=True)
        client.request_key_update()
        await exchange(client, os.urandom(100_000))
        print("a key update: right", flush=True)
        client.change_connection_id()
        await exchange(client, os.urandom(100_000))
        print("another connection id: right", flush=True)
        for _ in range(300):
            await exchange(client, b"x")
        print("300 streams in turn: right", flush=True)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["another"], server_name="localhost")
    configuration.load_verify_locations(str(chain))
    try:
        async with connect("127.0.0.1", port, configuration=configuration):
            raise Failure("a client with another protocol was accepted")
    except ConnectionError:
        print("another protocol is refused: right", flush=True)


def main():
    try:
        import aioquic  # noqa: F401
    except ImportError:
        if VENV.exists() and os.environ.get("TIDEGATE_QUIC_IN_VENV") != "1":
            os.environ["TIDEGATE_QUIC_IN_VENV"] = "1"
            os.execv(VENV, [VENV, *sys.argv])
        if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
            sys.exit("not there: aioquic")
        print("skipped: there is no aioquic")
        return
    echo = pathlib.Path(program.ROOT / "target" / (sys.argv[1] if len(sys.argv) > 1 else "debug") / "examples/quic_echo")
    with tempfile.TemporaryDirectory() as folder:
        chain, key = certificate(pathlib.Path(folder))
        server = subprocess.Popen([echo, "127.0.0.1:0", chain, key], stdout=subprocess.PIPE, text=True)
        try:
            port = int(server.stdout.readline().rsplit(":", 1)[1])
            asyncio.run(asyncio.wait_for(check(port, chain), SECONDS_MAX))
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
