//! `Over`, tested with the two test filters, and the filters themselves.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tidegate_buffer::Scratch;
use tidegate_codec::framing::{Fixed, FramingError, Lines, Payload};
use tidegate_codec::{
    Blame, Codec, Fault, FileRegion, Filter, Input, Outbound, Output, Over, OverError, Pipeline, Pool, Slice, Stages,
    Step, Time,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::filters::{PrefixError, RECORD_BYTES_MAX, StripPrefix, ToyTls, ToyTlsError};

const KEY: u8 = 0x5a;

type TlsLines = Over<ToyTls, Lines>;

fn client() -> CodecHarness<TlsLines> {
    let mut harness = CodecHarness::new(Over::new(ToyTls::client(KEY), Lines::new()));
    harness.flush().unwrap();
    harness
}

fn server() -> CodecHarness<TlsLines> {
    CodecHarness::new(Over::new(ToyTls::server(KEY), Lines::new()))
}

/// A client and a server after their handshake.
fn connected() -> (CodecHarness<TlsLines>, CodecHarness<TlsLines>) {
    let (mut client, mut server) = (client(), server());
    assert!(server.decode(&client.take_sent()).unwrap().is_empty());
    assert!(client.decode(&server.take_sent()).unwrap().is_empty());
    assert!(client.codec().is_established() && server.codec().is_established());
    (client, server)
}

fn texts(messages: Vec<Slice>) -> Vec<String> {
    messages.into_iter().map(|message| message.escape_ascii().to_string()).collect()
}

/// The result of decoding to the end of the stream.
fn ended<C: Pipeline<In = Slice>>(harness: &mut CodecHarness<C>) -> Result<Vec<String>, C::Error> {
    let mut messages = Vec::new();
    while let Step::Message(message) = harness.decode_eof()? {
        messages.push(message);
    }
    Ok(texts(messages))
}

#[test]
fn a_handshake_is_made_and_messages_go_both_ways() {
    let (mut client, mut server) = connected();
    client.encode("ebb".into()).unwrap();
    client.encode("flow".into()).unwrap();
    client.flush().unwrap();
    let sent = client.take_sent();
    assert_eq!(&sent[..2], [0, 9], "both lines are in one record");
    assert_eq!(texts(server.decode(&sent).unwrap()), ["ebb", "flow"]);
    server.encode("slack".into()).unwrap();
    server.flush().unwrap();
    assert_eq!(texts(client.decode(&server.take_sent()).unwrap()), ["slack"]);
}

#[test]
fn the_handshake_runs_without_a_pending_receive() {
    let (mut client, mut server) = (client(), server());
    assert!(!server.codec().is_established());
    server.receive(&client.take_sent());
    server.drive_handshake().unwrap();
    server.flush().unwrap();
    client.receive(&server.take_sent());
    client.drive_handshake().unwrap();
    assert!(server.codec().is_established() && client.codec().is_established());
}

#[test]
fn writes_during_the_handshake_wait_and_are_counted() {
    let (mut client, mut server) = (client(), server());
    let mark = client.encode("early".into()).unwrap();
    client.flush().unwrap();
    let hello = client.take_sent();
    assert_eq!(hello, b"TOY?");
    assert!(client.codec().buffered_bytes() >= 6, "bytes that wait above the filter count");
    assert!(!client.is_flushed(mark));
    server.decode(&hello).unwrap();
    client.decode(&server.take_sent()).unwrap();
    assert!(!client.is_flushed(mark), "it is in the queue, and not sent");
    assert_eq!(texts(server.decode(&client.take_sent()).unwrap()), ["early"]);
    assert!(client.is_flushed(mark));
    assert_eq!(client.codec().buffered_bytes(), 0);
}

#[test]
fn marks_are_translated_through_every_filter() {
    let mut harness =
        CodecHarness::new(Over::new(ToyTls::server(KEY), Over::new(StripPrefix::new(b"P"), Lines::new())));
    harness.decode(&ToyTls::client_wire(KEY, b"P", 1)[..7]).unwrap();
    harness.take_sent();
    let first = harness.encode("ebb".into()).unwrap();
    assert_eq!(first.0, 4, "a mark counts the bytes of the uppermost codec");
    assert_eq!(harness.codec().wire_offset(first), None, "it has not come through the filters yet");
    harness.flush().unwrap();
    assert_eq!(harness.codec().wire_offset(first), Some(4 + 2 + 4), "hello, the length of the record, the line");
    let second = harness.encode("flow".into()).unwrap();
    assert_eq!(harness.take_sent_up_to(5).len(), 5);
    assert!(!harness.is_flushed(first), "half of the record is not the line");
    harness.take_sent();
    assert!(harness.is_flushed(first));
    assert!(!harness.is_flushed(second), "it was not flushed");
    harness.flush().unwrap();
    assert!(!harness.is_flushed(second));
    harness.take_sent();
    assert!(harness.is_flushed(second));
}

#[test]
fn large_messages_are_cut_into_records() {
    let (mut client, mut server) = connected();
    let line = vec![b'x'; 8 * 1024];
    client.encode(line.clone().into()).unwrap();
    client.flush().unwrap();
    let sent = client.take_sent();
    assert_eq!(usize::from(u16::from_be_bytes([sent[0], sent[1]])), RECORD_BYTES_MAX);
    assert_eq!(sent.len(), line.len() + 1 + 3 * 2, "two full records and one for the LF");
    assert_eq!(*server.decode(&sent).unwrap()[0], line[..]);
}

#[test]
fn another_codec_takes_over_bytes_that_were_already_read() {
    let (mut client, mut server) = connected();
    client.encode("switch".into()).unwrap();
    client.encode("abcdefg".into()).unwrap();
    client.flush().unwrap();
    server.receive(&client.take_sent());
    let Step::Message(line) = server.step().unwrap() else { panic!("a line is complete") };
    assert_eq!(&*line, b"switch");
    // Bytes that were read and opened, and bytes that wait to be sealed, are kept.
    server.encode("last".into()).unwrap();
    let mut server = server.map(|stack| stack.map(|_| Fixed::new(4)));
    server.encode("four".into()).unwrap();
    assert_eq!(texts(server.decode(b"").unwrap()), ["abcd", "efg\\n"]);
    client.receive(&server.take_sent());
    let Step::Message(line) = client.step().unwrap() else { panic!("a line is complete") };
    assert_eq!(&*line, b"last");
    let mut client = client.map(|stack| stack.map(|_| Fixed::new(4)));
    assert_eq!(texts(client.decode(b"").unwrap()), ["four"]);
}

#[test]
fn a_stream_that_ends_with_a_goodbye_is_complete() {
    let (mut client, mut server) = connected();
    client.encode("ebb".into()).unwrap();
    client.close().unwrap();
    client.close().unwrap();
    let sent = client.take_sent();
    assert!(sent.ends_with(b"\0\0") && !sent.ends_with(b"\0\0\0\0"), "one goodbye, behind the written bytes");
    server.receive(&sent);
    assert_eq!(texts(vec![step_message(&mut server)]), ["ebb"]);
    assert_eq!(server.step().unwrap(), Step::End, "the peer ended the plain side");
    assert_eq!(ended(&mut server).unwrap(), [""; 0]);
    server.encode("answer".into()).unwrap();
    server.close().unwrap();
    assert_eq!(texts(client.decode(&server.take_sent()).unwrap()), ["answer"], "the other side is still open");
}

fn step_message<C: Pipeline<In = Slice, Error: std::fmt::Debug>>(harness: &mut CodecHarness<C>) -> Slice {
    match harness.step() {
        Ok(Step::Message(message)) => message,
        _ => panic!("a message is complete"),
    }
}

#[test]
fn nothing_waits_behind_the_closing_bytes() {
    let (mut client, _) = connected();
    client.close().unwrap();
    let sent = client.take_sent();
    client.encode("too late".into()).unwrap();
    assert_ne!(client.codec().buffered_bytes(), 0, "until the next flush");
    client.flush().unwrap();
    assert_eq!(client.codec().buffered_bytes(), 0, "or the connection would wait for its write timeout");
    assert!(sent.ends_with(b"\0\0") && client.take_sent().is_empty());
}

#[test]
fn a_stream_that_just_ends_was_cut_off() {
    let (mut client, mut server) = connected();
    client.encode("ebb".into()).unwrap();
    client.flush().unwrap();
    server.receive(&client.take_sent());
    assert_eq!(texts(vec![step_message(&mut server)]), ["ebb"]);
    let error = ended(&mut server).unwrap_err();
    assert!(matches!(error, OverError::Filter(ToyTlsError::Truncated)));
    assert_eq!(error.blame(), Blame::Peer);
    // Within the handshake as well.
    let mut server = self::server();
    server.receive(b"TO");
    assert!(matches!(ended(&mut server), Err(OverError::Filter(ToyTlsError::Truncated))));
}

#[test]
fn a_goodbye_within_a_line_cuts_the_line_off() {
    let mut server = server();
    server.receive(&ToyTls::client_wire(KEY, b"ebb\nflo", 7));
    assert_eq!(texts(vec![step_message(&mut server)]), ["ebb"]);
    assert!(matches!(server.step(), Err(OverError::Codec(FramingError::Truncated { bytes: 3 }))));
}

#[test]
fn replies_before_an_error_are_sent_through_the_filter() {
    let mut server = server();
    server.receive(&[&ToyTls::client_wire(KEY, b"ebb\n", 4)[..10], b"\xff\xff"].concat());
    let line = step_message(&mut server);
    server.encode(line.into()).unwrap();
    let error = server.step().unwrap_err();
    assert!(matches!(error, OverError::Filter(ToyTlsError::RecordTooLong { bytes: 0xffff })));
    assert_eq!(ToyTls::decode_wire(KEY, &server.take_sent()), (b"ebb\n".to_vec(), false));
}

#[test]
fn a_wrong_hello_is_refused_at_its_first_wrong_byte() {
    for wire in [&b"X"[..], b"TOX", b"TOY!", b"GET / HTTP/1.1"] {
        let error = server().decode(wire).unwrap_err();
        assert!(matches!(error, OverError::Filter(ToyTlsError::BadHello)), "{}", wire.escape_ascii());
    }
    assert!(matches!(client().decode(b"TOY?"), Err(OverError::Filter(ToyTlsError::BadHello))));
}

#[test]
fn a_handshake_has_a_deadline_and_a_connection_none() {
    let deadline = Instant::now() + Duration::from_secs(10);
    let make = || CodecHarness::new(Over::new(ToyTls::server(KEY).with_deadline(deadline), Lines::new()));
    let mut slow = make();
    assert_eq!(slow.codec().poll_timeout(), Some(deadline));
    slow.advance_time(Duration::from_secs(5)).unwrap();
    let error = slow.advance_time(Duration::from_secs(6)).unwrap_err();
    assert!(matches!(error, OverError::Filter(ToyTlsError::TimedOut)));
    assert_eq!(error.blame(), Blame::Limit);
    let mut quick = make();
    quick.decode(b"TOY?").unwrap();
    assert_eq!(quick.codec().poll_timeout(), None);
    quick.advance_time(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_prefix_is_stripped_and_a_different_one_refused() {
    let make = || CodecHarness::new(Over::new(StripPrefix::new(b"PROXY "), Lines::new()));
    assert_eq!(texts(make().decode(b"PROXY ebb\n").unwrap()), ["ebb"]);
    for wire in [&b"X"[..], b"PROXYebb\n"] {
        assert!(matches!(make().decode(wire), Err(OverError::Filter(PrefixError::Mismatch))));
    }
    let mut short = make();
    assert!(short.decode(b"PROX").unwrap().is_empty());
    assert!(!short.codec().is_established());
    assert!(matches!(ended(&mut short), Err(OverError::Filter(PrefixError::Missing))));
}

#[test]
fn bytes_after_the_prefix_are_passed_on_without_copying() {
    let mut harness =
        CodecHarness::new(Over::new(StripPrefix::new(b"P"), Over::new(StripPrefix::new(b"Q"), Fixed::new(30_000))));
    harness.receive(&[b"PQ", &[b'x'; 30_000][..]].concat());
    let received = harness.input().bytes()[2..].as_ptr();
    let frame = step_message(&mut harness);
    assert!(std::ptr::eq(frame.as_ptr(), received), "the message lies where it was received");
    let bytes = Bytes::from(frame.to_vec());
    harness.encode(frame.into()).unwrap();
    harness.encode(bytes.clone().into()).unwrap();
    harness.flush().unwrap();
    assert!(std::ptr::eq(harness.queue().front().unwrap().as_ptr(), received), "and is sent from there");
    assert_eq!(harness.take_sent_up_to(30_000).len(), 30_000);
    assert!(std::ptr::eq(harness.queue().front().unwrap().as_ptr(), bytes.as_ptr()), "and so are shared bytes");
    harness.take_sent();
    harness.compact();
    harness.release_scratch();
    assert_eq!(harness.pool().ledger().used(), 0);
}

/// Sends files and receives nothing.
struct Files;

impl Codec for Files {
    type In = Slice;
    type Out = Result<FileRegion, Payload>;
    type Error = FramingError;

    fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), FramingError> {
        match message {
            Ok(region) => out.link_file(region),
            Err(payload) => out.write(payload.as_ref()),
        }
        Ok(())
    }
}

/// A region of 50,000 bytes of a file, and those bytes.
fn region() -> (FileRegion, Vec<u8>) {
    let bytes: Vec<u8> = (0..60_000_u32).map(|number| (number % 251) as u8).collect();
    let path = std::env::temp_dir().join(format!("tidegate-filters-{}", std::process::id()));
    let name = path.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::File::create(&name).and_then(|mut file| file.write_all(&bytes)).unwrap();
    let file = Arc::new(std::fs::File::open(&name).unwrap());
    std::fs::remove_file(&name).unwrap();
    (FileRegion { file, offset: 5_000, length: 50_000 }, bytes[5_000..55_000].to_vec())
}

#[test]
fn a_file_bypasses_a_filter_that_allows_it() {
    let (region, bytes) = region();
    let mut harness = CodecHarness::new(Over::new(StripPrefix::new(b""), Files));
    harness.encode(Err("head".into())).unwrap();
    harness.encode(Ok(region)).unwrap();
    assert!(harness.parts().0.file_to_load().is_none());
    harness.flush().unwrap();
    assert_eq!(harness.take_sent_up_to(4), b"head");
    assert!(harness.queue().starts_with_file(), "it is left to the engine to send it");
    assert_eq!(harness.take_sent(), bytes);
}

#[test]
fn a_file_is_read_for_a_filter_that_must_see_it() {
    let (region, bytes) = region();
    let mut harness = CodecHarness::new(Over::new(ToyTls::server(KEY), Over::new(StripPrefix::new(b""), Files)));
    harness.decode(b"TOY?").unwrap();
    harness.encode(Err("head".into())).unwrap();
    harness.encode(Ok(region)).unwrap();
    let mark = harness.encode(Err("tail".into())).unwrap();
    harness.flush().unwrap();
    assert!(!harness.queue().starts_with_file());
    let (plain, _) = ToyTls::decode_wire(KEY, &harness.take_sent());
    assert_eq!(plain, [b"head", &bytes[..], b"tail"].concat());
    assert!(harness.is_flushed(mark));
}

#[test]
fn after_the_end_of_a_filter_its_codec_goes_on_without_it() {
    let mut harness = server();
    harness.receive(&[&ToyTls::client_wire(KEY, b"ebb\nflow\n", 5)[..], b"slack\nflo"].concat());
    assert_eq!(harness.step().unwrap(), Step::Message(harness.pool().copy(b"ebb")));
    assert_eq!(harness.step().unwrap(), Step::Message(harness.pool().copy(b"flow")));
    assert_eq!(harness.step().unwrap(), Step::End);
    harness.encode("farewell".into()).unwrap();
    harness.close().unwrap();
    assert_eq!(ToyTls::decode_wire(KEY, &harness.take_sent()), (b"farewell\n".to_vec(), true));
    let mut harness = harness.map(|stack| {
        let (filter, lines, plain) = stack.into_parts();
        assert!(filter.is_established() && plain.is_empty());
        lines
    });
    assert_eq!(harness.input().bytes(), b"slack\nflo", "bytes behind the goodbye were not touched");
    assert_eq!(texts(harness.decode(b"od\n").unwrap()), ["slack", "flood"]);
    harness.encode("plain".into()).unwrap();
    harness.flush().unwrap();
    assert_eq!(harness.take_sent(), b"plain\n");
}

#[test]
fn undecoded_bytes_come_out_of_the_stack() {
    let mut harness = server();
    harness.receive(&ToyTls::client_wire(KEY, b"ebb\nflo", 7));
    assert_eq!(harness.step().unwrap(), Step::Message(harness.pool().copy(b"ebb")));
    let mut left = None;
    let harness = harness.map(|stack| {
        let (_, lines, plain) = stack.into_parts();
        left = Some(plain);
        lines
    });
    assert_eq!(left.expect("it was taken apart").bytes(), b"flo");
    assert_eq!(harness.input().bytes(), [0, 0], "the goodbye was not heard yet");
}

#[test]
fn messages_of_a_stack_escape_where_its_input_does() {
    let pool = Pool::new();
    let time = Time::new(Instant::now(), SystemTime::UNIX_EPOCH);
    let mut scratch = Scratch::new(&pool);
    let mut queue = Outbound::new(&pool);
    let mut reply = Output::new(&mut queue, &pool, &time);
    let mut stack = Over::new(StripPrefix::new(b"<"), Over::new(StripPrefix::new(b">"), Fixed::new(100)));
    let mut input = Input::new();
    for on in [true, false] {
        input.set_escaping(on);
        // Long enough that the filter passes on a view, not a copy.
        let wire = [&[b'<', b'>'][..], &[7; 10_000]].concat();
        let wire = if on { &wire[..] } else { &wire[2..] };
        scratch.space(wire.len())[..wire.len()].copy_from_slice(wire);
        let at = scratch.space(wire.len()).as_ptr();
        input.append(scratch.received(wire.len()), &pool);
        let mut kept = Vec::new();
        while let Step::Message(message) = stack.decode(&mut input, &mut reply).unwrap() {
            kept.push(message);
        }
        assert_eq!(kept.len(), 100);
        input.compact(&pool);
        stack.compact(&pool);
        assert_eq!(scratch.space(1).as_ptr() == at, on, "is the scratch free?");
    }
}
