"""Requests over HTTP/2 by httpx, whose protocol is the package h2: `client.py URL`, with a certificate of any signer."""

import asyncio
import sys

import httpx

LETTERS = b"abcdefghijklmnopqrstuvwxyz\n"
MEGABYTE = 1_000_000


def letters(length):
    return (LETTERS * (length // len(LETTERS) + 1))[:length]


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {str(found)[:200]}, not {str(expected)[:200]}")


async def main(url):
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(http1=False, http2=True, verify=False, limits=limits, trust_env=False, timeout=60) as client:
        response = await client.get(f"{url}/plaintext")
        expect("version", response.http_version, "HTTP/2")
        expect("body", response.content, b"Hello, World!")
        expect("large body", (await client.get(f"{url}/bytes/{MEGABYTE}")).content == letters(MEGABYTE), True)
        response = await client.head(f"{url}/bytes/1000")
        expect("HEAD", (response.headers["content-length"], response.content), ("1000", b""))
        sent = bytes(range(256)) * 4096
        expect("echo", (await client.post(f"{url}/echo", content=sent)).content == sent, True)
        expect("missing", (await client.get(f"{url}/nowhere")).status_code, 404)

        async def short():
            return (await client.get(f"{url}/bytes/1000")).content == letters(1000)

        expect("at once", set(await asyncio.gather(*(short() for _ in range(300)))), {True})
        async with client.stream("GET", f"{url}/stream/{100 * MEGABYTE}") as response:
            async for _ in response.aiter_bytes():
                break
        expect("after a response that was left", (await client.get(f"{url}/plaintext")).content, b"Hello, World!")


asyncio.run(main(sys.argv[1]))
