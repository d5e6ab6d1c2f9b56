//! A server receives the commands of each kind, and its responses have their order.

use tidegate_codec::Codec;
use tidegate_memcached::{
    Command, MemcachedError, MetaCommand, MetaFlags, MetaResponse, MetaStatus, Response, ServerCodec,
};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

/// Responds to each command with one line, or with a value and the end.
fn respond(command: Command, codec: &mut ServerCodec, out: &mut tidegate_codec::Output<'_>) {
    let lines = match command {
        Command::Get(get) => {
            let value = |key: &[u8]| Response::Value {
                key: key.to_vec().into(),
                flags: 7,
                cas: get.with_cas.then_some(u64::MAX),
                value: "ebb".into(),
            };
            get.keys.iter().map(value).chain([Response::End]).collect()
        }
        Command::Store(_) => vec![Response::Stored],
        Command::Delete { .. } => vec![Response::Deleted],
        Command::Count(count) => vec![Response::Number(count.by)],
        Command::Touch { .. } => vec![Response::Touched],
        Command::Stats(_) => vec![Response::Stat { name: "pid".into(), value: "1 2".into() }, Response::End],
        Command::Version => vec![Response::Version("1.6".into())],
        Command::Meta(meta) => vec![Response::Meta(respond_to_meta(meta))],
        _ => vec![Response::Ok],
    };
    for line in lines {
        codec.encode(line, out).expect("a command awaits it");
    }
}

fn respond_to_meta(meta: MetaCommand) -> MetaResponse {
    use tidegate_memcached::MetaVerb;
    match meta.verb {
        MetaVerb::Get if meta.key.as_ref().is_some_and(|key| key.as_ref() == b"gone") => {
            MetaResponse::new(MetaStatus::Miss, MetaFlags::NONE)
        }
        MetaVerb::Get => MetaResponse::with_value(meta.flags, "flow"),
        MetaVerb::Noop => MetaResponse::new(MetaStatus::Noop, MetaFlags::NONE),
        MetaVerb::Delete => MetaResponse::new(MetaStatus::NotFound, MetaFlags::NONE),
        _ => MetaResponse::new(MetaStatus::Done, meta.flags),
    }
}

/// The replies to a wire, the same at every split of it.
#[track_caller]
fn replies(wire: &[u8]) -> String {
    let seen = Contract::new(ServerCodec::default).answer(respond).check(wire);
    assert!(!seen.has_failed(), "{seen}");
    String::from_utf8(seen.replies).expect("ASCII")
}

#[test]
fn each_command_gets_its_response() {
    let wire = b"set a 1 -1 4\r\n\r\n\r\n\r\ncas a 0 0 1 9\r\nx\r\nget a b\r\ngets a\r\ngat 60 a\r\ndelete a\r\ndelete a 0\r\n\
        incr a 5\r\ndecr a 18446744073709551615\r\ntouch a 9\r\nflush_all\r\nflush_all 5\r\nverbosity 1\r\nstats\r\n\
        version\n";
    let expected = "STORED\r\nSTORED\r\nVALUE a 7 3\r\nebb\r\nVALUE b 7 3\r\nebb\r\nEND\r\n\
        VALUE a 7 3 18446744073709551615\r\nebb\r\nEND\r\nVALUE a 7 3\r\nebb\r\nEND\r\nDELETED\r\nDELETED\r\n5\r\n\
        18446744073709551615\r\nTOUCHED\r\nOK\r\nOK\r\nOK\r\nSTAT pid 1 2\r\nEND\r\nVERSION 1.6\r\n";
    assert_eq!(replies(wire), expected);
}

#[test]
fn a_value_may_have_any_bytes() {
    let value: Vec<u8> = (0..=255).chain(*b"\r\nget x\r\n").collect();
    let wire = [format!("set a 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nversion\r\n"].concat();
    assert_eq!(replies(&wire), "STORED\r\nVERSION 1.6\r\n");
}

#[test]
fn noreply_hides_the_response_and_nothing_else() {
    let wire = b"set a 0 0 1 noreply\r\nx\r\ndelete a noreply\r\nincr a 1 noreply\r\ntouch a 1 noreply\r\n\
        flush_all noreply\r\nflush_all 0 noreply\r\nverbosity 1 noreply\r\nverbosity noreply\r\ndelete a 0 noreply\r\nversion\r\n";
    assert_eq!(replies(wire), "VERSION 1.6\r\n");
}

#[test]
fn an_error_of_a_command_with_noreply_is_hidden_and_its_value_dropped() {
    let long = "k".repeat(251);
    let wire =
        format!("set {long} 0 0 5 noreply\r\nget x\r\nset a x 0 1 noreply\r\n1\r\nincr a x noreply\r\nversion\r\n");
    assert_eq!(replies(wire.as_bytes()), "VERSION 1.6\r\n");
}

#[test]
fn quiet_meta_commands_hide_their_usual_response_alone() {
    let wire = b"mg a v q\r\nmg gone v q\r\nmg gone v\r\nms a 3 T0 q\r\nebb\r\nms a 3\r\nebb\r\nmd a q\r\nmd a\r\nma a q\r\nmn\r\n";
    assert_eq!(replies(wire), "VA 4 v q\r\nflow\r\nEN\r\nHD\r\nNF\r\nMN\r\n");
}

#[test]
fn quit_ends_the_connection() {
    let seen = Contract::new(ServerCodec::default).answer(respond).check(b"version\r\nquit\r\n");
    assert_eq!((seen.has_failed(), &*seen.replies), (false, &b"VERSION 1.6\r\n"[..]));
    let mut server = CodecHarness::new(ServerCodec::default());
    server.receive(b"quit\r\nversion\r\n");
    assert!(matches!(server.step(), Ok(tidegate_codec::Step::End)));
}

#[test]
fn a_response_without_a_command_is_refused() {
    let mut server = CodecHarness::new(ServerCodec::default());
    assert_eq!(server.encode(Response::Stored), Err(MemcachedError::NothingAwaits));
    server.receive(b"version\r\nversion\r\n");
    assert!(matches!(server.step(), Ok(tidegate_codec::Step::Message(Command::Version))));
    assert!(matches!(server.step(), Ok(tidegate_codec::Step::NeedMore)), "the first command awaits its response");
    server.encode(Response::Ok).expect("a command awaits it");
    assert_eq!(server.encode(Response::Ok), Err(MemcachedError::NothingAwaits));
}

#[test]
fn a_text_with_a_line_end_is_not_sent() {
    let mut server = CodecHarness::new(ServerCodec::default());
    server.receive(b"version\r\n");
    assert!(server.step().is_ok());
    for text in ["1\r\nSTORED", "\n", "\r", "\0"] {
        assert_eq!(server.encode(Response::Version(text.into())), Err(MemcachedError::Text), "{text:?}");
    }
    let value = Response::Value { key: "a b".into(), flags: 0, cas: None, value: "x".into() };
    assert_eq!(server.encode(value), Err(MemcachedError::Key));
    server.encode(Response::Version("1".into())).expect("nothing was written before");
}
