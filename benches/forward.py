#!/usr/bin/env python3
"""CPU seconds per GiB of two TCP forwarders: examples/forwarder.rs, and HAProxy in TCP mode without splice.

Each runs on one core and forwards to `tidegate serve`, from which curl fetches, both on the other core. They take turns,
round by round, and ratios are taken within a round. The README in this folder describes how to repeat it.
"""

import argparse
import pathlib
import shlex
import socket
import statistics
import subprocess
import tempfile

import servers
from servers import Failure, Server

SOURCE = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet"
FETCH_SECONDS_MAX = 120
GIB = 1 << 30
HAPROXY_CONFIG = """
global
  nbthread 1
  nosplice
defaults
  mode tcp
  timeout connect 5s
  timeout client 1m
  timeout server 1m
listen all
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{source}
"""


def haproxy(source, directory):
    """The command for HAProxy, which can neither choose a free port nor print it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = pathlib.Path(directory, "haproxy.cfg")
    config.write_text(HAPROXY_CONFIG.format(port=port, source=source))
    script = f"(sleep 1; echo 127.0.0.1:{port}) & exec haproxy -db -f {shlex.quote(str(config))}"
    return f"sh -c {shlex.quote(script)}"


def fetch(server, options):
    """Fetches all bytes through a forwarder, over several concurrent connections."""
    length = int(options.gib * GIB / options.connections)
    command = ["taskset", "-c", options.load_core, "curl", "--silent", "--fail", "--parallel", "--parallel-immediate"]
    command += ["--write-out", "%{size_download}\n"]
    for _ in range(options.connections):
        command += ["--output", "/dev/null", f"http://127.0.0.1:{server.port}/stream/{length}"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    curl = subprocess.Popen(command, text=True, **pipes)
    try:
        sizes, _ = curl.communicate(timeout=FETCH_SECONDS_MAX)
    finally:
        servers.end(curl)
    if curl.returncode != 0 or sizes.split() != [str(length)] * options.connections:
        raise Failure(f"{server.command}: curl got {sizes.split()} of {options.connections} times {length} bytes")


def measure(command, options):
    with Server(command, options.server_core) as server:
        before = server.cpu_seconds()
        fetch(server, options)
        return (server.cpu_seconds() - before) / options.gib


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=4, help="to forward for each figure")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()

    figures = {"forwarder": [], "haproxy": []}
    with Server(SOURCE, options.load_core) as source, tempfile.TemporaryDirectory() as directory:
        commands = {
            "forwarder": f"{servers.BUILT}/examples/forwarder 127.0.0.1:0 127.0.0.1:{source.port}",
            "haproxy": haproxy(source.port, directory),
        }
        for number in range(1, options.rounds + 1):
            for name, command in commands.items():
                figures[name].append(measure(command, options))
                print(f"round {number}: {name} {figures[name][-1]:.3f}", flush=True)
    print("\nCPU seconds per GiB\n             median      min      max  to haproxy")
    for name, each in figures.items():
        ratio = statistics.median(one / other for one, other in zip(each, figures["haproxy"]))
        print(f"{name:10} {statistics.median(each):8.3f} {min(each):8.3f} {max(each):8.3f} {ratio:11.2f}")


if __name__ == "__main__":
    servers.run(main)
