#!/usr/bin/env python3
"""The light client: it sends `GET /plaintext` at fixed times, and prints the latencies of the answers as JSON.

`light.py` and `peers/run.py` start it on the core of the load generator. It is a process of its own, with real-time
priority where the kernel permits that (SCHED_FIFO, otherwise nice -20), so the load generator does not delay it. The
garbage collector is off. The client connects, prints `ready PRIORITY`, and starts when it reads a line.

One request is outstanding at a time. A latency starts at the scheduled send time. While an answer is outstanding, later
requests fall due. When the answer arrives, the client sends the last of them at once, and counts the earlier ones as
answered at that moment. The client never sends those, so a slow server gets no backlog to work off, and a stall of 700 ms
still adds 350 latencies from 700 ms down to 2 ms (no coordinated omission). `sent` has only the requests that were sent.
`late` says how late the client sent the requests that waited for no answer: it is the client's own share of a latency.
"""

import argparse
import gc
import json
import math
import os
import socket
import sys
import time

from clients import fetch
from servers import Failure

ANSWER_SECONDS_MAX = 10
BODY = b"Hello, World!"
FIFO_PRIORITY = 10
NICE = -20


def raise_priority():
    """Raises the priority of this process as far as the kernel permits; returns the new priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
        return "fifo"
    except OSError:
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
        return "nice"
    except OSError:
        return "usual"


def connected(address):
    connection = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection):
    """One request; checks that the response has status 200 and the whole body."""
    body = fetch(connection, "/plaintext")
    if body != BODY:
        raise Failure(f"the server answered /plaintext with {body[:40]!r}")


def ask_anew(address):
    """One request on a new connection."""
    with connected(address) as connection:
        ask(connection)


def send_on_schedule(exchange, interval, count, clock=time.monotonic, sleep=time.sleep):
    """Calls `exchange` once every `interval` seconds, `count` times at most. Returns, in seconds from the scheduled times,
    the latencies of all scheduled requests, those of the requests that were sent, and how late requests were sent that
    waited for no answer."""
    scheduled, sent, late = [], [], []
    start, number = clock() + interval, 0
    while number < count:
        due = start + number * interval
        if (early := due - clock()) > 0:
            sleep(early)
            late.append(clock() - due)
        exchange()
        answered = clock()
        sent.append(answered - due)
        scheduled.append(answered - due)
        number += 1
        while number + 1 < count and start + (number + 1) * interval <= answered:
            scheduled.append(answered - (start + number * interval))
            number += 1
    return scheduled, sent, late


def percentile(ordered, percent):
    """The nearest rank: the least number that `percent` of all numbers do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def figures(latencies):
    """Count, percentiles and maximum, in microseconds."""
    if not latencies:
        return {"count": 0}
    ordered = sorted(latency * 1e6 for latency in latencies)
    percentiles = {percent: percentile(ordered, float(percent)) for percent in ("50", "90", "99", "99.9")}
    return {"count": len(ordered), **percentiles, "max": ordered[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["plaintext", "connect"], default="plaintext", help="`connect`: a new connection for each request")
    parser.add_argument("--interval", type=float, default=0.002, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    address = ("127.0.0.1", options.port)
    if options.kind == "connect":
        exchange = lambda: ask_anew(address)
    else:
        connection = connected(address)
        exchange = lambda: ask(connection)
    # A warm-up request: it compiles, imports and allocates what the measured ones need.
    exchange()
    gc.disable()
    print("ready", raise_priority(), flush=True)
    if not sys.stdin.readline():
        return 1
    found = send_on_schedule(exchange, options.interval, max(round(options.seconds / options.interval), 1))
    print(json.dumps(dict(zip(("scheduled", "sent", "late"), map(figures, found)))))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"light client: {failure or type(failure).__name__}")
