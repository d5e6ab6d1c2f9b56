//! Whole handshakes in every split, and the bad input of each role.

use std::time::Duration;

use tidegate_codec::{Blame, Codec, Fault, Step};
use tidegate_socks::{
    Answer, Authentication, Client, Config, Error, Event, Exceeded, Misuse, Refusal, Server, Target, Version, Violation,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Outcome};

fn target(text: &str) -> Target {
    text.parse().expect("a target")
}

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An application that has one user, and is connected to every target from 192.0.2.7:4096.
fn answer(event: Event, server: &mut Server, out: &mut tidegate_codec::Output<'_>) {
    let answer = match event {
        Event::Credentials(credentials) if credentials.is(b"ebb", b"flow") => Answer::Authenticated,
        Event::Credentials(_) => Answer::Denied,
        _ => Answer::Connected("192.0.2.7:4096".parse().expect("an address")),
    };
    server.encode(answer, out).expect("it is due");
}

fn server(authentication: Authentication) -> Server {
    Server::new(Config { authentication, ..Config::default() })
}

/// A server's results for `wire` in all splits: messages, replies, outcome.
fn served(authentication: Authentication, wire: &[u8]) -> (Vec<String>, Vec<u8>, Outcome) {
    let seen = Contract::new(|| server(authentication)).answer(answer).check(wire);
    (seen.messages, seen.replies, seen.outcome)
}

/// A client's results for `wire` in all splits.
fn asked(make: impl Fn() -> Client, wire: &[u8]) -> (Vec<String>, Vec<u8>, Outcome) {
    let contract = Contract::rendered(make, |message| match message {
        Ok(bound) => bound.to_string(),
        Err(refusal) => format!("{refusal:?}"),
    });
    let seen = contract.check(wire);
    (seen.messages, seen.replies, seen.outcome)
}

fn failed(outcome: &Outcome) -> &str {
    if let Outcome::Failed { error, .. } = outcome { error } else { panic!("it did not fail: {outcome:?}") }
}

/// Flushes, and returns the sent bytes.
fn written<C: Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    harness.flush().expect("there is no filter");
    harness.take_sent()
}

const SERVED_IPV4: &[u8] = b"\x05\0\0\x01\xC0\0\x02\x07\x10\0";

