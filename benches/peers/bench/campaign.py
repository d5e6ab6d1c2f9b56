"""Lets servers take turns, round by round, and stores the results of each as plain data.

A round runs one job after the other, and each job with all servers in a row: compared figures are a minute or two apart,
and a longer slowdown of the machine affects both sides of a ratio. The order is random each time, so that no server
always follows the same one.
"""

import contextlib
import datetime
import os
import platform
import random

import light
from servers import Failure, complete

from . import ROOT, units
from . import jobs as work

FORMAT = 1
REASON_CHARACTERS_MAX = 300
GIT_SECONDS_MAX = 30


def machine():
    """The kind of this machine, without its identity."""
    with open("/proc/cpuinfo") as cpuinfo:
        models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    with open("/proc/meminfo") as meminfo:
        memory = next(int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemTotal:"))
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "memory_bytes": memory,
    }


def revision():
    """The commit that is checked out, with a `+` if tracked files differ from it; an empty text without git."""
    try:
        code, output = complete(["git", "describe", "--always", "--dirty=+", "--exclude", "*"], GIT_SECONDS_MAX, ROOT)
    except OSError:
        return ""
    return output.strip() if code == 0 else ""


def description(variants, skipped, chosen_jobs, options):
    """The description of a run, without figures."""
    settings = {
        "rounds": options.rounds,
        "memory_rounds": options.memory_rounds,
        "seconds": options.seconds,
        "connections": options.connections,
        "idle": options.crowds["idle"],
        "stuck": options.crowds["stuck"],
        "generator": options.generator.name,
        "server_core": options.server_core,
        "load_core": options.load_core,
        "seed": options.seed,
    }
    if any(job.is_light for job in chosen_jobs):
        settings["light_interval_milliseconds"] = round(light.INTERVAL_SECONDS["plaintext"] * 1000)
    kept = ("title", "peer", "peer_title", "language", "configured", "collected", "parses_headers")
    kept += ("warm_up_seconds",)
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "revision": revision(),
        "settings": settings,
        "jobs": {job.name: job.title for job in chosen_jobs},
        "peers": {
            variant.name: {key: getattr(variant, key) for key in kept}
            | {key: without_root(getattr(variant, key)) for key in ("command", "version")}
            for variant in variants
        },
        "skipped": [dict(entry, reason=reason(entry["reason"])) for entry in skipped],
        "without": [
            {"peer": variant.name, "job": job.name, "reason": variant.why_without}
            for variant in variants
            for job in chosen_jobs
            if leaves_out(variant, job)
        ],
        "runs": [],
    }


def readable(results):
    """Stored results, if they have this format."""
    if results.get("format") != FORMAT:
        raise Failure(f"these results are of form {results.get('format')}; this draws form {FORMAT}: measure again")
    return results


def leaves_out(variant, job):
    """Finds jobs by name or prefix: `echo` is `echo-4096`."""
    return job.name in variant.without or job.name.partition("-")[0] in variant.without


def play(results, variants, chosen_jobs, options, say, save):
    """Runs all rounds; adds each figure to `results["runs"]` and calls `save` after each round."""
    loads, crowds = ([job for job in chosen_jobs if kind(job)] for kind in (lambda job: job.work, lambda job: job.crowd))

    def turns(number, jobs):
        for job in jobs:
            order = [variant for variant in variants if not leaves_out(variant, job)]
            random.Random(f"{options.seed} {number} {job.name}").shuffle(order)
            yield from ((job, variant) for variant in order)

    def take(number, job, variant, measured):
        try:
            outcome = {"figures": measured()}
            said = summary(outcome["figures"])
        except (Failure, OSError) as failure:
            outcome = {"failure": reason(failure)}
            said = f"FAILED: {outcome['failure']}"
        results["runs"].append({"round": number, "peer": variant.name, "job": job.name, **outcome})
        say(f"round {number}/{options.rounds}  {variant.name:23}  {job.name:13}  {said}")

    for number in range(1, options.rounds + 1):
        with Servers(options) as servers:
            for job, variant in turns(number, loads):
                take(number, job, variant, lambda: servers.measure(variant, job))
        for job, variant in turns(number, crowds if number <= options.memory_rounds else []):
            take(number, job, variant, lambda: work.measure_crowd(variant, job, options))
        save(results)


class Servers:
    """The servers of one round, a context manager: each starts at its first measurement, and is stopped during others."""

    def __init__(self, options):
        self.options = options
        self.servers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.ExitStack() as stack:
            for server in self.servers.values():
                stack.push(server)

    def measure(self, variant, job):
        """After a failure the server starts afresh, so that later figures are unaffected."""
        warm_up_seconds = self.options.warm_up or variant.warm_up_seconds
        server = self.servers.pop(variant.name, None)
        if server:
            warm_up_seconds *= work.LATER_WARM_UP_SHARE
            server.go_on()
        else:
            server = work.started(variant, self.options.server_core).__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(server)
            figures = work.measure_load(server, job, self.options, warm_up_seconds)
            server.hold()
            stack.pop_all()
        self.servers[variant.name] = server
        return figures


def reason(failure):
    """A failure as one line of bounded length."""
    text = " ".join(without_root(str(failure) or type(failure).__name__).split())
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}…"


def without_root(text):
    """Removes the path of the repository, which must not be published."""
    return text.replace(f"{ROOT}/", "")


def summary(figures):
    if "light_99" in figures:
        times = ", ".join(f"{label} {units.time(figures[key])}" for label, key in units.LIGHT)
        return f"light {times}  {figures['requests_per_second']:10,.0f}/s beside it"
    if "cpu" in figures:
        latency = f"slowest {units.time(figures['latency_max'])}"
        return f"{figures['cpu']:8.4f} s/M  {figures['requests_per_second']:10,.0f}/s  {latency}"
    heap = f"  heap {figures['heap_each']:,} B each" if "heap_each" in figures else ""
    return f"{figures['resident_each']:,} B each{heap}"
