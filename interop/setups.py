#!/usr/bin/env python3
"""The everyday set-ups of `deploy/config` against nginx with the same job: each request goes to both, and the responses are
compared: status, the fields that matter, and body.

A site with a redirect and TLS; an API with authentication, limits and CORS; a WebSocket application whose clients stay at a
server; a cache before a slow blog; a canary with mirroring. Behind both are the same servers of Python, which count. The
README beside this file says how to repeat it.
"""

import argparse
import base64
import collections
import contextlib
import hashlib
import http.server
import pathlib
import shlex
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import program
import servers
from program import Failure

SECONDS_MAX = 60
CONFIG = program.ROOT / "deploy/config"
# `flow`, as `htpasswd -nbB -C 4 admin flow` makes it.
USERS = "admin:$2b$04$hFqqjJtkBGZQKeSiSyjQ3etF8dY3otUfeC.D.zA.DTbaUzKcEb3HG\n"
FLOW = "Basic " + base64.b64encode(b"admin:flow").decode()
EBB = "Basic " + base64.b64encode(b"admin:ebb").decode()
APP = "https://app.sea.example"

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log crit; worker_processes 1;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; absolute_redirect off; server_tokens off;
  types {{ text/plain txt; text/html html; }}
  proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection "";
{body}
}}
"""


class Origin(http.server.ThreadingHTTPServer):
    """A server behind both, which counts its requests."""

    daemon_threads = True

    def __init__(self, name):
        super().__init__(("127.0.0.1", 0), Handler)
        self.name = name
        self.paths = collections.Counter()
        self.is_down = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def handle_error(self, request, client_address):
        """A proxy that ends a connection is no error."""

    def __exit__(self, *_):
        self.shutdown()
        super().__exit__()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo()
        path = self.path.split("?")[0]
        # Checks of health come by themselves.
        if path != "/health":
            self.server.paths[self.path] += 1
        length = int(self.headers.get("Content-Length", 0))
        received = len(self.rfile.read(length))
        fields = {"Content-Type": "text/plain"}
        if path.startswith("/kept"):
            fields["Cache-Control"] = "max-age=600"
        if path.startswith("/brief"):
            fields["Cache-Control"] = "max-age=1"
        if path.startswith("/private"):
            fields["Cache-Control"] = "private, max-age=600"
        if path.startswith("/cookie"):
            fields |= {"Cache-Control": "max-age=600", "Set-Cookie": "a=b"}
        if path.startswith("/language"):
            fields |= {"Cache-Control": "max-age=600", "Vary": "Accept-Language"}
        language = self.headers.get("Accept-Language", "") if path.startswith("/language") else ""
        body = f"{path} {received} {language}\n".encode()
        status = 503 if self.server.is_down else 200
        if path.startswith("/nowhere"):
            status = 404
        if self.server.is_down:
            body, fields = b"down\n", {}
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("X-Powered-By", "Python")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return None

    do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_GET

    def echo(self):
        """A WebSocket that sends its name, and each text back (RFC 6455), in frames of up to 125 bytes."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        name = self.server.name.encode()
        self.wfile.write(bytes([0x81, len(name)]) + name)
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] != 0x81:
                break
            mask, masked = self.rfile.read(4), self.rfile.read(head[1] & 0x7F)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))
            self.wfile.write(bytes([0x81, len(text)]) + text)
        self.close_connection = True


class Nginx(program.Front):
    """nginx with one of the configurations."""

    def __init__(self, body, ports_needed, directory, **values):
        super().__init__(None, directory)
        self.body, self.ports_needed, self.values = body, ports_needed, values

    def command(self):
        ports = {"http": self.ports[0], "https": self.ports[-1]}
        body = self.body.format(dir=self.directory, **ports, **self.values)
        path = pathlib.Path(self.directory, "nginx.conf")
        path.write_text(NGINX.format(dir=self.directory, body=body))
        return ["nginx", "-c", str(path), "-p", str(self.directory), "-e", "stderr"]


@contextlib.contextmanager
def gateway(name, ports_needed, **environment):
    """`tidegate run` with a file of `deploy/config`, and its ports."""
    ports = program.free_ports(ports_needed)
    environment |= {"HTTP": f"127.0.0.1:{ports[0]}", "HTTPS": f"127.0.0.1:{ports[-1]}"}
    words = ["env", *(f"{key}={value}" for key, value in environment.items())]
    words += [program.PROGRAM, "run", "--quiet", "--loops", "1", "--config", str(CONFIG / name)]
    with servers.Server(shlex.join(words)):
        yield ports


