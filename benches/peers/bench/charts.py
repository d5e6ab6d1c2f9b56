"""Draws charts as SVG text: horizontal bars with their values, and ranges of latency on a logarithmic axis.

Colours are classes, which the style sheet of the page or of a standalone chart defines for light and dark. This module
computes only positions, no figures.
"""

import math
from html import escape
from typing import NamedTuple

ROW_HEIGHT = 28
BAR_HEIGHT = 16
LABEL_GAP = 12
TITLE_HEIGHT = 14
AXIS_HEIGHT = 30
# Measured with the widest font of the style sheet, in bold.
CHARACTER_WIDTH = 7.6
VALUE_GAP = 8
LABEL_SHARE_MAX = 0.43
MARKS_MAX = 6
# A bar is cut if it is so many times as long as the median of its chart.
CUT_BEYOND = 4
CUT_ROOM = 1.12

STYLE = """
text { font: 13px/1 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: var(--ink); }
.strong { font-weight: 650; }
.muted, .tick { fill: var(--muted); }
.tick { font-size: 11.5px; }
.small { font-size: 12px; }
.title { font-size: 18px; font-weight: 650; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; }
.base { stroke: var(--axis); stroke-width: 1; }
.range { stroke: var(--ink); stroke-width: 1.4; opacity: 0.6; fill: none; }
.band { fill: var(--band); }
.cut { fill: var(--card); }
.ours { fill: var(--ours); } .ours.second { fill: var(--ours-second); }
.netty { fill: var(--netty); } .netty.second { fill: var(--netty-second); }
.other { fill: var(--other); } .other.second { fill: var(--other-second); }
.floor { fill: var(--floor); } .floor.second { fill: var(--floor-second); }
text.ours { fill: var(--ours-text); }
line.ours, line.netty, line.other, line.floor { stroke-width: 3; stroke-linecap: round; opacity: 0.45; }
line.ours { stroke: var(--ours); } line.netty { stroke: var(--netty); }
line.other { stroke: var(--other); } line.floor { stroke: var(--floor); }
"""
LIGHT = (
    "--page: #f4f6f8; --card: #ffffff; --edge: #dfe5ea; --ink: #16222c; --muted: #5c6b78; --grid: #e6ebef; "
    "--axis: #9fadb9; --band: #e8f6f6; --ours: #0b7f8a; --ours-second: #5fbcc2; --ours-text: #076973; "
    "--netty: #b8651b; --netty-second: #e0a76f; --other: #70859a; --other-second: #b4c1cd; "
    "--floor: #a9a9b3; --floor-second: #d3d3da; --good: #1a7f46; --bad: #b3261e;"
)
DARK = (
    "--page: #0d1318; --card: #141c23; --edge: #26323c; --ink: #e6edf2; --muted: #93a3b1; --grid: #24303a; "
    "--axis: #51616f; --band: #12303a; --ours: #2fb8c0; --ours-second: #1c7279; --ours-text: #5fd4da; "
    "--netty: #e0924a; --netty-second: #8a5a2e; --other: #8095a8; --other-second: #4a5a69; "
    "--floor: #73737f; --floor-second: #43434c; --good: #5bc98a; --bad: #ff8a80;"
)


class Bar(NamedTuple):
    """One row of a chart. Parts are stacked; a row without parts shows the reason."""

    label: str
    tone: str
    parts: tuple = ()
    low: float = 0.0
    high: float = 0.0
    said: str = ""
    missing: str = ""


class Reach(NamedTuple):
    """One row of latencies: median, 99th percentile and maximum."""

    label: str
    tone: str
    middle: float
    high: float
    most: float
    said: str = ""


class Column(NamedTuple):
    """One column of the summary: {row's key: (number, label)}."""

    title: str
    unit: str
    cells: dict


