#!/usr/bin/env python3
"""SOCKS: our client through microsocks and Dante, and curl and proxychains4 through our server.

The client is `examples/fetch`, by the variable ALL_PROXY, the server `examples/socks_server`. Bodies are compared to the
byte. The README beside this file says how to repeat it.
"""

import argparse
import contextlib
import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile

import program
import servers
from program import Failure, letters

SECONDS_MAX = 120
# This machine, by what only a resolver takes for an address: the client reaches `localhost` and 127.0.0.0/8 without a
# proxy.
HOST = "127.1"
LENGTHS = [0, 10, 3_000_000]
DANTE = """
logoutput: {directory}/log
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}
socks block {{ from: 127.0.0.0/8 to: 127.0.0.1/32 port = 1 }}
socks pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}
"""
PROXYCHAINS = """
strict_chain
proxy_dns
remote_dns_subnet 224
[ProxyList]
{kind} 127.0.0.1 {port} {credentials}
"""


class Microsocks(program.Front):
    """microsocks, with or without a user."""

    def __init__(self, directory, *flags):
        super().__init__(0, directory)
        self.flags = flags

    def command(self):
        return ["microsocks", "-i", "127.0.0.1", "-p", str(self.ports[0]), *self.flags]


class Dante(program.Front):
    """Dante's server."""

    def command(self):
        config = pathlib.Path(self.directory, "danted.conf")
        config.write_text(DANTE.format(directory=self.directory, port=self.ports[0]))
        return ["danted", "-f", str(config), "-p", str(pathlib.Path(self.directory, "danted.pid"))]


@functools.cache
def example(name):
    return program.build_example(name)


def fetch(proxy, *urls):
    """What `examples/fetch` prints, or `None` if it fails."""
    names = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    environment = {name: value for name, value in os.environ.items() if name.lower() not in names}
    done = subprocess.run(
        [example("fetch"), *urls], env={**environment, "ALL_PROXY": proxy}, capture_output=True, timeout=SECONDS_MAX
    )
    return done.stdout if done.returncode == 0 else None


def expect(what, got, expected):
    if got != expected:
        shown = got if got is None or len(got) < 100 else f"{len(got)} bytes, {hashlib.sha256(got).hexdigest()}"
        raise Failure(f"{what}: got {shown!r}")


def judge_client(name, port, schemes, origin, credentials=""):
    for scheme in schemes:
        proxy = f"{scheme}://{credentials}127.0.0.1:{port}"
        urls = [f"http://{HOST}:{origin}/bytes/{length}" for length in LENGTHS]
        expect(f"{name}, {scheme}", fetch(proxy, *urls), b"".join(map(letters, LENGTHS)))
        expect(f"{name}, {scheme}, a closed port", fetch(proxy, f"http://{HOST}:1/"), None)
    print(f"our client through {name}: {', '.join(schemes)}", flush=True)


def curl(*words):
    command = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "", "--max-time", str(SECONDS_MAX - 10)]
    code, output, _ = program.run([*command, *words], SECONDS_MAX)
    return output if code == 0 else None


def judge_server(origin, directory):
    with servers.Server(f"{example('socks_server')} 127.0.0.1:0") as server:
        for flag in ["--socks4", "--socks4a", "--socks5", "--socks5-hostname"]:
            for length in LENGTHS:
                got = curl(flag, f"127.0.0.1:{server.port}", f"http://127.0.0.1:{origin}/bytes/{length}")
                expect(f"curl {flag}", got, letters(length))
            expect(f"curl {flag}, a closed port", curl(flag, f"127.0.0.1:{server.port}", "http://127.0.0.1:1/"), None)
        got = curl("--proxy", f"socks5h://127.0.0.1:{server.port}", f"http://localhost:{origin}/bytes/10")
        expect("curl socks5h", got, letters(10))
        for kind in ["socks4", "socks5"]:
            judge_proxychains(kind, server.port, "", origin, directory, True)
    with servers.Server(f"{example('socks_server')} 127.0.0.1:0 ebb flow") as server:
        url = f"http://localhost:{origin}/bytes/10"
        for user, expected in [("ebb:flow", letters(10)), ("ebb:ebb", None), ("", None)]:
            words = ["--proxy-user", user] if user else []
            expect(f"curl as {user!r}", curl("--socks5-hostname", f"127.0.0.1:{server.port}", *words, url), expected)
        judge_proxychains("socks5", server.port, "ebb flow", origin, directory, True)
        judge_proxychains("socks5", server.port, "ebb ebb", origin, directory, False)
    print("curl and proxychains4 through our server: versions 4, 4a and 5, with and without a password", flush=True)


def judge_proxychains(kind, port, credentials, origin, directory, is_served):
    config = pathlib.Path(directory, "proxychains.conf")
    config.write_text(PROXYCHAINS.format(kind=kind, port=port, credentials=credentials))
    # curl itself connects directly.
    command = ["proxychains4", "-q", "-f", str(config), "curl", "--silent", "--show-error", "--fail", "--noproxy", "*"]
    command += ["--max-time", "30", f"http://127.0.0.1:{origin}/bytes/3000000"]
    code, output, errors = program.run(command, SECONDS_MAX)
    if (code == 0) != is_served or (is_served and output != letters(3_000_000)):
        raise Failure(f"proxychains4 {kind} {credentials}: code {code}, {len(output)} bytes, {errors}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    options = parser.parse_args()
    program.need("microsocks", "danted", "proxychains4", "curl")
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        origin = stack.enter_context(program.serve("auto", program=options.program)).port
        open_one = stack.enter_context(Microsocks(directory))
        judge_client("microsocks", open_one.ports[0], ["socks5", "socks5h"], origin)
        guarded = stack.enter_context(Microsocks(directory, "-u", "ebb", "-P", "flow"))
        judge_client("microsocks with a password", guarded.ports[0], ["socks5h"], origin, "ebb:flow@")
        wrong = f"socks5h://ebb:ebb@127.0.0.1:{guarded.ports[0]}"
        expect("a wrong password", fetch(wrong, f"http://{HOST}:{origin}/bytes/10"), None)
        dante = stack.enter_context(Dante(0, directory))
        judge_client("Dante", dante.ports[0], ["socks4", "socks5", "socks5h"], origin)
        judge_server(origin, directory)


if __name__ == "__main__":
    servers.run(main)
