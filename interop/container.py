#!/usr/bin/env python3
"""The image of `deploy/container`: builds its binary, and runs it as a container engine would, without one.

The binary is static and alone in a root that cannot be changed; its user owns nothing; the seccomp profile forbids
io_uring. What else a container may lack is tried as well: IPv6, descriptors, memory.
"""

import argparse
import contextlib
import errno
import gzip
import os
import pathlib
import select
import shlex
import socket
import time

import image
import program
import servers
from image import Container, ControlGroup, Image
from program import ROOT, Failure

FOLDER = ROOT / "deploy/container"
PROFILE = FOLDER / "seccomp.json"
BUILD_SECONDS_MAX = 1800
# Compressed, as registries store images, it is less than half of that.
SIZE_MAX = 12_000_000
STARTS = 10
MIB = 1 << 20
DESCRIPTORS = 64
MEMORY = 32 * MIB
ADMIN = 9090
# More than there are descriptors.
CROWD = 100
SLOW_READERS = 30
SLOW_WRITERS = 400
ECHO = 4 * MIB


def build(recipe):
    """Runs the step of the recipe that builds; the path of the binary."""
    machine = os.uname().machine
    step = next(step for step in recipe.steps if "cargo rustc" in step)
    print(step, flush=True)
    code, output = servers.complete(["sh", "-c", step], BUILD_SECONDS_MAX, directory=ROOT)
    if code:
        raise Failure(f"{step}: code {code}\n{output}")
    return ROOT / f"target/{machine}-unknown-linux-gnu/image/tidegate"


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: {found!r}, not {expected!r}")


def expect_in(what, text, part):
    if part not in text:
        raise Failure(f"{what}: {part!r} is not in {text!r}")


def listening(container):
    if container.line("listening on") is None:
        raise Failure(f"{shlex.join(container.command)}: it does not listen\n{container.output()}")
    if container.line("admin at") is None:
        raise Failure(f"{shlex.join(container.command)}: it has no admin\n{container.output()}")
    return container


def metric(container, name, label=""):
    lines = container.get("/metrics", ADMIN)[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == name and label in line)


def end(container):
    """SIGTERM, as an engine ends a container: the program drains, and succeeds."""
    container.terminate()
    expect("the exit code after SIGTERM", container.wait(), 0)


def check_plain(recipe, files):
    """The image as it is, with the seccomp profile."""
    with Container(recipe, files, profile=PROFILE) as container:
        listening(container)
        for path, port, expected in [
            ("/plaintext", 8080, 200),
            ("/metrics", 8080, 404),
            ("/health", ADMIN, 200),
            ("/ready", ADMIN, 200),
        ]:
            expect(path, container.get(path, port)[0], expected)
        said = container.line("io_uring not available; using epoll")
        if said is None:
            raise Failure(f"it does not report that io_uring is missing: {container.output()}")
        print(f"  {said.strip()}")
        expect_in("the backend", container.get("/metrics", ADMIN)[1], 'backend="epoll"')
        # Seen from the namespace of this script, if root has started it.
        user = recipe.user[0] if os.geteuid() == 0 else os.geteuid()
        expect("its users", container.status("Uid").split(), [str(user)] * 4)
        if os.geteuid() == 0:
            expect("its groups", container.status("Groups"), "")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            expect(kind, int(container.status(kind), 16), 0)
        expect("NoNewPrivs and Seccomp", (container.status("NoNewPrivs"), container.status("Seccomp")), ("1", "2"))
        expect("its own number", container.status("NSpid").split()[-1], "1")
        with open(f"/proc/{container.pid}/mountinfo") as lines:
            mounts = [line.split() for line in lines]
        expect("its mounts", [mount[4] for mount in mounts], ["/"])
        expect_in("the mount of its root", mounts[0][5].split(","), "ro")
        expect("its files", os.listdir(f"/proc/{container.pid}/root"), [path.strip("/") for path in recipe.copies])
        end(container)


def check_refusals(recipe, files):
    """What cannot be had is reported in a line."""
    serve = ["serve", "--listen", "0.0.0.0:8080"]
    for arguments, denied, words in [
        ([*serve, "--backend", "uring"], [], ["io_uring"]),
        ([*serve, "--pcap", "/capture"], [], ["/capture"]),
        (["serve", "--listen", "[::]:8080"], [["socket", errno.EAFNOSUPPORT, socket.AF_INET6]], ["[::]:8080"]),
    ]:
        with Container(recipe, files, arguments, PROFILE, denied=denied) as container:
            if container.wait() == 0:
                raise Failure(f"{arguments}: it succeeds")
            container.reader.join()
            output = container.output()
        lines = [line for line in output.splitlines() if "using epoll" not in line]
        if len(lines) != 1 or not all(word in lines[0] for word in words):
            raise Failure(f"{arguments}: it should say in one line about {words}: {output}")
        print(f"  {lines[0].strip()}")


def check_without_ipv6(recipe, files):
    denied = [["socket", errno.EAFNOSUPPORT, socket.AF_INET6]]
    with Container(recipe, files, profile=PROFILE, denied=denied) as container:
        listening(container)
        expect("/plaintext without IPv6", container.get("/plaintext"), (200, "Hello, World!"))
        end(container)


