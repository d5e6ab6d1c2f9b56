#!/usr/bin/env python3
"""Messages of ordered rooms that one Redis core takes in a second: the script of crates/backplane, by redis-benchmark.

    benches/backplane.py

It starts a redis-server on a free port of the loopback address, and ends it. A request has one message, or the 16 that wait
for a busy room. Nobody subscribes: each node with members adds one message to the work of Redis.
"""

import pathlib
import re
import socket
import subprocess
import tempfile
import time

SCRIPTS = pathlib.Path(__file__).parent.parent / "crates/backplane/src/redis/scripts.rs"
KEYS = ["2", "{.r}:m", "{.r}:h"]
# Channel, epoch, messages and bytes of the history, seconds that an unused room lasts, and that its keys were made to last.
BOUNDS = ["{.r}", "00000000000019c4", "100", "1048576", "604800", "1"]


def script():
    return re.search(r'PUBLISH_SOURCE: &str = r"\n(.*?)";', SCRIPTS.read_text(), re.S).group(1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def measure(port, sha, size, batch):
    command = ["redis-benchmark", "-p", port, "-n", str(100_000 // batch), "-c", "16", "-P", "8", "--csv"]
    command += ["EVALSHA", sha, *KEYS, *BOUNDS] + ["1", "x" * size] * batch
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(out.strip().splitlines()[-1].split('","')[1].strip('"')) * batch


def main():
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port, "--dir", folder]
        redis = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            client = ["redis-cli", "-p", port]
            while subprocess.run([*client, "PING"], capture_output=True).stdout != b"PONG\n":
                time.sleep(0.05)
            load = subprocess.run([*client, "SCRIPT", "LOAD", script()], capture_output=True, text=True, check=True)
            print("bytes  messages a request  messages a second")
            for size in (64, 1024):
                for batch in (1, 16):
                    rate = measure(port, load.stdout.strip(), size, batch)
                    print(f"{size:5}  {batch:18}  {rate:17,.0f}")
        finally:
            redis.kill()
            redis.wait()


if __name__ == "__main__":
    main()
