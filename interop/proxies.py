#!/usr/bin/env python3
"""nginx and HAProxy in front of `tidegate serve`: every answer must be right and in order, on persistent connections.

curl, wrk, h2load and a raw socket ask: the server directly, which shows that the questions are fair, and through each
front. Answers are compared to the byte. What the server counts says how often a front's connections were used again. The
README beside this file says how to repeat it.
"""

import argparse
import hashlib
import json
import pathlib
import random
import socket
import tempfile
import threading
import time
import zlib

import program
import servers
from program import Failure, letters

MIB = 1 << 20
CLIENT_SECONDS_MAX = 120
ANSWER_SECONDS_MAX = 120
PIPELINED = 200
# The minimum number of requests per connection between proxy and server, for one client and for many. The server has to
# close some connections.
REUSED_MIN = 5
REUSED_BY_LOAD_MIN = 20
LOAD_CONNECTIONS = 64
LOAD_DEPTHS = [1, 16]


class Asked:
    """Counts the requests to one address."""

    def __init__(self, port, directory):
        self.port = port
        self.directory = pathlib.Path(directory)
        self.requests = 0

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def curl(self, *arguments, requests=1):
        common = ["curl", "--silent", "--show-error", "--http1.1", "--max-time", str(CLIENT_SECONDS_MAX - 10)]
        self.requests += requests
        code, output, errors = program.run([*common, *arguments], CLIENT_SECONDS_MAX)
        if code != 0:
            raise Failure(f"curl {arguments}: code {code}, {errors.strip()}")
        return output

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS_MAX)


def expect(what, got, expected):
    if got != expected:
        raise Failure(f"{what}: got {shown(got)}, expected {shown(expected)}")


def shown(value):
    return f"{len(value)} bytes, {value[:80]!r}" if isinstance(value, bytes) and len(value) > 200 else repr(value)


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


# The requests of curl.


def ask_for_bodies(asked):
    expect("/plaintext", asked.curl(asked.url("/plaintext")), b"Hello, World!")
    expect("/json", asked.curl(asked.url("/json")), b'{"message":"Hello, World!"}')
    for path in ["/bytes/0", "/bytes/70000", "/stream/0", "/stream/70000", "/bytes/3000000", "/stream/3000000"]:
        expect(path, asked.curl(asked.url(path)), letters(int(path.rpartition("/")[2])))
    three = [asked.url(path) for path in ["/plaintext", "/stream/10", "/bytes/10"]]
    got = asked.curl("--write-out", "[%{num_connects}]", *three, requests=3)
    expect("three on one connection", got, b"Hello, World![1]abcdefghij[0]abcdefghij[0]")


def ask_for_heads(asked):
    heads = asked.curl("--head", asked.url("/bytes/5000000"), asked.url("/plaintext"), requests=2).decode()
    lengths = [line for line in heads.splitlines() if line.lower().startswith("content-length")]
    expect("lengths in heads", [int(line.split(":")[1]) for line in lengths], [5000000, 13])


def ask_for_statuses(asked):
    code = ["--output", "/dev/null", "--write-out", "%{http_code}"]
    expect("nothing there", asked.curl(*code, asked.url("/nothing")), b"404")
    expect("a wrong method", asked.curl(*code, "--request", "DELETE", asked.url("/json")), b"405")
    # An unwanted body above the server's skip limit: the server closes the connection after it.
    upload = asked.directory / "upload"
    upload.write_bytes(pattern(300_000, "unwanted"))
    expect("an upload that is refused", asked.curl(*code, "--upload-file", str(upload), asked.url("/json")), b"405")


def ask_for_echoes(asked):
    upload = asked.directory / "upload"
    body = pattern(300_000, "echo")
    upload.write_bytes(body)
    for fields in [
        ["Expect:"],
        ["Expect:", "Transfer-Encoding: chunked"],
        ["Expect: 100-continue"],
        ["Expect: 100-continue", "Transfer-Encoding: chunked"],
    ]:
        headers = [word for field in fields for word in ("--header", field)]
        echo = asked.curl(*headers, "--data-binary", f"@{upload}", asked.url("/echo"))
        expect(f"an echo with {fields}", echo, body)
    expect("a short echo", asked.curl("--data", "a=b", asked.url("/echo")), b"a=b")
    expect("an empty echo", asked.curl("--data", "", asked.url("/echo")), b"")


