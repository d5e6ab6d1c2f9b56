#!/usr/bin/env python3
"""A room over two nodes that a partition separates: each node has a network namespace, and the link of one is cut.

The broker, Redis, NATS with JetStream or NATS without it, and one node stay connected; the other node loses the broker without a
reset or an end of its connection. Members of both nodes then have the same messages in the same order, and a message of the cut
node that was not confirmed is there once, or not at all. Longer cuts than the history lasts end with a gap on the cut node, and
with no message out of order. A room without history has a gap after each cut that the node notices.

It runs in namespaces of its own, so it needs root and changes no interface of the host. The README beside this file
describes how to repeat it.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import program
import servers
from program import Failure

CLONE_NEWNET = 0x40000000
INSIDE = "TIDEGATE_IN_NAMESPACES"
BROKER_PORT, NODE_PORT = 6379, 8080
# The brokers, and the messages that a room of /chat keeps.
BROKERS = {"redis": 20, "nats": 20, "core": 0}
PATIENCE_SECONDS = 120
# Seconds of each cut, and messages that are said meanwhile: more than the history has are a gap.
CUTS = [(1, 5), (12, 15), (40, 60)]

libc = ctypes.CDLL(None, use_errno=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def in_namespace(name, call):
    """The result of a call in a thread that is in the network namespace: a socket stays where it was made."""
    result = []

    def enter():
        try:
            with open(f"/run/netns/{name}") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            result.append(call())
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


class Process:
    """A program in a namespace, a context manager."""

    def __init__(self, namespace, *command):
        self.command = (["ip", "netns", "exec", namespace] if namespace else []) + list(command)

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(servers.ending_with_us(self.command), **pipes)
        return self

    def __exit__(self, *_):
        servers.end(self.process)
        self.log.close()


class Member:
    """A member of the room, on the node of a namespace. A cut of the link does not end its connection to that node."""

    def __init__(self, namespace, name):
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.socket = in_namespace(namespace, lambda: socket.create_connection(("127.0.0.1", NODE_PORT), 10))
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.sendall(
            f"GET /chat/ws?room=tides&name={name} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._read(1)
        if b" 101 " not in head:
            raise Failure(f"the server answered {head!r}")
        self.texts, self.gaps = [], 0

    def _read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise Failure("the server closed a member's connection")
            data += more
        return data

    def say(self, text):
        # A mask of zeros leaves the bytes as they are.
        self.socket.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text.encode())

    def read_until(self, last):
        """Reads messages up to this one."""
        while last not in self.texts:
            first, length = self._read(2)
            length = int.from_bytes(self._read(2), "big") if length == 126 else length
            payload = self._read(length)
            event = json.loads(payload) if first == 0x81 else {}
            if event.get("type") == "message":
                self.texts.append(event["text"])
            self.gaps += event.get("type") == "gap"


def until_all_have(members, prefix):
    """Has the last member say something until it arrives: a message whose request broke is not sent again."""
    for attempt in range(PATIENCE_SECONDS):
        text = f"{prefix} {attempt}"
        members[-1].say(text)
        members[-1].socket.settimeout(1)
        try:
            members[-1].read_until(text)
        except TimeoutError:
            continue
        finally:
            members[-1].socket.settimeout(PATIENCE_SECONDS)
        for member in members:
            member.read_until(text)
        return
    raise Failure(f"the cut node does not come back: {prefix}")


def cut(members, history, number, seconds, messages):
    """Cuts the link of the second node for a while, and checks the order of messages."""
    north, south = members
    gaps = [member.gaps for member in members]
    begun = [len(member.texts) for member in members]
    ip("link", "set", "south", "down")
    for place in range(messages):
        north.say(f"north {number} {place}")
    south.say(f"south {number}")
    time.sleep(seconds)
    ip("link", "set", "south", "up")
    until_all_have(members, f"back {number}")
    of_north, of_south = (member.texts[begin:] for member, begin in zip(members, begun))
    for texts in (of_north, of_south):
        if len(set(texts)) != len(texts):
            raise Failure(f"a message comes twice: {texts}")
    new_gaps = [member.gaps - before for member, before in zip(members, gaps)]
    if new_gaps[0]:
        raise Failure(f"the connected node has a gap after {seconds} s")
    is_whole = messages + 2 <= history or not new_gaps[1]
    if is_whole and of_south != of_north:
        raise Failure(f"after {seconds} s members differ:\n{of_north}\n{of_south}")
    if history and is_whole and new_gaps[1]:
        raise Failure(f"after {seconds} s a gap in place of the history")
    # Behind a gap the order is the same.
    if [text for text in of_north if text in set(of_south)] != of_south:
        raise Failure(f"after {seconds} s the order differs:\n{of_north}\n{of_south}")
    if [text for text in of_north if text.startswith("north")] != [f"north {number} {place}" for place in range(messages)]:
        raise Failure(f"the connected node misses messages: {of_north}")
    print(f"cut for {seconds} s: {len(of_north)} messages, {len(of_south)} on the node that was cut off: right", flush=True)


def inside():
    """The test, in namespaces of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    for number, name in enumerate(("north", "south"), 1):
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "broker", "netns", name)
        ip("addr", "add", f"10.231.{number}.1/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "addr", "add", f"10.231.{number}.2/30", "dev", "broker")
        ip("-n", name, "link", "set", "broker", "up")
        ip("-n", name, "link", "set", "lo", "up")
    for broker in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            check(broker, folder)


def command_of(broker, folder):
    """The command line of a broker that listens on the links of both nodes."""
    if broker == "redis":
        options = f"--port {BROKER_PORT} --bind 10.231.1.1 10.231.2.1 --protected-mode no --appendonly no --dir {folder}"
        return ["redis-server", *options.split(), "--save", ""]
    streams = ["-js", "-sd", folder] if broker == "nats" else []
    return ["nats-server", "-a", "0.0.0.0", "-p", str(BROKER_PORT), *streams]


def check(broker, folder):
    history, scheme = BROKERS[broker], "redis" if broker == "redis" else "nats"
    print(f"{broker}:", flush=True)
    serve = [sys.argv[1], "serve", "--quiet", "--listen", f"127.0.0.1:{NODE_PORT}", "--chat-rate", "100000"]
    node = lambda number: [*serve, "--chat-history", str(history), "--backplane", f"{scheme}://10.231.{number}.1:{BROKER_PORT}"]
    with (
        Process(None, *command_of(broker, folder)),
        Process("north", *node(1)),
        Process("south", *node(2)),
    ):
        members = [Member("north", "ana"), Member("south", "bo")]
        until_all_have(members, "hello")
        for number, (seconds, messages) in enumerate(CUTS):
            cut(members, history, number, seconds, messages)


def main():
    if os.environ.get(INSIDE):
        return inside()
    program.need("redis-server", "nats-server", "ip", "unshare")
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return None
    pathlib.Path("/run/netns").mkdir(exist_ok=True)
    server = os.environ.get("TIDEGATE_PROGRAM", program.PROGRAM)
    command = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, __file__, server]
    command += sys.argv[1:] or BROKERS
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode


if __name__ == "__main__":
    servers.run(main)
