#!/usr/bin/env python3
"""The steps of `deploy/Containerfile` without a container engine: the static binary alone in an empty file system that
it cannot change, in namespaces of its own, as a user that owns nothing, under a seccomp filter that forbids io_uring.

It serves on epoll, has its metrics, drains at SIGTERM, and is small. The README beside this file says how to repeat it.
"""

import argparse
import ctypes
import errno
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import program
from program import Failure

BINARY = program.ROOT / "target/x86_64-unknown-linux-musl/release/tidegate"
BYTES_MAX = 12_000_000
NOBODY = "65534"
SECONDS_MAX = 20
IO_URING_SETUP = 425
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM


def forbid_io_uring():
    """A filter of seccomp in classic BPF: `io_uring_setup` fails with EPERM, everything else is allowed."""
    instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, FAIL), (0x06, 0, 0, ALLOW)]
    code = b"".join(struct.pack("HBBI", *one) for one in instructions)
    buffer = ctypes.create_string_buffer(code)
    head = struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def get(port, path, last=True):
    close = "Connection: close\r\n" if last else ""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as peer:
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{close}\r\n".encode())
        text = b""
        while piece := peer.recv(65536):
            text += piece
    return text.decode()


def run(binary):
    size = binary.stat().st_size
    print(f"  the binary has {size:,} bytes", flush=True)
    if size > BYTES_MAX:
        raise Failure(f"the binary has {size} bytes, and {BYTES_MAX} is the most")
    port, admin = program.free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        root.mkdir()
        shutil.copy(binary, root / "tidegate")
        os.chmod(root / "tidegate", 0o555)
        # A bind mount in the new namespace, read-only, becomes the root.
        inner = (
            f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && "
            f"exec unshare --root={root} --setuid {NOBODY} --setgid {NOBODY} /tidegate serve "
            f"--listen 127.0.0.1:{port} --admin 127.0.0.1:{admin}"
        )
        command = ["unshare", "--mount", "--ipc", "--uts", "sh", "-c", inner]
        environment = {"PATH": os.environ["PATH"]}
        begun = time.monotonic()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        server = subprocess.Popen(command, env=environment, preexec_fn=forbid_io_uring, **streams)
        try:
            lines = [server.stdout.readline()]
            while lines[-1] and "listening on" not in lines[-1]:
                lines.append(server.stdout.readline())
            print(f"  it listens after {(time.monotonic() - begun) * 1000:.0f} ms")
            if "(epoll, " not in lines[-1]:
                raise Failure(f"it does not listen on epoll: {lines}")
            if not get(port, "/plaintext").endswith("Hello, World!"):
                raise Failure("it does not respond")
            metrics = get(admin, "/metrics")
            if not re.search(r'^tidegate_http_requests_total\{route="/plaintext".*\} 1$', metrics, re.M):
                raise Failure(f"the metrics lack the request: {metrics}")
            uid = pathlib.Path(f"/proc/{server.pid}/status").read_text()
            if not re.search(rf"^Uid:\s+{NOBODY}\s+{NOBODY}", uid, re.M):
                raise Failure("it does not run as nobody")
            server.send_signal(signal.SIGTERM)
            rest = server.stdout.read()
            if server.wait(SECONDS_MAX) != 0:
                raise Failure(f"it ends with {server.returncode}: {rest}")
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY, help="a static build")
    options = parser.parse_args()
    program.need("unshare", "strip")
    if os.geteuid() != 0:
        return program.skip_part("only root may make the namespaces")
    if not options.binary.is_file():
        return program.skip_part(f"there is no {options.binary}")
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder, "tidegate")
        subprocess.run(["strip", "-o", stripped, options.binary], check=True)
        run(stripped)
    print("the image is as it should be")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"failed: {failure}")
        sys.exit(1)
