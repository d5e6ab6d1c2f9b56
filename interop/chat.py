#!/usr/bin/env python3
"""Two headless browsers in a room of `/chat`: what one of them says, the other shows, in dark and in light, wide and narrow.

The browsers are Chromium's, driven by chromedriver through the protocol of WebDriver (https://www.w3.org/TR/webdriver2/).
With --screenshots FOLDER the pages are kept as pictures.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import program
import servers
from program import Failure

PATIENCE_SECONDS = 20
SIZES = [(360, 740), (1280, 800)]
SCHEMES = ["light", "dark"]
LONG = "high water at noon " * 12


class Browser:
    """A headless browser, a context manager."""

    def __init__(self, driver, folder):
        self.driver = driver
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--no-proxy-server", f"--user-data-dir={folder}"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        self.session = call(driver, "POST", "/session", {"capabilities": capabilities})["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ask("DELETE", "")

    def ask(self, method, path, body=None):
        return call(self.driver, method, f"/session/{self.session}{path}", body)

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def until(self, what, script, *arguments):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.run(script, *arguments):
            if time.monotonic() > deadline:
                raise Failure(f"{what}: the page shows {self.run('return document.body.innerText')!r}")
            time.sleep(0.05)

    def type(self, text):
        """Presses keys in the element that has the focus."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))


def call(driver, method, path, body=None):
    """A command of WebDriver, and its value."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(driver + path, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return json.load(response)["value"]
    except urllib.error.HTTPError as error:
        raise Failure(f"{method} {path}: {error.read().decode(errors='replace')[:500]}") from None


def start_driver(port):
    process = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "NO_PROXY": "*", "no_proxy": "*"},
    )
    driver = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    while True:
        try:
            if call(driver, "GET", "/status")["ready"]:
                return process, driver
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            servers.end(process)
            raise Failure("chromedriver does not start")
        time.sleep(0.1)


SHOWS = "return [...document.querySelectorAll('#messages li')].some(item => item.innerText.includes(arguments[0]))"
PRESENT = "return document.getElementById('count').textContent === arguments[0]"


def talk(one, other, url):
    """Two guests see each other, and what they say; all by the keyboard."""
    for browser, name in [(one, "Ana"), (other, "Ben")]:
        browser.ask("POST", "/url", {"url": f"{url}?room=reef&name={name}"})
        browser.until("the page is in the room", "return document.getElementById('state').textContent === 'in reef'")
    for browser in [one, other]:
        browser.until("both are present", PRESENT, "2")
    one.until("an arrival is announced", SHOWS, "Ben has joined")
    focus = one.run("return document.activeElement.id")
    if focus != "text":
        raise Failure(f"after joining the focus is on {focus!r}")
    one.type("ahoy <b>Ben</b>\ue007")
    other.until("a message arrives, as text", SHOWS, "ahoy <b>Ben</b>")
    other.type(LONG + "\ue007")
    one.until("a long message arrives", SHOWS, LONG.strip())
    if not one.run("return document.querySelectorAll('#messages li.mine').length === 1"):
        raise Failure("a page does not tell its own messages from those of others")
    # The keyboard reaches every control.
    seen = set()
    for _ in range(12):
        one.type("\ue004")
        seen.add(one.run("return document.activeElement.id || document.activeElement.textContent"))
    if not {"room", "name", "Join", "messages", "text", "Send"} <= seen | {"Send" if "send" in seen else ""}:
        raise Failure(f"the keyboard reaches {seen}")


def look(browser, folder):
    """The page fits each width, and its texts have contrast."""
    for scheme in SCHEMES:
        browser.scheme(scheme)
        for width, height in SIZES:
            browser.resize(width, height)
            overflow = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if overflow > 0:
                raise Failure(f"at {width} pixels the page is {overflow} pixels too wide")
            contrast = browser.run(CONTRAST)
            if contrast < 4.5:
                raise Failure(f"{scheme}: a text has the contrast {contrast:.2f}")
            if folder:
                browser.screenshot(folder / f"chat-{width}-{scheme}.png")


# The lowest contrast of a text on its background (WCAG 2.2, 1.4.3).
CONTRAST = """
const light = text => {
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map(value => {
    value /= 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = element => {
  for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (!/rgba\\(.*, 0\\)/.test(color)) return color;
  }
  return 'rgb(255, 255, 255)';
};
let lowest = 21;
for (const element of document.querySelectorAll('h1, h2, #state, label, li, .by, .by b, button:enabled, input:enabled')) {
  const [one, other] = [light(getComputedStyle(element).color), light(background(element))];
  lowest = Math.min(lowest, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05));
}
return lowest;
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshots", type=pathlib.Path, help="a folder for pictures")
    options = parser.parse_args()
    program.need("chromium", "chromedriver")
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    (port,) = program.free_ports(1)
    with program.serve("epoll") as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process, driver = start_driver(port)
        try:
            url = f"http://127.0.0.1:{server.port}/chat"
            with Browser(driver, f"{folder}/one") as one, Browser(driver, f"{folder}/other") as other:
                talk(one, other, url)
                look(one, options.screenshots)
        finally:
            servers.end(process)
    print("chat: two browsers saw each other, and what they said")


if __name__ == "__main__":
    servers.run(main)
