#!/usr/bin/env python3
"""CPU and memory of Redis servers: the example `cache_server` on each backend, and redis-server, one core each.

With `--proxy` it measures `redis_proxy` on each backend and nutcracker, in front of one redis-server on the load's core.

redis-benchmark puts the load of GET on them; this program is the publisher and the subscribers, and holds the idle
connections. Servers take turns, round by round, and ratios are taken within a round. A wrong byte fails the run.
"""

import argparse
import os
import pathlib
import re
import selectors
import shutil
import socket
import tempfile
import time

import compare
import servers
from clients import allow_descriptors
from servers import Failure, Server

CACHE_SERVER = f"{servers.BUILT}/examples/cache_server"
PROXY = f"{servers.BUILT}/examples/redis_proxy"
KEY, VALUE = b"key:__rand_int__", b"0123456789abcdef"
CONNECTIONS = 50
# Each load of GET: commands at a time on each connection, and commands of a round.
GETS = {"GET, 16 at a time": (16, 1_600_000), "GET": (1, 150_000)}
MESSAGE_BYTES = 64
SILENCE_SECONDS_MAX = 20
PATIENCE_SECONDS = 120


def redis_server():
    """The command of redis-server, which does not print its address by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = f"--port {port} --bind 127.0.0.1 --save '' --appendonly no --maxclients 60000"
    return f'sh -c "echo 127.0.0.1:{port} && exec redis-server {options}"'


COMMANDS = {
    "io_uring": lambda: f"env TIDEGATE_BACKEND=uring {CACHE_SERVER} 127.0.0.1:0",
    "epoll": lambda: f"env TIDEGATE_BACKEND=epoll {CACHE_SERVER} 127.0.0.1:0",
    "redis-server": redis_server,
}


def nutcracker(folder, upstream):
    """The command of nutcracker, which does not print its address by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        port, stats = listener.getsockname()[1], other.getsockname()[1]
    file = pathlib.Path(folder) / f"{port}.yml"
    file.write_text(
        f"pool:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n"
        f"  servers:\n   - 127.0.0.1:{upstream}:1\n"
    )
    return f'sh -c "echo 127.0.0.1:{port} && exec nutcracker -s {stats} -c {file}"'


def proxies(folder, upstream):
    """The commands of proxies in front of a port."""
    commands = {
        name: lambda name=name: f"env TIDEGATE_BACKEND={name} {PROXY} 127.0.0.1:0 127.0.0.1:{upstream}"
        for name in ("uring", "epoll")
    }
    if shutil.which("nutcracker"):
        commands["nutcracker"] = lambda: nutcracker(folder, upstream)
    else:
        print("skipped: there is no nutcracker")
    return commands


def connect(server):
    """A connection. redis-server prints its address before it listens."""
    end = time.monotonic() + servers.START_SECONDS_MAX
    while True:
        try:
            return socket.create_connection(server.address, timeout=SILENCE_SECONDS_MAX)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def ask(connection, command, reply):
    """Sends a command and checks the reply."""
    connection.sendall(command)
    received = b""
    while len(received) < len(reply):
        more = connection.recv(len(reply) - len(received))
        if not more:
            raise Failure(f"the server closed the connection after {received!r}")
        received += more
    if received != reply:
        raise Failure(f"to {command!r} the server replied {received!r}")


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def get(server, options, depth, count):
    """Microseconds of CPU of the server for a GET."""
    with connect(server) as connection:
        ask(connection, command(b"SET", KEY, VALUE), b"+OK\r\n")
        ask(connection, command(b"GET", KEY), b"$%d\r\n%s\r\n" % (len(VALUE), VALUE))
    count = int(count * options.scale)
    load = ["taskset", "-c", options.load_core, "redis-benchmark", "-p", str(server.port), "-t", "get", "-q"]
    load += ["-c", str(CONNECTIONS), "-P", str(depth), "-n", str(count)]
    before = server.cpu_seconds()
    code, output = servers.complete(load, PATIENCE_SECONDS)
    used = server.cpu_seconds() - before
    if code or not re.search(r"GET: [0-9.]+ requests per second", output):
        raise Failure(f"{server.command}: redis-benchmark failed\n{output}")
    return used / count * 1e6


