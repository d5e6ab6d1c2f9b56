//! How often bytes are copied, and which records they are sent in.

use rustls::crypto::{aws_lc_rs, ring};
use tidegate::framing::Raw;
use tidegate::{Channel, Over, task};
use tidegate_testkit::Embedded;
use tidegate_tls::{Provider, Tls};

use crate::support::{Pair, configurations, providers, usual};

#[test]
fn a_bulk_download_copies_no_byte() {
    let mut pair = Pair::new(&usual(), &[100_000, BULK_BYTES, BULK_BYTES]);
    let idle = pair.used();
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 1);
    // By now the client knows the length of a record.
    for round in 2..=3 {
        let before = pair.copied();
        pair.advance();
        pair.exchange(usize::MAX);
        assert_eq!(pair.done.get(), round, "{:?}", pair.failure);
        let copied = [0, 1].map(|side| pair.copied()[side] - before[side]);
        // The request: a record of 31 bytes.
        assert!(copied.iter().all(|bytes| *bytes <= 31), "{copied:?} bytes copied by the server and by the client");
    }
    pair.client.pool().trim();
    assert!(pair.used().iter().zip(idle).all(|(now, idle)| *now <= idle + SCRATCH_BYTES), "{:?}", pair.used());
}

#[test]
fn every_suite_decrypts_in_place() {
    // The certificate has an elliptic key; the suites for RSA keys use the same ciphers.
    let all = [aws_lc_rs::ALL_CIPHER_SUITES, ring::ALL_CIPHER_SUITES];
    for (provider, suites) in providers().into_iter().zip(all) {
        for suite in suites.iter().filter(|suite| !format!("{suite:?}").contains("_RSA_")) {
            let provider = provider.clone().with_cipher_suites(&[suite.suite()]);
            let versions = [suite.version()];
            let both =
                configurations(&provider, |server| server.versions(&versions), |client| client.versions(&versions));
            let mut pair = Pair::new(&both, &[100_000, 1 << 20]);
            pair.exchange(usize::MAX);
            let before = pair.copied();
            pair.advance();
            pair.exchange(usize::MAX);
            assert_eq!(pair.done.get(), 2, "{suite:?}: {:?}", pair.failure);
            let copied = pair.copied()[1] - before[1];
            assert!(copied < 100, "{suite:?}: {copied} bytes copied");
        }
    }
}

#[test]
fn a_provider_of_the_callers_is_served_with_a_copy() {
    let own = || Provider::custom(ring::default_provider().into());
    let mut pair = Pair::new(&configurations(&own(), |server| server, |client| client), &[1, 300_000]);
    pair.exchange(usize::MAX);
    let before = pair.copied();
    pair.advance();
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 2, "{:?}", pair.failure);
    assert!(pair.copied()[1] - before[1] >= 300_000);
}

/// The lengths of the records that a server sends after each request, for the bytes of `reply`.
fn records(reply: impl Fn(&mut Channel<Over<Tls, Raw>>) + 'static) -> Vec<usize> {
    let (server, client) = usual();
    let mut pair = Pair::new(&(server.clone(), client.clone()), &[]);
    pair.server = Embedded::serving(Over::new(server.accept(), Raw), async move |mut channel: Channel<_>| {
        while channel.recv().await?.is_some() {
            reply(&mut channel);
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    let tls = client.connect(crate::support::NAME).unwrap();
    pair.client = Embedded::serving(Over::new(tls, Raw), async |mut channel: Channel<Over<Tls, Raw>>| {
        task::sleep(std::time::Duration::from_secs(1)).await;
        channel.send("go\n".into())?;
        while channel.recv().await?.is_some() {}
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    pair.exchange(usize::MAX);
    pair.advance();
    let request = pair.client.take_written();
    pair.server.receive(&request);
    let answer = pair.server.take_written();
    let (mut lengths, mut rest) = (Vec::new(), &answer[..]);
    while let [_, _, _, high, low, ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        lengths.push(length - CIPHER_BYTES);
        rest = &rest[5 + length..];
    }
    lengths
}

#[test]
fn small_writes_share_a_record() {
    let lengths = records(|channel| {
        for _ in 0..100 {
            channel.send("ebb\n".into()).unwrap();
        }
    });
    assert_eq!(lengths, [400]);
}

#[test]
fn short_pieces_share_a_record_and_a_long_one_has_its_own() {
    static PIECE: [u8; 3_000] = [7; 3_000];
    static LONG: [u8; 5_000] = [8; 5_000];
    let lengths = records(|channel| {
        channel.send("head".into()).unwrap();
        channel.send((&PIECE[..]).into()).unwrap();
        channel.send((&PIECE[..]).into()).unwrap();
    });
    assert_eq!(lengths, [6_004]);
    let lengths = records(|channel| {
        channel.send("head".into()).unwrap();
        channel.send((&LONG[..]).into()).unwrap();
        channel.send("tail".into()).unwrap();
    });
    assert_eq!(lengths, [4, 5_000, 4]);
}

/// As the server's queue is not limited here, all of it waits on the wire at a time.
const BULK_BYTES: usize = 16 << 20;

/// The memory that a loop receives into.
const SCRATCH_BYTES: usize = 96 * 1024;

/// The bytes that a TLS 1.3 record adds behind its plain bytes: their type and the tag.
const CIPHER_BYTES: usize = 17;
