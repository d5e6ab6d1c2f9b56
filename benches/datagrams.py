#!/usr/bin/env python3
"""CPU time of a datagram: an echo of 64 bytes, 1,200 bytes one way, and one that is forwarded between loops, one core each; the
bytes of an idle endpoint; and restarts under load.

The echoes are `examples/udp_echo.rs` on each backend, a bare loop of recvmmsg and sendmmsg, and one on tokio. One way, both
ends are endpoints of Tidegate or bare loops of quinn-udp, with GSO and GRO (`runs`) or without (`split`), and the figure is
the CPU of both. Programs take turns, round by round, and ratios are taken within a round. The README in this folder
describes how to repeat it.
"""

import argparse
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile

import servers
from client import end_of
from servers import Failure, Server

PEERS = pathlib.Path(__file__).resolve().parent / "peers" / "target" / "release"
ECHOES = {
    "epoll": f"env TIDEGATE_BACKEND=epoll {PEERS}/udp-echo-tidegate 127.0.0.1:0",
    "io_uring": f"env TIDEGATE_BACKEND=uring {PEERS}/udp-echo-tidegate 127.0.0.1:0",
    "bare": f"{PEERS}/udp-echo-bare",
    "tokio": f"{PEERS}/udp-echo-tokio",
}
WAYS = {
    f"{name} {mode}": tuple(f"{environment}{PEERS}/udp-way-{program} {role} {mode}" for role in ("receive", "send"))
    for name, program, environment in [
        ("epoll", "tidegate", "env TIDEGATE_BACKEND=epoll "),
        ("io_uring", "tidegate", "env TIDEGATE_BACKEND=uring "),
        ("quinn-udp", "quinn", ""),
    ]
    for mode in ("runs", "split")
}
# A figure may be at most so much of another one.
BARS = {("epoll", "bare"): 1.3, ("io_uring", "bare"): 1.3, ("epoll", "tokio"): 0.6, ("io_uring", "tokio"): 0.6}
WAY_BARS = {
    (f"{name} runs", other): bar
    for name in ("epoll", "io_uring")
    for other, bar in ((f"{name} split", 0.25), ("quinn-udp runs", 1.1))
}
# A forwarded datagram costs at most so many direct ones.
FORWARDED_BAR = 3
RESTARTS, A_SECOND = 100, 50_000
IDLE_ENDPOINTS = (1_000, 9_000)
IDLE_BYTES_MAX = 512
LOST_MAX = 0.01
END_SECONDS_MAX = 20


