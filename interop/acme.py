#!/usr/bin/env python3
"""Certificates by ACME: pebble issues them to `tidegate serve` and `tidegate proxy`.

All kinds of challenges, a name and an address in one certificate, a wildcard by a program that sets DNS records, nonces that pebble refuses at random, a validation that
fails and the wait after it, a process that is killed in the middle of an order, a certificate that expires within seconds
while clients connect, and an authority that has lost its accounts.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shlex
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs pebble.
program.use_tools("bin")

SECONDS_MAX = 60
NAMES = ["localhost", "127.0.0.1"]
LIFETIME_SECONDS = 30
LINES_MAX = 10_000


class Pebble:
    """The authority, a context manager."""

    def __init__(self, folder, lifetime=0, slow=0, dns=None, accepts_all=False):
        """`dns` is the address of the server that it asks for records. With `accepts_all` each validation succeeds."""
        self.folder = pathlib.Path(folder)
        self.dns = ["-dnsserver", dns] if dns else []
        self.lifetime = lifetime
        self.slow = slow
        self.accepts_all = accepts_all
        self.port, self.management, self.tls_port, self.http_port = program.free_ports(4)
        self.root = self.folder / "authority.pem"
        key = self.folder / "authority.key"
        words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        names = ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
        command = [*words.split(), *names, "-keyout", str(key), "-out", str(self.root)]
        subprocess.run(command, check=True, capture_output=True)
        profile = {"default": {"description": "for tests", "validityPeriod": lifetime}}
        settings = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.root),
            "privateKey": str(key),
            "httpPort": self.http_port,
            "tlsPort": self.tls_port,
            "retryAfter": {"authz": 1, "order": 1},
            **({"profiles": profile} if lifetime else {}),
        }
        self.config = self.folder / "pebble.json"
        self.config.write_text(json.dumps({"pebble": settings}))

    def __enter__(self):
        environment = {**os.environ, "PEBBLE_WFE_NONCEREJECT": "20", "PEBBLE_AUTHZREUSE": "0"}
        environment["PEBBLE_VA_SLEEPTIME" if self.slow else "PEBBLE_VA_NOSLEEP"] = str(self.slow or 1)
        if self.accepts_all:
            environment["PEBBLE_VA_ALWAYS_VALID"] = "1"
        with open(self.folder / "pebble.log", "a") as log:
            command = servers.ending_with_us(["pebble", "-config", str(self.config), "-strict", *self.dns])
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        wait_until("pebble listens", lambda: listens(self.port) and listens(self.management))
        context = ssl.create_default_context(cafile=str(self.root))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self.issuer = opener.open(f"https://127.0.0.1:{self.management}/roots/0").read().decode()
        return self

    def __exit__(self, *_):
        servers.end(self.process)


class NameServer:
    """The records that pebble reads, a context manager. `program` is called with `set` or `remove`, a name and a value."""

    def __init__(self, folder):
        self.port, self.management = program.free_ports(2)
        self.program = pathlib.Path(folder, "records")
        self.calls = pathlib.Path(folder, "calls")
        record = '{"host": "\'$2\'.", "value": "\'$3\'"}'
        self.program.write_text(
            f"#!/bin/sh\nset -eu\necho \"$*\" >>'{self.calls}'\n"
            f"case $1 in set) path=set-txt ;; remove) path=clear-txt ;; esac\n"
            f"curl -sSf --noproxy '*' -d '{record}' http://127.0.0.1:{self.management}/$path\n"
        )
        self.program.chmod(0o700)

    def __enter__(self):
        listeners = {"-management": f"127.0.0.1:{self.management}", "-dnsserver": f"127.0.0.1:{self.port}"}
        # It has no IPv6 here, and answers no challenge of another kind.
        others = {"-defaultIPv6": "", "-http01": "", "-https01": "", "-tlsalpn01": "", "-doh": ""}
        flags = [f"{name}={value}" for name, value in (listeners | others).items()]
        command = servers.ending_with_us(["pebble-challtestsrv", *flags])
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("the name server listens", lambda: listens(self.management))
        return self

    def __exit__(self, *_):
        servers.end(self.process)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(what, is_so):
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise Failure(f"not within {SECONDS_MAX} seconds: {what}")
        time.sleep(0.02)


def tidegate(options, pebble, folder, *flags, command=("serve",), names=NAMES):
    """Our server at the port where pebble validates names, a context manager."""
    words = [options.program, *command, "--listen", f"127.0.0.1:{pebble.tls_port}", "--loops", "1"]
    words += ["--backend", options.backend, "--acme", *names, "--acme-folder", str(folder)]
    words += ["--acme-directory", f"https://127.0.0.1:{pebble.port}/dir", "--acme-root", str(pebble.root), *flags]
    return Logged(shlex.join(words))


class Logged(servers.Server):
    """A server whose lines are kept, and printed if the block fails."""

    def __enter__(self):
        super().__enter__()
        self.last_lines = collections.deque(self.last_lines, maxlen=LINES_MAX)
        return self

    def __exit__(self, kind, *rest):
        super().__exit__(kind, *rest)
        if kind:
            print("".join(self.last_lines))


def certificate(pebble, name="localhost"):
    """The certificate that a client gets which trusts pebble's root, as Python describes it; None without a handshake."""
    context = ssl.create_default_context(cadata=pebble.issuer)
    context.set_alpn_protocols(["http/1.1"])
    try:
        with socket.create_connection(("127.0.0.1", pebble.tls_port), 5) as plain:
            with context.wrap_socket(plain, server_hostname=name) as connection:
                return connection.getpeercert()
    except ssl.SSLCertVerificationError as error:
        raise Failure(f"{name}: {error}") from None
    except OSError:
        return None


