"""Messages by the package websockets: `client.py URL`, with a certificate of any signer."""

import asyncio
import ssl
import sys

import websockets

# What the package sends in one frame, and what it splits into fragments.
MESSAGES = ["high water", "", "Flut µ 潮 🌊", b"", bytes(range(256)) * 1000, "x" * 70_000]


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {str(found)[:200]}, not {str(expected)[:200]}")


async def main(url):
    context = None
    if url.startswith("wss:"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for compression in ["deflate", None]:
        async with websockets.connect(url, ssl=context, compression=compression, proxy=None, max_size=None) as socket:
            for message in MESSAGES:
                await socket.send(message)
                expect("echo", await socket.recv() == message, True)
            await socket.send(["in ", "three ", "fragments"])
            expect("fragments", await socket.recv(), "in three fragments")
            await asyncio.wait_for(await socket.ping(b"are you there"), 20)
            # Many in flight.
            for number in range(500):
                await socket.send(str(number))
            for number in range(500):
                expect("order", await socket.recv(), str(number))
            await socket.close(1000, "done")
            expect("close", socket.close_code, 1000)
    async with websockets.connect(url, ssl=context, compression=None, proxy=None) as socket:
        await socket.send(b"\xff\xfe", text=True)
        try:
            await socket.recv()
            sys.exit("invalid UTF-8 is echoed")
        except websockets.ConnectionClosedError as error:
            expect("the code of invalid UTF-8", error.rcvd.code, 1007)


asyncio.run(main(sys.argv[1]))
