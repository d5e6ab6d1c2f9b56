//! Lines that are wrong, lengths that lie, and limits.

use tidegate_codec::{Blame, Codec, Step};
use tidegate_memcached::{ClientCodec, Command, Key, ProtocolLimits, Response, ServerCodec};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{self, Contract, Transcript};

const TIGHT: ProtocolLimits = ProtocolLimits { value_bytes_max: 4, line_bytes_max: 32 };

fn server(limits: ProtocolLimits, wire: &[u8]) -> Transcript {
    let contract = Contract::new(move || ServerCodec::new(limits));
    contract.answer(|_, codec, out| codec.encode(Response::Stored, out).expect("a command awaits it")).check(wire)
}

/// The replies to a wire that does not end the connection.
#[track_caller]
fn replies(limits: ProtocolLimits, wire: &[u8]) -> String {
    let seen = server(limits, wire);
    assert!(!seen.has_failed(), "{seen}");
    String::from_utf8(seen.replies).expect("ASCII")
}

#[test]
fn a_line_that_is_wrong_gets_an_error_and_the_next_one_its_response() {
    let malformed = "CLIENT_ERROR bad command line format\r\n";
    let long = format!("get {}", "k".repeat(251));
    let cases = [
        ("", "ERROR\r\n"),
        ("GET a", "ERROR\r\n"),
        ("nonsense", "ERROR\r\n"),
        ("get", "ERROR\r\n"),
        (&long, malformed),
        ("get a\x01b", malformed),
        ("gat x a", malformed),
        ("delete a 5", malformed),
        ("delete a b c", malformed),
        ("delete", "ERROR\r\n"),
        ("incr a", "ERROR\r\n"),
        ("incr a -1", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("incr a 18446744073709551616", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("touch a", "ERROR\r\n"),
        ("set a", "ERROR\r\n"),
        ("set a 0 0 1 noreply x", "ERROR\r\n"),
        ("version noreply", "ERROR\r\n"),
        ("verbosity", "ERROR\r\n"),
        ("flush_all x", malformed),
        ("mg", "ERROR\r\n"),
        ("md a \x02", malformed),
        (&format!("{long} noreply"), malformed),
    ];
    for (line, error) in cases {
        let wire = format!("{line}\r\nversion\r\n");
        assert_eq!(replies(ProtocolLimits::default(), wire.as_bytes()), format!("{error}STORED\r\n"), "{line:?}");
    }
}

#[test]
fn the_value_of_a_command_that_is_refused_is_dropped() {
    let key = "k".repeat(251);
    let lines = ["set {key} 0 0 8", "set a 0 x 8", "set a 4294967296 0 8", "cas a 0 0 8 x", "ms {key} 8"];
    for line in lines.map(|line| line.replace("{key}", &key)) {
        let wire = format!("{line}\r\nget a\r\nx\r\nversion\r\n");
        let expected = "CLIENT_ERROR bad command line format\r\nSTORED\r\n";
        assert_eq!(replies(ProtocolLimits::default(), wire.as_bytes()), expected, "{line}");
    }
}

#[test]
fn a_value_that_is_too_long_is_dropped_as_it_arrives() {
    let wire = b"set a 0 0 5\r\nwaves\r\nset a 0 0 4\r\nflow\r\nset a 0 0 5 noreply\r\nwaves\r\nms a 5\r\nwaves\r\n";
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    assert_eq!(replies(TIGHT, wire), format!("{too_large}STORED\r\n{too_large}"));
    let mut codec = CodecHarness::new(ServerCodec::default());
    codec.receive(b"set a 0 0 18446744073709551615\r\n");
    for _ in 0..100 {
        codec.receive(&[b'x'; 10_000]);
        assert!(matches!(codec.step(), Ok(Step::NeedMore)));
        assert!(codec.input().is_empty(), "the bytes of the value are kept");
    }
}

#[test]
fn a_length_that_lies_ends_the_connection() {
    let wires = [
        "set a 0 0 2\r\nebb\r\n",
        "set a 0 0 4\r\nebb\r\nget a\r\n",
        "ms a 2\r\nebb\r\n",
        "set a 0 0 3\r\nebb\n\nget a\r\n",
    ];
    for wire in wires {
        let seen = server(ProtocolLimits::default(), wire.as_bytes());
        assert_eq!(
            (seen.blame(), &*seen.replies),
            (Some(Blame::Peer), &b"CLIENT_ERROR bad data chunk\r\n"[..]),
            "{wire:?}"
        );
    }
}

#[test]
fn a_length_that_is_none_ends_the_connection() {
    for length in ["-1", "+1", "x", "1x", "18446744073709551616"] {
        let seen = server(ProtocolLimits::default(), format!("set a 0 0 {length}\r\nget a\r\n").as_bytes());
        assert_eq!(
            (seen.blame(), &*seen.replies),
            (Some(Blame::Peer), &b"CLIENT_ERROR bad data chunk\r\n"[..]),
            "{length}"
        );
    }
}

#[test]
fn a_line_without_an_end_is_refused() {
    let seen = server(TIGHT, b"get 7890123456789012345678901234567");
    assert_eq!(seen.blame(), Some(Blame::Limit), "{seen}");
    let seen = contract::refuses_before_allocating(|| ServerCodec::new(TIGHT), &[b'x'; 33]);
    assert_eq!(seen.blame(), Some(Blame::Limit), "{seen}");
    assert_eq!(replies(TIGHT, b"get 78901234567890123456789012\r\n"), "STORED\r\n", "32 bytes pass");
}

#[test]
fn the_end_within_a_message_is_an_error_of_the_peer() {
    for wire in ["ver", "set a 0 0 3\r\n", "set a 0 0 3\r\nebb\r", "set a 0 0 5000000\r\nx"] {
        assert_eq!(server(ProtocolLimits::default(), wire.as_bytes()).blame(), Some(Blame::Peer), "{wire:?}");
    }
    assert!(!server(ProtocolLimits::default(), b"").has_failed());
}

#[test]
fn no_input_makes_a_codec_panic() {
    let commands =
        b"set a 0 0 3 noreply\r\nebb\r\nget a b\r\nms a 2 T0 q\r\nab\r\nmg a v k\r\ncas a 1 2 1 9\r\nx\r\nquit\r\n";
    contract::never_panics(ServerCodec::default, commands, 2_000);
    contract::never_panics(|| ServerCodec::new(TIGHT), commands, 2_000);
    let responses = b"VALUE a 1 3 9\r\nebb\r\nEND\r\nVA 3 t5\r\nebb\r\nSTAT a b\r\n412\r\nHD\r\n";
    let client = Contract::new(ClientCodec::default).open(|codec, out| {
        for _ in 0..10 {
            codec.encode(Command::get(Key::new("a").expect("a key")), out).expect("a key");
        }
    });
    client.never_panics(responses, 2_000);
}
