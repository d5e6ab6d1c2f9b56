//! SOCKS handshakes: any split of any bytes gives the same messages, replies and errors, in both roles, and a target that
//! a server received is asked for again in the same way.
//!
//! The first byte is the seed of the split, the second one chooses the role and its options; the rest is the wire.

use tidegate_codec::{Codec, Output};
use tidegate_socks::{Answer, Authentication, Client, Config, Event, Refusal, Server, Target, Version};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;

/// One handshake.
pub fn socks(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, options) = (choices.byte(), choices.byte());
    let wire = choices.take(WIRE_BYTES_MAX);
    if options & SERVER == 0 {
        client(seed, options, wire);
    } else {
        server(seed, options, wire);
    }
}

fn client(seed: u8, options: u8, wire: &[u8]) {
    let target = || "sea.example:443".parse::<Target>().expect("a target");
    let make = || match options & 3 {
        0 => Client::v4(target(), "ebb").expect("version 4 has names"),
        1 => Client::v5(target()),
        _ => Client::v5(target()).credentials("ebb", "flow").expect("they fit"),
    };
    let contract = Contract::new(make).seed(seed.into());
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    let seen = contract.check_once(wire);
    assert!(seen.messages.len() <= 1, "{seen}");
}

fn server(seed: u8, options: u8, wire: &[u8]) {
    let config = Config {
        authentication: match options & 3 {
            0 => Authentication::None,
            1 => Authentication::Optional,
            _ => Authentication::Required,
        },
        allow_version_4: options & ONLY_5 == 0,
        user_id_bytes_max: if options & TIGHT == 0 { 255 } else { 3 },
        ..Config::default()
    };
    let answer = |event: Event, server: &mut Server, out: &mut Output<'_>| {
        let answer = match &event {
            Event::Credentials(credentials) if options & DENIES == 0 || credentials.user().is_empty() => {
                Answer::Authenticated
            }
            Event::Credentials(_) => Answer::Denied,
            Event::Connect(request) => {
                asked_again(request);
                match request.target().address() {
                    Some(bound) => Answer::Connected(bound),
                    None => Answer::Refused(Refusal::HostUnreachable),
                }
            }
            other => panic!("{other:?}"),
        };
        server.encode(answer, out).expect("it is due");
    };
    let contract = Contract::new(|| Server::new(config.clone())).answer(answer).seed(seed.into());
    let contract = if options & STAYS_OPEN == 0 { contract } else { contract.stays_open() };
    let seen = contract.check_once(wire);
    assert!(seen.messages.len() <= 2, "{seen}");
}

/// Our client repeats the received request, and our server receives the same.
fn asked_again(request: &tidegate_socks::Request) {
    let target = request.target().clone();
    let client = match request.version() {
        Version::Five => Client::v5(target),
        Version::Four => {
            let Ok(user_id) = std::str::from_utf8(request.user_id()) else { return };
            Client::v4(target, user_id).expect("version 4 had them")
        }
    };
    let (mut client, mut server) = (CodecHarness::new(client), CodecHarness::new(Server::default()));
    let mut events = server.decode(&sent(&mut client)).expect("our client is right");
    client.decode(&sent(&mut server)).expect("our server is right");
    events.extend(server.decode(&sent(&mut client)).expect("our client is right"));
    let [Event::Connect(again)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(again, request);
}

fn sent<C: Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    harness.flush().expect("there is no filter");
    harness.take_sent()
}

const SERVER: u8 = 4;
const STAYS_OPEN: u8 = 8;
const ONLY_5: u8 = 16;
const TIGHT: u8 = 32;
const DENIES: u8 = 64;

/// The longest handshake of either role fits.
const WIRE_BYTES_MAX: usize = 1024;