def load(command, core, seconds):
    """CPU seconds of a load's process, and the numbers that it prints."""
    with tempfile.TemporaryFile("w+") as output:
        words = ["taskset", "-c", core, *shlex.split(command)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        usage, code = end_of(process, seconds + END_SECONDS_MAX)
        output.seek(0)
        said = output.read()
    numbers = {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", said, re.MULTILINE)}
    if code != 0 or not numbers.get("datagrams"):
        raise Failure(f"{command}: code {code}, {said.strip()}")
    return usage.ru_utime + usage.ru_stime, numbers


def echo(command, depth, options):
    """Microseconds of the server's CPU for an echo."""
    with Server(command, options.server_core) as server:
        client = f"{PEERS}/udp-load 127.0.0.1:{server.port} {options.flows} {depth}"
        load(f"{client} 0.2", options.load_core, options.seconds)
        before = server.cpu_seconds()
        _, numbers = load(f"{client} {options.seconds}", options.load_core, options.seconds)
        used = server.cpu_seconds() - before
    if numbers["lost"] > LOST_MAX * numbers["datagrams"]:
        raise Failure(f"{command}: {numbers}")
    return used / numbers["datagrams"] * 1e6


def one_way(receiver, sender, options):
    """Microseconds of CPU of both ends for a datagram."""
    with Server(receiver, options.server_core) as server:
        load(f"{sender} 127.0.0.1:{server.port} 0.2", options.load_core, options.seconds)
        before = server.cpu_seconds()
        sending, numbers = load(f"{sender} 127.0.0.1:{server.port} {options.seconds}", options.load_core, options.seconds)
        used = server.cpu_seconds() - before + sending
    return used / numbers["datagrams"] * 1e6


def forwarded(backend, options):
    """How much more a forwarded datagram costs than a direct one, in each round. By hash, half of them are forwarded."""
    ratios = []
    for _ in range(options.rounds):
        direct, half = (
            echo(f"env TIDEGATE_BACKEND={backend} {PEERS}/udp-steered-tidegate {mode}", 4, options)
            for mode in ("steered", "hashed")
        )
        ratios.append((2 * half - direct) / direct)
    return ratios


def restarts(backend):
    """Datagrams sent, lost, and sent a second, while one server after the other takes over."""
    command = ["env", f"TIDEGATE_BACKEND={backend}", f"{PEERS}/udp-restarts-tidegate", str(RESTARTS), str(A_SECOND)]
    code, output = servers.complete(command, 300)
    numbers = {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", output, re.MULTILINE)}
    if code != 0 or not numbers.get("datagrams"):
        raise Failure(f"restarts: code {code}, {output.strip()}")
    return numbers


def idle(backend, options):
    """Bytes of an idle endpoint, beside the kernel's memory for its socket."""
    sizes = []
    for count in IDLE_ENDPOINTS:
        command = f"env TIDEGATE_BACKEND={backend} {PEERS}/udp-idle-tidegate {count}"
        with Server(f"sh -c 'ulimit -n 65536; exec {command}'", options.server_core) as server:
            sizes.append(server.settled_rss())
    few, many = IDLE_ENDPOINTS
    return (sizes[1] - sizes[0]) / (many - few)


def table(title, figures, bars, missed):
    """Prints medians, and the ratios that have a bar."""
    print(f"\n{title}\n                   median      min      max")
    for name, each in figures.items():
        print(f"{name:16} {statistics.median(each):8.3f} {min(each):8.3f} {max(each):8.3f}")
    for (ours, other), bar in bars.items():
        if ours in figures and other in figures:
            ratio = statistics.median(one / two for one, two in zip(figures[ours], figures[other]))
            print(f"{ours} is {ratio:.2f} of {other}; the bar is {bar}")
            if ratio > bar:
                missed.append(f"{title}: {ours} is {ratio:.2f} of {other}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--flows", type=int, default=64)
    parser.add_argument("--depths", type=int, nargs="*", default=[1, 4], help="datagrams at a time on each flow [1 4]")
    parser.add_argument("--no-ways", action="store_true", help="only echoes and idle endpoints")
    parser.add_argument("--no-idle", action="store_true", help="no idle endpoints")
    parser.add_argument("--no-forwarded", action="store_true", help="no datagrams that are forwarded")
    parser.add_argument("--no-restarts", action="store_true", help="no restarts")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    if not (PEERS / "udp-load").exists():
        raise Failure("build it first: cargo build --release --manifest-path benches/peers/Cargo.toml -p datagrams")
    echoes = {depth: {name: [] for name in ECHOES} for depth in options.depths}
    ways = {} if options.no_ways else {name: [] for name in WAYS}
    for number in range(1, options.rounds + 1):
        for depth, figures in echoes.items():
            for name, command in ECHOES.items():
                figures[name].append(echo(command, depth, options))
        for name, figures in ways.items():
            figures.append(one_way(*WAYS[name], options))
        print(f"round {number} of {options.rounds}", flush=True)
    missed = []
    for depth, figures in echoes.items():
        table(f"{options.flows} flows, {depth} at a time: CPU of an echo of 64 bytes, us", figures, BARS, missed)
    if ways:
        table("1,200 bytes one way: CPU of both ends, us", ways, WAY_BARS, missed)
    for backend in [] if options.no_idle else ["epoll", "uring"]:
        size = idle(backend, options)
        print(f"{backend}: an idle endpoint has {size:.0f} bytes; the bar is {IDLE_BYTES_MAX}")
        if size > IDLE_BYTES_MAX:
            missed.append(f"an idle endpoint has {size:.0f} bytes on {backend}")
    for backend in [] if options.no_forwarded else ["epoll", "uring"]:
        ratios = forwarded(backend, options)
        ratio = statistics.median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{backend}: a forwarded datagram is {ratio:.2f} of a direct one ({spread}); the bar is {FORWARDED_BAR}")
        if ratio > FORWARDED_BAR:
            missed.append(f"a forwarded datagram is {ratio:.2f} of a direct one on {backend}")
    for backend in [] if options.no_restarts else ["epoll", "uring"]:
        numbers = restarts(backend)
        counts = f"{numbers['datagrams']} datagrams, {numbers['a_second']} a second, {numbers['lost']} lost"
        print(f"{backend}: {RESTARTS} restarts, {counts}")
        if numbers["lost"]:
            missed.append(f"{numbers['lost']} datagrams lost by restarts on {backend}")
    if missed and options.check:
        raise Failure("; ".join(missed))


if __name__ == "__main__":
    servers.run(main)
