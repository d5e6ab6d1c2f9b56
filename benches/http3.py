#!/usr/bin/env python3
"""CPU time over HTTP/3: Tidegate beside h3 on quinn on tokio, nginx, and its own HTTP/2 over TLS, one core each.

The load is `tidegate load`, on another core. A certificate of ECDSA P-256; Tidegate and quinn with AWS-LC, nginx with OpenSSL.
Servers take turns, round by round, and ratios are taken within a round. A peer that is missing is left out, with a line that
says so. The README in this folder describes how to repeat it. nginx cannot send on a loopback interface with its
usual MTU of 65,536: run all in a network of its own, `unshare -n`, after `ip link set lo up mtu 1500`.

    requests    CPU microseconds of a request, on 64 connections with 64 streams each and with one
    bulk        CPU seconds of 200 MB in one response
    handshakes  CPU microseconds of a full handshake with one request
    goodput     KB a second of each of 8 downloads over a link with 1 % loss and 50 ms, beside gtlsserver of ngtcp2
"""

import argparse
import json
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

import servers
from servers import Failure, Server
from tls import SERVE, Certificate, free_ports

TIDEGATE = f"{servers.BUILT}/tidegate"
PEERS = pathlib.Path(__file__).resolve().parent / "peers" / "target" / "release"
HERE = pathlib.Path(__file__).resolve().parent
OURS, PEER, HTTP2, NGINX, NGTCP2 = "http3", "h3-quinn", "http2", "nginx", "gtlsserver"
CONNECTIONS = 64
BULK_BYTES = 200_000_000
LOADS = 20
# The receive buffer of a socket, 208 KiB by default, has room for the Initials of so many clients, two each.
HANDSHAKES_AT_ONCE = 32
LOAD_SECONDS_MAX = 120
DOWNLOADS = 8
DOWNLOAD_BYTES = 4_000_000
# A figure may be at most so much of another one, and goodput at least.
BARS = {
    64: {PEER: 0.5, NGINX: 1.4},
    1: {NGINX: 1.1},
    "bulk": {PEER: 0.9, NGINX: 1.3},
    "handshakes": {PEER: 1.0, NGINX: 1.1},
    "goodput": {NGTCP2: 0.9},
}
NGINX_CONF = """
daemon off;
master_process off;
pid {directory}/pid;
error_log stderr emerg;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  default_type application/octet-stream;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  open_file_cache max=16 inactive=1h;
  ssl_certificate {cert};
  ssl_certificate_key {key};
  ssl_protocols TLSv1.3;
  quic_gso on;
  http3_max_concurrent_streams 100;
  server {{
    listen 127.0.0.1:{port} quic reuseport;
    location = /plaintext {{ default_type text/plain; return 200 "Hello, World!"; }}
    location /bytes/ {{ alias {directory}/; }}
  }}
}}
"""


def announced(port, command):
    """A command that prints no address, by way of a shell that does."""
    script = f"(sleep 1; echo 127.0.0.1:{port}) & exec {command}"
    return f"sh -c {shlex.quote(script)}"


