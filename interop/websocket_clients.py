#!/usr/bin/env python3
"""WebSocket with clients in other languages: Python's websockets, Node's ws and a browser, with --websocat that too,
against `/ws` of `tidegate serve`, in clear and over TLS, with and without compression.

The browser opens its socket over HTTP/1.1, and over HTTP/2 as a stream of the connection that has loaded the page (RFC 8441);
the same with a route of axum by `get`.
The README beside this file describes how to repeat it.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import urllib.request

import browser
import program
import servers
from program import Failure

PEERS = pathlib.Path(__file__).resolve().parent / "websocket_peers"
TOOLS = program.ROOT / "target/tools"
# Where `cargo xtask ci` installs websockets and ws.
PYTHON = TOOLS / "websockets/bin/python3"
NODE_MODULES = TOOLS / "ws/node_modules"
SECONDS_MAX = 120
ADMIN = re.compile(r"tidegate: admin at http://(127\.0\.0\.1:\d+)")

# With a WebSocket to the server of the page: text and bytes come back, and the socket closes in order.
ECHO = """
window.seen = [];
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws');
socket.binaryType = 'arraybuffer';
socket.onopen = () => { socket.send('high water'); socket.send('x'.repeat(70000)); socket.send(new Uint8Array(1000)); };
socket.onmessage = message => {
  seen.push(typeof message.data === 'string' ? message.data.length : -message.data.byteLength);
  if (seen.length === 3) socket.close(1000, 'done');
};
socket.onclose = close => seen.push(close.code, close.wasClean);
"""


def run(what, command):
    code, output, errors = program.run(command, SECONDS_MAX)
    if code:
        raise Failure(f"{what}: {errors[-2000:]}{output.decode(errors='replace')[-2000:]}")


def check_programs(backend, has_websocat):
    os.environ["NODE_PATH"] = str(NODE_MODULES)
    commands = {
        "Python's websockets": [str(PYTHON), str(PEERS / "client.py")],
        "Node's ws": ["node", str(PEERS / "client.mjs")],
    }
    for scheme, flags in [("ws", []), ("wss", ["--tls-self-signed"])]:
        with program.serve(backend, "--loops", "1", *flags) as server:
            for name, command in commands.items():
                run(f"{name}, {scheme}, {backend}", [*command, f"{scheme}://127.0.0.1:{server.port}/ws"])
            if has_websocat:
                check_websocat(f"{scheme}://127.0.0.1:{server.port}/ws")
    print(f"{backend}: {', '.join(commands)} in clear and over TLS", flush=True)


def check_websocat(url):
    command = ["websocat", "--insecure", "--no-close", "--exit-on-eof", "-n", url]
    done = subprocess.run(command, input=b"high\nwater\n", capture_output=True, timeout=SECONDS_MAX, check=False)
    if done.stdout != b"high\nwater\n":
        raise Failure(f"websocat: {done.stdout} {done.stderr[-500:]}")


def counted(server, method):
    """How many requests of this method the server has answered, by its metrics."""
    (address,) = [found[1] for line in server.last_lines if (found := ADMIN.search(line))]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=20) as response:
        text = response.read().decode()
    counts = re.findall(rf'^tidegate_http_requests_total{{.*method="{method}".*}} (\d+)$', text, re.MULTILINE)
    return sum(map(int, counts))


def check_browser(backend):
    for scheme, flags, connects in [("http", [], 0), ("https", ["--tls-self-signed"], 1)]:
        with program.serve(backend, "--loops", "1", "--admin", "127.0.0.1:0", *flags) as server:
            with browser.Browser(accept_insecure=True) as page:
                page.open(f"{scheme}://127.0.0.1:{server.port}/plaintext")
                page.run(ECHO)
                page.until("return seen.length === 5", "three messages and the close")
                seen = page.run("return seen")
            if seen != [10, 70_000, -1000, 1000, True]:
                raise Failure(f"the browser has seen {seen}, over {scheme}")
            if counted(server, "CONNECT") != connects:
                raise Failure(f"{counted(server, 'CONNECT')} requests were an extended CONNECT over {scheme}, not {connects}")
    print(f"{backend}: a browser over HTTP/1.1 and HTTP/2", flush=True)


def check_browser_with_axum(example):
    """The page of the example is loaded over HTTP/2, and so is its socket, since Chromium opens no other connection."""
    with servers.Server(shlex.join([example, "127.0.0.1:0"])) as server, browser.Browser(accept_insecure=True) as page:
        page.open(f"https://127.0.0.1:{server.port}/")
        page.run(ECHO)
        page.until("return seen.length === 5", "three messages and the close")
        seen = page.run("return seen")
        if seen != [10, 70_000, -1000, 1000, True]:
            raise Failure(f"the browser has seen {seen}")
        if page.run("return performance.getEntriesByType('navigation')[0].nextHopProtocol") != "h2":
            raise Failure("the page was not loaded over HTTP/2")
        page.until("return document.getElementById('text').textContent === 'high water'", "the page shows its message")
    print("axum: a browser over HTTP/2", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--websocat", action="store_true", help="websocat as well")
    parser.add_argument("--example", help="the example axum_websocket; built unless set")
    options = parser.parse_args()
    program.need(str(PYTHON), "node", "chromium", "chromedriver", *(["websocat"] if options.websocat else []))
    if not NODE_MODULES.is_dir():
        program.skip_part(f"there is no {NODE_MODULES}")
        return
    check_browser_with_axum(options.example or program.build_example("axum_websocket"))
    for backend in options.backends:
        check_programs(backend, options.websocat)
        check_browser(backend)


if __name__ == "__main__":
    servers.run(main)
