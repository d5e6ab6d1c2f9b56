"""Lets servers take turns, round after round, and keeps what each came to as plain data.

Ratios are taken within a round, so what slows the machine down for a while slows down both sides of them. Each round
begins with another server, so that none is always measured after the same one.
"""

import datetime
import os
import platform

from servers import Failure

from . import ROOT, units
from . import jobs as work

FORMAT = 1
REASON_CHARACTERS_MAX = 300


def machine():
    """What kind of machine this is; not which one."""
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


def description(variants, skipped, chosen_jobs, options):
    """What there is to know of a run before its first figure."""
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
    }
    kept = ("title", "peer", "peer_title", "language", "configured", "collected", "parses_headers")
    kept += ("warm_up_seconds",)
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
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


def leaves_out(variant, job):
    """A job is named as a whole or by what its name begins with: `echo` is `echo-4096`."""
    return job.name in variant.without or job.name.partition("-")[0] in variant.without


def play(results, variants, chosen_jobs, options, say, save):
    """Plays all rounds; adds each figure to `results["runs"]` and calls `save` after each round."""
    for number in range(1, options.rounds + 1):
        for place in range(len(variants)):
            variant = variants[(place + number - 1) % len(variants)]
            wanted = [job for job in chosen_jobs if not leaves_out(variant, job)]

            def record(job, figures=None, failure=None):
                outcome = {"figures": figures} if figures else {"failure": reason(failure)}
                results["runs"].append({"round": number, "peer": variant.name, "job": job.name, **outcome})
                said = summary(figures) if figures else f"FAILED: {outcome['failure']}"
                say(f"round {number}/{options.rounds}  {variant.name:23}  {job.name:13}  {said}")

            measure_loads(variant, [job for job in wanted if job.work], options, record)
            if number <= options.memory_rounds:
                measure_crowds(variant, [job for job in wanted if job.crowd], options, record)
        save(results)


def measure_loads(variant, waiting, options, record):
    """One server for all loads. What a failure leaves behind is not measured: after it, the next one starts afresh."""
    seconds = options.warm_up or variant.warm_up_seconds
    waiting = list(waiting)
    while waiting:
        begun = False
        try:
            with work.started(variant, options.server_core) as server:
                begun, warm_up_seconds = True, seconds
                while waiting:
                    figures = work.measure_load(server, waiting[0], options, warm_up_seconds)
                    record(waiting.pop(0), figures)
                    warm_up_seconds = seconds * work.LATER_WARM_UP_SHARE
        except (Failure, OSError) as failure:
            # A server that does not start once will not start for the other jobs either.
            failed = 1 if begun else len(waiting)
            for job in waiting[:failed]:
                record(job, failure=failure)
            del waiting[:failed]


def measure_crowds(variant, waiting, options, record):
    for job in waiting:
        try:
            record(job, work.measure_crowd(variant, job, options))
        except (Failure, OSError) as failure:
            record(job, failure=failure)


def reason(failure):
    """A failure in one line, not too long a one."""
    text = " ".join(without_root(str(failure) or type(failure).__name__).split())
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}…"


def without_root(text):
    """Where the repository lies is nobody's concern."""
    return text.replace(f"{ROOT}/", "")


def summary(figures):
    if "cpu" in figures:
        latency = f"slowest {units.time(figures['latency_max'])}"
        return f"{figures['cpu']:8.4f} s/M  {figures['requests_per_second']:10,.0f}/s  {latency}"
    heap = f"  heap {figures['heap_each']:,} B each" if "heap_each" in figures else ""
    return f"{figures['resident_each']:,} B each{heap}"