def ask_for_much(asked, mib, echoes):
    """A large upload, a large download, and if it `echoes` both at once, compared by checksum."""
    upload, download = asked.directory / "upload", asked.directory / "download"
    chance, crc, sha256, length = random.Random("much"), 0, hashlib.sha256(), mib * MIB
    with open(upload, "wb") as file:
        for _ in range(mib):
            block = chance.randbytes(MIB)
            crc = zlib.crc32(block, crc)
            sha256.update(block)
            file.write(block)
    for field in ["Expect:", "Transfer-Encoding: chunked", "Expect: 100-continue"]:
        send = ["--header", field, "--data-binary", f"@{upload}"]
        expect(f"the sum of {mib} MiB, {field}", asked.curl(*send, asked.url("/sum")), f"{length} {crc:08x}\n".encode())
        if echoes:
            asked.curl(*send, "--output", str(download), asked.url("/echo"))
            expect(f"{mib} MiB there and back, {field}", checksum(download), sha256.hexdigest())
    sha256 = hashlib.sha256()
    for start in range(0, length, MIB):
        sha256.update(letters(MIB, start))
    for path in [f"/bytes/{length}", f"/stream/{length}"]:
        asked.curl("--output", str(download), asked.url(path))
        expect(path, checksum(download), sha256.hexdigest())


def checksum(path):
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(MIB):
            sha256.update(block)
    return sha256.hexdigest()


# The requests over a raw socket.


def read_answer(reader, is_head=False):
    """The next response from a buffered reader: (status, body). Strict, so that wrong framing is an error."""
    status_line = reader.readline()
    if not status_line.startswith(b"HTTP/1.1 "):
        raise Failure(f"in place of a response: {status_line[:80]!r}")
    fields = {}
    while (line := reader.readline()) != b"\r\n":
        if not line.endswith(b"\r\n"):
            raise Failure(f"a head that is cut off: {line!r}")
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    status = int(status_line.split()[1])
    if is_head or status == 100:
        return status, b""
    if b"content-length" in fields:
        return status, read_exactly(reader, int(fields[b"content-length"]))
    expect("Transfer-Encoding", fields.get(b"transfer-encoding", b"").lower(), b"chunked")
    body = b""
    while size := int(reader.readline().split(b";")[0], 16):
        body += read_exactly(reader, size)
        expect("what follows a chunk", reader.readline(), b"\r\n")
    expect("the end of chunks", reader.readline(), b"\r\n")
    return status, body


def read_exactly(reader, count):
    data = reader.read(count)
    if len(data) != count:
        raise Failure(f"{len(data)} bytes of a body of {count}")
    return data


def ask_in_a_row(asked, pieces):
    """Many pipelined requests of all kinds, in pieces of so many bytes; each answer is distinct from all others."""
    chance = random.Random(pieces)
    wire, expected = b"", []
    for number in range(PIPELINED):
        kind = chance.choice(["bytes", "stream", "head", "echo", "chunked"])
        length = 1000 + 7 * number
        if kind in ("bytes", "stream", "head"):
            method, path = ("HEAD", "bytes") if kind == "head" else ("GET", kind)
            wire += f"{method} /{path}/{length} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            expected.append((kind == "head", letters(length if kind != "head" else 0)))
            continue
        body = f"<{number}>".encode() + pattern(chance.randrange(3000), number)
        framing = f"Content-Length: {len(body)}" if kind == "echo" else "Transfer-Encoding: chunked"
        wire += f"POST /echo HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode()
        wire += body if kind == "echo" else chunks(body, chance)
        expected.append((False, body))
    asked.requests += PIPELINED
    with asked.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender = threading.Thread(target=send_in_pieces, args=(client, wire, pieces))
        sender.start()
        try:
            with client.makefile("rb") as reader:
                for number, (is_head, body) in enumerate(expected):
                    answer = read_answer(reader, is_head)
                    expect(f"answer {number} of {PIPELINED} in a row", answer, (200, body))
        finally:
            client.shutdown(socket.SHUT_RDWR)
            sender.join()


def chunks(body, chance):
    wire = b""
    while body:
        size = chance.randrange(1, 1500)
        piece, body = body[:size], body[size:]
        wire += f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    return wire + b"0\r\n\r\n"


def send_in_pieces(client, wire, size):
    try:
        for start in range(0, len(wire), size):
            client.sendall(wire[start : start + size])
    except OSError:
        # The reading side reports the error.
        pass


