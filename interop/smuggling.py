#!/usr/bin/env python3
"""smugglex against `tidegate serve` behind nginx, behind HAProxy, and behind a careless proxy: it has to find nothing. With
`--proxy` against `tidegate proxy` in front of a careless origin, of Python's server, of nginx and of `tidegate serve`: nothing
as well.

That it can find something is shown first, with an origin that is as careless as that proxy. The README beside this file
says how to repeat it.
"""

import argparse
import contextlib
import json
import pathlib
import shlex
import tempfile
import time

import gateway
import naive
import program
import servers
from program import Failure

CHECKS = ["cl-te", "te-cl", "te-te", "h2c", "h2", "cl-edge", "cl-0", "0-cl", "parser-discrepancy"]
# One path accepts no body, and one accepts any.
PATHS = ["/", "/echo"]
SCAN_SECONDS_MAX = 1200
# The exit codes of smugglex.
CLEAN, FOUND = 0, 1


def scan(urls, options, *flags):
    """Runs smugglex: its findings as lines with check and target, and the number of checks."""
    command = ["smugglex", "--json", "--timeout", str(options.timeout), "--concurrency", str(len(urls)), *flags, *urls]
    code, output, errors = program.run(command, SCAN_SECONDS_MAX)
    if code not in (CLEAN, FOUND):
        raise Failure(f"smugglex: code {code}\n{errors}")
    try:
        report = json.loads(output)
    except ValueError:
        raise Failure(f"smugglex: no JSON: {output[:500]!r} {errors}") from None
    found = []
    for result in report["results"]:
        if result.get("error"):
            raise Failure(f"smugglex: {result['target']}: {result['error']}")
        for check in result["checks"]:
            where = f"{check['check_type']} at {result['target']}"
            notes = check.get("diagnostics", [])
            # A check that could not run proves nothing.
            if any(note.startswith("check_failed") for note in notes):
                raise Failure(f"smugglex: {where}: {notes}")
            if options.verbose and notes:
                print(f"  {where}: {notes}")
            if check["vulnerable"]:
                signals = ", ".join(check.get("detection_signals", []))
                found.append(f"{where}: {signals}; {check['attack_status']}; {check.get('payload')!r}")
    if (code == FOUND) != bool(found):
        raise Failure(f"smugglex: code {code}, and {found}")
    return found, report["summary"]["total_checks"]


def control(options):
    """Control: smugglex must find something between the careless pair, or the test is void."""
    begun = time.monotonic()
    with naive.Origin() as origin, naive.Proxy(origin.port) as proxy:
        flags = ["--checks", "cl-te,te-cl", "--max-payloads", "3"]
        found, checks = scan([f"http://127.0.0.1:{proxy.port}/"], options, *flags)
    print(f"careless proxy, careless origin: {len(found)} found by {checks} checks; {time.monotonic() - begun:.1f} s")
    if len(found) != checks:
        raise Failure(f"smugglex found only {found} between the careless pair")


def judge(backend, options):
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(program.serve(backend, program=options.program))
        nginx = stack.enter_context(program.Nginx(server.port, directory))
        haproxy = stack.enter_context(program.Haproxy(server.port, directory))
        careless = stack.enter_context(naive.Proxy(server.port))
        ports = [*nginx.ports, *haproxy.ports, careless.port]
        urls = [f"http://127.0.0.1:{port}{path}" for port in ports for path in PATHS]
        before = program.counts(server)
        found, checks = scan(urls, options, "--checks", ",".join(CHECKS))
        after = program.counts(server)
    messages, offences = (after[name] - before[name] for name in ("messages", "closed_protocol"))
    print(
        f"{backend}: {len(found)} found by {checks} checks of {len(urls)} addresses; {messages} messages came through, "
        f"{offences} connections were refused; {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    expect_none(found, checks, urls)


def expect_none(found, checks, urls):
    if found:
        raise Failure("smugglex found\n" + "\n".join(found))
    if checks < len(urls) * len(CHECKS):
        raise Failure(f"{checks} checks ran, and {len(urls) * len(CHECKS)} were requested")


def judge_proxy(backend, options):
    """Our proxy in front of other servers. With the careless origin everything depends on the proxy."""
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        files = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), "files")
        files.mkdir()
        files.parent.chmod(0o755)
        (files / "index.html").write_bytes(naive.PAGE)
        (files / "echo").write_bytes(naive.PAGE)
        careless = stack.enter_context(naive.Origin())
        own = stack.enter_context(program.serve(backend, program=options.program))
        origins = [careless.port, stack.enter_context(gateway.python(files)), stack.enter_context(gateway.nginx(files))]
        origins.append(own.port)
        proxies = []
        for origin in origins:
            words = [options.program, "proxy", "--listen", "127.0.0.1:0", "--quiet", "--backend", backend]
            words += ["--upstream", f"http://127.0.0.1:{origin}"]
            proxies.append(stack.enter_context(servers.Server(shlex.join(words))))
        urls = [f"http://127.0.0.1:{proxy.port}{path}" for proxy in proxies for path in PATHS]
        found, checks = scan(urls, options, "--checks", ",".join(CHECKS))
    print(
        f"{backend}, our proxy in front of {len(origins)} servers: {len(found)} found by {checks} checks; "
        f"{time.monotonic() - begun:.1f} s",
        flush=True,
    )
    expect_none(found, checks, urls)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--timeout", type=int, default=4, help="seconds that smugglex waits for an answer")
    parser.add_argument("--proxy", action="store_true", help="test `tidegate proxy` in the place of `tidegate serve`")
    parser.add_argument("--verbose", action="store_true", help="print the notes of smugglex too")
    options = parser.parse_args()
    program.need("smugglex", "nginx", *([] if options.proxy else ["haproxy"]))
    control(options)
    for backend in options.backends:
        (judge_proxy if options.proxy else judge)(backend, options)


if __name__ == "__main__":
    servers.run(main)