class Drawing:
    """Collects elements; coordinates are rounded to a tenth, which is invisible and shorter."""

    def __init__(self, width, height, label):
        self.size = (width, height)
        self.label = label
        self.elements = []

    def add(self, tag, content=None, hint=None, **attributes):
        pairs = (
            f'{key.rstrip("_").replace("_", "-")}="{escape(str(round(each, 1) if isinstance(each, float) else each))}"'
            for key, each in attributes.items()
        )
        inside = (f"<title>{escape(hint)}</title>" if hint else "") + (escape(content) if content else "")
        self.elements.append(f"<{tag} {' '.join(pairs)}>{inside}</{tag}>" if inside else f"<{tag} {' '.join(pairs)}/>")

    def text(self, x, y, content, classes="", hint=None):
        self.add("text", content, hint, x=float(x), y=float(y), class_=classes)

    def line(self, x1, y1, x2, y2, classes):
        self.add("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=classes)

    def rect(self, x, y, width, height, classes, radius=0, hint=None):
        place = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
        self.add("rect", hint=hint, rx=radius, class_=classes, **place)

    def svg(self, style=""):
        width, height = self.size
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        opening += f'height="{height}" role="img" aria-label="{escape(self.label)}">'
        sheet = f"<style>{style}</style>" if style else ""
        return "\n".join([opening + sheet, *self.elements, "</svg>"])


def text_width(text):
    return len(text) * CHARACTER_WIDTH


def shortened(text, width):
    fitting = max(int(width / CHARACTER_WIDTH), 1)
    return text if len(text) <= fitting else f"{text[: fitting - 1].rstrip()}…"


def steps(most, count=4):
    """Round numbers from 0 to `most`, about `count` of them."""
    if most <= 0:
        return [0.0]
    size = 10 ** math.floor(math.log10(most / count))
    size = next(size * factor for factor in (1, 2, 5, 10) if most / (size * factor) <= count + 0.5)
    return [size * number for number in range(int(most / size + 1e-9) + 1)]


def scale_end(numbers):
    """The end of an axis. One or two values far beyond all others would leave these no room: their bars are cut."""
    numbers = sorted(numbers)
    if not numbers:
        return 1.0
    far = CUT_BEYOND * numbers[len(numbers) // 2]
    kept = [number for number in numbers if number <= far]
    return (numbers[-1] if len(kept) == len(numbers) or not far else kept[-1] * CUT_ROOM) or 1.0


def draw_cut(drawing, at, middle):
    """The gap in a cut bar."""
    top, bottom = middle - BAR_HEIGHT / 2 - 1, middle + BAR_HEIGHT / 2 + 1
    points = f"{at - 12:.1f},{bottom:.1f} {at - 6:.1f},{top:.1f} {at - 2:.1f},{top:.1f} {at - 8:.1f},{bottom:.1f}"
    drawing.add("polygon", points=points, class_="cut")


def label_width(rows, width):
    return min(max((text_width(row.label) for row in rows), default=0), width * LABEL_SHARE_MAX) + LABEL_GAP


def bounds(least, most):
    """Numbers that are 1, 2 or 5 times a power of ten: the last one at or below `least`, and on to the first at or above
    `most`."""
    marks = [factor * 10.0**power for power in range(math.floor(math.log10(least)), 13) for factor in (1, 2, 5)]
    first = max(index for index, mark in enumerate(marks) if mark <= least)
    last = next(index for index, mark in enumerate(marks) if mark >= most and index > first)
    return marks[first : last + 1]


def bars(title, rows, width, tick, unit=lambda most: 1):
    """Bars from zero. `tick(number)` formats a number at the axis; ticks are round numbers of `unit(most)`."""
    left = label_width(rows, width)
    said_width = max((text_width(row.said) for row in rows if row.parts), default=0) + VALUE_GAP + 6
    span = width - left - said_width
    most = scale_end(max(row.high, sum(row.parts)) for row in rows if row.parts)
    bottom = TITLE_HEIGHT + len(rows) * ROW_HEIGHT
    drawing = Drawing(width, bottom + AXIS_HEIGHT, title)
    for number, row in enumerate(rows):
        if row.tone == "ours":
            drawing.rect(0, TITLE_HEIGHT + number * ROW_HEIGHT, width, ROW_HEIGHT, "band")
    for step in (step * unit(most) for step in steps(most / unit(most))):
        at = left + step / most * span
        drawing.line(at, TITLE_HEIGHT - 4, at, bottom, "base" if step == 0 else "grid")
        drawing.text(at, bottom + 18, tick(step), "tick middle")
    for number, row in enumerate(rows):
        middle = TITLE_HEIGHT + (number + 0.5) * ROW_HEIGHT
        own = "ours strong" if row.tone == "ours" else ""
        drawing.text(left - LABEL_GAP, middle + 4.5, shortened(row.label, left - LABEL_GAP), f"end {own}", row.label)
        if row.parts:
            draw_bar(drawing, row, left, middle, span / most, span)
            end = left + min(max(sum(row.parts), row.high) / most, 1) * span
            drawing.text(end + VALUE_GAP, middle + 4.5, row.said, own)
        else:
            said = shortened(row.missing, width - left - VALUE_GAP)
            drawing.text(left + VALUE_GAP, middle + 4.5, said, "muted small", row.missing)
    return drawing


def draw_bar(drawing, row, left, middle, scale, span):
    """Stacked parts, no further than `span`, with the range from the minimum to the maximum."""
    at, end = left, left + span
    for order, part in enumerate(row.parts):
        shade = " second" if order else ""
        width = min(part * scale, end - at)
        if width > 0:
            drawing.rect(at, middle - BAR_HEIGHT / 2, max(width, 1.0), BAR_HEIGHT, row.tone + shade, 2)
        at += max(width, 0)
    if sum(row.parts) * scale > span + 0.5:
        draw_cut(drawing, end, middle)
        return
    low, high = left + row.low * scale, min(left + row.high * scale, end)
    if high - low > 2:
        drawing.line(low, middle, high, middle, "range")
        for mark in (low, high):
            drawing.line(mark, middle - 4, mark, middle + 4, "range")


def reaches(title, rows, width, tick):
    """Latencies on a logarithmic axis: the median as a dot, p99 as a ring, the maximum as the end of a bar."""
    left = label_width(rows, width)
    said_width = max((text_width(row.said) for row in rows), default=0) + VALUE_GAP + 8
    span = width - left - said_width
    positive = [number for row in rows for number in (row.middle, row.most) if number > 0] or [1.0, 10.0]
    marks = bounds(min(positive), max(positive))
    bottom = TITLE_HEIGHT + len(rows) * ROW_HEIGHT
    drawing = Drawing(width, bottom + AXIS_HEIGHT, title)

    def place(number):
        share = math.log(max(number, marks[0]) / marks[0]) / math.log(marks[-1] / marks[0])
        return left + 6 + share * (span - 6)

    for number, row in enumerate(rows):
        if row.tone == "ours":
            drawing.rect(0, TITLE_HEIGHT + number * ROW_HEIGHT, width, ROW_HEIGHT, "band")
    # As many ticks as fit: all of them, or only the powers of ten.
    shown = marks if len(marks) <= MARKS_MAX else [mark for mark in marks if math.log10(mark).is_integer()]
    for mark in shown:
        drawing.line(place(mark), TITLE_HEIGHT - 4, place(mark), bottom, "grid")
        drawing.text(place(mark), bottom + 18, tick(mark), "tick middle")
    for number, row in enumerate(rows):
        middle = TITLE_HEIGHT + (number + 0.5) * ROW_HEIGHT
        own = "ours strong" if row.tone == "ours" else ""
        drawing.text(left - LABEL_GAP, middle + 4.5, shortened(row.label, left - LABEL_GAP), f"end {own}", row.label)
        drawing.line(place(row.middle), middle, place(row.most), middle, row.tone)
        drawing.add("circle", cx=place(row.middle), cy=middle, r=5, class_=row.tone)
        drawing.add("circle", cx=place(row.high), cy=middle, r=4, class_=f"{row.tone} second")
        drawing.rect(place(row.most) - 1.5, middle - 7, 3, 14, row.tone, 1)
        drawing.text(place(row.most) + VALUE_GAP, middle + 4.5, row.said, own)
    return drawing


SUMMARY_WIDTH = 960
SUMMARY_LEFT = 24
SUMMARY_COLUMN_GAP = 22
SUMMARY_TOP = 118
SUMMARY_FOOT = 40


def summary(title, subtitle, rows, columns, foot):
    """One row for each server and one column for each figure; every column has its own scale. `rows` are
    (key, label, tone)."""
    labels = max((text_width(label) for _, label, _ in rows), default=60) + LABEL_GAP
    each = (SUMMARY_WIDTH - 2 * SUMMARY_LEFT - labels) / max(len(columns), 1)
    height = SUMMARY_TOP + len(rows) * ROW_HEIGHT + SUMMARY_FOOT
    drawing = Drawing(SUMMARY_WIDTH, height, f"{title}: {subtitle}")
    drawing.add("rect", x=0.5, y=0.5, width=SUMMARY_WIDTH - 1, height=height - 1, rx=10, class_="card")
    drawing.text(SUMMARY_LEFT, 36, title, "title")
    drawing.text(SUMMARY_LEFT, 58, subtitle, "muted")
    for number, (_, label, tone) in enumerate(rows):
        top = SUMMARY_TOP + number * ROW_HEIGHT
        if tone == "ours":
            drawing.rect(SUMMARY_LEFT - 10, top, SUMMARY_WIDTH - 2 * SUMMARY_LEFT + 20, ROW_HEIGHT, "band", 5)
        own = "ours strong" if tone == "ours" else "muted" if tone == "floor" else ""
        drawing.text(SUMMARY_LEFT, top + ROW_HEIGHT / 2 + 4.5, label, own)
    for place, column in enumerate(columns):
        summary_column(drawing, column, rows, SUMMARY_LEFT + labels + place * each, each - SUMMARY_COLUMN_GAP)
    drawing.text(SUMMARY_LEFT, height - 16, foot, "tick")
    return drawing


def summary_column(drawing, column, rows, left, width):
    drawing.text(left, SUMMARY_TOP - 26, column.title, "strong")
    drawing.text(left, SUMMARY_TOP - 10, column.unit, "tick")
    said_width = max((text_width(said) for _, said in column.cells.values()), default=0) + VALUE_GAP
    most = scale_end(number for number, _ in column.cells.values())
    drawing.line(left, SUMMARY_TOP, left, SUMMARY_TOP + len(rows) * ROW_HEIGHT, "base")
    for number, (key, _, tone) in enumerate(rows):
        middle = SUMMARY_TOP + (number + 0.5) * ROW_HEIGHT
        if key not in column.cells:
            drawing.text(left + VALUE_GAP, middle + 4.5, "–", "muted")
            continue
        amount, said = column.cells[key]
        length = max(min(amount / most, 1) * (width - said_width), 1.5)
        drawing.rect(left, middle - BAR_HEIGHT / 2, length, BAR_HEIGHT, tone, 2)
        if amount > most:
            draw_cut(drawing, left + length, middle)
        drawing.text(left + length + VALUE_GAP, middle + 4.5, said, "ours strong" if tone == "ours" else "")


def alone(drawing):
    """A chart with its own style sheet and background, for a page without them, in the reader's colour scheme."""
    dark = f"@media (prefers-color-scheme: dark) {{ svg {{ {DARK} }} }}"
    return drawing.svg(f"svg {{ {LIGHT} }} {dark} .card {{ fill: var(--card); stroke: var(--edge); }} {STYLE}") + "\n"
