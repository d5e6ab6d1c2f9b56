#!/usr/bin/env python3
"""A room over two nodes beside a room of one process with as many members: the last arrival, CPU, memory, and a node's end.

Both are `examples/push`, on one core; Redis and the members are on the other. Each member is a WebSocket, and the kernel
records when a message arrives, so the members' own time does not count. They are divided among processes, since a process has
a bound of descriptors. The set-ups take turns, round by round, and ratios are taken within a round. A missing message fails the
run. With --peers, two nodes of socket.io with its Redis adapter and two of Centrifugo take their turns as well, on the same cores.
The README in this folder describes how to repeat it.
"""

import argparse
import contextlib
import hashlib
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

import redis
import room_peers
import servers
from clients import IP_BIND_ADDRESS_NO_PORT, allow_descriptors
from servers import Failure, Server

PUSH = f"{servers.BUILT}/examples/push"
SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "crates/backplane/src/redis/scripts.rs"
MESSAGE_BYTES = 1024
# A message of a server of more than 125 bytes and less than 64 KiB has a head of four bytes (RFC 6455 §5.2).
FRAME_BYTES = MESSAGE_BYTES + 4
# From Linux's headers: Python does not define it.
SO_TIMESTAMPNS = 35
ARRIVAL_SECONDS = 0.25
# Beyond some thousand members a message takes longer than that.
ARRIVAL_SECONDS_OF_A_MEMBER = 60e-6
MEMBERS_OF_A_PROCESS = 5000
FIRST_ROOMS = 1000
# Handshakes at a time: fewer than the accept queue of a server has places.
ENTERING_MAX = 100
# Between two messages while the broker's work is measured, and more where many members read them.
BROKER_SECONDS, BROKER_SECONDS_OF_A_MEMBER = 0.05, 15e-6
BROKER_IDLE_SECONDS = 4
SILENCE_SECONDS_MAX = 20
ARRIVAL_MAX, CPU_MAX, ROOM_BYTES_MAX, RETURN_SECONDS_MAX = 1.3, 1.05, 400, 3


