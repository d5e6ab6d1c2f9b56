#!/usr/bin/env python3
"""The live page in a headless Chromium, while `tidegate load` sends requests and keeps many connections open.

The page shows the load, lists the connections, sorts and searches them, closes one, and fits screens from 360 to 2,560
pixels in both themes. Its console shows no error. `--shots FOLDER` keeps the screenshots. The README beside this file
says how to repeat it.
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import time
import urllib.request

import browser
import program
from program import Failure

WIDTHS = [360, 1280, 2560]
ADMIN = re.compile(r"tidegate: admin at http://(127\.0\.0\.1:\d+)")
# Whether figures have come since those at a time, and the page has drawn them.
DRAWN_SINCE = "return last !== null && last.at > arguments[0]"
OVERFLOW = "return document.documentElement.scrollWidth - window.innerWidth"
FIRST_PEER = "const cell = document.querySelector('#rows td[data-name=Peer]'); return cell && cell.textContent"


def admin_address(server):
    """Where the administrative server is: it prints that behind its start-up lines."""
    for _ in range(program.LISTEN_SECONDS_MAX * 20):
        for line in list(server.last_lines):
            if found := ADMIN.match(line):
                return found.group(1)
        time.sleep(0.05)
    raise Failure("the server does not print where its admin is")


def cpu_seconds(pid):
    """The time of the processor that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def check(label, expected, actual):
    if expected != actual:
        raise Failure(f"{label}: expected {expected!r}, got {actual!r}")


def look(page, shots, connections):
    """The page under load."""
    page.until("return document.getElementById('status').textContent === 'live'", "the page is live")
    rate = "const rate = points.length ? points[points.length - 1].rate : 0; return rate > 100 ? rate : 0"
    print(f"  requests a second on the page: {page.until(rate, 'the page shows the load'):.0f}")
    text = f"return document.getElementById('shown').textContent.includes('of {shown(connections)}')"
    page.until(text, f"the page lists {connections} connections")
    for width in WIDTHS:
        for theme in ("light", "dark"):
            at = page.run("return last.at")
            page.screen(width, theme)
            page.until(DRAWN_SINCE, "figures after a change of the screen", at)
            check(f"pixels beyond a screen of {width}", 0, max(0, page.run(OVERFLOW)))
            if shots:
                height = page.run("return Math.min(document.documentElement.scrollHeight, 3000)")
                page.screen(width, theme, height)
                time.sleep(0.6)
                page.screenshot(shots / f"dashboard-{width}-{theme}.png")
    page.screen(1280, "light")


def sort_and_search(page):
    """Sorting and searching, by the keyboard alone where that is possible."""
    took = page.run(
        "const begun = performance.now();"
        "return fetch('/dashboard/connections?sort=peer&ascending=true&rows=100').then(one => one.json())"
        ".then(listed => [performance.now() - begun, listed.rows.length, listed.total])"
    )
    print(f"  {took[2]} connections sorted and {took[1]} rows received in {took[0]:.0f} ms")
    page.run("document.querySelector('th[data-by=peer] button').click()")
    sorted_by = "document.querySelector('th[data-by=peer]').getAttribute('aria-sort')"
    page.until(f"return {sorted_by} === 'ascending'", "it sorts")
    up = page.run(FIRST_PEER)
    page.run("document.querySelector('th[data-by=peer] button').click()")
    page.until(f"{FIRST_PEER} !== arguments[0]".replace("arguments[0]", repr(up)), "it sorts the other way")
    page.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: '/' }))")
    check("the focus", "search", page.run("return document.activeElement.id"))
    search = "const box = document.getElementById('search'); box.value = arguments[0];"
    search += "box.dispatchEvent(new Event('input'))"
    page.run(search, "<b>none</b>")
    page.until("return document.querySelector('#rows td').textContent === 'nothing yet'", "nothing matches")
    check("markup from a text", 0, page.run("return document.querySelectorAll('#connections b').length"))
    page.run(search, "")
    page.until(FIRST_PEER, "the rows are back")


def close_one(page):
    """The button of a row needs two presses, and closes the connection."""
    page.run("document.getElementById('pause').click()")
    page.until("return !listing && !again", "the last list is shown")
    peer = page.run(FIRST_PEER)
    # The second press has to come within seconds of the first, and the text goes away after a few: a script in the page
    # is not late.
    page.run(NOTE_SAID)
    check("the button", "Close now?", page.run(PRESS_TWICE))
    page.until("return window.said.some(text => text.includes('is closed'))", "the connection is closed")
    page.run("document.getElementById('pause').click()")
    listed = f"fetch('/dashboard/connections?search={peer}').then(one => one.json())"
    page.until(f"return {listed}.then(one => one.matching === 0)", f"{peer} is gone")


NOTE_SAID = (
    "window.said = []; const place = document.getElementById('said');"
    "new MutationObserver(() => window.said.push(place.textContent)).observe(place, { childList: true });"
)
PRESS_TWICE = (
    "const button = document.querySelector('#rows button'); button.click();"
    "const text = button.textContent; button.click(); return text"
)


