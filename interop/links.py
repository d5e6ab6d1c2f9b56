#!/usr/bin/env python3
"""`examples/udp_echo` over links that loopback does not have: network namespaces with a pair of virtual interfaces between
them, an MTU of 1,280 and of 9,000 bytes, and 5 % of the packets lost.

The kernel's sockets are the client, in the other namespace. Datagrams of every length come back whole, in fragments where
they are longer than the link carries. With losses, those that come back are right, in about the share that two crossings
leave, and the server goes on. It needs the privilege to make namespaces; without it, or without nft, a part is skipped. The
README beside this file says how to repeat it.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time

import program
import servers
from program import Failure

MTUS = [1_280, 9_000]
# The header of IPv4 and that of UDP.
HEADER_BYTES = 28
ECHOES = 2_000
# Two crossings at 5 % leave nine in ten.
SHARES = (0.84, 0.96)
SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
RESPONSE_SECONDS_MAX = 0.2
RULES = "table ip lossy { chain in { type filter hook input priority 0; udp dport > 0 numgen random mod 100 < 5 drop; }; }"


def ip(line):
    """Runs `ip`; returns whether it was permitted."""
    result = subprocess.run(["ip", *line.split()], capture_output=True, text=True)
    return result.returncode == 0


class Link:
    """Two namespaces and a link between them, a context manager."""

    def __init__(self, mtu):
        self.mtu = mtu
        self.spaces = [f"tidegate-{side}-{os.getpid()}" for side in ("server", "client")]

    def __enter__(self):
        server, client = self.spaces
        lines = [
            f"netns add {server}",
            f"netns add {client}",
            f"link add near netns {server} type veth peer name far netns {client}",
            f"-n {server} link set near mtu {self.mtu} up",
            f"-n {client} link set far mtu {self.mtu} up",
            f"-n {server} address add {SERVER}/24 dev near",
            f"-n {client} address add {CLIENT}/24 dev far",
        ]
        if not all(map(ip, lines)):
            self.__exit__()
            return None
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            ip(f"netns delete {space}")

    @contextlib.contextmanager
    def server(self, example, backend):
        """The example in the namespace of the server: the port."""
        words = ["ip", "netns", "exec", self.spaces[0], "env", f"TIDEGATE_BACKEND={backend}", example, f"{SERVER}:0"]
        process = subprocess.Popen(servers.ending_with_us(words), stdout=subprocess.PIPE, text=True)
        try:
            line = process.stdout.readline()
            if not line.startswith(f"listening on {SERVER}:"):
                raise Failure(f"the example printed {line!r}")
            yield int(line.rpartition(":")[2])
        finally:
            servers.end(process)

    def client(self, part, port):
        """Runs a part of this script in the namespace of the client."""
        words = ["ip", "netns", "exec", self.spaces[1], sys.executable, __file__, "--part", part, "--port", str(port)]
        code, output = servers.complete([*words, "--mtu", str(self.mtu)], 120)
        if code != 0:
            raise Failure(f"MTU {self.mtu}, {part}: {output.strip()}")
        print(output.strip(), flush=True)

    def lose_packets(self):
        """Both namespaces drop one packet in twenty; returns whether they do."""
        words = [["ip", "netns", "exec", space, "nft", RULES] for space in self.spaces]
        return all(subprocess.run(each, capture_output=True).returncode == 0 for each in words)


def echo(client, payload, port):
    """What comes back, or `None`."""
    client.sendto(payload, (SERVER, port))
    until = time.monotonic() + RESPONSE_SECONDS_MAX
    while time.monotonic() < until:
        try:
            response = client.recv(65_536)
        except TimeoutError:
            return None
        # One of an earlier round may be late.
        if response[:4] == payload[:4]:
            return response
    return None


def lengths(client, options):
    """Datagrams around the length that the link carries, and beyond it."""
    whole = options.mtu - HEADER_BYTES
    each = [4, 1_200, whole - 1, whole, whole + 1, 2 * whole, 40_000, 65_507]
    for number, length in enumerate(each):
        payload = number.to_bytes(4, "big") + bytes(length - 4)
        # A fragment finds no room on a busy machine: then another attempt.
        if not any(echo(client, payload, options.port) == payload for _ in range(20)):
            raise Failure(f"{length} bytes do not come back")
    print(f"MTU {options.mtu}: datagrams of {len(each)} lengths came back")


def losses(client, options):
    """Many datagrams over the link that loses some."""
    came = 0
    client.settimeout(0.02)
    for number in range(ECHOES):
        payload = number.to_bytes(4, "big") * 25
        response = echo(client, payload, options.port)
        if response is not None and response != payload:
            raise Failure(f"datagram {number} came back changed")
        came += response is not None
    least, most = SHARES
    if not least * ECHOES <= came <= most * ECHOES:
        raise Failure(f"{came} of {ECHOES} came back")
    print(f"MTU {options.mtu}: {came} of {ECHOES} came back over a link that loses 5 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="*", default=program.BACKENDS)
    parser.add_argument("--part", choices=["lengths", "losses"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--mtu", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.settimeout(RESPONSE_SECONDS_MAX)
        return {"lengths": lengths, "losses": losses}[options.part](client, options)
    program.need("ip")
    example = program.build_example("udp_echo")
    for mtu in MTUS:
        with Link(mtu) as link:
            if link is None:
                return program.skip_part("namespaces are not permitted here")
            for backend in options.backends:
                with link.server(example, backend) as port:
                    link.client("lengths", port)
            if not link.lose_packets():
                program.skip_part("nft loses no packets here")
                continue
            for backend in options.backends:
                with link.server(example, backend) as port:
                    link.client("losses", port)


if __name__ == "__main__":
    servers.run(main)
