#!/usr/bin/env python3
"""`connectconformance` against a service of tonic on our loops, `examples/grpc_conformance`: every case of gRPC, in clear,
over TLS, and with certificates of clients."""

import argparse
import pathlib
import re

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs it.
program.use_tools("bin")

SECONDS_MAX = 120
CASES_MIN = 570
FOLDER = pathlib.Path(__file__).resolve().parent
CONFIGURATION = str(FOLDER / "grpc_conformance.yaml")
KNOWN = FOLDER / "grpc_conformance_known.txt"


def check(backend, binary):
    known = ["--known-failing", f"@{KNOWN}"] if KNOWN.exists() else []
    server = ["env", f"TIDEGATE_BACKEND={backend}", binary, "serve"]
    command = ["connectconformance", "--conf", CONFIGURATION, "--mode", "server", *known, "--", *server]
    code, output, errors = program.run(command, SECONDS_MAX)
    text = output.decode(errors="replace") + errors
    total = re.search(r"Total cases: (\d+)", text)
    if code != 0 or not total or int(total.group(1)) < CASES_MIN:
        raise Failure(f"{backend}: code {code}\n{text}")
    print(f"{backend}: {total.group(1)} cases as they should be", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", help="the server, which is built unless it is given")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("connectconformance")
    if options.example is None:
        options.example = program.build_example("grpc_conformance")
    for backend in options.backends:
        check(backend, options.example)


if __name__ == "__main__":
    servers.run(main)
