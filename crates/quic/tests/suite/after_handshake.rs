//! Frames that no honest peer sends, after the handshake. Each limit has a twin that stays below it.

use std::time::Duration;

use tidegate::codec::{ReadEnd, SessionEvent, StreamEndpoint as _, StreamNumber};
use tidegate::quic::TransportLimits;
use tidegate_testkit::allocations::Region;

use crate::protected_packets::varint;
use crate::raw_client::RawClient;

fn connect() -> RawClient {
    RawClient::connect(TransportLimits::default())
}

/// A STREAM frame with a length (RFC 9000 §19.8).
fn stream(id: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&[0x0e][..], &varint(id), &varint(offset), &varint(bytes.len() as u64), bytes].concat()
}

/// The transport error for frames in a packet of their own.
fn error_of(frames: &[u8]) -> Option<u64> {
    let mut client = connect();
    client.send(frames);
    client.closed
}

/// The stream of the client's that the server has seen first.
fn opened(client: &RawClient) -> StreamNumber {
    let opened = client.events.iter().find_map(|event| match event {
        SessionEvent::Opened { stream, .. } => Some(*stream),
        _ => None,
    });
    opened.expect("a stream")
}

const FLOW_CONTROL_ERROR: u64 = 3;
const STREAM_LIMIT_ERROR: u64 = 4;
const STREAM_STATE_ERROR: u64 = 5;
const FINAL_SIZE_ERROR: u64 = 6;
const FRAME_ENCODING_ERROR: u64 = 7;
const CONNECTION_ID_LIMIT_ERROR: u64 = 9;
const PROTOCOL_VIOLATION: u64 = 10;

#[test]
fn an_honest_client_is_served() {
    let mut client = connect();
    client.send(&stream(0, 0, b"ebb"));
    let number = opened(&client);
    let mut space = [0; 16];
    assert_eq!(client.endpoint.read(number, &mut space), (3, ReadEnd::Blocked));
    assert_eq!((&space[..3], client.closed), (&b"ebb"[..], None));
}

#[test]
fn frames_that_a_server_must_not_get_end_the_connection() {
    for (name, frames, code) in [
        ("HANDSHAKE_DONE", vec![0x1e], PROTOCOL_VIOLATION),
        ("NEW_TOKEN", vec![7, 1, 1], PROTOCOL_VIOLATION),
        ("an unknown type", vec![0x21], FRAME_ENCODING_ERROR),
        ("a truncated type", vec![0, 0, 0, 0x80], FRAME_ENCODING_ERROR),
        ("a truncated frame", vec![0x0e, 0, 0, 9, 1], FRAME_ENCODING_ERROR),
        ("DATAGRAM, which was not permitted", vec![0x31, 0], PROTOCOL_VIOLATION),
        (
            "an acknowledgement of what was not sent",
            [&[2][..], &varint(1 << 20), &[0, 0, 0]].concat(),
            PROTOCOL_VIOLATION,
        ),
        ("an acknowledgement below zero", vec![2, 0, 0, 0, 5], FRAME_ENCODING_ERROR),
        ("an id that was not given is retired", vec![0x19, 60], PROTOCOL_VIOLATION),
        ("more than the window of a stream", stream(0, 256 * 1024, b"x"), FLOW_CONTROL_ERROR),
        ("a stream that was not permitted", stream(4 * 16, 0, b"x"), STREAM_LIMIT_ERROR),
        ("bytes on a stream of this side", stream(3, 0, b"x"), STREAM_STATE_ERROR),
        ("MAX_STREAM_DATA of a stream that the peer alone sends on", vec![0x11, 2, 9], STREAM_STATE_ERROR),
        ("streams beyond the numbers", [&[0x12][..], &varint((1 << 60) + 1)].concat(), FRAME_ENCODING_ERROR),
    ] {
        assert_eq!(error_of(&frames), Some(code), "{name}");
    }
    for (name, frames) in [
        ("the last byte of the window", stream(0, 256 * 1024 - 1, b"x")),
        ("the last stream", stream(4 * 15, 0, b"x")),
        ("PING and PADDING", vec![1, 0, 0, 1]),
        ("MAX_STREAMS", [&[0x12][..], &varint(1 << 60)].concat()),
    ] {
        assert_eq!(error_of(&frames), None, "{name}");
    }
}

#[test]
fn another_final_size_ends_the_connection() {
    for (size, code) in [(2, Some(FINAL_SIZE_ERROR)), (4, Some(FINAL_SIZE_ERROR)), (3, None)] {
        let mut client = connect();
        // STREAM with FIN, then RESET_STREAM.
        client.send(&[0x0f, 0, 0, 3, 1, 2, 3]);
        client.send(&[4, 0, 0, size]);
        assert_eq!(client.closed, code, "{size}");
    }
}

