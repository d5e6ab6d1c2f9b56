#!/usr/bin/env python3
"""Many connections that each wait for a response: the memory that they cost a server, its CPU, and what failed.

    ulimit -n 20000; benches/held.py --connections 14500 --server 'target/dist/arena 127.0.0.1:0 1'

`tidegate load` sends a request on each connection, and the next one behind its response. The server accepts three quarters of
its descriptors.
"""

import argparse
import json
import resource

import servers
from servers import Failure, Server


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="its command, which prints its address")
    parser.add_argument("--path", default="/delay/10", help="[/delay/10]")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Server(options.server, core=options.server_core) as server:
        resident, used = server.rss(), server.cpu_seconds()
        command = ["taskset", "-c", options.load_core, f"{servers.BUILT}/tidegate", "load", "--threads", "1", "--json", "-"]
        command += ["--connections", str(options.connections), "--duration", f"{options.seconds}s", "--timeout", "30s"]
        code, output = servers.complete([*command, f"http://127.0.0.1:{server.port}{options.path}"], options.seconds + 60)
        if code:
            raise Failure(f"the load failed\n{output}")
        result = json.loads(output[output.index("{") : output.rindex("}") + 1])
        requests, errors = result["requests"], {name: count for name, count in result["errors"].items() if count}
        if errors or not requests:
            raise Failure(f"{requests} requests, errors {errors}")
        each = (server.peak_rss() - resident) / options.connections
        cost = (server.cpu_seconds() - used) / requests * 1e6
        print(f"{options.connections} connections: {each:.0f} bytes each at most, {requests} requests of {cost:.1f} us of CPU")


if __name__ == "__main__":
    servers.run(main)
