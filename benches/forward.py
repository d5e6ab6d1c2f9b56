#!/usr/bin/env python3
"""CPU seconds per GiB of two TCP forwarders: examples/forwarder.rs beside HAProxy in TCP mode, without splice.

Both run one thread on one core and forward to `tidegate serve`, from which curl fetches, on the other core. They are
measured in turn, round after round, and ratios are taken within a round. The README beside this file says more.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on port {port}")


def forwarder(port, upstream, directory):
    return ["target/release/examples/forwarder", f"127.0.0.1:{port}", f"127.0.0.1:{upstream}"]


def haproxy(port, upstream, directory):
    path = os.path.join(directory, "haproxy.cfg")
    with open(path, "w") as config:
        config.write(
            "global\n  nbthread 1\n  nosplice\n"
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n"
            f"listen all\n  bind 127.0.0.1:{port}\n  server one 127.0.0.1:{upstream}\n"
        )
    return ["haproxy", "-db", "-f", path]


def measure(name, command, upstream, options, directory):
    port = free_port()
    process = subprocess.Popen(
        ["taskset", "-c", options.proxy_core] + command(port, upstream, directory), stdout=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        length = int(options.gib * GIB / options.connections)
        before = cpu_seconds(process.pid)
        urls = []
        for _ in range(options.connections):
            urls += ["-o", "/dev/null", f"http://127.0.0.1:{port}/stream/{length}"]
        fetch = ["taskset", "-c", options.load_core, "curl", "-sf", "--parallel", "--parallel-immediate"]
        subprocess.run(fetch + ["--parallel-max", str(options.connections)] + urls, check=True)
        return (cpu_seconds(process.pid) - before) / options.gib
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=4.0, help="to forward for each figure")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--proxy-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    kinds = {"forwarder": forwarder, "haproxy": haproxy}
    figures = {name: [] for name in kinds}
    port = free_port()
    server = subprocess.Popen(
        ["taskset", "-c", options.load_core, "target/release/tidegate", "serve", "--quiet", "--loops", "1"]
        + ["--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        with tempfile.TemporaryDirectory() as directory:
            for number in range(options.rounds):
                for name, command in kinds.items():
                    figures[name].append(measure(name, command, port, options, directory))
                    print(f"round {number + 1}: {name} {figures[name][-1]:.3f} CPU seconds per GiB", flush=True)
    finally:
        server.terminate()
        server.wait()
    print()
    for name, values in figures.items():
        ratio = statistics.median(value / other for value, other in zip(values, figures["haproxy"]))
        print(f"{name:12} {statistics.median(values):.3f} (min {min(values):.3f}, max {max(values):.3f}), to haproxy {ratio:.2f}")


if __name__ == "__main__":
    main()
