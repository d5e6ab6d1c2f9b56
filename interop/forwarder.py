#!/usr/bin/env python3
"""DNS: `tidegate dns` by dnspython, dig, kdig, curl, dnsperf, a browser and Unbound.

The forwarder asks `examples/zone`, whose zone file is that of `zone.py`. dnspython compares each set of records over UDP and TCP, the
second time from the cache. dig and kdig look at what people see, Unbound asks the forwarder as its upstream and is one, and dnsperf must lose
no query. kdig and dnspython ask over TLS and HTTPS too, curl and a headless Chromium resolve by it, and a second forwarder asks the first
one over TLS, HTTPS and HTTP/3.
"""

import http.server
import os
import pathlib
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import zone as of_zone  # noqa: E402, which finds dnspython or skips
from zone import dns

import browser
import program
import servers
from program import Failure

SECONDS_MAX = 30
DNSPERF_QUERIES = 20_000


def compare_sets(server, zone):
    """Each set of the zone, but those below the delegation and those that aliases answer, twice."""
    count = 0
    for name, rdataset in zone.iterate_rdatasets():
        full = name.derelativize(zone.origin)
        if "child" in full.to_text() or full.to_text().startswith("old"):
            continue
        wanted = {rdata.to_digestable(zone.origin) for rdata in rdataset}
        for over in [dns.query.udp, dns.query.tcp] * 2:
            answer = of_zone.ask(server, full, rdataset.rdtype, over, use_edns=0, payload=1232)
            if answer.flags & dns.flags.TC and over is dns.query.udp:
                continue
            found = answer.get_rrset(answer.answer, full, dns.rdataclass.IN, rdataset.rdtype, rdataset.covers)
            if found is None or {rdata.to_digestable() for rdata in found} != wanted or found.ttl > rdataset.ttl:
                raise Failure(f"{full} {rdataset}: {answer}")
            if answer.flags & dns.flags.AA or not answer.flags & dns.flags.RA or answer.rcode() != dns.rcode.NOERROR:
                raise Failure(f"{full}: {answer}")
            count += 1
    print(f"dnspython: {count} sets over UDP and TCP are right", flush=True)


def ask_by(tool, server, cases):
    if not shutil.which(tool):
        return program.skip_part(f"there is no {tool}")
    place = [f"@{server[0]}", "-p", str(server[1])]
    for words, wanted in cases:
        _, output, errors = program.run([tool, *place, *words], SECONDS_MAX * 2)
        text = output.decode(errors="replace")
        missing = [part for part in wanted if not re.search(part, text)]
        if missing:
            raise Failure(f"{tool} {shlex.join(words)}: no {missing}\n{text}{errors}")
    print(f"{tool}: {len(cases)} questions are right", flush=True)


DIG = [
    (["www.tides.example"], ["status: NOERROR", r"CNAME\tmail", r"A\t192.0.2.25", "flags: qr rd ra;"]),
    (["big.tides.example", "TXT"], ["Truncated, retrying in TCP mode", "ANSWER: 1"]),
    (["none.tides.example"], ["status: NXDOMAIN", "AUTHORITY: 1"]),
    (["+noall", "+answer", "tides.example", "ANY"], ["RFC8482"]),
    (["+norecurse", "www.tides.example"], ["status: REFUSED"]),
    (["CH", "TXT", "version.bind"], ["status: REFUSED"]),
    (["+header-only"], ["status: FORMERR"]),
    (["+opcode=NOTIFY", "tides.example", "SOA"], ["status: NOTIMP"]),
    (["+edns=1", "+noednsnegotiation", "www.tides.example"], ["status: BADVERS"]),
    (["+tcp", "+keepopen", "mail.tides.example", "ns.tides.example"], ["192.0.2.25", "192.0.2.53"]),
]
KDIG = [
    (["mail.tides.example"], ["status: NOERROR", "192.0.2.25"]),
    (["+tcp", "big.tides.example", "TXT"], ["status: NOERROR", "ANSWER: 1"]),
    (["+tcp", "+keepopen", "mail.tides.example", "ns.tides.example"], ["192.0.2.25", "192.0.2.53"]),
]


SECURE = [
    (["mail.tides.example"], ["status: NOERROR", "192.0.2.25"]),
    (["+keepopen", "mail.tides.example", "ns.tides.example"], ["192.0.2.25", "192.0.2.53"]),
    (["big.tides.example", "TXT"], ["status: NOERROR", "ANSWER: 1"]),
    (["none.tides.example"], ["status: NXDOMAIN"]),
    (["+padding=128", "mail.tides.example"], ["PADDING: ", "Received 468 B"]),
]


