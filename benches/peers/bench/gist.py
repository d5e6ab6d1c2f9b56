"""The gist of the measurements, for the README: a few figures of each peer's best variant."""

from typing import NamedTuple

from . import figures, parts


class Column(NamedTuple):
    job: str
    key: str
    title: str
    unit: str
    # The figure of each peer's best variant; peers without a figure are left out.
    medians: dict


class Row(NamedTuple):
    peer: str
    label: str
    tone: str


COLUMNS = [
    ("plaintext-256", "cpu", "CPU, 256 deep", "seconds per million requests"),
    ("plaintext-16", "cpu", "CPU, 16 deep", "seconds per million requests"),
    ("plaintext-1", "cpu", "CPU, not pipelined", "seconds per million requests"),
    ("idle", "each", "Idle connection", "bytes each, of {idle:,}"),
    ("stuck", "each", "Connection that never reads", "bytes each, of {stuck:,}"),
]

# Both columns of a job are of the variant with the lowest p99.
LIGHT_COLUMNS = [
    ("light-256", "light_50", "p50, 256 heavy", "milliseconds"),
    ("light-256", "light_99", "p99, 256 heavy", "milliseconds"),
    ("light-500", "light_50", "p50, 500 heavy", "milliseconds"),
    ("light-500", "light_99", "p99, 500 heavy", "milliseconds"),
]
LIGHT_CHOSEN_BY = "light_99"

# Ordered by the most common case: a few requests at a time.
ORDER = "plaintext-16"


def columns(results, among=COLUMNS, chosen_by=None):
    """Those of which something was measured. A peer's variant is the best by the column's figure, or by `chosen_by`."""
    groups = variants(results)
    found = []
    for job, key, title, unit in among:
        medians = {}
        for peer, names in groups.items():
            variant = figures.best(results, job, chosen_by or key, names)
            if variant:
                medians[peer] = figures.summed_up(results, job, variant, key).median
        if medians:
            settings = parts.of_job(results, job)["settings"]
            found.append(Column(job, key, title, unit.format(**settings), medians))
    return found


def rows(results, among):
    """Every peer with a figure in one of the columns, the best first and the floor last."""
    order = next((column for column in among if column.job == ORDER), among[0])
    found = []
    for peer, names in variants(results).items():
        if any(peer in column.medians for column in among):
            tone = figures.tone(results, names[0])
            title = results["peers"][names[0]]["peer_title"]
            found.append(Row(peer, f"{title} (parses nothing)" if tone == "floor" else title, tone))
    return sorted(found, key=lambda row: (row.tone == "floor", order.medians.get(row.peer, float("inf"))))


def variants(results):
    """{peer: its variants}, in the order in which they were measured."""
    groups = {}
    for variant, entry in results["peers"].items():
        groups.setdefault(entry["peer"], []).append(variant)
    return groups
