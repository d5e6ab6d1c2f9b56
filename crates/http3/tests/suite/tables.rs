//! Dynamic QPACK tables, on two endpoints with a QUIC connection in memory.

use std::time::Duration;

use tidegate::codec::mux::ResetCause;
use tidegate::codec::{Direction, ReadEnd, StreamEndpoint as _};
use tidegate::http3::{Limits, varint};

use crate::memory_quic::{SESSION, Side, at, deliver, deliver_all};
use crate::support::{DATA, HEADERS, RESERVED, frame, frames, headers, request};

/// Both tables have so many bytes, and so many streams may wait.
fn limits(table: u32, blocked: u32) -> Limits {
    Limits {
        qpack_table_bytes_max: table,
        qpack_encoder_bytes_max: table,
        qpack_blocked_streams_max: blocked,
        ..Limits::default()
    }
}

/// A server whose client is the test, and has sent SETTINGS.
fn server(limits: Limits) -> Side {
    let mut server = Side::new(false, limits);
    server.arrive(2, &[0, 4, 0], None);
    server.quic().outbound.clear();
    server
}

/// The encoder stream of the test, with a capacity of 4,096 bytes.
const ENCODER: u64 = 6;
const BEGIN: [u8; 4] = [2, 0x3f, 0xe1, 0x1f];
/// Insert With Literal Name.
const INSERT: &[u8] = b"\x44tide\x03ebb";

/// A request with the first entry.
fn request_with_entry(required: u8) -> Vec<u8> {
    frame(HEADERS, &[&[required, 0, 0xd1, 0xd7, 0xc1, 0x50, 3][..], b"sea", &[0x80]].concat())
}

/// The bytes that the server sends on a unidirectional stream, without its type.
fn sent_on(side: &mut Side, kind: u8) -> Vec<u8> {
    let streams = side.quic().outbound.values().map(|(bytes, _)| Vec::from_iter(bytes.iter().copied()));
    streams.into_iter().find(|bytes| bytes.first() == Some(&kind)).map_or(Vec::new(), |bytes| bytes[1..].to_vec())
}

/// Random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn head(&mut self, start: &[(&str, &str)]) -> Vec<u8> {
        let mut fields: Vec<_> = start.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for _ in 0..self.below(8) {
            let name = ["user-agent", "x-tide", "accept", "cookie", "etag", "x-sea"][self.below(6)];
            let value = format!("{}{}", "a value of some length ".repeat(self.below(4)), self.below(6));
            fields.push((name.to_owned(), value));
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        headers(&fields)
    }

    fn message(&mut self, start: &[(&str, &str)]) -> Vec<u8> {
        let mut message = self.head(start);
        for _ in 0..self.below(3) {
            let body = vec![b'x'; self.below(300)];
            message.extend(frame([DATA, RESERVED][self.below(2)], &body));
        }
        if self.below(3) == 0 {
            message.extend(self.head(&[]));
        }
        message
    }
}

/// Requests and responses in a random order of all bytes. Returns how many bytes request streams had, and how many they would have
/// without tables.
fn exchange(seed: u64, table: u32, blocked: u32) -> (usize, usize) {
    let (mut random, mut requests, mut responses) = (Random(seed), Vec::new(), Vec::new());
    let (mut client, mut server) = (Side::new(true, limits(table, blocked)), Side::new(false, limits(table, blocked)));
    let mut plain = 0;
    while responses.len() < 60 {
        match random.below(10) {
            0 if requests.len() < 60 => {
                let stream = client.http3.open(SESSION, Direction::Bidirectional).expect("a stream").stream;
                if random.below(2) == 0 {
                    client.quic().windows.insert(stream, random.below(50));
                }
                let start = [(":method", "GET"), (":scheme", "https"), (":authority", "sea"), (":path", "/tide")];
                let message = random.message(&start);
                client.write(stream, &message);
                requests.push((stream, message, false));
            }
            1 => {
                let side = if random.below(2) == 0 { &mut client } else { &mut server };
                let streams: Vec<u64> = side.quic().windows.keys().copied().collect();
                if !streams.is_empty() {
                    let (stream, bytes) = (streams[random.below(streams.len())], 1 + random.below(200));
                    side.widen(stream, bytes);
                }
            }
            way => {
                let is_request = way % 2 == 0;
                let (from, to) = if is_request { (&mut client, &mut server) } else { (&mut server, &mut client) };
                let streams: Vec<u64> = from.quic().outbound.keys().copied().collect();
                if !streams.is_empty() {
                    deliver(from, to, streams[random.below(streams.len())], 1 + random.below(300));
                }
            }
        }
        for (stream, message, is_answered) in &mut requests {
            let unsent = client.unsent.get(stream).is_some_and(|unsent| !unsent.is_empty());
            if !*is_answered && !unsent {
                *is_answered = true;
                client.http3.finish(at(*stream));
                plain += message.len();
                let response = random.message(&[(":status", "200")]);
                if random.below(2) == 0 {
                    server.quic().windows.insert(*stream, random.below(50));
                }
                responses.push((*stream, response));
            }
        }
        assert_eq!((&client.ended, &server.ended), (&None, &None), "seed {seed}");
    }
    plain += answer(&mut random, &mut client, &mut server, &responses);
    let requests = requests.iter().map(|(stream, message, _)| (&server, stream, message));
    let responses = responses.iter().map(|(stream, message)| (&client, stream, message));
    for (reader, stream, message) in requests.chain(responses) {
        let (bytes, end) = &reader.read[stream];
        assert_eq!((frames(bytes), *end), (frames(message), Some(ReadEnd::Ended)), "seed {seed}, stream {stream}");
    }
    assert_eq!((&client.ended, &server.ended), (&None, &None), "seed {seed}");
    let sent = [&mut client, &mut server].map(|side| side.quic().sent.values().sum::<usize>());
    (sent.iter().sum(), plain)
}

