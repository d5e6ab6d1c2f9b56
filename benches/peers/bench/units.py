"""Formats CPU seconds, bytes, rates, times and ratios, with as many digits as are significant."""

import math


def digits(number, significant=3):
    """With so many significant digits, and never an exponent."""
    if number == 0:
        return "0"
    places = significant - 1 - math.floor(math.log10(abs(number)))
    return f"{number:,.{max(places, 0)}f}"


def cpu(seconds):
    return digits(seconds)


def size(count):
    """Bytes: to the byte while that is short."""
    for unit, scale in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]:
        if abs(count) >= scale * (10 if unit == "KiB" else 1):
            return f"{digits(count / scale)} {unit}"
    return f"{count:,.0f} B"


def rate(each_second):
    for unit, scale in [("M", 1e6), ("k", 1e3)]:
        if each_second >= scale:
            return f"{digits(each_second / scale)} {unit}/s"
    return f"{each_second:.0f}/s"


def time(microseconds):
    for unit, scale in [("s", 1e6), ("ms", 1e3)]:
        if microseconds >= scale:
            return f"{digits(microseconds / scale)} {unit}"
    return f"{digits(microseconds)} µs"


def ratio(number):
    return f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}" if abs(number) < 100 else f"{number:,.0f}"


def ratio_beside(number, aim):
    """A ratio with enough digits to differ from an aim that it does not meet exactly."""
    places = 2 if abs(number - aim) >= 0.005 else 3
    return f"{number:.{places}f}" if abs(number) < 10 else ratio(number)


def size_unit(most):
    """The unit of an axis up to so many bytes."""
    return max(scale for scale in (1, 1 << 10, 1 << 20, 1 << 30) if scale == 1 or most >= 2 * scale)


def size_tick(count):
    """Bytes at an axis, in units however few they are."""
    for unit, scale in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]:
        if count >= scale:
            return f"{count / scale:,g} {unit}"
    return f"{count:g} B" if count else "0"


def tick(text):
    """What is said of a round number, without the zeros that its digits would have."""
    number, space, unit = text.partition(" ")
    return (f"{float(number.replace(',', '')):,g}" if "." in number else number) + space + unit


def aim(number):
    """An aim as it was set: a fraction where it was one."""
    for part in (4, 6):
        if math.isclose(number, 1 / part):
            return f"≤ 1/{part}"
    return "below" if number == 1 else f"≤ {number:g}"


# The main figure of a light connection.
LIGHT = [("p50", "light_50"), ("p99", "light_99"), ("max", "light_max")]
TIMES = ("latency_", "light_")

OF_KEY = {
    "slowest_probe_milliseconds": lambda milliseconds: time(milliseconds * 1000),
    "cpu": cpu,
    "cpu_user": cpu,
    "cpu_system": cpu,
    "requests_per_second": rate,
    "resident_each": size,
    "heap_each": size,
    "each": size,
}


def shown(key, number):
    return time(number) if key.startswith(TIMES) else OF_KEY[key](number)