def check_descriptors(recipe, files):
    """More connections than descriptors: some wait, none harms the others, and all are served in the end."""
    with Container(recipe, files, profile=PROFILE, limits={"NOFILE": DESCRIPTORS}) as container:
        listening(container)
        request = b"GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n"
        crowd = [container.connect(8080) for _ in range(CROWD)]
        for connection in crowd:
            connection.sendall(request)
        expect("/health beside a crowd", container.get("/health", ADMIN)[0], 200)
        open_now = metric(container, "tidegate_connections")
        if not 0 < open_now < DESCRIPTORS:
            raise Failure(f"{open_now} connections with {DESCRIPTORS} descriptors")
        # In any order: each loop has a queue of those that wait, and all share the number of those that are open.
        while crowd:
            served = select.select(crowd, [], [], image.ANSWER_SECONDS_MAX)[0]
            if not served:
                raise Failure(f"{len(crowd)} of {CROWD} connections are not served")
            for connection in served:
                with connection:
                    expect_in("a response in a crowd", connection.recv(4096).decode(), "Hello, World!")
                crowd.remove(connection)
        print(f"  {CROWD} connections at once with {DESCRIPTORS} descriptors: {open_now:.0f} open, all served")
        end(container)


def check_memory(recipe, files):
    """32 MiB: the budget follows the limit of the control group, and readers that take nothing cannot exceed it."""
    # `RLIMIT_DATA` counts what is reserved, the stacks of threads among it; a control group only what is in use.
    serve_slow_peers(recipe, files, limits={"DATA": MEMORY})
    group = ControlGroup.find(MEMORY)
    if group is None:
        print("  skipped: no control group with a limit of memory can be made here")
        return
    with group:
        # The kernel ends a program that exceeds it.
        serve_slow_peers(recipe, files, group=group)
        peak = group.peak()
    print(f"  in a control group of 32 MiB: {'an unknown peak' if peak is None else f'at most {peak / MIB:.1f} MiB'}")


def serve_slow_peers(recipe, files, group=None, **limits):
    # An engine mounts this file.
    mounts = {"/sys/fs/cgroup/memory.max": f"{MEMORY}\n"}
    with Container(recipe, files, profile=PROFILE, mounts=mounts, group=group, **limits) as container:
        listening(container)
        if group is not None:
            expect("the members of the control group", group.members(), [container.pid])
        budget = metric(container, "tidegate_memory_budget_bytes")
        if not 0 < budget <= MEMORY / 2:
            raise Failure(f"a budget of {budget} bytes with {MEMORY} of memory")
        length = 8 * MIB
        readers = [container.connect(8080) for _ in range(SLOW_READERS)]
        for reader in readers:
            reader.sendall(f"GET /bytes/{length} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        expect("/plaintext beside slow readers", container.get("/plaintext"), (200, "Hello, World!"))
        for reader in readers:
            with reader, reader.makefile("rb") as file:
                expect("a long body", len(file.read().partition(b"\r\n\r\n")[2]), length)
        # Each has its echo waiting for it, in memory: together more than there is.
        request = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % ECHO
        writers = [container.connect(8080) for _ in range(SLOW_WRITERS)]
        for writer in writers:
            writer.setblocking(False)
            left = memoryview(request + bytes(ECHO))
            with contextlib.suppress(BlockingIOError, ConnectionResetError, BrokenPipeError):
                while left:
                    left = left[writer.send(left) :]
        expect("/plaintext beside slow writers", container.get("/plaintext"), (200, "Hello, World!"))
        shed = metric(container, "tidegate_closed_total", 'cause="shed"')
        for writer in writers:
            writer.close()
        if shed == 0:
            raise Failure(f"none of {SLOW_WRITERS} slow writers is shed")
        peak = int(container.status("VmHWM").split()[0]) * 1024
        if peak > MEMORY:
            raise Failure(f"{peak} bytes resident with {MEMORY} of memory")
        print(f"  32 MiB: a budget of {budget / MIB:.0f} MiB, {shed:.0f} shed, at most {peak / MIB:.1f} MiB resident")
        end(container)


def start_times(recipe, files):
    """Milliseconds from the start of the program to its first response, in ascending order.

    They begin when the namespaces are there: an engine makes those, in its own time.
    """
    times = []
    for _ in range(STARTS):
        with Container(recipe, files, profile=PROFILE) as container:
            while True:
                try:
                    container.get("/plaintext")
                    break
                except ConnectionRefusedError:
                    pass
                except OSError as error:
                    if "refused" not in str(error).lower():
                        raise
            times.append((time.monotonic() - container.started) * 1000)
    return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="a static build of the program `tidegate` [default: builds it]")
    parser.add_argument("--start-max", type=float, metavar="MS", help="fail if the median start takes longer")
    options = parser.parse_args()
    program.need("cargo")
    recipe = Image(FOLDER / "Containerfile")
    expect("the base of the image", recipe.base, "scratch")
    expect("the user of the image", recipe.user, (65532, 65532))
    binary = pathlib.Path(options.program) if options.program else build(recipe)
    files = {target: binary for target in recipe.copies}
    if not image.is_possible():
        program.skip_part("this system lets us have no namespaces")
        return
    for check in (check_plain, check_refusals, check_without_ipv6, check_descriptors, check_memory):
        print(f"{check.__name__.removeprefix('check_').replace('_', ' ')}:", flush=True)
        check(recipe, files)
    size = binary.stat().st_size
    times = start_times(recipe, files)
    median = times[len(times) // 2]
    print(f"image: {size / 1e6:.1f} MB; {len(gzip.compress(binary.read_bytes())) / 1e6:.1f} MB compressed")
    print(f"start to the first response: {median:.0f} ms in the median of {STARTS}, at most {times[-1]:.0f}")
    if size > SIZE_MAX:
        raise Failure(f"the image has {size} bytes, more than {SIZE_MAX}")
    if options.start_max is not None and median > options.start_max:
        raise Failure(f"{median:.0f} ms to the first response")


if __name__ == "__main__":
    servers.run(main)
