"""The gist of what was measured, for the README: each peer at its best, a few figures of each."""

from typing import NamedTuple

from . import figures


class Column(NamedTuple):
    job: str
    key: str
    title: str
    unit: str
    # What each peer's best variant came to; a peer without a figure is not among them.
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

# By what most servers meet most: a few requests at a time.
ORDER = "plaintext-16"


def columns(results):
    """Those of which something was measured."""
    groups = variants(results)
    found = []
    for job, key, title, unit in COLUMNS:
        medians = {}
        for peer, among in groups.items():
            order = figures.ranked(results, job, key, among)
            if order:
                medians[peer] = order[0][1].median
        if medians:
            found.append(Column(job, key, title, unit.format(**results["settings"]), medians))
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
