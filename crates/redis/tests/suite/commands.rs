//! Commands in every split, and the bytes of replies.

use tidegate_codec::framing::Payload;
use tidegate_redis::{AggregateKind, IncomingCommand, OutgoingReply, ProtocolLimits, RedisError, ServerCodec, Version};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract;

const WIRE: &[u8] = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$12\r\n0123\r\n6789\r\n\r\n\
    GET a\r\n\r\n*0\r\n  set \"b\\x41\" 'c' \n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n";

#[test]
fn commands_are_decoded_the_same_in_every_split() {
    let seen = contract::check(ServerCodec::default, WIRE);
    assert!(!seen.has_failed(), "{seen}");
    let wanted = [
        r#"Whole(["PING"])"#,
        r#"Whole(["SET", "a", "0123\\r\\n6789\\r\\n"])"#,
        r#"Whole(["GET", "a"])"#,
        r#"Whole(["set", "bA", "c"])"#,
        r#"Whole(["ECHO", ""])"#,
    ];
    assert_eq!(seen.messages, wanted);
    // The pieces of a long command depend on the split.
    let limits = ProtocolLimits { whole_bytes_max: ProtocolLimits::WHOLE_BYTES_MAX, ..ProtocolLimits::default() };
    contract::never_panics(|| ServerCodec::new(limits), WIRE, 1_000);
}

#[test]
fn arguments_are_found_by_place_with_lengths_of_any_number_of_digits() {
    for length in [0, 1, 9, 10, 99, 100, 12_345] {
        let value = vec![b'\r'; length];
        let mut wire = format!("*3\r\n$3\r\nSET\r\n${length}\r\n").into_bytes();
        wire.extend_from_slice(&value);
        wire.extend_from_slice(b"\r\n$1\r\nz\r\n");
        let mut server = CodecHarness::new(ServerCodec::default());
        let commands = server.decode(&wire).unwrap();
        let [IncomingCommand::Whole(command)] = &commands[..] else { panic!("{commands:?}") };
        assert_eq!((command.argument(1), command.argument(2)), (Some(&value[..]), Some(&b"z"[..])));
        assert_eq!((command.argument(3), command.count(), command.iter().len()), (None, 3, 3));
    }
}

#[test]
fn a_million_arguments_are_one_view_and_one_more_is_refused() {
    let limits = ProtocolLimits { whole_bytes_max: 64 << 20, elements_max: 100_000, ..ProtocolLimits::default() };
    let wire = |count: usize| format!("*{count}\r\n{}", "$1\r\na\r\n".repeat(count)).into_bytes();
    let mut server = CodecHarness::new(ServerCodec::new(limits));
    let mut commands = Vec::new();
    for part in wire(100_000).chunks(60_000) {
        commands.extend(server.decode(part).unwrap());
    }
    let [IncomingCommand::Whole(command)] = &commands[..] else { panic!("one command") };
    assert_eq!(command.iter().filter(|argument| *argument == b"a").count(), 100_000);
    let seen = contract::refuses_before_allocating(|| ServerCodec::new(limits), b"*100001\r\n");
    assert_eq!(seen.replies, b"-ERR Protocol error: invalid multibulk length\r\n");
}

fn sent(version: Version, messages: impl IntoIterator<Item = OutgoingReply>) -> Result<String, RedisError> {
    let mut server = CodecHarness::new(ServerCodec::default().with_version(version));
    for message in messages {
        server.encode(message)?;
    }
    server.flush()?;
    Ok(String::from_utf8(server.take_sent()).unwrap().replace("\r\n", " "))
}

#[test]
fn every_type_is_written_in_both_versions() {
    let map = || OutgoingReply::aggregate(AggregateKind::Map, ["a", "b"].map(OutgoingReply::bulk));
    let cases = [
        (OutgoingReply::ok(), "+OK ", "+OK "),
        (OutgoingReply::error("ERR no"), "-ERR no ", "-ERR no "),
        (OutgoingReply::Integer(i64::MIN), ":-9223372036854775808 ", ":-9223372036854775808 "),
        (OutgoingReply::Double(1.5), "$3 1.5 ", ",1.5 "),
        (OutgoingReply::Double(f64::NEG_INFINITY), "$4 -inf ", ",-inf "),
        (OutgoingReply::Boolean(true), ":1 ", "#t "),
        (OutgoingReply::Null, "$-1 ", "_ "),
        (OutgoingReply::NullArray, "*-1 ", "_ "),
        (OutgoingReply::BigNumber("-123".into()), "$4 -123 ", "(-123 "),
        (OutgoingReply::bulk("ebb"), "$3 ebb ", "$3 ebb "),
        (OutgoingReply::BulkError("ERR no".into()), "-ERR no ", "!6 ERR no "),
        (OutgoingReply::Verbatim(*b"txt", "ebb".into()), "$3 ebb ", "=7 txt:ebb "),
        (map(), "*2 $1 a $1 b ", "%1 $1 a $1 b "),
        (OutgoingReply::aggregate(AggregateKind::Set, [OutgoingReply::Null]), "*1 $-1 ", "~1 _ "),
        (OutgoingReply::aggregate(AggregateKind::Push, [OutgoingReply::Null]), "*1 $-1 ", ">1 _ "),
    ];
    for (message, resp2, resp3) in cases {
        assert_eq!(sent(Version::Resp2, [message.clone()]).as_deref(), Ok(resp2), "{message:?}");
        assert_eq!(sent(Version::Resp3, [message.clone()]).as_deref(), Ok(resp3), "{message:?}");
    }
}

