#!/usr/bin/env python3
"""slowhttptest against `tidegate serve` or `tidegate proxy`: slow heads, slow bodies, ranges and slow reading, a thousand connections at once.

During each attack good clients send requests, some on new connections and one on a persistent connection, and each
answer has to be right, and many have to come before the attack is over. The server has to close each connection of the
attacker for the reason of its deadline, by its own count, even if the attacker sends or reads a little at a time and would
keep the connection open. A client that keeps the minimum rates must not be closed. The script watches the server's sockets
and prints how long the longest lived, beside the bound that an idle machine keeps: that is a figure and no bar, since a busy
machine delays both. The README in this folder describes how to repeat it.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
import socket
import subprocess
import tempfile
import threading
import time

import program
import servers
from program import Failure

# A server that an attack occupies answers nobody until the attack is over: the first probe waits for its end.
ANSWERS_MIN = 10
# This bound ends a run that hangs.
ANSWER_SECONDS_MAX = 120
WATCH_INTERVAL_SECONDS = 0.2
# How long a silent peer may delay the close after the server has shut down: `linger_timeout` of its limits.
LINGER_SECONDS = 2
# The granularity of timers, the work for a thousand connections, and the watch interval.
GRACE_SECONDS = 1
# The default piece of a body in slowhttptest: a name and a value of at most 32 bytes each.
MORSEL_BYTES_MAX = 1 + 32 + 1 + 32
LEAVE_SECONDS_MAX = 120
ALL_GONE = "No open connections left"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
BODY = b"Hello, World!"
REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def start_server(backend, flags, options):
    """The server under attack: `tidegate serve`, or with --proxy a `tidegate proxy` in front of it."""
    if not options.proxy:
        with program.serve(backend, *flags, program=options.program) as server:
            yield server
        return
    with program.serve(backend, program=options.program) as origin:
        words = [options.program, "proxy", "--listen", "127.0.0.1:0", "--quiet", "--backend", backend]
        words += ["--upstream", f"http://127.0.0.1:{origin.port}", *flags]
        with servers.Server(shlex.join(words)) as server:
            yield server


class Attack:
    """One attack: the flags of slowhttptest, and the reason why the server closes its connections.

    `cause` is the server's counter of that reason, and `bound` the maximum lifetime of a connection in seconds. Without
    a cause the attack keeps the minimum rates, and the server must not close its connections.
    """

    def __init__(self, name, path, flags, cause=None, bound=None):
        self.name = name
        self.path = path
        self.flags = flags
        self.cause = cause
        self.bound = bound


def attacks(options):
    # The next piece would be sent only after the attack.
    late = ["-i", str(options.seconds + 1)]
    once = options.deadline + GRACE_SECONDS
    # A piece each second extends the deadline by its size over the minimum rate.
    little_by_little = options.deadline / (1 - MORSEL_BYTES_MAX / options.least_rate) + GRACE_SECONDS
    # The server checks the peer's progress when a deadline fires, so the progress may date from right after the
    # previous check.
    twice = 2 * options.deadline + GRACE_SECONDS
    chosen = [
        # A head must be complete by its deadline, even while it grows.
        Attack("slow heads", "/plaintext", ["-H", "-i", "1"], "closed_protocol", once),
        Attack("slow bodies", "/echo", ["-B", "-s", "8192", *late], "closed_protocol", once),
        # Each piece arrives well before the deadline.
        Attack("bodies by morsels", "/echo", ["-B", "-s", "8192", "-i", "1"], "closed_protocol", little_by_little),
        # The server has no ranges: it answers and closes, as the requests say `Connection: close`.
        Attack("ranges", "/bytes/5000", ["-R"], "closed_done", once),
        # Five bytes a second: of a response above the kernel's buffer, and of one below it, after which the connection
        # is idle.
        Attack("slow reading", "/bytes/20000000", reading(5, 10), "closed_write_timeout", twice),
        # Kernels acknowledge pieces of a thousand bytes: most checks see some progress, but never enough.
        Attack("reading by morsels", "/bytes/20000000", reading(options.least_rate // 2, 1000), "closed_write_timeout", twice),
        Attack("slow reading of little", "/bytes/10000", reading(5, 10), "closed_done", once + LINGER_SECONDS),
    ]
    if options.patient:
        # On average three times the minimum rate.
        steady_body = ["-B", "-s", "100000000", "-x", str(3 * options.least_rate), "-i", "1"]
        chosen.append(Attack("steady bodies", "/sum", steady_body))
        # A kernel acknowledges pieces of up to half its buffer; a piece must not take longer than the check interval.
        steady_reading = reading(2 * options.least_rate, 2 * options.least_rate)
        chosen.append(Attack("steady reading", "/bytes/20000000", steady_reading))
    return [attack for attack in chosen if not options.attacks or attack.name in options.attacks]


def reading(rate, window):
    """The flags of a reader with `rate` bytes a second and a receive buffer of `window` bytes."""
    return ["-X", "-w", str(window), "-y", str(window + 1), "-n", "1", "-z", str(rate)]


class Watch:
    """Polls the server's sockets, a context manager: which are open, and since when."""

    def __init__(self, server):
        self.folder = f"/proc/{server.process.pid}/fd"
        self.port = f":{server.port:04X}"
        # The listener, and sockets from before the attack.
        self.others = self.sockets()
        self.first_seen = {}
        self.last_seen = {}
        self.now = set()
        self.most = 0
        self.failure = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.go_on)

    def sockets(self):
        found = set()
        for descriptor in os.listdir(self.folder):
            try:
                target = os.readlink(f"{self.folder}/{descriptor}")
            except FileNotFoundError:
                # The descriptor was closed meanwhile.
                continue
            if target.startswith("socket:"):
                found.add(target)
        # Not those to an upstream.
        return found & self.of_clients()

    def of_clients(self):
        with open("/proc/net/tcp") as table:
            lines = (line.split() for line in table)
            return {f"socket:[{fields[9]}]" for fields in lines if fields[1].endswith(self.port)}

    def go_on(self):
        try:
            while not self.stop.wait(WATCH_INTERVAL_SECONDS):
                self.look()
        except OSError as failure:
            self.failure = failure

    def look(self):
        self.now = self.sockets() - self.others
        seen = time.monotonic()
        for each in self.now:
            self.first_seen.setdefault(each, seen)
            self.last_seen[each] = seen
        self.most = max(self.most, len(self.now))

    def longest(self):
        """The longest lifetime of a connection."""
        return max((self.last_seen[each] - first for each, first in self.first_seen.items()), default=0.0)

    def last_long_one(self):
        """When a connection older than a moment was last seen."""
        long_ones = (seen for each, seen in self.last_seen.items() if seen > self.first_seen[each])
        return max(long_ones, default=0.0)

    def stayed(self, seconds, until):
        """How many connections were at least so many seconds old, and still open at that time."""
        return sum(seen >= until and seen - self.first_seen[each] >= seconds for each, seen in self.last_seen.items())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class GoodClient:
    """Sends requests alternately on a persistent and on a new connection."""

    def __init__(self, server):
        self.address = server.address
        self.kept = socket.create_connection(self.address, timeout=servers.START_SECONDS_MAX)
        self.turn = 0
        self.ask()

    def ask(self):
        self.turn += 1
        if self.turn % 2:
            answer(self.kept)
            return
        with socket.create_connection(self.address, timeout=servers.START_SECONDS_MAX) as fresh:
            answer(fresh)

    def close(self):
        self.kept.close()


