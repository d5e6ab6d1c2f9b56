#!/usr/bin/env python3
"""DNS: `examples/zone` by dnspython and dig.

dnspython reads the same zone file, and each of its sets of records is compared with the server's answers over UDP and TCP. dig
looks at what people see. The README beside this file describes how to repeat it.
"""

import os
import pathlib
import shlex
import shutil
import sys
import tempfile

VENV = pathlib.Path(__file__).resolve().parent.parent / "target/tools/dnspython/bin/python3"
try:
    import dns.flags
    import dns.message
    import dns.query
    import dns.rcode
    import dns.zone
except ImportError:
    if VENV.exists() and os.environ.get("TIDEGATE_DNS_VENV") != "1":
        os.environ["TIDEGATE_DNS_VENV"] = "1"
        os.execv(VENV, [str(VENV), *sys.argv])
    if os.environ.get("TIDEGATE_TOOLS_REQUIRED") == "1":
        sys.exit("not there: dnspython")
    print("skipped: there is no dnspython")
    sys.exit(0)

import program  # noqa: E402
import servers  # noqa: E402
from program import Failure  # noqa: E402

SECONDS_MAX = 30
ZONE = r"""
$ORIGIN tides.example.
$TTL 1h
@        IN SOA   ns root ( 2026112701 2h 1h 2w
                            300 ) ; a comment
         NS       ns
         MX       10 mail
         TXT      "v=spf1 -all" "semi;colon \"quoted\" \\ \000\255"
         CAA      0 issue "ca.example; policy=ev"
         HTTPS    1 . alpn="h2,h3" port=8443 ipv4hint=192.0.2.1,192.0.2.2 ipv6hint=2001:db8::1
         DNSKEY   257 3 13 dGlkZWdhdGV0aWRlZ2F0ZXRpZGVnYXRldGlkZWdhdGV0aWRlZ2F0ZXRpZGVnYXRldGlkZWdhdGV0aWRlZ2E=
ns    60 IN A     192.0.2.53
         AAAA     2001:db8::53
mail     A        192.0.2.25
www      CNAME    mail
_sip._tcp SRV     10 20 5060 mail
_443._tcp.www2 TLSA 3 1 1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
naptr    NAPTR    100 10 "u" "E2U+sip" "!^.*$!sip:a@b!" .
ptr      PTR      mail
hinfo    HINFO    "cpu" "os"
sshfp    SSHFP    4 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
svcb     SVCB     16 foo.example.org. mandatory=alpn,ipv4hint alpn="h2,h3-19" ipv4hint=192.0.2.1 key667="x\210y"
nsec     NSEC     www A MX RRSIG NSEC TYPE1234
rrsig    RRSIG    A 5 3 86400 20300322173103 20260220173103 2642 tides.example. dGlkZQ==
unknown  TYPE4711 \# 3 00ff10
big      TXT      """ + " ".join(f'"{index:0>200}"' for index in range(10)) + r"""
od\.d\032x A      192.0.2.7
*.wild   A        192.0.2.99
a.b.wild A        192.0.2.98
child    NS       ns.child
         DS       1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
ns.child A        192.0.2.77
old      DNAME    new
x.new    A        192.0.2.88
"""


def ask(server, name, rdtype, over, **options):
    query = dns.message.make_query(name, rdtype, **options)
    return over(query, server[0], port=server[1], timeout=SECONDS_MAX)


def compare_zone(server, zone):
    """Each set of the zone, but those below the delegation, over UDP (with EDNS) and over TCP."""
    count = 0
    for name, rdataset in zone.iterate_rdatasets():
        full = name.derelativize(zone.origin)
        if "child" in full.to_text() and rdataset.rdtype != dns.rdatatype.DS:
            continue
        wanted = {rdata.to_digestable(zone.origin) for rdata in rdataset}
        for over in [dns.query.udp, dns.query.tcp]:
            answer = ask(server, full, rdataset.rdtype, over, use_edns=0, payload=1232)
            if answer.flags & dns.flags.TC and over is dns.query.udp:
                continue
            found = answer.get_rrset(answer.answer, full, dns.rdataclass.IN, rdataset.rdtype, rdataset.covers)
            if found is None or {rdata.to_digestable() for rdata in found} != wanted or found.ttl != rdataset.ttl:
                raise Failure(f"{full} {rdataset}: {answer}")
            if not answer.flags & dns.flags.AA or answer.rcode() != dns.rcode.NOERROR:
                raise Failure(f"{full}: {answer}")
            count += 1
    print(f"dnspython: {count} sets over UDP and TCP are right", flush=True)


