#!/usr/bin/env python3
"""HTTP/2 with programs in other languages, both ways.

As clients of `tidegate serve`: Python's h2 by httpx, Go, Node and a browser, in clear and over TLS. As servers: Go, Node and
nginx, for `tidegate load` and for `tidegate proxy`, which curl asks. HAProxy with HTTP/2 on both of its sides is in front of
`tidegate serve`. The README beside this file describes how to repeat it.
"""

import argparse
import contextlib
import pathlib
import re
import shlex
import tempfile

import browser
import program
import servers
from program import Failure

PEERS = pathlib.Path(__file__).resolve().parent / "http2_peers"
TOOLS = program.ROOT / "target/tools"
# Where `cargo xtask ci` installs httpx.
PYTHON = TOOLS / "httpx/bin/python3"
SECONDS_MAX = 120
BODY_BYTES = 1_000_000


def build(name):
    """The command of one of the programs in Go."""
    binary = TOOLS / "http2_peers" / name
    code, _, errors = program.run(["go", "build", "-o", str(binary), str(PEERS / f"{name}.go")], SECONDS_MAX)
    if code:
        raise Failure(f"{name}.go: {errors}")
    return [str(binary)]


def run(what, command):
    code, output, errors = program.run(command, SECONDS_MAX)
    if code:
        raise Failure(f"{what}: {errors[-2000:]}{output.decode(errors='replace')[-2000:]}")
    return output


# Clients of our server.


def clients():
    """The command of each client, but for the URL."""
    return {
        "Python's h2": [str(PYTHON), str(PEERS / "client.py")],
        "Go": build("client"),
        "Node": ["node", str(PEERS / "client.mjs")],
    }


def check_clients(backend, commands):
    for scheme, flags in [("http", []), ("https", ["--tls-self-signed"])]:
        with program.serve(backend, "--loops", "1", *flags) as server:
            for name, command in commands.items():
                run(f"{name}, {scheme}, {backend}", [*command, f"{scheme}://127.0.0.1:{server.port}"])
    print(f"{backend}: {', '.join(commands)} in clear and over TLS", flush=True)


def check_browser(backend):
    """A page, and requests at once."""
    with program.serve(backend, "--loops", "1", "--tls-self-signed") as server:
        with browser.Browser(accept_insecure=True) as page:
            page.open(f"https://127.0.0.1:{server.port}/plaintext")
            page.run(
                """
                window.lengths = [];
                for (let at = 1; at <= 100; at++)
                  fetch('/bytes/' + at * 1000).then(response => response.text()).then(text => lengths.push(text.length));
                """
            )
            page.until("return lengths.length === 100", "a hundred responses")
            if sorted(page.run("return lengths")) != [at * 1000 for at in range(1, 101)]:
                raise Failure("responses have the wrong lengths")
            versions = page.run(
                """
                const kinds = ['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind));
                return [...new Set(kinds.map(entry => entry.nextHopProtocol))];
                """
            )
            if versions != ["h2"]:
                raise Failure(f"the browser speaks {versions}")
    print(f"{backend}: a browser", flush=True)


# Servers of our client.


class Nginx(program.Front):
    """nginx with HTTP/2 in clear, a context manager."""

    CONFIG = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port} http2;
    location = /plaintext {{ return 200 "Hello, World!"; }}
    location /bytes/ {{ root {dir}; }}
  }}
}}
"""

    def command(self):
        folder = pathlib.Path(self.directory)
        (folder / "bytes").mkdir(exist_ok=True)
        (folder / f"bytes/{BODY_BYTES}").write_bytes(program.letters(BODY_BYTES))
        config = folder / "nginx.conf"
        config.write_text(self.CONFIG.format(dir=folder, port=self.ports[0]))
        return ["nginx", "-c", str(config), "-p", str(folder)]


@contextlib.contextmanager
def peer_server(name, command):
    """The port of one of the servers."""
    if name == "nginx":
        with tempfile.TemporaryDirectory() as folder, Nginx(None, folder) as nginx:
            yield nginx.ports[0]
    else:
        with servers.Server(shlex.join(command)) as server:
            yield server.port


def curl(url, *flags):
    return run(f"curl {url}", ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", *flags, url])


def check_servers(backend, name, command, body):
    with peer_server(name, command) as port:
        url = f"http://127.0.0.1:{port}/plaintext"
        flags = f"load --http2 -m 20 -c 4 -t 1 -d 1s --backend {backend}"
        output = run(f"load on {name}, {backend}", [program.PROGRAM, *flags.split(), url]).decode()
        if not re.search(r"[1-9]\d* requests in", output):
            raise Failure(f"load on {name}: {output}")
        words = f"proxy --listen 127.0.0.1:0 --quiet --backend {backend} --upstream h2c://127.0.0.1:{port}"
        with servers.Server(shlex.join([program.PROGRAM, *words.split()])) as proxy:
            for version in ["--http1.1", "--http2-prior-knowledge"]:
                through = f"http://127.0.0.1:{proxy.port}"
                if curl(f"{through}/plaintext", version) != b"Hello, World!":
                    raise Failure(f"{name} through the proxy: a short body")
                if curl(f"{through}/bytes/{BODY_BYTES}", version) != program.letters(BODY_BYTES):
                    raise Failure(f"{name} through the proxy: a long body")
                if name == "nginx":
                    continue
                if curl(f"{through}/echo", version, "--data-binary", f"@{body}") != program.letters(BODY_BYTES):
                    raise Failure(f"{name} through the proxy: an echo")
    print(f"{backend}: {name} as the server of load and proxy", flush=True)


# HAProxy between a client and our server.


class Haproxy(program.Haproxy):
    """HAProxy with HTTP/2 on both sides, a context manager."""

    CONFIG = program.Haproxy.CONFIG.replace("{port}", "{port} proto h2").replace("{origin}", "{origin} proto h2")


def check_haproxy(backend, body):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(program.serve(backend, "--loops", "1"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"http://127.0.0.1:{stack.enter_context(Haproxy(server.port, folder)).ports[0]}"
        if curl(f"{url}/bytes/{BODY_BYTES}", "--http2-prior-knowledge") != program.letters(BODY_BYTES):
            raise Failure("a long body through HAProxy")
        if curl(f"{url}/echo", "--http2-prior-knowledge", "--data-binary", f"@{body}") != program.letters(BODY_BYTES):
            raise Failure("an echo through HAProxy")
        output = run("h2load", ["h2load", "-n", "20000", "-c", "16", "-m", "20", f"{url}/plaintext"]).decode()
        if "20000 succeeded, 0 failed, 0 errored" not in output:
            raise Failure(f"h2load through HAProxy: {output}")
    print(f"{backend}: HAProxy with HTTP/2 on both sides", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("go", "node", "curl", "h2load", "nginx", "haproxy", "chromium", "chromedriver", str(PYTHON))
    commands = clients()
    peers = {"Go": build("server"), "Node": ["node", str(PEERS / "server.mjs")], "nginx": None}
    with tempfile.TemporaryDirectory() as folder:
        body = pathlib.Path(folder, "body")
        body.write_bytes(program.letters(BODY_BYTES))
        for backend in options.backends:
            check_clients(backend, commands)
            check_browser(backend)
            for name, command in peers.items():
                check_servers(backend, name, command, body)
            check_haproxy(backend, body)


if __name__ == "__main__":
    servers.run(main)