def nginx(program, directory, certificate):
    """The command of nginx, whose files are as long as their names say."""
    [port] = free_ports(1)
    for length in (BULK_BYTES, BULK_BYTES // 10):
        with open(f"{directory}/{length}", "wb") as file:
            file.write(b"x" * length)
    conf = pathlib.Path(directory, "nginx.conf")
    conf.write_text(NGINX_CONF.format(directory=directory, port=port, cert=certificate.cert, key=certificate.key))
    return announced(port, f"{program} -c {conf}")


def has(program, flag, word):
    """Whether there is such a program, and what it prints for the flag has the word."""
    try:
        _, output = servers.complete([*shlex.split(program), flag], LOAD_SECONDS_MAX)
    except OSError:
        return False
    return word in output


class Bench:
    def __init__(self, options, directory):
        self.options = options
        certificate = Certificate(directory)
        files = {"cert": certificate.cert, "key": certificate.key}
        own = SERVE.format(tidegate=options.tidegate, **files)
        self.commands = {
            OURS: f"{own} --http3",
            PEER: f"{options.peer} 127.0.0.1:0 {certificate.cert} {certificate.key}",
            HTTP2: own,
        }
        for name, program in options.server:
            self.commands[name] = f"{SERVE.format(tidegate=program, **files)} --http3"
        if has(options.nginx, "-V", "http_v3"):
            self.commands[NGINX] = nginx(options.nginx, directory, certificate)
        else:
            print(f"skipped: {options.nginx} is no nginx with http_v3")
        self.lossy = {OURS: self.commands[OURS]}
        if has(options.gtlsserver, "--help", "PRIVATE_KEY_FILE"):
            [port] = free_ports(1)
            command = f"{options.gtlsserver} -q --cc=cubic 127.0.0.1 {port} {certificate.key} {certificate.cert}"
            self.lossy[NGTCP2] = announced(port, command)
        else:
            print(f"skipped: {options.gtlsserver} is no gtlsserver")
        self.round = 0
        self.load = ["taskset", "-c", options.load_core, options.tidegate, "load", "--insecure", "-t", "1", "--json", "-"]

    def server(self, name):
        return Server(self.commands[name], self.options.server_core)

    def loaded(self, name, server, path, *flags, port=None):
        """CPU seconds of the server for a load without errors."""
        before = server.cpu_seconds()
        version = "--http2" if name == HTTP2 else "--http3"
        command = [*self.load, version, *flags, f"https://127.0.0.1:{port or server.port}{path}"]
        _, output = servers.complete(command, LOAD_SECONDS_MAX)
        try:
            # Lines of progress come before.
            results = json.loads(output[output.find("{") :])
        except ValueError:
            raise Failure(f"{shlex.join(command)}: {output}") from None
        if any(results["errors"].values()) or not results["requests"]:
            raise Failure(f"{self.commands[name]}: {results['errors']}")
        return server.cpu_seconds() - before, results["requests"]

    def requests(self, name, streams):
        flags = ["-c", str(CONNECTIONS), "-m", str(streams), "--timeout", "30s"]
        with self.server(name) as server:
            self.loaded(name, server, "/plaintext", *flags, "-n", str(CONNECTIONS * streams * 2))
            seconds, requests = self.loaded(name, server, "/plaintext", *flags, "-d", f"{self.options.seconds}s")
        return seconds / requests * 1e6

    def bulk(self, name):
        with self.server(name) as server:
            flags = ["-c", "1", "--timeout", "1m"]
            self.loaded(name, server, f"/bytes/{BULK_BYTES // 10}", *flags, "-n", "1")
            seconds, _ = self.loaded(name, server, f"/bytes/{BULK_BYTES}", *flags, "-n", "2")
        return seconds / 2

    def handshakes(self, name):
        flags = ["-c", "1", "--rate", "10", "-d", "200ms", "--idle", str(HANDSHAKES_AT_ONCE)]
        with self.server(name) as server:
            self.loaded(name, server, "/plaintext", *flags)
            # The idle connections of one load begin at once, before there is a ticket to resume with.
            seconds = sum(self.loaded(name, server, "/plaintext", *flags)[0] for _ in range(LOADS))
        return seconds / (LOADS * (HANDSHAKES_AT_ONCE + 1)) * 1e6

    def goodput(self, name):
        """KB a second of one download of several at once, each with losses of its own."""
        path = f"/{DOWNLOAD_BYTES}" if name == NGTCP2 else f"/bytes/{DOWNLOAD_BYTES}"
        flags = ["-c", str(DOWNLOADS), "-n", str(DOWNLOADS), "--timeout", "2m"]
        self.round += 1
        with Server(self.lossy[name], self.options.server_core) as server:
            link = f"{sys.executable} {HERE}/lossy.py {server.port} --seed {self.round // len(self.lossy)}"
            with Server(link, self.options.load_core) as link:
                before = time.monotonic()
                self.loaded(name, server, path, *flags, port=link.port)
                seconds = time.monotonic() - before
        return DOWNLOAD_BYTES / seconds / 1000


def table(title, figures, bars, missed, is_least=False):
    """Prints medians, and the ratios of Tidegate's HTTP/3 to the others."""
    print(f"\n{title}\n             median      min      max   ours / it")
    for name, each in figures.items():
        ratio = statistics.median(one / two for one, two in zip(figures[OURS], each))
        bar = bars.get(name)
        print(
            f"{name:10} {statistics.median(each):8.3f} {min(each):8.3f} {max(each):8.3f} {ratio:11.2f}"
            + (f"  the bar is {bar}" if bar else "")
        )
        if bar and (ratio < bar if is_least else ratio > bar):
            missed.append(f"{title}: {ratio:.2f} of {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=["requests", "bulk", "handshakes", "goodput"])
    parser.add_argument("--tidegate", default=TIDEGATE, help="the program, which is the load as well")
    parser.add_argument("--peer", default=PEERS / "h3-quinn-peer", help="h3 on quinn")
    parser.add_argument("--nginx", default="nginx", help="the command of nginx 1.25 or later with http_v3")
    parser.add_argument("--gtlsserver", default="gtlsserver", help="the command of that server of ngtcp2")
    parser.add_argument("--server", action="append", default=[], type=lambda text: text.split("=", 1), metavar="NAME=PROGRAM",
                        help="another build of the program, over HTTP/3")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these beside Tidegate's HTTP/3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each load")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 1], help="of a connection")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    if not pathlib.Path(options.peer).exists():
        raise Failure("build it first: cargo build --release --manifest-path benches/peers/Cargo.toml -p h3-quinn-peer")
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        jobs = {
            "requests": [
                (f"CPU of a request, {streams} streams on each of {CONNECTIONS} connections, us", bench.requests, (streams,))
                for streams in options.streams
            ],
            "bulk": [("CPU of 200 MB, s", bench.bulk, ())],
            "handshakes": [("CPU of a full handshake with a request, us", bench.handshakes, ())],
            "goodput": [("KB a second of a download, 1 % loss and 50 ms", bench.goodput, ())],
        }
        for job in options.jobs:
            if job not in jobs:
                parser.error(f"there is no job {job}: {', '.join(jobs)}")
            for title, measure, arguments in jobs[job]:
                commands = bench.lossy if job == "goodput" else bench.commands
                names = [name for name in commands if name == OURS or not options.only or name in options.only]
                figures = {name: [] for name in names}
                for _ in range(options.rounds):
                    for name, each in figures.items():
                        each.append(measure(name, *arguments))
                bars = BARS.get(arguments[0], {}) if arguments else BARS[job]
                table(title, figures, bars, missed, is_least=job == "goodput")
    if missed and options.check:
        raise Failure("; ".join(missed))


if __name__ == "__main__":
    servers.run(main)
