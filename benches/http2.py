#!/usr/bin/env python3
"""CPU seconds per million requests over HTTP/2: Tidegate, h2o, nghttpd, nginx and hyper, under h2load, one core each.

Servers take turns, round by round, and ratios are taken within a round. Each response has 13 bytes, or `--bytes` of
them, from a file that the peers have open or cached; Tidegate and hyper have them in memory. A response other than 200
fails the run. With `--tls` Tidegate, hyper and nghttpd have a certificate of ECDSA P-256 and agree on HTTP/2 by ALPN.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import socket
import tempfile
import time

import compare
import servers
from servers import Failure, Server
from tls import Certificate

CONNECTIONS = 64
STREAMS = [100, 16, 1]
PATIENCE_SECONDS = 120
HYPER = f"{pathlib.Path(__file__).resolve().parent}/peers/target/release/hyper1"
IN_MEMORY = ["tidegate", "hyper"]
WITH_TLS = ["tidegate", "hyper", "nghttpd"]
WARM_UP_REQUESTS = 40_000
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; open_file_cache max=8; sendfile on; keepalive_requests 100000000;
  server {{ listen 127.0.0.1:{port} http2; root {folder}/files; }}
}}
"""
H2O = """
num-threads: 1
listen: {{ host: 127.0.0.1, port: {port} }}
pid-file: {folder}/pid
error-log: {folder}/error.log
user: root
hosts:
  default:
    paths:
      "/":
        file.dir: {folder}/files
"""


def free_port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return listener.getsockname()[1]


def command_of(name, folder, port, certificate):
    """The command of a server for the folder `files`; it prints its address."""
    if name == "tidegate":
        tls = f" --tls-cert {certificate.cert} --tls-key {certificate.key}" if certificate else ""
        return compare.TIDEGATE + tls
    if name == "hyper":
        protocol = f"{certificate.cert} {certificate.key}" if certificate else "http2"
        return f"{HYPER} 127.0.0.1:0 {protocol}"
    if name == "nghttpd":
        flag, files = ("", f" {certificate.key} {certificate.cert}") if certificate else (" --no-tls", "")
        run = f"nghttpd{flag} -n 1 --address 127.0.0.1 -d {folder}/files {port}{files}"
    elif name == "h2o":
        (folder / "h2o.conf").write_text(H2O.format(folder=folder, port=port))
        run = f"h2o -c {folder}/h2o.conf"
    else:
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        run = f"nginx -p {folder} -c {folder}/nginx.conf"
    return f"sh -c 'echo listening on 127.0.0.1:{port}; exec {run}'"


def cpu_seconds(server):
    """Of the server and its workers."""
    pids = [server.process.pid, *children(server.process.pid)]
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def children(pid):
    listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def load(server, options, path, streams, requests):
    """CPU seconds of the server per million requests of one run of h2load."""
    command = ["taskset", "-c", options.load_core, "h2load", "--connect-to", f"127.0.0.1:{server.port}", "-t", "1"]
    scheme = "https" if options.tls else "http"
    command += ["-c", str(CONNECTIONS), "-m", str(streams), "-n", str(requests)]
    command.append(f"{scheme}://127.0.0.1:{server.port}{path}")
    before = cpu_seconds(server)
    code, output = servers.complete(command, PATIENCE_SECONDS)
    used = cpu_seconds(server) - before
    found = re.search(r"status codes: (\d+) 2xx", output)
    if code or not found or int(found[1]) != requests:
        raise Failure(f"{server.command}: h2load failed\n{output}")
    if not used:
        raise Failure(f"{server.command}: {requests} requests take less time than the clock can tell")
    return used / requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", default=["tidegate", "h2o", "nghttpd", "nginx", "hyper"])
    parser.add_argument("--tls", action="store_true", help=f"of {', '.join(WITH_TLS)} only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS, help="at a time on each connection")
    parser.add_argument("--requests", type=int, default=400_000, help="a run, a quarter of it with one stream")
    parser.add_argument("--bytes", type=int, default=13, help="of each response [13]")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    wanted = [name for name in options.servers if name in WITH_TLS or not options.tls]
    missing = [name for name in wanted if name != "tidegate" and not shutil.which(HYPER if name == "hyper" else name)]
    for name in missing:
        print(f"skipping {name}: it is not installed")
    names = [name for name in wanted if name not in missing]
    costs = {streams: {name: [] for name in names} for streams in options.streams}
    in_memory = "/plaintext" if options.bytes == 13 else f"/bytes/{options.bytes}"
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        folder.chmod(0o755)
        certificate = Certificate(directory) if options.tls else None
        (folder / "files").mkdir()
        (folder / "files/a.txt").write_bytes(b"Hello, World!" if options.bytes == 13 else b"x" * options.bytes)
        for number in range(options.rounds):
            for name in names:
                with Server(command_of(name, folder, free_port(), certificate), core=options.server_core) as server:
                    path = in_memory if name in IN_MEMORY else "/a.txt"
                    wait_for(server)
                    load(server, options, path, max(options.streams), WARM_UP_REQUESTS)
                    for streams in options.streams:
                        requests = options.requests // (4 if streams == 1 else 1)
                        costs[streams][name].append(load(server, options, path, streams, requests))
                latest = ", ".join(f"{costs[streams][name][-1]:.2f} with {streams}" for streams in options.streams)
                print(f"round {number + 1}: {name} {latest}", flush=True)
    for streams, rows in costs.items():
        base = rows[names[0]]
        title = f"{streams} streams on each of {CONNECTIONS} connections, CPU seconds per million requests"
        compare.table(title, rows, [(f"{names[0]} / it", lambda own, base=base: compare.ratio(base, own))])


def wait_for(server):
    """The peers print their address before they listen."""
    for _ in range(500):
        with contextlib.suppress(ConnectionRefusedError), contextlib.closing(
            socket.create_connection(("127.0.0.1", server.port), timeout=10)
        ):
            return
        time.sleep(0.02)
    raise Failure(f"{server.command}: it does not listen")


if __name__ == "__main__":
    servers.run(main)