def ask(port, target, *arguments, fields=(), host="sea.example", scheme="http"):
    """Status, some fields and body of a response."""
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", str(SECONDS_MAX), "--noproxy", "*", "--insecure"]
    command += ["--header", "Expect:"]
    command += ["--header", f"Host: {host}"] if scheme == "http" else ["--resolve", f"{host}:{port}:127.0.0.1"]
    url = f"{scheme}://{'127.0.0.1' if scheme == 'http' else host}:{port}{target}"
    done = subprocess.run([*command, "--http1.1", *arguments, url], capture_output=True, check=True)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), {name: found.get(name) for name in fields}, body


def same(what, responses):
    expected, got = responses
    if got != expected:
        raise Failure(f"{what}: {got} instead of {expected}, which nginx sends")


class Pair:
    """Both servers: each request goes to both, and the responses are compared."""

    def __init__(self, name, ports, fields, https=(0, 0)):
        self.name, self.ports, self.fields, self.https, self.count = name, ports, fields, https, 0

    def both(self, target, *arguments, has_body=True, fields=None, scheme="http"):
        ports = self.https if scheme == "https" else self.ports
        wanted = self.fields if fields is None else fields
        responses = [ask(port, target, *arguments, fields=wanted, scheme=scheme) for port in ports]
        self.count += 1
        if not has_body:
            responses = [response[:2] for response in responses]
        # The redirect to https names the port of each.
        texts = [str(response).replace(f":{port}", ":PORT") for response, port in zip(responses, self.https)]
        same(f"{self.name}: {target} {arguments}", texts)

    def end(self):
        print(f"{self.name}: {self.count} responses are those of nginx", flush=True)


SITE = """
  server {{ listen 127.0.0.1:{http}; location / {{ return 308 https://$host:{https}$request_uri; }} }}
  server {{
    listen 127.0.0.1:{https} ssl; ssl_certificate {tls}/chain.pem; ssl_certificate_key {tls}/key.pem;
    root {site}; charset utf-8; add_header Cache-Control "public, max-age=3600";
    location = /tides {{ return 301 /tables/; }}
  }}
"""


def site(folder):
    (folder / "site/tables").mkdir(parents=True)
    (folder / "site/index.html").write_text("<h1>tides</h1>")
    (folder / "site/a.txt").write_text("rising\n" * 100)
    (folder / "site/tables/index.html").write_text("<table></table>")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=sea.example", "-addext", "subjectAltName=DNS:sea.example,DNS:www.sea.example"]
    make += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "chain.pem")]
    subprocess.run(make, check=True, capture_output=True)
    with (
        Nginx(SITE, 2, folder, tls=folder, site=folder / "site") as nginx,
        gateway("site.toml", 2, TLS=folder, SITE=folder / "site") as ours,
    ):
        fields = ("content-type", "content-length", "location", "cache-control", "content-range")
        pair = Pair("site", (nginx.ports[0], ours[0]), fields, https=(nginx.ports[1], ours[1]))
        for target in ("/", "/a.txt?x=1", "/a%20b"):
            pair.both(target, has_body=False, fields=("location",))
        for target, *arguments in [
            ("/",),
            ("/a.txt",),
            ("/a.txt", "--head"),
            ("/a.txt", "--range", "7-13"),
            ("/a.txt", "--range", "-5"),
            ("/tables/",),
        ]:
            pair.both(target, *arguments, scheme="https")
        pair.both("/tides", has_body=False, fields=("location",), scheme="https")
        for target, *arguments in [("/nowhere",), ("/.hidden",), ("/a.txt", "--range", "900-")]:
            pair.both(target, *arguments, has_body=False, fields=(), scheme="https")
        pair.end()


API = """
  upstream api {{ least_conn; server 127.0.0.1:{one}; server 127.0.0.1:{two}; }}
  limit_req_zone $binary_remote_addr zone=clients:1m rate=1r/m; limit_req_status 429;
  map $http_origin $allowed {{ "{app}" $http_origin; default ""; }}
  map "$request_method|$http_access_control_request_method" $asks {{ ~^OPTIONS\\|. 1; default 0; }}
  server {{
    listen 127.0.0.1:{http};
    location /api/ {{
      add_header Access-Control-Allow-Origin $allowed always;
      if ($asks) {{
        add_header Access-Control-Allow-Origin $allowed;
        add_header Access-Control-Max-Age 600;
        return 204;
      }}
      # Ten requests of a client as ours counts, which counts the one with a long body, too.
      limit_req zone=clients burst=8 nodelay;
      client_max_body_size 64k; proxy_hide_header X-Powered-By; proxy_pass http://api;
    }}
    location /api/admin/ {{
      auth_basic administration; auth_basic_user_file {secrets}/users; proxy_pass http://api;
    }}
    location = /health {{ default_type text/plain; return 200 "up\\n"; }}
  }}
"""


