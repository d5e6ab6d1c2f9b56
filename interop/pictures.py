#!/usr/bin/env python3
"""The pictures of `docs/demo.md`: the live page under load and a room of `/chat`, on a telephone and on a desktop, in both
themes, as WebP of at most 60 KB each.

    interop/pictures.py [--program target/dist/tidegate] [--out docs/pictures]
"""

import argparse
import base64
import contextlib
import pathlib
import subprocess
import time

import dashboard
import program
import servers
from browser import Browser
from program import Failure

SIZES = [(390, 844), (1280, 900)]
THEMES = ["light", "dark"]
BYTES_MAX = 60_000
# So long the charts fill before the first picture.
LOAD_SECONDS = 30
LINES = [
    ("Ana", "High water at Brest is at 18:04."),
    ("Ben", "And the gauge reads 6.9 m already."),
    ("Ana", "Then we wait for the lock."),
    ("Ben", "See you there."),
]


def picture(page, path):
    """Writes what the page shows."""
    shot = page.devtools("Page.captureScreenshot", format="webp", quality=80)
    path.write_bytes(base64.b64decode(shot["data"]))
    if path.stat().st_size > BYTES_MAX:
        raise Failure(f"{path} has {path.stat().st_size} bytes")
    print(f"{path}: {path.stat().st_size} bytes", flush=True)


def take_all(page, folder, name, settled):
    """A picture for each size and theme. `settled` waits until the page is drawn after a change of the screen."""
    for width, height in SIZES:
        for theme in THEMES:
            page.screen(width, theme, height)
            settled()
            picture(page, folder / f"{name}-{width}-{theme}.webp")


def live_page(options, server, admin):
    url = f"http://127.0.0.1:{server.port}"
    loads = [["/json", "-c", "24", "--rate", "3000"], ["/bytes/16384", "-c", "8", "--rate", "300"]]
    with contextlib.ExitStack() as stack:
        for path, *flags in loads:
            command = [options.program, "load", url + path, *flags, "--duration", "600s", "--timeout", "60s"]
            load = subprocess.Popen(servers.ending_with_us(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(servers.end, load)
        page = stack.enter_context(Browser())
        page.screen(1280, "light")
        page.open(f"http://{admin}/dashboard")
        page.until("return document.getElementById('status').textContent === 'live'", "the page is live")
        time.sleep(LOAD_SECONDS)

        def settled():
            at = page.run("return last.at")
            page.until(dashboard.DRAWN_SINCE, "figures after a change of the screen", at)
            time.sleep(0.6)

        take_all(page, options.out, "live", settled)


def chat(options, server):
    with Browser() as ana, Browser() as ben:
        pages = {"Ana": ana, "Ben": ben}
        for name, page in pages.items():
            page.screen(1280, "light")
            page.open(f"http://127.0.0.1:{server.port}/chat?room=harbour&name={name}")
            page.until("return document.getElementById('state').textContent === 'in harbour'", "the page is in the room")
        shows = "return [...document.querySelectorAll('#messages li')].some(item => item.innerText.includes(arguments[0]))"
        for name, text in LINES:
            pages[name].run("document.getElementById('text').focus()")
            pages[name].type(text + "\ue007")
            for page in pages.values():
                page.until(shows, "a message arrives", text)
        take_all(ana, options.out, "chat", lambda: time.sleep(0.6))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM)
    parser.add_argument("--out", type=pathlib.Path, default=program.ROOT / "docs/pictures")
    options = parser.parse_args()
    program.need("chromedriver", "chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with program.serve("epoll", "--loops", "2", "--admin", "127.0.0.1:0", program=options.program) as server:
        live_page(options, server, dashboard.admin_address(server))
        chat(options, server)


if __name__ == "__main__":
    servers.run(main)
