//! Operations of both roles in every split, and those that are refused.

use bytes::Bytes;
use tidegate_codec::{Blame, Codec};
use tidegate_nats::{
    ClientCodec, ClientOperation, Headers, IncomingClientOperation, IncomingServerOperation, NatsError,
    OutgoingMessage, ProtocolLimits, ServerCodec, ServerOperation,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::{self, Contract};

const OF_CLIENT: &[u8] = b"CONNECT {\"verbose\":false}\r\nPUB tides.brest 3\r\nebb\r\npub a inbox.7 0\r\n\r\n\
    HPUB a r 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nebb\r\nSUB tides.* 9\r\nSUB  tides.>\tgroup  x1 \r\nUNSUB 9\r\nUNSUB 9 5\r\n\
    PING\r\nPONG\nPUB a 4\r\n\r\n\r\n\r\n";

const OF_SERVER: &[u8] = b"INFO {\"server_id\":\"a\"} \r\nMSG tides.brest 9 3\r\nebb\r\nMSG a 9 r 0\r\n\r\n\
    HMSG a 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG a 9 r 12 15\r\nNATS/1.0\r\n\r\nebb\r\nPING\r\nPONG\r\n+OK\r\n\
    -ERR 'Slow Consumer'\r\n";

#[test]
fn operations_of_both_roles_are_the_same_in_every_split() {
    let seen = contract::check(ServerCodec::default, OF_CLIENT);
    assert_eq!(seen.messages.len(), 11, "{seen}");
    assert!(!seen.has_failed(), "{seen}");
    let seen = contract::check(ClientCodec::default, OF_SERVER);
    assert_eq!(seen.messages.len(), 9, "{seen}");
    assert!(!seen.has_failed(), "{seen}");
}

#[test]
fn no_input_makes_a_codec_panic() {
    contract::never_panics(ServerCodec::default, OF_CLIENT, 1_000);
    contract::never_panics(ClientCodec::default, OF_SERVER, 1_000);
}

#[test]
fn the_parts_of_operations_are_where_the_protocol_has_them() {
    let operations = CodecHarness::new(ServerCodec::default()).decode(OF_CLIENT).expect("they are valid");
    let [
        IncomingClientOperation::Connect(json),
        IncomingClientOperation::Publish(first),
        _,
        third,
        subscribe,
        grouped,
        ..,
    ] = &operations[..]
    else {
        panic!("{operations:?}")
    };
    assert_eq!(&**json, b"{\"verbose\":false}");
    assert_eq!((first.subject(), first.reply(), first.payload()), (&b"tides.brest"[..], None, &b"ebb"[..]));
    assert!(first.headers().is_none());
    let IncomingClientOperation::Publish(third) = third else { panic!("{third:?}") };
    let headers = third.headers().expect("it has headers");
    assert!(headers.is_valid());
    assert_eq!((headers.value("A"), headers.status(), third.reply()), (Some(&b"b"[..]), None, Some(&b"r"[..])));
    assert_eq!((third.payload(), third.message_bytes()), (&b"ebb"[..], 21));
    let IncomingClientOperation::Subscribe { queue_group: None, .. } = subscribe else { panic!("{subscribe:?}") };
    let IncomingClientOperation::Subscribe { filter, queue_group: Some(group), sid } = grouped else {
        panic!("{grouped:?}")
    };
    assert_eq!((&**filter, &**group, &**sid), (&b"tides.>"[..], &b"group"[..], &b"x1"[..]));
    assert!(matches!(operations[6], IncomingClientOperation::Unsubscribe { max_messages: None, .. }));
    assert!(matches!(operations[7], IncomingClientOperation::Unsubscribe { max_messages: Some(5), .. }));
    let IncomingClientOperation::Publish(last) = &operations[10] else { panic!("{operations:?}") };
    assert_eq!(last.payload(), b"\r\n\r\n");

    let operations = CodecHarness::new(ClientCodec::default()).decode(OF_SERVER).expect("they are valid");
    let IncomingServerOperation::Message(refused) = &operations[3] else { panic!("{operations:?}") };
    assert_eq!(refused.headers().and_then(|headers| headers.status()), Some(503));
    assert_eq!((refused.sid(), refused.payload()), (&b"9"[..], &b""[..]));
    let IncomingServerOperation::Err(text) = &operations[8] else { panic!("{operations:?}") };
    assert_eq!(&**text, b"'Slow Consumer'");
}

#[test]
fn operations_that_are_written_are_read_the_same() {
    let headers = Headers::new().with("A", "b").expect("a header");
    let long = Bytes::from(vec![7; 60_000]);
    let messages = [
        OutgoingMessage::new("tides.brest", "ebb"),
        OutgoingMessage::new("a", long).reply("inbox.7").headers(headers),
        OutgoingMessage::new("a", ""),
    ];
    for message in messages {
        let mut client = CodecHarness::new(ClientCodec::default());
        client.encode(ClientOperation::Publish(message.clone())).expect("it is valid");
        client.flush().expect("there is no filter");
        let read = CodecHarness::new(ServerCodec::default()).decode(&client.take_sent()).expect("it is valid");
        let [IncomingClientOperation::Publish(view)] = &read[..] else { panic!("{read:?}") };
        let parts = (view.subject(), view.reply(), view.payload());
        assert_eq!(parts, (&*message.subject, message.reply.as_deref(), &*message.payload));
        assert_eq!(view.header_block(), message.headers.as_ref().map_or(&b""[..], Headers::as_bytes));

        let mut server = CodecHarness::new(ServerCodec::default());
        server.encode(ServerOperation::Message("9".into(), message.clone())).expect("it is valid");
        server.flush().expect("there is no filter");
        let read = CodecHarness::new(ClientCodec::default()).decode(&server.take_sent()).expect("it is valid");
        let [IncomingServerOperation::Message(view)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((view.sid(), view.payload()), (&b"9"[..], &*message.payload));
    }
}

#[test]
fn each_malformed_operation_is_an_error_of_the_peer() {
    let cases: &[(&[u8], NatsError)] = &[
        (b"GET / HTTP/1.1\r\n", NatsError::Operation),
        (b"\x16\x03\x01", NatsError::Operation),
        (b"PUBLISH a 0\r\n", NatsError::Operation),
        (b"PUB a\r\n", NatsError::Arguments),
        (b"PUB a b c 3\r\n", NatsError::Arguments),
        (b"HPUB a 3\r\n", NatsError::Arguments),
        (b"SUB a\r\n", NatsError::Arguments),
        (b"UNSUB\r\n", NatsError::Arguments),
        (b"PUB a -1\r\n", NatsError::Number),
        (b"PUB a 1x\r\n", NatsError::Number),
        (b"PUB a 99999999999999999999\r\n", NatsError::Number),
        (b"HPUB a 9 3\r\n", NatsError::HeadersBeyondMessage),
        (b"PUB a 3\r\nebb.\r\n", NatsError::PayloadEnd),
        (b"PUB a 3\r\nebb", NatsError::Truncated),
        (b"PIN", NatsError::Truncated),
    ];
    for (wire, expected) in cases {
        let seen = contract::check(ServerCodec::default, wire);
        assert_eq!(seen.blame(), Some(Blame::Peer), "{}: {seen}", wire.escape_ascii());
        let mut server = CodecHarness::new(ServerCodec::default());
        let error = server.decode(wire).and_then(|_| server.decode_eof()).expect_err("it is malformed");
        assert_eq!(error, *expected, "{}", wire.escape_ascii());
    }
    for wire in [&b"MSG a 3\r\n"[..], b"HMSG a 9 5 3\r\n", b"SUB a 1\r\n", b"+NO\r\n", b"MSG a 9 3\r\neb"] {
        assert_eq!(contract::check(ClientCodec::default, wire).blame(), Some(Blame::Peer), "{}", wire.escape_ascii());
    }
}

#[test]
fn each_limit_stops_its_input_before_memory_is_taken() {
    let limits = ProtocolLimits {
        control_line_bytes_max: 32,
        json_bytes_max: 64,
        headers_bytes_max: 20,
        payload_bytes_max: 100,
    };
    let at_limit = [
        [b"SUB ".to_vec(), vec![b'a'; 26], b" 1\r\n".to_vec()].concat(),
        [b"CONNECT {\"name\":\"".to_vec(), vec![b'a'; 45], b"\"}\r\n".to_vec()].concat(),
        [b"PUB a 100\r\n".to_vec(), vec![b'a'; 100], b"\r\n".to_vec()].concat(),
        [b"HPUB a 20 100\r\n".to_vec(), vec![b'a'; 100], b"\r\n".to_vec()].concat(),
    ];
    for wire in at_limit {
        let seen = contract::check(|| ServerCodec::new(limits), &wire);
        assert!(!seen.has_failed() && seen.messages.len() == 1, "{}: {seen}", wire.escape_ascii());
    }
    let beyond = [
        [b"SUB ".to_vec(), vec![b'a'; 40]].concat(),
        [b"CONNECT ".to_vec(), vec![b'a'; 70]].concat(),
        b"PUB a 101\r\n".to_vec(),
        b"PUB a 999999999\r\n".to_vec(),
        b"HPUB a 21 100\r\n".to_vec(),
    ];
    for wire in beyond {
        let seen = contract::refuses_before_allocating(|| ServerCodec::new(limits), &wire);
        assert_eq!(seen.blame(), Some(Blame::Limit), "{}: {seen}", wire.escape_ascii());
    }
    let seen = contract::refuses_before_allocating(|| ClientCodec::new(limits), b"MSG a 9 101\r\n");
    assert_eq!(seen.blame(), Some(Blame::Limit), "{seen}");
}

#[test]
fn operations_that_the_protocol_cannot_express_are_not_sent() {
    let headers = |bytes: usize| Headers::from_block(vec![b'a'; bytes]);
    let publish = |subject: &'static str| ClientOperation::Publish(OutgoingMessage::new(subject, "ebb"));
    let filter = |filter: &'static str| ClientOperation::Subscribe { filter: filter.into(), queue_group: None, sid: 1 };
    let refused = [
        publish(""),
        publish("a b"),
        publish("a\r\nPUB b 0"),
        filter(""),
        filter("a\tb"),
        ClientOperation::Connect(Bytes::from_static(b"{}\r\nPING")),
        ClientOperation::Publish(OutgoingMessage::new("a", vec![0; (1 << 20) + 1])),
        ClientOperation::Publish(OutgoingMessage::new("a", "").headers(headers(70_000))),
        ClientOperation::Publish(OutgoingMessage::new("a".repeat(4096), "")),
        ClientOperation::Publish(OutgoingMessage::new("a", "").reply("")),
    ];
    for operation in refused {
        let answer = |_: IncomingServerOperation, codec: &mut ClientCodec, out: &mut tidegate_codec::Output<'_>| {
            let error = codec.encode(operation.clone(), out).expect_err("it cannot be expressed");
            assert_eq!(tidegate_codec::Fault::blame(&error), Blame::Caller);
        };
        let seen = Contract::new(ClientCodec::default).answer(answer).check(b"PING\r\n");
        assert!(seen.replies.is_empty(), "{seen}");
    }
    for (name, value) in [("", "a"), ("a:b", "a"), ("a b", "a"), ("a", "b\r\nc: d"), ("a\n", "b")] {
        assert_eq!(Headers::new().with(name, value), Err(NatsError::Header), "{name}");
    }
}
