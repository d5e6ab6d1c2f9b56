#!/usr/bin/env python3
"""Rooms of three nodes whose broker fails: a real redis-server or nats-server that is stopped, killed, emptied or replaced, and
a node that is stopped, each while members speak.

Three nodes share ordered rooms, and two more share ephemeral rooms at the same broker. A checker compares the logs of all
members: one order, no message twice, and a hole only where the member has read `gap`. Later the lists of those present are right
on every node, and `/ready` is. The README beside this file describes how to repeat it.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import program
import servers
from dashboard import admin_address
from program import Failure

PATIENCE_SECONDS = 150
# Between two messages of a member.
PAUSE_SECONDS = 0.1
# The most that a room of /chat keeps: those of the short failures fit into it.
HISTORY = 1000
MEMBERS = 2
ORDERED, EPHEMERAL = "tides", "foam"
NUMBERS = ("gaps", "lost", "recovered", "unconfirmed", "refused", "downs", "undelivered", "duplicates", "impossible")


class Member:
    """A member of a room. A thread reads what it receives, into a log of messages and of gaps."""

    def __init__(self, node, room, name):
        self.node, self.room, self.name = node, room, name
        self.socket = socket.create_connection(node.address, 30)
        self.socket.settimeout(None)
        self.socket.sendall(
            f"GET /chat/ws?room={room}&name={name} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        status = self.file.readline()
        if b" 101 " not in status:
            raise Failure(f"the server answered {status!r}")
        while self.file.readline() != b"\r\n":
            pass
        self.log, self.present, self.seen = [], None, set()
        self.said = 0
        self.lock = threading.Lock()
        self.has_ended = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        with contextlib.suppress(OSError, ValueError):
            while head := self.file.read(2):
                length = head[1] & 0x7F
                if length >= 126:
                    length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
                payload = self.file.read(length)
                if head[0] & 0xF == 9:
                    self.send(0x8A, payload)
                elif head[0] & 0xF == 1:
                    self.take(json.loads(payload))
        self.has_ended = True

    def take(self, event):
        if event["type"] == "message":
            self.log.append(event["text"])
            self.seen.add(event["text"])
        elif event["type"] in ("gap", "offline", "online"):
            self.log.append((event["type"],))
        elif event["type"] == "present":
            self.present = event

    def send(self, first, payload):
        # A mask of zeros leaves the bytes as they are.
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        with self.lock:
            self.socket.sendall(bytes([first]) + length + bytes(4) + payload)

    def say(self, text):
        self.send(0x81, text.encode())

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.file.close()
        self.socket.close()


class Speakers:
    """All members speak, a context manager: each its name and a number. A node that is stopped holds up only its members."""

    def __init__(self, members):
        self.members = members
        self.stop = threading.Event()

    def speak(self, member):
        while not self.stop.wait(PAUSE_SECONDS):
            _, writable, _ = select.select([], [member.socket], [], 0)
            if writable:
                member.say(f"{member.name} {member.said}")
                member.said += 1

    def __enter__(self):
        self.threads = [threading.Thread(target=self.speak, args=[member]) for member in self.members]
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()


class Redis:
    """redis-server on a port of the loopback address, a context manager."""

    schema = "redis"
    has_streams = True

    def __init__(self, port=None, *options):
        self.port = port or program.free_ports(1)[0]
        self.options = options

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.start()
        return self

    def start(self):
        words = f"--port {self.port} --bind 127.0.0.1 --appendonly no --loglevel warning --dir {self.folder.name}".split()
        self.run(["redis-server", *words, "--save", "", *self.options])
        self.until(lambda: self.command("PING") == "PONG", "redis-server answers")

    def run(self, command):
        self.process = subprocess.Popen(
            servers.ending_with_us(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @staticmethod
    def until(call, what):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if call():
                    return
            time.sleep(0.02)
        raise Failure(f"not in {PATIENCE_SECONDS} s: {what}")

    def command(self, line):
        """A command's reply of one line, or the bulk string."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(line.encode() + b"\r\n")
            with connection.makefile("rb") as file:
                first = file.readline().decode().strip()
                if first[:1] == "$" and first != "$-1":
                    return file.read(int(first[1:])).decode()
                return first[1:] if first[:1] in "+:" else first

    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def empty(self):
        pass

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        servers.end(self.process)
        self.folder.cleanup()


