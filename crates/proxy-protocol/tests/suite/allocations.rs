//! The memory of an idle connection, counted by the allocator.
//!
//! The allocator counts for each thread, so other threads of the test do not count.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tidegate_codec::framing::Lines;
use tidegate_codec::{Codec, Input, Lifecycle, Outbound, Output, Pool, Time};
use tidegate_proxy_protocol::{Networks, Policy, ReceivesHeader};
use tidegate_testkit::allocations::Region;

#[test]
fn an_idle_connection_keeps_eight_bytes_and_its_header_until_that_is_taken() {
    assert_eq!(size_of::<ReceivesHeader<tidegate::http1::Server>>(), size_of::<tidegate::http1::Server>() + 8);
    assert_eq!(kept_bytes(Policy::off(), b"", false), 0);
    assert_eq!(kept_bytes(Policy::optional(Networks::local()), b"ebb\n", false), 0);
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\n";
    assert_eq!(kept_bytes(Policy::required(Networks::local()), line, true), 0);
    let kept = kept_bytes(Policy::required(Networks::local()), line, false);
    println!("{kept} bytes for a header that is kept");
    assert!(kept <= 72, "{kept} bytes");
}

/// The memory that a connection keeps besides its struct, after its first bytes: the average of many, since the test
/// runner's own thread may allocate meanwhile.
fn kept_bytes(policy: Policy, bytes: &[u8], takes_header: bool) -> usize {
    let policy = Arc::new(policy);
    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let (mut input, mut queue) = (Input::new(), Outbound::new(&pool));
    let mut codecs = Vec::with_capacity(CONNECTIONS);
    let region = Region::new();
    for _ in 0..CONNECTIONS {
        let mut out = Output::new(&mut queue, &pool, &time);
        input.append(pool.copy(bytes), &pool);
        let mut codec = ReceivesHeader::new(&policy, Some(Ipv4Addr::LOCALHOST.into()), Lines::new());
        codec.on(Lifecycle::Opened, &mut out).unwrap();
        drop(codec.decode(&mut input, &mut out).unwrap());
        assert!(input.is_empty());
        assert_eq!(codec.header().is_some(), bytes.starts_with(b"PROXY "));
        if takes_header {
            codec.take_header();
        }
        codecs.push(codec);
    }
    let change = region.change();
    let kept = change.bytes_allocated.cast_signed() - change.bytes_deallocated.cast_signed();
    assert_eq!(codecs.len(), CONNECTIONS);
    usize::try_from(kept.max(0)).unwrap() / CONNECTIONS
}

const CONNECTIONS: usize = 10_000;
