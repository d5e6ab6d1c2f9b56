#!/usr/bin/env python3
"""`tidegate proxy` between two toxiproxies, one in front of it and one before its upstream: slow, broken and cut-off
connections.

Every request has a number. It gets one response, which has that number, or an error: a response of the proxy itself, or
the end of the connection. None waits for ever, no POST reaches the upstream twice, and what only slows connections fails no
request. The README beside this file says how to repeat it.
"""

import argparse
import collections
import http.server
import json
import os
import pathlib
import random
import socket
import tempfile
import threading
import time
import urllib.request

import program
import servers
from program import Failure
from proxies import read_answer

# Where `cargo xtask ci` installs toxiproxy: `go install` names it by its folder.
INSTALLED = str(program.ROOT / "target/tools/toxiproxy/bin/server")

CLIENTS = 4
# A request that takes longer hangs. The longest deadline of the proxy is 2 seconds.
ANSWER_SECONDS_MAX = 120
# The names of the toxics, their attributes, and whether they break no connection.
TOXICS = [
    ("latency", {"latency": 60, "jitter": 40}, True),
    ("slicer", {"average_size": 500, "size_variation": 400, "delay": 200}, True),
    ("bandwidth", {"rate": 500}, True),
    ("slow_close", {"delay": 200}, True),
    ("reset_peer", {"timeout": 40}, False),
    ("timeout", {"timeout": 200}, False),
    # It never closes: the proxy has to give up.
    ("timeout", {"timeout": 0}, False),
    ("limit_data", {"bytes": 20_000}, False),
]
CONFIG = """
[[upstream]]
name = "all"
servers = ["http://127.0.0.1:{port}"]
[upstream.limits]
connect-timeout = 2
response-timeout = 2
body-timeout = 2
[[route]]
upstream = "all"
"""


class Origin:
    """An upstream, a context manager: each response has the number of its request, and it counts the POSTs."""

    def __enter__(self):
        posts = self.posts = collections.Counter()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(response(self.path.encode()))

            def do_POST(self):
                posts[self.path] += 1
                self.answer(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            # Connections break on purpose.
            def handle_error(self, *_):
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def response(path):
    """What a path gets: from a few bytes to 40 KB, different for each."""
    return path * (1 + random.Random(path).choice([0, 10, 4000]))


def toxiproxy_server():
    return INSTALLED if os.path.exists(INSTALLED) else "toxiproxy-server"


class Toxiproxy(program.Front):
    """A toxiproxy, a context manager."""

    def command(self):
        return [toxiproxy_server(), "-host", "127.0.0.1", "-port", str(self.ports[0])]

    def call(self, method, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[0]}{path}", data=data, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=ANSWER_SECONDS_MAX) as got:
            return json.loads(got.read() or b"null")

    def forward(self, name, port):
        """Forwards to a port; returns the port to connect to."""
        made = self.call("POST", "/proxies", {"name": name, "listen": "127.0.0.1:0", "upstream": f"127.0.0.1:{port}"})
        return int(made["listen"].rpartition(":")[2])


class Client(threading.Thread):
    """Sends requests one after the other, on one connection as long as it lasts."""

    def __init__(self, port, paths):
        super().__init__(daemon=True)
        self.port, self.paths = port, paths
        self.results = collections.Counter()
        self.slowest = 0.0
        self.failure = None
        self.connection = self.reader = None

    def run(self):
        try:
            for number, path in enumerate(self.paths):
                begun = time.monotonic()
                self.results[self.ask(path, is_post=number % 3 == 1)] += 1
                self.slowest = max(self.slowest, time.monotonic() - begun)
        except Exception as failure:
            self.failure = f"{type(failure).__name__}: {failure}"
        finally:
            self.close()

    def close(self):
        if self.connection:
            self.reader.close()
            self.connection.close()
        self.connection = self.reader = None

    def ask(self, path, is_post):
        """The status, or "closed"."""
        body = response(path.encode())
        length = f"Content-Length: {len(body)}\r\n" if is_post else ""
        head = f"{'POST' if is_post else 'GET'} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n"
        try:
            if not self.connection:
                self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS_MAX)
                self.reader = self.connection.makefile("rb")
            self.connection.sendall(head.encode() + (body if is_post else b""))
            status, got = read_answer(self.reader)
        except TimeoutError:
            raise Failure(f"{path}: no answer in {ANSWER_SECONDS_MAX} seconds") from None
        except (OSError, Failure) as failure:
            # A head or a body that breaks off ends with its connection.
            self.check_broken(path, failure)
            return "closed"
        if status == 200 and got != body:
            raise Failure(f"{path}: got {got[:100]!r}, {len(got)} bytes, instead of {len(body)}")
        if status not in (200, 502, 503, 504):
            raise Failure(f"{path}: status {status}")
        return status

    def check_broken(self, path, failure):
        if self.reader:
            try:
                rest = self.reader.read()
            except TimeoutError:
                raise Failure(f"{path}: {failure}, and the connection stays open") from None
            except OSError:
                rest = b""
            if rest:
                raise Failure(f"{path}: {failure}, and then {rest[:100]!r}")
        self.close()