class Nats(Redis):
    """nats-server, with JetStream or without."""

    schema = "nats"

    def __init__(self, port=None, has_streams=True, options=()):
        super().__init__(port, *options)
        self.has_streams = has_streams

    def start(self):
        streams = ["-js", "-sd", f"{self.folder.name}/streams"] if self.has_streams else []
        self.run(["nats-server", "-a", "127.0.0.1", "-p", str(self.port), *streams, *self.options])
        self.until(self.answers, "nats-server answers")

    def answers(self):
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection, connection.makefile("rb") as file:
            return file.readline().startswith(b"INFO")

    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def empty(self):
        shutil.rmtree(f"{self.folder.name}/streams", ignore_errors=True)


class Fleet:
    """The nodes and their members, a context manager."""

    def __init__(self, broker, backend="epoll"):
        self.broker, self.backend, self.settled = broker, backend, 0
        self.nodes, self.members = [], collections.defaultdict(list)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            for number in range(3):
                self.add(ORDERED if self.broker.has_streams else EPHEMERAL, number)
            for number in range(3, 5):
                self.add(EPHEMERAL, number)
            self.settle()
        except BaseException:
            self.stack.close()
            raise
        return self

    def add(self, room, number):
        history = HISTORY if room == ORDERED else 0
        flags = ["--admin", "127.0.0.1:0", "--chat-rate", "100000", "--chat-history", str(history)]
        server = program.serve(
            self.backend, *flags, "--backplane", self.broker.url(),
            program=os.environ.get("TIDEGATE_PROGRAM", program.PROGRAM),
        )
        node = self.stack.enter_context(server)
        node.admin, node.room = admin_address(node), room
        self.broker.until(lambda: ready(node) == 200, "the node is ready")
        self.nodes.append(node)
        for place in range(MEMBERS):
            member = Member(node, room, f"{room}{number}{'ab'[place]}")
            self.stack.callback(member.close)
            self.members[room].append(member)

    def all_members(self):
        return [member for members in self.members.values() for member in members]

    def settle(self):
        """Has one member of each node say something until all members have it: a message whose request broke is not sent
        again. Returns the seconds that took."""
        begun = time.monotonic()
        self.settled += 1
        for room, members in self.members.items():
            for member in members[::MEMBERS]:
                for attempt in range(PATIENCE_SECONDS):
                    text = f"settled {self.settled} {member.name} {attempt}"
                    member.say(text)
                    end = time.monotonic() + 1
                    while time.monotonic() < end and not all(text in each.seen for each in members):
                        time.sleep(0.01)
                    if all(text in each.seen for each in members):
                        break
                else:
                    missing = [each.name for each in members if text not in each.seen]
                    raise Failure(f"{room}: what {member.name} says does not reach {missing}: {self.numbers()}")
        return time.monotonic() - begun

    def numbers(self):
        """The sums of the nodes' numbers."""
        sums = collections.Counter()
        for node in self.nodes:
            for name, value in metrics(node).items():
                sums[name] += value
        return {name: sums[name] for name in NUMBERS if sums[name]}

    def present(self):
        """Every node lists all members of its room, and a newcomer, within the patience. NATS without JetStream has no lists."""
        begun = time.monotonic()
        if not self.broker.has_streams:
            return 0
        for number, node in enumerate(self.nodes):
            names = {member.name for member in self.members[node.room]}
            end = time.monotonic() + PATIENCE_SECONDS
            while True:
                newcomer = Member(node, node.room, f"new{number}")
                try:
                    self.broker.until(lambda: newcomer.present, "a newcomer's list")
                    listed = set(newcomer.present["names"])
                    count = newcomer.present["count"]
                finally:
                    newcomer.close()
                # Earlier newcomers may be listed for a while.
                if names <= listed and not any(name not in names and not name.startswith("new") for name in listed):
                    if count == len(names) + 1:
                        break
                if time.monotonic() > end:
                    raise Failure(f"node {number} lists {count}, {sorted(listed)}, in place of {sorted(names)}")
                time.sleep(0.2)
        return time.monotonic() - begun

    def __exit__(self, *_):
        self.stack.close()