def cpu_nanoseconds(process):
    """The time of all threads on a CPU, exactly."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def receive(connection, length):
    received = b""
    while len(received) < length:
        more = connection.recv(length - len(received))
        if not more:
            raise Failure("a server closed a connection")
        received += more
    return received


def head_of(connection):
    """The head of a response. A message may follow it at once."""
    while True:
        seen = connection.recv(4096, socket.MSG_PEEK)
        if not seen:
            raise Failure("a server closed a connection")
        end = seen.find(b"\r\n\r\n")
        if end >= 0:
            return receive(connection, end + 4)
        time.sleep(0.001)


def connect(address, source):
    connection = socket.socket()
    connection.settimeout(SILENCE_SECONDS_MAX)
    # The kernel chooses the port at connect: each address has all ports.
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    connection.bind((source, 0))
    connection.connect(address)
    return connection


class PushMembers:
    """How a WebSocket enters a room of `examples/push`."""

    def __init__(self, room):
        self.target = f"/rooms/{room}?token=sub-1"

    def begin(self, connection):
        connection.sendall(room_peers.upgrade(self.target))

    def finish(self, connection):
        head = head_of(connection)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Failure(f"the server answered {head!r}")


def enter(address, dialect, source="127.0.0.1"):
    """A member of a room."""
    connection = connect(address, source)
    dialect.begin(connection)
    dialect.finish(connection)
    return connection


def serve_members(pipe, source):
    """A process of members: it executes what `Members` requests, and replies."""
    members = []

    def enter_all(addresses, dialect):
        for first in range(0, len(addresses), ENTERING_MAX):
            entering = [connect(address, source) for address in addresses[first : first + ENTERING_MAX]]
            for step in (dialect.begin, dialect.finish):
                for member in entering:
                    step(member)
            members.extend(entering)

    def last_arrival(frame_bytes):
        return max((arrival(member, frame_bytes) for member in members), default=0)

    def close():
        while members:
            members.pop().close()

    calls = {"enter": enter_all, "drain": lambda: drain(members), "arrivals": last_arrival, "close": close}
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            name, arguments = pipe.recv()
            try:
                pipe.send((None, calls[name](*arguments)))
            except (Failure, OSError) as error:
                pipe.send((f"{name}: {error}", None))


class Members:
    """Members in several processes, a context manager."""

    def __init__(self, count):
        self.count = count
        self.processes = []
        for number in range(-(-count // MEMBERS_OF_A_PROCESS)):
            ours, theirs = multiprocessing.Pipe()
            arguments = (theirs, f"127.0.0.{number + 2}")
            process = multiprocessing.Process(target=serve_members, args=arguments, daemon=True)
            process.start()
            self.processes.append((process, ours))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, pipe in self.processes:
            process.terminate()
            process.join()
            pipe.close()

    def _call(self, name, arguments):
        """Calls all processes at a time."""
        for (_, pipe), each in zip(self.processes, arguments):
            pipe.send((name, each))
        replies = [pipe.recv() for _, pipe in self.processes]
        for failure, _ in replies:
            if failure:
                raise Failure(failure)
        return [reply for _, reply in replies]

    def enter(self, nodes, dialect):
        """All members enter, at each node in turn."""
        addresses = [nodes[number % len(nodes)].address for number in range(self.count)]
        shares = range(0, self.count, MEMBERS_OF_A_PROCESS)
        self._call("enter", [(addresses[first : first + MEMBERS_OF_A_PROCESS], dialect) for first in shares])

    def drain(self):
        self._call("drain", [()] * len(self.processes))

    def arrivals(self, frame_bytes):
        """When the last member had the message."""
        return max(self._call("arrivals", [(frame_bytes,)] * len(self.processes)))

    def close(self):
        self._call("close", [()] * len(self.processes))


class Publisher:
    """A connection that posts messages to a room of a node."""

    def __init__(self, server):
        self.connection = socket.create_connection(server.address, timeout=SILENCE_SECONDS_MAX)
        head = f"POST /rooms/tides HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pub-1\r\nContent-Length: {MESSAGE_BYTES}"
        self.request = f"{head}\r\nContent-Type: text/plain\r\n\r\n{'x' * MESSAGE_BYTES}".encode()

    def publish(self):
        """Returns the number of members on all nodes."""
        self.connection.sendall(self.request)
        head = head_of(self.connection)
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not head.startswith(b"HTTP/1.1 200 ") or not length:
            raise Failure(f"the server answered {head!r}")
        return int(receive(self.connection, int(length[1])))

    def publish_until(self, members):
        """Publishes until the node knows of all members. Returns the number of messages."""
        end = time.monotonic() + SILENCE_SECONDS_MAX
        count = 1
        while self.publish() != members:
            if time.monotonic() > end:
                raise Failure("a node does not know of all members")
            count += 1
            time.sleep(0.1)
        return count


def arrival(connection, frame_bytes):
    """Takes a message; returns when it arrived, in nanoseconds of the kernel's clock."""
    taken, at = 0, 0
    while taken < frame_bytes:
        data, ancillary, _, _ = connection.recvmsg(frame_bytes - taken, 64)
        if not data:
            raise Failure("a server closed a connection")
        taken += len(data)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("qq", value[:16])
                at = max(at, seconds * 1_000_000_000 + nanoseconds)
    return at


def drain(members):
    """Drops what has come so far."""
    time.sleep(2 * ARRIVAL_SECONDS)
    for member in members:
        member.setblocking(False)
        try:
            while member.recv(1 << 20):
                pass
        except BlockingIOError:
            pass
        member.settimeout(SILENCE_SECONDS_MAX)


def measure(nodes, broker, count, options):
    """The median milliseconds to the last arrival, microseconds of CPU of a delivery, and of the broker for a message."""
    with Members(count) as members:
        members.enter(nodes, PushMembers("tides"))
        publisher = Publisher(nodes[0])
        publisher.publish_until(count)
        members.drain()
        return measure_open(nodes, broker, members, publisher.publish, FRAME_BYTES, options)


def measure_open(nodes, broker, members, publish, frame_bytes, options):
    """As `measure`, once all members have entered and nothing is under way."""
    last = []
    before = sum(cpu_nanoseconds(node.process) for node in nodes)
    for _ in range(options.messages):
        began = time.time_ns()
        publish()
        time.sleep(max(ARRIVAL_SECONDS, members.count * ARRIVAL_SECONDS_OF_A_MEMBER))
        last.append((members.arrivals(frame_bytes) - began) / 1e6)
    used = sum(cpu_nanoseconds(node.process) for node in nodes) - before
    work = broker_work(broker, publish, members, frame_bytes, options) if broker else None
    members.close()
    return statistics.median(last), used / (options.messages * members.count) / 1000, work