def codes(server):
    """Response codes, and what a server must not do."""
    cases = [
        ("none.tides.example", "A", dns.rcode.NXDOMAIN, 0, 1),
        ("mail.tides.example", "AAAA", dns.rcode.NOERROR, 0, 1),
        ("q.wild.tides.example", "A", dns.rcode.NOERROR, 1, 0),
        ("b.wild.tides.example", "A", dns.rcode.NOERROR, 0, 1),
        ("www.tides.example", "A", dns.rcode.NOERROR, 2, 0),
        ("x.old.tides.example", "A", dns.rcode.NOERROR, 3, 0),
        ("deep.child.tides.example", "A", dns.rcode.NOERROR, 0, 1),
        ("example.org", "A", dns.rcode.REFUSED, 0, 0),
        ("tides.example", "ANY", dns.rcode.NOERROR, 1, 0),
        ("tides.example", "AXFR", dns.rcode.REFUSED, 0, 0),
    ]
    for name, rdtype, rcode, answers, authorities in cases:
        query = dns.message.make_query(name, rdtype)
        answer = dns.query.tcp(query, server[0], port=server[1], timeout=SECONDS_MAX)
        if (answer.rcode(), len(answer.answer), len(answer.authority)) != (rcode, answers, authorities):
            raise Failure(f"{name} {rdtype}: {answer}")
    big = ask(server, "big.tides.example", "TXT", dns.query.udp)
    if not big.flags & dns.flags.TC or len(ask(server, "big.tides.example", "TXT", dns.query.tcp).answer) != 1:
        raise Failure(f"a truncated answer: {big}")
    case = ask(server, "wWw.TiDeS.example", "A", dns.query.udp)
    if case.question[0].name.to_text() != "wWw.TiDeS.example.":
        raise Failure(f"the case of a question: {case}")
    print("dnspython: response codes, truncation and cases are right", flush=True)


def dig(server):
    if not shutil.which("dig"):
        return program.skip_part("there is no dig")
    common = ["dig", f"@{server[0]}", "-p", str(server[1]), "+tries=1", f"+time={SECONDS_MAX}"]
    cases = [
        (["www.tides.example"], ["status: NOERROR", "CNAME\tmail.tides.example.", "A\t192.0.2.25", "flags: qr aa rd"]),
        (["+tcp", "tides.example", "HTTPS"], ['alpn="h2,h3" port=8443']),
        (["big.tides.example", "TXT"], ["Truncated, retrying in TCP mode", "ANSWER: 1"]),
        (["+ignore", "+noedns", "big.tides.example", "TXT"], ["flags: qr aa tc rd"]),
        (["none.tides.example"], ["status: NXDOMAIN", "AUTHORITY: 1"]),
        (["+edns=1", "+noednsnegotiation", "www.tides.example"], ["status: BADVERS"]),
        (["+header-only"], ["status: FORMERR"]),
        (["+opcode=NOTIFY", "tides.example", "SOA"], ["status: NOTIMP"]),
        (["CH", "TXT", "version.bind"], ["status: REFUSED"]),
        (["+tcp", "+keepopen", "mail.tides.example", "ns.tides.example"], ["192.0.2.25", "192.0.2.53"]),
    ]
    for words, wanted in cases:
        _, output, errors = program.run([*common, *words], SECONDS_MAX * 2)
        text = output.decode(errors="replace")
        missing = [part for part in wanted if part not in text]
        if missing:
            raise Failure(f"dig {shlex.join(words)}: no {missing}\n{text}{errors}")
    print(f"dig: {len(cases)} questions are right", flush=True)


def main():
    example = os.environ.get("TIDEGATE_ZONE") or program.build_example("zone")
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "tides.zone")
        file.write_text(ZONE)
        zone = dns.zone.from_text(ZONE, origin="tides.example", relativize=True, check_origin=False)
        with servers.Server(shlex.join([example, "127.0.0.1:0", str(file)])) as running:
            server = running.address
            compare_zone(server, zone)
            codes(server)
            dig(server)


if __name__ == "__main__":
    servers.run(main)
