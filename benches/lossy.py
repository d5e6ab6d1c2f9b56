#!/usr/bin/env python3
"""A UDP link with loss and delay, as a proxy: each datagram is dropped by chance, or passed on after a time.

It stands in for a network emulator where the kernel has none. Datagrams of one direction keep their order. The dropped ones
follow from the seed and from the number of the datagram, so two servers see losses at the same places.

    lossy.py PORT [--loss 0.01] [--delay 0.025] [--seed 1]     prints the address of the link to 127.0.0.1:PORT
"""

import argparse
import collections
import random
import selectors
import socket
import time

DATAGRAM_BYTES = 65_536
# A queue of a link has a bound, as those of routers have.
QUEUED_MAX = 4_096
SOCKET_BYTES = 8 << 20


class Direction:
    """Datagrams on their way from one side to the other."""

    def __init__(self, options, seed):
        self.chance = random.Random(seed)
        self.loss, self.delay = options.loss, options.delay
        self.queue = collections.deque()

    def accept(self, datagram, send):
        if self.chance.random() >= self.loss and len(self.queue) < QUEUED_MAX:
            self.queue.append((time.monotonic() + self.delay, datagram, send))

    def deliver(self, now):
        """Sends what is due. Returns when the next one is."""
        while self.queue and self.queue[0][0] <= now:
            _, datagram, send = self.queue.popleft()
            try:
                send(datagram)
            except OSError:
                pass
        return self.queue[0][0] if self.queue else None


def receive_all(from_socket):
    while True:
        try:
            yield from_socket.recvfrom(DATAGRAM_BYTES)
        except (BlockingIOError, ConnectionRefusedError):
            return


def udp():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    return made


class Client:
    """One client: a socket towards the server, and both directions."""

    def __init__(self, options, number):
        self.socket = udp()
        self.socket.connect(("127.0.0.1", options.port))
        seeds = [f"{options.seed} {number} {direction}" for direction in ("out", "back")]
        self.out, self.back = (Direction(options, seed) for seed in seeds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, help="of the server")
    parser.add_argument("--loss", type=float, default=0.01, help="the part of datagrams that is dropped, each way")
    parser.add_argument("--delay", type=float, default=0.025, help="seconds that a datagram takes one way")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    listener = udp()
    listener.bind(("127.0.0.1", 0))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    clients = {}
    print(f"a link at 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    due = None
    while True:
        events = selector.select(None if due is None else max(0, due - time.monotonic()))
        for key, _ in events:
            if key.data is None:
                for datagram, address in receive_all(listener):
                    if address not in clients:
                        clients[address] = client = Client(options, len(clients))
                        selector.register(client.socket, selectors.EVENT_READ, (client, address))
                    clients[address].out.accept(datagram, clients[address].socket.send)
                continue
            client, address = key.data
            for datagram, _ in receive_all(client.socket):
                client.back.accept(datagram, lambda bytes, address=address: listener.sendto(bytes, address))
        now = time.monotonic()
        directions = (direction for client in clients.values() for direction in (client.out, client.back))
        due = min((at for at in (direction.deliver(now) for direction in directions) if at is not None), default=None)


if __name__ == "__main__":
    main()
