//! A client and a server of ours, by properties: whatever one asks, the other understands; and mutated bytes.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_codec::Codec;
use tidegate_socks::{Answer, Authentication, Client, Config, Event, Refusal, Server, Target, Version};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

fn hosts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::from(octets).to_string()),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::from(octets).to_string()),
        vec(33_u8..127, 1..=255).prop_map(|bytes| String::from_utf8(bytes).expect("ASCII")),
    ]
}

fn credentials() -> impl Strategy<Value = Option<(String, String)>> {
    let part = || vec(32_u8..127, 1..=255).prop_map(|bytes| String::from_utf8(bytes).expect("ASCII"));
    proptest::option::of((part(), part()))
}

/// Passes bytes from one side to the other in pieces until neither has more; returns the messages of each side.
fn converse(client: Client, server: Server, piece: usize, reply: Answer) -> (Vec<Event>, Vec<Result<Target, Refusal>>) {
    let (mut client, mut server) = (CodecHarness::new(client), CodecHarness::new(server));
    let (mut events, mut results) = (Vec::new(), Vec::new());
    loop {
        client.flush().expect("no filter");
        let asked = client.take_sent();
        for bytes in asked.chunks(piece) {
            server.receive(bytes);
            while let tidegate_codec::Step::Message(event) = server.step().expect("our client is right") {
                let is_connect = matches!(event, Event::Connect(_));
                events.push(event);
                server.encode(if is_connect { reply } else { Answer::Authenticated }).expect("it is due");
            }
        }
        server.flush().expect("no filter");
        let answered = server.take_sent();
        if asked.is_empty() && answered.is_empty() {
            return (events, results);
        }
        for bytes in answered.chunks(piece) {
            client.receive(bytes);
            while let tidegate_codec::Step::Message(result) = client.step().expect("our server is right") {
                results.push(result);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_server_gets_the_request_of_the_client(
        host in hosts(),
        port: u16,
        credentials in credentials(),
        four: bool,
        bound: SocketAddr,
        piece in 1_usize..300,
    ) {
        let target = Target::new(&host, port).expect("a host");
        let bound = SocketAddr::new(bound.ip(), bound.port());
        let (client, version) = match Client::v4(target.clone(), "fred") {
            Ok(client) if four && credentials.is_none() => (client, Version::Four),
            _ => (Client::v5(target.clone()), Version::Five),
        };
        let client = match &credentials {
            Some((user, password)) => client.credentials(user, password).expect("they fit"),
            None => client,
        };
        let config = Config { authentication: Authentication::Optional, ..Config::default() };
        let (events, results) = converse(client, Server::new(config), piece, Answer::Connected(bound));
        let got = match (&credentials, &events[..]) {
            (Some((user, password)), [Event::Credentials(got), Event::Connect(request)]) => {
                prop_assert!(got.is(user.as_bytes(), password.as_bytes()));
                request
            }
            (None, [Event::Connect(request)]) => request,
            other => panic!("{other:?}"),
        };
        // Version 4 announces a name by such an address.
        let is_marker = version == Version::Four && target.address().is_some_and(|at| at.to_string().starts_with("0.0.0."));
        prop_assert!(*got.target() == target || is_marker);
        prop_assert_eq!(got.version(), version);
        match (&results[..], version) {
            ([Ok(seen)], Version::Five) => prop_assert_eq!(seen, &bound.into()),
            ([Ok(seen)], Version::Four) => prop_assert_eq!(seen.port(), bound.port()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_refusal_arrives(code in 9_u8.., four: bool) {
        let target: Target = "sea.example:1".parse().expect("a target");
        let client = if four { Client::v4(target, "").expect("a name") } else { Client::v5(target) };
        let refusal = Refusal::Unassigned(code);
        let (_, results) = converse(client, Server::default(), 1, Answer::Refused(refusal));
        prop_assert_eq!(results, vec![Err(if four { Refusal::General } else { refusal })]);
    }
}

#[test]
fn mutated_handshakes_neither_panic_nor_depend_on_their_pieces() {
    let answer = |event: Event, server: &mut Server, out: &mut tidegate_codec::Output<'_>| {
        let answer =
            if matches!(event, Event::Connect(_)) { Answer::Refused(Refusal::General) } else { Answer::Authenticated };
        server.encode(answer, out).expect("it is due");
    };
    let optional = || Server::new(Config { authentication: Authentication::Optional, ..Config::default() });
    for wire in [
        &b"\x05\x02\0\x02\x01\x03ebb\x04flow\x05\x01\0\x03\x0Bsea.example\0\x50"[..],
        b"\x04\x01\0\x50\0\0\0\x05fred\0sea.example\0",
        b"\x05\x01\0\x05\x01\0\x01\xC6\x33\x64\x01\x1B\x58",
    ] {
        Contract::new(optional).answer(answer).never_panics(wire, 2_000);
    }
    let target = || "sea.example:443".parse().expect("a target");
    let five = || Client::v5(target()).credentials("ebb", "flow").expect("they fit");
    for wire in [&b"\x05\x02\x01\0\x05\0\0\x03\x05proxy\x10\0"[..], b"\x05\0\x05\0\0\x01\xC0\0\x02\x07\x10\0"] {
        Contract::new(five).never_panics(wire, 2_000);
    }
    let four = || Client::v4(target(), "").expect("a name");
    Contract::new(four).never_panics(b"\0\x5A\x10\0\xC0\0\x02\x07", 2_000);
}
