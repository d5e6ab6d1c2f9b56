"""Runs one load against one server and reads its results: with `tidegate load`, or with wrk as a cross-check.

Both send the same requests, with the fields that public comparisons send, and both give the same plain data.
An error in a load (a refused connection, a wrong status or length, a timeout) is a `Failure`, never a figure.
"""

import json
from typing import NamedTuple

from servers import BUILT, Failure, complete

from . import ROOT

ANSWER_SECONDS_MAX = 10
OVERTIME_SECONDS_MAX = 60
SCRIPT = ROOT / "benches/load.lua"
PROGRAM = BUILT / "tidegate"
# As in `load.lua`.
FIELDS = [
    "Host: localhost",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Connection: keep-alive",
]
PERCENTILES = ["50", "90", "99", "99.9"]


class Work(NamedTuple):
    """The target, the number of connections, and the requests in flight on each; with a body it is a POST."""

    target: str
    depth: int
    connections: int
    body_bytes: int = 0


class Tidegate:
    """`tidegate load`, which checks the status and the length of every response."""

    name = "tidegate"

    def __init__(self, program=PROGRAM):
        self.program = program

    def command(self, url, work, seconds):
        command = [str(self.program), "load", "-t", "1", "-c", str(work.connections), "-d", f"{seconds}s"]
        command += ["--timeout", f"{ANSWER_SECONDS_MAX}s", "--pipeline", str(work.depth), "--json", "-"]
        command += [part for field in FIELDS for part in ("-H", field)]
        if work.body_bytes:
            command += ["--method", "POST", "--body", "x" * work.body_bytes]
        return command + [url + work.target]

    def read(self, output):
        result = json_object(output)
        errors = {kind: count for kind, count in result["errors"].items() if count}
        figures = {
            "requests": result["requests"],
            "seconds": result["seconds"],
            "latency_max": result["latency"]["max"],
            **{f"latency_{each}": result["latency"]["percentiles"].get(each) for each in PERCENTILES},
        }
        return figures, errors


class Wrk:
    """wrk, with the script that pipelines."""

    name = "wrk"

    def command(self, url, work, seconds):
        command = ["wrk", "--threads", "1", "--connections", str(work.connections), "--duration", f"{seconds}s"]
        command += ["--timeout", f"{ANSWER_SECONDS_MAX}s", "--script", str(SCRIPT), f"{url}/", "--", str(work.depth)]
        return command + [work.target] + ([str(work.body_bytes)] if work.body_bytes else [])

    def read(self, output):
        lines = dict(line.split(" ", 1) for line in output.splitlines() if line.startswith("load-"))
        result, latency = json.loads(lines["load-result"]), json.loads(lines["load-latency"])
        figures = {
            "requests": result.pop("requests"),
            "seconds": latency["seconds"],
            "latency_max": latency["max"],
            # With pipelining, wrk's percentiles are wrong, and it prints 0.
            **{f"latency_{each}": latency[each] or None for each in PERCENTILES},
        }
        return figures, {kind: count for kind, count in result.items() if count}


GENERATORS = {"tidegate": Tidegate, "wrk": Wrk}


def json_object(output):
    """The JSON object in an output with other lines."""
    decoder = json.JSONDecoder()
    start = 0 if output.startswith("{") else output.index("\n{") + 1
    return decoder.raw_decode(output, start)[0]


def run(generator, server, core, work, seconds):
    """Loads a server for so long; returns requests, seconds and latencies in microseconds."""
    command = generator.command(f"http://127.0.0.1:{server.port}", work, seconds)
    code, output = complete(["taskset", "-c", str(core), *command], seconds + OVERTIME_SECONDS_MAX)
    return figures_of(generator, code, output)


def figures_of(generator, code, output):
    """The figures of a load that ended with `code` and printed `output`."""
    try:
        figures, errors = generator.read(output)
    except (KeyError, ValueError):
        raise Failure(f"{generator.name} ended with {code}: {output.strip()[-300:] or 'it said nothing'}") from None
    if errors:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in errors.items())
        raise Failure(f"errors beside {figures['requests']:,} answers: {counts}")
    if not figures["requests"]:
        raise Failure("no request was answered")
    if code != 0:
        raise Failure(f"{generator.name} ended with {code}")
    return figures
