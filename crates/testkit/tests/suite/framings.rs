//! The contract of every framing, alone and under stacks of filters, which must not make a difference.

use std::convert::Infallible;

use tidegate_codec::framing::{Delimiter, Fixed, Json, LengthField, Lines, Payload, Raw, VarintLength};
use tidegate_codec::{Blame, Codec, Input, Output, Over, Pipeline, Slice, Step};
use tidegate_testkit::contract::{Contract, Transcript, never_panics, refuses_before_allocating};
use tidegate_testkit::filters::{RECORD_BYTES_MAX, StripPrefix, ToyTls};

const KEY: u8 = 0x5a;
const PREFIX: &[u8] = b"PROXY UNKNOWN\r\n";

/// Lengths of records: the shortest, an odd one, and the longest.
const RECORDS: [usize; 3] = [1, 7, RECORD_BYTES_MAX];

/// Checks the contract with an application that echoes over `make`.
fn echo<C>(make: impl Fn() -> C, wire: &[u8], replies: impl Fn(&[u8]) -> Vec<u8>) -> Transcript
where
    C: Pipeline<In = Slice, Out = Payload>,
{
    Contract::new(make)
        .answer(|message, codec, out| codec.encode(message.into(), out).expect("a received message may be sent"))
        .replies(replies)
        .rounds(16)
        .check(wire)
}

fn decode_wire(wire: &[u8]) -> Vec<u8> {
    ToyTls::decode_wire(KEY, wire).0
}

/// [`Raw`] with each of its messages split into bytes. The contract cannot compare how many bytes arrive together, but
/// it compares the bytes and their order. `Raw` refuses nothing, so only one part of the contract does not apply: that
/// oversized messages are refused in time.
#[derive(Default)]
struct Bytewise {
    rest: Option<Slice>,
}

impl Codec for Bytewise {
    type In = Slice;
    type Out = Payload;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        let mut bytes = match self.rest.take() {
            Some(rest) => rest,
            None => match Raw.decode(input, reply)? {
                Step::Message(bytes) => bytes,
                step => return Ok(step),
            },
        };
        assert!(!bytes.is_empty(), "a message of no bytes");
        let byte = bytes.slice(..1);
        bytes.advance(1);
        self.rest = Some(bytes).filter(|rest| !rest.is_empty());
        Ok(Step::Message(byte))
    }

    fn encode(&mut self, bytes: Payload, out: &mut Output<'_>) -> Result<(), Infallible> {
        Raw.encode(bytes, out)
    }
}

/// Checks that `plain` gives the same messages, echoes and blame alone and under every stack.
fn same_under_every_stack<C>(make: impl Fn() -> C + Copy, plain: &[u8]) -> Transcript
where
    C: Pipeline<In = Slice, Out = Payload>,
{
    let alone = echo(make, plain, <[u8]>::to_vec);
    let prefixed = [PREFIX, plain].concat();
    let same = |stacked: Transcript, stack: &str| {
        assert_eq!(stacked.messages, alone.messages, "{stack}");
        assert_eq!(stacked.replies, alone.replies, "{stack}");
        assert_eq!(stacked.blame(), alone.blame(), "{stack}");
        if let (Some(below), Some(error)) = (stacked.error(), alone.error()) {
            assert!(below.ends_with(&format!("Codec({error}){}", ")".repeat(below.matches("Codec(").count() - 1))));
        }
    };
    for record in RECORDS {
        let server = || Over::new(ToyTls::server(KEY), make());
        same(echo(server, &ToyTls::client_wire(KEY, plain, record), decode_wire), "a server's TLS");
        let client = || Over::new(ToyTls::client(KEY), make());
        same(echo(client, &ToyTls::server_wire(KEY, plain, record), decode_wire), "a client's TLS");
        let within = || Over::new(ToyTls::server(KEY), Over::new(StripPrefix::new(PREFIX), make()));
        same(echo(within, &ToyTls::client_wire(KEY, &prefixed, record), decode_wire), "a prefix within TLS");
        let before = || Over::new(StripPrefix::new(PREFIX), Over::new(ToyTls::server(KEY), make()));
        let wire = [PREFIX, &ToyTls::client_wire(KEY, plain, record)].concat();
        same(echo(before, &wire, decode_wire), "a prefix before TLS");
    }
    let strip = || Over::new(StripPrefix::new(PREFIX), make());
    same(echo(strip, &prefixed, <[u8]>::to_vec), "a prefix");
    alone
}