def fan_out(server, options):
    """Microseconds of CPU of the server for a message that a subscriber receives, one PUBLISH at a time."""
    body = b"x" * MESSAGE_BYTES
    push = command(b"message", b"tide", body)
    subscribed = b"*3\r\n$9\r\nsubscribe\r\n$4\r\ntide\r\n:1\r\n"
    with selectors.DefaultSelector() as selector:
        publisher = connect(server)
        subscribers = [connect(server) for _ in range(options.subscribers)]
        for subscriber in subscribers:
            ask(subscriber, command(b"SUBSCRIBE", b"tide"), subscribed)
            subscriber.setblocking(False)
            selector.register(subscriber, selectors.EVENT_READ)
        count = int(options.messages * options.scale)
        before = server.cpu_seconds()
        for _ in range(count):
            ask(publisher, command(b"PUBLISH", b"tide", body), b":%d\r\n" % len(subscribers))
            missing = len(push) * len(subscribers)
            while missing:
                ready = selector.select(SILENCE_SECONDS_MAX)
                if not ready:
                    raise Failure(f"{server.command}: {missing} bytes are missing")
                for key, _ in ready:
                    received = key.fileobj.recv(len(push))
                    if not received:
                        raise Failure(f"{server.command}: it closed a subscriber's connection")
                    missing -= len(received)
        used = server.cpu_seconds() - before
        for connection in [publisher, *subscribers]:
            connection.close()
    return used / (count * options.subscribers) * 1e6


def idle(server, options):
    """Bytes of the server for a connection that has sent one PING."""
    with connect(server) as connection:
        ask(connection, b"PING\r\n", b"+PONG\r\n")
    before = server.settled_rss()
    connections = []
    for _ in range(options.idle):
        connections.append(connect(server))
        ask(connections[-1], b"PING\r\n", b"+PONG\r\n")
    grown = server.settled_rss() - before
    for connection in connections:
        connection.close()
    return grown / options.idle


def measures(options):
    """Each measurement, by its title."""
    gets = {
        f"{title}: microseconds of CPU": lambda server, each=each: get(server, options, *each)
        for title, each in GETS.items()
    }
    fan = f"{MESSAGE_BYTES} bytes to {options.subscribers:,} subscribers: microseconds of CPU for each"
    rest = {
        fan: lambda server: fan_out(server, options),
        f"bytes of each of {options.idle:,} idle connections": lambda server: idle(server, options),
    }
    return {title: run for title, run in (gets | rest).items() if options.only is None or options.only in title}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the number of commands and messages [1]")
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=300, help="to each subscriber [300]")
    parser.add_argument("--idle", type=int, default=5000, help="idle connections [5000]")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--proxy", action="store_true", help="GET through proxies")
    parser.add_argument("--only", metavar="NAME", help="the measurements with this in their name, as `GET`")
    options = parser.parse_args()
    if options.proxy:
        options.only = options.only or "GET"
    if not measures(options):
        parser.error(f"no measurement has {options.only!r} in its name")
    if not pathlib.Path(CACHE_SERVER).exists():
        raise Failure("build it first: cargo build --profile dist --package tidegate-examples --example cache_server")
    for program in ("redis-server", "redis-benchmark"):
        if not shutil.which(program):
            raise Failure(f"{program} is not installed")
    allow_descriptors(max(options.idle, options.subscribers))
    os.sched_setaffinity(0, {int(options.load_core)})
    if not options.proxy:
        return measure_all({name: COMMANDS[name] for name in options.servers}, options)
    if not pathlib.Path(PROXY).exists():
        raise Failure("build it first: cargo build --profile dist --package tidegate-examples --example redis_proxy")
    with tempfile.TemporaryDirectory() as folder, Server(redis_server(), core=options.load_core) as upstream:
        connect(upstream).close()
        return measure_all(proxies(folder, upstream.port), options)


def measure_all(commands, options):
    """Each measurement of each server, round by round, and the tables."""
    costs = {title: {name: [] for name in commands} for title in measures(options)}
    for number in range(1, options.rounds + 1):
        for name in commands:
            for title, run in measures(options).items():
                # Each in a new process: memory that one load has left would be idle memory of the next.
                with Server(commands[name](), core=options.server_core) as server:
                    connect(server).close()
                    costs[title][name].append(run(server))
            latest = ", ".join(f"{rows[name][-1]:.3f} {title}" for title, rows in costs.items())
            print(f"round {number}: {name} {latest}", flush=True)
    for title, rows in costs.items():
        reference = "redis-server" if "redis-server" in rows else list(commands)[-1]
        base = rows[reference]
        compare.table(title, rows, [(f"it / {reference}", lambda own, base=base: compare.ratio(own, base))])


if __name__ == "__main__":
    servers.run(main)
