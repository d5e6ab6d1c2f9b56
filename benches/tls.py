#!/usr/bin/env python3
"""The costs of TLS 1.3: Tidegate beside hyper 1 with tokio-rustls, and beside nginx with OpenSSL.

A certificate of ECDSA P-256, AES-256-GCM, key exchange by X25519; Tidegate and hyper with AWS-LC. Every server runs on
one core, and the load on another. Figures are the server's own CPU time, or its resident memory. Servers take turns,
round by round, and ratios are taken within a round. The README in this folder describes how to repeat it.

    idle        bytes of a connection that made one request and waits
    requests    CPU microseconds of a request, unpipelined and 16 deep, on 256 connections
    bulk        CPU seconds of a GiB downloaded in responses of 10 MB
    handshakes  handshakes a second of CPU, full and resumed, by a client of rustls; each with one request
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import tempfile
import time

import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
TIDEGATE = f"{servers.BUILT}/tidegate"
SERVE = "{tidegate} serve --listen 127.0.0.1:0 --loops 1 --quiet --tls-cert {cert} --tls-key {key}"
PEERS = f"{HERE}/peers/target/release"
BULK_BYTES = 10_000_000
CLIENT_SECONDS_MAX = 120
IDLE_SECONDS_MAX = 60
NGINX = """
daemon off;
master_process off;
pid {directory}/pid;
error_log stderr emerg;
events {{ worker_connections 32768; multi_accept on; }}
http {{
  access_log off;
  default_type application/octet-stream;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_header_buffer_size 16k;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  tcp_nopush on;
  sendfile on;
  open_file_cache max=16 inactive=1h;
  output_buffers 2 512k;
  ssl_certificate {cert};
  ssl_certificate_key {key};
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_session_tickets on;
  ssl_buffer_size 16k;
  server {{
    listen 127.0.0.1:{port} ssl backlog=4096;
    location = /plaintext {{ default_type text/plain; return 200 "Hello, World!"; }}
    location = /bytes/{bulk} {{ alias {directory}/{bulk}; }}
  }}
}}
"""


class Certificate:
    """A certificate that vouches for itself."""

    def __init__(self, directory):
        self.cert, self.key = f"{directory}/cert.pem", f"{directory}/key.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        names += ["-addext", "basicConstraints=critical,CA:FALSE"]
        run(["openssl", "req", "-x509", *key, "-out", self.cert, "-days", "30", *names])


def run(command):
    code, output = servers.complete(command, CLIENT_SECONDS_MAX)
    if code != 0:
        raise Failure(f"{shlex.join(command)}: code {code}\n{output}")
    return output


def nginx(directory, certificate):
    """The command of nginx, which announces its address by way of a shell."""
    [port] = free_ports(1)
    conf = pathlib.Path(directory, "nginx.conf")
    with open(f"{directory}/{BULK_BYTES}", "wb") as file:
        file.write(b"x" * BULK_BYTES)
    settings = {"directory": directory, "port": port, "bulk": BULK_BYTES}
    conf.write_text(NGINX.format(cert=certificate.cert, key=certificate.key, **settings))
    script = f"PATH=$PATH:/usr/sbin; (sleep 1; echo 127.0.0.1:{port}) & exec nginx -c {conf}"
    return f"sh -c {shlex.quote(script)}"


def free_ports(count):
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Bench:
    def __init__(self, options, directory):
        self.options = options
        self.certificate = Certificate(directory)
        both = {"cert": self.certificate.cert, "key": self.certificate.key}
        self.commands = {"tidegate": SERVE.format(tidegate=options.tidegate, **both)}
        for name, command in options.server:
            self.commands[name] = command.format(**both)
        if not options.alone:
            for name in ["hyper1", "hyper1-mimalloc"]:
                self.commands[name] = f"{options.peers_dir}/{name} 127.0.0.1:0 {both['cert']} {both['key']}"
            self.commands["nginx"] = nginx(directory, self.certificate)
        self.load = ["taskset", "-c", options.load_core, options.tidegate, "load", "--insecure", "-t", "1"]

    def server(self, name):
        return Server(self.commands[name], self.options.server_core)

    def loaded(self, server, path, *flags):
        """CPU seconds of the server, and the results of the load, which has `requests` and `bytes`."""
        url = f"https://127.0.0.1:{server.port}{path}"
        before = server.cpu_seconds()
        results = json.loads(run([*self.load, "--any-length", *flags, "--json", "-", url]))
        return server.cpu_seconds() - before, results

    def request(self, name, depth):
        flags = ["-c", "256", "--pipeline", str(depth), "-d", f"{self.options.seconds}s"]
        with self.server(name) as server:
            self.loaded(server, "/plaintext", "-c", "256", "--pipeline", str(depth), "-d", "1s")
            seconds, results = self.loaded(server, "/plaintext", *flags)
        return seconds * 1e6 / results["requests"]

    def bulk(self, name):
        with self.server(name) as server:
            path = f"/bytes/{BULK_BYTES}"
            self.loaded(server, path, "-c", "4", "-d", "1s")
            seconds, results = self.loaded(server, path, "-c", "4", "-d", f"{self.options.seconds}s")
        return seconds / (results["requests"] * BULK_BYTES / (1 << 30))

    def handshakes(self, name, kind, group):
        """Handshakes for each second of the server's CPU time."""
        client = ["taskset", "-c", self.options.load_core, f"{self.options.peers_dir}/handshakes", kind, group]
        with self.server(name) as server:
            flags = [self.certificate.cert, str(server.port), "8"]
            run([*client, *flags, "1"])
            before = server.cpu_seconds()
            count = int(run([*client, *flags, str(self.options.seconds)]))
            return count / (server.cpu_seconds() - before)

    def idle(self, name):
        with self.server(name) as server:
            # The first connections make it allocate what it keeps anyway.
            self.loaded(server, "/plaintext", "-c", "1", "-d", "1s")
            before, start = server.settled_rss(), descriptors(server)
            url = f"https://127.0.0.1:{server.port}/plaintext"
            flags = ["-c", "1", "-d", f"{IDLE_SECONDS_MAX}s", "--rate", "1", "--idle", str(self.options.connections)]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            load = subprocess.Popen([*self.load, *flags, url], **pipes)
            try:
                deadline = time.monotonic() + IDLE_SECONDS_MAX
                while descriptors(server) - start < self.options.connections:
                    if load.poll() is not None or time.monotonic() > deadline:
                        raise Failure(f"{self.commands[name]}: {descriptors(server) - start} connections")
                    time.sleep(0.2)
                after = server.settled_rss()
            finally:
                servers.end(load)
        return (after - before) / self.options.connections