#[test]
fn gaps_in_a_stream_have_bounded_memory() {
    const WINDOW: u32 = 1024 * 1024;
    let limits = TransportLimits { stream_window: WINDOW, receive_window: WINDOW, ..TransportLimits::default() };
    let region = Region::new();
    let mut client = RawClient::connect(limits);
    // Each second byte of the window of the largest window, 150 in a packet.
    let (mut sent, mut peak) = (0, 0);
    while client.closed.is_none() && sent < u64::from(WINDOW) / 2 - 150 {
        let frames: Vec<u8> = (sent..sent + 150).flat_map(|gap| stream(0, 2 * gap + 1, b"x")).collect();
        client.send(&frames);
        sent += 150;
        peak = peak.max(region.change().bytes_in_use());
    }
    println!("{sent} gaps: {peak} bytes, closed with {:?}", client.closed);
    assert!(peak < 1024 * 1024, "{peak} bytes for {sent} gaps");
    // As many gaps as reordering makes, which are filled.
    let mut client = connect();
    for odd in [1, 0] {
        for packet in 0..3 {
            client.send(&(0..150).flat_map(|at| stream(0, 2 * (packet * 150 + at) + odd, b"x")).collect::<Vec<u8>>());
        }
    }
    let mut space = [0; 2_000];
    assert_eq!(client.endpoint.read(opened(&client), &mut space), (900, ReadEnd::Blocked));
    assert_eq!(client.closed, None);
}

#[test]
fn small_frames_in_order_pass_a_slow_reader() {
    // `cargo xtask long` sends 1 GiB.
    let bytes = std::env::var("TIDEGATE_STREAM_BYTES");
    let bytes = bytes.map_or(16 * 1024 * 1024, |bytes| bytes.parse().expect("a number of bytes"));
    let mut client = connect();
    let (mut offset, mut read) = (0, 0);
    let mut space = vec![0; 16 * 1024];
    let region = Region::new();
    let mut peak = 0;
    while read < bytes {
        // The reader takes a quarter of the window when it is used up.
        while offset < bytes && offset + 32 * 30 <= read + 256 * 1024 {
            let frames: Vec<u8> = (0..30).flat_map(|frame| stream(0, offset + 32 * frame, &[7; 32])).collect();
            client.send(&frames);
            offset += 32 * 30;
        }
        peak = peak.max(region.change().bytes_in_use());
        assert_eq!(client.closed, None, "at {offset}");
        let (number, before) = (opened(&client), read);
        for _ in 0..4 {
            let (count, _) = client.endpoint.read(number, &mut space);
            assert!(space[..count].iter().all(|byte| *byte == 7));
            read += count as u64;
        }
        assert!(read > before, "nothing came at {offset}");
        client.pass(Duration::from_millis(1));
        client.acknowledge();
        client.events.retain(|event| matches!(event, SessionEvent::Opened { .. }));
        client.received.clear();
    }
    println!("{peak} bytes for a window of 256 KiB");
    assert!(peak < 4 * 1024 * 1024, "{peak} bytes");
}

#[test]
fn floods_of_control_frames_have_bounded_memory() {
    // NEW_CONNECTION_ID with rising numbers, each of which retires those before (RFC 9000 §19.15).
    let new_id = |number: u64, retires: u64| {
        [&[0x18][..], &varint(number), &varint(retires), &[8], &number.to_be_bytes(), &[5; 16]].concat()
    };
    for (name, frames, count) in [
        ("PATH_CHALLENGE", [0x1a; 9].to_vec(), 5_000),
        ("PING", vec![1], 5_000),
        ("MAX_DATA", vec![0x10, 63], 5_000),
        ("STREAMS_BLOCKED", vec![0x16, 9], 5_000),
        ("STOP_SENDING", vec![5, 0, 1], 5_000),
    ] {
        let mut client = connect();
        client.send(&stream(0, 0, b"x"));
        client.send(&frames);
        let region = Region::new();
        for _ in 0..count {
            client.send(&frames);
            client.received.clear();
            client.events.clear();
        }
        let bytes = region.change().bytes_in_use();
        assert!(bytes < 512 * 1024, "{name}: {bytes} bytes, closed with {:?}", client.closed);
    }
    let mut client = connect();
    let region = Region::new();
    for number in 1..5_000 {
        client.send(&new_id(number, number));
        client.received.clear();
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "NEW_CONNECTION_ID: {bytes} bytes, closed with {:?}", client.closed);
    // More than the server permits at a time, and as many.
    let ids = |count: u64| (1..=count).flat_map(|number| new_id(number, 0)).collect::<Vec<u8>>();
    assert_eq!(error_of(&ids(20)), Some(CONNECTION_ID_LIMIT_ERROR));
    assert_eq!(error_of(&ids(1)), None);
}

