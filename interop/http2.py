#!/usr/bin/env python3
"""The HTTP/2 of `tidegate serve`, as h2spec sees it: all of its 146 cases, strictly, in clear and over TLS."""

import argparse
import re

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs h2spec.
program.use_tools("bin")

CASES = 146
SECONDS_MAX = 120


def check(backend, binary, has_tls):
    summary, text = run(backend, binary, has_tls)
    print(f"{backend}, {'TLS' if has_tls else 'in clear'}: {summary[0]}", flush=True)
    if [int(count) for count in summary.groups()] != [CASES, CASES, 0, 0]:
        raise Failure(text[text.find("Failures:"):])


def run(backend, binary, has_tls):
    flags = ["--loops", "1", *(["--tls-self-signed"] if has_tls else [])]
    with program.serve(backend, *flags, program=binary) as server:
        command = ["h2spec", "--strict", "--timeout", "3", "-h", "127.0.0.1", "-p", str(server.port)]
        command += ["-t", "-k"] if has_tls else []
        _, output, _ = program.run(command, SECONDS_MAX)
    text = output.decode(errors="replace")
    summary = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", text)
    if not summary:
        raise Failure(f"h2spec printed no summary:\n{text[-2000:]}")
    return summary, text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=program.PROGRAM)
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("h2spec")
    for backend in options.backends:
        for has_tls in [False, True]:
            check(backend, options.program, has_tls)


if __name__ == "__main__":
    servers.run(main)
