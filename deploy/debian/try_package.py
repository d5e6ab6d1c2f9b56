#!/usr/bin/env python3
"""The Debian package in a system of its own: installed, started by systemctl, upgraded under load, made a gateway, removed,
purged.

    deploy/debian/try_package.py PACKAGE NEWER_PACKAGE

The system is this machine's Debian with systemd as its first process, in namespaces: changes of files go into memory, the
network is a loopback interface, and units that configure a kernel are masked. Nothing is left on the machine. Needs root,
Debian with systemd, and namespaces; without them it prints a line and skips.
"""

import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# These configure the kernel, which the machine shares with the system here, or wait for devices.
MASKED = [
    "systemd-binfmt", "systemd-modules-load", "systemd-remount-fs", "systemd-sysctl", "systemd-tmpfiles-setup-dev",
    "systemd-udevd", "systemd-udev-trigger", "systemd-random-seed", "systemd-update-utmp", "systemd-timesyncd",
]
MASKED_OTHERS = [
    "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "dev-mqueue.mount", "sys-fs-fuse-connections.mount",
    "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "systemd-journald-audit.socket", "systemd-initctl.socket",
    "systemd-udevd-kernel.socket", "systemd-udevd-control.socket", "tmp.mount",
]
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PATIENCE = 60
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Failure(Exception):
    pass


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(0)


