#!/usr/bin/env python3
"""Two headless browsers in a room of `/chat`: what one of them says, the other shows, in dark and in light, wide and narrow;
in clear over HTTP/1.1, and over TLS, where the page and its WebSocket share a connection of HTTP/2.

With --screenshots FOLDER the pages are kept as pictures.
"""

import argparse
import pathlib

import program
import servers
from browser import Browser
from program import Failure

SIZES = [(360, 740), (1280, 800)]
SCHEMES = ["light", "dark"]
LONG = "high water at noon " * 12

SHOWS = "return [...document.querySelectorAll('#messages li')].some(item => item.innerText.includes(arguments[0]))"
PRESENT = "return document.getElementById('count').textContent === arguments[0]"


def talk(one, other, url):
    """Two guests see each other, and what they say; all by the keyboard."""
    for browser, name in [(one, "Ana"), (other, "Ben")]:
        browser.open(f"{url}?room=reef&name={name}")
        browser.until("return document.getElementById('state').textContent === 'in reef'", "the page is in the room")
    for browser in [one, other]:
        browser.until(PRESENT, "both are present", "2")
    one.until(SHOWS, "an arrival is announced", "Ben has joined")
    focus = one.run("return document.activeElement.id")
    if focus != "text":
        raise Failure(f"after joining the focus is on {focus!r}")
    one.type("ahoy <b>Ben</b>\ue007")
    other.until(SHOWS, "a message arrives, as text", "ahoy <b>Ben</b>")
    other.type(LONG + "\ue007")
    one.until(SHOWS, "a long message arrives", LONG.strip())
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
        for width, height in SIZES:
            browser.screen(width, scheme, height)
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
    for scheme, flags, protocol in [("http", [], "http/1.1"), ("https", ["--tls-self-signed"], "h2")]:
        with program.serve("epoll", *flags) as server, Browser(True) as one, Browser(True) as other:
            talk(one, other, f"{scheme}://127.0.0.1:{server.port}/chat")
            used = one.run("return performance.getEntriesByType('navigation')[0].nextHopProtocol")
            if used != protocol:
                raise Failure(f"the page was loaded over {used}")
            look(one, options.screenshots)
        print(f"chat: two browsers saw each other, and what they said, over {protocol}", flush=True)


if __name__ == "__main__":
    servers.run(main)
