//! A client receives the responses of each kind, and refuses those that are wrong.

use tidegate_codec::{Blame, Codec};
use tidegate_memcached::{
    ClientCodec, Command, Key, MemcachedError, MetaCommand, MetaFlags, MetaVerb, ProtocolLimits, Response,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{Contract, Transcript};

/// The messages of a client that has sent so many commands.
fn receive(commands: usize, wire: &[u8]) -> Transcript {
    let limits = ProtocolLimits { value_bytes_max: 8, line_bytes_max: 64 };
    let contract = Contract::new(move || ClientCodec::new(limits)).open(move |codec, out| {
        for _ in 0..commands {
            codec.encode(Command::Version, out).expect("a command");
        }
    });
    contract.check(wire)
}

#[test]
fn each_response_is_received_at_every_split() {
    let wire = b"VALUE a 4294967295 4 18446744073709551615\r\n\r\n\r\n\r\nEND\r\nSTORED\r\nNOT_STORED\r\nEXISTS\r\n\
        NOT_FOUND\r\nDELETED\r\nTOUCHED\r\nOK\r\n412\r\nVERSION 1.6 x\r\nSTAT a b c\r\nSTAT b\r\nEND\r\nHD\r\n\
        VA 0 t1 Oab\r\n\r\nEN\r\nNF q\r\nNS\r\nEX\r\nMN\r\nME a b=c\r\nERROR\r\nCLIENT_ERROR bad line\r\n\
        SERVER_ERROR no memory\r\n";
    let seen = receive(22, wire);
    assert!(!seen.has_failed(), "{seen}");
    assert_eq!(seen.messages.len(), 25, "{seen}");
}

#[test]
fn a_value_is_read_with_its_numbers() {
    let mut client = CodecHarness::new(ClientCodec::default());
    client.encode(Command::get(Key::new("a").expect("a key"))).expect("a key");
    let lines = client.decode(b"VALUE a 7 3 9\r\nebb\r\nEND\r\n").expect("a response");
    let [Response::Value { key, flags: 7, cas: Some(9), value }, Response::End] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!((key.as_ref(), value.as_ref()), (&b"a"[..], &b"ebb"[..]));
    assert!(!client.codec().is_awaiting());
}

#[test]
fn a_line_of_an_unknown_form_is_refused() {
    for line in [
        "",
        "stored",
        "VALUE a 1",
        "VALUE a x 3",
        "VALUE a 4294967296 1",
        "VALUE a 1 1 x",
        "VA",
        "VA x",
        "STAT",
        "-1",
        "XY",
        "HD \x01",
    ] {
        let seen = receive(1, format!("{line}\r\n").as_bytes());
        assert_eq!(seen.error(), Some("ResponseLine"), "{line:?}");
    }
}

#[test]
fn a_value_with_a_wrong_length_is_refused() {
    for wire in ["VALUE a 0 2\r\nebb\r\n", "VALUE a 0 4\r\nebb\r\n\r\n", "VA 2\r\nebb\r\n"] {
        assert_eq!(receive(1, wire.as_bytes()).error(), Some("ValueEnd"), "{wire:?}");
    }
    for wire in ["VALUE a 0 9\r\n", "VA 18446744073709551615\r\n"] {
        assert_eq!(receive(1, wire.as_bytes()).blame(), Some(Blame::Limit), "{wire:?}");
    }
    assert_eq!(receive(1, b"VALUE a 0 3\r\neb").blame(), Some(Blame::Peer));
    assert_eq!(receive(1, b"END").blame(), Some(Blame::Peer));
}

#[test]
fn a_response_that_no_command_awaits_is_refused() {
    assert_eq!(receive(0, b"END\r\n").error(), Some("Unsolicited"));
    assert_eq!(receive(0, b"VALUE a 0 1\r\nx\r\n").error(), Some("Unsolicited"));
    let seen = receive(1, b"VALUE a 0 1\r\nx\r\nEND\r\nEND\r\n");
    assert_eq!((seen.messages.len(), seen.error()), (2, Some("Unsolicited")));
}

#[test]
fn a_command_with_noreply_awaits_nothing() {
    let mut client = CodecHarness::new(ClientCodec::default());
    let key = || Key::new("a").expect("a key");
    client.encode(Command::Delete { key: key(), no_reply: true }).expect("a command");
    assert!(!client.codec().is_awaiting());
    assert_eq!(client.decode(b"DELETED\r\n").err(), Some(MemcachedError::Unsolicited));
}

fn meta(verb: MetaVerb, flags: &'static str) -> Command {
    let key = (verb != MetaVerb::Noop).then(|| Key::new("a").expect("a key"));
    Command::Meta(MetaCommand { verb, key, flags: MetaFlags::new(flags).expect("flags"), value: None })
}

#[test]
fn a_noop_ends_the_uncertainty_of_quiet_commands() {
    let mut client = CodecHarness::new(ClientCodec::default());
    for command in [meta(MetaVerb::Get, "v q"), meta(MetaVerb::Get, "v q"), meta(MetaVerb::Noop, ""), Command::Version]
    {
        client.encode(command).expect("a command");
    }
    client.decode(b"VA 1\r\nx\r\nMN\r\n").expect("one of two responses, and the end");
    assert!(client.codec().is_awaiting(), "the version");
    client.decode(b"VERSION 1\r\n").expect("the version");
    assert!(!client.codec().is_awaiting());
    assert_eq!(client.decode(b"EN\r\n").err(), Some(MemcachedError::Unsolicited));
}

#[test]
fn a_noop_before_a_quiet_command_is_not_its_end() {
    let mut client = CodecHarness::new(ClientCodec::default());
    for command in [meta(MetaVerb::Noop, ""), meta(MetaVerb::Get, "v q"), meta(MetaVerb::Noop, "")] {
        client.encode(command).expect("a command");
    }
    client.decode(b"MN\r\n").expect("the first one");
    assert!(client.codec().is_awaiting());
    client.decode(b"VA 1\r\nx\r\nMN\r\n").expect("a value, and the second one");
    assert!(!client.codec().is_awaiting());
}

#[test]
fn a_quiet_command_behind_a_noop_begins_another_batch() {
    let mut client = CodecHarness::new(ClientCodec::default());
    let first = [meta(MetaVerb::Get, "q"), meta(MetaVerb::Noop, "")];
    for command in first.into_iter().chain([meta(MetaVerb::Delete, "q"), Command::Version]) {
        client.encode(command).expect("a command");
    }
    client.decode(b"MN\r\nVERSION 1\r\n").expect("the first batch, and the version");
    assert!(client.codec().is_awaiting(), "the second batch has no end");
    client.encode(meta(MetaVerb::Noop, "")).expect("a command");
    client.decode(b"MN\r\n").expect("the end of the second batch");
    assert!(!client.codec().is_awaiting());
}
