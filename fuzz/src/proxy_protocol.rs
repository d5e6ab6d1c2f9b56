//! PROXY headers: any split of any bytes gives the same lines and errors, as a filter and as a codec, and a header that
//! is valid is built again from the parsed one.
//!
//! The first byte is the seed of the split, the second one chooses the policy, the peer and the limits; the rest is the
//! wire.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Lifecycle, Over};
use tidegate_proxy_protocol::{Builder, Header, Limits, Networks, Policy, ProxyHeaderFilter, ReceivesHeader};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Transcript};

use crate::choices::Choices;

/// A header, and lines behind it.
pub fn proxy_protocol(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, options) = (choices.byte(), choices.byte());
    let wire = choices.take(WIRE_BYTES_MAX);
    let policy = match options & 3 {
        0 | 1 => Policy::required(Networks::local()),
        2 => Policy::optional(Networks::local()),
        _ => Policy::off(),
    };
    let tight = Limits { header_bytes_max: 60, tlvs_max: 3, ..Limits::default() };
    let policy = Arc::new(if options & TIGHT == 0 { policy } else { policy.limits(tight) });
    let peer: IpAddr = if options & UNTRUSTED == 0 { [127, 0, 0, 1].into() } else { [192, 0, 2, 1].into() };
    let proxied = check(|| ReceivesHeader::new(&policy, Some(peer), Lines::new()), options, seed, wire);
    let stripped = check(|| Over::new(ProxyHeaderFilter::new(&policy, Some(peer)), Lines::new()), options, seed, wire);
    // At the end of a stream the filter has no way to pass on bytes that might have become a header.
    let is_beginning = b"PROXY ".starts_with(wire) || b"\r\n\r\n\0\r\nQUIT\n".starts_with(wire);
    assert!(is_beginning || proxied.to_string() == stripped.to_string(), "{proxied}\n{stripped}");
    lives(ReceivesHeader::new(&policy, Some(peer), Lines::new()), usize::from(seed), wire);
    for end in 0..=wire.len() {
        if let Ok(header) = Header::parse(&wire[..end]) {
            builds_again(&header);
        }
    }
}

/// The events of a connection around a header that comes in two pieces, and the deadline in the end.
fn lives(proxied: ReceivesHeader<Lines>, split: usize, wire: &[u8]) {
    let mut harness = CodecHarness::new(proxied);
    let (first, rest) = wire.split_at(split.min(wire.len()));
    let mut is_open = harness.notify(Lifecycle::Opened).is_ok();
    for (piece, event) in [(first, Lifecycle::Drain), (rest, Lifecycle::Resumed)] {
        if !is_open {
            return;
        }
        harness.receive(piece);
        is_open = harness.step().is_ok() && harness.notify(event).is_ok();
    }
    let had_header = harness.codec().header().is_some();
    assert_eq!(harness.parts().0.take_header().is_some(), had_header, "a header is there once");
    assert!(harness.codec().header().is_none(), "a header is there once");
    let is_in_time = !is_open || harness.advance_time(DEADLINE_HALF).is_ok();
    assert!(is_in_time, "the deadline came too early");
    let _ = harness.advance_time(DEADLINE_HALF + DEADLINE_HALF);
}

fn check<C>(make: impl Fn() -> C, options: u8, seed: u8, wire: &[u8]) -> Transcript
where
    C: tidegate_codec::Pipeline<In: std::fmt::Debug>,
{
    let contract = Contract::new(make).seed(seed.into());
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    contract.check_once(wire)
}

fn builds_again(header: &Header) {
    let _ = (header.alpn(), header.authority(), header.unique_id());
    if let Some(ssl) = header.ssl() {
        let flags = [ssl.is_tls(), ssl.has_certificate(), ssl.had_certificate_in_session(), ssl.is_verified()];
        assert!(flags[3] == (ssl.verify_result() == 0) || !flags[3], "it is verified by its result");
        let texts = [ssl.version(), ssl.common_name(), ssl.cipher(), ssl.signature_algorithm(), ssl.key_algorithm()];
        assert!(texts.iter().flatten().count() <= ssl.tlvs().count(), "each text is a TLV");
    }
    let builder = match (header.source(), header.destination(), header.unix()) {
        (Some(source), Some(destination), None) => Builder::new(source, destination),
        (None, None, Some(unix)) => Builder::unix(&unix.source, &unix.destination),
        (None, None, None) => {
            assert_eq!(header.tlvs().count(), 0, "nothing follows no addresses");
            return;
        }
        other => panic!("{other:?}"),
    };
    let built = Header::parse(&builder.checksum().build_v2().expect("it was received")).expect("it was built");
    let addresses = |header: &Header| (header.source(), header.destination(), header.unix().cloned());
    assert_eq!(addresses(&built), addresses(header));
}

const TIGHT: u8 = 4;
const UNTRUSTED: u8 = 8;
const STAYS_OPEN: u8 = 16;

/// Unix addresses and a few TLVs fit.
const WIRE_BYTES_MAX: usize = 320;

/// Less than the time that a header has by default.
const DEADLINE_HALF: Duration = Duration::from_secs(3);
