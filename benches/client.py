#!/usr/bin/env python3
"""CPU time of a request by our client, beside our server's, and by the clients of hyper-util and reqwest.

Each client has one thread, 64 connections and one request at a time on each; `tidegate serve` answers all of them with
/plaintext, on one loop and another core. The CPU time, user and system, is that of the client's whole process and of
the server meanwhile. Clients take turns, round by round, ratios are taken within a round, and the median of the rounds
counts. The README in this folder describes how to repeat it.
"""

import argparse
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile
import time

import servers
from servers import Failure, Server

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVER = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet"
PEERS = f"{ROOT}/benches/peers/target/release"
CLIENTS = {
    "tidegate": f"{servers.BUILT}/examples/client_load",
    "hyper-util": f"{PEERS}/client-hyper",
    "reqwest": f"{PEERS}/client-reqwest",
}
# Our client's CPU time may be at most so much of another one.
BARS = {"server": 1.2, "hyper-util": 0.8, "reqwest": 0.6}
END_SECONDS_MAX = 20


def run_load(command, core, seconds):
    """What the process of a load has used, and its requests, of which it prints the number."""
    with tempfile.TemporaryFile("w+") as output:
        words = ["taskset", "-c", core, *command]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        usage, code = end_of(process, seconds + END_SECONDS_MAX)
        output.seek(0)
        said = output.read()
    found = re.search(r"^requests (\d+)$", said, re.MULTILINE)
    if code != 0 or not found or int(found[1]) == 0:
        raise Failure(f"{shlex.join(command)}: code {code}, {said.strip()}")
    return usage, int(found[1])


def measure(command, server, options):
    """Microseconds of CPU a request, of the client and of the server meanwhile."""
    words = shlex.split(command)
    words += [f"http://127.0.0.1:{server.port}/plaintext", str(options.connections), str(options.seconds)]
    before = server.cpu_seconds()
    usage, requests = run_load(words, options.load_core, options.seconds)
    of_server = server.cpu_seconds() - before
    return (usage.ru_utime + usage.ru_stime) / requests * 1e6, of_server / requests * 1e6, requests


def end_of(process, seconds_max):
    """What a process has used, and its exit code."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage, process.returncode
        time.sleep(0.05)
    servers.end(process)
    raise Failure(f"{shlex.join(process.args)}: it does not end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--backend", default="auto", help="of our client and server: epoll, uring or auto")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    clients = {name: command for name, command in CLIENTS.items() if pathlib.Path(command).exists()}
    for name in CLIENTS.keys() - clients.keys():
        print(f"skipped: {name} is not built")
    if "tidegate" not in clients:
        raise Failure("cargo build --profile dist -p tidegate-cli -p tidegate-examples --bins --example client_load")
    os.environ["TIDEGATE_BACKEND"] = options.backend
    figures = {name: [] for name in ["server", *clients]}
    with Server(f"{SERVER} --backend {options.backend}", options.server_core) as server:
        for number in range(1, options.rounds + 1):
            for name, command in clients.items():
                of_client, of_server, requests = measure(command, server, options)
                figures[name].append(of_client)
                if name == "tidegate":
                    figures["server"].append(of_server)
                figure = f"{of_client:.2f} us, the server {of_server:.2f} us, {requests} requests"
                print(f"round {number}: {name} {figure}", flush=True)
    print("\nCPU of a request, us\n              median      min      max  tidegate is  bar")
    too_much = []
    for name, each in figures.items():
        ratio = statistics.median(ours / other for ours, other in zip(figures["tidegate"], each))
        bar = BARS.get(name)
        shown = f"{ratio:11.2f}x  {bar}" if bar else ""
        print(f"{name:11} {statistics.median(each):8.2f} {min(each):8.2f} {max(each):8.2f} {shown}")
        if bar and ratio > bar:
            too_much.append(f"{ratio:.2f} of {name}, and {bar} is the bar")
    if too_much and options.check:
        raise Failure("; ".join(too_much))


if __name__ == "__main__":
    servers.run(main)
