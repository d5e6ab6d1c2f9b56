"""Plays an image of a container without a container engine: namespaces of its own, a root with the files of the image
alone, which cannot be changed, a user that owns nothing, no capability, and a seccomp profile.

`Image` reads a Containerfile, `Container` runs it. The latter starts this file as a process of its own, the player. The
player enters the namespaces, starts the program as process 1 in them, connects to it for the script, since the network
of the namespaces has no way out, and ends it: when the script asks, ends or is killed. Linux and libseccomp are needed.
"""

import ctypes
import ctypes.util
import fcntl
import http.client
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

# These bounds end a run that hangs.
LINES_SECONDS_MAX = 120
ANSWER_SECONDS_MAX = 120
DESCRIPTOR_BYTES_MAX = 4096

libc = ctypes.CDLL(None, use_errno=True)


class Image:
    """The last stage of a Containerfile: what it copies, its user, its ports and its command line; and all steps."""

    def __init__(self, path):
        self.copies, self.user, self.entrypoint, self.command, self.steps, self.ports = {}, None, [], [], [], []
        for name, words in instructions(pathlib.Path(path).read_text()):
            if name == "FROM":
                self.base, self.copies = words.split()[0], {}
            elif name == "RUN":
                self.steps.append(words)
            elif name == "COPY":
                *_, source, target = [word for word in words.split() if not word.startswith("--")]
                self.copies[target] = source
            elif name == "USER":
                self.user = tuple(int(number) for number in words.split(":"))
            elif name == "EXPOSE":
                self.ports = [int(port) for port in words.split()]
            elif name == "ENTRYPOINT":
                self.entrypoint = json.loads(words)
            elif name == "CMD":
                self.command = json.loads(words)