/// All requests arrive, and get their responses, whose bytes arrive in a random order.
fn answer(random: &mut Random, client: &mut Side, server: &mut Side, responses: &[(u64, Vec<u8>)]) -> usize {
    deliver_all(client, server);
    let mut plain = 0;
    for (stream, response) in responses {
        server.write(*stream, response);
        while !server.unsent[stream].is_empty() {
            server.widen(*stream, 10);
        }
        server.http3.finish(at(*stream));
        plain += response.len();
        for _ in 0..random.below(12) {
            let is_response = random.below(3) > 0;
            let (from, to) = if is_response { (&mut *server, &mut *client) } else { (&mut *client, &mut *server) };
            let streams: Vec<u64> = from.quic().outbound.keys().copied().collect();
            if !streams.is_empty() {
                deliver(from, to, streams[random.below(streams.len())], 1 + random.below(300));
            }
        }
    }
    deliver_all(client, server);
    plain
}

#[test]
fn heads_are_the_same_in_every_order_of_all_streams() {
    for (table, blocked) in [(0, 0), (256, 0), (256, 100), (4096, 0), (4096, 3), (4096, 100), (4095, 100)] {
        let (mut sent, mut plain) = (0, 0);
        for seed in 0..5 {
            let bytes = exchange(seed, table, blocked);
            (sent, plain) = (sent + bytes.0, plain + bytes.1);
        }
        println!("table {table}, {blocked} streams may wait: {sent} bytes, {plain} without tables");
    }
}

#[test]
fn without_the_limits_there_is_no_table() {
    let mut server = server(Limits::default());
    server.arrive(0, &request_with_entry(2), Some(ReadEnd::Ended));
    assert_eq!(server.read[&0].0, request_with_entry(2), "the bytes pass as they are");
    server.write(0, &headers(&[(":status", "200"), ("tide", "ebb")]));
    server.write(0, &headers(&[("tide", "ebb")]));
    assert_eq!(server.quic().outbound.keys().copied().collect::<Vec<_>>(), [0], "no stream was opened");
}

#[test]
fn a_stream_waits_for_its_entries() {
    let mut server = server(limits(4096, 4));
    let body = frame(DATA, &[b'x'; 9_000]);
    server.arrive(0, &[request_with_entry(2), body.clone()].concat(), Some(ReadEnd::Ended));
    assert_eq!(server.read[&0], (Vec::new(), None));
    assert!(server.quic().inbound[&0].0.len() > 4_500, "it is not read on");
    server.arrive(4, &request("GET", &[]), Some(ReadEnd::Ended));
    assert_eq!(server.read[&4].0, request("GET", &[]), "another one need not wait");
    server.arrive(ENCODER, &BEGIN, None);
    for byte in INSERT {
        assert_eq!(server.read[&0], (Vec::new(), None));
        server.arrive(ENCODER, &[*byte], None);
    }
    let expected = [request("GET", &[("tide", "ebb")]), body].concat();
    let (read, end) = &server.read[&0];
    let in_words = frames(read);
    assert_eq!(in_words.len() + "tide".len(), frames(&expected).len(), "the path is /");
    assert!(in_words.starts_with("[:method=GET|:scheme=https|:path=/|:authority=sea|tide=ebb]<xxx"), "{in_words:.90}");
    assert_eq!(*end, Some(ReadEnd::Ended));
    assert_eq!(sent_on(&mut server, 3), [0x01, 0x80], "an increment, and the acknowledgment of the section");
}