def start_system(folder):
    """Runs in new namespaces: mounts the system below this folder, and becomes its first process."""
    def mount(*words):
        subprocess.run(["mount", *words], check=True)

    mount("-t", "tmpfs", "tmpfs", folder)
    for name in ["changes", "work", "root"]:
        os.mkdir(f"{folder}/{name}")
    root = f"{folder}/root"
    layers = f"lowerdir=/,upperdir={folder}/changes,workdir={folder}/work"
    mount("-t", "overlay", "overlay", "-o", layers, root)
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--bind", "-o", "ro", f"{root}/proc/sys", f"{root}/proc/sys")
    mount("-o", "remount,bind,ro", f"{root}/proc/sys")
    mount("-t", "sysfs", "-o", "ro", "sysfs", f"{root}/sys")
    mount("-t", "cgroup2", "cgroup2", f"{root}/sys/fs/cgroup")
    for name in ["dev", "run", "tmp"]:
        mount("-t", "tmpfs", "-o", "mode=755" if name != "tmp" else "mode=1777", "tmpfs", f"{root}/{name}")
    for name in DEVICES:
        pathlib.Path(f"{root}/dev/{name}").touch()
        mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for name in ["shm", "pts"]:
        os.mkdir(f"{root}/dev/{name}")
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", f"{root}/dev/pts")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    units = pathlib.Path(f"{root}/etc/systemd/system")
    for name in [*(f"{name}.service" for name in MASKED), *MASKED_OTHERS]:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    # Nothing that this machine has enabled starts.
    shutil.rmtree(units / "multi-user.target.wants", ignore_errors=True)
    shutil.rmtree(units / "sockets.target.wants", ignore_errors=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    # systemd makes namespaces of its own for services, which it cannot in a changed root alone.
    os.chdir(root)
    os.mkdir(f"{root}/run/before")
    subprocess.run(["pivot_root", ".", "run/before"], check=True)
    os.chroot(".")
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/run/before"], check=True)
    environment = {"container": "namespaces", "PATH": PATH}
    os.execve("/lib/systemd/systemd", ["systemd", "--unit=basic.target", "--log-target=null"], environment)


class System:
    """The system, while it runs."""

    def __init__(self, packages):
        self.folder = tempfile.mkdtemp(prefix="tidegate-deb-")
        self.group = None
        self.packages = packages

    def __enter__(self):
        self.make_group()
        words = ["unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--cgroup", "--kill-child",
                 sys.executable, os.path.abspath(__file__), "--start-system", self.folder]
        self.outer = subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=self.enter_group)
        try:
            self.first = self.wait("its first process", self.find_first)
            self.wait("systemd", lambda: self.run("systemctl", "is-system-running").strip() in ["running", "degraded"])
            for package in self.packages:
                with open(package, "rb") as file:
                    self.run("sh", "-c", f"cat > /tmp/{os.path.basename(package)}", input=file.read())
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_group(self):
        """A control group of its own in the unified hierarchy, if there is one."""
        for base in [CGROUPS / "unified", CGROUPS]:
            if (base / "cgroup.procs").exists() and (base / "cgroup.controllers").exists():
                self.group = base / f"tidegate-deb-{os.getpid()}"
                self.group.mkdir()
                return
        raise Failure("no unified hierarchy of control groups")

    def enter_group(self):
        (self.group / "cgroup.procs").write_text("0")

    def find_first(self):
        if self.outer.poll() is not None:
            raise Failure(f"the system ended with {self.outer.returncode}")
        children = pathlib.Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        is_systemd = children and pathlib.Path(f"/proc/{children[0]}/comm").read_text().strip() == "systemd"
        return children[0] if is_systemd else None

    def wait(self, what, is_there):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = is_there()
            if found:
                return found
            time.sleep(0.1)
        raise Failure(f"{what} is not there after {PATIENCE} seconds")

    def run(self, *words, input=None, fails=False):
        """Runs a command in the system, and returns its output."""
        enter = ["nsenter", "--target", self.first, "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"]
        environment = ["env", "-i", f"PATH={PATH}", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"]
        done = subprocess.run([*enter, *environment, *words], input=input, capture_output=True)
        text = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        if words[0] in ["dpkg"] and done.returncode != 0 and not fails:
            raise Failure(f"{' '.join(words)}: {text}")
        return text

    def __exit__(self, *_):
        first = getattr(self, "first", None)
        if first:
            os.kill(int(first), signal.SIGKILL)
        self.outer.kill()
        self.outer.wait()
        end = time.monotonic() + PATIENCE
        while self.group.exists() and time.monotonic() < end:
            for folder in sorted(self.group.rglob("*"), reverse=True):
                if folder.is_dir():
                    remove(folder)
            remove(self.group)
            time.sleep(0.05)
        os.rmdir(self.folder)


def remove(folder):
    try:
        folder.rmdir()
    except OSError:
        pass


class Load:
    """Requests one after the other, each on a connection of its own, from a process in the system's network."""

    PROGRAM = """
import http.client, sys, threading
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
good, bad = 0, []
while not ended.is_set():
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 80, timeout=30)
        connection.request("GET", "/")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200 and b"Tidegate runs" in body: good += 1
        else: bad.append(str(answer.status))
        connection.close()
    except Exception as error:
        bad.append(repr(error))
print(good, len(bad), *bad[:3])
"""

    def __init__(self, system):
        enter = ["nsenter", "--target", system.first, "--net"]
        self.process = subprocess.Popen([*enter, sys.executable, "-c", self.PROGRAM], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def end(self):
        output, _ = self.process.communicate(timeout=PATIENCE)
        good, bad, *errors = output.split(maxsplit=2)
        return int(good), int(bad), " ".join(errors)


def check(is_good, what, text=""):
    if not is_good:
        raise Failure(f"not so: {what}\n{text}")
    print(f"ok: {what}", flush=True)


def install(system, package):
    text = system.run("dpkg", "-i", f"/tmp/{os.path.basename(package)}")
    files = system.run("stat", "-c", "%A %U %G %n", "/etc/tidegate", "/etc/tidegate/tidegate.toml", "/usr/bin/tidegate")
    check("drwxr-x--- root tidegate" in files and "-rw-r----- root tidegate" in files, "the configuration is root's, for the group tidegate", files)
    check("/usr/sbin/nologin" in system.run("getent", "passwd", "tidegate"), "a system user tidegate without a shell")
    conffiles = system.run("dpkg-query", "-W", "-f", "${Conffiles}", "tidegate")
    check("/etc/tidegate/tidegate.toml" in conffiles, "the configuration is a conffile", conffiles)
    listed = system.run("dpkg", "-L", "tidegate")
    for path in ["/usr/share/man/man1/tidegate.1.gz", "/usr/share/man/man1/tidegate-serve.1.gz",
                 "/usr/share/bash-completion/completions/tidegate", "/usr/share/zsh/vendor-completions/_tidegate",
                 "/usr/share/doc/tidegate/copyright", "/usr/share/doc/tidegate/sbom.cdx.json"]:
        check(path in listed, f"the package has {path}")
    state = system.run("systemctl", "is-enabled", "tidegate.service") + system.run("systemctl", "is-active", "tidegate.service")
    check("disabled" in state and "inactive" in state, "it is neither enabled nor started", state + text)
    verified = system.run("systemd-analyze", "verify", "tidegate.service")
    check("tidegate" not in verified, "systemd-analyze verifies the unit", verified)


def get(system, port):
    return system.run("curl", "-sS", "-m", "10", f"http://127.0.0.1:{port}/")


def main_pid(system):
    return system.run("systemctl", "show", "--value", "-p", "MainPID", "tidegate.service").strip()


def start(system):
    text = system.run("systemctl", "start", "tidegate.service")
    state = system.run("systemctl", "status", "--no-pager", "-l", "tidegate.service")
    check("active (running)" in state, "systemctl starts the service", text + state + system.run("journalctl", "-u", "tidegate", "--no-pager"))
    check("Tidegate runs" in get(system, 8080), "it serves the page on port 8080")
    user = system.run("stat", "-c", "%U", f"/proc/{main_pid(system)}")
    check(user.strip() == "tidegate", "its process is the user's", user)
    system.run("systemctl", "stop", "tidegate.service")
    system.run("systemctl", "enable", "--now", "tidegate.socket", "tidegate.service")
    check("Tidegate runs" in get(system, 80), "with the socket unit it serves port 80", system.run("systemctl", "status", "--no-pager", "tidegate.socket", "tidegate.service"))


def upgrade(system, package):
    system.run("sh", "-c", "echo '# mine' >> /etc/tidegate/tidegate.toml")
    before, load = main_pid(system), Load(system)
    time.sleep(1)
    system.run("dpkg", "-i", f"/tmp/{os.path.basename(package)}")
    time.sleep(1)
    good, bad, errors = load.end()
    after = main_pid(system)
    check(after not in ["0", before], f"the upgrade restarts the service: process {after} after {before}")
    check(bad == 0 and good > 100, f"{good} requests during the upgrade, {bad} failed", errors)
    check("# mine" in system.run("cat", "/etc/tidegate/tidegate.toml"), "the changed configuration stays")
    version = system.run("dpkg-query", "-W", "-f", "${Version}", "tidegate")
    check(version.endswith("-2"), f"the version is {version}")


GATEWAY = """
[[listen]]
address = "[::]:80"
redirect-https = true

[[listen]]
address = "[::]:443"
protocol = "https"
certificates = [{ cert = "/etc/tidegate/tls/chain.pem", key = "/etc/tidegate/tls/key.pem" }]

[[upstream]]
name = "shop"
servers = ["http://127.0.0.1:9001"]

[[upstream]]
name = "blog"
servers = ["http://127.0.0.1:9002"]

[[route]]
upstream = "shop"

[[route]]
path = "/blog/{*rest}"
upstream = "blog"
"""

def gateway(system):
    """The steps of docs/deployment.md, behind the installation."""
    def write(path, text):
        system.run("sh", "-c", f"cat > {path}", input=text.encode())

    def shell(command):
        return system.run("sh", "-c", command)

    for name, port in [("shop", 9001), ("blog", 9002)]:
        shell(f"mkdir -p /tmp/{name}/blog && echo {name} | tee /tmp/{name}/blog/page > /tmp/{name}/page")
        shell(f"systemd-run --unit={name} python3 -m http.server --directory /tmp/{name} --bind 127.0.0.1 {port}")
    shell("cd /tmp && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
          "-addext subjectAltName=DNS:localhost -keyout key.pem -out chain.pem")
    text = shell("install -d -m 750 -g tidegate /etc/tidegate/tls && cd /tmp && "
                 "install -m 640 -g tidegate chain.pem key.pem /etc/tidegate/tls/")
    write("/etc/tidegate/tidegate.toml", GATEWAY)
    text += shell("tidegate check-config /etc/tidegate/tidegate.toml")
    text += shell("systemctl stop tidegate.service; "
                  "systemctl enable --now tidegate.socket tidegate-https.socket tidegate.service; "
                  "systemctl status --no-pager -l tidegate.service; "
                  "journalctl -u tidegate --no-pager | tail -n 20")
    system.wait("the shop", lambda: "shop" in shell("curl -sS 127.0.0.1:9001/page") and "blog" in shell("curl -sS 127.0.0.1:9002/blog/page"))
    answers = [shell(f"curl -sS -m 10 --cacert /tmp/chain.pem https://localhost/{path}").strip() for path in ["page", "blog/page"]]
    check(answers == ["shop", "blog"], "a gateway with a certificate has two services behind it", f"{answers} {text}")
    redirect = shell("curl -sS -m 10 -o /dev/null -w '%{http_code} %{redirect_url}' http://localhost/page")
    check(redirect == "308 https://localhost/page", "http leads to https", redirect)
    pid = main_pid(system)
    shell("systemctl reload tidegate.service")
    check("blog" in shell("curl -sS -m 10 --cacert /tmp/chain.pem https://localhost/blog/page") and main_pid(system) == pid, "a reload keeps the process")
    http3(system, write, shell)
    owner = shell("stat -c '%U %a' /var/lib/tidegate")
    check(owner.strip() == "tidegate 700", "the service has a folder of its own for certificates of an authority", owner)
    shell("rm -r /etc/tidegate/tls")


def http3(system, write, shell):
    """UDP port 443 by its socket unit, with one socket, then with one for each of two loops."""
    write("/etc/tidegate/tidegate.toml", GATEWAY.replace('protocol = "https"', 'protocol = "https"\nhttp3 = true'))
    drop_in = "/etc/systemd/system/tidegate-http3.socket.d"
    sockets = "[Socket]\nListenDatagram=\nListenDatagram=443\nListenDatagram=443\nReusePort=yes\n"
    for count in [1, 2]:
        if count == 2:
            shell(f"mkdir -p {drop_in}")
            write(f"{drop_in}/loops.conf", sockets)
        shell("systemctl daemon-reload; systemctl stop tidegate.service tidegate-http3.socket; "
              "systemctl enable --now tidegate-http3.socket; systemctl start tidegate.service")
        log = shell("journalctl -u tidegate --no-pager -n 20")
        bound = shell("ss -Hulnp sport = :443")
        bound_by_both = [line for line in bound.splitlines() if "systemd" in line and "tidegate" in line]
        check(len(bound_by_both) == len(bound.splitlines()) == count, f"the service has systemd's sockets for HTTP/3: {count}", bound + log)
        load = shell("tidegate load --http3 --insecure --connections 4 --duration 1s https://localhost/page")
        check("HTTP/3:" in load and " 100.00% " in load, "HTTP/3 is served", load + log)
        check("passed socket" not in log, "each passed socket has a listener", log)
    shell(f"systemctl disable --now tidegate-http3.socket; rm -r {drop_in}; systemctl daemon-reload")


def take_away(system):
    system.run("dpkg", "-r", "tidegate")
    state = system.run("systemctl", "is-active", "tidegate.service", "tidegate.socket", "tidegate-https.socket", "tidegate-http3.socket")
    check("\nactive" not in f"\n{state}", "removal ends service and socket", state)
    left = system.run("sh", "-c", "ls /usr/bin/tidegate /usr/lib/systemd/system/tidegate* /etc/tidegate/*; find /etc/systemd -name 'tidegate*'")
    check("/etc/tidegate/tidegate.toml" in left and "/etc/systemd" not in left, "removal leaves the configuration alone", left)
    check(left.count("No such file") == 2, "program and units are gone", left)
    system.run("dpkg", "-P", "tidegate")
    check("No such file" in system.run("ls", "/etc/tidegate"), "a purge removes the configuration")


def main():
    if sys.argv[1] == "--start-system":
        return start_system(sys.argv[2])
    missing = [tool for tool in ["dpkg", "unshare", "nsenter", "systemctl", "curl", "ip"] if not shutil.which(tool)]
    if missing:
        skip(f"there is no {', no '.join(missing)}")
    if os.geteuid() != 0 or not os.path.exists("/lib/systemd/systemd"):
        skip("the system needs root and systemd")
    packages = sys.argv[1:3]
    try:
        system = System(packages).__enter__()
    except (Failure, OSError) as failure:
        skip(f"no system in namespaces: {failure}")
    try:
        install(system, packages[0])
        start(system)
        upgrade(system, packages[1])
        gateway(system)
        take_away(system)
    finally:
        system.__exit__()


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"try_package: {failure}")
