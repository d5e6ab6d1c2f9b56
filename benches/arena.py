#!/usr/bin/env python3
"""The workloads of benches/arena: Tidegate, axum, actix-web and hyper, one core each.

CPU microseconds of the server for each request, and the most memory that it had. Servers take turns, round by round, and ratios
are taken within a round. HTTP/1.1 is under wrk, HTTP/2 under h2load, and WebSocket under `tidegate load`. A response other than
200, an error of a connection or a timeout fails the run. All servers send the same files of one folder, which the arena writes.
"""

import argparse
import json
import pathlib
import re
import tempfile

import compare
import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
PEERS = f"{HERE}/peers/target/release"
SERVERS = {
    "tidegate": f"{servers.BUILT}/arena 127.0.0.1:0 1 --precompressed --files {{folder}}",
    "axum": f"{PEERS}/arena-axum08 127.0.0.1:0 {{folder}}",
    "actix": f"{PEERS}/arena-actix4 127.0.0.1:0 {{folder}}",
    "hyper": f"{PEERS}/arena-hyper1 127.0.0.1:0",
}
PATIENCE_SECONDS = 60
PAGES = [(1, 3), (5, 7), (10, 2), (15, 5), (25, 4), (40, 8), (50, 6)]
ACCEPT = "Accept-Encoding: gzip, br"
ACCEPT_OF_FILES = "Accept-Encoding: br;q=1, gzip;q=0.8"


def request(target, *fields, body=None):
    """A request as it goes over the wire."""
    length = [] if body is None else [f"Content-Length: {len(body)}"]
    head = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", "Host: arena", *fields, *length, "", ""]
    return "\r\n".join(head) + (body or "")


def baseline():
    chunked = request("/baseline11?a=13&b=42", "Transfer-Encoding: chunked").replace("GET", "POST", 1)
    return [
        request("/baseline11?a=13&b=42"),
        request("/baseline11?a=13&b=42", body="20"),
        chunked + "1\r\n2\r\n1\r\n0\r\n0\r\n\r\n",
    ]


def pages(*fields, counts=None):
    return [request(f"/json/{count}?m={m}", *fields) for count, m in PAGES if counts is None or count in counts]


def wrk(requests, connections):
    """A load of HTTP/1.1, as a function that returns the number of its responses."""

    def load(server, options, folder):
        file = folder / "requests"
        file.write_text("\0".join(requests))
        command = ["taskset", "-c", options.load_core, "wrk", "--threads", "1", "--connections", str(connections)]
        command += ["--duration", f"{options.seconds}s", "--timeout", "10s", "--script", f"{HERE}/arena.lua"]
        command += [f"http://127.0.0.1:{server.port}/", "--", str(file)]
        code, output = servers.complete(command, PATIENCE_SECONDS + options.seconds)
        found = re.search(r"^load-result (.*)$", output, re.MULTILINE)
        if code or not found:
            raise Failure(f"{server.command}: wrk failed\n{output}")
        errors = json.loads(found[1])
        answered = errors.pop("requests")
        if any(errors.values()) or not answered:
            raise Failure(f"{server.command}: {answered} responses, errors {errors}")
        return answered

    return load


def h2load(paths, connections, streams, *fields):
    """A load of HTTP/2 by prior knowledge."""

    def load(server, options, folder):
        addresses = [f"http://127.0.0.1:{server.port}{path}" for path in paths]
        command = ["taskset", "-c", options.load_core, "h2load", "-t", "1", "-c", str(connections), "-m", str(streams)]
        command += ["--duration", str(options.seconds)]
        command += [word for field in fields for word in ("-H", field)] + addresses
        code, output = servers.complete(command, PATIENCE_SECONDS + options.seconds)
        found = re.search(r"requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored", output)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
        if code or not found or not codes or any(map(int, [found[2], found[3], codes[2], codes[3], codes[4]])):
            raise Failure(f"{server.command}: h2load failed\n{output}")
        if int(found[1]) == 0:
            raise Failure(f"{server.command}: no response\n{output}")
        return int(found[1])

    return load


