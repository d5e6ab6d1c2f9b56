#!/usr/bin/env python3
"""CPU seconds per million requests: Tidegate, other servers and the floor, under wrk, one core each.

Servers take turns, round by round, and ratios are taken within a round: a temporary slowdown of the machine affects all
of them. The README in this folder describes how to repeat it.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess

import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
TIDEGATE = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet"
PEERS = ["floor", "minihttp", "hyper1"]
DEPTHS = [256, 16, 1]
CONNECTIONS = 256
WARM_UP_SECONDS = 1
ANSWER_SECONDS_MAX = 10
# Variants of the usual request: they parse alike, so they should cost alike.
VARIANTS = {
    "plain": ["/plaintext"],
    "headers reversed": ["/plaintext", "reversed"],
    "/plaintext?x": ["/plaintext?x"],
}


def load(server, core, depth, seconds, request, connections=CONNECTIONS):
    """Runs wrk once and returns the number of answered requests. `request` has the arguments of load.lua behind the
    depth. Any bad response is a failure."""
    command = ["taskset", "-c", str(core), "wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{seconds}s", "--timeout", f"{ANSWER_SECONDS_MAX}s", "--script", f"{HERE}/load.lua"]
    command += [f"http://127.0.0.1:{server.port}/", "--", str(depth), *request]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    wrk = subprocess.Popen(command, text=True, **pipes)
    try:
        output, _ = wrk.communicate(timeout=seconds + 30)
    finally:
        servers.end(wrk)
    results = [line.partition(" ")[2] for line in output.splitlines() if line.startswith("load-result ")]
    if wrk.returncode != 0 or len(results) != 1:
        raise Failure(f"{server.command}: wrk failed\n{output}")
    result = json.loads(results[0])
    requests = result.pop("requests")
    if any(result.values()) or not requests:
        raise Failure(f"{server.command}: at depth {depth} ({request}), {requests} requests, errors {result}")
    return requests


def measure(server, options, depth, request):
    """CPU seconds of the server per million answered requests."""
    before = server.cpu_seconds()
    requests = load(server, options.load_core, depth, options.seconds, request, options.connections)
    if options.memory:
        print(f"  {server.peak_rss() / 2**20:.1f} MiB resident at most, {requests / options.seconds:.0f} requests a second")
    return (server.cpu_seconds() - before) / requests * 1e6


def start(command, options):
    return Server(command, core=options.server_core)


def warm_up(server, options, request):
    load(server, options.load_core, max(options.depths), WARM_UP_SECONDS, request, options.connections)


def ratio(costs, base):
    """The median over rounds of a ratio taken within each round, and from six rounds on the interval in which the true
    median lies with at least 95 %, whatever the distribution: between two of the ratios, by their order."""
    ratios = sorted(cost / reference for cost, reference in zip(costs, base))
    count, left_out, tail = len(ratios), -1, 0.0
    while tail + math.comb(count, left_out + 1) / 2**count <= 0.025:
        left_out += 1
        tail += math.comb(count, left_out) / 2**count
    interval = "" if left_out < 0 else f" {ratios[left_out]:.2f}..{ratios[-1 - left_out]:.2f}"
    return f"{statistics.median(ratios):.2f}{interval}"


def table(title, rows, references):
    """Prints the cost of each row, and its ratio to each reference (a heading and a function of the costs)."""
    print(f"\n{title}")
    width = max(len(name) for name in rows) + 2
    print(f"{'':{width}}{'median':>9}{'min':>9}{'max':>9}" + "".join(f"{heading:>18}" for heading, _ in references))
    for name, costs in rows.items():
        figures = "".join(f"{figure:9.4f}" for figure in (statistics.median(costs), min(costs), max(costs)))
        print(f"{name:{width}}{figures}" + "".join(f"{of(costs):>18}" for _, of in references))


def compare(commands, options):
    costs = {depth: {name: [] for name in commands} for depth in options.depths}
    for round_number in range(options.rounds):
        for name, command in commands.items():
            request = [options.targets.get(name, options.path), *options.body]
            with start(command, options) as server:
                warm_up(server, options, request)
                for depth in options.depths:
                    costs[depth][name].append(measure(server, options, depth, request))
            latest = ", ".join(f"{costs[depth][name][-1]:.4f} at depth {depth}" for depth in options.depths)
            print(f"round {round_number + 1}: {name} {latest}", flush=True)
    for depth, rows in costs.items():
        references = []
        if "floor" in rows:
            references.append(("/ floor", lambda own: ratio(own, rows["floor"])))
        if "tidegate" in rows:
            references.append(("tidegate / it", lambda own: ratio(rows["tidegate"], own)))
        if not references:
            first, base = next(iter(rows.items()))
            references.append((f"/ {first}", lambda own: ratio(own, base)))
        table(f"depth {depth}, CPU seconds per million requests", rows, references)


def compare_variants(name, command, options):
    costs = {depth: {variant: [] for variant in VARIANTS} for depth in options.depths}
    for round_number in range(options.rounds):
        with start(command, options) as server:
            warm_up(server, options, VARIANTS["plain"])
            for depth, rows in costs.items():
                # Each round starts with another server, so that none always follows a change of depth.
                order = list(VARIANTS)
                for place in range(len(order)):
                    variant = order[(place + round_number) % len(order)]
                    rows[variant].append(measure(server, options, depth, VARIANTS[variant]))
        print(f"round {round_number + 1} of {options.rounds} done", flush=True)
    for depth, rows in costs.items():
        table(
            f"{name}, depth {depth}, CPU seconds per million requests",
            rows,
            [("/ plain", lambda own: ratio(own, rows["plain"]))],
        )


def commands_from(options):
    """The servers to measure, as {name: command}."""
    known = {"tidegate": TIDEGATE} | {peer: f"{options.peers_dir}/{peer} 127.0.0.1:0" for peer in PEERS}

    def is_built(name):
        return pathlib.Path(known[name].split()[0]).exists()

    if not options.server:
        for name in known:
            if not is_built(name):
                print(f"skipping {name}: {known[name].split()[0]} is not built")
        return {name: command for name, command in known.items() if is_built(name)}
    chosen = {}
    for entry in options.server:
        name, given, command = entry.partition("=")
        if not given and name not in known:
            raise Failure(f"{name} is not one of {', '.join(known)}: give it as NAME=COMMAND")
        if not given and not is_built(name):
            raise Failure(f"{name} is not built: {known[name].split()[0]}")
        chosen[name] = command if given else known[name]
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", metavar="NAME[=COMMAND]", help="measure this one; repeatable")
    parser.add_argument("--target", action="append", default=[], metavar="NAME=PATH", help="of one server")
    parser.add_argument("--path", default="/plaintext", help="of the other servers [/plaintext]")
    parser.add_argument("--body", nargs=1, default=[], metavar="BYTES", help="POST so many bytes instead of a GET")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--memory", action="store_true", help="print the most memory that a server had as well")
    parser.add_argument("--variants", action="store_true", help="measure one server under equivalent loads instead")
    parser.add_argument("--peers-dir", default=f"{HERE}/peers/target/release", help="where the peers' binaries are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of load for each figure")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="requests in flight on each connection")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    commands = commands_from(options)
    options.targets = dict(target.split("=", 1) for target in options.target)
    if not commands:
        raise Failure("there is nothing to measure")
    if options.variants:
        if len(commands) != 1:
            raise Failure("--variants measures one server: name it with --server")
        compare_variants(*commands.popitem(), options)
    else:
        compare(commands, options)


if __name__ == "__main__":
    servers.run(main)
