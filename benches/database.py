#!/usr/bin/env python3
"""Queries of PostgreSQL through the tokio runtime, beside axum on tokio alone: the database workloads of benches/arena.

It starts a PostgreSQL of its own, on a Unix socket. Each server runs on one core, the load and the database on the other.
Servers take turns, and ratios are taken within a round. Two figures for each workload: microseconds from a request to its
response on one connection, and CPU microseconds of the server for each request on many.
"""

import argparse
import json
import os
import pathlib
import pwd
import shutil
import statistics
import subprocess
import tempfile
import time

import servers
from compare import ratio
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
OURS = f"{servers.BUILT}/arena 127.0.0.1:0 1"
AXUM = f"{HERE}/peers/target/release/arena-axum08 127.0.0.1:0 /nowhere"
WORKLOADS = {"async-db": "/async-db?min=10&max=50&limit=10", "one-row": "/async-db?min=10&max=50&limit=1", "read": "/crud/items/5"}
START_SECONDS_MAX = 60


class Postgres:
    """A PostgreSQL in a folder of its own, a context manager."""

    def __init__(self, core):
        self.core = core

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="tidegate-postgres-")
        # It refuses root.
        self.user = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self.user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        data = f"{self.folder}/data"
        initdb = [program("initdb"), "--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "-D", data]
        self.log = open(f"{self.folder}/log", "w")
        options = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log, **self.user}
        subprocess.run(initdb, check=True, **options)
        server = ["taskset", "-c", str(self.core), program("postgres"), "-D", data, "-k", self.folder, "-h", "", "-F"]
        self.process = subprocess.Popen(server, **options)
        begun = time.monotonic()
        while "ready to accept connections" not in pathlib.Path(self.log.name).read_text():
            if self.process.poll() is not None or time.monotonic() - begun > START_SECONDS_MAX:
                raise Failure(f"PostgreSQL does not start: {pathlib.Path(self.log.name).read_text()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        servers.end(self.process)
        self.log.close()
        shutil.rmtree(self.folder)

    @property
    def settings(self):
        return f"host={self.folder} user=postgres dbname=postgres"


def program(name):
    """A program of PostgreSQL, which Debian keeps out of the path."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name


def load(server, options, path, connections):
    """Requests that were answered within the time."""
    command = ["taskset", "-c", str(options.load_core), "wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{options.seconds}s", "--script", f"{HERE}/load.lua"]
    command += [f"http://127.0.0.1:{server.port}/", "--", "1", path]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    results = [line.partition(" ")[2] for line in output.splitlines() if line.startswith("load-result ")]
    result = json.loads(results[0])
    requests = result.pop("requests")
    if any(result.values()) or not requests:
        raise Failure(f"{server.command}: {path}: {requests} requests, errors {result}")
    return requests


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="several times for several; all unless given")
    options = parser.parse_args()
    workloads = options.workload or list(WORKLOADS)
    figures = {}
    with Postgres(options.load_core) as postgres:
        ours = f"{OURS} --database '{postgres.settings}' --database-on"
        commands = {"runtime": f"{ours} runtime", "loop": f"{ours} loop", "axum": f"{AXUM} '{postgres.settings}'"}
        for round_number in range(options.rounds + 1):
            for name, command in commands.items():
                with Server(command, core=options.server_core) as server:
                    for workload in workloads:
                        path = WORKLOADS[workload]
                        waited = options.seconds / load(server, options, path, 1) * 1e6
                        before = server.cpu_seconds()
                        requests = load(server, options, path, options.connections)
                        cpu = (server.cpu_seconds() - before) / requests * 1e6
                        # The first round warms the database up.
                        if round_number > 0:
                            figures.setdefault((workload, "us to a response, one connection", name), []).append(waited)
                            kind = f"CPU us of a request, {options.connections} connections"
                            figures.setdefault((workload, kind, name), []).append(cpu)
                            rate = f"us between responses, {options.connections} connections"
                            figures.setdefault((workload, rate, name), []).append(options.seconds / requests * 1e6)
    print(f"medians of {options.rounds} rounds, and ratios to axum on tokio")
    for workload, kind in dict.fromkeys((workload, kind) for workload, kind, _ in figures):
        print(f"{workload}: {kind}")
        base = figures[workload, kind, "axum"]
        for name in commands:
            costs = figures[workload, kind, name]
            print(f"    {name:10} {statistics.median(costs):9.2f}  {ratio(costs, base)}")


if __name__ == "__main__":
    servers.run(main)