def ready(node):
    try:
        with urllib.request.urlopen(node_url(node, "/ready"), timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def node_url(node, path):
    address = node.admin if node.admin.startswith("http") else f"http://{node.admin}"
    return address + path


def metrics(node):
    with urllib.request.urlopen(node_url(node, "/metrics"), timeout=10) as response:
        text = response.read().decode()
    return {name: int(value) for name, value in re.findall(r"^tidegate_backplane_(\w+?)(?:_total)? (\d+)$", text, re.M)}


def check(fleet, room, may_be_late):
    """One order of all members, no message twice, holes only at gaps. Returns the messages of all members, and the sent
    ones that no member has read.

    Without a history NATS gives each sender's messages their order, and those of two senders none. There, and if messages may be
    late, only the order of each sender counts, or none."""
    members = fleet.members[room]
    everything = set().union(*(member.seen for member in members))
    for member in members:
        if member.has_ended:
            raise Failure(f"{room}: the connection of {member.name} ended")
        texts = [text for text in member.log if isinstance(text, str)]
        twice = [text for text, count in collections.Counter(texts).items() if count > 1]
        if twice:
            raise Failure(f"{room}: {member.name} reads twice: {twice[:10]}")
        for other in members:
            check_sender(room, member, other, everything, may_be_late)
    if not may_be_late and (room == ORDERED or fleet.broker.schema == "redis"):
        check_neighbours(room, members)
        check_common_order(room, members)
    said = (f"{member.name} {number}" for member in members for number in range(member.said))
    return len(everything), [text for text in said if text not in everything]


def check_sender(room, member, other, everything, may_be_late):
    """The messages of a sender are in its order, and one is missing only at a gap, or if no member has it."""
    last = None
    for entry in list(member.log):
        if entry == ("gap",):
            last = None
        if not isinstance(entry, str) or not entry.startswith(f"{other.name} "):
            continue
        number = int(entry.split()[1])
        if last is not None and not may_be_late:
            if number < last:
                raise Failure(f"{room}: {member.name} reads {entry!r} after {last}")
            missing = [one for one in range(last + 1, number) if f"{other.name} {one}" in everything]
            if missing:
                raise Failure(f"{room}: {member.name} misses {missing} of {other.name}")
        last = number


def check_neighbours(room, members):
    """Two messages that follow each other in a log, without a gap between them, do so in all logs."""
    after, before = {}, {}
    for member in members:
        last = None
        for entry in list(member.log):
            if isinstance(entry, tuple):
                last = None if entry == ("gap",) else last
                continue
            if last is not None:
                for links, one, other in ((after, last, entry), (before, entry, last)):
                    known = links.setdefault(one, (other, member.name))
                    if known[0] != other:
                        raise Failure(
                            f"{room}: {member.name} reads {entry!r} right after {last!r}, "
                            f"and {known[1]} has {known[0]!r} next to {one!r}"
                        )
            last = entry


def check_common_order(room, members):
    """Messages that two members have are in the same order for both, behind gaps too."""
    for one in members:
        places = {text: place for place, text in enumerate(one.log) if isinstance(text, str)}
        for other in members:
            shared = [places[text] for text in other.log if text in places]
            if shared != sorted(shared):
                raise Failure(f"{room}: {one.name} and {other.name} have another order")


def judge(fleet, label, is_complete=False, may_be_late=False):
    """Waits for the end of all effects, and checks the logs. `is_complete`: the broker loses no message that it has confirmed, so
    unread messages of the ordered room are counted, unless members have a gap. `may_be_late`: a server that was stopped
    executes commands later that their sender has given up."""
    settled = fleet.settle()
    for node in fleet.nodes:
        fleet.broker.until(lambda: ready(node) == 200, "the node is ready again")
    parts, unread, ordered_gaps = [], [], 0
    for room, members in fleet.members.items():
        count, unread_of_room = check(fleet, room, may_be_late and room == EPHEMERAL)
        gaps = sum(entry == ("gap",) for member in members for entry in member.log)
        if room == ORDERED:
            unread, ordered_gaps = unread_of_room, gaps
        parts.append(f"{room} {count} messages, {len(unread_of_room)} unread, {gaps} gaps")
    numbers = fleet.numbers()
    counted = numbers.get("unconfirmed", 0) + numbers.get("refused", 0)
    listed = fleet.present()
    print(f"{label}: settled after {settled:.1f} s, lists after {listed:.1f} s; {'; '.join(parts)}; {numbers}", flush=True)
    if is_complete and not ordered_gaps and len(unread) > counted:
        raise Failure(f"{len(unread)} messages that no member has read, and {counted} that the nodes count")


def held(broker, seconds):
    """The broker is stopped for a while."""
    with Fleet(broker) as fleet:
        with Speakers(fleet.all_members()):
            time.sleep(1)
            broker.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            broker.process.send_signal(signal.SIGCONT)
            time.sleep(1)
        judge(fleet, f"{broker.schema} stopped for {seconds} s", is_complete=True)


def node_held(broker, seconds):
    """A node of each kind is stopped for a while: its lease ends, others miss it, and it comes back."""
    with Fleet(broker) as fleet:
        stopped = [fleet.nodes[0], fleet.nodes[-1]]
        with Speakers(fleet.all_members()):
            time.sleep(1)
            for node in stopped:
                node.hold()
            time.sleep(seconds)
            for node in stopped:
                node.go_on()
            time.sleep(1)
        judge(fleet, f"{broker.schema}: nodes stopped for {seconds} s", is_complete=True)


def killed(broker, is_empty, seconds=2):
    """The broker is killed, and starts again with what it had on its disk, or without anything."""
    with Fleet(broker) as fleet:
        for _ in range(2):
            with Speakers(fleet.all_members()):
                time.sleep(1)
                broker.kill()
                if is_empty:
                    broker.empty()
                broker.until(lambda: all(ready(node) == 503 for node in fleet.nodes), "/ready says so")
                time.sleep(seconds)
                broker.start()
                time.sleep(2)
            judge(fleet, f"{broker.schema} killed, started {'empty' if is_empty else 'with its data'}")


def commanded(broker, label, *commands, times=5):
    """Commands of an operator."""
    with Fleet(broker) as fleet:
        with Speakers(fleet.all_members()):
            for _ in range(times):
                time.sleep(1)
                for command in commands:
                    broker.command(command)
            time.sleep(1)
        judge(fleet, f"{broker.schema}: {label}", is_complete=True)


def cut_off(broker):
    """Nodes that are stopped do not read, so redis-server disconnects them: its buffer for a subscriber is small. Messages that
    no node has sent fill it, and the kernel's buffers, and reach no member."""
    broker.command('CONFIG SET client-output-buffer-limit "pubsub 64kb 0 0"')
    with Fleet(broker) as fleet:
        stopped = [fleet.nodes[0], fleet.nodes[-1]]
        with Speakers(fleet.all_members()):
            time.sleep(0.5)
            for node in stopped:
                node.hold()
            for number in range(1000):
                broker.command(f"PUBLISH tidegate:{{.{(ORDERED, EPHEMERAL)[number % 2]}}} {'x' * 60_000}")
            time.sleep(1)
            for node in stopped:
                node.go_on()
            time.sleep(1)
        judge(fleet, "redis: a small output buffer", is_complete=True)
        if not all(metrics(node)["downs"] for node in stopped):
            raise Failure("redis-server has not disconnected the nodes that were stopped")


def failed_over():
    """A replica becomes the master, and the master its replica, and back: READONLY for a while."""
    with Redis() as broker, Redis() as replica:
        replica.command(f"REPLICAOF 127.0.0.1 {broker.port}")
        broker.until(lambda: "master_link_status:up" in replica.command("INFO replication"), "the replica has all")
        with Fleet(broker) as fleet:
            for seconds in (1, 12):
                with Speakers(fleet.all_members()):
                    time.sleep(1)
                    replica.command("REPLICAOF NO ONE")
                    broker.command(f"REPLICAOF 127.0.0.1 {replica.port}")
                    time.sleep(seconds)
                    broker.command("REPLICAOF NO ONE")
                    replica.command(f"REPLICAOF 127.0.0.1 {broker.port}")
                    time.sleep(2)
                judge(fleet, f"redis: a replica for {seconds} s", is_complete=True)


class Cluster(Redis):
    """A master of all slots with a replica."""

    def url(self):
        return f"redis://127.0.0.1:{self.port},127.0.0.1:{self.other.port}"


def cluster_failed_over():
    """A replica of a cluster takes over from its master, which is asked first, or stopped, or killed."""
    ports = program.free_ports(4)
    options = lambda port: ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(port)]
    with Cluster(ports[0], *options(ports[2])) as master, Redis(ports[1], *options(ports[3])) as replica:
        master.other = replica
        master.command("CLUSTER ADDSLOTSRANGE 0 16383")
        replica.command(f"CLUSTER MEET 127.0.0.1 {ports[0]} {ports[2]}")
        identity = master.command("CLUSTER MYID")
        master.until(lambda: replica.command(f"CLUSTER REPLICATE {identity}") == "OK", "the replica knows the master")
        master.until(lambda: "cluster_state:ok" in master.command("CLUSTER INFO"), "the cluster")
        master.until(lambda: "master_link_status:up" in replica.command("INFO replication"), "the replica has all")
        with Fleet(master) as fleet:
            with Speakers(fleet.all_members()):
                time.sleep(1)
                replica.command("CLUSTER FAILOVER")
                master.until(lambda: "role:master" in replica.command("INFO replication"), "it is the master")
                time.sleep(3)
            judge(fleet, "cluster: failover")
            master.until(lambda: "master_link_status:up" in master.command("INFO replication"), "it is the replica")
            with Speakers(fleet.all_members()):
                time.sleep(1)
                replica.process.send_signal(signal.SIGSTOP)
                time.sleep(1)
                master.command("CLUSTER FAILOVER TAKEOVER")
                time.sleep(5)
                replica.process.send_signal(signal.SIGCONT)
                time.sleep(3)
            judge(fleet, "cluster: a master that is stopped, and returns", may_be_late=True)
            master.until(lambda: "master_link_status:up" in replica.command("INFO replication"), "it is the replica")
            with Speakers(fleet.all_members()):
                time.sleep(1)
                master.kill()
                replica.command("CLUSTER FAILOVER TAKEOVER")
                time.sleep(5)
            judge(fleet, "cluster: a master that is killed", may_be_late=True)


