#!/usr/bin/env python3
"""CPU of WebSocket servers: Tidegate, tokio-tungstenite, fastwebsockets and gorilla, one core each.

`tidegate load` puts the same load on all of them. At `/ws` they send each message back; at `/chat/ws` the messages of
one connection go to all. Tidegate's room counts and rates messages and writes JSON around each, the others' rooms pass
on bytes. `send` has only a room, which calls `send` once for each connection with the same bytes. Servers take turns,
round by round, and ratios are taken within a round. An error in a load fails the run.
"""

import argparse
import json
import pathlib

import compare
import servers
from servers import Failure, Server

HERE = pathlib.Path(__file__).resolve().parent
TIDEGATE = f"{servers.BUILT}/tidegate"
PEERS = f"{HERE}/peers/target/release"
SERVERS = {
    "tidegate": f"{TIDEGATE} serve --listen 127.0.0.1:0 --loops 1 --quiet --chat-rate 1000000",
    "tungstenite": f"{PEERS}/websocket-tungstenite 127.0.0.1:0",
    "fastwebsockets": f"{PEERS}/websocket-fastwebsockets 127.0.0.1:0",
    "gorilla": f"{HERE}/peers/websocket-gorilla/websocket-gorilla 127.0.0.1:0",
    "send": f"{PEERS}/websocket-send 127.0.0.1:0",
}
# Of each echo: connections, messages at a time on each, bytes of a message.
ECHOES = {
    "echo of 5 bytes, 16 at a time": (256, 16, 5),
    "echo of 5 bytes": (256, 1, 5),
    "echo of 64 bytes": (256, 1, 64),
    "echo of 64 KiB": (64, 1, 64 * 1024),
}
PATIENCE_SECONDS = 60
# A server's count of its CPU time is in hundredths of a second.
CPU_SECONDS_MIN = 0.1


def load(server, options, seconds, path, connections, depth, length, *more):
    """CPU seconds of the server, and the messages that clients have received."""
    command = ["taskset", "-c", options.load_core, TIDEGATE, "load", f"ws://127.0.0.1:{server.port}{path}", "-t", "1"]
    command += ["-c", str(connections), "--pipeline", str(depth), "--message-bytes", str(length)]
    command += ["-d", f"{seconds}s", "--timeout", "20s", "--any-length", "--json", "-", *more]
    before = server.cpu_seconds()
    code, output = servers.complete(command, PATIENCE_SECONDS + seconds)
    used = server.cpu_seconds() - before
    if code:
        raise Failure(f"{server.command}: tidegate load failed\n{output}")
    # Notes come before the results and behind them.
    return used, json.loads(output[output.index("{") : output.rindex("}") + 1])["requests"]


def measure(server, options, *each):
    """Microseconds of CPU of the server for a message that a client receives.

    A short load is taken from a long one: what is left has no handshakes.
    """
    short = load(server, options, options.seconds, *each)
    long = load(server, options, 3 * options.seconds, *each)
    used, messages = (more - less for more, less in zip(long, short))
    if used < CPU_SECONDS_MIN or messages <= 0:
        raise Failure(f"{server.command}: {messages} messages more in {used} s of CPU: more --seconds")
    return used / messages * 1e6


def measures(options):
    """Each load, by its title."""
    echoes = {title: ("/ws", *load) for title, load in ECHOES.items()}
    members = options.members
    room = ("/chat/ws?room=load", members, 1, 1024, "--broadcast")
    all_ = echoes | {f"1 KiB from one to {members:,}": room}
    return {title: load for title, load in all_.items() if options.only is None or options.only in title}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of a short load; a long one has thrice as many [1]")
    parser.add_argument("--members", type=int, default=1000, help="connections of the room [1000]")
    parser.add_argument("--server-core", default="0")
    parser.add_argument("--load-core", default="1")
    parser.add_argument("--only", metavar="NAME", help="the measurements with this in their name, as `64 KiB`")
    options = parser.parse_args()
    if not measures(options):
        parser.error(f"no measurement has {options.only!r} in its name")
    names = [name for name in options.servers if pathlib.Path(SERVERS[name].split()[0]).exists()]
    for name in set(options.servers) - set(names):
        print(f"skipping {name}: it is not built")
    costs = {title: {name: [] for name in names if name != "send" or "--broadcast" in load}
             for title, load in measures(options).items()}
    for number in range(1, options.rounds + 1):
        for name in names:
            with Server(SERVERS[name], core=options.server_core) as server:
                for title, each in measures(options).items():
                    if name in costs[title]:
                        costs[title][name].append(measure(server, options, *each))
            latest = ", ".join(f"{rows[name][-1]:.2f} {title}" for title, rows in costs.items() if name in rows)
            print(f"round {number}: {name} {latest}", flush=True)
    for title, rows in costs.items():
        base = rows[names[0]]
        heading = f"{names[0]} / it"
        table = f"{title}: microseconds of CPU for each message that a client receives"
        compare.table(table, rows, [(heading, lambda own, base=base: compare.ratio(base, own))])


if __name__ == "__main__":
    servers.run(main)
