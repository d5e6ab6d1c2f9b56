#!/usr/bin/env python3
"""CPU of a cached answer: `tidegate dns` beside Unbound, under dnsperf, over UDP and TCP.

Both forward to `examples/zone` and have one thread, pinned to one core; dnsperf has another. Each round runs each server once a
transport, in turns, with all names in the cache; the medians and their ratio are the result.

    python3 benches/dns.py --rounds 5 --queries 200000

With `--lookups`: CPU of a lookup that no cache answers, by our resolver and by hickory-resolver, over UDP, 64 at once. With `--memory`:
resident memory of `tidegate dns` before and after 100,000 names came into its cache. With `--highest`: the highest rate over UDP, and
the queries that are lost at nine tenths of it.
"""

import argparse
import os
import pathlib
import re
import resource
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import servers  # noqa: E402
from servers import Failure  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = 0, 1
START_SECONDS_MAX = 20
RUN_SECONDS_MAX = 300
UNBOUND = """
server:
  interface: 127.0.0.1@{port}
  num-threads: 1
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{directory}"
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  do-not-query-localhost: no
  incoming-num-tcp: 100
  msg-cache-size: 64m
  rrset-cache-size: 64m
forward-zone:
  name: "."
  forward-addr: {host}@{upstream_port}
"""