def of(broker, call, *arguments):
    def run():
        with broker() as one:
            call(one, *arguments)

    return run


def core():
    return Nats(has_streams=False)


CASES = {
    **{f"redis-stop-{seconds}": of(Redis, held, seconds) for seconds in (1, 12, 60)},
    **{f"nats-stop-{seconds}": of(Nats, held, seconds) for seconds in (1, 12, 60)},
    **{f"core-stop-{seconds}": of(core, held, seconds) for seconds in (1, 60)},
    "redis-node": of(Redis, node_held, 40),
    "nats-node": of(Nats, node_held, 40),
    "core-node": of(core, node_held, 40),
    "redis-kill": of(Redis, killed, True),
    "nats-kill": of(Nats, killed, False),
    "nats-kill-empty": of(Nats, killed, True),
    "core-kill": of(core, killed, True),
    "redis-pubsub": of(Redis, commanded, "CLIENT KILL TYPE pubsub", "CLIENT KILL TYPE pubsub"),
    "redis-normal": of(Redis, commanded, "CLIENT KILL TYPE normal", "CLIENT KILL TYPE normal"),
    "redis-both": of(Redis, commanded, "both", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"),
    "redis-scripts": of(Redis, commanded, "SCRIPT FLUSH", "SCRIPT FLUSH"),
    "redis-flush": of(Redis, commanded, "FLUSHALL", "FLUSHALL"),
    "redis-buffer": of(Redis, cut_off),
    "redis-failover": failed_over,
    "cluster-failover": cluster_failed_over,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    options = parser.parse_args()
    program.need("redis-server", "nats-server")
    for name in options.cases or CASES:
        print(f"{name}:", flush=True)
        CASES[name]()


if __name__ == "__main__":
    servers.run(main)
