#!/usr/bin/env python3
"""Adds inputs to the corpora that runs of `cargo xtask fuzz` have found and that reach code which the corpora do not.

    fuzz/keep.py [TARGET...]

Inputs that reach the most new code come first, up to a maximum number of files. This keeps far less than `cargo fuzz
cmin`, which also counts how often code is reached, and it does not remove named inputs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target/fuzz"
INPUTS_MAX = 150
INPUT_BYTES_MAX = 700


def main():
    for target in sys.argv[1:] or sorted(path.stem for path in (ROOT / "fuzz/targets").glob("*.rs")):
        corpus, found = ROOT / "fuzz/corpus" / target, OUT / "found" / target
        reached = features(target, corpus, found)
        covered = set().union(*(edges for path, edges in reached.items() if path.parent == corpus))
        count, before = len(list(corpus.iterdir())), len(covered)
        rest = {path: edges - covered for path, edges in reached.items() if path.parent == found}
        while count < INPUTS_MAX and (rest := {path: edges for path, edges in rest.items() if edges}):
            best = max(rest, key=lambda path: (len(rest[path]), -path.stat().st_size, path.name))
            covered |= rest[best]
            shutil.copy(best, corpus)
            count += 1
            rest = {path: edges - covered for path, edges in rest.items()}
        print(f"{target:14} {count:4} inputs reach {len(covered)} edges, {len(covered) - before} more than before")


def features(target, corpus, found):
    """The edges of the program that each input reaches."""
    program = next((OUT / "none").glob(f"*/release/{target}"), None) or sys.exit("run `cargo xtask fuzz` first")
    with tempfile.TemporaryDirectory() as scratch:
        table, empty = Path(scratch) / "table", Path(scratch) / "empty"
        empty.mkdir()
        command = [program, "-set_cover_merge=1", "-use_counters=0", f"-merge_control_file={table}"]
        command += [f"-max_len={INPUT_BYTES_MAX}", empty, corpus, found]
        merged = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if merged.returncode != 0:
            sys.exit(merged.stdout.decode(errors="replace"))
        lines = table.read_text().splitlines()
    paths = [Path(os.path.abspath(line)) for line in lines[2 : 2 + int(lines[0])]]
    rows = (line.split() for line in lines if line.startswith("FT "))
    sets = {paths[int(row[1])]: set(map(int, row[2:])) for row in rows}

    def was_read_whole(path):
        return path.parent == corpus or path.stat().st_size <= INPUT_BYTES_MAX

    return {path: edges for path, edges in sets.items() if was_read_whole(path)}


if __name__ == "__main__":
    main()
