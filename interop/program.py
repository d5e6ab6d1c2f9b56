"""Shared by all interop scripts: our server and its counts, optional tools, and the proxies in front of the server.

Interop scripts run third-party programs against our server. `benches/servers.py` starts and ends servers.
"""

import os
import pathlib
import random
import shlex
import shutil
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches"))

import servers  # noqa: E402
from servers import Failure, counts  # noqa: E402, F401

PROGRAM = str(ROOT / "target/release/tidegate")
BACKENDS = ["epoll", "uring"]
SCRIPT = str(ROOT / "benches/load.lua")
# These bounds end a run that hangs. A busy machine needs several times what an idle one does.
LISTEN_SECONDS_MAX = 120
# The least port of a peer that cannot choose one itself.
PORT_MIN = 10_000
# A port that was free may be in use by the time the program listens on it.
STARTS_MAX = 3
LETTERS = b"abcdefghijklmnopqrstuvwxyz\n"


# Debian's folder of nginx and HAProxy, which is not in every PATH.
os.environ["PATH"] += os.pathsep + "/usr/sbin"


def need(*tools):
    """Skips the script with a message if a tool is missing; with TIDEGATE_TOOLS_REQUIRED=1 that is a failure."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing and os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
        raise Failure(f"not there: {', '.join(missing)}")
    if missing:
        print(f"skipped: there is no {', no '.join(missing)}")
        sys.exit(0)


def skip_part(why):
    """A part of a script is not run; with TIDEGATE_TOOLS_REQUIRED=1 that is a failure."""
    if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
        raise Failure(why)
    print(f"skipped: {why}", flush=True)


def build_example(name):
    """Builds an example, which takes no time if it is built already, and returns its path. The build is that of the tests:
    of the whole workspace, not optimised."""
    subprocess.run(["cargo", "build", "--quiet", "--workspace", "--example", name], cwd=ROOT, check=True)
    return str(ROOT / "target/debug/examples" / name)


def use_tools(folder):
    """Programs of a folder below `target/tools`, where `cargo xtask` installs them in their versions, come before others of
    the same names."""
    os.environ["PATH"] = str(ROOT / "target/tools" / folder) + os.pathsep + os.environ["PATH"]


def letters(length, start=0):
    """The body of /bytes and /stream, from its start or from an offset."""
    skipped = start % len(LETTERS)
    return (LETTERS * (length // len(LETTERS) + 2))[skipped : skipped + length]


def serve(backend, *flags, program=PROGRAM):
    """Our server, a context manager."""
    words = [program, "serve", "--listen", "127.0.0.1:0", "--quiet", "--backend", backend, *flags]
    return servers.Server(shlex.join(words))


def free_ports(count):
    """Ports that are free now, from below those that the kernel gives to clients and to listeners at port 0: otherwise it
    could give one away before the peer listens there."""
    ephemeral_min = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(PORT_MIN, ephemeral_min) or [0]
    sockets = []
    try:
        while len(sockets) < count:
            each = socket.socket()
            sockets.append(each)
            try:
                each.bind(("127.0.0.1", random.choice(candidates)))
            except OSError:
                sockets.pop().close()
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def run(command, seconds_max):
    """Runs a client to its end: its exit code and its output."""
    # Ignore a proxy in the environment.
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise Failure(f"{shlex.join(command)}: not done in {seconds_max} seconds") from None
    finally:
        servers.end(process)
    return process.returncode, output, errors.decode(errors="replace")


class Front:
    """A program that listens on given ports in front of an origin, a context manager."""

    ports_needed = 1

    def __init__(self, origin_port, directory):
        self.origin_port = origin_port
        self.directory = directory

    def command(self):
        """Writes the configuration for `self.ports`, and returns the command line."""
        raise NotImplementedError

    def __enter__(self):
        for _ in range(STARTS_MAX):
            self.ports = free_ports(self.ports_needed)
            with open(pathlib.Path(self.directory, f"{type(self).__name__}.log"), "w+") as log:
                self.process = subprocess.Popen(
                    servers.ending_with_us(self.command()), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
                try:
                    if all(self._listens(port) for port in self.ports):
                        return self
                except BaseException:
                    servers.end(self.process)
                    raise
                servers.end(self.process)
                log.seek(0)
                said = log.read()
        raise Failure(f"{type(self).__name__} does not listen\n{said}")

    def __exit__(self, *_):
        servers.end(self.process)

    def _listens(self, port):
        deadline = time.monotonic() + LISTEN_SECONDS_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            except OSError:
                time.sleep(0.05)
        return False


class Nginx(Front):
    """nginx on two ports: it buffers requests and responses on the first, and not on the second."""

    ports_needed = 2
    CONFIG = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {directory}/client_body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000;
  upstream origin {{
    server 127.0.0.1:{origin};
    keepalive 256;
    keepalive_requests 1000000;
  }}
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_set_header Host $http_host;
  # Failures must be visible, so no retries.
  proxy_next_upstream off;
  server {{
    listen 127.0.0.1:{gathering};
    location / {{ proxy_pass http://origin; }}
  }}
  server {{
    listen 127.0.0.1:{streaming};
    location / {{
      proxy_pass http://origin;
      proxy_request_buffering off;
      proxy_buffering off;
    }}
  }}
}}
"""

    def command(self):
        config = pathlib.Path(self.directory, "nginx.conf")
        gathering, streaming = self.ports
        config.write_text(
            self.CONFIG.format(
                directory=self.directory, origin=self.origin_port, gathering=gathering, streaming=streaming
            )
        )
        return ["nginx", "-e", "stderr", "-p", str(self.directory), "-c", str(config)]


class Haproxy(Front):
    """HAProxy, in HTTP mode."""

    CONFIG = """
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  http-reuse always
  # Failures must be visible, so no retries.
  retries 0
  timeout connect 5s
  timeout client 1m
  timeout server 1m
listen all
  bind 127.0.0.1:{port}
  server origin 127.0.0.1:{origin}
"""

    def command(self):
        config = pathlib.Path(self.directory, "haproxy.cfg")
        config.write_text(self.CONFIG.format(port=self.ports[0], origin=self.origin_port))
        return ["haproxy", "-db", "-f", str(config)]
