#!/usr/bin/env python3
"""The HTTP/3 and the QUIC of `tidegate serve`, as h3spec sees them: all of its 45 cases, on both backends."""

import argparse
import re

import program
import servers
from program import Failure

# Where `cargo xtask long` installs h3spec.
program.use_tools("h3spec")

CASES = 45
SECONDS_MAX = 240


def check(backend, binary):
    flags = ["--loops", "1", "--tls-self-signed", "--http3"]
    with program.serve(backend, *flags, program=binary) as server:
        _, output, errors = program.run(["h3spec", "127.0.0.1", str(server.port)], SECONDS_MAX)
    text = output.decode(errors="replace") + errors
    summary = re.search(r"(\d+) examples, (\d+) failures?", text)
    if not summary:
        raise Failure(f"h3spec printed no summary:\n{text[-2000:]}")
    print(f"{backend}: {summary[0]}", flush=True)
    if [int(count) for count in summary.groups()] != [CASES, 0]:
        raise Failure(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=program.PROGRAM)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("h3spec")
    for backend in options.backends:
        check(backend, options.program)


if __name__ == "__main__":
    servers.run(main)