def wait_for_certificate(pebble):
    wait_until("a certificate", lambda: certificate(pebble))
    for name in NAMES:
        if not certificate(pebble, name):
            raise Failure(f"no handshake with {name}")
    return certificate(pebble)


def files(folder, prefix):
    return [path for path in pathlib.Path(folder).iterdir() if path.name.startswith(prefix)]


def logged(server, text):
    return any(text in line for line in list(server.last_lines))


def issuance(options, folder):
    with Pebble(folder) as pebble:
        http = ["--acme-http", f"127.0.0.1:{pebble.http_port}", "--acme-challenge", "http-01"]
        proxy = ("proxy", "--upstream", "http://127.0.0.1:9")
        cases = [("tls-alpn-01", (), ("serve",)), ("http-01", http, ("serve",)), ("tls-alpn-01", (), proxy)]
        for number, (kind, flags, command) in enumerate(cases):
            own = pathlib.Path(folder, f"state-{number}")
            with tidegate(options, pebble, own, *flags, command=command):
                wait_for_certificate(pebble)
            modes = {path.name: path.stat().st_mode & 0o777 for path in own.iterdir()}
            if set(modes.values()) != {0o600} or own.stat().st_mode & 0o777 != 0o700:
                raise Failure(f"other users can read {modes}")
            print(f"{options.backend}, {command[0]}, {kind}: issued for {' and '.join(NAMES)}", flush=True)


def dns(options, folder):
    """DNS-01: a name and its wildcard are two records of one name."""
    names = ["sea.test", "*.sea.test"]
    with NameServer(folder) as name_server, Pebble(folder, dns=f"127.0.0.1:{name_server.port}") as pebble:
        own = pathlib.Path(folder, "by-dns")
        with tidegate(options, pebble, own, "--acme-dns-exec", str(name_server.program), names=names):
            found = waited_for(pebble, "brest.sea.test")
            if sorted(value for _, value in found["subjectAltName"]) != sorted(names) or not certificate(pebble, "sea.test"):
                raise Failure(f"the certificate has {found['subjectAltName']}")
            wait_until("the records are removed", lambda: name_server.calls.read_text().count("remove ") == 2)
        calls = [line.split() for line in name_server.calls.read_text().splitlines()]
        values = {action: sorted(value for kind, _, value in calls if kind == action) for action in ("set", "remove")}
        if {name for _, name, _ in calls} != {"_acme-challenge.sea.test"} or values["set"] != values["remove"]:
            raise Failure(f"the program was called so: {calls}")
    print(f"{options.backend}, dns-01: issued for {' and '.join(names)} by a program that sets the records", flush=True)


def file(options, folder):
    """The key `acme` of a listener: HTTP-01 is answered by the http listener of the file, and a reload adds a name."""
    with Pebble(folder) as pebble:
        path = pathlib.Path(folder, "gateway.toml")

        def write(names, challenge):
            path.write_text(
                f'[[listen]]\naddress = "127.0.0.1:{pebble.tls_port}"\nprotocol = "https"\n'
                f'acme = {{ names = {json.dumps(names)}, directory = "https://127.0.0.1:{pebble.port}/dir", '
                f'folder = "state-{challenge}", root = "{pebble.root}", challenges = "{challenge}" }}\n'
                f'[[listen]]\naddress = "127.0.0.1:{pebble.http_port}"\nredirect-https = true\n'
                '[[site]]\nhosts = "localhost"\n[[site.route]]\nrespond = { body = "sea" }\n'
            )

        words = [options.program, "run", "--loops", "1", "--backend", options.backend, "--config", str(path)]
        for challenge in ["tls-alpn-01", "http-01"]:
            write(NAMES[:1], challenge)
            with Logged(shlex.join(words)) as server:
                first = waited_for(pebble, NAMES[0])
                write(NAMES, challenge)
                begun = time.monotonic()
                server.process.send_signal(signal.SIGHUP)
                # No client is without a certificate: the first one stays until there is the other.
                while len((certificate(pebble, NAMES[0]) or {}).get("subjectAltName", [])) != len(NAMES):
                    if not certificate(pebble, NAMES[0]):
                        raise Failure("a client got no certificate while a name was added")
                    if time.monotonic() - begun > SECONDS_MAX:
                        raise Failure("the other name is not added")
                    time.sleep(0.02)
                if waited_for(pebble, NAMES[1])["serialNumber"] == first["serialNumber"]:
                    raise Failure("the certificate is the first one")
            print(f"{options.backend}, run, {challenge}: a reload adds a name", flush=True)


