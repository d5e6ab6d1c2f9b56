#!/usr/bin/env python3
"""The PROXY protocol of HAProxy, nginx and curl: `tidegate serve` must see the client behind each of them.

HAProxy and nginx pass connections on with a header of version 1 or 2. The client asks for /address, directly and through
each, and the answer must be the client's own address and that at which the proxy listens. Then the header that each
sends is recorded, and sent to the server split at every byte. The README beside this file says how to repeat it.
"""

import argparse
import json
import pathlib
import socket
import tempfile
import threading
import time

import program
import servers
from program import Failure

SECONDS_MAX = 120
REQUEST = b"GET /address HTTP/1.1\r\nHost: localhost\r\n\r\n"
# Addresses that no machine has: HAProxy has to pass them on as they are.
ANNOUNCED = [
    ("203.0.113.7:50000", "198.51.100.1:443", "PROXY TCP4 203.0.113.7 198.51.100.1 50000 443\r\n"),
    ("[2001:db8::7]:50000", "[2001:db8::1]:443", "PROXY TCP6 2001:db8::7 2001:db8::1 50000 443\r\n"),
]
STREAM_MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")
# Pieces that are sent without a pause may arrive as one.
PAUSE_SECONDS = 0.002


class Haproxy(program.Front):
    """HAProxy with a header of each kind: one port for each, and two that expect a header themselves."""

    NAMES = ["send-proxy", "send-proxy-v2", "v2, all options", "v2, HTTP mode", "announced, v1", "announced, v2"]
    ports_needed = len(NAMES)
    CONFIG = """
global
  nbthread 1
  maxconn 1000
defaults
  mode tcp
  retries 0
  timeout connect 5s
  timeout client 1m
  timeout server 1m
  unique-id-format %{{+X}}o\\ %ci:%cp_%fi:%fp_%Ts_%rt:%pid
listen v1
  bind 127.0.0.1:{ports[0]}
  server origin 127.0.0.1:{origin} send-proxy
listen v2
  bind 127.0.0.1:{ports[1]}
  server origin 127.0.0.1:{origin} send-proxy-v2
listen options
  bind 127.0.0.1:{ports[2]}
  server origin 127.0.0.1:{origin} send-proxy-v2-ssl-cn proxy-v2-options crc32c,unique-id,authority,ssl,cert-cn
listen http
  mode http
  bind 127.0.0.1:{ports[3]}
  # The checks come with a header of their own, of the command LOCAL in version 2.
  server origin 127.0.0.1:{origin} send-proxy-v2 proxy-v2-options crc32c check inter 200ms check-send-proxy
listen announced-v1
  bind 127.0.0.1:{ports[4]} accept-proxy
  server origin 127.0.0.1:{origin} send-proxy
listen announced-v2
  bind 127.0.0.1:{ports[5]} accept-proxy
  server origin 127.0.0.1:{origin} send-proxy-v2 proxy-v2-options crc32c
"""

    def command(self):
        config = pathlib.Path(self.directory, "haproxy.cfg")
        config.write_text(self.CONFIG.format(ports=self.ports, origin=self.origin_port))
        return ["haproxy", "-db", "-f", str(config)]


class Nginx(program.Front):
    """nginx, which sends version 1 for streams."""

    CONFIG = """
load_module {module};
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1000; }}
stream {{
  server {{
    listen 127.0.0.1:{port};
    proxy_pass 127.0.0.1:{origin};
    proxy_protocol on;
  }}
}}
"""

    def command(self):
        config = pathlib.Path(self.directory, "nginx.conf")
        config.write_text(
            self.CONFIG.format(
                module=STREAM_MODULE, directory=self.directory, port=self.ports[0], origin=self.origin_port
            )
        )
        return ["nginx", "-e", "stderr", "-p", str(self.directory), "-c", str(config)]


class Recorder:
    """An origin that records the first bytes of each connection, up to the request."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(SECONDS_MAX)
        self.port = self.listener.getsockname()[1]

    def header(self):
        """The header before the next request. Connections without a request are checks."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            connection, _ = self.listener.accept()
            with connection:
                connection.settimeout(SECONDS_MAX)
                wire = b""
                try:
                    while b"/address" not in wire or not wire.endswith(b"\r\n\r\n"):
                        piece = connection.recv(65536)
                        if not piece:
                            break
                        wire += piece
                except OSError:
                    continue
            if b"GET /address" in wire:
                return wire[: wire.index(b"GET /address")]
        raise Failure("no request reached the recorder")