#[test]
fn lines_are_the_same_under_every_stack() {
    let plain = b"ebb\n\nflow\na rather longer line, of which pieces come\n";
    let seen = same_under_every_stack(Lines::new, plain);
    assert_eq!(seen.messages.len(), 4);
    assert_eq!(seen.replies, plain);
    let crlf = b"ebb\r\n\r\nslack\rwater\r\n";
    assert_eq!(same_under_every_stack(|| Lines::new().with_crlf(), crlf).replies, crlf);
}

#[test]
fn a_line_cut_off_is_the_same_under_every_stack() {
    assert_eq!(same_under_every_stack(Lines::new, b"ebb\nflo").error(), Some("Truncated { bytes: 3 }"));
    let open = same_under_every_stack(|| Lines::new().with_open_end(), b"ebb\nflo");
    assert_eq!((open.messages.len(), open.error()), (2, None));
}

#[test]
fn a_line_too_long_is_the_same_under_every_stack() {
    let seen = same_under_every_stack(|| Lines::new().with_line_bytes_max(8), b"12345678\r\n123456789\nebb\n");
    assert_eq!((seen.messages.len(), seen.blame()), (1, Some(Blame::Limit)));
}

#[test]
fn delimited_frames_are_the_same_under_every_stack() {
    for delimiter in ["\0", "--", "aab", "\r\n.\r\n"] {
        let framing = Delimiter::new(delimiter);
        let plain = ["ebb", "", "flow", "a-b"].map(|frame| format!("{frame}{delimiter}")).concat();
        let seen = same_under_every_stack(|| framing.clone(), plain.as_bytes());
        assert_eq!((seen.messages.len(), seen.replies), (4, plain.clone().into_bytes()));
        let cut = &plain.as_bytes()[..plain.len() - 1];
        assert_eq!(same_under_every_stack(|| framing.clone(), cut).blame(), Some(Blame::Peer));
    }
}

#[test]
fn fixed_frames_are_the_same_under_every_stack() {
    let seen = same_under_every_stack(|| Fixed::new(5), b"0423+0424+0424=042");
    assert_eq!((seen.messages.len(), seen.error()), (3, Some("Truncated { bytes: 3 }")));
}

#[test]
fn frames_with_a_length_are_the_same_under_every_stack() {
    let seen = same_under_every_stack(|| LengthField::new(2), b"\0\x03ebb\0\0\0\x04flow");
    assert_eq!(seen.replies, b"\0\x03ebb\0\0\0\x04flow");
    let whole = || LengthField::builder(1).offset(2).adjustment(-3).strip(0).build();
    assert_eq!(same_under_every_stack(whole, b"TY\x06ebbOK\x03").messages.len(), 2);
    assert_eq!(same_under_every_stack(whole, b"TY\x06ebbNO\x02").error(), Some("DeclaredTooShort { declared: 2 }"));
}

#[test]
fn frames_behind_a_varint_are_the_same_under_every_stack() {
    let wire = [&b"\x03ebb\0\xAC\x02"[..], &[b'x'; 300]].concat();
    assert_eq!(same_under_every_stack(VarintLength::new, &wire).replies, wire);
    let cut = same_under_every_stack(VarintLength::new, &wire[..wire.len() - 1]);
    assert_eq!((cut.messages.len(), cut.blame()), (2, Some(Blame::Peer)));
    let endless = same_under_every_stack(VarintLength::new, &[0x80; 6]);
    assert_eq!(endless.error(), Some("Unexpected { at: 4 }"));
}

#[test]
fn json_values_are_the_same_under_every_stack() {
    let wire = b"{\"a\":[1,\"}\\\"\"]}\n[]\n\"b\"\n";
    assert_eq!(same_under_every_stack(Json::new, wire).replies, wire);
    assert_eq!(same_under_every_stack(Json::new, b"[] [1,{\"a").error(), Some("Truncated { bytes: 6 }"));
    assert_eq!(same_under_every_stack(Json::new, b"{}[}]").error(), Some("Unexpected { at: 1 }"));
    let deep = same_under_every_stack(|| Json::new().with_depth_max(2), b"[[]] [[[]]]");
    assert_eq!((deep.messages.len(), deep.blame()), (1, Some(Blame::Limit)));
}

#[test]
fn raw_bytes_are_the_same_under_every_stack() {
    let plain = b"ebb\r\n\0flow";
    let seen = same_under_every_stack(Bytewise::default, plain);
    assert_eq!((seen.messages.len(), seen.blame(), seen.replies), (plain.len(), None, plain.to_vec()));
    assert_eq!(same_under_every_stack(Bytewise::default, b"").messages.len(), 0);
}

