#!/usr/bin/env python3
"""Thousands of connections at once: the time until all are answered, and the latency of a light connection meanwhile.

Each connection sends `GET /plaintext` as soon as it is made. The light client of `light.py` runs concurrently for four
seconds, from one second before the first. The clients use several source addresses, since each has its own ports.
"""

import argparse
import os
import select
import socket
import threading
import time

import light
import servers
from clients import allow_descriptors
from servers import Failure, Server

REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"
SECONDS_MAX = 20
LIGHT_SECONDS = 4
ADDRESSES = 200


def burst(port, count, sockets):
    """Connects, sends one request on each connection, and returns the seconds until the last answer. The connections
    stay open, in `sockets`."""
    poller, begun = select.epoll(), time.monotonic()
    try:
        for number in range(count):
            client = socket.socket()
            sockets[client.fileno()] = client
            client.setblocking(False)
            client.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
            client.connect_ex(("127.0.0.1", port))
            poller.register(client.fileno(), select.EPOLLOUT)
        left = count
        while left:
            if time.monotonic() - begun > SECONDS_MAX:
                raise Failure(f"{left} of {count} connections have no answer after {SECONDS_MAX} seconds")
            for descriptor, events in poller.poll(1):
                if events & select.EPOLLIN:
                    if not sockets[descriptor].recv(4096).startswith(b"HTTP/1.1 200"):
                        raise Failure("an answer is not 200")
                    poller.unregister(descriptor)
                    left -= 1
                else:
                    sockets[descriptor].send(REQUEST)
                    poller.modify(descriptor, select.EPOLLIN)
        return time.monotonic() - begun
    finally:
        poller.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=light.TIDEGATE + " --max-connections 15000", metavar="COMMAND")
    parser.add_argument("--connections", type=int, default=9000)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    allow_descriptors(options.connections)
    with Server(options.server, core=options.server_core) as server:
        os.sched_setaffinity(0, {int(options.load_core)})
        with light.LightClient(server, options.load_core, LIGHT_SECONDS) as client:
            found = {}
            beside = threading.Thread(target=lambda: found.update(client.run()))
            beside.start()
            time.sleep(1)
            sockets = {}
            took = burst(int(server.port), options.connections, sockets)
            beside.join()
            for connection in sockets.values():
                connection.close()
    print(f"all answered seconds       {took:.2f}")
    for key in ("50", "99", "max"):
        print(f"light {key:4} milliseconds    {found['scheduled'][key] / 1000:.2f}")


if __name__ == "__main__":
    servers.run(main)
