#!/usr/bin/env python3
"""A server without free descriptors: the cost of waiting, and the time until it accepts again. CPU and times are figures; a
bar for CI is a count: the turns of our server's loops.

The server has few descriptors, and more clients than that. Meanwhile further clients connect, so that the server has
every reason to retry `accept`. Works with any server that answers /plaintext and whose connection limit is above the
descriptor limit.
"""

import argparse
import contextlib
import json
import selectors
import shlex
import socket
import statistics
import time

import servers
from servers import Failure, Server

REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n"
WAITING = 400
KNOCKS_PER_SECOND = 50
ROUNDS = 20
FREED_EACH_ROUND = 5
# This bound ends a run that hangs.
SILENCE_SECONDS_MAX = 120
# After so long without an answer, the server has accepted as many clients as it can.
FULL_SECONDS = 0.5


class Queue:
    """Clients in the order of connecting. Each has sent a request; the answered ones use a descriptor of the server."""

    def __init__(self, server, stack):
        self.server = server
        self.stack = stack
        self.selector = stack.enter_context(selectors.DefaultSelector())
        self.answered = []

    def join(self):
        client = self.stack.enter_context(socket.create_connection(self.server.address))
        client.sendall(REQUEST)
        self.selector.register(client, selectors.EVENT_READ)

    def receive(self, seconds):
        """Reads the answers that arrive within `seconds`; returns their number."""
        ready = self.selector.select(seconds)
        for key, _ in ready:
            if not key.fileobj.recv(1 << 16).startswith(b"HTTP/1.1 200 "):
                raise Failure("a client was closed without an answer")
            self.selector.unregister(key.fileobj)
            self.answered.append(key.fileobj)
        return len(ready)

    def receive_until(self, count):
        """Reads `count` answers; returns the time that it took."""
        start = time.monotonic()
        while count > 0:
            answers = self.receive(SILENCE_SECONDS_MAX)
            if not answers:
                raise Failure(f"{count} were not accepted in {SILENCE_SECONDS_MAX} seconds")
            count -= answers
        return time.monotonic() - start

    def free(self, count):
        for client in self.answered[:count]:
            client.close()
        del self.answered[:count]


def measure(server, options):
    with contextlib.ExitStack() as stack:
        queue = Queue(server, stack)
        for _ in range(WAITING):
            queue.join()
        while queue.receive(FULL_SECONDS):
            pass
        accepted = len(queue.answered)
        if not 0 < accepted < options.descriptors:
            raise Failure(f"{accepted} connections of {WAITING} fit into {options.descriptors} descriptors")

        turns = turns_so_far(server, options)
        waiting = cpu_share(server, options.seconds, lambda: time.sleep(1 / KNOCKS_PER_SECOND))
        idle_turns = turns_so_far(server, options) - turns

        def knock():
            queue.join()
            time.sleep(1 / KNOCKS_PER_SECOND)

        knocking = cpu_share(server, options.seconds, knock)
        turns = turns_so_far(server, options)
        resumed = []
        for _ in range(ROUNDS):
            queue.free(FREED_EACH_ROUND)
            resumed.append(queue.receive_until(FREED_EACH_ROUND))
        resume_turns = turns_so_far(server, options) - turns
    counted = {} if options.turns_max is None else {"turns_waiting": idle_turns, "turns_resuming": resume_turns}
    return counted | {
        "accepted": accepted,
        "cpu_percent_waiting": round(100 * waiting, 2),
        "cpu_percent_knocking": round(100 * knocking, 2),
        "median_resume_milliseconds": round(1000 * statistics.median(resumed)),
        "slowest_resume_milliseconds": round(1000 * max(resumed)),
        # The counts were asked for four times.
        "log_lines": server.lines - (0 if options.turns_max is None else 4),
    }


def turns_so_far(server, options):
    """How often the loops of our server have turned; other servers do not say."""
    return 0 if options.turns_max is None else servers.counts(server)["turns"]


def cpu_share(server, seconds, act):
    """The share of a core that the server uses in `seconds`, while `act` runs repeatedly."""
    start, cpu = time.monotonic(), server.cpu_seconds()
    while time.monotonic() < start + seconds:
        act()
    return (server.cpu_seconds() - cpu) / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the server's command line")
    parser.add_argument("--descriptors", type=int, default=64, help="the server's descriptor limit")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each of the two observations")
    parser.add_argument("--cpu-max", type=float, metavar="PERCENT", help="fail above this share of a core; for an idle machine")
    parser.add_argument("--turns-max", type=int, metavar="N", help="fail if the loops of our server turn more often, while nothing happens or while descriptors are freed")
    parser.add_argument("--lines-max", type=int, metavar="N", help="fail if the server prints more lines than this")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()

    limited = f"ulimit -n {options.descriptors}; exec {options.server}"
    with Server(f"sh -c {shlex.quote(limited)}") as server:
        result = measure(server, options)
    if options.json:
        print(json.dumps(result))
    else:
        for name, figure in result.items():
            print(f"{name.replace('_', ' '):28}{figure:,}")
    bars = [
        (max(result["cpu_percent_waiting"], result["cpu_percent_knocking"]), options.cpu_max, "% of a core"),
        (result.get("turns_waiting"), options.turns_max, "turns of the loops while nothing happened"),
        (result.get("turns_resuming"), options.turns_max, "turns of the loops while descriptors were freed"),
        (result["log_lines"], options.lines_max, "lines printed"),
    ]
    for figure, most, what in bars:
        if most is not None and figure > most:
            raise Failure(f"{figure} {what}, more than the {most} allowed")


if __name__ == "__main__":
    servers.run(main)
