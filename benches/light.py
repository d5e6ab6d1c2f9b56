#!/usr/bin/env python3
"""The latency of one light connection among many heavy ones: p50, p99 and maximum, in milliseconds.

One server loop runs on one core. On the other core run the heavy load and the light client, which sends `GET /plaintext`
every 2 ms (`light_client.py` describes how it counts latencies, and how it gets its share of that core). Then
`heavy_client.py` measures the throughput of the slowest heavy connection, relative to the mean. Servers take turns round
by round, each started afresh. The README in this folder describes how to repeat it.

Kinds: `plaintext`, heavy connections pipeline `GET /plaintext` 256 deep; `uploads`, heavy connections upload to `/sum`
without end; `connect`, as `plaintext`, and the light client opens a new connection every 20 ms.
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE / "peers"))

import servers
from bench import load
from clients import allow_descriptors
from servers import Failure, Server

TIDEGATE = f"{servers.BUILT}/tidegate serve --listen 127.0.0.1:0 --loops 1 --quiet"
KINDS = ["plaintext", "uploads", "connect"]
DEPTH = 256
HEAVY = {"plaintext": 500, "uploads": 300, "connect": 500}
INTERVAL_SECONDS = {"plaintext": 0.002, "uploads": 0.002, "connect": 0.02}
WARM_UP_SECONDS = 1
# The heavy load runs so long before the first light request, and at least so long after the last one is due. The light
# client waits for a last answer that is later than that: its latency then includes at least the wait under load.
LEAD_SECONDS = 0.5
TAIL_SECONDS = 1
OVERTIME_SECONDS_MAX = 60
READY_SECONDS_MAX = 15


def heavy_seconds(seconds):
    """How long the heavy load has to run beside a light client that runs for `seconds`: whole seconds."""
    return math.ceil(LEAD_SECONDS + seconds + TAIL_SECONDS)


def python(core, script, *arguments):
    return ["taskset", "-c", str(core), sys.executable, str(HERE / script), *map(str, arguments)]


class LightClient:
    """The light client, connected and ready to start, a context manager."""

    def __init__(self, server, core, seconds, kind="plaintext", interval=INTERVAL_SECONDS["plaintext"]):
        arguments = ["--kind", kind, "--interval", interval, "--seconds", seconds, server.port]
        self.command = python(core, "light_client.py", *arguments)
        self.seconds_max = seconds + OVERTIME_SECONDS_MAX

    def __enter__(self):
        self.errors = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        self.process = subprocess.Popen(self.command, **pipes)
        try:
            # The client's own deadline is that of its first answer.
            word, _, self.priority = self.process.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise self.failed()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        servers.end(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()

    def failed(self):
        code = self.process.wait(READY_SECONDS_MAX)
        self.errors.seek(0)
        return Failure(self.errors.read().strip()[-300:] or f"the light client ended with {code}")

    def run(self):
        """Runs the client to its end; returns its output."""
        try:
            output, _ = self.process.communicate("\n", timeout=self.seconds_max)
        except subprocess.TimeoutExpired:
            raise Failure(f"the light client has not ended in {self.seconds_max} seconds") from None
        if self.process.returncode != 0:
            raise self.failed()
        return json.loads(output)


def beside(server, heavy, core, seconds, kind="plaintext", interval=INTERVAL_SECONDS["plaintext"]):
    """Runs the light client together with the command `heavy`, which starts first and has to outlast it, or alone.
    Returns the output of the light client with its priority, and the exit code and the output of `heavy`."""
    with LightClient(server, core, seconds, kind, interval) as light, tempfile.TemporaryFile("w+") as output:
        if not heavy:
            return light.run() | {"priority": light.priority}, 0, ""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(["taskset", "-c", str(core), *heavy], **pipes)
        try:
            time.sleep(LEAD_SECONDS)
            found = light.run() if process.poll() is None else None
            code = process.wait(heavy_seconds(seconds) + OVERTIME_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Failure("the heavy load has not ended") from None
        finally:
            servers.end(process)
        output.seek(0)
        text = output.read()
    if found is None:
        raise Failure(f"the heavy load ended with {code} before the light client started: {text.strip()[-300:]}")
    return found | {"priority": light.priority}, code, text


def heavy_command(server, options, seconds):
    if options.kind == "uploads":
        arguments = ["--kind", "uploads", "--connections", options.heavy, "--seconds", seconds - 1, "--batches", 0, server.port]
        return python(options.load_core, "heavy_client.py", *arguments)
    work = load.Work("/plaintext", DEPTH, options.heavy)
    return options.generator.command(f"http://127.0.0.1:{server.port}", work, seconds)


def measure(server, options):
    """One round of one server: {figure: number}, times in milliseconds."""
    if options.heavy and options.kind != "uploads":
        load.run(options.generator, server, options.load_core, load.Work("/plaintext", DEPTH, options.heavy), WARM_UP_SECONDS)
    heavy = heavy_command(server, options, heavy_seconds(options.seconds)) if options.heavy else None
    kind = "connect" if options.kind == "connect" else "plaintext"
    interval = options.interval / 1000 if options.interval else INTERVAL_SECONDS[options.kind]
    light, code, output = beside(server, heavy, options.load_core, options.seconds, kind, interval)
    found = {name: light["scheduled"][key] / 1000 for name, key in [("p50", "50"), ("p99", "99"), ("max", "max")]}
    found |= {f"sent {name}": light["sent"][key] / 1000 for name, key in [("p50", "50"), ("p99", "99")]}
    found |= {"late p99": light["late"].get("99", 0) / 1000}
    found |= {"count": light["scheduled"]["count"], "sent": light["sent"]["count"], "priority": light["priority"]}
    if not heavy:
        return found
    if options.kind == "uploads":
        if code != 0:
            raise Failure(output.strip()[-300:])
        found["MiB/s"] = load.json_object(output)["per_second"] / (1 << 20)
    else:
        figures = load.figures_of(options.generator, code, output)
        found["heavy k/s"] = figures["requests"] / figures["seconds"] / 1000
    if options.fairness_seconds:
        found |= fairness(server, options)
    return found


def fairness(server, options):
    """The throughput of the slowest heavy connection relative to the mean: median and minimum over windows."""
    kind = "uploads" if options.kind == "uploads" else "plaintext"
    seconds = options.fairness_seconds
    command = python(options.load_core, "heavy_client.py", "--kind", kind, "--connections", options.heavy)
    code, output = servers.complete([*command, "--seconds", str(seconds), str(server.port)], seconds + OVERTIME_SECONDS_MAX)
    if code != 0:
        raise Failure(output.strip()[-300:])
    slowest = [window["slowest"] for window in load.json_object(output)["windows"]]
    return {"slowest/mean": statistics.median(slowest), "worst window": min(slowest)}


def shown(number):
    return f"{number:.2f}" if number < 100 else f"{number:,.0f}"


def print_table(rows):
    """Medians over the rounds, and of the maximum the largest."""
    columns = [key for key in next(iter(rows.values()))[0] if key != "priority"]
    reduce = {"max": max, "worst window": min}
    width = max(map(len, rows)) + 2
    print("\n" + " " * width + "".join(f"{column:>14}" for column in columns))
    for name, found in rows.items():
        numbers = (reduce.get(key, statistics.median)(each[key] for each in found) for key in columns)
        print(f"{name:{width}}" + "".join(f"{shown(number):>14}" for number in numbers))


def commands_from(entries):
    """{name: command} of `NAME=COMMAND` or `COMMAND`, which is named by its position and its program."""
    chosen = {}
    for place, entry in enumerate(entries or [f"tidegate={TIDEGATE}"], 1):
        name, given, command = entry.partition("=")
        if not given or not re.fullmatch(r"[\w.-]+", name):
            name, command = f"{place} {os.path.basename(entry.split()[0])}", entry
        if name in chosen:
            raise Failure(f"two servers are named {name}")
        chosen[name] = command
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", metavar="[NAME=]COMMAND", help="repeatable")
    parser.add_argument("--kind", choices=KINDS, default="plaintext")
    parser.add_argument("--heavy", type=int, metavar="N", help="heavy connections; 0 measures the light client alone")
    parser.add_argument("--interval", type=float, metavar="MS", help="between light requests; 2, and 20 for `connect`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of light requests for each figure")
    parser.add_argument("--fairness-seconds", type=int, default=3, metavar="N", help="windows of a second or longer; 0 skips the fairness")
    parser.add_argument("--generator", choices=load.GENERATORS, default="tidegate", help="makes the heavy load")
    parser.add_argument("--load-program", type=pathlib.Path, help="another build of tidegate to make the load with")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--json", action="store_true", help="print one line of JSON with the figures of all rounds")
    options = parser.parse_args()
    if min(options.rounds, options.seconds) < 1 or (options.interval is not None and options.interval <= 0):
        parser.error("rounds, seconds and the interval are positive")
    options.heavy = HEAVY[options.kind] if options.heavy is None else options.heavy
    allow_descriptors(options.heavy)
    program = [options.load_program] if options.load_program and options.generator == "tidegate" else []
    options.generator = load.GENERATORS[options.generator](*program)

    commands = commands_from(options.server)
    rows = {name: [] for name in commands}
    for number in range(1, options.rounds + 1):
        for name, command in commands.items():
            with Server(command, core=options.server_core) as server:
                found = measure(server, options)
            rows[name].append(found)
            texts = (f"{key} {each if isinstance(each, str) else shown(each)}" for key, each in found.items())
            print(f"round {number}: {name}: {', '.join(texts)}", file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"measure": "light", "kind": options.kind, "heavy": options.heavy, "servers": rows}))
    else:
        print_table(rows)


if __name__ == "__main__":
    servers.run(main)
