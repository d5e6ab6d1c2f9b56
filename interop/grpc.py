#!/usr/bin/env python3
"""`examples/grpc` as grpcurl sees it: it finds the calls by reflection, and makes one of each kind."""

import argparse
import json
import shlex

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs grpcurl.
program.use_tools("bin")

SECONDS_MAX = 120
LEVELS = '{"metres": 1} {"metres": 3} {"metres": 2}'


def call(port, *words, data=None):
    """What grpcurl prints, and its exit code."""
    sent = ["-d", data] if data else []
    command = ["grpcurl", "-plaintext", *sent, f"127.0.0.1:{port}", *words]
    code, output, errors = program.run(command, SECONDS_MAX)
    return code, output.decode(errors="replace") + errors


def messages(port, name, data):
    """The messages of a call that succeeds."""
    code, text = call(port, name, data=data)
    if code != 0:
        raise Failure(f"{name}: {text}")
    decoder, found = json.JSONDecoder(), []
    while text.strip():
        message, end = decoder.raw_decode(text.strip())
        found.append(message)
        text = text.strip()[end:]
    return found


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: {found}, not {expected}")


def check(backend, binary):
    command = ["env", f"TIDEGATE_BACKEND={backend}", binary, "127.0.0.1:0"]
    with servers.Server(shlex.join(command)) as server:
        port = server.port
        _, names = call(port, "list")
        if "tides.v1.Tides" not in names.split():
            raise Failure(f"reflection does not list the service: {names}")
        brest = {"harbour": "Brest", "rises": True}
        expect("unary", messages(port, "tides.v1.Tides/Next", '{"name": "Brest"}'), [brest])
        listed = messages(port, "tides.v1.Tides/List", '{"harbour": "Brest", "count": 500}')
        expect("server stream", (len(listed), listed[8]["level"]), (500, 1))
        expect("client stream", messages(port, "tides.v1.Tides/Measure", LEVELS), [{"count": 3, "mean": 2}])
        watched = messages(port, "tides.v1.Tides/Watch", LEVELS)
        expect("both", [tide.get("rises", False) for tide in watched], [True, True, False])
        code, text = call(port, "tides.v1.Tides/Next", data="{}")
        if code == 0 or "InvalidArgument" not in text or "a harbour has a name" not in text:
            raise Failure(f"a call that is refused: {code}: {text}")
    print(f"{backend}: a call of each kind, reflection, and a status", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", help="the server, which is built unless it is given")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    options = parser.parse_args()
    program.need("grpcurl")
    example = options.example or program.build_example("grpc")
    for backend in options.backends:
        check(backend, example)


if __name__ == "__main__":
    servers.run(main)