#[test]
fn empty_datagrams_in_a_flood_have_bounded_memory() {
    let limits = TransportLimits { datagram_receive_bytes: Some(64 * 1024), ..TransportLimits::default() };
    let mut client = RawClient::connect(limits);
    let region = Region::new();
    // 500 DATAGRAM frames with a length of 0 in each packet (RFC 9221 §4).
    let frames = [0x31, 0].repeat(500);
    for _ in 0..200 {
        client.send(&frames);
        client.received.clear();
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes");
    let session = client.events.iter().find_map(|event| match event {
        SessionEvent::Datagrams(session) => Some(*session),
        _ => None,
    });
    let session = session.expect("datagrams");
    let kept = std::iter::from_fn(|| client.endpoint.read_datagram(session)).count();
    assert!((1..=64 * 1024 / 32).contains(&kept), "{kept} are kept");
    client.send(&[0x31, 3, b'e', b'b', b'b']);
    assert_eq!(client.endpoint.read_datagram(session).as_deref(), Some(&b"ebb"[..]));
    assert_eq!(client.closed, None);
}

#[test]
fn acknowledgements_of_packets_that_did_not_come_are_noticed() {
    let mut client = connect();
    client.send(&stream(0, 0, b"ebb"));
    let number = opened(&client);
    for _ in 0..20_000 {
        client.endpoint.write(number, &[7; 4000]).ok();
        client.pass(Duration::from_millis(1));
        // All numbers from 0 on, and so also those that the server has skipped (RFC 9000 §21.4).
        let largest = varint(client.largest);
        client.send(&[&[2][..], &largest, &[0, 0], &largest].concat());
        // A window as large as it takes.
        client.send(&[&[0x10][..], &varint(1 << 40), &[0x11, 0], &varint(1 << 40)].concat());
        client.received.clear();
        client.events.clear();
        if client.closed.is_some() {
            break;
        }
    }
    println!("closed at packet {}", client.largest);
    assert_eq!(client.closed, Some(PROTOCOL_VIOLATION));
}

#[test]
fn updates_of_keys_in_a_flood_have_bounded_memory() {
    let mut client = connect();
    client.send(&[1]);
    let region = Region::new();
    for _ in 0..3_000 {
        client.update_keys();
        client.send(&[1]);
        client.received.clear();
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes");
    // Three updates that wait for acknowledgements (RFC 9001 §6.1) are none.
    let mut client = connect();
    for offset in 0..3 {
        client.send(&stream(0, offset, b"x"));
        client.acknowledge();
        client.update_keys();
        client.send(&[1]);
        client.pass(Duration::from_secs(1));
        client.acknowledge();
    }
    assert_eq!((client.closed, client.endpoint.read(opened(&client), &mut [0; 16]).0), (None, 3));
}

#[test]
fn retired_connection_ids_in_a_flood_have_bounded_memory() {
    let mut client = connect();
    let region = Region::new();
    // The server replaces each id. The one of the connection itself is 0.
    for number in 1..5_000 {
        client.send(&[&[0x19][..], &varint(number)].concat());
        client.received.clear();
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes, closed with {:?}", client.closed);
    let mut client = connect();
    client.send(&[0x19, 1]);
    client.send(&stream(0, 0, b"ebb"));
    assert_eq!((client.closed, client.endpoint.read(opened(&client), &mut [0; 16]).0), (None, 3));
}

#[test]
fn probes_from_many_addresses_leave_the_connection_at_its_own() {
    let mut client = connect();
    let region = Region::new();
    for port in 5_000..7_000 {
        client.port = port;
        // PATH_CHALLENGE and PADDING alone do not migrate (RFC 9000 §9.1).
        client.send(&[&[0x1a; 9][..], &[0; 100]].concat());
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes");
    client.port = 4433;
    client.send(&stream(0, 0, b"ebb"));
    assert_eq!((client.closed, client.config.counts().migrations), (None, 0));
    assert_eq!(client.endpoint.read(opened(&client), &mut [0; 16]).0, 3);
}

#[test]
fn a_new_address_gets_little_until_it_is_validated() {
    let mut client = connect();
    client.send(&stream(0, 0, b"ebb"));
    let number = opened(&client);
    client.port = 5_555;
    client.send(&stream(0, 3, b"flow"));
    assert_eq!(client.config.counts().migrations, 1);
    assert!(client.received.contains(&0x1a), "PATH_CHALLENGE: {:?}", client.received);
    client.received.clear();
    // Three times the bytes that came from there (RFC 9000 §8.1, §9.3).
    let written = client.endpoint.write(number, &vec![9; 100_000]).expect("it is open");
    assert!(written > 0);
    client.pass(Duration::from_millis(1));
    let streams = client.received.iter().filter(|kind| (8..=0xf).contains(*kind)).count();
    assert!(streams <= 2, "{streams} STREAM frames to an address that is not validated");
}

#[test]
fn forged_resets_and_broken_packets_change_nothing() {
    let mut client = connect();
    let id = client.server_id().to_vec();
    for length in [21, 22, 40, 100, 1200] {
        // A short header with the id of the connection, and any bytes: no reset token of the client is known.
        client.send_raw(&[&[0x43][..], &id, &vec![length as u8; length]].concat());
        client.send_raw(&vec![0x4c; length]);
    }
    client.send(&stream(0, 0, b"ebb"));
    assert_eq!((client.closed, client.endpoint.connections()), (None, 1));
    assert_eq!(client.endpoint.read(opened(&client), &mut [0; 16]).0, 3);
}