def stay_open(page):
    """The page receives figures for an hour, at once: when its charts are full, it takes no more memory."""
    page.until("return last !== null", "figures after the pause")
    # The rows of the table come and go; without any the nodes of the page are always the same.
    field = "const field = document.getElementById('search');"
    page.run(f"{field} field.value = 'no peer'; field.dispatchEvent(new Event('input'))")
    page.until("return document.querySelectorAll('#rows button').length === 0", "the table is empty")
    page.run("source.close(); window.first = structuredClone(last)")
    pass_time(page, 0, 1200)
    early = page.counters()
    history = page.run("return [points.length, minute.length]")
    pass_time(page, 1200, 3600)
    check("points of the charts after an hour", history, page.run("return [points.length, minute.length]"))
    late = page.counters()
    for kind in ("nodes", "jsEventListeners", "documents"):
        if late[kind] > early[kind] + 200:
            raise Failure(f"{kind} grow while the page is open: {early[kind]}, then {late[kind]}")
    print(f"  an hour of figures: {early['nodes']} nodes, then {late['nodes']}; {history} points")


def pass_time(page, begin, end):
    """Figures of the seconds from one to the other, as the server would send them. Each script takes a moment only."""
    for second in range(begin, end, SECONDS_A_SCRIPT):
        page.run(FIGURES, second, min(second + SECONDS_A_SCRIPT, end))


SECONDS_A_SCRIPT = 100
FIGURES = (
    "const [from, to] = arguments;"
    "for (let second = from + 1; second <= to; second++) {"
    "  const now = structuredClone(window.first);"
    "  now.at += second * 1000;"
    "  now.requests.statuses = now.requests.statuses.map(count => count + second * 100);"
    "  receive(now);"
    "}"
)


def shown(number):
    """A number as the page shows it."""
    if number < 10_000:
        return f"{number:,}" if number >= 10 else str(number)
    thousands = number / 1000
    return f"{thousands:.1f} k" if thousands < 100 else f"{thousands:.0f} k"


def run(backend, options):
    print(f"{backend}:", flush=True)
    # No connection may be idle for too long while the script runs, however slow the machine is.
    flags = ["--loops", "2", "--admin", "127.0.0.1:0", "--idle-timeout", "3600"]
    with program.serve(backend, *flags, program=options.program) as server:
        admin = admin_address(server)
        idle = options.connections
        seconds = 3600
        load = [options.program, "load", f"http://127.0.0.1:{server.port}/json", "-c", "8", "--rate", "1000"]
        load += ["--idle", str(idle), "--duration", f"{seconds}s", "--timeout", "120s"]
        peer = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(admin, idle + 8)
            with browser.Browser() as page:
                page.screen(1280, "light")
                page.open(f"http://{admin}/dashboard")
                look(page, options.shots, idle + 8)
                sort_and_search(page)
                close_one(page)
                if page.errors():
                    raise Failure(f"the console shows {page.errors()}")
                check("requests elsewhere", [], page.run(ELSEWHERE))
                if options.cpu:
                    measure(page, server, peer)
                    page.open(f"http://{admin}/dashboard")
                    page.until("return points.length > 0", "the page is live again")
                stay_open(page)
        finally:
            peer.kill()
            peer.wait()


ELSEWHERE = (
    "return performance.getEntriesByType('resource').map(one => one.name)"
    ".filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'))"
)


def measure(page, server, load):
    """The processor time that the page costs the server, beside the connections alone."""
    load.send_signal(19)  # SIGSTOP: the connections stay, and send nothing.
    time.sleep(2)
    figures = []
    for url in (None, "about:blank"):
        if url:
            page.open(url)
        before = cpu_seconds(server.process.pid)
        time.sleep(20)
        figures.append((cpu_seconds(server.process.pid) - before) / 20 * 100)
    load.send_signal(18)
    print(f"  processor of the server: {figures[0]:.2f} % with the page open, {figures[1]:.2f} % without")


def wait_for(admin, connections):
    """Waits until the server has so many connections."""
    for _ in range(1200):
        with urllib.request.urlopen(f"http://{admin}/metrics", timeout=120) as response:
            text = response.read().decode()
        if sum(int(one) for one in re.findall(r'^tidegate_connections\{.*\} (\d+)$', text, re.M)) >= connections:
            return
        time.sleep(0.1)
    raise Failure(f"the server does not have {connections} connections")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=program.PROGRAM)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--connections", type=int, default=10_000, help="idle connections beside the load")
    parser.add_argument("--shots", type=pathlib.Path, help="keep screenshots in this folder")
    parser.add_argument("--cpu", action="store_true", help="measure what the open page costs")
    options = parser.parse_args()
    program.need("chromedriver", "chromium")
    if options.shots:
        options.shots.mkdir(parents=True, exist_ok=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for backend in options.backends:
        run(backend, options)
    print("the page is as it should be")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"failed: {failure}")
        sys.exit(1)