#[test]
fn streams_that_wait_have_a_bound() {
    let mut server = server(limits(4096, 2));
    for stream in [0, 4] {
        server.arrive(stream, &request_with_entry(2), None);
    }
    assert_eq!(server.ended, None);
    server.arrive(8, &request_with_entry(2), None);
    assert_eq!(
        server.ended.as_deref(),
        Some("a field section cannot be decoded: too many field sections wait for a dynamic table")
    );
    assert_eq!(server.quic().ended, Some(Some(ResetCause::Code(0x200))));
}

#[test]
fn a_stream_that_waits_may_be_reset() {
    let mut server = server(limits(4096, 1));
    for stream in (0..40).step_by(4) {
        server.arrive(stream, &request_with_entry(2), None);
        server.arrive(stream, &[], Some(ReadEnd::Reset(0x10c)));
        assert_eq!(server.read[&stream].1, Some(ReadEnd::Reset(0x10c)), "it is noticed although it waits");
        server.http3.close(at(stream), None, true);
        assert_eq!(server.ended, None, "{stream}");
    }
    let cancellations: Vec<u8> = (0..40).step_by(4).map(|stream| 0x40 | stream).collect();
    assert_eq!(sent_on(&mut server, 3), cancellations);
    server.arrive(40, &request_with_entry(2), None);
    server.http3.close(at(40), Some(ResetCause::Unneeded), false);
    server.arrive(ENCODER, &[&BEGIN[..], INSERT].concat(), None);
    assert_eq!(server.ended, None, "an entry for a stream that is over");
}

#[test]
fn bytes_that_wait_have_a_bound() {
    let bounds = Limits { qpack_waiting_bytes_max: 32 * 1024, ..limits(4096, 100) };
    let mut server = server(bounds);
    server.arrive(ENCODER, &[&BEGIN[..], INSERT].concat(), None);
    // Sections of 30 KB that lack their last byte: the first has its room, the others wait within QUIC.
    let section = [&[2, 0, 0x80, 0x21, b'x', 0x7f, 0xb1, 0xe9, 0x01][..], &[b'y'; 30_000 - 1]].concat();
    let mut wire = frame(HEADERS, &[&section[..], b"z"].concat());
    let last = wire.pop().expect("a byte");
    for stream in (0..80).step_by(4) {
        server.arrive(stream, &wire, None);
    }
    let held = |server: &mut Side| -> usize {
        20 * wire.len()
            - server
                .quic()
                .inbound
                .range(0..80)
                .filter(|(stream, _)| *stream % 4 == 0)
                .map(|(_, (bytes, _))| bytes.len())
                .sum::<usize>()
    };
    let bytes = held(&mut server);
    assert!(bytes <= 32 * 1024 + 20 * 4096, "{bytes} bytes were read");
    for stream in (0..80).step_by(4) {
        assert!(server.read[&stream].0.is_empty());
    }
    for stream in (0..80).step_by(4) {
        server.arrive(stream, &[last], Some(ReadEnd::Ended));
    }
    assert_eq!((held(&mut server), server.ended.as_deref()), (20 * wire.len(), None), "all was read");
    for stream in (0..80).step_by(4) {
        assert_eq!(server.read[&stream].1, Some(ReadEnd::Ended), "{stream} goes on");
    }
}

/// Sections never wait for each other's room for ever: one of them may always go on.
#[test]
fn a_section_that_is_larger_than_the_bound_is_read() {
    let mut server = server(Limits { qpack_waiting_bytes_max: 0, ..limits(4096, 0) });
    server.arrive(ENCODER, &[&BEGIN[..], INSERT].concat(), None);
    for stream in [0, 4] {
        server.arrive(stream, &request_with_entry(2)[..8], None);
    }
    for stream in [4, 0] {
        server.arrive(stream, &request_with_entry(2)[8..], Some(ReadEnd::Ended));
    }
    for stream in [0, 4] {
        assert_eq!(server.read[&stream].1, Some(ReadEnd::Ended), "{stream}");
    }
}

