"""Writes the measurements as Markdown."""

from . import figures, gist, parts, units

LATENCIES = [("p50", "latency_50"), ("p90", "latency_90"), ("p99", "latency_99"), ("p99.9", "latency_99.9")]
LATENCIES += [("max", "latency_max")]
UNDER_WAY_SHARE_TOLD = 0.01
PRIORITIES = {"fifo": "SCHED_FIFO", "nice": "nice -20", "usual": "the usual one"}
GENERATORS = {"tidegate": "`tidegate load`", "wrk": "wrk"}
TO = {"rival": "the best peer that parses headers", "netty": "Netty's best", "floor": "the floor"}


def markdown(results):
    texts = [heading(results), aims(results)]
    for job, title in results["jobs"].items():
        texts.append(TABLES[figures.kind(job)](results, job, title))
    texts.append(configurations(results))
    return "\n\n".join(text for text in texts if text)


def machine(results):
    found = results["machine"]
    memory = f"{found['memory_bytes'] / (1 << 30):.0f} GiB"
    return f"{found['cpu']}, {count(found['cores'], 'core')}, {memory}, Linux {found['kernel']}"


def conditions(results):
    """Where and how it was measured, in sentences."""
    settings = results["settings"]
    generator = GENERATORS[settings["generator"]]
    return [
        f"{results['date']}; {machine(results)}.",
        f"{count(settings['rounds'], 'interleaved round')} of {settings['seconds']} s a figure; server pinned to core "
        f"{settings['server_core']}, load to core {settings['load_core']}; {settings['connections']} connections, "
        f"made by {generator}.",
    ]


def part_conditions(results):
    """For each run from which jobs were added: what it measured, where and how, and what differs from the other run."""
    found = []
    for part in results.get("parts", []):
        titles = ", ".join(f"“{title}”" for title in part["jobs"].values())
        settings = part["settings"]
        said = f"From another run: {titles}. {part['date']}"
        if part.get("revision"):
            said += f", commit {part['revision']}"
        if machine(part) != machine(results):
            said += f"; {machine(part)}"
        said += f"; {count(settings['rounds'], 'interleaved round')} of {settings['seconds']} s a figure; load made by "
        said += f"{GENERATORS[settings['generator']]}."
        changed = parts.differences(results, part)
        found.append(said + (f" In that run {'; '.join(changed)}." if changed else ""))
    return found


def origin(results, job):
    """One sentence on a job that was added from another run; an empty text for the others."""
    part = parts.of_job(results, job)
    return "" if part is results else f"From the run of {part['date']}."


def count(number, noun):
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def heading(results):
    added = "".join(f"\n\n{text}" for text in part_conditions(results))
    return "\n".join(["# Side by side", "", *conditions(results)]) + added + (
        "\n\nFigures are medians over the rounds, with the least and the most of them; ratios are medians of the ratios "
        "within each round. Less is better everywhere but in requests a second."
    )


def table(headings, rows, left=1):
    """Columns after the first `left` are numbers, and are right-aligned."""
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
    """The gist, as `summary.md` has it."""
    texts = []
    if columns := gist.columns(results):
        settings = results["settings"]
        idle, stuck = (parts.of_job(results, job)["settings"][job] for job in ("idle", "stuck"))
        texts.append(
            f"CPU seconds per million requests on {settings['connections']} connections, and bytes for each of "
            f"{idle:,} idle connections and of {stuck:,} that never read. Each server at its best; "
            f"medians of {count(settings['rounds'], 'round')}; {results['machine']['cpu']}, {results['date'][:10]}."
        )
        texts += [origins(results, columns, results), gist_table(results, columns)]
    if columns := gist.columns(results, gist.LIGHT_COLUMNS, gist.LIGHT_CHOSEN_BY):
        part = parts.of_job(results, columns[0].job)
        settings = part["settings"]
        texts.append(
            "Latency of one light connection, which sends `GET /plaintext` every "
            f"{settings['light_interval_milliseconds']} ms, beside heavy connections that pipeline it 256 deep. Latencies "
            "start at the scheduled send time. Each server with the variant that has the lowest p99; "
            f"medians of {count(settings['rounds'], 'round')} of {settings['seconds']} s; {part['machine']['cpu']}, "
            f"{part['date'][:10]}."
        )
        texts += [origins(results, columns, part), gist_table(results, columns)]
    texts = list(filter(None, texts)) or ["Nothing was measured."]
    return "\n\n".join(["# The main figures", *texts])


