#!/usr/bin/env python3
"""The TLS of `tidegate serve` and of `tidegate load`, as other programs see it.

sslyze scans the server: versions, cipher suites, known vulnerabilities, early data, renegotiation, and
Mozilla's intermediate configuration. A ClientHello of this script's own asks for the post-quantum key exchange, which
the TLS libraries of Debian 12 do not have. `openssl s_server` is the server of `tidegate load`. With --testssl,
testssl.sh scans the server as well, a minute for each backend. The README beside this file says how to repeat it.
"""

import argparse
import json
import os
import pathlib
import re
import select
import socket
import struct
import subprocess
import tempfile
import time

import program
import servers
from program import Failure

# Where `cargo xtask ci` installs sslyze.
program.use_tools("sslyze/bin")

SECONDS_MAX = 120
TESTSSL_SECONDS_MAX = 600
SUITES = {
    "tls_1_2": [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ],
    "tls_1_3": ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"],
}
OLD_VERSIONS = ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"]
X25519MLKEM768 = 0x11EC
# What testssl.sh reports about everything but our TLS: the certificate of the test, the site, and that each client has
# its own order of suites, of which none is weak.
# It checks resumption by closing at once, and the ticket may come later.
TESTSSL_IGNORED = "cert_|certs_|DNS_CAA|certificate_transparency|HSTS|HPKP|security_headers|cipher_order"
TESTSSL_IGNORED = re.compile(TESTSSL_IGNORED + "|sessionresumption")
TESTSSL_NEEDED = {"SSLv2", "SSLv3", "TLS1", "TLS1_1", "TLS1_2", "TLS1_3", "heartbleed", "CCS", "ticketbleed", "ROBOT"}
TESTSSL_NEEDED |= {"secure_renego", "secure_client_renego", "CRIME_TLS", "SWEET32", "FREAK", "LOGJAM", "BEAST", "RC4"}


def expect(what, actual, expected):
    if actual != expected:
        raise Failure(f"{what}: {actual!r} instead of {expected!r}")


