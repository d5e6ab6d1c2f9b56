//! Input that breaks the protocol, and the error that refuses it.

use tidegate_codec::Blame;
use tidegate_redis::{ClientCodec, ProtocolLimits, ServerCodec};
use tidegate_testkit::contract;

fn server(wire: &str) -> (String, String) {
    let seen = contract::check(ServerCodec::default, wire.as_bytes());
    (seen.error().unwrap_or("none").to_owned(), String::from_utf8(seen.replies).unwrap())
}

fn client(wire: &str) -> String {
    let seen = contract::check(ClientCodec::default, wire.as_bytes());
    seen.error().unwrap_or("none").to_owned()
}

const WRONG_LENGTHS: [&str; 7] = ["9223372036854775808", "18446744073709551616", "-0", "01", "+1", "", "1a"];

/// Redis ignores `*-1`, `*0` and empty lines between commands.
#[test]
fn commands_without_arguments_are_ignored() {
    for nothing in ["*0\r\n", "*-1\r\n", "*-9223372036854775808\r\n", "\r\n", "\n", " \x0b\r\n"] {
        let seen = contract::check(ServerCodec::default, format!("{nothing}{nothing}PING\r\n{nothing}").as_bytes());
        assert!(!seen.has_failed(), "{nothing:?}: {seen}");
        assert_eq!(seen.messages, [r#"Whole(["PING"])"#], "{nothing:?}");
    }
}

#[test]
fn lengths_of_commands_have_one_spelling() {
    for wrong in WRONG_LENGTHS {
        let (error, reply) = server(&format!("*{wrong}\r\n"));
        assert_eq!((&*error, &*reply), ("Arguments", "-ERR Protocol error: invalid multibulk length\r\n"), "{wrong}");
        let (error, reply) = server(&format!("*1\r\n${wrong}\r\n"));
        assert_eq!((&*error, &*reply), ("Length", "-ERR Protocol error: invalid bulk length\r\n"), "{wrong}");
    }
    assert_eq!(server("*1\r\n$-1\r\n").0, "Length");
    assert_eq!(server("*-9223372036854775809\r\n").0, "Arguments");
}

#[test]
fn lengths_of_replies_have_one_spelling() {
    for kind in ["*", "$", "%", "~", ">", "|", "!", "=", ";"] {
        for wrong in WRONG_LENGTHS {
            let seen = client(&format!("{kind}{wrong}\r\n"));
            assert_eq!(seen, "Length", "{kind}{wrong}");
        }
        assert_eq!(client(&format!("{kind}-2\r\n")), "Length");
    }
    // Two values for each entry do not fit either.
    assert_eq!(client("%9223372036854775807\r\n"), "TooManyElements { max: 1048576 }");
    for kind in ["%", "~", ">", "|", "!", "=", ";"] {
        assert_eq!(client(&format!("{kind}-1\r\n")), "Length");
    }
}

#[test]
fn lengths_above_the_limits_are_refused_before_memory_is_taken() {
    let bulk = "BulkTooLong { bytes_max: 536870912 }";
    for wire in ["$536870913\r\n", "!9223372036854775807\r\n", "*1\r\n=536870913\r\n", "$?\r\n;536870913\r\n"] {
        let seen = contract::refuses_before_allocating(ClientCodec::default, wire.as_bytes());
        assert_eq!((seen.error(), seen.blame()), (Some(bulk), Some(Blame::Limit)), "{wire}");
    }
    let seen = contract::refuses_before_allocating(ServerCodec::default, b"*1\r\n$536870913\r\n");
    assert_eq!((seen.error(), seen.blame()), (Some(bulk), Some(Blame::Limit)));
    for wire in ["*1048577\r\n", "%524289\r\n", ">9223372036854775807\r\n", "*2\r\n*1048575\r\n", "|524288\r\n"] {
        let seen = contract::refuses_before_allocating(ClientCodec::default, wire.as_bytes());
        assert_eq!(seen.error(), Some("TooManyElements { max: 1048576 }"), "{wire}");
    }
    let seen = contract::refuses_before_allocating(ServerCodec::default, &[b'x'; 65_538]);
    assert_eq!(seen.replies, b"-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn nesting_is_bounded() {
    assert_eq!(client(&"*1\r\n".repeat(1_000)), "TooDeep { max: 32 }");
    assert_eq!(client(&format!("{}:1\r\n", "*1\r\n".repeat(32))), "none");
    assert_eq!(client(&format!("{}:1\r\n", "*1\r\n".repeat(33))), "TooDeep { max: 32 }");
    assert_eq!(client(&"*?\r\n".repeat(1_000)), "TooDeep { max: 32 }");
    assert_eq!(client(&"|1\r\n".repeat(1_000)), "TooDeep { max: 32 }");
    let deep = || ClientCodec::new(ProtocolLimits { depth_max: u32::MAX, ..ProtocolLimits::default() });
    let seen = contract::check(deep, "*1\r\n".repeat(1_000).as_bytes());
    assert_eq!(seen.error(), Some("TooDeep { max: 128 }"));
}

#[test]
fn lines_end_with_cr_lf() {
    for wire in ["+OK\n", "+O\rK\r\n", ":1\n", ":1\r:2\r\n", "$3\nebb\r\n", "*1\n", "+\n\r\n"] {
        assert_eq!(client(wire), "LineEnd", "{wire:?}");
    }
    for wire in ["$3\r\nebb\n\r", "$3\r\nebbb\r\n", "$3\r\nebb\r\r"] {
        assert_eq!(client(wire), "BulkEnd", "{wire:?}");
    }
    for wire in ["*1\n", "*1\r\n$4\nPING\r\n", "*1\r\n$4\r"] {
        let wanted = if wire.ends_with('\r') { "Truncated" } else { "LineEnd" };
        assert_eq!(server(wire).0, wanted, "{wire:?}");
    }
    assert_eq!(server("*1\r\n$4\r\nPING\n\r").0, "BulkEnd");
}

#[test]
fn values_that_are_none_are_refused() {
    for wire in [
        ":\r\n",
        ":1.5\r\n",
        ":9223372036854775808\r\n",
        ",\r\n",
        ",0x1\r\n",
        ",infinity\r\n",
        "#x\r\n",
        "_x\r\n",
        "(1.5\r\n",
    ] {
        assert_eq!(client(wire), "Scalar", "{wire:?}");
    }
    assert_eq!(client("@1\r\n"), "Type(64)");
    assert_eq!(client("=3\r\ntxt\r\n"), "Verbatim");
    for wire in [".\r\n", ";1\r\na\r\n", "*1\r\n.\r\n", "$?\r\n+a\r\n", "$?\r\n.\r\n", "%?\r\n+a\r\n.\r\n", ".x\r\n"] {
        assert_eq!(client(wire), "Stream", "{wire:?}");
    }
    for wire in ["*1\r\n>0\r\n", "|0\r\n>0\r\n", "*?\r\n>1\r\n"] {
        assert_eq!(client(wire), "PushWithin", "{wire:?}");
    }
    assert_eq!(client("*?\r\n|0\r\n.\r\n"), "Attribute");
    for wire in [">?\r\n", "|?\r\n", "!?\r\n", "=?\r\n"] {
        assert_eq!(client(wire), "Length", "{wire:?}");
    }
}

#[test]
fn a_number_that_never_ends_is_refused() {
    for first in ["*", "$", ":", ","] {
        let wire = format!("{first}{}", "1".repeat(600));
        assert_eq!(contract::refuses_before_allocating(ClientCodec::default, wire.as_bytes()).error(), Some("Length"));
    }
}

#[test]
fn a_stream_that_ends_within_a_message_is_an_error() {
    let whole = "*2\r\n|1\r\n+a\r\n$1\r\nb\r\n:1\r\n$?\r\n;1\r\nc\r\n;0\r\n";
    for length in 1..whole.len() {
        assert_eq!(client(&whole[..length]), "Truncated", "{length}");
    }
    assert_eq!(client(whole), "none");
    for wire in ["*", "*1\r\n", "*1\r\n$4\r\nPI", "GET a", "|0\r\n"] {
        assert_eq!(if wire == "|0\r\n" { client(wire) } else { server(wire).0 }, "Truncated", "{wire:?}");
    }
}

#[test]
fn a_command_of_other_values_than_bulk_strings_is_refused() {
    let (error, reply) = server("*1\r\n:1\r\n");
    assert_eq!((&*error, &*reply), ("ExpectedBulk(58)", "-ERR Protocol error: expected '$', got ':'\r\n"));
    let (error, reply) = server("*1\r\n\r\n");
    assert_eq!((&*error, &*reply), ("ExpectedBulk(13)", "-ERR Protocol error: expected '$', got ' '\r\n"));
    let (error, reply) = server("GET \"a\r\n");
    assert_eq!((&*error, &*reply), ("Quotes", "-ERR Protocol error: unbalanced quotes in request\r\n"));
}
