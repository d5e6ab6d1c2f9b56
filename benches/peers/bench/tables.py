"""Writes what was measured as Markdown."""

from . import figures, gist, units

LATENCIES = [("p50", "latency_50"), ("p90", "latency_90"), ("p99", "latency_99"), ("p99.9", "latency_99.9")]
LATENCIES += [("max", "latency_max")]
UNDER_WAY_SHARE_TOLD = 0.01
TO = {"rival": "the best peer that parses headers", "netty": "Netty's best", "floor": "the floor"}


def markdown(results):
    parts = [heading(results), aims(results)]
    for job, title in results["jobs"].items():
        parts.append(crowd_table(results, job, title) if job in ("idle", "stuck") else load_table(results, job, title))
    parts.append(configurations(results))
    return "\n\n".join(part for part in parts if part)


def conditions(results):
    """Where and how it was measured, in sentences."""
    machine, settings = results["machine"], results["settings"]
    cores = f"{machine['cores']} core{'s' if machine['cores'] != 1 else ''}"
    generator = {"tidegate": "`tidegate load`", "wrk": "wrk"}[settings["generator"]]
    return [
        f"{results['date']}; {machine['cpu']}, {cores}, {machine['memory_bytes'] / (1 << 30):.0f} GiB, "
        f"Linux {machine['kernel']}.",
        f"{count(settings['rounds'], 'interleaved round')} of {settings['seconds']} s a figure; server pinned to core "
        f"{settings['server_core']}, load to core {settings['load_core']}; {settings['connections']} connections, "
        f"made by {generator}.",
    ]


def count(number, noun):
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def heading(results):
    return "\n".join(["# Side by side", "", *conditions(results)]) + (
        "\n\nFigures are medians over the rounds, with the least and the most of them; ratios are medians of the ratios "
        "within each round. Less is better everywhere but in requests a second."
    )


def table(headings, rows, left=1):
    """Columns after the first `left` are numbers, and stand on the right."""
    rule = ["---"] * left + ["--:"] * (len(headings) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in [headings, rule, *rows])


def with_spread(key, figure):
    if figure is None:
        return "–"
    if figure.rounds == 1:
        return units.shown(key, figure.median)
    return f"{units.shown(key, figure.median)} ({units.shown(key, figure.low)}..{units.shown(key, figure.high)})"


def name(results, peer):
    title = results["peers"][peer]["title"]
    return f"**{title}**" if figures.tone(results, peer) == "ours" else title


def aims(results):
    rows = []
    for row in figures.aims(results):
        cells = {check["to"]: aim_cell(results, check) for check in row["checks"]}
        ours = "–"
        if row["ours"]:
            ours = f"{results['peers'][row['ours']]['title']}: {units.shown(row['key'], row['figure'].median)}"
        rows.append([row["title"], ours] + [cells.get(to, "") for to in TO])
    headings = ["figure to reach", "ours, at its best"] + [f"to {whom}" for whom in TO.values()]
    return "## Figures to reach\n\n" + table(headings, rows, left=2)


def aim_cell(results, check):
    if check["reached"] is None:
        return f"not measured ({units.aim(check['aim'])})"
    if check["ratio"] is None:
        return f"{results['peers'][check['peer']]['title']} costs nothing ({units.aim(check['aim'])}): **missed**"
    whose = f" of {results['peers'][check['peer']]['title']}" if check["to"] != "floor" else ""
    verdict = "reached" if check["reached"] else "**missed**"
    return f"{units.ratio_beside(check['ratio'].median, check['aim'])}{whose}, {units.aim(check['aim'])}: {verdict}"


def aims_text(results):
    """The same for a terminal."""
    lines = []
    for row in figures.aims(results):
        for check in row["checks"]:
            found = "     -" if check["ratio"] is None else f"{units.ratio_beside(check['ratio'].median, check['aim']):>6}"
            verdict = {None: "not measured", True: "reached", False: "MISSED"}[check["reached"]]
            lines.append(f"{row['title']:38}{'to ' + TO[check['to']]:38}{found}  {units.aim(check['aim']):8}  {verdict}")
    return "\n".join(lines)


def summary(results):
    """The gist, as the README has it."""
    columns = gist.columns(results)
    if not columns:
        return "Nothing was measured."
    rows = []
    for row in gist.rows(results, columns):
        medians = [column.medians.get(row.peer) for column in columns]
        cells = ["–" if number is None else units.shown(column.key, number) for column, number in zip(columns, medians)]
        rows.append([f"**{cell}**" for cell in (row.label, *cells)] if row.tone == "ours" else [row.label, *cells])
    settings = results["settings"]
    said = (
        f"CPU seconds per million requests on {settings['connections']} connections, and bytes for each of "
        f"{settings['idle']:,} idle connections and of {settings['stuck']:,} that never read. Each server at its best; "
        f"medians of {count(settings['rounds'], 'round')}; {results['machine']['cpu']}, {results['date'][:10]}."
    )
    return said + "\n\n" + table(["server", *[column.title for column in columns]], rows)