#[test]
fn references_that_expand_are_refused_as_large_heads() {
    let mut server = server(limits(4096, 0));
    let insert = [&b"\x44bomb\x7f\x89\x1e"[..], &[b'x'; 3976]].concat();
    let section = [&[2, 0][..], &[0x80; 20_000]].concat();
    server.arrive(ENCODER, &[&BEGIN[..], &insert].concat(), None);
    server.arrive(0, &frame(HEADERS, &section), Some(ReadEnd::Ended));
    let read = &server.read[&0].0;
    assert_eq!(varint::read(&read[1..]), Some((varint::MAX, 8)), "its reader answers with 431");
    assert!(read.len() < 20_000 && server.ended.is_none(), "{} bytes", read.len());
    // A section that is too large as it was sent.
    server.arrive(4, &frame(HEADERS, &[0; 40_000]), None);
    assert_eq!(varint::read(&server.read[&4].0[1..]), Some((varint::MAX, 8)));
    server.arrive(8, &frame(HEADERS, &[0; 30_000]), None);
    assert_eq!(varint::read(&server.read[&8].0[1..]), Some((30_000, 4)), "this one is not");
}

#[test]
fn wrong_instructions_end_the_connection() {
    for (name, stream, code) in [
        ("a capacity above the limit", &[2, 0x3f, 0xe2, 0x1f][..], 0x201),
        ("a duplicate of nothing", &[2, 0x3f, 0xe1, 0x1f, 0], 0x201),
        ("an acknowledgment of nothing", &[3, 0x80], 0x202),
        ("an increment of 0", &[3, 0], 0x202),
        ("an increment of nothing", &[3, 1], 0x202),
    ] {
        let mut server = server(limits(4096, 4));
        server.arrive(0, &request("GET", &[]), Some(ReadEnd::Ended));
        server.write(0, &headers(&[(":status", "200")]));
        for byte in stream {
            assert_eq!(server.ended, None, "{name}");
            server.arrive(ENCODER, &[*byte], None);
        }
        assert_eq!(server.quic().ended, Some(Some(ResetCause::Code(code))), "{name}");
    }
    for kind in [2, 3] {
        let mut server = server(limits(4096, 4));
        server.arrive(ENCODER, &[kind], Some(ReadEnd::Ended));
        assert_eq!(server.ended.as_deref(), Some("a critical stream was closed"), "{kind}");
    }
}

#[test]
fn insertions_without_requests_are_abuse() {
    let bounds = Limits { abuse_max: 100, ..limits(4096, 4) };
    let mut server = server(bounds.clone());
    server.arrive(ENCODER, &BEGIN, None);
    for _ in 0..63 + 100 {
        server.arrive(ENCODER, INSERT, None);
    }
    assert_eq!(server.ended, None);
    server.arrive(ENCODER, INSERT, None);
    assert_eq!(server.ended.as_deref(), Some("too many frames that bring no request forward"));

    let mut server = server_with_time(bounds);
    server.arrive(3 + 11, &[3], None);
    for _ in 0..100 {
        server.arrive(3 + 11, &[0x44], None);
    }
    assert_eq!(server.ended, None, "cancellations of unknown streams are no error");
    server.arrive(3 + 11, &[0x44], None);
    assert_eq!(server.ended.as_deref(), Some("too many frames that bring no request forward"));
}

fn server_with_time(limits: Limits) -> Side {
    let mut server = server(limits);
    server.now += Duration::from_secs(1);
    server
}

/// RFC 9204 §2.1.3: a section must not need instructions that flow control holds back.
#[test]
fn a_section_does_not_need_instructions_that_are_not_sent() {
    let mut server = Side::new(false, limits(4096, 100));
    // The client permits a table and streams that wait.
    server.arrive(2, &[0, 4, 6, 1, 0x50, 0, 7, 0x40, 100], None);
    let head = headers(&[(":status", "200"), ("x-tide", "a value of some length")]);
    for stream in (0..20).step_by(4) {
        server.arrive(stream, &request("GET", &[]), Some(ReadEnd::Ended));
    }
    // The encoder stream is the second one that the server opens: 4 * 1 + 3.
    server.quic().windows.insert(7, 5);
    for stream in (0..12).step_by(4) {
        server.write(stream, &head);
        assert_eq!(server.quic().sent[&stream], head.len(), "{stream}: no reference");
    }
    server.widen(7, 1_000);
    assert!(server.quic().sent[&7] > 20, "the insertion is whole");
    server.write(12, &head);
    assert!(server.quic().sent[&12] < 10, "{} bytes", server.quic().sent[&12]);
}

