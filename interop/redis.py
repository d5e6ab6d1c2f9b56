#!/usr/bin/env python3
"""`examples/redis_proxy` in front of redis-server, with the clients that people use: redis-cli, redis-benchmark, redis-py,
ioredis, go-redis and rueidis, in RESP2 and RESP3. Then nutcracker in front of `examples/cache_server` and in front of our proxy,
and gomemcache with `examples/memcached_server`.

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
            yield f"go-redis, RESP{version}", [go / "client", port, version], None
        yield "rueidis", [go / "rueidis", port], None
    else:
        program.skip_part("there is no go-redis and no rueidis")


def build_go(folder):
    """The folder of the clients in Go, or None where there is no Go or no network for its modules."""
    if not shutil.which("go"):
        return None
    folder = pathlib.Path(folder)
    for name in ("client", "rueidis", "gomemcache"):
        command = ["go", "build", "-o", folder / name, f"{name}.go"]
        if subprocess.run(command, cwd=PEERS, capture_output=True, check=False).returncode:
            return None
    return folder


def nutcracker(folder, port):
    """The command of nutcracker in front of this port, which does not print its address by itself."""
    near, stats = program.free_ports(2)
    file = pathlib.Path(folder) / f"nutcracker-{near}.yml"
    file.write_text(
        f"pool:\n  listen: 127.0.0.1:{near}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n"
        f"  servers:\n   - 127.0.0.1:{port}:1\n"
    )
    return f'sh -c "echo 127.0.0.1:{near} && exec nutcracker -s {stats} -c {file}"'


def through_nutcracker(folder, name, port):
    """Clients of nutcracker, which knows RESP2 alone, neither transactions nor channels, and MSET in parts."""
    with servers.Server(nutcracker(folder, port)) as proxy:
        near = proxy.address[1]
        wait_until_it_listens(near)
        cli = ["redis-cli", "-p", near]
        run(f"redis-cli through nutcracker to {name}", [*cli, "SET", "brest", "412"], b"OK")
        run(f"redis-cli through nutcracker to {name}", [*cli, "MGET", "brest", "none"], b"412")
        for depth in ("1", "16"):
            command = ["redis-benchmark", "-p", near, "-P", depth, "-n", "20000", "-q", "-t", "set,get,incr"]
            run(f"redis-benchmark through nutcracker to {name}", command, b"requests per second")


def main():
    program.need("redis-server", "redis-cli", "redis-benchmark")
    proxy, cache_server, memcached_server = map(
        program.build_example, ("redis_proxy", "cache_server", "memcached_server")
    )
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
                    if shutil.which("nutcracker"):
                        through_nutcracker(folder, f"our proxy on {backend}", server.address[1])
        for backend in program.BACKENDS:
            environment = ["env", f"TIDEGATE_BACKEND={backend}"]
            if shutil.which("nutcracker"):
                with servers.Server(shlex.join([*environment, cache_server, "127.0.0.1:0"])) as server:
                    through_nutcracker(folder, f"our server on {backend}", server.address[1])
            else:
                program.skip_part("there is no nutcracker")
            if go:
                with servers.Server(shlex.join([*environment, memcached_server, "127.0.0.1:0"])) as server:
                    run(f"gomemcache with our server on {backend}", [go / "gomemcache", server.address[1]])


if __name__ == "__main__":
    servers.run(main)
