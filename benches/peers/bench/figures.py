"""Medians, spreads and ratios of the measurements. Plain data in, plain data out, independent of the presentation.

A figure of a peer at a job is one number per round: {round: number}. A ratio is taken within each round, then the median
of those: a slowdown of the machine in a round affects both sides.
"""

import collections
import statistics
from typing import NamedTuple, Optional

OURS = "tidegate"
NETTY = "netty"


class Spread(NamedTuple):
    """The summary of several rounds."""

    median: float
    low: float
    high: float
    rounds: int


class Aim(NamedTuple):
    """The maximum of our figure as a multiple of another server's; None without a target."""

    title: str
    job: str
    key: str
    rival: Optional[float] = None
    netty: Optional[float] = None
    floor: Optional[float] = None


# `each` is the memory of a connection; see `value`.
AIMS = [
    Aim("CPU, 256 deep", "plaintext-256", "cpu", rival=0.7, netty=1 / 6, floor=2.2),
    Aim("CPU, 16 deep", "plaintext-16", "cpu", rival=0.8, netty=0.4, floor=1.22),
    Aim("CPU, not pipelined", "plaintext-1", "cpu", rival=0.92, netty=0.72, floor=1.06),
    Aim("bytes per idle connection", "idle", "each", rival=1.0, netty=1 / 6),
    Aim("growth per never-reading connection", "stuck", "each", rival=1.0, netty=1 / 4),
    Aim("maximum latency, 256 deep", "plaintext-256", "latency_max", netty=1 / 4),
    Aim("light beside 256 heavy, p50", "light-256", "light_50", rival=1.0),
    Aim("light beside 256 heavy, p99", "light-256", "light_99", rival=1.0),
    Aim("light beside 500 heavy, p50", "light-500", "light_50", rival=1.0),
    Aim("light beside 500 heavy, p99", "light-500", "light_99", rival=1.0),
]


def kind(job):
    """The kind of a job: `crowd`, `light` or `load`."""
    return "crowd" if job in ("idle", "stuck") else "light" if job.startswith("light-") else "load"


def value(job, key, figures):
    """One number of one round, or None."""
    if key == "each":
        # An idle connection of a garbage-collected runtime counts with its live memory. A never-reading connection is
        # mostly buffers outside the heap, of which a runtime may reserve more than it has touched: there the kernel's
        # count is fair.
        grown = figures.get("heap_each" if job == "idle" else "resident_each", figures.get("resident_each"))
        return None if grown is None else max(grown, 0)
    return figures.get(key)


def rounds(results, job, peer, key):
    """{round: number} of one peer at one job."""
    found = {}
    for run in results["runs"]:
        if run["job"] == job and run["peer"] == peer and "figures" in run:
            number = value(job, key, run["figures"])
            if number is not None:
                found[run["round"]] = number
    return found


def spread(numbers):
    """The spread of numbers; None if there are none."""
    numbers = list(numbers)
    if not numbers:
        return None
    return Spread(statistics.median(numbers), min(numbers), max(numbers), len(numbers))


def summed_up(results, job, peer, key):
    return spread(rounds(results, job, peer, key).values())


def ratio(own, reference):
    """The ratio of two figures, within each round that has both; None if no round has. A zero is no divisor."""
    return spread(own[number] / reference[number] for number in own if reference.get(number, 0) > 0)


def failures(results, job, peer):
    """Why rounds have no figure: [(reason, number of rounds)], including jobs that were not to be measured."""
    reasons = collections.Counter(
        run["failure"] for run in results["runs"] if run["job"] == job and run["peer"] == peer and "failure" in run
    )
    left_out = [entry for entry in results["without"] if entry["job"] == job and entry["peer"] == peer]
    return list(reasons.items()) + [(entry["reason"], 0) for entry in left_out]


def without_failures(results, job, peers):
    failed = {run["peer"] for run in results["runs"] if run["job"] == job and "failure" in run}
    return [peer for peer in peers if peer not in failed]


def without_any(results):
    """Servers without figures, and ours if one of its figures is missing: then the run has failed."""
    found = {run["peer"] for run in results["runs"] if "figures" in run}
    failed = {run["peer"] for run in results["runs"] if "failure" in run}
    ours = of_tone(results, "ours")
    return [peer for peer in results["peers"] if peer in failed and (peer in ours or peer not in found)]


def ranked(results, job, key, among, highest_first=False):
    """Those of `among` that have a figure, best first: [(peer, Spread)]."""
    found = [(peer, summed_up(results, job, peer, key)) for peer in among]
    found = [(peer, figure) for peer, figure in found if figure]
    return sorted(found, key=lambda entry: -entry[1].median if highest_first else entry[1].median)


def best(results, job, key, among):
    """The peer with the lowest median, or None."""
    order = ranked(results, job, key, among)
    return order[0][0] if order else None


def tone(results, peer):
    """The group of a peer: `ours`, `netty`, `floor` or `other`."""
    entry = results["peers"][peer]
    if not entry["parses_headers"]:
        return "floor"
    return {OURS: "ours", NETTY: "netty"}.get(entry["peer"], "other")


def of_tone(results, *tones):
    return [peer for peer in results["peers"] if tone(results, peer) in tones]


def references(results, job, key):
    """The references of a job, by which figures are divided: [(heading, peer)]."""
    nettys = of_tone(results, "netty")
    found = [("Netty's best", best(results, job, key, nettys))]
    found.append(("Netty, epoll", best(results, job, key, [peer for peer in nettys if "epoll" in peer])))
    found.append(("floor", best(results, job, key, of_tone(results, "floor"))))
    return [(heading, peer) for heading, peer in found if peer]


def aims(results):
    """Each aim with what was measured: [{"title", "key", "ours", "figure", "checks"}], where each check is {"to", "peer",
    "ratio", "aim", "reached"}.

    Ours is the best of our variants, and of the others the best of each kind; a variant that has failed in a round is not
    among them. `reached` is None where a side is missing. Aims for light jobs are left out of a run without them.
    """
    rows = []
    for aim in AIMS:
        if kind(aim.job) == "light" and aim.job not in results["jobs"]:
            continue
        ours = best(results, aim.job, aim.key, without_failures(results, aim.job, of_tone(results, "ours")))
        own = rounds(results, aim.job, ours, aim.key) if ours else {}
        checks = []
        for to, at_most, tones in [
            ("rival", aim.rival, ("netty", "other")),
            ("netty", aim.netty, ("netty",)),
            ("floor", aim.floor, ("floor",)),
        ]:
            if at_most is None:
                continue
            peer = best(results, aim.job, aim.key, without_failures(results, aim.job, of_tone(results, *tones)))
            others = rounds(results, aim.job, peer, aim.key) if peer else {}
            found = ratio(own, others)
            if found is None:
                # No figure is a multiple of zero.
                reached = False if own and others else None
            else:
                reached = found.median < at_most if at_most == 1 else found.median <= at_most
            checks.append({"to": to, "peer": peer, "ratio": found, "aim": at_most, "reached": reached})
        figure = spread(own.values())
        rows.append({"title": aim.title, "key": aim.key, "ours": ours, "figure": figure, "checks": checks})
    return rows
