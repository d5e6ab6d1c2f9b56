//! The wire of both roles of Redis: any split yields the same messages, and a received message can be sent and is received
//! the same.
//!
//! The first byte has the role, tight limits or usual ones, and the seed of the split; the rest is the wire.

use tidegate_redis::{
    ClientCodec, CommandBuffer, IncomingCommand, IncomingReply, OutgoingReply, OwnedValue, ProtocolLimits, ServerCodec,
    Version,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;

/// One connection, in one of the roles.
pub fn redis(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.byte();
    let wire = choices.rest();
    let whole = ProtocolLimits { whole_bytes_max: ProtocolLimits::WHOLE_BYTES_MAX, ..ProtocolLimits::default() };
    let limits = if flags & TIGHT == 0 { whole } else { SHORT };
    let seed = u64::from(flags >> 2);
    if flags & CLIENT == 0 {
        // Pieces depend on the split: only whole commands are compared.
        if flags & TIGHT == 0 {
            Contract::new(|| ServerCodec::new(limits)).seed(seed).check_once(wire);
        }
        commands(wire, limits);
    } else {
        if flags & TIGHT == 0 {
            Contract::new(|| ClientCodec::new(limits)).seed(seed).check_once(wire);
        }
        replies(wire, limits);
    }
}

/// Each whole command, sent by a client, is received the same.
fn commands(wire: &[u8], limits: ProtocolLimits) {
    let mut server = CodecHarness::new(ServerCodec::new(limits));
    server.receive(wire);
    while let Ok(tidegate_codec::Step::Message(message)) = server.step() {
        let IncomingCommand::Whole(command) = message else { continue };
        let buffer = command.iter().skip(1).fold(CommandBuffer::new(command.name()), CommandBuffer::arg);
        let mut client = CodecHarness::new(ClientCodec::default());
        client.encode(buffer.into()).expect("no argument is refused");
        let again = CodecHarness::new(ServerCodec::default()).decode(&sent(&mut client)).expect("a client is right");
        let [IncomingCommand::Whole(again)] = &again[..] else { panic!("{again:?}") };
        assert_eq!(again.wire(), command.wire());
    }
}

/// Each whole reply, sent by a server, is received the same.
fn replies(wire: &[u8], limits: ProtocolLimits) {
    let mut client = CodecHarness::new(ClientCodec::new(limits));
    client.receive(wire);
    while let Ok(tidegate_codec::Step::Message(message)) = client.step() {
        let (IncomingReply::Reply(reply) | IncomingReply::Push(reply)) = message else { continue };
        let value = OwnedValue::from(reply.value());
        let mut server = CodecHarness::new(ServerCodec::default().with_version(Version::Resp3));
        server.encode(OutgoingReply::All(value.to_messages())).expect("a received value may be sent");
        let again = CodecHarness::new(ClientCodec::default()).decode(&sent(&mut server)).expect("a server is right");
        let [IncomingReply::Reply(again) | IncomingReply::Push(again)] = &again[..] else { panic!("{again:?}") };
        // Not by `==`: a double may be none.
        assert_eq!(format!("{:?}", OwnedValue::from(again.value())), format!("{value:?}"));
    }
}

fn sent<C: tidegate_codec::Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    harness.flush().expect("there is no filter");
    harness.take_sent()
}

const CLIENT: u8 = 1;
const TIGHT: u8 = 2;

const SHORT: ProtocolLimits =
    ProtocolLimits { bulk_bytes_max: 64, elements_max: 16, depth_max: 3, line_bytes_max: 32, whole_bytes_max: 24 };
