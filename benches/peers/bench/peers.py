"""The measured peers: reads `benches/peers/*/peer.json`, builds the available peers, and reports why others are skipped.

A peer is a program in its own folder; its variants are the ways to start it, and each is measured as a separate server.
The README next to `run.py` describes the file.
"""

import json
import os
import shlex
import shutil
from typing import NamedTuple

from servers import Failure, complete

from . import PEERS, ROOT

BUILD_SECONDS_MAX = 1800
VERSION_SECONDS_MAX = 60
OUTPUT_LINES_SHOWN = 5
WARM_UP_SECONDS = 2
# Garbage-collected runtimes often compile at run time as well.
COLLECTED_WARM_UP_SECONDS = 10


class Variant(NamedTuple):
    """One way to start a peer."""

    name: str
    title: str
    peer: str
    peer_title: str
    command: str
    language: str
    version: str
    configured: str
    collected: bool
    parses_headers: bool
    warm_up_seconds: float
    without: tuple
    why_without: str


def read_all(directory=PEERS):
    """The peers in a directory: {folder's name: what its file says}."""
    peers = {}
    for path in sorted(directory.glob("*/peer.json")):
        try:
            peers[path.parent.name] = json.loads(path.read_text())
        except ValueError as error:
            raise Failure(f"{path}: {error}") from None
    return peers


def chosen(peers, names):
    """The peers named by folder or by variant, with only the named variants; all peers if none is named."""
    if not names:
        return peers
    known = set(peers) | {variant["name"] for peer in peers.values() for variant in peer["variants"]}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Failure(f"there is no peer {', '.join(unknown)}: there are {', '.join(sorted(known))}")
    some = {}
    for name, peer in peers.items():
        variants = [variant for variant in peer["variants"] if name in names or variant["name"] in names]
        if variants:
            some[name] = dict(peer, variants=variants)
    return some


def missing_tools(peer):
    """Why a peer cannot be built or started here, or None."""
    missing = [tool for tool in peer.get("needs", []) if not shutil.which(tool)]
    if not missing:
        return None
    packages = peer.get("packages")
    return f"{', '.join(missing)} not found" + (f" (Debian: {' '.join(packages)})" if packages else "")


def build(name, peer):
    """Runs a peer's build commands in its folder."""
    # The build output has to be where the peer's command expects it.
    environment = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
    for command in peer.get("build", []):
        code, output = run_in(PEERS / name, filled_in(command, name), BUILD_SECONDS_MAX, environment)
        if code != 0:
            raise Failure(f"`{command}` ended with {code}: {last_lines(output)}")


def built_version(name, peer):
    """The version that a peer's own command prints; empty if it has none."""
    if "version" not in peer:
        return ""
    code, output = run_in(ROOT, filled_in(peer["version"], name), VERSION_SECONDS_MAX)
    return output.strip().splitlines()[0] if code == 0 and output.strip() else ""


def run_in(directory, command, seconds_max, environment=None):
    try:
        return complete(shlex.split(command), seconds_max, directory, environment)
    except OSError as error:
        raise Failure(str(error)) from None


def last_lines(output):
    return " / ".join(line.strip() for line in output.strip().splitlines()[-OUTPUT_LINES_SHOWN:])


def filled_in(command, name):
    """A command with its placeholders replaced by paths; quoted, since it is split again."""
    places = {"dir": PEERS / name, "target": PEERS / "target/release", "root": ROOT}
    for key, path in places.items():
        command = command.replace("{" + key + "}", shlex.quote(str(path)))
    return command


def variants(name, peer, version=""):
    collected = peer.get("collected", False)
    return [
        Variant(
            name=variant["name"],
            title=variant.get("title", peer["title"]),
            peer=name,
            peer_title=peer["title"],
            command=filled_in(variant["command"], name),
            language=peer.get("language", ""),
            version=version,
            configured=" ".join(filter(None, [peer.get("configured", ""), variant.get("configured", "")])),
            collected=collected,
            parses_headers=peer.get("parses_headers", True),
            warm_up_seconds=peer.get("warm_up_seconds", COLLECTED_WARM_UP_SECONDS if collected else WARM_UP_SECONDS),
            without=tuple(variant.get("without", peer.get("without", ()))),
            why_without=variant.get("why_without", peer.get("why_without", "it is no part of it")),
        )
        for variant in peer["variants"]
    ]


def prepare(peers, skip_build, say):
    """Builds the peers; returns the variants to measure, and the skipped ones: [{"peer", "title", "reason"}]."""
    ready, skipped = [], []
    for name, peer in peers.items():
        reason = missing_tools(peer)
        try:
            if reason is None and not skip_build and peer.get("build"):
                say(f"building {name}")
                build(name, peer)
            version = "" if reason else built_version(name, peer)
        except Failure as failure:
            reason = str(failure)
        if reason:
            say(f"skipping {name}: {reason}")
            skipped.append({"peer": name, "title": peer["title"], "reason": reason})
        else:
            ready += variants(name, peer, version)
    return ready, skipped