def command_counts(broker):
    """The calls of commands so far, those of scripts too, and the microseconds of the command that took most: the script."""
    line = ["redis-cli", "-p", str(broker.port), "INFO", "commandstats"]
    text = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^cmdstat_(?!info)\S+:calls=(\d+),usec=(\d+)", text, re.M)
    return sum(int(calls) for calls, _ in found), max(int(microseconds) for _, microseconds in found)


def broker_work(broker, publish, members, frame_bytes, options):
    """Of the broker for a message: microseconds of CPU, less its idle work, commands, and the microseconds of its script.

    The pause between two messages is the same for any number of members: a process that sleeps longer has colder caches.
    """
    pause = max(BROKER_SECONDS, options.members * 2 * BROKER_SECONDS_OF_A_MEMBER)
    began, before = time.monotonic(), cpu_nanoseconds(broker.process)
    time.sleep(BROKER_IDLE_SECONDS)
    idle = (cpu_nanoseconds(broker.process) - before) / (time.monotonic() - began)
    executed = command_counts(broker)
    began, before = time.monotonic(), cpu_nanoseconds(broker.process)
    for number in range(1, options.broker_messages + 1):
        publish()
        members.arrivals(frame_bytes)
        time.sleep(max(0, began + number * pause - time.monotonic()))
    used = cpu_nanoseconds(broker.process) - before - idle * (time.monotonic() - began)
    calls, microseconds = ((now - then) / options.broker_messages for now, then in zip(command_counts(broker), executed))
    return used / options.broker_messages / 1000, calls, microseconds


def peer(name, options, count):
    """The same of two nodes of a peer."""
    with broker_of(options) as broker, tempfile.TemporaryDirectory() as folder:
        redis.connect(broker).close()
        command = room_peers.COMMANDS[name]
        north, south = (Server(command(folder, broker.port), options.server_core) for _ in range(2))
        with north, south, Members(count) as members:
            for node in (north, south):
                room_peers.await_listener(node)
            dialect = room_peers.DIALECTS[name]()
            members.enter([north, south], dialect)
            publish = room_peers.PUBLISHERS[name](north, "x" * MESSAGE_BYTES).publish
            with contextlib.closing(enter(south.address, dialect)) as sample:
                frame_bytes = room_peers.frame_bytes(sample, publish)
            members.drain()
            return measure_open([north, south], broker, members, publish, frame_bytes, options)


def command(options, broker=None):
    backplane = f" redis://127.0.0.1:{broker.port}" if broker else ""
    return f"env TIDEGATE_BACKEND={options.backend} {PUSH} 127.0.0.1:0{backplane}"


def broker_of(options):
    return Server(redis.redis_server(), options.load_core)


def one(options, count):
    with Server(command(options), options.server_core) as node:
        return measure([node], None, count, options)


def two(options, count):
    with broker_of(options) as broker:
        redis.connect(broker).close()
        node = command(options, broker)
        with Server(node, options.server_core) as north, Server(node, options.server_core) as south:
            return measure([north, south], broker, count, options)


def room_bytes(options, broker):
    """Bytes of a node for a further room with one member."""
    with Server(command(options, broker), options.server_core) as node:
        # Code and buffers that the first rooms need are there.
        first = [enter(node.address, PushMembers(f"first-{number}")) for number in range(FIRST_ROOMS)]
        node.settled_rss()
        before = node.anonymous()
        members = [enter(node.address, PushMembers(f"room-{number}")) for number in range(options.rooms)]
        node.settled_rss()
        grown = node.anonymous() - before
        for member in [*first, *members]:
            member.close()
    return grown / options.rooms


def read_hash():
    """The hash of the script that reads a history."""
    source = re.search(r'READ_SOURCE: &str = r"(.*?)";', SCRIPTS.read_text(), re.S)[1]
    return hashlib.sha1(source.encode()).hexdigest()


