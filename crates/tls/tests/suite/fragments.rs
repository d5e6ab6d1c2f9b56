//! Records and messages of the handshake in pieces.

use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Channel, Over};
use tidegate_testkit::Embedded;
use tidegate_tls::{ClientConfig, Provider, ServerConfig, Tls};

use crate::support::{NAME, Pair, VERSIONS, configurations, providers};

fn fragmented(
    provider: &Provider,
    version: &'static rustls::SupportedProtocolVersion,
    record: Option<usize>,
) -> (ServerConfig, ClientConfig) {
    let bytes_max = record.unwrap_or(RECORD_BYTES_MAX);
    configurations(
        provider,
        |server| server.versions(&[version]).record_bytes_max(bytes_max),
        |client| client.versions(&[version]).record_bytes_max(bytes_max),
    )
}

#[test]
fn records_and_handshakes_survive_every_fragmentation() {
    for provider in providers() {
        for version in VERSIONS {
            for (record, piece) in [(None, 1), (None, 1_000), (Some(64), 1), (Some(64), 7), (Some(64), usize::MAX)] {
                let mut pair = Pair::new(&fragmented(&provider, version, record), &[1, 17_000]);
                pair.exchange(piece);
                pair.advance();
                pair.exchange(piece);
                assert_eq!(pair.done.get(), 2, "{version:?}, {record:?}, {piece}: {:?}", pair.failure);
                pair.advance();
                pair.exchange(piece);
                assert!(pair.client.is_write_closed() && pair.client.counts().connections == 1);
            }
        }
    }
}

/// Carries bytes until none are left; those from `split` on, counted on both sides, arrive in a piece of their own.
fn exchange_split(pair: &mut Pair, split: usize) -> usize {
    let mut carried = 0;
    loop {
        let (to_client, to_server) = (pair.server.take_written(), pair.client.take_written());
        if to_client.is_empty() && to_server.is_empty() {
            return carried;
        }
        for (to, bytes) in [(&mut pair.client, to_client), (&mut pair.server, to_server)] {
            let at = split.saturating_sub(carried).min(bytes.len());
            carried += bytes.len();
            to.receive(&bytes[..at]);
            to.receive(&bytes[at..]);
        }
    }
}

#[test]
fn a_handshake_survives_every_split() {
    for version in VERSIONS {
        // Small records split the messages as well. Their handshakes take longer, so every fifth place is enough.
        for (record, step) in [(None, 1), (Some(100), 5)] {
            let (server, _) = fragmented(&Provider::ring(), version, record);
            let (mut split, mut carried) = (0, 1);
            while split < carried {
                // A client with sessions to resume would have shorter handshakes.
                let client = ClientConfig::dangerous_builder_without_verification(&Provider::ring());
                let client = client.versions(&[version]).record_bytes_max(record.unwrap_or(RECORD_BYTES_MAX));
                let mut pair = Pair::new(&(server.clone(), client.build().unwrap()), &[1]);
                carried = exchange_split(&mut pair, split);
                assert_eq!(pair.done.get(), 1, "{version:?}, {record:?}, split at {split}: {:?}", pair.failure);
                split += step;
            }
            assert!(split > 600, "{split} bytes are too few for a handshake");
        }
    }
}

/// A client that has received its handshake and half a session ticket behind it. It sends a request after a second.
fn client_with_half_a_ticket() -> (Pair, Vec<u8>) {
    let (server, client) = fragmented(&Provider::ring(), VERSIONS[1], Some(64));
    let mut pair = Pair::new(&(server, client.clone()), &[]);
    let codec = Over::new(client.connect(NAME).unwrap(), Raw);
    pair.client = Embedded::serving(codec, async |mut channel: Channel<Over<Tls, Raw>>| {
        channel.send("1\n".into())?;
        // It receives meanwhile.
        let _ = channel.recv().within(Duration::from_secs(1)).await;
        channel.send("1\n".into())?;
        while channel.recv().await?.is_some() {}
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    let hello = pair.client.take_written();
    pair.server.receive(&hello);
    let flight = pair.server.take_written();
    pair.client.receive(&flight);
    let finished = pair.client.take_written();
    pair.server.receive(&finished);
    // The tickets, each in several records, and one byte.
    let tickets = pair.server.take_written();
    pair.client.receive(&tickets[..100]);
    (pair, tickets[100..].to_vec())
}

#[test]
fn a_write_waits_while_half_a_message_of_the_handshake_has_arrived() {
    let (mut pair, rest) = client_with_half_a_ticket();
    pair.advance();
    assert_eq!(pair.client.take_written(), b"", "rustls needs the bytes of the other half first");
    pair.client.receive(&rest);
    let request = pair.client.take_written();
    pair.server.receive(&request);
    assert!(!request.is_empty() && !pair.server.take_written().is_empty());
}

#[test]
fn the_other_half_has_the_time_of_a_handshake() {
    let (mut pair, _) = client_with_half_a_ticket();
    pair.client.advance(Duration::from_millis(9_900));
    assert!(!pair.client.is_closed() && !pair.client.is_write_closed());
    pair.client.advance(Duration::from_millis(200));
    assert!(pair.client.is_write_closed());
}

/// The largest record that TLS allows.
const RECORD_BYTES_MAX: usize = 16_389;
