"""Peers of `rooms.py`: socket.io with its Redis adapter, and Centrifugo with its Redis engine.

For each: the command of a node, how a WebSocket becomes a member, and how a message is published. Their pings are off, as far
as they can be: a frame that is no message would count as one.
"""

import http.client
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import time

import servers
from servers import Failure

TOOLS = servers.BUILT.parent / "tools/rooms"
SOCKET_IO = ["socket.io@4.8.4", "@socket.io/redis-adapter@8.3.0", "redis@4.7.1"]
CENTRIFUGO = "github.com/centrifugal/centrifugo/v6@v6.9.1"
API_KEY = "rooms"
SILENCE_SECONDS_MAX = 20

SOCKET_IO_SERVER = """
const http = require("http");
const { Server } = require("socket.io");
const { createAdapter } = require("@socket.io/redis-adapter");
const { createClient } = require("redis");
const [broker] = process.argv.slice(2);

(async () => {
  const publisher = createClient({ url: "redis://127.0.0.1:" + broker });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      io.to("tides").emit("m", Buffer.concat(parts).toString());
      response.end("1\\n");
    });
  });
  const io = new Server(server, { transports: ["websocket"], pingInterval: 2 ** 30, adapter: createAdapter(publisher, subscriber) });
  io.on("connection", (member) => member.join("tides"));
  server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => console.log("127.0.0.1:" + server.address().port));
})();
"""


def install(name):
    """Installs a peer, unless it is there."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    if name == "socket.io" and not (TOOLS / "node_modules/socket.io").exists():
        line = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(TOOLS), *SOCKET_IO]
        subprocess.run(line, check=True)
    if name == "centrifugo" and not (TOOLS / "bin/centrifugo").exists():
        subprocess.run(["go", "install", CENTRIFUGO], check=True, env=os.environ | {"GOBIN": str(TOOLS / "bin")})


def socket_io(folder, broker):
    script = pathlib.Path(folder) / "server.js"
    script.write_text(SOCKET_IO_SERVER)
    return f"env NODE_PATH={TOOLS}/node_modules NODE_ENV=production {shutil.which('node')} {script} {broker}"


def centrifugo(folder, broker):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    file = pathlib.Path(folder) / f"{port}.json"
    config = {
        "http_server": {"address": "127.0.0.1", "port": str(port)},
        "http_api": {"key": API_KEY},
        "log": {"level": "error"},
        "engine": {"type": "redis", "redis": {"address": f"redis://127.0.0.1:{broker}"}},
        "client": {"insecure": True, "ping_interval": "1000s", "pong_timeout": "900s", "allowed_origins": ["*"]},
        "channel": {"without_namespace": {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}},
    }
    file.write_text(json.dumps(config))
    return f'sh -c "echo 127.0.0.1:{port} && exec {TOOLS}/bin/centrifugo --config {file}"'


def await_listener(server):
    """Waits until a server that has named its address listens."""
    end = time.monotonic() + SILENCE_SECONDS_MAX
    while True:
        try:
            return socket.create_connection(server.address).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise Failure(f"{server.command}: it does not listen") from None
            time.sleep(0.05)


def upgrade(target):
    return (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def text_frame(text):
    """A message of a client of less than 126 bytes, with a mask of zeros (RFC 6455 section 5.2)."""
    data = text.encode()
    return struct.pack("!BB4x", 0x81, 0x80 | len(data)) + data


def until(connection, *parts):
    """Receives until all parts have come."""
    received = b""
    while not all(part in received for part in parts):
        more = connection.recv(65536)
        if not more:
            raise Failure(f"a server closed a connection after {received!r}")
        received += more


class SocketIoMembers:
    """Engine.IO 4: the server's `0`, the client's `40`, the server's `40`."""

    def begin(self, connection):
        connection.sendall(upgrade("/socket.io/?EIO=4&transport=websocket"))

    def finish(self, connection):
        until(connection, b"HTTP/1.1 101 ", b'0{"sid"')
        connection.sendall(text_frame("40"))
        until(connection, b'40{"sid"')


class CentrifugoMembers:
    """The JSON protocol: connect, and subscribe."""

    def begin(self, connection):
        connection.sendall(upgrade("/connection/websocket"))

    def finish(self, connection):
        until(connection, b"HTTP/1.1 101 ")
        connection.sendall(text_frame('{"id":1,"connect":{}}'))
        until(connection, b'"connect":{')
        connection.sendall(text_frame('{"id":2,"subscribe":{"channel":"tides"}}'))
        until(connection, b'"id":2,"subscribe":{')


class Publisher:
    """Posts messages over one connection."""

    def __init__(self, server, target, body, fields):
        self.connection = http.client.HTTPConnection(*server.address, timeout=SILENCE_SECONDS_MAX)
        self.request = ("POST", target, body, fields)

    def publish(self):
        self.connection.request(*self.request)
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200 or b'"error"' in body:
            raise Failure(f"the server answered {response.status} {body!r}")


def socket_io_publisher(server, text):
    return Publisher(server, "/publish", text, {})


def centrifugo_publisher(server, text):
    body = json.dumps({"channel": "tides", "data": text})
    return Publisher(server, "/api/publish", body, {"X-API-Key": API_KEY, "Content-Type": "application/json"})


def frame_bytes(member, publish):
    """The bytes of a message to a member."""
    publish()
    member.settimeout(1)
    count = 0
    try:
        while more := member.recv(65536):
            count += len(more)
    except TimeoutError:
        return count
    raise Failure("a server closed a connection")


COMMANDS = {"socket.io": socket_io, "centrifugo": centrifugo}
DIALECTS = {"socket.io": SocketIoMembers, "centrifugo": CentrifugoMembers}
PUBLISHERS = {"socket.io": socket_io_publisher, "centrifugo": centrifugo_publisher}
