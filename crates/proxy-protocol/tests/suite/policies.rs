//! Whose headers count, in whatever pieces they arrive: as a filter and as a codec.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Lifecycle, Over, OverError, Step};
use tidegate_proxy_protocol::{
    Builder, Error, Exceeded, Limits, Networks, Policy, ProxyHeaderFilter, ReceivesHeader, SendsHeader, Violation,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{self, Contract};

use crate::support::{self, optional, required, tlv, v2, v4};

const TRUSTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const UNTRUSTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn proxied(policy: &Arc<Policy>, peer: IpAddr) -> impl Fn() -> ReceivesHeader<Lines> + use<> {
    let policy = policy.clone();
    move || ReceivesHeader::new(&policy, Some(peer), Lines::new())
}

fn stripped(policy: &Arc<Policy>, peer: IpAddr) -> impl Fn() -> Over<ProxyHeaderFilter, Lines> + use<> {
    let policy = policy.clone();
    move || Over::new(ProxyHeaderFilter::new(&policy, Some(peer)), Lines::new())
}

/// Both ways give the same, in whatever pieces; `None` if there is no error, and the number of lines.
fn outcome(policy: &Arc<Policy>, peer: IpAddr, wire: &[u8]) -> (String, bool) {
    let one = contract::check(proxied(policy, peer), wire);
    let other = contract::check(stripped(policy, peer), wire);
    assert_eq!(one.has_failed(), other.has_failed(), "{one}\n{other}");
    assert_eq!(one.to_string(), other.to_string());
    (one.to_string(), one.has_failed())
}

fn headers() -> Vec<Vec<u8>> {
    vec![
        b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        v4(&[]),
        v4(&[tlv(0x02, b"sea.example"), tlv(0x20, &[1, 0, 0, 0, 1, 0x21, 0, 1, b'T'])]),
        v2(0x20, 0, &[]),
        Builder::unix(b"/ebb", b"/flow").checksum().build_v2().unwrap(),
    ]
}

#[test]
fn a_header_of_a_trusted_peer_is_taken_off_at_every_split() {
    for policy in [required(), optional()] {
        for header in headers() {
            let (seen, failed) = outcome(&policy, TRUSTED, &[&header[..], b"ebb\nflow\n"].concat());
            assert!(!failed && seen.contains("ebb") && seen.contains("flow"), "{seen}");
        }
    }
}

#[test]
fn a_header_of_an_untrusted_peer_is_refused_at_every_split() {
    for policy in [required(), optional()] {
        for header in headers() {
            let (seen, failed) = outcome(&policy, UNTRUSTED, &[&header[..], b"ebb\n"].concat());
            assert!(failed && !seen.contains("ebb"), "{seen}");
        }
    }
}

#[test]
fn only_where_it_is_required_a_missing_header_is_refused() {
    for wire in [&b"ebb\n"[..], b"PRO\n", b"PROXIES\n", b"\r\n\r\nebb\n", b"PROXY\n"] {
        let (seen, failed) = outcome(&required(), TRUSTED, wire);
        assert!(failed && !seen.contains("ebb"), "{seen}");
        for peer in [TRUSTED, UNTRUSTED] {
            let (seen, failed) = outcome(&optional(), peer, wire);
            assert!(!failed, "{seen}");
        }
    }
    let (seen, failed) = outcome(&required(), UNTRUSTED, b"ebb\n");
    assert!(failed && !seen.contains("ebb"), "{seen}");
}

#[test]
fn without_a_policy_all_bytes_belong_to_the_codec() {
    let (seen, failed) = outcome(&Arc::default(), UNTRUSTED, b"PROXY TCP4 nonsense\nebb\n");
    assert!(!failed && seen.contains("PROXY TCP4 nonsense") && seen.contains("ebb"), "{seen}");
}

#[test]
fn malformed_headers_are_the_same_error_at_every_split() {
    let mut bad = vec![
        b"PROXY TCP4 192.0.2.1 198.51.100.1 50000\r\nebb\n".to_vec(),
        [&b"PROXY UNKNOWN "[..], &[b'x'; 92], b"\r\nebb\n"].concat(),
        b"PROXY UNKNOWN\nebb\n".to_vec(),
        v2(0x23, 0x11, &[0; 12]),
        v2(0x21, 0x51, &[0; 12]),
        v4(&[tlv(0x03, &[0; 4])]),
        v4(&[support::overlong(0x02, 9, b"sea")]),
        v2(0x21, 0x11, &[0; 5000]),
    ];
    bad.extend(headers().iter().map(|header| header[..header.len() - 1].to_vec()));
    for wire in bad {
        let (seen, failed) = outcome(&required(), TRUSTED, &wire);
        assert!(failed && !seen.contains("ebb"), "{seen}");
    }
}

#[test]
fn a_length_above_the_limit_is_refused_before_memory_is_used() {
    for wire in [v2(0x21, 0x11, &[0; 60_000])[..16].to_vec(), [&b"PROXY UNKNOWN "[..], &[b'x'; 94]].concat()] {
        let policy = required();
        Contract::new(proxied(&policy, TRUSTED)).stays_open().refuses_before_allocating(&wire);
        Contract::new(stripped(&policy, TRUSTED)).stays_open().refuses_before_allocating(&wire);
    }
}

#[test]
fn neither_random_nor_mutated_headers_panic() {
    for policy in [required(), optional()] {
        for header in headers() {
            let wire = [&header[..], b"ebb\nflow\n"].concat();
            contract::never_panics(proxied(&policy, TRUSTED), &wire, 300);
            contract::never_panics(stripped(&policy, TRUSTED), &wire, 100);
        }
    }
}

#[test]
fn a_header_is_reported_and_taken() {
    let mut codec = CodecHarness::new(proxied(&required(), TRUSTED)());
    let lines = codec.decode(b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\nebb\n").unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(codec.codec().header().and_then(|header| header.source()), Some(support::at("192.0.2.1:50000")));
    let (codec, _) = codec.parts();
    assert!(codec.take_header().is_some() && codec.header().is_none() && codec.take_header().is_none());
}

#[test]
fn a_header_is_late_after_its_timeout_and_the_time_begins_with_the_connection_only_if_it_is_required() {
    let late = |policy: &Arc<Policy>, bytes: &[u8], seconds| {
        let mut codec = CodecHarness::new(proxied(policy, TRUSTED)());
        codec.decode(bytes).unwrap();
        match codec.advance_time(Duration::from_secs(seconds)) {
            Ok(()) => false,
            Err(OverError::Filter(Error::Limit(Exceeded::Time))) => true,
            Err(error) => panic!("{error}"),
        }
    };
    for (bytes, required_is_late, optional_is_late) in [
        (&b""[..], true, false),
        (b"PROXY TCP4 ", true, true),
        (b"\r\n\r\n", true, true),
        (b"PROXY UNKNOWN\r\n", false, false),
    ] {
        assert_eq!(late(&required(), bytes, 5), required_is_late, "{}", bytes.escape_ascii());
        assert_eq!(late(&optional(), bytes, 5), optional_is_late, "{}", bytes.escape_ascii());
        assert!(!late(&required(), bytes, 4), "not yet");
    }
    let short = Limits { header_timeout: Duration::from_secs(1), ..Limits::default() };
    assert!(late(&Arc::new(Policy::required(Networks::local()).limits(short)), b"", 1));
}

#[test]
fn an_untrusted_peer_is_refused_as_soon_as_the_connection_opens() {
    let mut codec = CodecHarness::new(proxied(&required(), UNTRUSTED)());
    let refused = codec.notify(Lifecycle::Opened).expect_err("it is not trusted");
    assert!(matches!(refused, OverError::Filter(Error::Peer(Violation::Untrusted))), "{refused}");
}

#[test]
fn a_connection_that_ends_without_a_byte_is_no_error() {
    for policy in [required(), optional()] {
        let (seen, failed) = outcome(&policy, TRUSTED, b"");
        assert!(!failed, "{seen}");
    }
}

/// A codec whose server speaks first.
struct Greets;

impl tidegate_codec::Codec for Greets {
    type In = ();
    type Out = ();
    type Error = std::convert::Infallible;

    fn decode(
        &mut self,
        input: &mut tidegate_codec::Input,
        _: &mut tidegate_codec::Output<'_>,
    ) -> Result<Step<()>, Self::Error> {
        input.consume(input.len());
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, (): (), out: &mut tidegate_codec::Output<'_>) -> Result<(), Self::Error> {
        out.write(b"more\n");
        Ok(())
    }

    fn on(&mut self, event: Lifecycle, out: &mut tidegate_codec::Output<'_>) -> Result<(), Self::Error> {
        match event {
            Lifecycle::Opened => out.write(b"hello\n"),
            Lifecycle::Drain => out.write(b"soon\n"),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn nothing_is_sent_before_a_header_that_is_required() {
    let mut codec = CodecHarness::new(ReceivesHeader::new(&required(), Some(TRUSTED), Greets));
    codec.notify(Lifecycle::Drain).unwrap();
    codec.flush().unwrap();
    assert_eq!(codec.take_sent(), b"");
    codec.decode(b"PROXY UNKNOWN\r\n").unwrap();
    codec.flush().unwrap();
    assert_eq!(codec.take_sent(), b"hello\nsoon\n", "the codec opens, and is notified of the drain");

    let mut codec = CodecHarness::new(Over::new(ProxyHeaderFilter::new(&required(), Some(TRUSTED)), Greets));
    codec.encode(()).unwrap();
    codec.flush().unwrap();
    assert_eq!(codec.take_sent(), b"");
    codec.decode(b"PROXY UNKNOWN\r\n").unwrap();
    codec.flush().unwrap();
    assert_eq!(codec.take_sent(), b"hello\nmore\n");

    let mut codec = CodecHarness::new(ReceivesHeader::new(&optional(), Some(TRUSTED), Greets));
    codec.flush().unwrap();
    assert_eq!(codec.take_sent(), b"hello\n", "an optional header is not waited for");
}

#[test]
fn a_server_reads_the_header_that_a_client_announces() {
    let (source, destination) = (support::at("[2001:db8::1]:5"), support::at("[2001:db8::2]:6"));
    let header = Builder::new(source, destination).authority("sea.example").checksum().build_v2().unwrap();
    let mut client = CodecHarness::new(SendsHeader::new(header, Lines::new()));
    client.encode("ebb".into()).unwrap();
    client.flush().unwrap();
    let sent = client.take_sent();
    let mut server = CodecHarness::new(proxied(&required(), TRUSTED)());
    assert_eq!(server.decode(&sent).unwrap().len(), 1);
    let header = server.codec().header().unwrap();
    assert_eq!((header.source(), header.authority()), (Some(source), Some("sea.example")));
}
