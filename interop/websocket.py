#!/usr/bin/env python3
"""kosoku against `tidegate serve` and a client of ours: the cases of the Autobahn test suite for WebSocket.

No case may fail. Cases that pass but not strictly are listed: each has a reason below. The long form runs every case, the
short one leaves out the slow ones. With --tls there is TLS between kosoku and ours: HAProxy adds it, since kosoku has none.
The README beside this file says how to repeat it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs kosoku.
program.use_tools("kosoku/bin")
# The slow cases are those that take the time, most of it within kosoku.
SECONDS_MAX = 3600
CASES_MIN = 200
# Large messages in small frames, and thousands of compressed ones.
SLOW = ["9.*", "12.*", "13.*"]
# kosoku fails in them by itself, before it sends a byte: "Strings must be encoded before hashing".
BROKEN = ["12.*.1", "13.*.1"]
OK = {"OK", "INFORMATIONAL", "NON-STRICT", "UNIMPLEMENTED"}


class Tls(program.Front):
    """HAProxy between plain TCP and TLS: it adds TLS towards `origin_port`, or is the server of TLS itself."""

    CONFIG = """
global
  nbthread 1
  maxconn 4096
defaults
  mode tcp
  timeout connect 5s
  timeout client 10m
  timeout server 10m
listen all
  bind 127.0.0.1:{port} {bind}
  server origin 127.0.0.1:{origin} {server}
"""

    def __init__(self, origin_port, directory, certificate=None):
        super().__init__(origin_port, directory)
        self.certificate = certificate

    def command(self):
        config = pathlib.Path(self.directory, "haproxy.cfg")
        bind, server = ("", "ssl verify none") if self.certificate is None else (f"ssl crt {self.certificate}", "")
        text = self.CONFIG.format(port=self.ports[0], origin=self.origin_port, bind=bind, server=server)
        config.write_text(text)
        return ["haproxy", "-db", "-f", str(config)]


def certificate(folder):
    """A certificate for 127.0.0.1 with its key, in one file."""
    path = pathlib.Path(folder, "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", f"{folder}/key.pem", "-out", str(path)]
    code, _, errors = program.run(command, 60)
    if code:
        raise Failure(f"openssl req: {errors}")
    path.write_text(path.read_text() + pathlib.Path(folder, "key.pem").read_text())
    return str(path)


def run(backend, excluded, has_tls):
    """The behavior of each case by its name, on this backend."""
    serving = ["--tls-self-signed"] if has_tls else []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(program.serve(backend, *serving))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = stack.enter_context(Tls(server.port, folder)).ports[0] if has_tls else server.port
        flags = [word for case in excluded for word in ("-x", case)]
        command = ["kosoku", "-m", "fuzzingclient", "-o", folder, *flags, f"ws://127.0.0.1:{port}/ws"]
        with open(pathlib.Path(folder) / "log", "w+") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=SECONDS_MAX, check=False)
            log.seek(0)
            text = log.read()
        return behaviors(folder, text)


def run_client(example, excluded, has_tls):
    """The behavior of each case by its name, of the client `examples/websocket.rs`."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        (port,) = program.free_ports(1)
        environment = dict(os.environ)
        flags = [word for case in excluded for word in ("-x", case)]
        command = ["kosoku", "-m", "fuzzingserver", "-o", folder, *flags, f"127.0.0.1:{port}"]
        url = f"ws://127.0.0.1:{port}"
        if has_tls:
            path = certificate(folder)
            url = f"wss://127.0.0.1:{stack.enter_context(Tls(port, folder, path)).ports[0]}"
            environment["SSL_CERT_FILE"] = path
        suite = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            count = None
            for _ in range(program.LISTEN_SECONDS_MAX * 10):
                asked = subprocess.run([example, "--print", f"{url}/getCaseCount"], capture_output=True, text=True, check=False,
                                       env=environment)
                if asked.returncode == 0 and asked.stdout.strip().isdigit():
                    count = int(asked.stdout)
                    break
                time.sleep(0.1)
            if count is None:
                raise Failure(f"kosoku does not report its number of cases: {asked.stderr[-300:]}")
            for number in range(1, count + 1):
                # The exit code depends on how the case ends the connection; the report is the judge.
                case = [example, f"{url}/runCase?case={number}&agent=tidegate"]
                subprocess.run(case, capture_output=True, timeout=SECONDS_MAX, check=False, env=environment)
            report = [example, f"{url}/updateReports?agent=tidegate"]
            subprocess.run(report, capture_output=True, timeout=60, check=False, env=environment)
            for _ in range(program.LISTEN_SECONDS_MAX * 10):
                if whole_report(folder):
                    break
                time.sleep(0.1)
        finally:
            suite.terminate()
            suite.wait()
        return behaviors(folder, "")


def whole_report(folder):
    """The report of kosoku; `None` before all of it is written."""
    for index in pathlib.Path(folder).rglob("index.json"):
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(index.read_text())
    return None


def behaviors(folder, output):
    """The behavior of each case in the report of kosoku."""
    report = whole_report(folder)
    if report is None:
        raise Failure(f"kosoku wrote no report: {output[-500:]}")
    (cases,) = report.values()
    return {name: (case["behavior"], case.get("behaviorClose", "OK")) for name, case in cases.items()}


def judge(name, cases):
    """Prints what the cases found, and fails if one failed."""
    failed = {number: case for number, case in cases.items() if not set(case) <= OK}
    loose = sorted(number for number, case in cases.items() if "NON-STRICT" in case)
    unimplemented = sorted(number for number, case in cases.items() if "UNIMPLEMENTED" in case)
    print(f"{name}: {len(cases)} cases, {len(failed)} failed; not strict: {loose}; not there: {unimplemented}", flush=True)
    if failed or len(cases) < CASES_MIN:
        raise Failure(f"failed: {failed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="the slow cases as well")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    options = parser.parse_args()
    program.need("kosoku", *(["haproxy", "openssl"] if options.tls else []))
    excluded = BROKEN if options.all else SLOW
    for backend in program.BACKENDS:
        judge(backend, run(backend, excluded, options.tls))
    judge("client", run_client(program.build_example("websocket"), excluded, options.tls))


if __name__ == "__main__":
    servers.run(main)