class Certificates:
    """An authority, a certificate that it has signed for 127.0.0.1, and an authority that has signed nothing."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        subject = ["-subj", "/CN=localhost", "-days", "90", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth"]
        self._make("ca", "-x509", "-subj", "/CN=authority", "-days", "90")
        self._make("other", "-x509", "-subj", "/CN=other authority", "-days", "90")
        self._make("own", "-x509", "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), *subject, *leaf)

    def path(self, name):
        return str(self.directory / name)

    def _make(self, name, *arguments):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(f"{name}.key")]
        command = ["openssl", "req", *key, "-out", self.path(f"{name}.pem"), *arguments]
        code, _, errors = program.run(command, SECONDS_MAX)
        expect(f"openssl req: {errors}", code, 0)


def sslyze(port, certificates):
    """Scans the server; returns how many checks there were."""
    report = certificates.path("sslyze.json")
    # Not --resum: it expects to get the same ticket again, and every ticket is new.
    extra = ["--early_data", "--certinfo", "--certinfo_ca_file", certificates.path("ca.pem")]
    command = ["sslyze", "--mozilla_config", "intermediate", *extra, "--json_out", report, f"127.0.0.1:{port}"]
    code, output, errors = program.run(command, SECONDS_MAX)
    with open(report) as file:
        [result] = json.load(file)["server_scan_results"]
    scan = result["scan_result"]
    if scan is None:
        raise Failure(f"sslyze did not reach the server: {errors}")
    for name in ["http_headers", "session_resumption"]:
        scan.pop(name)
    for name, attempt in scan.items():
        expect(f"sslyze, {name}: {attempt['error_reason']}", attempt["status"], "COMPLETED")
    scan = {name: attempt["result"] for name, attempt in scan.items()}
    for version in OLD_VERSIONS:
        expect(f"sslyze, {version}", scan[f"{version}_cipher_suites"]["is_tls_version_supported"], False)
    for version, suites in SUITES.items():
        accepted = scan[f"{version}_cipher_suites"]["accepted_cipher_suites"]
        expect(f"sslyze, {version}", sorted(each["cipher_suite"]["name"] for each in accepted), suites)
    for name, field, value in [
        ("tls_compression", "supports_compression", False),
        ("tls_1_3_early_data", "supports_early_data", False),
        ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection", False),
        ("tls_fallback_scsv", "supports_fallback_scsv", True),
        ("heartbleed", "is_vulnerable_to_heartbleed", False),
        ("robot", "robot_result", "NOT_VULNERABLE_RSA_NOT_SUPPORTED"),
        ("session_renegotiation", "supports_secure_renegotiation", True),
        ("session_renegotiation", "client_renegotiations_success_count", 0),
        ("tls_extended_master_secret", "supports_ems_extension", True),
    ]:
        expect(f"sslyze, {name}, {field}", scan[name][field], value)
    curves = sorted(curve["name"] for curve in scan["elliptic_curves"]["supported_curves"])
    expect("sslyze, curves", curves, ["X25519", "secp256r1", "secp384r1"])
    # The authority is in none of the trust stores of browsers, against which sslyze compares.
    _, found, verdict = output.decode(errors="replace").partition("COMPLIANCE AGAINST TLS CONFIGURATION")
    complaints = set(re.findall(r"^ +\* (\w+):", verdict, re.MULTILINE))
    expect("sslyze, the verdict about Mozilla's configuration", (code, bool(found)), (1, True))
    expect(f"sslyze, Mozilla's configuration: {verdict}", complaints, {"certificate_path_validation"})
    return len(scan)


def block(length_bytes, content):
    return len(content).to_bytes(length_bytes, "big") + content


def extension(number, content):
    return struct.pack("!H", number) + block(2, content)


def post_quantum(port):
    """The server asks for a share of X25519MLKEM768 if a client names that group and sends no share."""
    extensions = [
        extension(10, block(2, struct.pack("!H", X25519MLKEM768))),
        extension(13, block(2, struct.pack("!HH", 0x0403, 0x0804))),
        extension(43, block(1, struct.pack("!H", 0x0304))),
        extension(51, block(2, b"")),
    ]
    hello = struct.pack("!H", 0x0303) + os.urandom(32) + block(1, os.urandom(32))
    hello += block(2, struct.pack("!H", 0x1301)) + block(1, b"\0") + block(2, b"".join(extensions))
    message = b"\x01" + block(3, hello)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as client:
        client.sendall(b"\x16\x03\x01" + block(2, message))
        answer = b""
        while len(answer) < 5 or len(answer) < 5 + int.from_bytes(answer[3:5], "big"):
            piece = client.recv(4096)
            if not piece:
                raise Failure(f"post-quantum key exchange: the server closed after {answer.hex()}")
            answer += piece
    expect("post-quantum key exchange, the answer", (answer[0], answer[5]), (0x16, 0x02))
    # The key share of a HelloRetryRequest is the group alone.
    share = extension(51, struct.pack("!H", X25519MLKEM768))
    expect("post-quantum key exchange, a HelloRetryRequest for X25519MLKEM768", share in answer, True)


class OpensslServer(program.Front):
    """`openssl s_server`, whose application is this script: it answers requests with `hello`."""

    def __init__(self, directory, certificates, *flags):
        super().__init__(None, directory)
        self.certificates, self.flags = certificates, flags

    def __enter__(self):
        [self.port] = program.free_ports(1)
        path = self.certificates.path
        command = ["openssl", "s_server", "-quiet", "-accept", f"127.0.0.1:{self.port}", "-cert", path("own.pem")]
        command += ["-key", path("own.key"), *self.flags]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **pipes)
        try:
            if not self._listens(self.port):
                raise Failure("openssl s_server does not listen")
        except BaseException:
            servers.end(self.process)
            raise
        return self

    def answer_while(self, client):
        """Answers requests until the client ends; returns how many."""
        answered, pending = 0, b""
        output = self.process.stdout.fileno()
        while client.poll() is None:
            ready, _, _ = select.select([output], [], [], 0.05)
            if ready:
                pending += os.read(output, 65536)
                while b"\r\n\r\n" in pending:
                    _, _, pending = pending.partition(b"\r\n\r\n")
                    self.process.stdin.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                    self.process.stdin.flush()
                    answered += 1
        return answered


def load(options, server, *flags):
    """Runs `tidegate load` against openssl; returns its exit code, how many requests were answered, its output."""
    command = [options.program, "load", "-c", "1", "-t", "1", "-d", "500ms", *flags]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    client = subprocess.Popen([*command, f"https://127.0.0.1:{server.port}/"], **pipes)
    try:
        answered = server.answer_while(client)
        output = client.communicate(timeout=SECONDS_MAX)[0].decode(errors="replace")
    finally:
        servers.end(client)
    return client.returncode, answered, output


def openssl_servers(options, directory, certificates):
    for name, flags in [
        ("TLS 1.2", ["-tls1_2"]),
        ("TLS 1.3", ["-tls1_3"]),
        ("TLS 1.3, P-384 only", ["-tls1_3", "-groups", "P-384"]),
        ("TLS 1.2, without tickets", ["-tls1_2", "-no_ticket"]),
        ("TLS 1.2, ChaCha20 only", ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"]),
        ("records of 512 bytes", ["-tls1_3", "-max_send_frag", "512"]),
    ]:
        with OpensslServer(directory, certificates, *flags) as server:
            code, answered, output = load(options, server, "--root", certificates.path("ca.pem"))
        if code != 0 or answered < 10:
            raise Failure(f"openssl s_server, {name}: code {code}, {answered} answers\n{output}")
        print(f"  openssl s_server, {name}: {answered} requests", flush=True)
    for name, flags, root in [("another authority", ["-tls1_3"], "other.pem"), ("TLS 1.1", ["-tls1_1"], "ca.pem")]:
        with OpensslServer(directory, certificates, *flags, "-cipher", "DEFAULT@SECLEVEL=0") as server:
            code, answered, output = load(options, server, "--root", certificates.path(root))
        expect(f"openssl s_server, {name}: exit code and answers", (code, answered), (1, 0))
        print(f"  openssl s_server, {name}: refused", flush=True)


def testssl(port, certificates):
    report = certificates.path("testssl.json")
    command = ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--jsonfile", report, f"127.0.0.1:{port}"]
    _, output, _ = program.run(command, TESTSSL_SECONDS_MAX)
    with open(report) as file:
        findings = json.load(file)
    missing = TESTSSL_NEEDED - {finding["id"] for finding in findings}
    if missing:
        raise Failure(f"testssl.sh has not checked {missing}\n{output.decode(errors='replace')[-2000:]}")
    bad = [each for each in findings if each["severity"] not in ("OK", "INFO") and not TESTSSL_IGNORED.match(each["id"])]
    if bad:
        raise Failure(f"testssl.sh: {bad}")
    by_name = {finding["id"]: finding["finding"] for finding in findings}
    expect("testssl.sh, TLS 1.0", by_name["TLS1"], "not offered")
    expect("testssl.sh, TLS 1.1", by_name["TLS1_1"], "not offered")
    return len(findings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--testssl", action="store_true", help="run testssl.sh as well, a minute for each backend")
    options = parser.parse_args()
    program.need("openssl", "sslyze", *(["testssl"] if options.testssl else []))
    with tempfile.TemporaryDirectory() as directory:
        certificates = Certificates(directory)
        flags = ["--tls-cert", certificates.path("own.pem"), "--tls-key", certificates.path("own.key")]
        for backend in options.backends:
            with program.serve(backend, *flags, program=options.program) as server:
                print(f"{backend}:", flush=True)
                print(f"  sslyze: {sslyze(server.port, certificates)} scans", flush=True)
                post_quantum(server.port)
                print("  post-quantum key exchange: offered", flush=True)
                if options.testssl:
                    start = time.monotonic()
                    findings = testssl(server.port, certificates)
                    print(f"  testssl.sh: {findings} findings in {time.monotonic() - start:.0f} s", flush=True)
                counts = program.counts(server)
                expect("panics", counts["closed_panicked"], 0)
        openssl_servers(options, directory, certificates)


if __name__ == "__main__":
    servers.run(main)