def connect(port, source="127.0.0.1"):
    client = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX, source_address=(source, 0))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def answer(client):
    """The body of the next response."""
    reader = client.makefile("rb")
    status = reader.readline()
    length = None
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if b" 200 " not in status or length is None:
        raise Failure(f"the answer is {status!r}")
    return json.loads(reader.read(length))


def expect(what, got, client, proxy):
    expected = {"client": client, "server": proxy, "proxied": True}
    if got != expected:
        raise Failure(f"{what}: got {got}, expected {expected}")


def judge(name, port, announced):
    """Several clients from several addresses, each with several requests on its connection."""
    asked = 0
    if announced:
        for client_address, proxy_address, line in ANNOUNCED:
            with connect(port) as client:
                client.sendall(line.encode() + REQUEST)
                expect(name, answer(client), client_address, proxy_address)
                asked += 1
        return asked
    for source in ["127.0.0.1", "127.0.0.2", "127.255.0.3"]:
        with connect(port, source) as client:
            address = "{}:{}".format(*client.getsockname())
            for _ in range(3):
                client.sendall(REQUEST)
                expect(name, answer(client), address, f"127.0.0.1:{port}")
                asked += 1
    return asked


def record(front, name, index):
    """The header that a front sends, and the addresses in it. None if the request does not reach the recorder."""
    recorder = front.recorder
    found = []
    thread = threading.Thread(target=lambda: found.append(recorder.header()))
    thread.start()
    announced = name.startswith("announced")
    with connect(front.ports[index]) as client:
        client.sendall((ANNOUNCED[1][2].encode() if announced else b"") + REQUEST)
        addresses = ANNOUNCED[1][:2] if announced else ("{}:{}".format(*client.getsockname()), f"127.0.0.1:{front.ports[index]}")
        thread.join()
    if not found or not found[0]:
        raise Failure(f"{name}: no header was recorded")
    return found[0], addresses


def split_everywhere(name, port, header, addresses):
    wire = header + REQUEST
    for split in range(1, len(header) + 1):
        with connect(port) as client:
            client.sendall(wire[:split])
            time.sleep(PAUSE_SECONDS)
            client.sendall(wire[split:])
            expect(f"{name}, split at {split}", answer(client), *addresses)
    with connect(port) as client:
        for byte in header:
            client.sendall(bytes([byte]))
        client.sendall(REQUEST)
        expect(f"{name}, byte by byte", answer(client), *addresses)


def curl(port):
    command = ["curl", "--silent", "--show-error", "--http1.1", "--max-time", str(SECONDS_MAX), "--haproxy-protocol"]
    url = f"http://127.0.0.1:{port}/address"
    code, output, errors = program.run([*command, "--write-out", "\n%{local_port}\n", url], SECONDS_MAX * 2)
    if code != 0:
        raise Failure(f"curl: code {code}, {errors.strip()}")
    body, local = output.decode().split()
    expect("curl", json.loads(body), f"127.0.0.1:{local}", f"127.0.0.1:{port}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("nginx", "haproxy", "curl")
    has_stream = STREAM_MODULE.exists()
    if not has_stream:
        program.skip_part(f"nginx has no {STREAM_MODULE}")
    for backend in options.backends:
        for mode in ["required", "optional"]:
            flags = ["--proxy-protocol", mode]
            with tempfile.TemporaryDirectory() as directory, program.serve(
                backend, *flags, program=options.program
            ) as server:
                print(f"{backend}, {mode}:", flush=True)
                curl(server.port)
                print(f"  {'curl':24}   1 request", flush=True)
                fronts = [(Haproxy, Haproxy.NAMES)] + ([(Nginx, ["nginx, stream"])] if has_stream else [])
                for kind, names in fronts:
                    run_front(kind, names, server, directory)
                counts = program.counts(server)
                if counts["closed_protocol"]:
                    raise Failure(f"{counts['closed_protocol']} connections closed for a protocol error")


def run_front(kind, names, server, directory):
    with kind(server.port, directory) as front:
        for name, port in zip(names, front.ports):
            asked = judge(name, port, name.startswith("announced"))
            print(f"  {name:24} {asked:3} requests", flush=True)
    recorder = Recorder()
    with kind(recorder.port, directory) as front:
        # The connections with which the front was found to listen.
        front.recorder = recorder
        headers = [(name, *record(front, name, index)) for index, name in enumerate(names)]
    for name, header, addresses in headers:
        split_everywhere(name, server.port, header, addresses)
        print(f"  {name:24} {len(header):3} bytes of header, split at each", flush=True)


if __name__ == "__main__":
    servers.run(main)
