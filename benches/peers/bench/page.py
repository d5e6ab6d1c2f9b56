"""Renders the measurements as one page with charts, and the gist as one chart for the README."""

from html import escape

from . import charts, figures, gist, parts, tables, units

WIDE = 1040
HALF = 510

STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 34px; line-height: 1.2; letter-spacing: -0.02em; margin: 0 0 8px; }
h2 { font-size: 23px; letter-spacing: -0.01em; margin: 56px 0 4px; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 4px 0 12px; max-width: 92ch; }
.lead, .note, figcaption { color: var(--muted); }
.note, figcaption, li { font-size: 14px; }
nav { margin: 18px 0 0; display: flex; flex-wrap: wrap; gap: 8px; }
nav a { color: var(--ours-text); text-decoration: none; border: 1px solid var(--edge); background: var(--card);
  border-radius: 999px; padding: 3px 13px; font-size: 14px; }
nav a:hover { border-color: var(--ours); }
figure, .sheet { background: var(--card); border: 1px solid var(--edge); border-radius: 12px; }
figure, .sheet { margin: 16px 0 0; padding: 18px; }
figure { overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; margin-top: 8px; }
figure.wide svg, figure.gist svg { min-width: 720px; }
figure.gist { padding: 0; border: 0; background: none; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 0 16px; }
.sheet { overflow-x: auto; padding: 6px 18px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 8px 0 8px 18px; border-bottom: 1px solid var(--grid); white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th { color: var(--muted); font-weight: 500; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.words td { text-align: left; white-space: normal; vertical-align: top; } .words th { text-align: left; }
tr.ours td { color: var(--ours-text); font-weight: 600; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--muted); font-size: 14px; }
.key { margin-left: 14px; display: inline-flex; align-items: center; gap: 6px; }
.key i { width: 12px; height: 12px; border-radius: 3px; display: inline-block; }
.key i.dot { border-radius: 50%; } .key i.post { width: 3px; height: 14px; border-radius: 1px; }
.card { fill: var(--card); stroke: var(--edge); }
"""

# The columns of the gist for which its chart has room.
DRAWN = ["plaintext-256", "plaintext-16", "plaintext-1", "idle"]

INTRODUCTION = (
    "What each server spends on the same work, on one core, with the load on another. Servers took turns round by round; "
    "bars are medians, whiskers the least and the most of all rounds. The floor is a bare loop that parses nothing and "
    "sends ready bytes: what is left to win. A bar with a gap is cut, since it is too long to show."
)

def html(results):
    sections = [section(results, job, title) for job, title in results["jobs"].items()]
    body = [header(results), aims(results), *sections, configurations(results)]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tidegate side by side</title>
<style>
:root {{ color-scheme: light dark; {charts.LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {charts.DARK} }} }}
{charts.STYLE}{STYLE}</style>
</head>
<body>
<main>
{chr(10).join(body)}
</main>
</body>
</html>"""


def header(results):
    links = [("aims", "Figures to reach"), *results["jobs"].items(), ("servers", "The servers")]
    anchors = "".join(f'<a href="#{escape(anchor)}">{escape(capital(title))}</a>' for anchor, title in links)
    conditions = " ".join(tables.conditions(results)).replace("`", "")
    notes = [conditions] + [text.replace("`", "") for text in tables.part_conditions(results)]
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    gist = summary_drawing(results)
    chart = f'<figure class="gist">{gist.svg()}</figure>' if gist else ""
    return (
        f'<h1>Tidegate side by side</h1>\n<p class="lead">{escape(INTRODUCTION)}</p>\n'
        f"{notes}\n<nav>{anchors}</nav>\n{chart}"
    )


def aims(results):
    rows = []
    for row in figures.aims(results):
        cells = {check["to"]: aim_cell(results, check) for check in row["checks"]}
        ours = units.shown(row["key"], row["figure"].median) if row["figure"] else "–"
        whose = f' title="{escape(results["peers"][row["ours"]]["title"])}"' if row["ours"] else ""
        figures_of_row = "".join(f"<td>{cells.get(to, '')}</td>" for to in tables.TO)
        rows.append(f"<tr><td>{escape(row['title'])}</td><td{whose}>{ours}</td>{figures_of_row}</tr>")
    headings = "".join(f"<th>to {whom}</th>" for whom in tables.TO.values())
    return (
        '<h2 id="aims">Figures to reach</h2>\n<p class="note">Ratios of ours, at its best, to others: medians of the '
        "ratios within each round, and what was aimed at.</p>\n"
        f'<div class="sheet"><table><tr><th></th><th>ours</th>{headings}</tr>{"".join(rows)}</table></div>'
    )


def aim_cell(results, check):
    if check["reached"] is None:
        return f"– ({units.aim(check['aim'])})"
    mark, verdict = ("✓", "yes") if check["reached"] else ("✗", "no")
    whose = results["peers"][check["peer"]]["title"]
    # No figure is a multiple of zero.
    number = units.ratio_beside(check["ratio"].median, check["aim"]) if check["ratio"] else ""
    found = f'<span class="{verdict}" title="to {escape(whose)}">{number} {mark}</span>'
    return f"{found} ({units.aim(check['aim'])})"


def section(results, job, title):
    elements = [f'<h2 id="{escape(job)}">{escape(capital(title))}</h2>']
    if origin := tables.origin(results, job):
        elements.append(f'<p class="note">{escape(origin)}</p>')
    elements += SECTIONS[figures.kind(job)](results, job)
    lines = "".join(f"<li>{escape(name)}: {escape(text)}</li>" for name, text in tables.missing(results, job))
    if lines:
        elements.append(f"<details><summary>What has no figure, and why</summary><ul>{lines}</ul></details>")
    return "\n".join(elements)


def capital(title):
    return title[0].upper() + title[1:]


def figure(title, caption, drawing):
    wide = ' class="wide"' if drawing.size[0] == WIDE else ""
    return f"<figure{wide}><h3>{escape(title)}</h3><figcaption>{caption}</figcaption>{drawing.svg()}</figure>"


def keys(*entries):
    """A legend: (colour, what it stands for, shape)."""
    return "".join(
        f'<span class="key"><i class="{shape}" style="background: var(--{colour})"></i>{escape(said)}</span>'
        for colour, said, shape in entries
    )


def load_section(results, job):
    cost = charts.bars(f"{job}: CPU seconds per million requests", cost_rows(results, job), WIDE, plain)
    shades = keys(("ours", "user", ""), ("ours-second", "system", ""))
    rates = charts.bars(f"{job}: requests a second", rate_rows(results, job), HALF, rate_tick)
    reaches = charts.reaches(f"{job}: latency", latency_rows(results, job), HALF, time_tick)
    marks = keys(("ours", "half", "dot"), ("ours-second", "99 of 100", "dot"), ("ours", "the slowest", "post"))
    return [
        figure("CPU seconds per million requests", f"Less is better. {shades}", cost),
        '<div class="pair">'
        + figure("Requests a second", "More is better. The load may be what is slower.", rates)
        + figure("Latency", f"Less is better. {marks}", reaches)
        + "</div>",
        load_details(results, job),
    ]


def light_section(results, job):
    marks = keys(("ours", "p50", "dot"), ("ours-second", "p99", "dot"), ("ours", "max", "post"))
    rows = latency_rows(results, job, "light", "99")
    reaches = charts.reaches(f"{job}: latency of the light connection", rows, WIDE, time_tick)
    said = tables.light_conditions(results, job).replace("`", "")
    keys_shown = [(label, f"light_{each}") for label, each in [("p50", "50"), ("p99", "99"), ("p99.9", "99.9"), ("max", "max")]]
    keys_shown += zip(tables.LIGHT_HEADINGS, tables.LIGHT_KEYS)
    return [
        figure("Latency of the light connection", f"Less is better. {marks}", reaches),
        f'<p class="note">{escape(said)}</p>',
        details(results, job, "light_99", keys_shown),
    ]


def load_details(results, job):
    keys_shown = [("CPU s/M", "cpu"), ("user", "cpu_user"), ("system", "cpu_system"), ("requests", "requests_per_second")]
    return details(results, job, "cpu", keys_shown + tables.LATENCIES)


def details(results, job, ranked_by, keys_shown):
    """All figures of a job as a table: the ratios are those of `ranked_by`."""
    references = figures.references(results, job, ranked_by)
    headings = ["server", *(f"to {whom}" for whom, _ in references), *(heading for heading, _ in keys_shown)]
    rows = []
    for peer, _ in figures.ranked(results, job, ranked_by, results["peers"]):
        cells = [results["peers"][peer]["title"]]
        cells += [tables.ratio_cell(results, job, peer, ranked_by, other) for _, other in references]
        cells += [tables.median(results, job, peer, key) for _, key in keys_shown]
        tone = figures.tone(results, peer)
        rows.append(f'<tr class="{tone}">' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    sheet = f'<div class="sheet"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    return f"<details><summary>All figures</summary>{sheet}</details>"


def crowd_section(results, job):
    number = tables.count(parts.of_job(results, job)["settings"][job], "connection")
    if job == "idle":
        title, what = "Bytes per idle connection", f"{number} that made one request each. Less is better."
    else:
        title, what = "Growth per connection", f"{number} that ask 256 times for 16 KiB and never read. Less is better."
    chart = charts.bars(f"{job}: bytes each", memory_rows(results, job), WIDE, units.size_tick, units.size_unit)
    if job == "idle":
        said = "Growth of resident memory; of collected runtimes, of the live heap, with what grew resident in brackets."
    else:
        said = "Growth of resident memory; of collected runtimes, what is alive after a collection in brackets."
    return [figure(title, escape(f"{what} {said}"), chart)]


SECTIONS = {"crowd": crowd_section, "light": light_section, "load": load_section}


def missing_rows(results, job, key):
    """Rows for servers without their figure, at the end of a chart."""
    for peer, entry in results["peers"].items():
        reasons = [failure for failure in figures.failures(results, job, peer) if failure[1]]
        if reasons and not figures.summed_up(results, job, peer, key):
            yield charts.Bar(entry["title"], figures.tone(results, peer), missing=f"no figure: {reasons[0][0]}")


def cost_rows(results, job):
    rows = []
    for peer, cost in figures.ranked(results, job, "cpu", results["peers"]):
        user = figures.summed_up(results, job, peer, "cpu_user").median
        # Medians of the parts need not add up to the median of the whole, which is the label.
        parts = (min(user, cost.median), max(cost.median - user, 0.0))
        title, tone = results["peers"][peer]["title"], figures.tone(results, peer)
        rows.append(charts.Bar(title, tone, parts, cost.low, cost.high, units.cpu(cost.median)))
    return rows + list(missing_rows(results, job, "cpu"))


def rate_rows(results, job):
    rows = []
    for peer, each in figures.ranked(results, job, "requests_per_second", results["peers"], highest_first=True):
        title, tone = results["peers"][peer]["title"], figures.tone(results, peer)
        rows.append(charts.Bar(title, tone, (each.median,), each.low, each.high, units.rate(each.median)))
    return rows


def latency_rows(results, job, prefix="latency", ranked_by="50"):
    """Rows for `charts.reaches`; the label is the maximum, and for a light connection p50 and p99."""
    rows = []
    for peer, _ in figures.ranked(results, job, f"{prefix}_{ranked_by}", results["peers"]):
        found = [figures.summed_up(results, job, peer, f"{prefix}_{each}") for each in ("50", "99", "max")]
        if all(found):
            title, tone = results["peers"][peer]["title"], figures.tone(results, peer)
            middle, high, most = (each.median for each in found)
            said = units.time(most) if prefix == "latency" else f"{units.time(middle)}, {units.time(high)}"
            rows.append(charts.Reach(title, tone, middle, high, most, said))
    return rows


def memory_rows(results, job):
    rows = []
    for peer, each in figures.ranked(results, job, "each", results["peers"]):
        said = units.size(each.median)
        resident = figures.summed_up(results, job, peer, "resident_each")
        heap = figures.summed_up(results, job, peer, "heap_each")
        if heap:
            other = f"resident {units.size(resident.median)}" if job == "idle" else f"alive {units.size(heap.median)}"
            said += f" ({other})"
        title, tone = results["peers"][peer]["title"], figures.tone(results, peer)
        rows.append(charts.Bar(title, tone, (max(each.median, 0),), max(each.low, 0), each.high, said))
    return rows + list(missing_rows(results, job, "each"))


def plain(number):
    return f"{number:g}"


def rate_tick(number):
    return "0" if number == 0 else units.tick(units.rate(number))


def time_tick(number):
    return units.tick(units.time(number))


def configurations(results):
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in tables.server_rows(results)
    )
    headings = "".join(f"<th>{escape(heading)}</th>" for heading in tables.SERVER_HEADINGS)
    skipped = "".join(
        f"<li>{escape(entry['title'])} is skipped: {escape(entry['reason'])}</li>" for entry in results["skipped"]
    )
    return (
        '<h2 id="servers">The servers</h2>\n<p class="note">Each is configured as its documentation recommends; one event '
        f'loop or worker, pinned to one core.</p>\n<div class="sheet words"><table><tr>{headings}</tr>{rows}</table></div>'
        + (f"<ul>{skipped}</ul>" if skipped else "")
    )


def summary_drawing(results):
    """The gist: for each peer the best of its variants, column by column; None if nothing of it was measured."""
    among = [column for column in gist.columns(results) if column.job in DRAWN]
    if not among:
        return None
    columns = []
    for column in among:
        cells = {peer: (max(number, 0), units.shown(column.key, number)) for peer, number in column.medians.items()}
        columns.append(charts.Column(column.title, column.unit, cells))
    settings = results["settings"]
    foot = f"Medians of {tables.count(settings['rounds'], 'round')}; each server at its best; a bar with a gap is cut; "
    foot += f"of Java and Go an idle connection's live heap. {results['date'][:10]}."
    subtitle = f"The same work on one core, {settings['connections']} connections. Shorter is better."
    title = "What a request costs, and a connection"
    return charts.summary(title, subtitle, gist.rows(results, among), columns, foot)


def summary_svg(results):
    drawing = summary_drawing(results)
    return charts.alone(drawing if drawing else charts.Drawing(charts.SUMMARY_WIDTH, 10, "nothing was measured"))
