#!/usr/bin/env python3
"""`examples/udp_echo` with socat over IPv4, IPv6 and a Unix socket, and with datagrams that scapy writes by hand: wrong checksums,
wrong lengths, fragments that overlap or never come, forged reports of the network. The README beside this file says how to
repeat it.

After each part a good datagram comes back. A raw socket needs root: without it, or without scapy, that part is skipped.
`--example PATH` tests another build.
"""

import argparse
import contextlib
import os
import pathlib
import random
import socket
import subprocess
import tempfile

import program
import servers
from program import Failure

# Where `cargo xtask long` installs scapy.
PYTHON = program.ROOT / "target/tools/scapy/bin/python3"
LOOPBACK = "127.0.0.1"
SECONDS_MAX = 60
REPORTS = 2_000
LINES = [f"line {number} of the tide".encode() for number in range(50)]


@contextlib.contextmanager
def echo(example, backend, address):
    """The example at an address: the address that it prints."""
    words = ["env", f"TIDEGATE_BACKEND={backend}", example, address]
    process = subprocess.Popen(servers.ending_with_us(words), stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise Failure(f"the example printed {line!r}")
        yield line.removeprefix("listening on ").strip()
    finally:
        servers.end(process)


def check_socat(name, address):
    """socat sends lines one by one, each in a datagram, and prints those that come back."""
    process = subprocess.Popen(
        ["socat", "-t1", "-b65536", "-", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        for number, line in enumerate(LINES):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            # The next line waits for this one: socat would join them, and Unix queues are short.
            response = process.stdout.readline()
            if response != line + b"\n":
                raise Failure(f"socat over {name}: {response!r} for line {number}")
        process.stdin.close()
        if process.wait(timeout=SECONDS_MAX) != 0:
            raise Failure(f"socat over {name}: {process.stderr.read().decode()}")
    finally:
        servers.end(process)
    print(f"socat over {name}: {len(LINES)} datagrams came back", flush=True)


def by_socat(example, backend):
    for name, at, family in [("IPv4", "127.0.0.1:0", "UDP4"), ("IPv6", "[::1]:0", "UDP6"), ("IPv4 at [::]", "[::]:0", "UDP4")]:
        with echo(example, backend, at) as address:
            port = address.rpartition(":")[2]
            host = "[::1]" if family == "UDP6" else LOOPBACK
            check_socat(f"{name}, {backend}", f"{family}:{host}:{port}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "echo.sock"
        with echo(example, backend, f"unix:{path}"):
            check_socat(f"a Unix socket, {backend}", f"UNIX-SENDTO:{path},bind={folder}/socat.sock")


class Hand:
    """Datagrams by hand from a port of its own, at which the kernel receives the responses."""

    def __init__(self, port):
        from scapy.all import L3RawSocket, conf

        conf.verb = 0
        self.raw = L3RawSocket()
        self.port = port
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.bind((LOOPBACK, 0))
        self.client.settimeout(SECONDS_MAX)
        self.own = self.client.getsockname()[1]

    def udp(self, payload, **fields):
        from scapy.all import IP, UDP, Raw

        # Fragments of one packet have one number. Those that never came are kept for half a minute.
        return IP(src=LOOPBACK, dst=LOOPBACK, id=random.randrange(1, 65_536)) / UDP(sport=self.own, dport=self.port, **fields) / Raw(payload)

    def send(self, *packets):
        for packet in packets:
            self.raw.send(packet)

    def expect(self, name, *payloads):
        """Only these come back, beside a good datagram of the kernel's, in any order: it may have come over another core."""
        self.client.sendto(b"good", (LOOPBACK, self.port))
        missing = [*payloads, b"good"]
        while missing:
            response = self.client.recv(65_536)
            if response not in missing:
                raise Failure(f"{name}: {response[:40]!r} came back, and not {[each[:40] for each in missing]}")
            missing.remove(response)


def wrong_headers(hand):
    hand.send(hand.udp(b"by hand"), hand.udp(b"", len=8))
    hand.expect("datagrams by hand", b"by hand", b"")
    hand.send(hand.udp(b"wrong checksum", chksum=1), hand.udp(b"short", len=4), hand.udp(b"long", len=2_000))
    hand.expect("wrong checksums and lengths")
    # Checksum zero is none. What lies behind the length of UDP is no part of the datagram.
    hand.send(hand.udp(b"none", chksum=0), hand.udp(b"cut here", len=8 + 3, chksum=0))
    hand.expect("no checksum, a short length", b"none", b"cut")
    # No response can go to port 0.
    nowhere = hand.udp(b"nowhere")
    nowhere.sport = 0
    hand.send(nowhere)
    hand.expect("port 0")


def fragments(hand):
    from scapy.all import fragment

    letters = program.letters(20_000)
    parts = fragment(hand.udp(letters), fragsize=1_200)
    random.shuffle(parts)
    hand.send(*parts)
    hand.expect("fragments in any order", letters)
    first, *rest = fragment(hand.udp(letters), fragsize=1_200)
    hand.send(first, *rest[1:])
    hand.expect("a fragment that never comes")
    first, second, *_ = fragment(hand.udp(bytes(3_000)), fragsize=1_200)
    second.frag -= 100
    hand.send(first, second)
    hand.expect("fragments that overlap")


def forged_reports(hand):
    from scapy.all import ICMP, IP, UDP

    quoted = IP(src=LOOPBACK, dst=LOOPBACK) / UDP(sport=hand.port, dport=hand.own)
    kinds = [ICMP(type=3, code=4, nexthopmtu=68), ICMP(type=3, code=3), ICMP(type=3, code=1), ICMP(type=11, code=0)]
    for number in range(REPORTS):
        hand.send(IP(src=LOOPBACK, dst=LOOPBACK) / kinds[number % len(kinds)] / quoted)
        if number % 100 == 0:
            hand.expect(f"after {number} forged reports")
    letters = program.letters(1_400)
    hand.client.sendto(letters, (LOOPBACK, hand.port))
    hand.expect("a report that the path carries 68 bytes", letters)


def by_hand(port):
    """The part that needs scapy, in its own interpreter."""
    for part in [wrong_headers, fragments, forged_reports]:
        part(Hand(port))
        print(f"scapy, {part.__name__.replace('_', ' ')}: the echo goes on", flush=True)


def by_scapy(example, backend, python):
    with echo(example, backend, f"{LOOPBACK}:0") as address:
        words = [str(python), __file__, "--port", address.rpartition(":")[2]]
        code, output = servers.complete(words, SECONDS_MAX * 2)
        if code != 0:
            raise Failure(f"{backend}: {output.strip()}")
        print(f"{backend}: {output.strip()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="*", default=program.BACKENDS)
    parser.add_argument("--example", help="another build of the example")
    parser.add_argument("--python", default=PYTHON, type=pathlib.Path, help="an interpreter that has scapy")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.port:
        return by_hand(options.port)
    program.need("socat")
    example = options.example or program.build_example("udp_echo")
    for backend in options.backends:
        by_socat(example, backend)
    if os.geteuid() != 0:
        return program.skip_part("raw sockets need root")
    if not options.python.exists():
        return program.skip_part("there is no scapy")
    for backend in options.backends:
        by_scapy(example, backend, options.python)


if __name__ == "__main__":
    servers.run(main)