def waited_for(pebble, name):
    wait_until("a certificate", lambda: certificate(pebble, name))
    return certificate(pebble, name)


def failure(options, folder):
    with Pebble(folder) as pebble:
        own, wrong = pathlib.Path(folder, "failing"), program.free_ports(1)[0]
        http = ["--acme-challenge", "http-01", "--acme-http"]
        with tidegate(options, pebble, own, *http, f"127.0.0.1:{wrong}") as server:
            wait_until("a failed validation", lambda: logged(server, "no certificate was issued"))
            wait_until("the record of the failure", lambda: files(own, "failures"))
            if certificate(pebble):
                raise Failure("there is a certificate")
        right = [*http, f"127.0.0.1:{pebble.http_port}"]
        with tidegate(options, pebble, own, *right) as server:
            wait_until("the wait", lambda: logged(server, "an earlier attempt failed: the next one waits"))
            if certificate(pebble):
                raise Failure("the wait was cut short")
        for path in files(own, "failures"):
            path.unlink()
        with tidegate(options, pebble, own, *right):
            wait_for_certificate(pebble)
    print(f"{options.backend}: a failed validation waits over a restart, and then succeeds", flush=True)


def restart(options, folder):
    # A validation that meets no server would end the order.
    with Pebble(folder, slow=3, accepts_all=True) as pebble:
        own = pathlib.Path(folder, "killed")
        own.mkdir()
        with tidegate(options, pebble, own) as server:
            wait_until("an order", lambda: files(own, "order"))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        order = files(own, "order")[0].read_text()
        with tidegate(options, pebble, own) as server:
            wait_until("the same order", lambda: logged(server, "an earlier order continues"))
            if files(own, "order") and files(own, "order")[0].read_text() != order:
                raise Failure("there is another order")
            wait_for_certificate(pebble)
            wait_until("the end of the order", lambda: not files(own, "order"))
    print(f"{options.backend}: a process that was killed continues its order", flush=True)


def renewal(options, folder):
    own = pathlib.Path(folder, "renewed")
    with Pebble(folder, lifetime=LIFETIME_SECONDS) as pebble:
        with tidegate(options, pebble, own):
            first = wait_for_certificate(pebble)["serialNumber"]
            serials, begun = {first}, time.monotonic()
            while len(serials) < 3:
                found = certificate(pebble)
                if not found:
                    raise Failure("a client got no certificate during the renewal")
                serials.add(found["serialNumber"])
                if time.monotonic() - begun > SECONDS_MAX:
                    raise Failure(f"{len(serials)} certificates in {SECONDS_MAX} seconds")
                time.sleep(0.05)
    print(f"{options.backend}: two renewals of {LIFETIME_SECONDS} s certificates, all clients served", flush=True)


def lost_account(options, folder):
    """Pebble forgets its accounts when it ends; its root changes too."""
    own, pebble = pathlib.Path(folder, "lost"), Pebble(folder)
    with pebble, tidegate(options, pebble, own):
        wait_for_certificate(pebble)
    for path in files(own, "certificate"):
        path.unlink()
    with pebble, tidegate(options, pebble, own) as server:
        wait_for_certificate(pebble)
        wait_until("another account", lambda: logged(server, "the authority does not know the account"))
    print(f"{options.backend}: a new account at an authority that has lost the old one", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=program.PROGRAM)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parts = [issuance, dns, file, failure, restart, renewal, lost_account]
    parser.add_argument("--part", choices=[part.__name__ for part in parts], help="this part alone")
    options = parser.parse_args()
    program.need("pebble", "pebble-challtestsrv", "curl", "openssl")
    for options.backend in options.backends:
        for part in [part for part in parts if options.part in (None, part.__name__)]:
            with tempfile.TemporaryDirectory(prefix="tidegate-acme-") as folder:
                try:
                    part(options, folder)
                except Failure:
                    log = pathlib.Path(folder, "pebble.log")
                    print(log.read_text()[-3000:] if log.exists() else "pebble was not started")
                    raise


if __name__ == "__main__":
    servers.run(main)
