#!/usr/bin/env python3
"""DNS: `tidegate dns` by dnspython, dig, kdig, dnsperf and Unbound.

The forwarder asks `examples/zone`, whose zone file is that of `zone.py`. dnspython compares each set of records over UDP and TCP, the
second time from the cache. dig and kdig look at what people see, Unbound asks the forwarder as its upstream, and dnsperf must lose no query.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import zone as of_zone  # noqa: E402, which finds dnspython or skips
from zone import dns

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


def unbound(server, directory):
    """Unbound with the forwarder as its upstream."""
    if not shutil.which("unbound"):
        return program.skip_part("there is no unbound")
    [port] = program.free_ports(1)
    file = pathlib.Path(directory, "unbound.conf")
    file.write_text(f"""
server:
  interface: 127.0.0.1@{port}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{directory}"
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  do-not-query-localhost: no
  use-caps-for-id: yes
forward-zone:
  name: "."
  forward-addr: {server[0]}@{server[1]}
""")
    process = subprocess.Popen(["unbound", "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        query = dns.message.make_query("www.tides.example", "A")
        while True:
            try:
                answer = dns.query.udp(query, "127.0.0.1", port=port, timeout=1)
                break
            except (OSError, dns.exception.DNSException):
                if time.monotonic() > deadline:
                    raise Failure("unbound does not answer") from None
        if answer.rcode() != dns.rcode.NOERROR or len(answer.answer) != 2:
            raise Failure(f"by unbound: {answer}")
        many = dns.query.tcp(dns.message.make_query("big.tides.example", "TXT"), "127.0.0.1", port=port, timeout=SECONDS_MAX)
        if len(many.answer) != 1:
            raise Failure(f"by unbound: {many}")
    finally:
        servers.end(process)
    print("unbound: the forwarder is its upstream", flush=True)


def main():
    zone_server = os.environ.get("TIDEGATE_ZONE") or program.build_example("zone")
    forwarder = os.environ.get("TIDEGATE_PROGRAM") or program.PROGRAM
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "tides.zone")
        file.write_text(of_zone.ZONE)
        zone = dns.zone.from_text(of_zone.ZONE, origin="tides.example", relativize=True, check_origin=False)
        with servers.Server(shlex.join([zone_server, "127.0.0.1:0", str(file)])) as upstream:
            place = "{}:{}".format(*upstream.address)
            for backend in program.BACKENDS:
                words = [forwarder, "dns", "--listen", "127.0.0.1:0", "--upstream", place, "--backend", backend]
                with servers.Server(shlex.join(words)) as running:
                    compare_sets(running.address, zone)
                    ask_by("dig", running.address, [(["+tries=1", *words], wanted) for words, wanted in DIG])
                    ask_by("kdig", running.address, KDIG)
                    unbound(running.address, directory)
                    load(running.address, directory)


if __name__ == "__main__":
    servers.run(main)
