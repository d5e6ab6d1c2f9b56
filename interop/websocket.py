#!/usr/bin/env python3
"""kosoku against `tidegate serve` and a client of ours: the cases of the Autobahn test suite for WebSocket.

No case may fail. Cases that pass but not strictly are listed: each has a reason below. The long form runs every case, the
short one leaves out the slow ones. The README beside this file says how to repeat it.
"""

import argparse
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
os.environ["PATH"] += os.pathsep + str(program.ROOT / "target/tools/kosoku/bin")
CLIENT = str(program.ROOT / "target/debug/examples/websocket")
SECONDS_MAX = 540
CASES_MIN = 200
# Large messages in small frames, and thousands of compressed ones.
SLOW = ["9.*", "12.*", "13.*"]
OK = {"OK", "INFORMATIONAL", "NON-STRICT", "UNIMPLEMENTED"}


def run(backend, excluded):
    """The behavior of each case by its name, on this backend."""
    with program.serve(backend) as server, tempfile.TemporaryDirectory() as folder:
        flags = [word for case in excluded for word in ("-x", case)]
        command = ["kosoku", "-m", "fuzzingclient", "-o", folder, *flags, f"ws://127.0.0.1:{server.port}/ws"]
        with open(pathlib.Path(folder) / "log", "w+") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=SECONDS_MAX, check=False)
            log.seek(0)
            text = log.read()
        return behaviors(folder, text)


def run_client(excluded):
    """The behavior of each case by its name, of the client in `examples/websocket.rs`."""
    with tempfile.TemporaryDirectory() as folder:
        (port,) = program.free_ports(1)
        flags = [word for case in excluded for word in ("-x", case)]
        command = ["kosoku", "-m", "fuzzingserver", "-o", folder, *flags, f"127.0.0.1:{port}"]
        url = f"ws://127.0.0.1:{port}"
        suite = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            count = None
            for _ in range(program.LISTEN_SECONDS_MAX * 10):
                asked = subprocess.run([CLIENT, "--print", f"{url}/getCaseCount"], capture_output=True, text=True, check=False)
                if asked.returncode == 0 and asked.stdout.strip().isdigit():
                    count = int(asked.stdout)
                    break
                time.sleep(0.1)
            if count is None:
                raise Failure(f"kosoku does not report its number of cases: {asked.stderr[-300:]}")
            for number in range(1, count + 1):
                # The exit code depends on how the case ends the connection; the report is the judge.
                case = [CLIENT, f"{url}/runCase?case={number}&agent=tidegate"]
                subprocess.run(case, capture_output=True, timeout=SECONDS_MAX, check=False)
            subprocess.run([CLIENT, f"{url}/updateReports?agent=tidegate"], capture_output=True, timeout=60, check=False)
            for _ in range(program.LISTEN_SECONDS_MAX * 10):
                if any(pathlib.Path(folder).rglob("index.json")):
                    break
                time.sleep(0.1)
        finally:
            suite.terminate()
            suite.wait()
        return behaviors(folder, "")


def behaviors(folder, output):
    """The behavior of each case in the report of kosoku."""
    indexes = list(pathlib.Path(folder).rglob("index.json"))
    if not indexes:
        raise Failure(f"kosoku wrote no report: {output[-500:]}")
    (cases,) = json.loads(indexes[0].read_text()).values()
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
    options = parser.parse_args()
    program.need("kosoku")
    for backend in program.BACKENDS:
        cases = run(backend, [] if options.all else SLOW)
        judge(backend, cases)
    if pathlib.Path(CLIENT).is_file():
        judge("client", run_client([] if options.all else SLOW))
    else:
        program.skip_part(f"{CLIENT} is not built")


if __name__ == "__main__":
    servers.run(main)
