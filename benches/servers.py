"""Starts a server under test, tells its address and what it costs, and ends it.

A server is a command line. It is ready once it has printed its address, on either output: the first 127.0.0.1:PORT
counts. Costs are read of that one process, so a command that goes through a shell has to `exec` the server.
"""

import collections
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

START_SECONDS_MAX = 15
END_SECONDS_MAX = 5
SETTLE_SECONDS_MAX = 60
# Memory has settled when it moved by no more than this for a second.
SETTLED_BYTES = 64 * 1024
SAMPLES_PER_SECOND = 10
PROBE_INTERVAL_SECONDS = 0.1
ADDRESS = re.compile(r"127\.0\.0\.1:([1-9][0-9]*)")


class Failure(Exception):
    """A measurement that must not be reported as a figure."""


class Server:
    """A running server, to be used in a `with`: it is ended however the block is left."""

    def __init__(self, command, core=None, directory=None, resident_max=None):
        self.command = command
        self.pin = [] if core is None else ["taskset", "-c", str(core)]
        self.directory = directory
        self.resident_max = resident_max

    def __enter__(self):
        self.process = subprocess.Popen(
            self.pin + shlex.split(self.command),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            self._await_address()
        except BaseException:
            end(self.process)
            raise
        return self

    def __exit__(self, *_):
        self.go_on()
        end(self.process)

    def hold(self):
        """Nothing of it runs, whatever it has to do, until it is told to go on."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def _await_address(self):
        self.port = None
        self.lines = 0
        self.last_lines = collections.deque(maxlen=10)
        told = threading.Event()

        # Reads for as long as the server lives: a full pipe would stop it.
        def read_output():
            for line in self.process.stdout:
                self.lines += 1
                self.last_lines.append(line)
                found = ADDRESS.search(line)
                if found and self.port is None:
                    self.port = int(found[1])
                    told.set()
            told.set()

        threading.Thread(target=read_output, daemon=True).start()
        told.wait(START_SECONDS_MAX)
        if self.port is None:
            raise Failure(f"{self.command}: printed no address\n{''.join(self.last_lines)}")

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def cpu_times(self):
        """User and system seconds of all its threads so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            # The second field is a name in brackets, which may hold anything.
            fields = stat.read().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / ticks, int(fields[12]) / ticks

    def cpu_seconds(self):
        """User and system time of all its threads so far."""
        return sum(self.cpu_times())

    def rss(self):
        """Resident bytes, counted page by page: `statm` may be off by what its per-CPU counters hold back."""
        try:
            with open(f"/proc/{self.process.pid}/smaps_rollup") as rollup:
                return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))
        except (ProcessLookupError, StopIteration):
            raise Failure(f"{self.command}: it ended\n{''.join(self.last_lines)}") from None

    def bounded_rss(self):
        """Resident bytes, of which there may be no more than so many."""
        resident = self.rss()
        if self.resident_max is not None and resident > self.resident_max:
            raise Failure(f"{self.command}: it grew beyond {self.resident_max >> 20} MiB")
        return resident

    def settled_rss(self, between=time.sleep):
        """Resident bytes once they have stopped moving. `between(seconds)` passes the time from sample to sample."""
        samples = collections.deque(maxlen=SAMPLES_PER_SECOND)
        for _ in range(SETTLE_SECONDS_MAX * SAMPLES_PER_SECOND):
            samples.append(self.bounded_rss())
            if len(samples) == samples.maxlen and max(samples) - min(samples) <= SETTLED_BYTES:
                return samples[-1]
            between(1 / SAMPLES_PER_SECOND)
        raise Failure(f"{self.command}: its memory has not settled in {SETTLE_SECONDS_MAX} seconds")


class Probe:
    """Asks a server again and again from beside its load, in a `with`; `ask` raises where an answer is not as it should be.

    Every answer has to come in time.
    """

    def __init__(self, ask, seconds_max):
        self.ask = ask
        self.seconds_max = seconds_max
        self.stop = threading.Event()
        self.answers = 0
        self.slowest = 0.0
        self.failure = None
        self.thread = threading.Thread(target=self.go_on)

    def go_on(self):
        try:
            while not self.stop.wait(PROBE_INTERVAL_SECONDS):
                start = time.monotonic()
                self.ask()
                self.answers += 1
                self.slowest = max(self.slowest, time.monotonic() - start)
        except (Failure, OSError) as failure:
            self.failure = failure

    def check(self):
        if self.failure or not self.answers or self.slowest > self.seconds_max:
            answers = f"{self.answers} answers, the slowest after {self.slowest:.3f} s"
            raise Failure(f"beside the load: {answers}, {self.failure or 'no failure'}")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def read_when_written(file):
    """What another process writes into a file when it ends, which is about now."""
    for _ in range(END_SECONDS_MAX * SAMPLES_PER_SECOND):
        file.seek(0)
        text = file.read()
        if text.endswith("total\n"):
            return text
        time.sleep(1 / SAMPLES_PER_SECOND)
    raise Failure(f"{file.name} was not written")


def complete(command, seconds_max, directory=None, environment=None):
    """Runs a command to its end; returns its exit code and what it printed, on either output. Neither it nor what it has
    started outlives this: it is a group of its own."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    pipes |= {"text": True, "errors": "replace"}
    process = subprocess.Popen(command, cwd=directory, env=environment, start_new_session=True, **pipes)
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise Failure(f"{shlex.join(command)}: it has not ended in {seconds_max} seconds") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        end(process)
    return process.returncode, output


def end(process):
    """Ends a process that was started here, by force if it does not go when asked or if the wait is broken off."""
    process.terminate()
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run(main):
    """Runs a script's `main` so that a failure is one line and exit code 1, and a signal still ends the servers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"FAILED: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
