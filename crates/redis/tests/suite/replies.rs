//! Replies in every split, read in place.

use tidegate_redis::{
    AggregateKind, ClientCodec, CommandBuffer, IncomingReply, OutgoingCommand, ProtocolLimits, RedisError, Reply, Value,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract;

const WIRE: &[u8] = b"+OK\r\n-ERR no\r\n:-42\r\n,1.5\r\n,inf\r\n,nan\r\n#t\r\n_\r\n(123456789012345678901234567890\r\n\
    $3\r\nebb\r\n!6\r\nERR\r\nx\r\n=7\r\ntxt:ebb\r\n*2\r\n:1\r\n*1\r\n$-1\r\n~1\r\n+a\r\n%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n\
    |1\r\n+ttl\r\n:7\r\n$1\r\na\r\n>2\r\n+message\r\n$2\r\n\r\n\r\n$?\r\n;3\r\nebb\r\n;1\r\n!\r\n;0\r\n\
    *?\r\n:1\r\n%?\r\n+a\r\n$?\r\n;0\r\n.\r\n.\r\n*-1\r\n*0\r\n$0\r\n\r\n*1\r\n|1\r\n+a\r\n+b\r\n:3\r\n";

#[test]
fn replies_of_every_type_are_decoded_the_same_in_every_split() {
    let seen = contract::check(ClientCodec::default, WIRE);
    assert!(!seen.has_failed(), "{seen}");
    let wanted = [
        r#"Reply(+"OK")"#,
        r#"Reply(-"ERR no")"#,
        "Reply(-42)",
        "Reply(1.5)",
        "Reply(inf)",
        "Reply(NaN)",
        "Reply(true)",
        "Reply(null)",
        r#"Reply(("123456789012345678901234567890")"#,
        r#"Reply("ebb")"#,
        r#"Reply(!"ERR\r\nx")"#,
        r#"Reply(="txt":"ebb")"#,
        "Reply(*[1, *[null]])",
        r#"Reply(~[+"a"])"#,
        r#"Reply(%[+"a", 1, +"b", 2])"#,
        r#"Reply(|[+"ttl", 7] "a")"#,
        r#"Push(>[+"message", "\r\n"])"#,
        r#"Reply($?["ebb", "!"])"#,
        r#"Reply(*[1, %[+"a", $?[]]])"#,
        "Reply(null)",
        "Reply(*[])",
        r#"Reply("")"#,
        "Reply(*[3])",
    ];
    assert_eq!(seen.messages, wanted);
    // The pieces of a long reply depend on the split.
    let limits = ProtocolLimits { whole_bytes_max: ProtocolLimits::WHOLE_BYTES_MAX, ..ProtocolLimits::default() };
    contract::never_panics(|| ClientCodec::new(limits), WIRE, 2_000);
}

fn reply(wire: &[u8]) -> Reply {
    let mut client = CodecHarness::new(ClientCodec::default());
    match client.decode(wire).unwrap().pop() {
        Some(IncomingReply::Reply(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_read_in_place() {
    let reply = reply(b"%1\r\n|1\r\n+a\r\n:1\r\n+key\r\n*2\r\n$3\r\nebb\r\n-ERR x\r\n");
    let Value::Aggregate(AggregateKind::Map, mut entries) = reply.value() else { panic!("{reply:?}") };
    assert_eq!(entries.count_left(), Some(2));
    let (attributes, key) = entries.next_attributed().unwrap();
    assert_eq!(attributes.unwrap().collect::<Vec<_>>(), [Value::Simple(b"a"), Value::Integer(1)]);
    assert_eq!(key.bytes(), Some(&b"key"[..]));
    let values: Vec<_> = entries.next().unwrap().elements().unwrap().collect();
    assert_eq!((values[0].bytes(), values[1].error()), (Some(&b"ebb"[..]), Some(&b"ERR x"[..])));
    assert!(reply.wire().as_ptr_range().contains(&values[0].bytes().unwrap().as_ptr()), "no copy");
    assert!(entries.next().is_none());
}

#[test]
fn a_simple_string_of_64_mib_passes_where_the_limit_is_set() {
    let limits = ProtocolLimits { line_bytes_max: 64 << 20, ..ProtocolLimits::default() };
    let mut client = CodecHarness::new(ClientCodec::new(limits));
    client.decode(b"+").unwrap();
    let part = vec![b'x'; 64 << 10];
    for _ in 0..1024 {
        assert!(client.decode(&part).unwrap().is_empty());
    }
    let replies = client.decode(b"\r\n").unwrap();
    let [IncomingReply::Reply(reply)] = &replies[..] else { panic!("one reply") };
    assert_eq!(reply.value().bytes().map(<[u8]>::len), Some(64 << 20));
    assert_eq!(client.decode(b"+x\r\n").unwrap().len(), 1);

    let mut client = CodecHarness::new(ClientCodec::default());
    let refused = client.decode(&[b"+", &part[..], b"x"].concat()[..65_535]).and_then(|_| client.decode(b"xxxx"));
    assert_eq!(refused.unwrap_err(), RedisError::LineTooLong { bytes_max: 64 << 10 });
}

#[test]
fn arguments_are_bytes_of_any_kind() {
    let mut client = CodecHarness::new(ClientCodec::default());
    let long = vec![b'\n'; 5_000];
    let command = CommandBuffer::new("SET").arg(b"\r\n\0").shared_arg(long.clone().into()).arg("");
    client.encode(command.into()).unwrap();
    for part in [
        OutgoingCommand::Begin(2),
        OutgoingCommand::Argument("GET".into()),
        OutgoingCommand::ArgumentHead(3),
        OutgoingCommand::Data("\r".into()),
        OutgoingCommand::Data("\n\r".into()),
    ] {
        client.encode(part).unwrap();
    }
    client.flush().unwrap();
    let wanted = [
        b"*4\r\n$3\r\nSET\r\n$3\r\n\r\n\0\r\n$5000\r\n",
        &long[..],
        b"\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$3\r\n\r\n\r\r\n",
    ];
    assert_eq!(client.take_sent(), wanted.concat());
}

#[test]
fn a_torn_command_is_an_error_of_the_caller() {
    let mut client = CodecHarness::new(ClientCodec::default());
    let refused =
        |client: &mut CodecHarness<ClientCodec>, part| assert_eq!(client.encode(part), Err(RedisError::NotDue));
    refused(&mut client, OutgoingCommand::Argument("a".into()));
    refused(&mut client, OutgoingCommand::Data("a".into()));
    refused(&mut client, OutgoingCommand::Begin(0));
    client.encode(OutgoingCommand::Begin(1)).unwrap();
    refused(&mut client, CommandBuffer::new("PING").into());
    client.encode(OutgoingCommand::ArgumentHead(1)).unwrap();
    refused(&mut client, OutgoingCommand::Data("ab".into()));
    refused(&mut client, OutgoingCommand::Argument("a".into()));
    client.encode(OutgoingCommand::Data("a".into())).unwrap();
    client.encode(CommandBuffer::new("PING").into()).unwrap();
    client.flush().unwrap();
    assert_eq!(client.take_sent(), b"*1\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n");
}