def after_a_kill(options, count):
    """Members of a killed node enter at the other one: the seconds until all of them have a message, and history reads."""
    with broker_of(options) as broker, tempfile.TemporaryFile("w+") as commands:
        redis.connect(broker).close()
        node = command(options, broker)
        north, south = (Server(node, options.server_core) for _ in range(2))
        with north, south, Members(count // 2) as stayed, Members(count // 2) as returned:
            dialect = PushMembers("tides")
            stayed.enter([north], dialect)
            returned.enter([south], dialect)
            publisher = Publisher(north)
            publisher.publish_until(count)
            for members in (stayed, returned):
                members.drain()
            monitor = subprocess.Popen(["redis-cli", "-p", str(broker.port), "MONITOR"], stdout=commands)
            try:
                began = time.monotonic()
                south.process.send_signal(signal.SIGKILL)
                returned.close()
                returned.enter([north], dialect)
                # The room's last message is its history, which each of them gets first.
                returned.arrivals(FRAME_BYTES)
                publisher.publish()
                for members in (stayed, returned):
                    members.arrivals(FRAME_BYTES)
                seconds = time.monotonic() - began
                time.sleep(1)
            finally:
                servers.end(monitor)
            commands.seek(0)
            reads = commands.read().lower().count(f'"evalsha" "{read_hash()}"')
    return seconds, reads


def describe(work):
    """The medians of the broker's work."""
    cpu, calls, microseconds = (statistics.median(column) for column in zip(*work))
    return f"{cpu:.0f} us of CPU, {calls:.1f} commands within {microseconds:.0f} us"


def report(rounds, options):
    """Prints the medians. Returns what is above its bar."""
    missed = []
    count = options.members * 2
    for place, title, bar in ((0, "last arrival, ms", ARRIVAL_MAX), (1, "CPU of a delivery, us", CPU_MAX)):
        local, over = ([each[name][place] for each in rounds] for name in ("one", "two"))
        ratio = statistics.median(two / one for one, two in zip(local, over))
        medians = f"one process {statistics.median(local):.3f}, two nodes {statistics.median(over):.3f}"
        print(f"{count:,} members, {title}: {medians}, {ratio:.2f}; the bar is {bar}")
        if ratio > bar:
            missed.append(f"{title}: {ratio:.2f}")
    for title, name in [*((f"{few:,} members", few) for few in options.few), (f"{count:,} members", "two")]:
        print(f"Redis for a message with {title}: {describe([each[name][2] for each in rounds])}")
    for name in options.peers:
        last, delivery = (statistics.median(each[name][place] for each in rounds) for place in range(2))
        work = describe([each[name][2] for each in rounds])
        print(f"{count:,} members, two nodes of {name}: {last:.3f} ms, {delivery:.3f} us; Redis {work}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2000, help="of each node [2000]")
    parser.add_argument("--few", type=int, nargs="+", default=[20], help="members of two nodes, for the broker's work [20]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20, help="of a round, one at a time [20]")
    parser.add_argument("--broker-messages", type=int, default=50, help="one after the other, for the broker's work [50]")
    parser.add_argument("--rooms", type=int, default=5000, help="for the bytes of a room [5000]")
    parser.add_argument("--peers", nargs="*", choices=list(room_peers.COMMANDS), help="two nodes of them as well [none; all]")
    parser.add_argument("--backend", default="epoll", help="of the nodes: epoll, uring or auto [epoll]")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--check", action="store_true", help="fail above the bars")
    options = parser.parse_args()
    options.peers = [] if options.peers is None else options.peers or list(room_peers.COMMANDS)
    if not pathlib.Path(PUSH).exists():
        raise Failure("build it first: cargo build --profile dist --package tidegate-examples --example push")
    for name in options.peers:
        room_peers.install(name)
    # Servers inherit the bound, and accept as many connections as three quarters of it.
    allow_descriptors(max(-(-options.members * 8 // 3), options.rooms + FIRST_ROOMS))
    os.sched_setaffinity(0, {int(options.load_core)})
    count = options.members * 2
    rounds = []
    for number in range(1, options.rounds + 1):
        rounds.append({"one": one(options, count), "two": two(options, count)})
        rounds[-1] |= {few: two(options, few) for few in options.few}
        rounds[-1] |= {name: peer(name, options, count) for name in options.peers}
        print(f"round {number} of {options.rounds}: {rounds[-1]}", flush=True)
    missed = report(rounds, options)
    alone = room_bytes(options, None)
    with broker_of(options) as broker:
        redis.connect(broker).close()
        shared = room_bytes(options, broker)
    print(f"a connection in a room of its own: {alone:.0f} bytes, {shared:.0f} with a backplane; the bar is {ROOM_BYTES_MAX} more")
    if shared - alone > ROOM_BYTES_MAX:
        missed.append(f"a room has {shared - alone:.0f} bytes more")
    seconds, reads = after_a_kill(options, count)
    print(f"{count // 2:,} members of a killed node are back after {seconds:.2f} s, with {reads} history reads")
    if seconds > RETURN_SECONDS_MAX or reads > 1:
        missed.append(f"back after {seconds:.2f} s with {reads} reads")
    if missed and options.check:
        raise Failure("; ".join(missed))


if __name__ == "__main__":
    servers.run(main)