def secure_places(running):
    """The addresses of the listeners over TLS and HTTPS."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        text = "".join(running.last_lines)
        found = [re.search(rf"listening on {scheme}://127\.0\.0\.1:(\d+)", text) for scheme in ["tls", "https"]]
        if all(found):
            return [("127.0.0.1", int(place[1])) for place in found]
        if time.monotonic() > deadline:
            raise Failure(f"no addresses over TLS and HTTPS: {text}")
        time.sleep(0.05)


def certificate(directory):
    """A certificate that vouches for itself, for 127.0.0.1 and dns.example."""
    chain, key = str(pathlib.Path(directory, "chain.pem")), str(pathlib.Path(directory, "key.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=dns.example", "-addext", "subjectAltName=DNS:dns.example,IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


def ask_securely(running, chain):
    """kdig with a checked certificate, dnspython and curl, over TLS and HTTPS."""
    over_tls, over_https = secure_places(running)
    checked = [f"+tls-ca={chain}", "+tls-hostname=dns.example"]
    ask_by("kdig", over_tls, [([*checked, "+tls", *words], wanted) for words, wanted in SECURE])
    for method in [[], ["+https-get"]]:
        words = [*checked, "+https=dns.example/dns-query", *method]
        ask_by("kdig", over_https, [([*words, *asked], wanted) for asked, wanted in SECURE])
    context = ssl.create_default_context(cafile=chain)
    query = dns.message.make_query("big.tides.example", "TXT", use_edns=0)
    answers = [
        dns.query.tls(query, over_tls[0], SECONDS_MAX, over_tls[1], server_hostname="dns.example", ssl_context=context),
    ]
    for version, is_post in [(dns.query.HTTPVersion.H1, True), (dns.query.HTTPVersion.H2, True), (dns.query.HTTPVersion.H2, False)]:
        place = {"where": f"https://dns.example:{over_https[1]}/dns-query", "bootstrap_address": over_https[0]}
        answers.append(dns.query.https(query, timeout=SECONDS_MAX, post=is_post, verify=chain, http_version=version, **place))
    for answer in answers:
        if answer.rcode() != dns.rcode.NOERROR or len(answer.answer) != 1 or answer.id != query.id:
            raise Failure(f"{answer}")
    print(f"dnspython: {len(answers)} answers over TLS and HTTPS are right", flush=True)
    # No server is at that address: curl has resolved the name, and fails to connect.
    url = f"https://127.0.0.1:{over_https[1]}/dns-query"
    command = ["curl", "-sv", "--noproxy", "*", "--connect-timeout", "1", "--doh-insecure", "--doh-url", url, "http://mail.tides.example/"]
    _, _, text = program.run(command, SECONDS_MAX)
    if "Trying 192.0.2.25:80" not in text:
        raise Failure(f"curl: {text}")
    print("curl: a name is resolved over HTTPS", flush=True)
    return over_tls, over_https


def chain_of_forwarders(forwarder, places, chain, backend):
    """A second forwarder asks the first one over TLS, HTTPS or HTTP/3 alone."""
    over_tls, over_https = places
    of_https = [f"{scheme}://{over_https[0]}:{over_https[1]}/dns-query#dns.example" for scheme in ["https", "h3"]]
    for upstream in ["tls://{}:{}#dns.example".format(*over_tls), *of_https]:
        words = [forwarder, "dns", "--listen", "127.0.0.1:0", "--upstream", upstream, "--upstream-ca", chain]
        with servers.Server(shlex.join([*words, "--backend", backend])) as second:
            for name in ["mail", "ns", "mail"]:
                query = dns.message.make_query(f"{name}.tides.example", "A")
                answer = dns.query.udp(query, second.address[0], port=second.address[1], timeout=SECONDS_MAX)
                if answer.rcode() != dns.rcode.NOERROR or len(answer.answer) != 1:
                    raise Failure(f"by {upstream}: {answer}")
    print("tidegate dns: asks over TLS, HTTPS and HTTP/3", flush=True)


def load(server, directory):
    """dnsperf loses nothing, over UDP and TCP."""
    if not shutil.which("dnsperf"):
        return program.skip_part("there is no dnsperf")
    names = pathlib.Path(directory, "names")
    names.write_text("mail.tides.example A\nns.tides.example AAAA\nwww.tides.example A\nnone.tides.example A\n")
    for mode in ["udp", "tcp"]:
        command = ["dnsperf", "-s", server[0], "-p", str(server[1]), "-d", str(names), "-m", mode]
        command += ["-n", str(DNSPERF_QUERIES // 4), "-q", "64", "-c", "4"]
        _, output, errors = program.run(command, SECONDS_MAX * 4)
        text = output.decode(errors="replace")
        found = re.search(r"Queries completed:\s+(\d+) \((\d+\.\d+)%\)", text)
        if not found or found.group(2) != "100.00":
            raise Failure(f"{shlex.join(command)}:\n{text}{errors}")
        print(f"dnsperf: {found.group(1)} queries over {mode}, none lost", flush=True)


class Unbound:
    """Unbound with these lines of its `server` clause and after it, a context manager."""

    def __init__(self, directory, lines):
        [self.port] = program.free_ports(1)
        self.file = pathlib.Path(directory, "unbound.conf")
        self.file.write_text(f"""
