#!/usr/bin/env python3
"""CPU seconds of gRPC by tonic, on Tidegate and on hyper: the service of `examples/grpc`, its source, under h2load.

    unary    a call with a message of 7 bytes and a response of one, 100 streams at a time on each of 10 connections:
             CPU seconds per million calls
    stream   a call that responds with `--count` messages, 10 streams at a time on each of 10 connections: CPU seconds
             per million messages

Server and load have one core each. Servers take turns, round by round, and ratios are taken within a round. The bytes of
all messages are counted: a call that fails has none, and fails the run.
"""

import argparse
import pathlib
import re
import struct
import tempfile

import compare
import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = {
    "tidegate": f"{servers.BUILT}/examples/grpc 127.0.0.1:0",
    "hyper": f"{HERE}/peers/tonic014/target/release/tonic014 127.0.0.1:0",
}
CONNECTIONS = 10
STREAMS = {"unary": 100, "stream": 10}
WARM_UP_CALLS = {"unary": 20_000, "stream": 200}
PATHS = {"unary": "/tides.v1.Tides/Next", "stream": "/tides.v1.Tides/List"}
HARBOUR = b"Brest"
PATIENCE_SECONDS = 300
FIELDS = ["content-type: application/grpc", "te: trailers"]


def text(number, value):
    """A field of a message whose value is bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def framed(message):
    return b"\0" + struct.pack("!I", len(message)) + message


def tide(index):
    """The message of the service for this index: fields with their default are left out."""
    level = b"\x11" + struct.pack("<d", index % 7) if index % 7 else b""
    return text(1, HARBOUR) + level + (b"\x18\x01" if index % 2 == 0 else b"")


class Kind:
    """A kind of call: its request, and the bytes of its response."""

    def __init__(self, name, count, folder):
        self.name, self.messages = name, count
        self.bytes = sum(len(framed(tide(index))) for index in range(count))
        request = text(1, HARBOUR) + (b"\x10" + varint(count) if name == "stream" else b"")
        self.file = folder / name
        self.file.write_bytes(framed(request))


def load(server, kind, calls, core):
    """CPU seconds of the server per million messages, and calls per second, of one run of h2load."""
    command = ["taskset", "-c", core, "h2load", "-t", "1", "-c", str(CONNECTIONS), "-m", str(STREAMS[kind.name])]
    command += ["-n", str(calls), "-d", str(kind.file), *(part for field in FIELDS for part in ("-H", field))]
    command += [f"http://127.0.0.1:{server.port}{PATHS[kind.name]}"]
    before = server.cpu_seconds()
    code, output = servers.complete(command, PATIENCE_SECONDS)
    used = server.cpu_seconds() - before
    succeeded = re.search(r"status codes: (\d+) 2xx", output)
    received = re.search(r"\((\d+)\) data", output)
    rate = re.search(r"finished in [^,]+, ([\d.]+) req/s", output)
    if code or not (succeeded and received and rate) or int(succeeded[1]) != calls:
        raise Failure(f"{server.command}: h2load failed\n{output}")
    if int(received[1]) != calls * kind.bytes:
        raise Failure(f"{server.command}: {received[1]} bytes of messages, not {calls * kind.bytes}\n{output}")
    return used * 1e6 / (calls * kind.messages), float(rate[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--kinds", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run, about [4]")
    parser.add_argument("--count", type=int, default=5000, help="messages of a stream [5000]")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    names = [name for name in options.servers if pathlib.Path(COMMANDS[name].split()[0]).exists()]
    for name in options.servers:
        if name not in names:
            print(f"skipping {name}: it is not built")
    if not names:
        raise Failure("nothing is built: see benches/README.md")
    with tempfile.TemporaryDirectory() as directory:
        counts = {"unary": 1, "stream": options.count}
        kinds = [Kind(name, counts[name], pathlib.Path(directory)) for name in options.kinds]
        costs = {kind.name: {name: [] for name in names} for kind in kinds}
        for number in range(options.rounds):
            for name in names:
                with Server(COMMANDS[name], core=options.server_core) as server:
                    for kind in kinds:
                        _, rate = load(server, kind, WARM_UP_CALLS[kind.name], options.load_core)
                        calls = max(WARM_UP_CALLS[kind.name], int(rate * options.seconds))
                        cost, _ = load(server, kind, calls, options.load_core)
                        costs[kind.name][name].append(cost)
                latest = ", ".join(f"{costs[kind.name][name][-1]:.3f} {kind.name}" for kind in kinds)
                print(f"round {number + 1}: {name} {latest}", flush=True)
    titles = {"unary": "unary calls, CPU seconds per million calls"}
    titles["stream"] = f"streams of {options.count} messages, CPU seconds per million messages"
    for kind, rows in costs.items():
        base = rows[names[0]]
        compare.table(titles[kind], rows, [(f"{names[0]} / it", lambda own, base=base: compare.ratio(base, own))])


if __name__ == "__main__":
    servers.run(main)