def descriptors(server):
    return sum(1 for _ in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())


def report(title, figures, digits):
    print(f"\n{title}")
    for name, each in figures.items():
        ratios = [one / other for one, other in zip(figures["tidegate"], each)]
        spread = f"{min(each):.{digits}f} to {max(each):.{digits}f}"
        print(f"  {name:16} {statistics.median(each):10.{digits}f}  ({spread})  tidegate / it {statistics.median(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=["idle", "requests", "bulk", "handshakes"])
    parser.add_argument("--tidegate", default=TIDEGATE, help="the program, which is the load as well")
    parser.add_argument("--peers-dir", default=PEERS, help="where hyper1 and handshakes are")
    parser.add_argument("--server", action="append", default=[], type=lambda text: text.split("=", 1), metavar="NAME=COMMAND",
                        help="a further server; {cert} and {key} in the command are files")
    parser.add_argument("--alone", action="store_true", help="measure Tidegate only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these beside Tidegate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 16], help="of pipelines")
    parser.add_argument("--connections", type=int, default=10_000, help="that are idle")
    parser.add_argument("--idle-max", type=int, help="fail if an idle connection takes more bytes")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        everyone = [name for name in bench.commands if not options.only or name in ["tidegate", *options.only]]
        not_hyper = [name for name in everyone if not name.startswith("hyper1")]
        # nginx keeps a pool for each connection that it does not release, and answers a pipeline one by one.
        jobs = {
            "idle": [("bytes of an idle connection", bench.idle, (), everyone, 0)],
            "requests": [
                (f"CPU microseconds of a request, {depth} deep", bench.request, (depth,), everyone, 3)
                for depth in options.depths
            ],
            "bulk": [("CPU seconds of a GiB", bench.bulk, (), not_hyper, 3)],
            "handshakes": [
                (f"{kind} handshakes a second of CPU", bench.handshakes, (kind, "x25519"), everyone, 0)
                for kind in ["full", "resumed"]
            ],
        }
        for job in options.jobs:
            if job not in jobs:
                parser.error(f"there is no job {job}: {', '.join(jobs)}")
            for title, measure, arguments, names, digits in jobs[job]:
                figures = {name: [] for name in names}
                for _ in range(options.rounds):
                    for name in names:
                        figures[name].append(measure(name, *arguments))
                report(title, figures, digits)
                if job == "idle" and options.idle_max is not None and max(figures["tidegate"]) > options.idle_max:
                    raise Failure(f"an idle connection takes more than {options.idle_max} bytes")


if __name__ == "__main__":
    servers.run(main)
