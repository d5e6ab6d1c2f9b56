"""The jobs, and the measurement of one server at one job: plain figures, or a `Failure` with the reason."""

import contextlib
import socket
from typing import NamedTuple, Optional

import light
import memory
from clients import fetch
from servers import Failure, Server

from . import ROOT, load

CHECK_SECONDS_MAX = 5
# Beyond this share of free memory, a growing server is stopped.
RESIDENT_SHARE_MAX = 0.5
# The warm-up before each further job on a running server.
LATER_WARM_UP_SHARE = 0.25
# Before connections are counted, a runtime that compiles is warmed up by so few that its pools and its garbage stay small.
CROWD_WARM_UP_CONNECTIONS = 16
# Heavy connections beside the light one, regardless of `--connections`: the jobs are named after them.
HEAVY_CONNECTIONS = (256, 500)
HEAVY_DEPTH = 256
# A server that fills its memory for never-reading connections may delay others; the report has the longest wait.
PROBE_ANSWER_SECONDS_MAX = 10.0


class Job(NamedTuple):
    """One measurement of every server: a load, a light connection during a load, or the memory of connections."""

    name: str
    title: str
    work: Optional[load.Work] = None
    crowd: Optional[str] = None
    target: str = ""
    answer_bytes: int = 13
    is_light: bool = False


class Crowd(NamedTuple):
    """The number and kind of connections, as in `memory`."""

    connections: int
    collected: bool
    answer_seconds_max: float = PROBE_ANSWER_SECONDS_MAX


def all_jobs(connections):
    """All jobs. Loads come first: they share a server."""
    plaintext = [
        Job(f"plaintext-{depth}", title, load.Work("/plaintext", depth, connections))
        for depth, title in [(256, "plaintext, 256 deep"), (16, "plaintext, 16 deep"), (1, "plaintext, not pipelined")]
    ]
    return plaintext + [
        Job("bytes-1024", "1 KiB body, not pipelined", load.Work("/bytes/1024", 1, connections), answer_bytes=1024),
        Job("echo-4096", "POST echo of 4 KiB", load.Work("/echo", 1, connections, 4096), answer_bytes=4096),
        *(light_job(heavy) for heavy in HEAVY_CONNECTIONS),
        Job("idle", "idle connections", crowd="idle", target="/plaintext"),
        Job("stuck", "connections that never read", crowd="stuck", target=memory.STUCK_TARGET),
    ]


def light_job(heavy):
    title = f"one light connection beside {heavy} heavy ones"
    return Job(f"light-{heavy}", title, load.Work("/plaintext", HEAVY_DEPTH, heavy), is_light=True)


def started(variant, core):
    return Server(variant.command, core, directory=ROOT, resident_max=round(free_bytes() * RESIDENT_SHARE_MAX))


def free_bytes():
    with open("/proc/meminfo") as meminfo:
        return next(int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemAvailable:"))


@contextlib.contextmanager
def blaming_its_end(server):
    """Reports failures of an exited server as its exit."""
    try:
        yield
    except (Failure, OSError) as failure:
        code = server.process.poll()
        if code is None:
            raise
        raise Failure(f"the server has ended with {code}: {failure}") from None


def check(server, job):
    """Whether the server answers at all as the job needs it, and again on the same connection: what servers that send
    different things cost cannot be compared."""
    work = job.work
    body = b"x" * work.body_bytes if work.body_bytes else None
    try:
        with socket.create_connection(server.address, timeout=CHECK_SECONDS_MAX) as connection:
            answers = [fetch(connection, work.target, body) for _ in range(2)]
    except OSError as error:
        raise Failure(f"{work.target}: {error}") from None
    for answer in answers:
        if len(answer) != job.answer_bytes or (body and answer != body):
            raise Failure(f"{work.target} was answered with {len(answer)} bytes instead of {job.answer_bytes}")


def warm_up(server, work, options, seconds):
    """Warms up. Ignores failures: they will recur in the measurement."""
    try:
        load.run(options.generator, server, options.load_core, work, max(1, round(seconds)))
    except Failure:
        pass


def measure_load(server, job, options, warm_up_seconds):
    if job.is_light:
        return measure_light(server, job, options, warm_up_seconds)
    with blaming_its_end(server):
        check(server, job)
        warm_up(server, job.work, options, warm_up_seconds)
        before = server.cpu_times()
        figures = load.run(options.generator, server, options.load_core, job.work, options.seconds)
        user, system = ((now - then) / figures["requests"] * 1e6 for then, now in zip(before, server.cpu_times()))
    rate = figures["requests"] / figures["seconds"]
    figures |= {"cpu": user + system, "cpu_user": user, "cpu_system": system, "requests_per_second": rate}
    # At the end of the load the server has spent CPU time on some requests that are not counted.
    return figures | {"under_way_max": job.work.connections * job.work.depth}


def measure_light(server, job, options, warm_up_seconds):
    """Latencies of the light connection in microseconds, and the results of the heavy load."""
    url = f"http://127.0.0.1:{server.port}"
    with blaming_its_end(server):
        check(server, job)
        warm_up(server, job.work, options, warm_up_seconds)
        command = options.generator.command(url, job.work, light.heavy_seconds(options.seconds))
        found, code, output = light.beside(server, command, options.load_core, options.seconds)
        heavy = load.figures_of(options.generator, code, output)
    scheduled, sent, late = (found[key] for key in ("scheduled", "sent", "late"))
    return {
        "light_count": scheduled["count"],
        **{f"light_{each}": scheduled[each] for each in (*load.PERCENTILES, "max")},
        "light_sent": sent["count"],
        **{f"light_sent_{each}": sent[each] for each in ("50", "99")},
        "light_late_99": late.get("99"),
        "light_priority": found["priority"],
        "requests": heavy["requests"],
        "seconds": heavy["seconds"],
        "requests_per_second": heavy["requests"] / heavy["seconds"],
    }


def measure_crowd(variant, job, options):
    """Each crowd gets a fresh server; a garbage-collected one is warmed up, so that it has compiled and loaded its code."""
    crowd = Crowd(options.crowds[job.crowd], variant.collected)
    with started(variant, options.server_core) as server:
        if variant.collected:
            few = load.Work(job.target, 1, CROWD_WARM_UP_CONNECTIONS)
            warm_up(server, few, options, options.warm_up or variant.warm_up_seconds)
        with blaming_its_end(server):
            counted = getattr(memory, job.crowd)(server, crowd)
    figures = {"resident_each": counted["growth_each"], "resident_start": counted["start"]}
    if variant.collected:
        figures.update(heap_each=counted["heap_growth_each"], heap_start=counted["heap_start"])
    for name in ("probes", "slowest_probe_milliseconds"):
        if name in counted:
            figures[name] = counted[name]
    return figures
