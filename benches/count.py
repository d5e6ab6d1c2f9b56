#!/usr/bin/env python3
"""The instructions and the allocations of a request in a server, counted by callgrind: 16 deep, and not pipelined.

Each server runs twice for each depth, and receives three times as many requests the second time: the difference is
that of the requests alone. Without pipelining there are 64 connections, which all send before one of them reads. The
instructions of the kernel are not counted. Servers of Tidegate run on epoll, since callgrind does not know io_uring.
The README in this folder describes how to repeat it.
"""

import argparse
import os
import pathlib
import re
import socket
import tempfile
import time

import servers
from clients import SILENCE_SECONDS_MAX, request, split_response
from servers import Failure, Server

DEPTHS = [16, 1]
CONNECTIONS = 64
REQUESTS = 1600
ALLOCATE = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"]


def receive(connection, size):
    while size:
        received = connection.recv(size)
        if not received:
            raise Failure("the server closed a connection")
        size -= len(received)


def response_length(connection, asking):
    """The length of a whole response, head and body."""
    connection.sendall(asking)
    data = b""
    while not (parts := split_response(data)):
        received = connection.recv(1 << 16)
        if not received:
            raise Failure("the server closed a connection")
        data += received
    if parts[1]:
        raise Failure("more than one response to one request")
    return len(data)


def ask(server, target, depth, requests):
    asking = request(target)
    connections = []
    try:
        for _ in range(1 if depth > 1 else CONNECTIONS):
            connections.append(socket.create_connection(server.address, timeout=SILENCE_SECONDS_MAX))
        length = [response_length(connection, asking) for connection in connections][0]
        for _ in range(requests // (depth * len(connections))):
            for connection in connections:
                connection.sendall(asking * depth)
            for connection in connections:
                receive(connection, length * depth)
    finally:
        for connection in connections:
            connection.close()


def counted(command, target, depth, requests, directory):
    """All instructions and all allocations of a server that is asked so many times."""
    out = pathlib.Path(directory) / f"{depth}-{requests}"
    with Server(f"valgrind --tool=callgrind -q --callgrind-out-file={out} {command}") as server:
        ask(server, target, depth, requests)
        # The last connections are closed.
        time.sleep(0.3)
    names, calls, callee = {}, {}, None
    instructions = None
    for line in out.read_text().splitlines():
        if found := re.match(r"c?fn=\((\d+)\)(?: (.*))?", line):
            if found[2]:
                names[found[1]] = found[2]
            if line.startswith("c"):
                callee = found[1]
        elif line.startswith("calls="):
            calls[callee] = calls.get(callee, 0) + int(line[6:].split()[0])
        elif found := re.match(r"(?:summary|totals): (\d+)", line):
            instructions = int(found[1])
    if instructions is None:
        raise Failure(f"{command}: callgrind has counted nothing")
    return instructions, sum(count for name, count in calls.items() if names[name] in ALLOCATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND", help="repeatable")
    parser.add_argument("--path", default="/plaintext")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="requests in flight on a connection")
    options = parser.parse_args()
    os.environ["TIDEGATE_BACKEND"] = "epoll"
    print(f"{'':12}{'depth':>6}{'instructions':>14}{'allocations':>13}")
    for entry in options.server:
        name, _, command = entry.partition("=")
        for depth in options.depths:
            with tempfile.TemporaryDirectory() as directory:
                few = counted(command, options.path, depth, REQUESTS, directory)
                many = counted(command, options.path, depth, 3 * REQUESTS, directory)
            instructions, allocations = ((more - fewer) / (2 * REQUESTS) for fewer, more in zip(few, many))
            print(f"{name:12}{depth:6}{instructions:14,.0f}{allocations:13.2f}", flush=True)


if __name__ == "__main__":
    servers.run(main)