/// A cancellation frees the sections of a stream, so a later acknowledgment of it is wrong.
#[test]
fn a_response_that_the_client_gives_up_is_forgotten() {
    let mut server = Side::new(false, limits(4096, 100));
    server.arrive(2, &[0, 4, 6, 1, 0x50, 0, 7, 0x40, 100], None);
    let head = headers(&[(":status", "200"), ("x-tide", "a value of some length")]);
    for stream in [0, 4] {
        server.arrive(stream, &request("GET", &[]), Some(ReadEnd::Ended));
        server.write(stream, &head);
        server.http3.close(at(stream), None, true);
    }
    server.arrive(14, &[3, 0x44], None);
    assert_eq!(server.ended, None);
    server.arrive(14, &[0x84], None);
    assert_eq!(server.quic().ended, Some(Some(ResetCause::Code(0x202))));
}

#[test]
fn acknowledgments_that_the_peer_does_not_read_have_a_bound() {
    let mut server = server(limits(4096, 0));
    server.arrive(ENCODER, &[&BEGIN[..], INSERT].concat(), None);
    let stream = server.quic().sent.keys().copied().max().expect("the decoder stream");
    server.quic().windows.insert(stream, 0);
    let mut requests = 0;
    while server.ended.is_none() && requests < 20_000 {
        server.arrive(4 * requests, &request_with_entry(2), Some(ReadEnd::Ended));
        server.http3.finish(at(4 * requests));
        server.http3.close(at(4 * requests), None, false);
        requests += 1;
    }
    assert_eq!(server.ended.as_deref(), Some("too many frames that bring no request forward"), "{requests} requests");
    assert!(requests > 4_000, "{requests} requests of two to four bytes each");
}

/// Insertions are bytes of this side: a peer whose window is small has done nothing wrong.
#[test]
fn insertions_that_wait_for_a_window_are_no_abuse() {
    let mut server = Side::new(false, limits(256 * 1024, 0));
    // The client permits 262,144 bytes.
    server.arrive(2, &[0, 4, 5, 1, 0x80, 4, 0, 0], None);
    server.quic().windows.insert(7, 5);
    let fields: Vec<_> = (0..40).map(|field| (format!("x-tide-{field}"), "~".repeat(700))).collect();
    let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
    let head = headers(&[(":status", "200")].into_iter().chain(fields).collect::<Vec<_>>());
    for stream in [0, 4, 8] {
        server.arrive(stream, &request("GET", &[]), Some(ReadEnd::Ended));
        server.write(stream, &head);
        assert_eq!(server.ended, None, "{stream}");
        assert_eq!(server.quic().sent[&stream], head.len(), "{stream}: no reference");
    }
    server.widen(7, 1 << 20);
    assert!(server.quic().sent[&7] > 20_000, "{} bytes of insertions", server.quic().sent[&7]);
}

#[test]
fn the_memory_of_tables_counts_until_the_connection_ends() {
    let kept = Side::kept;
    let mut server = server(limits(4096, 1));
    assert_eq!(kept(&server), 0);
    server.arrive(ENCODER, &BEGIN, None);
    let empty = kept(&server);
    server.arrive(ENCODER, &INSERT.repeat(20), None);
    let filled = kept(&server);
    assert!(filled >= empty + 20 * 39, "{empty} {filled}");
    // A section that waits for an entry, and an instruction that has not come whole.
    server.arrive(0, &request_with_entry(30), None);
    server.arrive(ENCODER, &[&[0x5f, 0x7f, 0x80, 0x10][..], &[b'x'; 1_000]].concat(), None);
    assert!(kept(&server) >= filled + 1_000);
    server.http3.end_session(SESSION, None, server.now);
    assert_eq!(kept(&server), 0);
    let mut client = Side::new(true, limits(4096, 1));
    client.arrive(3, &[0, 4, 5, 1, 0x50, 0, 7, 1], None);
    let head =
        headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "sea"), (":path", "/"), ("a", "ebb")]);
    for _ in 0..2 {
        let stream = client.http3.open(SESSION, Direction::Bidirectional).expect("a stream").stream;
        client.write(stream, &head);
    }
    assert!(kept(&client) > 200, "the table that this side fills");
}