#[test]
fn streamed_values_exist_in_resp3_only() {
    let values = || {
        [
            OutgoingReply::StreamedAggregate(AggregateKind::Array),
            OutgoingReply::StreamedBulk,
            OutgoingReply::Chunk("ebb".into()),
            OutgoingReply::Chunk("".into()),
            OutgoingReply::ChunksEnd,
            OutgoingReply::StreamEnd,
        ]
    };
    assert_eq!(sent(Version::Resp3, values()).as_deref(), Ok("*? $? ;3 ebb ;0 . "));
    assert_eq!(sent(Version::Resp2, values()), Err(RedisError::Resp3Only));
    let attribute = || OutgoingReply::Aggregate(AggregateKind::Attribute, 0);
    assert_eq!(sent(Version::Resp3, [attribute(), OutgoingReply::Null]).as_deref(), Ok("|0 _ "));
    assert_eq!(sent(Version::Resp2, [attribute()]), Err(RedisError::Resp3Only));
}

#[test]
fn a_line_break_in_a_simple_string_or_an_error_is_refused_and_nothing_is_written() {
    for text in ["a\rb", "a\nb", "\r\n", "OK\r\n+OK"] {
        for message in [OutgoingReply::Simple(text.into()), OutgoingReply::error(text)] {
            let all = OutgoingReply::All(vec![OutgoingReply::ok(), message.clone()]);
            for message in [message, all] {
                let mut server = CodecHarness::new(ServerCodec::default());
                assert_eq!(server.encode(message), Err(RedisError::LineBreak));
                server.encode(OutgoingReply::bulk(text)).unwrap();
                server.flush().unwrap();
                assert_eq!(server.take_sent(), format!("${}\r\n{text}\r\n", text.len()).as_bytes());
            }
        }
    }
}

#[test]
fn a_torn_reply_is_an_error_of_the_caller() {
    let array = OutgoingReply::Aggregate(AggregateKind::Array, 2);
    let push = OutgoingReply::Aggregate(AggregateKind::Push, 0);
    let torn = OutgoingReply::All(vec![array.clone(), OutgoingReply::Null]);
    assert_eq!(sent(Version::Resp3, [torn]), Err(RedisError::Incomplete));
    assert_eq!(sent(Version::Resp3, [array.clone(), push]), Err(RedisError::NotDue));
    assert_eq!(sent(Version::Resp3, [array, OutgoingReply::All(vec![])]), Err(RedisError::NotDue));
    let data = |text: &'static str| OutgoingReply::Data(Payload::from(text));
    for wrong in [data("ebb"), OutgoingReply::StreamEnd, OutgoingReply::ChunksEnd, OutgoingReply::Chunk("".into())] {
        assert_eq!(sent(Version::Resp3, [wrong]), Err(RedisError::NotDue));
    }
    assert_eq!(sent(Version::Resp3, [OutgoingReply::BulkHead(2), data("ebb")]), Err(RedisError::NotDue));
    let whole = [OutgoingReply::BulkHead(3), data("e"), data("bb"), OutgoingReply::BulkHead(0)];
    assert_eq!(sent(Version::Resp2, whole).as_deref(), Ok("$3 ebb $0  "));
}

#[test]
fn a_push_waits_while_a_reply_is_under_way() {
    use tidegate_codec::Broadcast;
    let mut server = CodecHarness::new(ServerCodec::default());
    server.encode(OutgoingReply::BulkHead(3)).unwrap();
    let push = tidegate_codec::Pool::new().copy(b">1\r\n_\r\n");
    let (codec, mut out) = server.parts();
    codec.write_encoded(push, &mut out).unwrap();
    server.encode(OutgoingReply::Data("ebb".into())).unwrap();
    server.flush().unwrap();
    assert_eq!(server.take_sent(), b"$3\r\nebb\r\n>1\r\n_\r\n");
}
