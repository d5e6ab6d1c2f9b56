//! Each role reads the values and commands that the other role writes.

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_redis::{
    AggregateKind, ClientCodec, CommandBuffer, IncomingCommand, IncomingReply, OutgoingReply, OwnedValue, ServerCodec,
    Version,
};
use tidegate_testkit::CodecHarness;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$')], 0..8),
        (2_000..5_000_usize).prop_map(|length| vec![b'x'; length]),
    ]
    .prop_map(Bytes::from)
}

fn line() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(32_u8..127, 0..40).prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = OwnedValue> {
    let leaf = prop_oneof![
        Just(OwnedValue::Null),
        line().prop_map(OwnedValue::Simple),
        line().prop_map(OwnedValue::Error),
        any::<i64>().prop_map(OwnedValue::Integer),
        prop_oneof![proptest::num::f64::NORMAL, Just(f64::INFINITY), Just(0.0)].prop_map(OwnedValue::Double),
        any::<bool>().prop_map(OwnedValue::Boolean),
        any::<i128>().prop_map(|number| OwnedValue::BigNumber(number.to_string().into())),
        bytes().prop_map(OwnedValue::Bulk),
        bytes().prop_map(OwnedValue::BulkError),
        bytes().prop_map(|text| OwnedValue::Verbatim(*b"mkd", text)),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6)
                .prop_map(|values| OwnedValue::Aggregate(AggregateKind::Array, values)),
            proptest::collection::vec(inner.clone(), 0..6)
                .prop_map(|values| OwnedValue::Aggregate(AggregateKind::Set, values)),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(|entries| {
                let values = entries.into_iter().flat_map(|(key, value)| [key, value]).collect();
                OwnedValue::Aggregate(AggregateKind::Map, values)
            }),
        ]
    })
}

fn sent(harness: &mut CodecHarness<impl tidegate_codec::Codec>) -> Vec<u8> {
    assert!(harness.flush().is_ok(), "there is no filter");
    harness.take_sent()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back_the_same(values in proptest::collection::vec(value(), 1..4), at in any::<prop::sample::Index>()) {
        let mut server = CodecHarness::new(ServerCodec::default().with_version(Version::Resp3));
        for value in &values {
            server.encode(OutgoingReply::All(value.to_messages())).unwrap();
        }
        let wire = sent(&mut server);
        let at = at.index(wire.len());
        let mut client = CodecHarness::new(ClientCodec::default());
        let mut seen = Vec::new();
        for part in wire[..at].chunks(60_000).chain(wire[at..].chunks(60_000)) {
            for reply in client.decode(part).unwrap() {
                let IncomingReply::Reply(reply) = reply else { panic!("{reply:?}") };
                seen.push(OwnedValue::from(reply.value()));
            }
        }
        prop_assert_eq!(seen, values);
    }

    #[test]
    fn commands_come_back_the_same(
        commands in proptest::collection::vec(proptest::collection::vec(bytes(), 1..6), 1..6),
        at in any::<prop::sample::Index>(),
    ) {
        let mut client = CodecHarness::new(ClientCodec::default());
        for arguments in &commands {
            let command = CommandBuffer::new(&arguments[0]);
            let command = arguments[1..].iter().fold(command, |command, argument| command.shared_arg(argument.clone()));
            client.encode(command.into()).unwrap();
        }
        let wire = sent(&mut client);
        let at = at.index(wire.len());
        let mut server = CodecHarness::new(ServerCodec::default());
        let mut seen = Vec::new();
        for part in wire[..at].chunks(60_000).chain(wire[at..].chunks(60_000)) {
            for command in server.decode(part).unwrap() {
                let IncomingCommand::Whole(command) = command else { panic!("{command:?}") };
                seen.push(command.iter().map(Bytes::copy_from_slice).collect::<Vec<_>>());
            }
        }
        prop_assert_eq!(seen, commands);
    }
}