server:
  interface: 127.0.0.1@{self.port}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{directory}"
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  do-not-query-localhost: no
{lines}
""")

    def __enter__(self):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["unbound", "-c", str(self.file)], **quiet)
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                dns.query.udp(dns.message.make_query("id.server", "TXT", "CH"), "127.0.0.1", port=self.port, timeout=1)
                return self
            except (OSError, dns.exception.DNSException):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    servers.end(self.process)
                    raise Failure("unbound does not answer") from None

    def __exit__(self, *_):
        servers.end(self.process)


def check_answers(who, address):
    """An alias over UDP, a long answer over TCP, a name that does not exist."""
    where = {"where": address[0], "port": address[1], "timeout": SECONDS_MAX}
    alias = dns.query.udp(dns.message.make_query("www.tides.example", "A"), **where)
    many = dns.query.tcp(dns.message.make_query("big.tides.example", "TXT"), **where)
    none = dns.query.udp(dns.message.make_query("none.tides.example", "A"), **where)
    if (len(alias.answer), len(many.answer), none.rcode()) != (2, 1, dns.rcode.NXDOMAIN):
        raise Failure(f"{who}: {alias}\n{many}\n{none}")


def unbound_in_front(server, directory):
    """Unbound with the forwarder as its upstream, with 0x20."""
    if not shutil.which("unbound"):
        return program.skip_part("there is no unbound")
    zone = f'forward-zone:\n  name: "."\n  forward-addr: {server[0]}@{server[1]}'
    with Unbound(directory, f"  use-caps-for-id: yes\n{zone}") as running:
        check_answers("unbound in front", ("127.0.0.1", running.port))
    print("unbound: the forwarder is its upstream", flush=True)


def unbound_behind(forwarder, zone_server, certificate_files, directory, backend):
    """The forwarder with Unbound as its upstream, over UDP and TCP, TLS and HTTPS, and with a server before it that is not there."""
    if not shutil.which("unbound"):
        return program.skip_part("there is no unbound")
    chain, key = certificate_files
    tls, https, closed = program.free_ports(3)
    lines = f"""  interface: 127.0.0.1@{tls}
  interface: 127.0.0.1@{https}
  tls-port: {tls}
  https-port: {https}
  tls-service-key: "{key}"
  tls-service-pem: "{chain}"
forward-zone:
  name: "."
  forward-addr: {zone_server[0]}@{zone_server[1]}"""
    with Unbound(directory, lines) as running:
        plain = f"127.0.0.1:{running.port}"
        upstreams = [[plain], [f"127.0.0.1:{closed}", plain], [f"tls://127.0.0.1:{tls}#dns.example"]]
        upstreams.append([f"https://127.0.0.1:{https}/dns-query#dns.example"])
        for upstream in upstreams:
            words = [forwarder, "dns", "--listen", "127.0.0.1:0", "--upstream-ca", chain, "--backend", backend]
            words += [word for place in upstream for word in ["--upstream", place]]
            with servers.Server(shlex.join(words)) as second:
                check_answers(f"unbound behind, {upstream}", second.address)
    print("unbound: it is the upstream of the forwarder, over UDP, TCP, TLS and HTTPS", flush=True)


def browse(over_https):
    """A headless Chromium, which resolves by DNS over HTTPS alone, opens a page."""
    if not shutil.which("chromedriver"):
        return program.skip_part("there is no chromedriver")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        try:
            with browser.Browser(accept_insecure=True, doh=f"https://127.0.0.1:{over_https[1]}/dns-query") as window:
                window.open(f"http://here.tides.example:{pages.server_address[1]}/")
                text = window.run("return document.body.innerText")
        finally:
            pages.shutdown()
    if text.strip() != "the tide is in":
        raise Failure(f"chromium: {text}")
    print("chromium: a page of a name that it resolved over HTTPS", flush=True)


class Page(http.server.BaseHTTPRequestHandler):
    """One page."""

    def do_GET(self):
        body = b"<body>the tide is in</body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    zone_server = os.environ.get("TIDEGATE_ZONE") or program.build_example("zone")
    forwarder = os.environ.get("TIDEGATE_PROGRAM") or program.PROGRAM
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "tides.zone")
        # The page of the browser is on this machine.
        file.write_text(of_zone.ZONE + "here A 127.0.0.1\n")
        chain, key = certificate(directory)
        zone = dns.zone.from_text(of_zone.ZONE, origin="tides.example", relativize=True, check_origin=False)
        with servers.Server(shlex.join([zone_server, "127.0.0.1:0", str(file)])) as upstream:
            place = "{}:{}".format(*upstream.address)
            for backend in program.BACKENDS:
                words = [forwarder, "dns", "--listen", "127.0.0.1:0", "--upstream", place, "--backend", backend]
                words += ["--listen-tls", "127.0.0.1:0", "--listen-https", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key, "--http3"]
                with servers.Server(shlex.join(words)) as running:
                    compare_sets(running.address, zone)
                    ask_by("dig", running.address, [(["+tries=1", *words], wanted) for words, wanted in DIG])
                    ask_by("kdig", running.address, KDIG)
                    places = ask_securely(running, chain)
                    chain_of_forwarders(forwarder, places, chain, backend)
                    unbound_in_front(running.address, directory)
                    browse(places[1])
                    load(running.address, directory)
                unbound_behind(forwarder, upstream.address, (chain, key), directory, backend)


if __name__ == "__main__":
    servers.run(main)
