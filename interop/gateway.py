#!/usr/bin/env python3
"""`tidegate proxy` in front of other servers: Python's http.server, and nginx. curl asks through it.

Every answer is compared with that of the server itself: status, body, and the fields that describe the body. The README
beside this file says how to repeat it.
"""

import contextlib
import http.server
import pathlib
import shlex
import socket
import subprocess
import tempfile
import threading
import time

import program
import servers
from program import Failure

CURL_SECONDS_MAX = 120
FIELDS = ("content-length", "content-type", "etag", "last-modified", "content-range", "accept-ranges", "location")

NGINX = """
daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log crit; worker_processes 1;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; types {{ text/plain txt; }}
  server {{ listen 127.0.0.1:{port}; root {dir}/files; autoindex on; }}
}}
"""


def until_listening(port):
    for _ in range(program.LISTEN_SECONDS_MAX * 20):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Failure(f"nothing listens on port {port}")


@contextlib.contextmanager
def python(directory):
    def handler(*arguments):
        return Quiet(*arguments, directory=str(directory))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def nginx(directory):
    [port] = program.free_ports(1)
    config = directory.parent / "nginx.conf"
    config.write_text(NGINX.format(dir=directory.parent, port=port))
    process = subprocess.Popen(["nginx", "-c", str(config), "-p", str(directory.parent)])
    try:
        until_listening(port)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def curl(port, path, *arguments):
    """Status, fields and body of a response."""
    command = ["curl", "--silent", "--show-error", "--path-as-is", "--include", "--max-time", str(CURL_SECONDS_MAX)]
    done = subprocess.run([*command, *arguments, f"http://127.0.0.1:{port}{path}"], capture_output=True, check=True)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), {name: fields[name] for name in FIELDS if name in fields}, body


def compare(what, direct, through):
    requests = [
        ("/small.txt",),
        ("/large.bin",),
        ("/large.bin", "--range", "100-199"),
        ("/small.txt", "--head"),
        ("/nowhere",),
        ("/folder",),
        ("/folder/",),
        ("/small.txt", "--http1.0"),
        ("/small.txt?x=%2F",),
        ("/small.txt", "--data", "a=b"),
        ("/small.txt", "--header", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"),
    ]
    for path, *arguments in requests:
        # The host is the same, for responses that name it.
        arguments += ["--header", "Host: sea.example"]
        expected, got = curl(direct, path, *arguments), curl(through, path, *arguments)
        if expected[0] == 304:
            expected, got = expected[0], got[0]
        if got != expected:
            raise Failure(f"{what}: {path} {arguments}: {str(got)[:300]} instead of {str(expected)[:300]}")
    status, _, _ = curl(through, "/folder/../small.txt")
    if status != 400:
        raise Failure(f"{what}: a path with a dot segment got {status}")
    print(f"{what}: {len(requests)} responses through the proxy are those of the server", flush=True)


def main():
    program.need("curl")
    with tempfile.TemporaryDirectory() as temporary:
        files = pathlib.Path(temporary) / "files"
        (files / "folder").mkdir(parents=True)
        (files / "small.txt").write_text("rising\n")
        (files / "large.bin").write_bytes(program.letters(3 << 20))
        pathlib.Path(temporary).chmod(0o755)
        kinds = [("Python", python)]
        if program.shutil.which("nginx"):
            kinds.append(("nginx", nginx))
        else:
            program.skip_part("there is no nginx")
        for name, start in kinds:
            with start(files) as port:
                for backend in program.BACKENDS:
                    words = [program.PROGRAM, "proxy", "--listen", "127.0.0.1:0", "--quiet", "--backend", backend]
                    words += ["--upstream", f"http://127.0.0.1:{port}"]
                    with servers.Server(shlex.join(words)) as server:
                        compare(f"{name}, {backend}", port, server.port)


if __name__ == "__main__":
    servers.run(main)
