#!/usr/bin/env python3
"""`examples/redis_proxy` in front of redis-server, with the clients that people use: redis-cli, redis-benchmark, redis-py,
ioredis and go-redis, in RESP2 and RESP3.

At first each client talks to redis-server itself, so that a mistake of the check does not count as one of the proxy. The README
beside this file describes how to repeat it.
"""

import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import tempfile
import time

import program
import servers
from program import Failure

PEERS = pathlib.Path(__file__).resolve().parent / "redis_peers"
TOOLS = program.ROOT / "target/tools"
# Where `cargo xtask ci` installs redis-py.
PYTHON = TOOLS / "redis/bin/python3"
NODE_MODULES = TOOLS / "ioredis/node_modules"
BENCHMARK = ["-n", "20000", "-q", "-d", "100", "-t", "set,get,incr,lpush,lpop,sadd,hset,mset"]
SECONDS_MAX = 180


def run(what, command, wanted=None):
    code, output, errors = program.run([str(word) for word in command], SECONDS_MAX)
    if code or (wanted is not None and wanted not in output):
        raise Failure(f"{what}: {errors[-2000:]}{output.decode(errors='replace')[-2000:]}")
    print(f"{what}: right", flush=True)


def redis_server(folder):
    """The command of redis-server, which does not print its address by itself."""
    (port,) = program.free_ports(1)
    options = f"--port {port} --bind 127.0.0.1 --save '' --appendonly no --dir {folder}"
    return f'sh -c "echo 127.0.0.1:{port} && exec redis-server {options} --daemonize no"'


def wait_until_it_listens(port):
    end = time.monotonic() + servers.START_SECONDS_MAX
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def peers(port, go):
    """The commands of all clients."""
    cli = ["redis-cli", "-p", port]
    yield "redis-cli", [*cli, "SET", "brest", "412"], b"OK"
    yield "redis-cli -3", [*cli, "-3", "HGETALL", "none"], b"\n"
    yield "redis-benchmark", ["redis-benchmark", "-p", port, *BENCHMARK], b"requests per second"
    yield "redis-benchmark, 16 at a time", ["redis-benchmark", "-p", port, "-P", "16", *BENCHMARK], b"requests per second"
    if PYTHON.exists():
        for version in "23":
            yield f"redis-py, RESP{version}", [PYTHON, PEERS / "client.py", port, version], None
    else:
        program.skip_part("there is no redis-py")
    if (NODE_MODULES / "ioredis").exists():
        os.environ["NODE_PATH"] = str(NODE_MODULES)
        yield "ioredis", ["node", PEERS / "client.mjs", port], None
    else:
        program.skip_part("there is no ioredis")
    if go:
        for version in "23":
            yield f"go-redis, RESP{version}", [go, port, version], None
    else:
        program.skip_part("there is no go-redis")


def build_go(folder):
    """The client in Go, or None where there is no Go or no network for its modules."""
    if not shutil.which("go"):
        return None
    target = pathlib.Path(folder) / "client"
    built = subprocess.run(["go", "build", "-o", target, "client.go"], cwd=PEERS, capture_output=True, check=False)
    return target if built.returncode == 0 else None


def main():
    program.need("redis-server", "redis-cli", "redis-benchmark")
    proxy = program.build_example("redis_proxy")
    with tempfile.TemporaryDirectory() as folder:
        go = build_go(folder)
        with servers.Server(redis_server(folder)) as upstream:
            wait_until_it_listens(upstream.address[1])
            for name, command, wanted in peers(upstream.address[1], go):
                run(f"{name} with redis-server", command, wanted)
            for backend in program.BACKENDS:
                command = ["env", f"TIDEGATE_BACKEND={backend}", proxy, "127.0.0.1:0", f"127.0.0.1:{upstream.address[1]}"]
                with servers.Server(shlex.join(command)) as server:
                    for name, command, wanted in peers(server.address[1], go):
                        run(f"{name} through the proxy on {backend}", command, wanted)


if __name__ == "__main__":
    servers.run(main)
