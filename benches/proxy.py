#!/usr/bin/env python3
"""CPU time per request of reverse proxies in front of one upstream: ours, nginx, HAProxy.

    python3 benches/proxy.py target/dist/tidegate [--seconds 4] [--connections 64] [--depths 1,16] [--bars]
    python3 benches/proxy.py target/dist/tidegate --rate 2000     latency at 2,000 requests a second instead
    python3 benches/proxy.py target/dist/tidegate --telemetry     our proxy without and with spans and metrics instead

Each proxy has one thread and keep-alive connections to the upstream, which is `tidegate serve`. wrk is the client. The CPU
time is that of the proxy's process, user and system, from /proc. Proxies run one after the other, in rounds, and the median
of the rounds counts. A proxy that is not installed is left out, with a line that says so.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

LUA = pathlib.Path(__file__).resolve().parent / "load.lua"
NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream app {{ server 127.0.0.1:{up}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://app; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme; }} }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  option forwardfor
frontend f
  bind 127.0.0.1:{port}
  http-request set-header X-Forwarded-Proto http
  default_backend b
backend b
  http-reuse always
  server s 127.0.0.1:{up}
"""

# Flags of our proxy for `--telemetry`. The upstream takes the spans too: its POST /sum answers 200.
TELEMETRY = {
    "none": [],
    "0 %": ["--otlp", "http://127.0.0.1:{up}/sum", "--otlp-percent", "0"],
    "1 %": ["--otlp", "http://127.0.0.1:{up}/sum", "--otlp-percent", "1"],
    "100 %": ["--otlp", "http://127.0.0.1:{up}/sum", "--otlp-percent", "100"],
    "metrics": ["--admin", "127.0.0.1:0"],
    "metrics, 1 %": ["--admin", "127.0.0.1:0", "--otlp", "http://127.0.0.1:{up}/sum", "--otlp-percent", "1"],
    "metrics, 100 %": ["--admin", "127.0.0.1:0", "--otlp", "http://127.0.0.1:{up}/sum", "--otlp-percent", "100"],
}

# The most that our CPU time may be of that of another, by depth.
BARS = {(1, "nginx"): 0.8, (1, "haproxy"): 0.9, (16, "nginx"): 0.5}


def free_port():
    import socket
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def process_tree(pid):
    pids = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            pids += process_tree(int(child))
    return pids


def wait_for(port, path="/plaintext"):
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).read()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing answers on port {port}")


def load(port, connections, seconds, depth):
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", str(LUA)]
    command += [f"http://127.0.0.1:{port}/plaintext", "--", str(depth)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in", output)
    if "Non-2xx" in output or not found:
        sys.exit(output)
    return int(found.group(1))


def latency(program, port, connections, seconds, rate):
    """The 99th percentile at a constant rate of requests, in microseconds."""
    command = [program, "load", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"]
    command += ["--rate", str(rate), "--json", "-", f"http://127.0.0.1:{port}/plaintext"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["latency"]["percentiles"]["99"]


def print_telemetry(depth, costs):
    """Medians, and the medians of the ratios within a round to our proxy without spans."""
    for name, values in costs.items():
        ratios = [value / base for value, base in zip(values, costs["none"])]
        print(f"depth {depth:>2} {name:>14}: {statistics.median(values):6.2f} us of CPU a request, {statistics.median(ratios):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--depths", default="1,16")
    parser.add_argument("--rate", type=int, help="measure the latency at this many requests a second instead")
    parser.add_argument("--telemetry", action="store_true", help="measure our proxy with spans and metrics instead")
    parser.add_argument("--bars", action="store_true", help="fail if a request costs more than it may beside nginx and HAProxy")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="tidegate-proxy-")
    running, missed = [], []
    try:
        up = free_port()
        serve = [options.program, "serve", "--quiet", "--listen", f"127.0.0.1:{up}", "--loops", "1", "--idle-timeout", "600"]
        running.append(subprocess.Popen(serve, stdout=subprocess.DEVNULL))
        wait_for(up)
        proxies = {}
        port = free_port()
        ours = [options.program, "proxy", "--quiet", "--loops", "1", "--upstream", f"http://127.0.0.1:{up}", "--listen"]
        if options.telemetry:
            for name, flags in TELEMETRY.items():
                port = free_port()
                proxies[name] = (ours + [f"127.0.0.1:{port}"] + [flag.format(up=up) for flag in flags], port)
        else:
            proxies["tidegate"] = (ours + [f"127.0.0.1:{port}"], port)
        others = () if options.telemetry else (("nginx", NGINX), ("haproxy", HAPROXY))
        for name, text in others:
            if not shutil.which(name) and not pathlib.Path(f"/usr/sbin/{name}").exists():
                print(f"skipped: there is no {name} here")
                continue
            port = free_port()
            path = pathlib.Path(directory) / name
            path.write_text(text.format(dir=directory, up=up, port=port))
            command = {"nginx": ["nginx", "-c", str(path), "-p", directory], "haproxy": ["haproxy", "-q", "-f", str(path)]}
            proxies[name] = (command[name], port)
        figures = {}
        for name, (command, port) in proxies.items():
            environment = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin")
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
            running.append(process)
            wait_for(port)
        pids = {name: process_tree(process.pid) for name, process in zip(proxies, running[1:])}
        if options.rate:
            targets = {"no proxy": up, **{name: port for name, (_, port) in proxies.items()}}
            for _ in range(options.rounds):
                for name, port in targets.items():
                    value = latency(options.program, port, options.connections, options.seconds, options.rate)
                    figures.setdefault(name, []).append(value)
            for name, values in figures.items():
                print(f"{options.rate} requests a second, {name:>9}: {statistics.median(values):6.0f} us at the 99th percentile")
            return
        for depth in (int(depth) for depth in options.depths.split(",")):
            for _ in range(options.rounds):
                for name, (_, port) in proxies.items():
                    before = cpu_seconds(pids[name])
                    requests = load(port, options.connections, options.seconds, depth)
                    figures.setdefault((depth, name), []).append((cpu_seconds(pids[name]) - before) / requests * 1e6)
            medians = {name: statistics.median(figures[depth, name]) for name in proxies}
            if options.telemetry:
                print_telemetry(depth, {name: figures[depth, name] for name in proxies})
                continue
            for name, median in medians.items():
                ratio = "" if name == "tidegate" else f", ours is {medians['tidegate'] / median:.2f} of it"
                print(f"depth {depth:>2} {name:>9}: {median:6.2f} us of CPU a request{ratio}", flush=True)
                bar = BARS.get((depth, name))
                if options.bars and bar and medians["tidegate"] > bar * median:
                    missed.append(f"depth {depth}: {medians['tidegate'] / median:.2f} of {name}, at most {bar} is allowed")
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(20)
        shutil.rmtree(directory, ignore_errors=True)
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