def cpu_seconds(pid):
    """The CPU of a process with all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def dnsperf(address, names, mode, queries):
    """Completed queries; a lost one is a failure."""
    command = ["taskset", "-c", str(LOAD_CORE), "dnsperf", "-s", address[0], "-p", str(address[1]), "-d", str(names)]
    command += ["-m", mode, "-c", "8", "-q", "100", "-n", str(queries)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX).stdout
    found = re.search(r"Queries completed:\s+(\d+) \((\d+\.\d+)%\)", output)
    rate = re.search(r"Queries per second:\s+(\d+)", output)
    if not found or not rate or float(found.group(2)) < 99.99:
        raise Failure(f"{shlex.join(command)}:\n{output}")
    return int(found.group(1)), int(rate.group(1))


class Unbound:
    """Unbound with a forward zone, a context manager."""

    def __init__(self, upstream, directory):
        self.address = ("127.0.0.1", free_port())
        self.file = pathlib.Path(directory, "unbound.conf")
        places = {"port": self.address[1], "host": upstream[0], "upstream_port": upstream[1], "directory": directory}
        self.file.write_text(UNBOUND.format(**places))

    def __enter__(self):
        command = ["taskset", "-c", str(SERVER_CORE), "unbound", "-c", str(self.file)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(self.address, timeout=1).close()
                return self
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    servers.end(self.process)
                    raise Failure("unbound does not start") from None
                time.sleep(0.05)

    def __exit__(self, *_):
        servers.end(self.process)


def measure(server, names, count, mode, queries):
    """Microseconds of CPU a query, and queries a second."""
    # All names are in the cache then.
    dnsperf(server.address, names, mode, 1)
    before = cpu_seconds(server.process.pid)
    completed, rate = dnsperf(server.address, names, mode, max(1, queries // count))
    return (cpu_seconds(server.process.pid) - before) * 1e6 / completed, rate


PEERS = ROOT / "benches/peers/target/release"
MEMORY_NAMES = 100_000


def lookups(zone_program, directory, rounds, count):
    """Microseconds of CPU a lookup of each resolver, the medians of the rounds."""
    clients = {name: PEERS / f"lookups-{name}" for name in ["tidegate", "hickory"]}
    if not all(path.exists() for path in clients.values()):
        raise Failure("(cd benches/peers && cargo build --release -p dns-lookups)")
    zone, figures = pathlib.Path(directory, "wild"), {name: [] for name in clients}
    zone.write_text("$ORIGIN tides.example.\n$TTL 86400\n@ SOA ns root 1 7200 3600 1209600 300\n* A 192.0.2.1\n")
    with servers.Server(shlex.join([zone_program, "127.0.0.1:0", str(zone)]), core=LOAD_CORE) as upstream:
        for _ in range(rounds):
            for name, path in clients.items():
                command = ["taskset", "-c", str(SERVER_CORE), str(path), "{}:{}".format(*upstream.address), str(count), "64"]
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                found = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX).stdout.strip()
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if found != str(count):
                    raise Failure(f"{name}: {found} of {count} names were found")
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                figures[name].append(cpu * 1e6 / count)
    ours, theirs = (statistics.median(figures[name]) for name in ["tidegate", "hickory"])
    print(f"a lookup: tidegate {ours:.2f} us, hickory-resolver {theirs:.2f} us: {ours / theirs:.2f}")


def memory(words, names_of, directory):
    """Bytes that 100,000 names take in the cache."""
    names = pathlib.Path(directory, "many")
    names.write_text("".join(f"h{number}.wild.tides.example A\n" for number in range(MEMORY_NAMES)))
    with servers.Server(shlex.join(words), core=SERVER_CORE) as running:
        dnsperf(running.address, names_of, "udp", 1)
        before = running.rss()
        # A first query over TCP waits for its lookup, so none is lost.
        dnsperf(running.address, names, "tcp", 1)
        grown = running.rss() - before
    print(f"{MEMORY_NAMES} names: {grown / 1e6:.1f} MB")


def highest(words, names, count, queries):
    """The highest rate over UDP, and the part that is lost at nine tenths of it."""
    with servers.Server(shlex.join(words), core=SERVER_CORE) as running:
        dnsperf(running.address, names, "udp", 1)
        _, rate = dnsperf(running.address, names, "udp", max(1, queries // count))
        command = ["taskset", "-c", str(LOAD_CORE), "dnsperf", "-s", running.address[0], "-p", str(running.address[1])]
        command += ["-d", str(names), "-m", "udp", "-c", "8", "-q", "1000", "-Q", str(rate * 9 // 10), "-l", "10"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX).stdout
        dropped = kernel_drops(running.address[1])
        lost = re.search(r"Queries lost:\s+(\d+)", output)
        sent = re.search(r"Queries sent:\s+(\d+)", output)
        if not lost or not sent:
            raise Failure(f"{shlex.join(command)}:\n{output}")
    print(f"highest rate {rate} a second; at nine tenths of it {lost[1]} of {sent[1]} queries lost, {dropped} in the kernel's buffer")


def kernel_drops(port):
    """Datagrams that did not fit into the receive buffers of the sockets at a port, as the kernel counts them."""
    lines = [line.split() for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(fields[-1]) for fields in lines if int(fields[1].rsplit(":", 1)[1], 16) == port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--names", type=int, default=1_000)
    parser.add_argument("--program", default=str(ROOT / "target/release/tidegate"))
    parser.add_argument("--zone", default=str(ROOT / "target/release/examples/zone"))
    parser.add_argument("--lookups", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--highest", action="store_true")
    options = parser.parse_args()
    missing = [tool for tool in ["unbound", "dnsperf", "taskset"] if not shutil.which(tool)]
    if missing:
        raise Failure(f"not there: {', '.join(missing)}")
    figures = {}
    with tempfile.TemporaryDirectory() as directory:
        zone, names = pathlib.Path(directory, "zone"), pathlib.Path(directory, "names")
        hosts = [f"h{number}" for number in range(options.names)]
        if options.lookups:
            return lookups(options.zone, directory, options.rounds, options.queries // 4)
        records = "* A 192.0.2.1\n" + "".join(f"{host} A 192.0.2.{number % 250}\n" for number, host in enumerate(hosts))
        zone.write_text(f"$ORIGIN tides.example.\n$TTL 86400\n@ SOA ns root 1 7200 3600 1209600 300\n{records}")
        names.write_text("".join(f"{host}.tides.example A\n" for host in hosts))
        with servers.Server(shlex.join([options.zone, "127.0.0.1:0", str(zone)]), core=LOAD_CORE) as upstream:
            place = "{}:{}".format(*upstream.address)
            words = [options.program, "dns", "--listen", "127.0.0.1:0", "--upstream", place, "--loops", "1"]
            if options.memory:
                return memory(words, names, directory)
            if options.highest:
                return highest(words, names, options.names, options.queries)
            for number in range(options.rounds):
                for mode in ["udp", "tcp"]:
                    ours = servers.Server(shlex.join(words), core=SERVER_CORE)
                    for label, server in [("tidegate", ours), ("unbound", Unbound(upstream.address, directory))]:
                        with server as running:
                            cost, rate = measure(running, names, options.names, mode, options.queries)
                        figures.setdefault((mode, label), []).append(cost)
                        print(f"{number + 1} {mode} {label}: {cost:.2f} us a query, {rate} a second", flush=True)
    for mode in ["udp", "tcp"]:
        ours, theirs = (statistics.median(figures[mode, label]) for label in ["tidegate", "unbound"])
        print(f"{mode}: tidegate {ours:.2f} us, unbound {theirs:.2f} us a query: {ours / theirs:.2f}")


if __name__ == "__main__":
    servers.run(main)