def ask_for_leave(asked):
    """With `Expect: 100-continue`: sends the body only after the interim response."""
    asked.requests += 1
    with asked.connect() as client, client.makefile("rb") as reader:
        client.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        expect("leave to send", read_answer(reader), (100, b""))
        client.sendall(b"hello")
        expect("what was sent with leave", read_answer(reader), (200, b"hello"))


# The requests of load generators.


def load(asked, seconds):
    """wrk, unpipelined and pipelined, and h2load: the number of answered requests."""
    answered = 0
    for depth in LOAD_DEPTHS:
        command = ["wrk", "-t", "1", "-c", str(LOAD_CONNECTIONS), "-d", f"{seconds}s", "--timeout", "10s"]
        command += ["-s", program.SCRIPT, asked.url(""), "--", str(depth)]
        code, output, errors = program.run(command, CLIENT_SECONDS_MAX)
        found = [line for line in output.decode().splitlines() if line.startswith("load-result ")]
        if code != 0 or not found:
            raise Failure(f"wrk: code {code}, {errors}")
        result = json.loads(found[0].removeprefix("load-result "))
        requests = result.pop("requests")
        if not requests or any(result.values()):
            raise Failure(f"wrk, {depth} deep: {requests} requests, {result}")
        answered += requests
    for path in ["/plaintext", "/bytes/100000", "/stream/10000"]:
        command = ["h2load", "--h1", "-n", "2000", "-c", "20", "-m", "4", asked.url(path)]
        code, output, errors = program.run(command, CLIENT_SECONDS_MAX)
        said = output.decode()
        if code != 0 or "2000 succeeded, 0 failed, 0 errored, 0 timeout" not in said:
            raise Failure(f"h2load {path}: code {code}\n{said}{errors}")
        answered += 2000
    return answered


def judge(server, name, port, options):
    """All requests to one address, with `server` behind it."""
    begun = time.monotonic()
    before = program.counts(server)
    with tempfile.TemporaryDirectory() as directory:
        asked = Asked(port, directory)
        ask_for_bodies(asked)
        ask_for_heads(asked)
        ask_for_statuses(asked)
        ask_for_echoes(asked)
        ask_for_leave(asked)
        for size in [1 << 20, 1000, 7]:
            ask_in_a_row(asked, size)
        # Once a response has started, nginx sends no more of its request than is in the kernel's buffers.
        ask_for_much(asked, options.mib, echoes="nginx" not in name)
        between = program.counts(server)
        answered = load(asked, options.seconds)
        after = program.counts(server)
    alone = between["accepted"] - before["accepted"]
    crowd = after["accepted"] - between["accepted"]
    spent = time.monotonic() - begun
    print(
        f"{name:18}{asked.requests:5} requests on {alone:3} connections to the server, "
        f"{answered:7} of load on {crowd:3}; {spent:.1f} s",
        flush=True,
    )
    if after["closed_protocol"] != before["closed_protocol"]:
        raise Failure(f"{name}: {after['closed_protocol'] - before['closed_protocol']} connections closed for a protocol error")
    if name == "direct":
        return
    # Zero, if the connections of the previous address were reused.
    if asked.requests < REUSED_MIN * alone:
        raise Failure(f"{name}: {alone} connections to the server for {asked.requests} requests: they are not reused")
    if answered < REUSED_BY_LOAD_MIN * crowd:
        raise Failure(f"{name}: {crowd} connections to the server for {answered} requests of load: they are not reused")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--mib", type=int, default=32, help="MiB in each direction")
    parser.add_argument("--seconds", type=int, default=1, help="duration of the load, for each depth")
    options = parser.parse_args()
    program.need("nginx", "haproxy", "curl", "wrk", "h2load")
    for backend in options.backends:
        print(f"{backend}:")
        with tempfile.TemporaryDirectory() as directory, program.serve(backend, program=options.program) as server:
            with program.Nginx(server.port, directory) as nginx, program.Haproxy(server.port, directory) as haproxy:
                addresses = {
                    "direct": server.port,
                    "nginx": nginx.ports[0],
                    "nginx, streaming": nginx.ports[1],
                    "haproxy": haproxy.ports[0],
                }
                for name, port in addresses.items():
                    judge(server, name, port, options)


if __name__ == "__main__":
    servers.run(main)