def load_table(results, job, title):
    references = figures.references(results, job, "cpu")
    headings = ["server", "CPU s per million", "user", "system"] + [f"to {whom}" for whom, _ in references]
    headings += ["requests a second"] + [label for label, _ in LATENCIES]
    rows = []
    for peer, cost in figures.ranked(results, job, "cpu", results["peers"]):
        cells = [name(results, peer), with_spread("cpu", cost)]
        cells += [median(results, job, peer, key) for key in ("cpu_user", "cpu_system")]
        cells += [ratio_cell(results, job, peer, "cpu", other) for _, other in references]
        cells += [median(results, job, peer, key) for key in ["requests_per_second"] + [key for _, key in LATENCIES]]
        rows.append(cells)
    return section(results, job, title, table(headings, rows) + under_way(results, job))


def under_way(results, job):
    """What is not counted of servers that answer few requests while a load lasts."""
    shares = {}
    for peer in results["peers"]:
        figures_of_rounds = (figures.rounds(results, job, peer, key) for key in ("under_way_max", "requests"))
        share = figures.ratio(*figures_of_rounds)
        if share and share.median > UNDER_WAY_SHARE_TOLD:
            shares[results["peers"][peer]["title"]] = f"{100 * share.median:.0f} %"
    if not shares:
        return ""
    listed = ", ".join(f"{title} {share}" for title, share in shares.items())
    return f"\n\nRequests under way when a load ended, paid for at least in part and not counted, were at most: {listed}."


def crowd_table(results, job, title):
    number = results["settings"][job]
    what = "that made one request each" if job == "idle" else "that ask 256 times for 16 KiB and never read"
    references = figures.references(results, job, "each")
    headings = ["server", "bytes each" if job == "idle" else "growth each"] + [f"to {whom}" for whom, _ in references]
    headings += ["resident, each", "live heap, each"] + (["slowest answer beside them"] if job == "stuck" else [])
    rows = []
    for peer, each in figures.ranked(results, job, "each", results["peers"]):
        cells = [name(results, peer), with_spread("each", each)]
        cells += [ratio_cell(results, job, peer, "each", other) for _, other in references]
        cells += [median(results, job, peer, key) for key in ("resident_each", "heap_each")]
        if job == "stuck":
            slowest = figures.summed_up(results, job, peer, "slowest_probe_milliseconds")
            cells.append(f"{slowest.high:.0f} ms" if slowest else "–")
        rows.append(cells)
    said = f"{count(number, 'connection')} {what}: growth of resident memory"
    said += "; for collected runtimes, of the live heap." if job == "idle" else "."
    return section(results, job, title, said + "\n\n" + table(headings, rows))


def section(results, job, title, body):
    return "\n\n".join(filter(None, [f"## {title[0].upper()}{title[1:]}", body, missing_lines(results, job)]))


def median(results, job, peer, key):
    figure = figures.summed_up(results, job, peer, key)
    return units.shown(key, figure.median) if figure else "–"


def ratio_cell(results, job, peer, key, other):
    found = figures.ratio(figures.rounds(results, job, peer, key), figures.rounds(results, job, other, key))
    return units.ratio(found.median) if found else "–"


def missing(results, job):
    """Who has no figure, or fewer than the others, and why: [(title, what is said)]."""
    lines = []
    for peer in results["peers"]:
        for reason, rounds in figures.failures(results, job, peer):
            said = f"no figure in {count(rounds, 'round')}: {reason}" if rounds else f"not measured: {reason}"
            lines.append((results["peers"][peer]["title"], said))
    return lines


def missing_lines(results, job):
    return "\n".join(f"- {title}: {said}" for title, said in missing(results, job))


SERVER_HEADINGS = ["server", "language", "version", "measured as", "how it is configured"]


def server_rows(results):
    """A row for each peer, or for each way in which its variants are configured."""
    groups = {}
    for peer in results["peers"].values():
        key = (peer["peer_title"], peer["language"], peer["version"], peer["configured"])
        groups.setdefault(key, []).append(peer["title"])
    return [[*key[:3], "; ".join(titles), key[3]] for key, titles in groups.items()]


def configurations(results):
    rows = [[cell.replace("|", "\\|") for cell in row] for row in server_rows(results)]
    lines = ["## The servers", "", table(SERVER_HEADINGS, rows, left=len(SERVER_HEADINGS))]
    lines += [""] + [f"- {entry['title']} is skipped: {entry['reason']}" for entry in results["skipped"]]
    return "\n".join(lines).strip()