def api(folder):
    (folder / "users").write_text(USERS)
    with Origin("one") as one, Origin("two") as two:
        peers = {"one": one.port, "two": two.port}
        environment = {"API_1": f"127.0.0.1:{one.port}", "API_2": f"127.0.0.1:{two.port}"}
        with (
            Nginx(API, 1, folder, app=APP, secrets=folder, **peers) as nginx,
            gateway("api.toml", 1, SECRETS=folder, RATE="1/m:10", **environment) as ours,
        ):
            fields = ("content-type", "access-control-allow-origin", "x-powered-by")
            pair = Pair("API", (nginx.ports[0], ours[0]), fields)
            origin = ("--header", f"Origin: {APP}")
            foreign = ("--header", "Origin: https://evil.example")
            asks = ("--request", "OPTIONS", "--header", "Access-Control-Request-Method: DELETE")
            pair.both("/health")
            pair.both("/api/admin/a", has_body=False, fields=())
            pair.both("/api/admin/a", "--header", f"Authorization: {EBB}", has_body=False, fields=())
            pair.both("/api/admin/a", "--header", f"Authorization: {FLOW}", fields=("content-type",))
            preflight = ("access-control-allow-origin", "access-control-max-age")
            pair.both("/api/a", *asks, *origin, fields=preflight)
            pair.both("/api/a", *asks, *foreign, fields=preflight[:1])
            # Ten requests of a client, and no more.
            pair.both("/api/a?b=%2F", *origin)
            pair.both("/api/a", *foreign)
            pair.both("/api/nowhere")
            pair.both("/api/post", "--data", "x" * 1000, *origin)
            pair.both("/api/post", "--data", "x" * 70_000, *origin, has_body=False, fields=fields[1:2])
            pair.both("/api/put", "--request", "PUT", "--data", "a=b")
            pair.both("/api/delete", "--request", "DELETE")
            for _ in range(3):
                pair.both("/api/a")
            pair.both("/api/a", *origin, has_body=False, fields=fields[1:2])
            pair.both("/health")
            pair.end()


ROOMS = """
  upstream rooms {{ hash $cookie_room consistent; server 127.0.0.1:{one}; server 127.0.0.1:{two}; }}
  server {{
    listen 127.0.0.1:{https} ssl; ssl_certificate {tls}/chain.pem; ssl_certificate_key {tls}/key.pem;
    location / {{
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $upgraded; proxy_pass http://rooms;
    }}
  }}
  map $http_upgrade $upgraded {{ "" ""; default upgrade; }}
"""


def visit(port, cookie):
    """A WebSocket: the head of its response without what each has of its own, its cookie, the name of its server, an echo."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX), server_hostname="sea.example"
    ) as peer:
        head = "GET /ws HTTP/1.1\r\nHost: sea.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        peer.sendall((head + (f"Cookie: {cookie}\r\n" if cookie else "") + "\r\n").encode())
        stream = peer.makefile("rb")
        status = stream.readline().split()[1].decode()
        lines = iter(lambda: stream.readline().decode().strip(), "")
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        kept = {name: found.get(name, "").lower() for name in ("upgrade", "connection", "sec-websocket-accept")}

        def frame():
            first, length = stream.read(2)
            return first, stream.read(length)

        name = frame()[1].decode()
        peer.sendall(bytes([0x81, 0x84, 1, 2, 3, 4]) + bytes(byte ^ mask for byte, mask in zip(b"tide", (1, 2, 3, 4))))
        return (status, kept, frame()), found.get("set-cookie", "").split(";")[0], name


def websocket(folder):
    (folder / "cookie").write_text("a secret of sixteen bytes or more\n")
    with Origin("one") as one, Origin("two") as two:
        environment = {"ROOM_1": f"127.0.0.1:{one.port}", "ROOM_2": f"127.0.0.1:{two.port}"}
        with (
            Nginx(ROOMS, 1, folder, tls=folder, one=one.port, two=two.port) as nginx,
            gateway("websocket.toml", 1, TLS=folder, SECRETS=folder, **environment) as ours,
        ):
            stays = 0
            for client in range(6):
                response, cookie, name = visit(ours[0], None)
                expected, _, theirs = visit(nginx.ports[0], f"room={client}")
                same(f"WebSocket {client}", (expected, response))
                if not cookie.startswith("room="):
                    raise Failure(f"a WebSocket has no cookie: {cookie}")
                for _ in range(3):
                    again = [visit(nginx.ports[0], f"room={client}"), visit(ours[0], cookie)]
                    same(f"WebSocket {client} again", (again[0][0], again[1][0]))
                    if (again[0][2], again[1][2]) != (theirs, name) or again[1][1]:
                        raise Failure(f"a client has changed its server: {again}")
                    stays += 1
            print(f"WebSocket: 6 handshakes are those of nginx, and {stays} further ones stay at their servers", flush=True)


BLOG = """
  proxy_cache_path {dir}/nginx-cache keys_zone=blog:1m;
  server {{
    listen 127.0.0.1:{http};
    location / {{
      proxy_cache blog; proxy_cache_use_stale error timeout http_500 http_502 http_503 http_504;
      proxy_cache_lock on; proxy_force_ranges on; add_header X-Cache $upstream_cache_status; proxy_pass http://127.0.0.1:{blog};
    }}
  }}