#[test]
fn messages_longer_than_a_record_and_a_receive_come_whole() {
    let (line, wire) = ([b'x'; 100_000], [&[b'x'; 100_000][..], b"\n"].concat());
    let make = || Over::new(ToyTls::server(KEY), Lines::new().with_line_bytes_max(100_000));
    let seen = Contract::rendered(make, |line| line.len().to_string())
        .answer(|line, codec, out| {
            tidegate_codec::Stages::encode(codec, line.into(), out).expect("a received message may be sent");
        })
        .replies(decode_wire)
        .rounds(4)
        .check(&ToyTls::client_wire(KEY, &wire, RECORD_BYTES_MAX));
    assert_eq!((seen.messages, seen.replies), (vec![line.len().to_string()], wire));
}

#[test]
fn oversized_messages_are_refused_before_memory_is_taken() {
    let huge: [(&str, &[u8]); 3] = [
        ("4 GiB", b"\xff\xff\xff\xff"),
        ("just too long", b"\0\x10\0\0"),
        ("and some bytes", b"\x7f\xff\xff\xffsome bytes of it"),
    ];
    for (name, wire) in huge {
        assert_eq!(refuses_before_allocating(|| LengthField::new(4), wire).blame(), Some(Blame::Limit), "{name}");
        let stack = || Over::new(ToyTls::server(KEY), LengthField::new(4));
        let wire = [b"TOY?\0", &[wire.len() as u8][..], &wire.iter().map(|b| b ^ KEY).collect::<Vec<_>>()].concat();
        assert_eq!(refuses_before_allocating(stack, &wire).blame(), Some(Blame::Limit), "{name}");
    }
    refuses_before_allocating(|| LengthField::new(8), &[0xff; 8]);
    refuses_before_allocating(VarintLength::new, b"\xff\xff\xff\xff\x0f");
    refuses_before_allocating(|| VarintLength::new().wide(), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    refuses_before_allocating(|| Json::new().with_frame_bytes_max(1_000), &[b'['; 1_002]);
    refuses_before_allocating(|| Lines::new().with_line_bytes_max(1_000), &[b'x'; 1_002]);
    refuses_before_allocating(|| Delimiter::new("--").with_frame_bytes_max(1_000), &[b'x'; 1_002]);
    refuses_before_allocating(|| Over::new(ToyTls::server(KEY), Lines::new()), b"TOY?\xff\xff");
}

#[test]
fn no_bytes_make_a_framing_panic() {
    never_panics(Lines::new, b"ebb\r\nflow\n\r\n", 2_000);
    never_panics(|| Lines::new().with_line_bytes_max(5).with_open_end(), b"ebb\r\nflow\n\r\n", 2_000);
    let delimiter = Delimiter::new("aab").with_frame_bytes_max(9);
    never_panics(|| delimiter.clone(), b"ebbaabaaabaabaabflow", 2_000);
    never_panics(|| Fixed::new(3), b"ebbflosla", 1_000);
    never_panics(|| LengthField::new(1), b"\x03ebb\0\x04flow", 2_000);
    let odd = || LengthField::builder(3).offset(1).little_endian().adjustment(-4).strip(2).frame_bytes_max(50).build();
    never_panics(odd, b"T\x07\0\0ebbT\x04\0\0T\x05\0\0x", 2_000);
    let huge = || LengthField::builder(8).adjustment(i64::MIN).build();
    never_panics(|| VarintLength::new().wide(), b"\x03ebb\x80\x80\0\x84\0flow", 2_000);
    never_panics(Json::new, b"{\"a\":[1,\"\\\"]\"]}[]\"x\"", 2_000);
    never_panics(Bytewise::default, b"ebb\r\nflow", 500);
    never_panics(huge, b"\x80\0\0\0\0\0\0\x03ebb", 2_000);
}

#[test]
fn no_bytes_make_a_stack_panic() {
    let wire = ToyTls::client_wire(KEY, &[PREFIX, b"ebb\r\nflow\n"].concat(), 5);
    let stack = || Over::new(ToyTls::server(KEY), Over::new(StripPrefix::new(PREFIX), Lines::new()));
    never_panics(stack, &wire, 3_000);
    let stack = || Over::new(StripPrefix::new(b"P"), Over::new(ToyTls::client(KEY), LengthField::new(1)));
    let wire = [b"P", &ToyTls::server_wire(KEY, b"\x03ebb\0\x04flow", 2)[..]].concat();
    never_panics(stack, &wire, 3_000);
}
