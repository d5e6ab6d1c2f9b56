//! Any bytes, and any messages, with seeds.

use std::time::Instant;

use proptest::prelude::*;
use tidegate::codec::Step;
use tidegate::http1::{Method, Response, client};
use tidegate::http3::{Connection, Limits, Settings, datagram, qpack, varint};
use tidegate_testkit::{Random, contract, seed};

use crate::support::{self, client, config, frame, headers, render_request, render_response, request, server};

/// Bytes that are often a frame.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![Just(0_u64), Just(1), Just(4), Just(7), Just(0x21), 0..64_u64, Just(0xf_0700)];
    let frames = (kinds, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(kind, bytes)| frame(kind, &bytes));
    let pieces = prop_oneof![
        frames,
        Just(request("POST", &[])),
        Just(headers(&[("x", "y")])),
        Just(headers(&[(":status", "200"), ("content-length", "3")])),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn fields_are_decoded_as_encoded(
        fields in prop::collection::vec(("[a-z:-]{0,20}", any::<Vec<u8>>(), any::<bool>()), 0..20),
    ) {
        let mut section = Vec::new();
        qpack::encode_prefix(&mut section);
        for (name, value, is_secret) in &fields {
            qpack::encode(name.as_bytes(), value, *is_secret, &mut section);
        }
        let mut decoded = Vec::new();
        let read = qpack::decode(&section, &mut Vec::new(), |name, value| decoded.push((name.to_vec(), value.to_vec())));
        let expected: Vec<_> = fields.iter().map(|(name, value, _)| (name.clone().into_bytes(), value.clone())).collect();
        prop_assert_eq!((read, decoded), (Ok(()), expected));
    }

    #[test]
    fn any_section_is_decoded_or_refused(section: Vec<u8>) {
        let mut count = 0;
        let _ = qpack::decode(&section, &mut Vec::new(), |_, _| count += 1);
        prop_assert!(count <= section.len());
    }

    #[test]
    fn integers_datagrams_and_settings_are_read_as_written(
        value in 0..=varint::MAX, payload: Vec<u8>, flags in any::<[bool; 2]>(), grease in any::<Option<u64>>(),
    ) {
        let mut wire = Vec::new();
        varint::write(value, &mut wire);
        prop_assert_eq!(varint::read(&wire), Some((value, wire.len())));
        let stream = value / 4 * 4;
        wire.clear();
        datagram::write(stream, &payload, &mut wire);
        prop_assert_eq!(datagram::read(&wire), Ok((stream, &payload[..])));
        let settings = Settings {
            field_section_bytes_max: Some(value),
            table_bytes_max: value,
            blocked_streams_max: value / 2,
            extended_connect: flags[0],
            datagrams: flags[1],
            webtransport_sessions_max: value % 100,
        };
        wire.clear();
        settings.write(grease, &mut wire);
        let (_, kind_bytes) = varint::read(&wire).expect("a type");
        let (length, length_bytes) = varint::read(&wire[kind_bytes..]).expect("a length");
        let payload = &wire[kind_bytes + length_bytes..];
        prop_assert_eq!(length, payload.len() as u64);
        prop_assert_eq!(Settings::parse(payload, 16), Ok(settings));
    }

    /// Any split of any bytes gives the same messages, or the same error.
    #[test]
    fn streams_do_not_depend_on_splits(wire in wire(), splits in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut ends: Vec<_> = splits.iter().map(|split| split.index(wire.len() + 1)).collect();
        ends.extend([0, wire.len()]);
        ends.sort_unstable();
        let pieces: Vec<_> = ends.windows(2).map(|ends| &wire[ends[0]..ends[1]]).collect();
        let run = |pieces: &[&[u8]]| {
            let mut stream = server(Limits::default());
            let read = support::requests(&mut stream, pieces);
            (read, stream.codec().filter().failure())
        };
        prop_assert_eq!(run(&[&wire]), run(&pieces));
        let run = |pieces: &[&[u8]]| {
            let mut stream = client(false);
            let get = client::Request::get("/").expect("a request").host("sea").expect("a host");
            stream.encode(client::Outgoing::Request(get)).expect("the first one");
            let read = support::responses(&mut stream, pieces);
            (read, stream.codec().filter().failure())
        };
        prop_assert_eq!(run(&[&wire]), run(&pieces));
    }

    #[test]
    fn connections_do_not_depend_on_splits(wire in wire(), kind in 0..5_u8, split in any::<prop::sample::Index>()) {
        let wire = [&[kind][..], &wire].concat();
        let split = split.index(wire.len() + 1);
        let now = Instant::now();
        for make in [Connection::server, Connection::client] {
            let run = |pieces: &[&[u8]]| {
                let mut connection = make(config(Limits::default()));
                let read = pieces.iter().try_for_each(|piece| connection.handle_uni(2, piece, now));
                (read, std::iter::from_fn(|| connection.poll_event()).collect::<Vec<_>>())
            };
            prop_assert_eq!(run(&[&wire]), run(&[&wire[..split], &wire[split..]]));
        }
    }

    /// A request of our client is the same for our server, and its response for our client.
    #[test]
    fn both_roles_understand_each_other(body in prop::collection::vec(any::<u8>(), 0..3_000), value in "[ -~]{0,40}") {
        let (mut client, mut server) = (client(false), server(Limits::default()));
        let value = value.trim();
        let post = client::Request::new(Method::Post, "/log").expect("a request").host("sea").expect("a host");
        let post = post.field("x-tide", value).expect("a field").body(body.clone());
        client.encode(client::Outgoing::Request(post)).expect("the first one");
        client.flush().expect("it is written");
        let mut read: String =
            server.decode(&client.take_sent()).expect("a request").iter().map(render_request).collect();
        while let Ok(Step::Message(message)) = server.decode_eof() {
            read += &render_request(&message);
        }
        let text = body.escape_ascii().to_string();
        prop_assert!(read.ends_with(&format!("{text}[end]")), "{read}");
        prop_assert!(read.contains(&format!("x-tide: {}", value.as_bytes().escape_ascii())), "{read}");
        server.encode(Response::text(body).into()).expect("a response is owed");
        server.flush().expect("it is written");
        let mut read: String =
            client.decode(&server.take_sent()).expect("a response").iter().map(render_response).collect();
        while let Ok(Step::Message(message)) = client.decode_eof() {
            read += &render_response(&message);
        }
        prop_assert_eq!(read, format!("[200]{text}[end]"));
    }
}