#[test]
fn version_5_with_each_type_of_address() {
    let name = bytes(&[b"\x05\x01\0\x05\x01\0\x03\x0Bsea.example\x01\xBB"]);
    let (messages, replies, outcome) = served(Authentication::None, &name);
    assert_eq!(replies, bytes(&[b"\x05\0", SERVED_IPV4]));
    assert!(messages[0].contains(r#"Name("sea.example")"#), "{messages:?}");
    assert_eq!((messages.len(), outcome), (1, Outcome::Ended));

    let ipv4 = b"\x05\x02\x01\0\x05\x01\0\x01\xC6\x33\x64\x01\x1B\x58";
    let (messages, ..) = served(Authentication::None, ipv4);
    assert!(messages[0].contains("198.51.100.1"), "{messages:?}");
    assert!(messages[0].contains("7000"), "{messages:?}");

    let ipv6 = b"\x05\x01\0\x05\x01\0\x04\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50";
    let (messages, ..) = served(Authentication::None, ipv6);
    assert!(messages[0].contains("2001:db8::1"), "{messages:?}");
}

#[test]
fn a_name_of_255_bytes_passes_in_both_versions() {
    let name = [b'x'; 255];
    let five = bytes(&[b"\x05\x01\0\x05\x01\0\x03\xFF", &name, b"\x01\xBB"]);
    let (messages, ..) = served(Authentication::None, &five);
    assert!(messages[0].contains(&"x".repeat(255)), "{messages:?}");
    let four = bytes(&[b"\x04\x01\x01\xBB\0\0\0\x01", &[b'u'; 255], b"\0", &name, b"\0"]);
    let (messages, replies, _) = served(Authentication::None, &four);
    assert!(messages[0].contains(&"x".repeat(255)), "{messages:?}");
    assert_eq!(replies, b"\0\x5A\x10\0\xC0\0\x02\x07");

    let long = bytes(&[b"\x04\x01\x01\xBB\0\0\0\x01\0", &[b'x'; 256]]);
    let (messages, replies, outcome) = served(Authentication::None, &long);
    assert_eq!((messages.len(), failed(&outcome)), (0, "Limit(Name)"));
    assert_eq!(replies, b"\0\x5B\0\0\0\0\0\0");
    let long = bytes(&[b"\x04\x01\x01\xBB\xC0\0\x02\x01", &[b'u'; 256]]);
    assert_eq!(failed(&served(Authentication::None, &long).2), "Limit(UserId)");
}

#[test]
fn version_4_with_an_address_and_4a_with_a_name() {
    let (messages, replies, _) = served(Authentication::Optional, b"\x04\x01\0\x50\xC0\0\x02\x01fred\0");
    assert!(messages[0].contains("192.0.2.1"), "{messages:?}");
    assert_eq!(replies, b"\0\x5A\x10\0\xC0\0\x02\x07");
    let (messages, ..) = served(Authentication::None, b"\x04\x01\0\x50\0\0\0\x05\0sea.example\0");
    assert!(messages[0].contains(r#"Name("sea.example")"#), "{messages:?}");
    // Zero is an address, and no name follows it.
    let (messages, ..) = served(Authentication::None, b"\x04\x01\0\x50\0\0\0\0\0");
    assert!(messages[0].contains("0.0.0.0"), "{messages:?}");
}

#[test]
fn a_password_is_asked_for_where_it_is_configured() {
    let right = b"\x05\x02\0\x02\x01\x03ebb\x04flow\x05\x01\0\x01\xC0\0\x02\x01\0\x50";
    for authentication in [Authentication::Optional, Authentication::Required] {
        let (messages, replies, _) = served(authentication, right);
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0], r#"Credentials(Credentials { user: "ebb", .. })"#);
        assert_eq!(replies, bytes(&[b"\x05\x02\x01\0", SERVED_IPV4]));
    }
    let (messages, replies, outcome) = served(Authentication::Required, b"\x05\x01\x02\x01\x03ebb\x04ebb!");
    assert_eq!((messages.len(), &replies[..], outcome), (1, &b"\x05\x02\x01\x01"[..], Outcome::Ended));
    // Without an offer there is no method, and version 4 has none.
    let (_, replies, outcome) = served(Authentication::Required, b"\x05\x01\0");
    assert_eq!((&replies[..], failed(&outcome)), (&b"\x05\xFF"[..], "Peer(NoMethod)"));
    let (_, replies, outcome) = served(Authentication::Required, b"\x04\x01\0\x50\xC0\0\x02\x01fred\0");
    assert_eq!((&replies[..], failed(&outcome)), (&b"\0\x5B\0\0\0\0\0\0"[..], "Peer(Version4)"));
    let (_, replies, _) = served(Authentication::Optional, b"\x05\x01\0\x05\x01\0\x01\xC0\0\x02\x01\0\x50");
    assert_eq!(replies, bytes(&[b"\x05\0", SERVED_IPV4]));
}

#[test]
fn requests_that_break_the_protocol_get_the_code_for_it() {
    let five = |request: &[u8]| served(Authentication::None, &bytes(&[b"\x05\x01\0", request]));
    for (request, code, error) in [
        (&b"\x05\x02\0\x01\xC0\0\x02\x01\0\x50"[..], 7, "Peer(Command(2))"),
        (b"\x05\x03\0\x01\xC0\0\x02\x01\0\x50", 7, "Peer(Command(3))"),
        (b"\x05\0", 7, "Peer(Command(0))"),
        (b"\x05\x01\x01", 1, "Peer(Reserved)"),
        (b"\x05\x01\0\x02", 8, "Peer(AddressType(2))"),
        (b"\x05\x01\0\x03\0\0\x50", 1, "Peer(Name)"),
        (b"\x05\x01\0\x03\x03a b\0\x50", 1, "Peer(Name)"),
        (b"\x05\x01\0\x03\x03a\nb\0\x50", 1, "Peer(Name)"),
        (b"\x05\x01\0\x03\x02\xC3\xA9\0\x50", 1, "Peer(Name)"),
        (b"\x04\x01", 1, "Peer(Version(4))"),
    ] {
        let (messages, replies, outcome) = five(request);
        assert_eq!((messages.len(), failed(&outcome)), (0, error));
        assert_eq!(replies, bytes(&[b"\x05\0\x05", &[code], b"\0\x01\0\0\0\0\0\0"]), "{error}");
    }
    for (wire, error) in [
        (&b"\x04\x02\0\x50\xC0\0\x02\x01\0"[..], "Peer(Command(2))"),
        (b"\x04\x01\0\x50\0\0\0\x01\0\0", "Peer(Name)"),
        (b"\x04\x01\0\x50\0\0\0\x01\0a b\0", "Peer(Name)"),
    ] {
        let (_, replies, outcome) = served(Authentication::None, wire);
        assert_eq!((&replies[..], failed(&outcome)), (&b"\0\x5B\0\0\0\0\0\0"[..], error));
    }
    // A first byte of another protocol gets no reply, since no version of the reply is known.
    for wire in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01", b"\0", b"\x06\x01\0"] {
        let (_, replies, outcome) = served(Authentication::None, wire);
        assert_eq!((&replies[..], failed(&outcome)), (&b""[..], &*format!("Peer(Version({}))", wire[0])));
    }
    let (_, replies, outcome) = served(Authentication::Required, b"\x05\x01\x02\x05\x03ebb\x04flow");
    assert_eq!((&replies[..], failed(&outcome)), (&b"\x05\x02\x01\x01"[..], "Peer(Version(5))"));
    assert_eq!(served(Authentication::None, b"\x05\0").1, b"\x05\xFF", "no methods at all");
}

#[test]
fn lengths_that_lie_wait_for_bytes_that_do_not_come() {
    for wire in [
        &b"\x05\xFF\0"[..],
        b"\x05\x01\0\x05\x01\0\x03\xFFsea",
        b"\x05\x01\0\x05\x01\0\x04\x20",
        b"\x04\x01\0\x50\xC0\0\x02\x01fred",
        b"\x05",
    ] {
        assert_eq!(failed(&served(Authentication::None, wire).2), "Peer(Truncated)");
    }
    assert_eq!(failed(&served(Authentication::Required, b"\x05\x01\x02\x01\x03ebb\xFFflow").2), "Peer(Truncated)");
    // A check whether the server listens.
    assert_eq!(served(Authentication::None, b"").2, Outcome::Ended);
}

#[test]
fn bytes_behind_the_request_are_not_consumed() {
    let mut harness = CodecHarness::new(Server::default());
    harness.receive(b"\x05\x01\0\x05\x01\0\x01\xC0\0\x02\x01\0\x50hello");
    assert!(matches!(harness.step(), Ok(Step::Message(Event::Connect(_)))));
    assert!(harness.codec().status().is_blocked);
    assert!(matches!(harness.step(), Ok(Step::NeedMore)));
    harness.encode(Answer::Connected("[::1]:1".parse().unwrap())).unwrap();
    assert!(harness.codec().is_done());
    assert_eq!(written(&mut harness), b"\x05\0\x05\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01");
    assert!(matches!(harness.step(), Ok(Step::End)));
    assert_eq!(harness.input().bytes(), b"hello");

    let mut harness = CodecHarness::new(Client::v5(target("192.0.2.1:80")));
    harness.receive(b"\x05\0\x05\0\0\x01\0\0\0\0\0\0hello");
    assert!(matches!(harness.step(), Ok(Step::Message(Ok(_)))));
    assert!(matches!(harness.step(), Ok(Step::End)));
    assert_eq!(harness.input().bytes(), b"hello");
}

#[test]
fn answers_that_are_not_due_are_errors_and_write_nothing() {
    let bound = "192.0.2.7:1".parse().unwrap();
    let mut harness = CodecHarness::new(server(Authentication::Required));
    let no_request = Error::Caller(Misuse::NoRequest);
    assert_eq!(harness.encode(Answer::Connected(bound)).unwrap_err(), no_request);
    harness.decode(b"\x05\x01\x02\x01\x03ebb\x04flow").unwrap();
    assert_eq!(harness.encode(Answer::Connected(bound)).unwrap_err(), no_request);
    harness.encode(Answer::Authenticated).unwrap();
    let error = harness.encode(Answer::Denied).unwrap_err();
    assert_eq!((error, error.blame()), (Error::Caller(Misuse::NoCredentials), Blame::Caller));
    assert_eq!(written(&mut harness), b"\x05\x02\x01\0");
}

#[test]
fn a_refusal_ends_the_connection() {
    for (refusal, five, four) in [
        (Refusal::NotAllowed, 2, 91),
        (Refusal::HostUnreachable, 4, 91),
        (Refusal::ConnectionRefused, 5, 91),
        (Refusal::UserId, 1, 93),
    ] {
        let mut harness = CodecHarness::new(Server::default());
        harness.decode(b"\x05\x01\0\x05\x01\0\x01\xC0\0\x02\x01\0\x50").unwrap();
        harness.encode(Answer::Refused(refusal)).unwrap();
        assert!(harness.codec().status().is_finished);
        assert_eq!(written(&mut harness)[2..], *bytes(&[b"\x05", &[five], b"\0\x01\0\0\0\0\0\0"]));
        let mut harness = CodecHarness::new(Server::default());
        harness.decode(b"\x04\x01\0\x50\xC0\0\x02\x01\0").unwrap();
        harness.encode(Answer::Refused(refusal)).unwrap();
        assert_eq!(written(&mut harness), bytes(&[b"\0", &[four], b"\0\0\0\0\0\0"]));
    }
}

#[test]
fn a_client_of_version_5() {
    let plain = || Client::v5(target("sea.example:443"));
    let (greeting, request) = (b"\x05\x01\0", b"\x05\x01\0\x03\x0Bsea.example\x01\xBB");
    let (messages, sent, outcome) = asked(plain, b"\x05\0\x05\0\0\x01\xC0\0\x02\x07\x10\0");
    assert_eq!((&messages[..], outcome), (&["192.0.2.7:4096".to_owned()][..], Outcome::Ended));
    assert_eq!(sent, bytes(&[greeting, request]));
    let (messages, ..) = asked(plain, b"\x05\0\x05\0\0\x03\x05proxy\x10\0");
    assert_eq!(messages, ["proxy:4096"]);
    let (messages, ..) = asked(plain, &bytes(&[b"\x05\0\x05\0\0\x04", &[0; 16], b"\0\0"]));
    assert_eq!(messages, ["[::]:0"]);

    let named = || plain().credentials("ebb", "flow").unwrap();
    let (messages, sent, _) = asked(named, b"\x05\x02\x01\0\x05\0\0\x01\xC0\0\x02\x07\x10\0");
    assert_eq!((messages.len(), sent), (1, bytes(&[b"\x05\x02\0\x02\x01\x03ebb\x04flow", request])));
    let (_, sent, _) = asked(named, b"\x05\0\x05\0\0\x01\xC0\0\x02\x07\x10\0");
    assert_eq!(sent, bytes(&[b"\x05\x02\0\x02", request]), "the proxy selects no authentication");
}

#[test]
fn a_client_of_version_4() {
    let make = || Client::v4(target("192.0.2.1:80"), "fred").unwrap();
    let (messages, sent, _) = asked(make, b"\0\x5A\x10\0\xC0\0\x02\x07");
    assert_eq!(
        (&messages[..], &sent[..]),
        (&["192.0.2.7:4096".to_owned()][..], &b"\x04\x01\0\x50\xC0\0\x02\x01fred\0"[..])
    );
    let opened = |client| written(&mut CodecHarness::new(client));
    assert_eq!(opened(make()), b"\x04\x01\0\x50\xC0\0\x02\x01fred\0");
    assert_eq!(opened(Client::v4(target("a.b:80"), "").unwrap()), b"\x04\x01\0\x50\0\0\0\x01\0a.b\0");
    assert_eq!(opened(Client::v5(target("a.b:80"))), b"\x05\x01\0");
    let named = Client::v5(target("a.b:80")).credentials("u", "p").unwrap();
    assert_eq!(opened(named), b"\x05\x02\0\x02");
}

#[test]
fn replies_that_refuse() {
    let five = || Client::v5(target("a.b:1"));
    for (reply, refusal) in [
        (&b"\x05\0\x05\x05\0\x01\0\0\0\0\0\0"[..], "ConnectionRefused"),
        (b"\x05\0\x05\x01", "General"),
        (b"\x05\0\x05\x09\xFF", "Unassigned(9)"),
        (b"\x05\xFF", "NoMethod"),
    ] {
        let (messages, _, outcome) = asked(five, reply);
        assert_eq!((&messages[..], outcome), (&[refusal.to_owned()][..], Outcome::Ended));
    }
    let named = || five().credentials("u", "p").unwrap();
    assert_eq!(asked(named, b"\x05\x02\x01\x01").0, ["Credentials"]);
    let four = || Client::v4(target("a.b:1"), "").unwrap();
    for (code, refusal) in [(91, "General"), (92, "Identd"), (93, "UserId")] {
        assert_eq!(asked(four, &bytes(&[b"\0", &[code], b"\0\0\0\0\0\0"])).0, [refusal]);
    }
}

#[test]
fn replies_that_are_no_replies() {
    let five = || Client::v5(target("a.b:1"));
    for (reply, error) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "Peer(Version(72))"),
        (b"\x04\0", "Peer(Version(4))"),
        (b"\x05\x02", "Peer(Method(2))"),
        (b"\x05\x01", "Peer(Method(1))"),
        (b"\x05\0\x04", "Peer(Version(4))"),
        (b"\x05\0\x05\0\x01", "Peer(Reserved)"),
        (b"\x05\0\x05\0\0\x02", "Peer(AddressType(2))"),
        (b"\x05\0\x05\0\0\x03\0\0\0", "Peer(Name)"),
        (b"\x05\0\x05\0\0\x03\xFFproxy", "Peer(Truncated)"),
        (b"\x05\0\x05\0\0\x01\xC0\0\x02\x07\x10", "Peer(Truncated)"),
        (b"\x05", "Peer(Truncated)"),
        (b"", "Peer(Truncated)"),
        // The requests of a client, from a peer that takes itself for one.
        (b"\x05\x02\0\x02", "Peer(Method(2))"),
    ] {
        let (messages, _, outcome) = asked(five, reply);
        assert_eq!((messages.len(), failed(&outcome)), (0, error), "{}", reply.escape_ascii());
    }
    let named = || five().credentials("u", "p").unwrap();
    assert_eq!(failed(&asked(named, b"\x05\x02\x05\0").2), "Peer(Version(5))");
    let four = || Client::v4(target("a.b:1"), "").unwrap();
    for (reply, error) in [
        (&b"\x04\x5A"[..], "Peer(Version(4))"),
        (b"\0\0", "Peer(Code(0))"),
        (b"\0\x5E", "Peer(Code(94))"),
        (b"\0\x5A\0\0\0", "Peer(Truncated)"),
    ] {
        assert_eq!(failed(&asked(four, reply).2), error);
    }
}

