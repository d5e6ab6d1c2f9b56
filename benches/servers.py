"""Starts a server under test, provides its address and its costs, and ends it.

A server is a command line. It is ready once it has printed its address, on either output: the first 127.0.0.1:PORT
counts. Costs are those of this one process, so a command that goes through a shell has to `exec` the server.
"""

import collections
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

# What is measured is built with the profile `dist`. Counts that no profile changes, such as those of system calls, can come
# from another build.
BUILT = pathlib.Path(__file__).resolve().parent.parent / "target" / os.environ.get("TIDEGATE_PROFILE", "dist")
# These bounds end a run that hangs. A busy machine needs several times what an idle one does.
START_SECONDS_MAX = 120
SETTLE_SECONDS_MAX = 120
# A process that SIGTERM does not end in this time is killed.
END_SECONDS_MAX = 5
# Memory is stable when it changes by no more than this in a second.
SETTLED_BYTES = 64 * 1024
SAMPLES_PER_SECOND = 10
PROBE_INTERVAL_SECONDS = 0.1
ADDRESS = re.compile(r"127\.0\.0\.1:([1-9][0-9]*)")


class Failure(Exception):
    """A failed measurement, which must not become a figure."""


def ending_with_us(command):
    """The command, whose process the kernel kills when the thread ends that starts it: a run that is killed leaves no server
    behind. The process id stays that of the program. Where `setpriv`, of util-linux, is missing it is the plain command."""
    return ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else command


class Server:
    """A running server, a context manager: the server ends however the block exits."""

    def __init__(self, command, core=None, directory=None, resident_max=None):
        self.command = command
        self.pin = [] if core is None else ["taskset", "-c", str(core)]
        self.directory = directory
        self.resident_max = resident_max

    def __enter__(self):
        self.process = subprocess.Popen(
            ending_with_us(self.pin + shlex.split(self.command)),
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
        """Stops the process (SIGSTOP) until `go_on`."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def _await_address(self):
        self.port = None
        self.lines = 0
        self.last_lines = collections.deque(maxlen=10)
        announced = threading.Event()

        # Reads for as long as the server lives: a full pipe would block it.
        def read_output():
            for line in self.process.stdout:
                self.last_lines.append(line)
                # Other threads wait for this number, and then take the last line.
                self.lines += 1
                found = ADDRESS.search(line)
                if found and self.port is None:
                    self.port = int(found[1])
                    announced.set()
            announced.set()

        threading.Thread(target=read_output, daemon=True).start()
        announced.wait(START_SECONDS_MAX)
        if self.port is None:
            raise Failure(f"{self.command}: printed no address\n{''.join(self.last_lines)}")

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def cpu_times(self):
        """User and system seconds of all its threads so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            # The second field is a name in parentheses, which may contain any character.
            fields = stat.read().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / ticks, int(fields[12]) / ticks

    def cpu_seconds(self):
        """User and system time of all its threads so far."""
        return sum(self.cpu_times())

    def rss(self):
        """Resident bytes, counted page by page: `statm` is inexact because of its per-CPU counters."""
        return self.resident("Rss:")

    def anonymous(self):
        """The same without the pages of files, such as those of code that runs for the first time."""
        return self.resident("Anonymous:")

    def resident(self, what):
        try:
            with open(f"/proc/{self.process.pid}/smaps_rollup") as rollup:
                return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith(what))
        except (ProcessLookupError, StopIteration):
            raise Failure(f"{self.command}: it ended\n{''.join(self.last_lines)}") from None

    def peak_rss(self):
        """The most resident bytes that it had, as the kernel counts them."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

    def bounded_rss(self):
        """Resident bytes. Fails above the maximum."""
        resident = self.rss()
        if self.resident_max is not None and resident > self.resident_max:
            raise Failure(f"{self.command}: it grew beyond {self.resident_max >> 20} MiB")
        return resident

    def settled_rss(self, between=time.sleep):
        """Resident bytes once they are stable. `between(seconds)` passes the time between samples."""
        samples = collections.deque(maxlen=SAMPLES_PER_SECOND)
        for _ in range(SETTLE_SECONDS_MAX * SAMPLES_PER_SECOND):
            samples.append(self.bounded_rss())
            if len(samples) == samples.maxlen and max(samples) - min(samples) <= SETTLED_BYTES:
                return samples[-1]
            between(1 / SAMPLES_PER_SECOND)
        raise Failure(f"{self.command}: its memory is not stable after {SETTLE_SECONDS_MAX} seconds")


def counts(server):
    """The counts of the server: {name: number}."""
    before = server.lines
    server.process.send_signal(signal.SIGUSR1)
    for _ in range(START_SECONDS_MAX * 100):
        time.sleep(0.01)
        if server.lines > before:
            line = server.last_lines[-1]
            if line.startswith("tidegate: counts:"):
                return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", line)}
            raise Failure(f"asked for its counts, the server printed {line!r}")
    raise Failure("the server does not print its counts")


class Probe:
    """Probes a server repeatedly during its load, a context manager; `ask` raises if an answer is wrong.

    A late answer is a failure.
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
            raise Failure(f"during the load: {answers}, {self.failure or 'no failure'}")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def read_when_written(file):
    """Reads a file that another process writes when it exits, which is about now."""
    for _ in range(START_SECONDS_MAX * SAMPLES_PER_SECOND):
        file.seek(0)
        text = file.read()
        if text.endswith("total\n"):
            return text
        time.sleep(1 / SAMPLES_PER_SECOND)
    raise Failure(f"{file.name} was not written")


def complete(command, seconds_max, directory=None, environment=None):
    """Runs a command to its end; returns its exit code and what it printed, on either output. It runs in its own process
    group, so neither it nor its children outlive this call."""
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
    """Ends a process that was started here: SIGTERM, then SIGKILL after a timeout or if the wait is interrupted."""
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
    """Runs a script's `main`: a failure is one line and exit code 1, and a signal still ends the servers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(main())
    except (Failure, OSError) as failure:
        sys.exit(f"FAILED: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