#[test]
fn the_contract_of_codecs_holds_for_request_streams() {
    let config = config(Limits::default());
    let make = || tidegate::http3::server_stream(&config, ());
    let wire = [frame(0x21, b"x"), request("GET", &[("x", "y")])].concat();
    contract::check(make, &wire);
}

/// Random changes of valid bytes never panic, and no split of them changes the result.
#[test]
fn changed_bytes_never_panic() {
    let seed = seed();
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random::new(seed);
    let now = Instant::now();
    let head = request("POST", &[("content-length", "3"), ("priority", "u=1"), ("cookie", "a=1")]);
    let stream = [frame(0x21, b"x"), head, frame(0, b"ebb"), headers(&[("x", "y")])].concat();
    let update = frame(0xf_0700, &[0, b'u', b'=', b'1']);
    let valid = [&[0][..], &frame(4, &[6, 1, 8, 1]), &update, &frame(7, &[0]), &frame(0x21, b"x")].concat();
    for _ in 0..2_000 {
        let (mut wire, mut stream) = (valid.clone(), stream.clone());
        for byte in random.bytes(4).chunks_exact(2) {
            for wire in [&mut wire, &mut stream] {
                let place = usize::from(byte[0]) % wire.len();
                wire[place] = byte[1];
            }
        }
        let (one, other) = stream.split_at(stream.len() / 2);
        let whole = support::requests(&mut server(Limits::default()), &[&stream]);
        assert_eq!(support::requests(&mut server(Limits::default()), &[one, other]), whole);
        let mut connection = Connection::server(config(Limits::default()));
        if connection.handle_uni(2, &wire, now).is_ok() {
            let _ = connection.handle_uni_end(2);
        }
        while connection.poll_event().is_some() {}
    }
}