#[test]
fn a_request_that_a_version_cannot_express_is_refused_at_the_client() {
    assert_eq!(Client::v4(target("[::1]:1"), "").unwrap_err(), Misuse::Ipv6InVersion4);
    assert_eq!(Client::v4(target("a.b:1"), "a\0b").unwrap_err(), Misuse::UserId);
    assert_eq!(Client::v4(target("a.b:1"), &"x".repeat(256)).unwrap_err(), Misuse::UserId);
    let five = || Client::v5(target("a.b:1"));
    for (user, password) in [("", "p"), ("u", ""), (&*"x".repeat(256), "p"), ("u", &*"x".repeat(256))] {
        assert_eq!(five().credentials(user, password).unwrap_err(), Misuse::Credentials);
    }
    assert!(five().credentials(&"x".repeat(255), &"x".repeat(255)).is_ok());
    let four = Client::v4(target("a.b:1"), "").unwrap();
    assert_eq!(four.credentials("u", "p").unwrap_err(), Misuse::Credentials);
}

#[test]
fn a_peer_that_does_not_answer_in_time_is_given_up() {
    let late = Error::Limit(Exceeded::Time);
    let mut client = CodecHarness::new(Client::v5(target("a.b:1")).handshake_timeout(Duration::from_secs(3)));
    client.receive(b"\x05");
    assert!(matches!(client.step(), Ok(Step::NeedMore)));
    client.advance_time(Duration::from_secs(2)).unwrap();
    assert_eq!(client.advance_time(Duration::from_secs(1)).unwrap_err(), late);

    let mut server = CodecHarness::new(server(Authentication::Required));
    server.decode(b"\x05\x01\x02\x01\x03ebb\x04flow").unwrap();
    // The time of the application does not count.
    server.advance_time(Duration::from_secs(3600)).unwrap();
    server.encode(Answer::Authenticated).unwrap();
    server.advance_time(Duration::from_secs(9)).unwrap();
    assert_eq!(server.advance_time(Duration::from_secs(1)).unwrap_err(), late);
}

#[test]
fn a_request_says_its_version_and_the_user_of_version_4() {
    let mut harness = CodecHarness::new(Server::default());
    let events = harness.decode(b"\x04\x01\0\x50\xC0\0\x02\x01fred\0").unwrap();
    let [Event::Connect(request)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (request.version(), request.user_id(), request.target()),
        (Version::Four, &b"fred"[..], &target("192.0.2.1:80"))
    );
    let violation = CodecHarness::new(Server::default()).decode(b"\x01").unwrap_err();
    assert_eq!(violation, Error::Peer(Violation::Version(1)));
}