def instructions(text):
    """The instructions of a Containerfile, each with its words."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, words = line.strip().partition(" ")
            yield name.upper(), words.strip()


class Container:
    """A running image, a context manager.

    `files` maps paths in the image to paths here, `mounts` paths in the image to texts of files that an engine mounts.
    `limits` maps names of `resource.RLIMIT_` to numbers, `denied` is a list of `(system call, errno, first argument)`,
    `group` is the `ControlGroup` that the program runs in.
    """

    def __init__(self, image, files, arguments=None, profile=None, limits=None, mounts=None, denied=(), group=None):
        self.arguments = image.command if arguments is None else arguments
        self.command = [*image.entrypoint, *self.arguments]
        self.files, self.mounts = files, mounts or {}
        self.orders = {
            "command": self.command,
            "user": image.user,
            "profile": None if profile is None else json.loads(pathlib.Path(profile).read_text()),
            "limits": limits or {},
            "denied": list(denied),
            "group": None if group is None else str(group.path),
        }

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        root = pathlib.Path(self.directory.name, "root")
        for path, source in self.files.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            place.chmod(0o555)
        for path, text in self.mounts.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.orders["root"] = str(root)
        pathlib.Path(self.directory.name).chmod(0o755)
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self.lines, self.news = [], threading.Condition()
        self.player = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), json.dumps(self.orders)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        try:
            news = json.loads(self.socket.recv(DESCRIPTOR_BYTES_MAX) or "{}")
        except BaseException:
            self.__exit__()
            raise
        self.pid, self.started = news.get("pid"), news.get("started")
        if self.pid is None:
            self.__exit__()
            raise OSError(self.output() or "the namespaces cannot be entered")
        return self

    def __exit__(self, *_):
        # The player ends the program when the socket closes.
        self.socket.close()
        try:
            self.player.wait(ANSWER_SECONDS_MAX)
        finally:
            if self.player.poll() is None:
                self.player.kill()
                self.player.wait()
            self.reader.join()
            self.player.stdout.close()
            self.directory.cleanup()

    def _read(self):
        for line in self.player.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.lines.append(None)
            self.news.notify_all()

    def output(self):
        with self.news:
            return "".join(line for line in self.lines if line)

    def line(self, text):
        """The first line that contains the text, once it is printed; `None` if the program ends without it."""
        deadline = time.monotonic() + LINES_SECONDS_MAX
        with self.news:
            while True:
                found = next((line for line in self.lines if line and text in line), None)
                remaining = deadline - time.monotonic()
                if found is not None or None in self.lines or remaining < 0:
                    return found
                self.news.wait(remaining)

    def connect(self, port):
        """A connection to 127.0.0.1 in the network of the container."""
        self.socket.sendall(b"%05d" % port)
        answer, descriptors, _, _ = socket.recv_fds(self.socket, DESCRIPTOR_BYTES_MAX, 1)
        if not descriptors:
            raise OSError(f"port {port} of the container: {answer.decode(errors='replace') or 'it has ended'}")
        connection = socket.socket(fileno=descriptors[0])
        connection.settimeout(ANSWER_SECONDS_MAX)
        return connection

    def get(self, path, port=8080):
        """The status and the body of a response."""
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        client.sock = self.connect(port)
        try:
            client.request("GET", path, headers={"Connection": "close"})
            response = client.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            client.close()

    def status(self, name):
        """A line of /proc/PID/status."""
        with open(f"/proc/{self.pid}/status") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{name}:"))

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def wait(self):
        """The exit code of the program."""
        return self.player.wait(ANSWER_SECONDS_MAX)


class ControlGroup:
    """A control group with a limit of memory, a context manager. It holds one program, and ends with it."""

    def __init__(self, place, names, memory):
        self.path, self.memory = place / f"tidegate-{os.getpid()}", memory
        self.limit, self.peak_name = names

    @classmethod
    def find(cls, memory):
        """One below that of this process or beside it, of either version; `None` where none can be made."""
        versions = []
        with open("/proc/self/cgroup") as lines:
            of_controllers = {line.split(":")[1]: line.rstrip("\n").split(":", 2)[2] for line in lines}
        with open("/proc/self/mounts") as lines:
            for _, mounted, kind, options, *_ in map(str.split, lines):
                mounted = pathlib.Path(mounted)
                if kind == "cgroup2" and "" in of_controllers:
                    own = mounted / of_controllers[""].lstrip("/")
                    places = [place for place in (own, own.parent) if cls._passes_memory_on(place)]
                    versions += [(place, ("memory.max", "memory.peak")) for place in places]
                elif kind == "cgroup" and "memory" in options.split(",") and "memory" in of_controllers:
                    own = mounted / of_controllers["memory"].lstrip("/")
                    versions.append((own, ("memory.limit_in_bytes", "memory.max_usage_in_bytes")))
        for place, names in versions:
            group = cls(place, names, memory)
            try:
                with group:
                    return group
            except OSError:
                pass
        return None

    @staticmethod
    def _passes_memory_on(place):
        try:
            return "memory" in (place / "cgroup.subtree_control").read_text().split()
        except OSError:
            return False

    def __enter__(self):
        self.path.mkdir()
        try:
            (self.path / self.limit).write_text(str(self.memory))
        except OSError:
            self.path.rmdir()
            raise
        return self

    def __exit__(self, *_):
        # The kernel takes a moment to remove processes that have ended.
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def members(self):
        """The numbers of its processes."""
        return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]

    def peak(self):
        """The most memory that was in use, in bytes; `None` where the kernel does not count it."""
        try:
            return int((self.path / self.peak_name).read_text())
        except FileNotFoundError:
            return None


def is_possible():
    """Whether this system lets us have namespaces."""
    command = [sys.executable, "-c", "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"]
    has_filters = ctypes.util.find_library("seccomp") is not None
    return has_filters and subprocess.run(command, check=False).returncode == 0


# The player: a process of its own, since it enters namespaces and never leaves them.

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
CAPABILITIES_MAX = 64


def play(control, orders):
    """Starts the program in its namespaces, and serves the script until it closes the socket."""
    user, group = orders["user"]
    # Opened while this process may: it writes later.
    members = None if orders["group"] is None else os.open(f"{orders['group']}/cgroup.procs", os.O_WRONLY)
    enter_namespaces(user, group)
    bring_loopback_up()
    ready, is_ready = os.pipe()
    has_joined, joined = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            control.close()
            os.close(ready)
            # What this process has used so far is not the program's.
            os.close(joined)
            os.read(has_joined, 1)
            os.close(has_joined)
            if members is not None:
                os.close(members)
            become_process_one(orders)
            # The same clock in all processes.
            os.write(is_ready, str(time.monotonic()).encode())
            os.close(is_ready)
            os.execv(orders["command"][0], orders["command"])
        except BaseException as error:  # noqa: B902: nothing may return from here
            print(f"the player: {error!r}", flush=True)
        os._exit(125)
    os.close(is_ready)
    if members is not None:
        os.write(members, str(child).encode())
        os.close(members)
    os.close(joined)
    os.close(has_joined)
    # The time at which the program starts; it closes without it if that fails.
    started = os.read(ready, 64)
    control.sendall(json.dumps({"pid": child, "started": float(started or 0)}).encode())
    dial(control, os.pidfd_open(child))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def dial(control, child):
    """Connects for the script, which sends five digits for each connection, until it or the program has ended.

    A process whose children are in another namespace can have no threads.
    """
    while child not in (ready := select.select([control, child], [], [])[0]):
        port = control.recv(5, socket.MSG_WAITALL) if control in ready else b""
        if len(port) < 5:
            return
        try:
            with socket.create_connection(("127.0.0.1", int(port)), timeout=ANSWER_SECONDS_MAX) as connection:
                socket.send_fds(control, [b"."], [connection.fileno()])
        except OSError as error:
            control.sendall(str(error).encode())


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter_namespaces(user, group):
    """New namespaces. The user of the image is one that owns nothing here, or if we may not choose, ourselves."""
    mine, is_root = os.getpid(), os.geteuid() == 0
    outside = (user, group) if is_root else (os.geteuid(), os.getegid())
    entered, has_entered = os.pipe()
    # Root maps another user than itself, which needs its capabilities outside of the new namespace.
    mapper = os.fork()
    if mapper == 0:
        os.read(entered, 1)
        try:
            if not is_root:
                pathlib.Path(f"/proc/{mine}/setgroups").write_text("deny")
            pathlib.Path(f"/proc/{mine}/uid_map").write_text(f"{user} {outside[0]} 1")
            pathlib.Path(f"/proc/{mine}/gid_map").write_text(f"{group} {outside[1]} 1")
        except OSError as error:
            print(f"the player: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    spaces = CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    result = libc.unshare(CLONE_NEWUSER | spaces)
    os.write(has_entered, b".")
    _, status = os.waitpid(mapper, 0)
    check(result, "unshare")
    if status:
        raise OSError("the user of the image cannot be mapped")


def bring_loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def become_process_one(orders):
    """From the first process of the namespaces to what an engine makes of it before it starts the program."""
    seccomp = None if orders["profile"] is None else Filter(orders["profile"], orders["denied"])
    enter_root(orders["root"])
    for name, number in orders["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (number, number))
    user, group = orders["user"]
    for capability in range(CAPABILITIES_MAX):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if os.getegid() != group or os.geteuid() != user:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    # The player may be killed at any time; the program must not stay.
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    os.environ.clear()
    if seccomp is not None:
        seccomp.load()


def enter_root(root):
    """The folder is the root, cannot be written to, and is all that there is."""
    mount = lambda source, target, flags: check(  # noqa: E731
        libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None), f"mount {target}"
    )
    # Of its own: the player keeps the files of the system.
    check(libc.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", MS_REC | MS_PRIVATE)
    mount(root, root, MS_BIND | MS_REC)
    mount("none", root, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(root)
    # The old root comes on top of the new one, and goes.
    number = SYS_PIVOT_ROOT[os.uname().machine]
    check(libc.syscall(number, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


class Filter:
    """A seccomp profile in the format of container engines, by libseccomp."""

    ALLOW = 0x7FFF0000
    ERRNO = 0x00050000
    COMPARISONS = {"SCMP_CMP_NE": 1, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}

    class Argument(ctypes.Structure):
        _fields_ = [
            ("index", ctypes.c_uint),
            ("comparison", ctypes.c_int),
            ("first", ctypes.c_uint64),
            ("second", ctypes.c_uint64),
        ]

    def __init__(self, profile, denied):
        self.library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self.library.seccomp_init.restype = ctypes.c_void_p
        denial = profile["defaultErrnoRet"]
        self.filter = ctypes.c_void_p(self.library.seccomp_init(self.ERRNO | denial))
        for rules in profile["syscalls"]:
            action = self.ALLOW if rules["action"] == "SCMP_ACT_ALLOW" else self.ERRNO | rules["errnoRet"]
            for name in rules["names"]:
                arguments = [
                    (each["index"], self.COMPARISONS[each["op"]], each["value"], each.get("valueTwo", 0))
                    for each in rules.get("args", [])
                ]
                # A call that is denied for one value of its first argument is allowed for all others.
                others = [value for what, _, value in denied if what == name]
                arguments += [(0, self.COMPARISONS["SCMP_CMP_NE"], value, 0) for value in others]
                if action & 0xFFFF != denial or action == self.ALLOW:
                    self.add(action, name, arguments)
        for name, number, value in denied:
            self.add(self.ERRNO | number, name, [(0, self.COMPARISONS["SCMP_CMP_EQ"], value, 0)])

    def add(self, action, name, arguments):
        number = self.library.seccomp_syscall_resolve_name(name.encode())
        # A negative number is a call that this processor does not have.
        if number < 0:
            return
        array = (self.Argument * len(arguments))(*[self.Argument(*each) for each in arguments])
        result = self.library.seccomp_rule_add_array(
            self.filter, ctypes.c_uint32(action), number, ctypes.c_uint(len(arguments)), array
        )
        if result < 0:
            raise OSError(-result, f"seccomp: {name}: {os.strerror(-result)}")

    def load(self):
        result = self.library.seccomp_load(self.filter)
        if result < 0:
            raise OSError(-result, f"seccomp: {os.strerror(-result)}")


if __name__ == "__main__":
    play(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))
