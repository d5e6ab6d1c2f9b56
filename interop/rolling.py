#!/usr/bin/env python3
"""A rolling restart of three replicas behind HAProxy, under load: no request fails.

In turn each replica gets SIGTERM, drains, ends, and starts again at its address; the next follows when it is ready.
This happens in two ways. *announced*: HAProxy sends the replica no new requests before it is ended, as an orchestrator
does with `preStop`, and retries nothing. *sudden*: SIGTERM alone, as of a service manager; HAProxy notices by `/ready` and
by connections that are refused or end without a response, and sends such requests to another replica.
"""

import argparse
import pathlib
import re
import shlex
import signal
import socket
import tempfile
import threading
import time

import program
import servers
from program import Failure

REPLICAS = 3
CONNECTIONS = 32
# Requests of one run of the load; runs follow each other until the restarts are done.
RUN_REQUESTS = 20_000
RUN_SECONDS_MAX = 300
# A drain takes at most ten seconds. These bounds end a run that hangs.
END_SECONDS_MAX = 120
READY_SECONDS_MAX = 120
# The time between the removal from the load balancer and SIGTERM.
PRE_STOP_SECONDS = 0.3


class Replica:
    """A server at two ports that stay, so that it can start again."""

    def __init__(self, backend, options, ports):
        self.port, self.admin = ports
        words = [options.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        self.command = shlex.join([*words, "--quiet", "--backend", backend])
        self.server = None

    def start(self):
        self.server = servers.Server(self.command)
        self.server.__enter__()
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self.ready() != 200:
            if time.monotonic() > deadline:
                raise Failure(f"{self.command}: not ready in {READY_SECONDS_MAX} seconds")
            time.sleep(0.01)

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.admin), timeout=READY_SECONDS_MAX) as peer:
                peer.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return int((peer.recv(1024).split() + [b"", b"0"])[1])
        except (OSError, ValueError):
            return 0

    def drain(self):
        """SIGTERM, until the process has ended by itself."""
        self.server.process.send_signal(signal.SIGTERM)
        try:
            code = self.server.process.wait(END_SECONDS_MAX)
        except servers.subprocess.TimeoutExpired:
            raise Failure(f"{self.command}: not drained in {END_SECONDS_MAX} seconds") from None
        if code:
            raise Failure(f"{self.command}: exit code {code}\n{''.join(self.server.last_lines)}")

    def end(self):
        if self.server is not None:
            self.server.__exit__()


class Balancer(program.Front):
    """HAProxy in front of the replicas, with a socket for its operator."""

    CONFIG = """
global
  nbthread 1
  maxconn 4096
  stats socket {directory}/haproxy.sock level admin
defaults
  mode http
  http-reuse always
  timeout connect 5s
  timeout client 1m
  timeout server 1m
  timeout check 5s
{retries}
listen replicas
  bind 127.0.0.1:{port}
  balance roundrobin
  option httpchk
  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost
  http-check expect status 200
  default-server inter 100ms fall 1 rise 1
{replicas}
"""
    RETRIES = {
        "announced": "  retries 0",
        "sudden": "  retries 3\n  option redispatch 1\n  retry-on conn-failure empty-response",
    }

    def __init__(self, replicas, way, directory):
        super().__init__(None, directory)
        self.replicas, self.way = replicas, way

    def command(self):
        lines = [
            f"  server r{number} 127.0.0.1:{replica.port} check port {replica.admin}"
            for number, replica in enumerate(self.replicas)
        ]
        config = pathlib.Path(self.directory, "haproxy.cfg")
        config.write_text(
            self.CONFIG.format(
                directory=self.directory, retries=self.RETRIES[self.way], port=self.ports[0], replicas="\n".join(lines)
            )
        )
        return ["haproxy", "-db", "-f", str(config)]

    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as operator:
            operator.settimeout(READY_SECONDS_MAX)
            operator.connect(f"{self.directory}/haproxy.sock")
            operator.sendall(command.encode() + b"\n")
            with operator.makefile() as answer:
                return answer.read()

    def is_up(self, number):
        for line in self.ask("show stat").splitlines():
            fields = line.split(",")
            if fields[:2] == ["replicas", f"r{number}"]:
                return fields[17].startswith("UP")
        raise Failure(f"HAProxy does not know replica {number}")

    def until_up(self, number):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.is_up(number):
            if time.monotonic() > deadline:
                raise Failure(f"HAProxy does not take replica {number} back")
            time.sleep(0.02)


class Load:
    """Runs of h2load, one after the other, on a thread of its own, a context manager."""

    def __init__(self, port):
        self.port = port
        self.requests, self.failure = 0, None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._repeat)

    def _repeat(self):
        try:
            while not self.stop.is_set():
                url = f"http://127.0.0.1:{self.port}/plaintext"
                command = ["h2load", "--h1", "-n", str(RUN_REQUESTS), "-c", str(CONNECTIONS), "-m", "1", url]
                code, output, errors = program.run(command, RUN_SECONDS_MAX)
                said = output.decode(errors="replace")
                wanted = f"{RUN_REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout"
                if code or wanted not in said or f"status codes: {RUN_REQUESTS} 2xx" not in said:
                    lines = [line for line in said.splitlines() if re.match("requests:|status codes:", line)]
                    raise Failure(f"after {self.requests} requests: code {code}: {'; '.join(lines)} {errors}")
                self.requests += RUN_REQUESTS
        except (Failure, OSError) as failure:
            self.failure = failure

    def check(self):
        if self.failure:
            raise self.failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def roll(balancer, replicas, number, way):
    """Restarts one replica."""
    if way == "announced":
        balancer.ask(f"set server replicas/r{number} state drain")
        time.sleep(PRE_STOP_SECONDS)
    replicas[number].drain()
    replicas[number].end()
    replicas[number].start()
    if way == "announced":
        balancer.ask(f"set server replicas/r{number} state ready")
    balancer.until_up(number)


def check(backend, way, options):
    begun = time.monotonic()
    ports = program.free_ports(2 * REPLICAS)
    replicas = [Replica(backend, options, ports[2 * number : 2 * number + 2]) for number in range(REPLICAS)]
    try:
        for replica in replicas:
            replica.start()
        with tempfile.TemporaryDirectory() as directory, Balancer(replicas, way, directory) as balancer:
            for number in range(REPLICAS):
                balancer.until_up(number)
            restarts = 0
            with Load(balancer.ports[0]) as load:
                while restarts < REPLICAS or load.requests < options.requests:
                    load.check()
                    roll(balancer, replicas, restarts % REPLICAS, way)
                    restarts += 1
            load.check()
    finally:
        for replica in replicas:
            replica.end()
    spent = time.monotonic() - begun
    print(f"{backend}, {way}: {load.requests} requests, 0 failed, {restarts} restarts; {spent:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--requests", type=int, default=RUN_REQUESTS, help="requests at least, in each way")
    options = parser.parse_args()
    program.need("haproxy", "h2load")
    for backend in options.backends:
        for way in Balancer.RETRIES:
            check(backend, way, options)


if __name__ == "__main__":
    servers.run(main)