def origins(results, columns, named):
    """Which columns of the gist are from another run than the one that the text names."""
    found = [(column.title, parts.of_job(results, column.job)) for column in columns]
    return " ".join(f"“{title}” is from the run of {part['date']}." for title, part in found if part is not named)


def gist_table(results, columns):
    rows = []
    for row in gist.rows(results, columns):
        medians = [column.medians.get(row.peer) for column in columns]
        cells = ["–" if number is None else units.shown(column.key, number) for column, number in zip(columns, medians)]
        rows.append([f"**{cell}**" for cell in (row.label, *cells)] if row.tone == "ours" else [row.label, *cells])
    return table(["server", *[column.title for column in columns]], rows)


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
    """The note on servers that answer few requests during a load: which of their requests are not counted."""
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


LIGHT_HEADINGS = ["p50 of sent", "p99 of sent", "sent late, p99", "heavy requests a second"]
LIGHT_KEYS = ["light_sent_50", "light_sent_99", "light_late_99", "requests_per_second"]


def light_table(results, job, title):
    references = figures.references(results, job, "light_99")
    headings = ["server", "p50", "p99"] + [f"p99 to {whom}" for whom, _ in references] + ["p99.9", "max", *LIGHT_HEADINGS]
    rows = []
    for peer, slow in figures.ranked(results, job, "light_99", results["peers"]):
        middle = figures.summed_up(results, job, peer, "light_50")
        cells = [name(results, peer), with_spread("light_50", middle), with_spread("light_99", slow)]
        cells += [ratio_cell(results, job, peer, "light_99", other) for _, other in references]
        cells += [median(results, job, peer, key) for key in ("light_99.9", "light_max", *LIGHT_KEYS)]
        rows.append(cells)
    return section(results, job, title, light_conditions(results, job) + "\n\n" + table(headings, rows))


def light_conditions(results, job):
    """How the light client measured, in sentences."""
    interval = parts.of_job(results, job)["settings"]["light_interval_milliseconds"]
    found = {run["figures"]["light_priority"] for run in results["runs"] if run["job"] == job and "figures" in run}
    priorities = " and ".join(PRIORITIES[each] for each in sorted(found))
    return (
        f"The light client sends `GET /plaintext` on one connection every {interval} ms; the heavy connections pipeline it "
        "256 deep. Latencies start at the scheduled send time, with one request outstanding at a time; “of sent” are those "
        "of the requests that were sent. “Sent late” is how late the client sent requests that waited for no answer: its "
        f"own share of a latency. Its priority on the core of the load was {priorities or 'not recorded'}."
    )


def crowd_table(results, job, title):
    number = parts.of_job(results, job)["settings"][job]
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
    texts = [f"## {title[0].upper()}{title[1:]}", origin(results, job), body, missing_lines(results, job)]
    return "\n\n".join(filter(None, texts))


def median(results, job, peer, key):
    figure = figures.summed_up(results, job, peer, key)
    return units.shown(key, figure.median) if figure else "–"


def ratio_cell(results, job, peer, key, other):
    found = figures.ratio(figures.rounds(results, job, peer, key), figures.rounds(results, job, other, key))
    return units.ratio(found.median) if found else "–"


def missing(results, job):
    """The servers with no figures, or fewer than others, and the reasons: [(title, text)]."""
    lines = []
    for peer in results["peers"]:
        for reason, rounds in figures.failures(results, job, peer):
            said = f"no figure in {count(rounds, 'round')}: {reason}" if rounds else f"not measured: {reason}"
            lines.append((results["peers"][peer]["title"], said))
    return lines


def missing_lines(results, job):
    return "\n".join(f"- {title}: {said}" for title, said in missing(results, job))


TABLES = {"crowd": crowd_table, "light": light_table, "load": load_table}
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
