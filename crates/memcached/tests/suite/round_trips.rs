//! Each role reads the messages that the other role writes.

use tidegate_codec::{Codec, Step};
use tidegate_memcached::{
    Arithmetic, ClientCodec, Command, Key, Keys, MetaCommand, MetaFlags, MetaResponse, MetaStatus, MetaVerb, Response,
    Retrieval, ServerCodec, Store, StoreMode,
};
use tidegate_testkit::CodecHarness;

fn sent<C: Codec>(harness: &mut CodecHarness<C>) -> Vec<u8> {
    assert!(harness.flush().is_ok(), "there is no filter");
    harness.take_sent()
}

fn key(text: &'static str) -> Key {
    Key::new(text).expect("a key")
}

fn commands() -> Vec<Command> {
    let modes = [
        StoreMode::Set,
        StoreMode::Add,
        StoreMode::Replace,
        StoreMode::Append,
        StoreMode::Prepend,
        StoreMode::Cas(u64::MAX),
    ];
    let large = vec![b'x'; 50_000];
    let store = |(mode, no_reply)| {
        Command::Store(Store { mode, key: key("a"), flags: 9, expiry: -1, value: large.clone().into(), no_reply })
    };
    let mut commands: Vec<_> = modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]).map(store).collect();
    for (with_cas, expiry) in [(false, None), (true, None), (false, Some(0)), (true, Some(i64::MIN))] {
        let keys = Keys::from(key("a")).and(&key("\u{e9}bb")).and(&key("c"));
        commands.push(Command::Get(Retrieval { keys, with_cas, expiry }));
    }
    for no_reply in [false, true] {
        commands.push(Command::Delete { key: key("a"), no_reply });
        commands.push(Command::Touch { key: key("a"), expiry: 5, no_reply });
        commands.push(Command::FlushAll { delay: 0, no_reply });
        commands.push(Command::Verbosity { level: 2, no_reply });
        commands.push(Command::Count(Arithmetic { key: key("a"), by: 1, is_decrement: no_reply, no_reply }));
    }
    commands.extend([Command::Stats("".into()), Command::Stats("items".into()), Command::Version]);
    let flags = || MetaFlags::new("v T90 q Oab").expect("flags");
    for verb in [MetaVerb::Get, MetaVerb::Delete, MetaVerb::Arithmetic, MetaVerb::Debug] {
        commands.push(Command::Meta(MetaCommand { verb, key: Some(key("a")), flags: flags(), value: None }));
    }
    let value = Some("ebb\r\n".into());
    commands.push(Command::Meta(MetaCommand { verb: MetaVerb::Set, key: Some(key("a")), flags: flags(), value }));
    commands.push(Command::Meta(MetaCommand { verb: MetaVerb::Noop, key: None, flags: MetaFlags::NONE, value: None }));
    commands
}

#[test]
fn a_server_receives_each_command_of_a_client() {
    for command in commands() {
        let mut client = CodecHarness::new(ClientCodec::default());
        client.encode(command.clone()).expect("it may be sent");
        let wire = sent(&mut client);
        let mut server = CodecHarness::new(ServerCodec::default());
        server.receive(&wire);
        let Ok(Step::Message(received)) = server.step() else { panic!("{command:?} is not received") };
        assert_eq!(received.is_quiet(), command.is_quiet());
        // A client writes the same bytes for the received command.
        let mut again = CodecHarness::new(ClientCodec::default());
        again.encode(received).expect("it was received");
        assert_eq!(sent(&mut again).escape_ascii().to_string(), wire.escape_ascii().to_string());
    }
}

fn responses() -> Vec<Response> {
    let flags = || MetaFlags::new("t5 kab").expect("flags");
    vec![
        Response::Value { key: "a".into(), flags: 3, cas: None, value: vec![b'x'; 50_000].into() },
        Response::Value { key: "a".into(), flags: u32::MAX, cas: Some(u64::MAX), value: "".into() },
        Response::Stat { name: "pid".into(), value: "1 2".into() },
        Response::End,
        Response::Stored,
        Response::NotStored,
        Response::Exists,
        Response::NotFound,
        Response::Deleted,
        Response::Touched,
        Response::Ok,
        Response::Number(u64::MAX),
        Response::Version("1.6.40".into()),
        Response::Error,
        Response::ClientError("bad line".into()),
        Response::ServerError("no memory".into()),
        Response::Meta(MetaResponse::with_value(flags(), "ebb\r\n")),
        Response::Meta(MetaResponse::new(MetaStatus::Done, MetaFlags::NONE)),
        Response::Meta(MetaResponse::new(MetaStatus::Miss, MetaFlags::NONE)),
        Response::Meta(MetaResponse::new(MetaStatus::NotFound, flags())),
        Response::Meta(MetaResponse::new(MetaStatus::NotStored, flags())),
        Response::Meta(MetaResponse::new(MetaStatus::Exists, flags())),
        Response::Meta(MetaResponse::new(MetaStatus::Noop, MetaFlags::NONE)),
        Response::Meta(MetaResponse::new(MetaStatus::Debug, MetaFlags::new("a exp=-1").expect("a text"))),
    ]
}

/// A server that has received a command.
fn awaiting_server() -> CodecHarness<ServerCodec> {
    let mut server = CodecHarness::new(ServerCodec::default());
    server.receive(b"version\r\n");
    assert!(matches!(server.step(), Ok(Step::Message(Command::Version))));
    server
}

#[test]
fn a_client_receives_each_response_of_a_server() {
    for response in responses() {
        let mut server = awaiting_server();
        server.encode(response.clone()).expect("it may be sent");
        let wire = sent(&mut server);
        let mut client = CodecHarness::new(ClientCodec::default());
        client.encode(Command::Version).expect("a command");
        let received = client.decode(&wire).expect("a response");
        let [received] = &received[..] else { panic!("{received:?} of {response:?}") };
        let mut again = awaiting_server();
        again.encode(received.clone()).expect("it was received");
        assert_eq!(sent(&mut again).escape_ascii().to_string(), wire.escape_ascii().to_string());
    }
}
