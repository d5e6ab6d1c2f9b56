#!/usr/bin/env python3
"""Reports which lines of the decoders the corpora reach, and fails if it is less than 90 % of a file,
or less than 80 % of a file that is more than a decoder.

    cargo xtask coverage [--missed]

Valgrind counts, so this works with every compiler version and needs no matching tool. The test that replays the
corpora is built without optimisation and with dead code. The lines in its debug information are those that could be
reached; the lines with instructions in Callgrind's counts are those that were. Derived code does not count: it has the
lines of the fields.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target/fuzz/coverage"
FILES = [
    *(f"crates/codec/src/framing/{name}.rs" for name in "delimiter fixed json length_field lines mod raw varint".split()),
    "crates/codec/src/over.rs",
    "crates/l4/src/client_hello.rs",
    *(f"crates/websocket/src/{name}.rs" for name in "codec frame mask utf8 permessage_deflate".split()),
    *(f"crates/socks/src/{name}.rs" for name in "client server v4 v5".split()),
    *(f"crates/nats/src/{name}.rs" for name in "client_codec line message_view server_codec".split()),
    *(f"crates/memcached/src/{name}.rs" for name in "client_codec key line meta parse server_codec".split()),
    *(f"crates/redis/src/{name}.rs" for name in "client_codec inline nesting server_codec token value".split()),
    *(f"crates/proxy-protocol/src/{name}.rs" for name in "receiver tlv v1 v2".split()),
    "crates/codec/src/sniff/rules.rs",
    *(f"crates/http1/src/{name}.rs" for name in "body client client/head head parse runs server".split()),
    *(f"crates/scan/src/{name}.rs" for name in "field portable sweep x86".split()),
]
PERCENT_MIN = 90
# Files with more than a decoder: what they send, deadlines, and what only HTTP/2 calls. The tests of their crates cover
# that.
PERCENT_MIN_OF = {
    "crates/http1/src/client/head.rs": 80,
    "crates/socks/src/client.rs": 80,
    "crates/websocket/src/codec.rs": 80,
    "crates/websocket/src/permessage_deflate.rs": 80,
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--missed", action="store_true", help="name the lines that were not reached")
    missed = arguments.parse_args().missed
    program = build()
    there, reached = lines_of(program), counted(program)
    for name in FILES:
        derived = derived_in(name)
        there[name] -= derived
        reached[name] -= derived
    strange = [name for name in FILES if not there[name] or not reached[name] <= there[name]]
    if strange:
        sys.exit(f"the debug information and the counts contradict each other: {strange}")
    low = []
    for name in FILES:
        percent = 100 * len(reached[name]) / len(there[name])
        print(f"{name:42} {len(reached[name]):4} of {len(there[name]):4} lines {percent:6.1f} %")
        if missed:
            print("   ", ranges(there[name] - reached[name]))
        if percent < PERCENT_MIN_OF.get(name, PERCENT_MIN):
            low.append(name)
    sums = [sum(len(found[name]) for name in FILES) for found in (reached, there)]
    print(f"{'all':42} {sums[0]:4} of {sums[1]:4} lines {100 * sums[0] / sums[1]:6.1f} %")
    if low:
        sys.exit(f"too few lines are reached: {', '.join(low)}")


def build():
    """Builds the test that replays the corpora, and returns its path."""
    settings = {
        # Otherwise the compiler inlines some functions early, and their lines get no code of their own.
        "CARGO_INCREMENTAL": "1",
        "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "line-tables-only",
        "RUSTFLAGS": "-Clink-dead-code",
    }
    command = ["cargo", "test", "--no-run", "--quiet", "--package", "tidegate-fuzz", "--test", "corpora"]
    command += ["--target-dir", str(OUT), "--message-format", "json"]
    for crate in sorted({name.split("/")[1] for name in FILES}):
        command += ["--config", f"profile.dev.package.tidegate-{crate}.opt-level=0"]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, check=True)
    messages = map(json.loads, built.stdout.decode().splitlines())
    return next(one["executable"] for one in messages if one.get("executable") and one["target"]["name"] == "corpora")


def lines_of(program):
    """The lines for which there is code, by file."""
    command = ["objdump", "--wide", "--dwarf=decodedline", program]
    table = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found = {name: set() for name in FILES}
    heading = current = first = None
    for line in table.stdout.decode(errors="replace").splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = current = found.get(relative(line[:-1].removeprefix("CU: ")))
        elif line.startswith("File name"):
            # The heading before it is the first file of a unit; every sequence of rows starts with that file.
            first = heading
        elif row := re.match(r"\S.*?\s+(\d+|-)\s+0x", line):
            if row[1] == "-":
                current = first
            elif current is not None and row[1] != "0":
                current.add(int(row[1]))
    return found


def counted(program):
    """The lines that were reached, by file."""
    out = OUT / "callgrind.out"
    command = ["valgrind", "--quiet", "--tool=callgrind", "--dump-line=yes"]
    command += ["--compress-strings=no", "--compress-pos=no"]
    command += [f"--callgrind-out-file={out}", program, "--test-threads=1", "every_input_passes_its_target"]
    replayed = subprocess.run(command, cwd=ROOT / "fuzz", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if replayed.returncode != 0 or b" 1 passed" not in replayed.stdout:
        sys.exit(replayed.stdout.decode(errors="replace"))
    found = {name: set() for name in FILES}
    current = None
    for line in out.read_text(errors="replace").splitlines():
        if line.startswith(("fl=", "fi=", "fe=")):
            current = found.get(relative(line[3:]))
        elif current is not None and line[:1].isdigit() and (number := int(line.split()[0])) > 0:
            current.add(number)
    return found


def derived_in(name):
    """The lines of types that derive something."""
    found = set()
    inside = False
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        inside = inside or line.startswith("#[derive(")
        if inside:
            found.add(number)
        inside = inside and not (line.startswith("}") or (line[:1].isalpha() and line.endswith(";")))
    return found


def relative(name):
    """The path relative to the root, as in FILES."""
    return os.path.normpath(name).removeprefix(f"{ROOT}/")


def ranges(numbers):
    """`1-3, 7`, for 1, 2, 3 and 7."""
    spans = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


if __name__ == "__main__":
    main()