def answer(client):
    client.sendall(REQUEST)
    got = b""
    while not got.endswith(b"\r\n\r\n" + BODY):
        piece = client.recv(1 << 16)
        if not piece:
            raise Failure(f"a good client was closed, after {got!r}")
        got += piece
    if not got.startswith(b"HTTP/1.1 200 "):
        raise Failure(f"a good client was answered {got!r}")


def start(server, attack, options, directory):
    command = ["slowhttptest", "-c", str(options.connections), "-r", str(options.rate), "-l", str(options.seconds)]
    command += ["-p", str(ANSWER_SECONDS_MAX), "-v", "1", *attack.flags]
    command += ["-u", f"http://127.0.0.1:{server.port}{attack.path}"]
    with open(pathlib.Path(directory, "log"), "w") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=directory)


def verdict(directory):
    """The end status that slowhttptest reports, and whether its own probe was always answered."""
    with open(pathlib.Path(directory, "log"), errors="replace") as log:
        said = COLOURS.sub("", log.read())
    ended = re.search(r"Exit status: *(.*)", said)
    if not ended:
        raise Failure(f"slowhttptest reported no end status\n{said}")
    return ended[1].strip(), "service available:   NO" not in said


def judge(backend, attack, options):
    deadlines = [f"--{what}-timeout={options.deadline}" for what in ["request", "idle", "write"]]
    deadlines += [f"--{what}-rate-min={options.least_rate}" for what in ["body", "write"]]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start_server(backend, deadlines, options))
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        good = stack.enter_context(contextlib.closing(GoodClient(server)))
        before = program.counts(server)
        watch = stack.enter_context(Watch(server))
        with servers.Probe(good.ask, ANSWER_SECONDS_MAX) as probe:
            begun = time.monotonic()
            process = start(server, attack, options, directory)
            try:
                process.wait(options.seconds + servers.START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise Failure("slowhttptest does not end") from None
            finally:
                servers.end(process)
            lasted = time.monotonic() - begun
            answers = probe.answers
            ended, was_answered = verdict(directory)
        give_up = time.monotonic() + LEAVE_SECONDS_MAX
        while (left := watch.sockets() - watch.others) and time.monotonic() < give_up:
            time.sleep(WATCH_INTERVAL_SECONDS)
        after = program.counts(server)
        gone = max(0.0, watch.last_long_one() - begun)
    accepted = after["accepted"] - before["accepted"]
    bound = "" if attack.bound is None else f" ({attack.bound:.1f} on an idle machine)"
    print(
        f"  {attack.name:22}{watch.most:5} at once, the longest for {watch.longest():4.1f} s{bound}, the last until {gone:4.1f} s "
        f"of {lasted:4.1f} s; {probe.answers:4} good answers, the slowest after {1000 * probe.slowest:3.0f} ms",
        flush=True,
    )
    probe.check()
    if answers < ANSWERS_MIN:
        raise Failure(f"good clients had {answers} answers while the attack lasted")
    if watch.failure:
        raise Failure(f"watching: {watch.failure}")
    if not was_answered:
        raise Failure("slowhttptest was not answered in time")
    if accepted < options.connections:
        raise Failure(f"{accepted} connections of {options.connections} were made")
    if left:
        raise Failure(f"{len(left)} connections are left when the attack is over")
    if not attack.cause:
        # By then all connections were open for a while.
        end = begun + options.seconds - GRACE_SECONDS
        if (stayed := watch.stayed(options.seconds / 2, end)) < options.connections:
            raise Failure(f"{stayed} connections of {options.connections} stayed open, as all should")
        return
    causes = {name: after[name] - before[name] for name in after if name.startswith("closed_")}
    if causes[attack.cause] < options.connections:
        raise Failure(f"the server did not close all connections for the reason {attack.cause}: {causes}")
    # The order of two events: an attacker that does not read cannot notice the close, and has to outlast its connections.
    if ended != ALL_GONE and gone > lasted - 2 * WATCH_INTERVAL_SECONDS:
        raise Failure(f"{ended!r}, and until then connections were open")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=500, help="connections opened per second")
    parser.add_argument("--seconds", type=int, default=12, help="duration of an attack")
    parser.add_argument("--deadline", type=int, default=3, help="all timeouts of the server, in seconds")
    parser.add_argument("--least-rate", type=int, default=1000, help="minimum rates of the server, in bytes a second")
    parser.add_argument("--patient", action="store_true", help="also run clients that keep the minimum rates, and must stay open")
    parser.add_argument("--proxy", action="store_true", help="attack a `tidegate proxy` in front of the server")
    parser.add_argument("--attacks", nargs="+", help="the names of the attacks, in place of all")
    options = parser.parse_args()
    if options.least_rate <= MORSEL_BYTES_MAX:
        parser.error(f"--least-rate: slow bodies bring up to {MORSEL_BYTES_MAX} bytes a second, and have to be slower than that")
    program.need("slowhttptest")
    for backend in options.backends:
        print(f"{backend}:")
        for attack in attacks(options):
            try:
                judge(backend, attack, options)
            except Failure as failure:
                raise Failure(f"{attack.name}: {failure}") from None


if __name__ == "__main__":
    servers.run(main)