def websocket(connections, depth):
    def load(server, options, folder):
        command = ["taskset", "-c", options.load_core, f"{servers.BUILT}/tidegate", "load", "-t", "1", "-c", str(connections)]
        command += ["--pipeline", str(depth), "--message-bytes", "5", "-d", f"{options.seconds}s", "--timeout", "20s"]
        command += ["--any-length", "--json", "-", f"ws://127.0.0.1:{server.port}/ws"]
        code, output = servers.complete(command, PATIENCE_SECONDS + options.seconds)
        if code:
            raise Failure(f"{server.command}: tidegate load failed\n{output}")
        answered = json.loads(output[output.index("{") : output.rindex("}") + 1])["requests"]
        if not answered:
            raise Failure(f"{server.command}: no message came back\n{output}")
        return answered

    return load


def workloads(files):
    """Each workload: its load, and the servers that have it."""
    every, without_hyper = list(SERVERS), ["tidegate", "axum", "actix"]
    limited = [request("/baseline11?a=13&b=42")] * 9 + [request("/baseline11?a=13&b=42", "Connection: close")]
    static = [f"/static/{name}" for name in files]
    uploads = [request("/upload", body="u" * length) for length in (500_000, 2_000_000, 10_000_000, 20_000_000)]
    return {
        "baseline": (wrk(baseline(), 512), every),
        "baseline, 4,096 connections": (wrk(baseline(), 4096), every),
        "pipelined, 16 deep": (wrk([request("/pipeline") * 16], 512), every),
        "limited, 10 requests a connection": (wrk(limited, 512), every),
        "json": (wrk(pages(), 512), every),
        "json-comp": (wrk(pages(ACCEPT, counts=(25, 40, 50)), 512), without_hyper),
        "upload, 0.5 to 20 MB": (wrk(uploads, 32), every),
        "static": (wrk([request(path, ACCEPT_OF_FILES) for path in static], 1024), without_hyper),
        "async, 4,096 connections": (wrk([request("/delay/10")], 4096), every),
        "baseline-h2c, 100 streams": (h2load(["/baseline2?a=1&b=1"], 64, 100), without_hyper),
        "json-h2c, 32 streams": (h2load([f"/json/{count}?m={m}" for count, m in PAGES], 64, 32), without_hyper),
        "static-h2c, 32 streams": (h2load(static, 64, 32, ACCEPT_OF_FILES), without_hyper),
        "echo-ws, 512 connections": (websocket(512, 1), without_hyper),
        "echo-ws-pipeline, 16 at a time": (websocket(512, 16), without_hyper),
    }


def names_of_files():
    text = (HERE / "arena/src/files.rs").read_text()
    return re.findall(r'^    \("([\w.]+)", [\d_]+\),$', text, re.MULTILINE)


def measure(command, load, options, folder):
    """CPU microseconds of a request, and the most resident MiB."""
    with Server(command, core=options.server_core) as server:
        load(server, argparse.Namespace(**vars(options) | {"seconds": 1}), folder)
        before = server.cpu_seconds()
        answered = load(server, options, folder)
        return (server.cpu_seconds() - before) / answered * 1e6, server.peak_rss() / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--only", help="workloads with this text in their names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of load for each figure")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-arena-") as directory:
        folder = pathlib.Path(directory)
        files = folder / "files"
        commands = {name: SERVERS[name].format(folder=files) for name in options.servers}
        # It writes the files.
        with Server(SERVERS["tidegate"].format(folder=files)):
            pass
        for title, (load, able) in workloads(names_of_files()).items():
            if options.only is not None and options.only not in title:
                continue
            names = [name for name in commands if name in able]
            costs, memory = {name: [] for name in names}, {name: [] for name in names}
            for _ in range(options.rounds):
                for name in names:
                    cost, resident = measure(commands[name], load, options, folder)
                    costs[name].append(cost)
                    memory[name].append(resident)
            base = costs[names[0]]
            compare.table(
                f"{title}: CPU microseconds of a request",
                costs,
                [(f"it / {names[0]}", lambda own, base=base: compare.ratio(own, base))],
            )
            print("most resident MiB: " + ", ".join(f"{name} {max(sizes):.1f}" for name, sizes in memory.items()), flush=True)


if __name__ == "__main__":
    servers.run(main)