"""


def blog(folder):
    (folder / "sorry.html").write_text("<p>later</p>")
    with Origin("nginx") as theirs, Origin("ours") as own:
        environment = {"BLOG": f"127.0.0.1:{own.port}", "CACHE": folder / "cache", "PAGES": folder}
        with (
            Nginx(BLOG, 1, folder, blog=theirs.port) as nginx,
            gateway("blog.toml", 1, **environment) as ours,
        ):
            pair = Pair("blog", (nginx.ports[0], ours[0]), ("content-type", "content-length", "cache-control", "set-cookie"))
            for target, *arguments in [
                ("/kept/1",),
                ("/kept/1",),
                ("/kept/1", "--head"),
                ("/kept/1?a=b",),
                ("/kept/1?a=b", "--header", "Cache-Control: no-cache"),
                ("/private/1",),
                ("/private/1",),
                ("/cookie/1",),
                ("/cookie/1",),
                ("/language", "--header", "Accept-Language: sv"),
                ("/language", "--header", "Accept-Language: en"),
                ("/language", "--header", "Accept-Language: sv"),
                ("/plain",),
                ("/plain",),
                ("/kept/1", "--data", "a=b"),
                ("/nowhere",),
            ]:
                pair.both(target, *arguments)
            pair.both("/kept/2")
            pair.both("/kept/2", "--range", "0-3", fields=("content-range",))
            pair.both("/brief/1")
            counts = [collections.Counter(origin.paths) for origin in (theirs, own)]
            if counts[0] != counts[1]:
                raise Failure(f"the blog got {counts[1]} of ours, and {counts[0]} of nginx")
            theirs.is_down = own.is_down = True
            time.sleep(1.2)
            pair.both("/brief/1")
            pair.both("/kept/2")
            pair.end()


CANARY = """
  upstream next {{ server 127.0.0.1:{next}; }}
  upstream all {{ server 127.0.0.1:{stable} weight=19; server 127.0.0.1:{next} weight=1; }}
  map $http_x_canary $to {{ "" all; default next; }}
  server {{
    listen 127.0.0.1:{http};
    location / {{ mirror /copy; proxy_pass http://$to; }}
    location = /copy {{
      internal; if ($http_x_canary) {{ return 204; }}
      proxy_pass http://127.0.0.1:{candidate}$request_uri;
    }}
  }}
"""


def canary(folder):
    counts = []
    answers = []
    with contextlib.ExitStack() as stack:
        sets = [[stack.enter_context(Origin(name)) for name in ("stable", "next", "candidate")] for _ in range(2)]
        ports = [dict(zip(("stable", "next", "candidate"), (origin.port for origin in each))) for each in sets]
        nginx = stack.enter_context(Nginx(CANARY, 1, folder, **ports[0]))
        names = {key.upper(): f"127.0.0.1:{port}" for key, port in ports[1].items()}
        ours = stack.enter_context(gateway("canary.toml", 1, MIRRORED="100", **names))
        for port in (nginx.ports[0], ours[0]):
            answers.append([ask(port, f"/{number}") for number in range(40)])
            answers[-1] += [ask(port, f"/canary/{number}", "--header", "X-Canary: 1") for number in range(5)]
            answers[-1] += [ask(port, "/post", "--data", "a=b")]
        same("canary", answers)

        def seen():
            return [[sum(origin.paths.values()) for origin in each] for each in sets]

        # Copies are sent behind their requests.
        deadline = time.monotonic() + SECONDS_MAX
        while any(each[2] < 41 for each in seen()) and time.monotonic() < deadline:
            time.sleep(0.05)
        counts = seen()
    same("canary: requests of stable, next and candidate", counts)
    print(f"canary: {len(answers[0])} responses are those of nginx, and so are {counts[0]} requests of the servers", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    program.PROGRAM = parser.parse_args().program
    program.need("curl", "openssl")
    if not program.shutil.which("nginx"):
        program.skip_part("there is no nginx")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        folder.chmod(0o755)
        for setup in (site, api, websocket, blog, canary):
            setup(folder)


if __name__ == "__main__":
    servers.run(main)
