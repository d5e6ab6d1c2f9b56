//! The wire of both roles of NATS: any split yields the same operations, and a received operation can be sent and is received
//! the same.
//!
//! The first byte has the role, tight limits or usual ones, and the seed of the split; the rest is the wire.

use bytes::Bytes;
use tidegate_codec::{Codec, Step};
use tidegate_nats::{
    ClientCodec, ClientOperation, Headers, IncomingClientOperation, IncomingServerOperation, MessageView,
    OutgoingMessage, ProtocolLimits, ServerCodec, ServerInfo, ServerOperation,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;
use crate::framings::WIRE_BYTES_MAX;

/// One connection, in one of the roles.
pub fn nats(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.byte();
    let wire = choices.rest();
    let wire = &wire[..wire.len().min(WIRE_BYTES_MAX)];
    let limits = if flags & TIGHT == 0 { ProtocolLimits::default() } else { SHORT };
    let seed = u64::from(flags >> 2);
    if flags & CLIENT == 0 {
        Contract::new(|| ServerCodec::new(limits)).seed(seed).check_once(wire);
        of_clients(wire, limits);
    } else {
        Contract::new(|| ClientCodec::new(limits)).seed(seed).check_once(wire);
        of_servers(wire, limits);
    }
}

/// Each message, sent by a client, is received the same.
fn of_clients(wire: &[u8], limits: ProtocolLimits) {
    let mut server = CodecHarness::new(ServerCodec::new(limits));
    server.receive(wire);
    while let Ok(Step::Message(operation)) = server.step() {
        let IncomingClientOperation::Publish(message) = operation else { continue };
        let mut client = CodecHarness::new(ClientCodec::default());
        // A client sends no subject with a control character, and no line that is too long.
        if client.encode(ClientOperation::Publish(outgoing(&message))).is_err() {
            continue;
        }
        let received = CodecHarness::new(ServerCodec::default()).decode(&sent(&mut client)).expect("a client is right");
        let [IncomingClientOperation::Publish(again)] = &received[..] else { panic!("one message: {received:?}") };
        assert_same(&message, again);
    }
}

/// Each message, sent by a server, is received the same.
fn of_servers(wire: &[u8], limits: ProtocolLimits) {
    let mut client = CodecHarness::new(ClientCodec::new(limits));
    client.receive(wire);
    while let Ok(Step::Message(operation)) = client.step() {
        let message = match operation {
            IncomingServerOperation::Message(message) => message,
            IncomingServerOperation::Info(json) => {
                if let Ok(info) = ServerInfo::from_json(&json) {
                    assert_eq!(ServerInfo::from_json(&info.to_json()).expect("its own JSON"), info);
                }
                continue;
            }
            _ => continue,
        };
        let mut server = CodecHarness::new(ServerCodec::default());
        let sid = Bytes::copy_from_slice(message.sid());
        if server.encode(ServerOperation::Message(sid, outgoing(&message))).is_err() {
            continue;
        }
        let received = CodecHarness::new(ClientCodec::default()).decode(&sent(&mut server)).expect("a server is right");
        let [IncomingServerOperation::Message(again)] = &received[..] else { panic!("one message: {received:?}") };
        assert_same(&message, again);
    }
}

fn outgoing(message: &MessageView) -> OutgoingMessage {
    let copy = Bytes::copy_from_slice;
    let headers = message.headers().map(|_| Headers::from_block(copy(message.header_block())));
    OutgoingMessage {
        subject: copy(message.subject()),
        reply: message.reply().map(copy),
        headers,
        payload: copy(message.payload()),
    }
}

fn assert_same(one: &MessageView, other: &MessageView) {
    let parts = |view: &MessageView| {
        let copy = |bytes: &[u8]| bytes.to_vec();
        (
            [view.subject(), view.sid(), view.header_block(), view.payload()].map(copy),
            view.reply().map(copy),
            view.headers().map(|headers| (headers.status(), headers.iter().count())),
        )
    };
    assert_eq!(parts(one), parts(other));
}

fn sent<C: Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    assert!(harness.flush().is_ok(), "there is no filter");
    harness.take_sent()
}

const CLIENT: u8 = 1;
const TIGHT: u8 = 2;

const SHORT: ProtocolLimits =
    ProtocolLimits { control_line_bytes_max: 32, json_bytes_max: 64, headers_bytes_max: 32, payload_bytes_max: 48 };
