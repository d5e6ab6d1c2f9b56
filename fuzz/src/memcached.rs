//! The wire of both roles of memcached: any split yields the same messages, and a received message can be sent and is
//! received the same.
//!
//! The first byte has the role, tight limits or usual ones, and the seed of the split; the rest is the wire.

use tidegate_codec::{Codec, Step};
use tidegate_memcached::{ClientCodec, Command, ProtocolLimits, Response, ServerCodec};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;
use crate::framings::WIRE_BYTES_MAX;

/// One connection, in one of the roles.
pub fn memcached(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.byte();
    let wire = choices.rest();
    let wire = &wire[..wire.len().min(WIRE_BYTES_MAX)];
    let limits = if flags & TIGHT == 0 { ProtocolLimits::default() } else { SHORT };
    let seed = u64::from(flags >> 2);
    if flags & CLIENT == 0 {
        let server = Contract::new(|| ServerCodec::new(limits)).seed(seed);
        server.answer(|_, codec, out| codec.encode(Response::Ok, out).expect("a command awaits it")).check_once(wire);
        commands(wire, limits);
    } else {
        let client = Contract::new(|| ClientCodec::new(limits)).seed(seed);
        client.open(|codec, out| codec.encode(Command::Version, out).expect("a command")).check_once(wire);
        responses(wire, limits);
    }
}

/// Each command, sent by a client, is received the same.
fn commands(wire: &[u8], limits: ProtocolLimits) {
    let mut server = CodecHarness::new(ServerCodec::new(limits));
    server.receive(wire);
    while let Ok(Step::Message(command)) = server.step() {
        let first = written(command);
        let mut again = CodecHarness::new(ServerCodec::default());
        again.receive(&first);
        let Ok(Step::Message(command)) = again.step() else { panic!("a client is right: {}", first.escape_ascii()) };
        assert_eq!(written(command), first);
        server.encode(Response::Ok).expect("a command awaits it");
    }
}

fn written(command: Command) -> Vec<u8> {
    let mut client = CodecHarness::new(ClientCodec::default());
    client.encode(command).expect("a received command may be sent");
    sent(&mut client)
}

/// Each response, sent by a server, is received the same.
fn responses(wire: &[u8], limits: ProtocolLimits) {
    let mut client = CodecHarness::new(ClientCodec::new(limits));
    client.encode(Command::Version).expect("a command");
    client.receive(wire);
    while let Ok(Step::Message(response)) = client.step() {
        let mut server = CodecHarness::new(ServerCodec::default());
        server.receive(b"version\r\n");
        assert!(matches!(server.step(), Ok(Step::Message(Command::Version))));
        // A server sends no text with a line end, and no key with a control character.
        if server.encode(response.clone()).is_err() {
            return;
        }
        let mut again = CodecHarness::new(ClientCodec::default());
        again.encode(Command::Version).expect("a command");
        let received = again.decode(&sent(&mut server)).expect("a server is right");
        assert_eq!(received.len(), 1, "{response:?} is received as {received:?}");
    }
}

fn sent<C: Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    assert!(harness.flush().is_ok(), "there is no filter");
    harness.take_sent()
}

const CLIENT: u8 = 1;
const TIGHT: u8 = 2;

const SHORT: ProtocolLimits = ProtocolLimits { value_bytes_max: 8, line_bytes_max: 32 };
