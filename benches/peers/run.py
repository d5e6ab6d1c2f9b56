#!/usr/bin/env python3
"""Builds Tidegate and its peers, measures them side by side, and writes tables and charts of it.

Servers take turns round by round, server and load on one core each. The README in this folder describes the jobs and
figures, and how to add a peer.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

from bench import PEERS, ROOT, campaign, figures, jobs, load, page, parts, peers, tables

import clients
import servers
from servers import Failure

BUILD_SECONDS_MAX = 1800
QUICK = {"rounds": 1, "memory_rounds": 1, "seconds": 1, "warm_up": 1, "idle": 200, "stuck": 20}
USUAL = {"rounds": 5, "memory_rounds": 3, "seconds": 3, "warm_up": None, "idle": 10_000, "stuck": 1_000}


def say(line):
    print(line, flush=True)


def build_generator(options):
    """Checks that wrk is installed; our own generator is built with the program."""
    if options.generator.name == "wrk":
        if not shutil.which("wrk"):
            raise Failure("wrk not found")
        return
    if not options.skip_build and options.generator.program == load.PROGRAM:
        say("building tidegate")
        environment = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
        command = ["cargo", "build", "--profile", load.PROGRAM.parent.name, "-p", "tidegate-cli"]
        code, output = servers.complete(command, BUILD_SECONDS_MAX, ROOT, environment)
        if code != 0:
            raise Failure(f"{' '.join(command)} ended with {code}\n{output}")
    if not pathlib.Path(options.generator.program).exists():
        raise Failure(f"{options.generator.program} is not built")


def names_of_all(options):
    return [job.name for job in jobs.all_jobs(options.connections)]


def chosen_jobs(options):
    known = {job.name: job for job in jobs.all_jobs(options.connections)}
    unknown = [name for name in options.jobs or [] if name not in known]
    if unknown:
        raise Failure(f"there is no job {', '.join(unknown)}: there are {', '.join(known)}")
    return [job for name, job in known.items() if not options.jobs or name in options.jobs]


def measure(options):
    """Builds and measures; the results are on disk after each round, whatever happens in the next."""
    wanted = chosen_jobs(options)
    known = peers.chosen(peers.read_all(), options.peers)
    clients.allow_descriptors(max(options.crowds.values()))
    build_generator(options)
    variants, skipped = peers.prepare(known, options.skip_build, say)
    if not variants:
        raise Failure("there is nothing to measure")
    results = campaign.description(variants, skipped, wanted, options)
    path = options.out / "results.json"
    campaign.play(results, variants, wanted, options, say, lambda latest: write(path, json.dumps(latest, indent=1)))
    return results


def read(path):
    return campaign.readable(json.loads(path.read_text()))


def added_to(directory, added, options):
    """The results in a directory with the jobs of `added`, or those of them that --jobs names."""
    wanted = options.jobs or list(added["jobs"])
    return parts.merged(read(directory / "results.json"), added, wanted, names_of_all(options))


def write(path, text):
    """Atomic write: the old file stays until the new text is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text + "\n")
    unfinished.replace(path)


def render(results, directory):
    write(directory / "results.md", tables.markdown(results))
    write(directory / "index.html", page.html(results))
    write(directory / "summary.md", tables.summary(results))
    write(directory / "summary.svg", page.summary_svg(results))
    say(f"written to {directory}: results.md, index.html, summary.md, summary.svg")


def names(text):
    return [name for name in text.split(",") if name]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=names, metavar="A,B", help="only these, by folder or by variant")
    parser.add_argument("--jobs", type=names, metavar="A,B", help="only these jobs")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--memory-rounds", type=int, metavar="N", help="rounds in which memory is measured as well")
    parser.add_argument("--seconds", type=int, metavar="N", help="of load for each figure")
    parser.add_argument("--warm-up", type=int, metavar="SECONDS", help="before the first figure; by default the peer's own")
    parser.add_argument("--connections", type=int, default=256, help="of a load")
    parser.add_argument("--idle", type=int, metavar="N", help="idle connections")
    parser.add_argument("--stuck", type=int, metavar="N", help="connections that never read")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the order in which servers take turns")
    parser.add_argument("--generator", choices=load.GENERATORS, default="tidegate", help="what makes the load")
    parser.add_argument("--load-program", type=pathlib.Path, help="another build of tidegate to make the load with")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--skip-build", action="store_true", help="measure what is built already")
    parser.add_argument("--quick", action="store_true", help="one short round with few connections: whether all runs")
    parser.add_argument("--out", type=pathlib.Path, default=PEERS / "out", metavar="DIR")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE", help="render this results.json again")
    parser.add_argument(
        "--into", type=pathlib.Path, metavar="DIR", help="add the jobs that are measured, or are in FILE, to the results here"
    )
    # Explicit options also override `--quick`.
    quick, _ = parser.parse_known_args()
    parser.set_defaults(**(QUICK if quick.quick else USUAL))
    options = parser.parse_args()
    if min(options.rounds, options.seconds, options.connections, options.idle, options.stuck) < 1:
        parser.error("rounds, seconds and connections are at least one")
    if options.into and options.into.resolve() == options.out.resolve():
        parser.error("--out is for the rounds as they are measured: it is another directory than --into")
    options.crowds = {"idle": options.idle, "stuck": options.stuck}
    program = [options.load_program] if options.load_program and options.generator == "tidegate" else []
    options.generator = load.GENERATORS[options.generator](*program)
    return options


def main():
    options = read_options()
    if options.into:
        # This must not fail a run of many minutes at its end.
        read(options.into / "results.json")
    results = read(options.source) if options.source else measure(options)
    if options.into:
        results = added_to(options.into, results, options)
        write(options.into / "results.json", json.dumps(results, indent=1))
    render(results, options.into or options.out)
    print(tables.aims_text(results))
    without = figures.without_any(results)
    if without:
        say(f"no figure at all of {', '.join(without)}, or a missing one of ours")
    return 1 if without else 0


if __name__ == "__main__":
    # The output may be a file that a user follows.
    sys.stdout.reconfigure(line_buffering=True)
    servers.run(main)