def judge(what, port, origin, options, is_harmless):
    prefix = "/" + what.replace(" ", "-")
    numbers = range(options.requests)
    clients = [Client(port, [f"{prefix}/{client}/{number}/" for number in numbers]) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(ANSWER_SECONDS_MAX * options.requests)
        if client.is_alive():
            raise Failure(f"{what}: a client hangs")
    failures = [client.failure for client in clients if client.failure]
    if failures:
        raise Failure(f"{what}: {failures[0]}")
    results = sum((client.results for client in clients), collections.Counter())
    slowest = max(client.slowest for client in clients)
    shown = ", ".join(f"{count} {result}" for result, count in sorted(results.items(), key=str))
    print(f"  {what:40}{shown}; the slowest after {slowest:.1f} s", flush=True)
    if results.total() != CLIENTS * options.requests:
        raise Failure(f"{what}: {results.total()} results for {CLIENTS * options.requests} requests")
    if is_harmless and set(results) != {200}:
        raise Failure(f"{what}: not all requests were served")
    twice = [path for path, count in origin.posts.items() if count > 1]
    if twice:
        raise Failure(f"{what}: POSTs reached the upstream twice: {twice[:3]}")


def run_backend(backend, options):
    print(f"{backend}:", flush=True)
    with tempfile.TemporaryDirectory() as directory, Origin() as origin, Toxiproxy(0, directory) as toxiproxy:
        back = toxiproxy.forward("back", origin.port)
        config = pathlib.Path(directory, "proxy.toml")
        config.write_text(CONFIG.format(port=back))
        command = f"{options.program} proxy --listen 127.0.0.1:0 --quiet --backend {backend} --config {config}"
        with servers.Server(f"{command} --request-timeout 2 --idle-timeout 5 --write-timeout 2") as server:
            front = toxiproxy.forward("front", server.port)
            judge("nothing in the way", front, origin, options, True)
            for name, attributes, is_harmless in TOXICS:
                for place in ["front", "back"]:
                    for stream in ["upstream", "downstream"]:
                        # The client of the test would hang itself.
                        if place == "front" and attributes.get("timeout") == 0:
                            continue
                        toxic = {"name": "toxic", "type": name, "stream": stream, "attributes": attributes}
                        # Some connections break, and others last.
                        toxic["toxicity"] = 1.0 if is_harmless or not next(iter(attributes.values())) else 0.6
                        toxiproxy.call("POST", f"/proxies/{place}/toxics", toxic)
                        try:
                            what = f"{name} {next(iter(attributes.values()))} {place} {stream}"
                            judge(what, front, origin, options, is_harmless)
                        finally:
                            toxiproxy.call("DELETE", f"/proxies/{place}/toxics/toxic")
            judge("nothing in the way again", front, origin, options, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--requests", type=int, default=3, help="of each client, for each kind of trouble")
    options = parser.parse_args()
    program.need(toxiproxy_server())
    for backend in options.backends:
        run_backend(backend, options)


if __name__ == "__main__":
    servers.run(main)
