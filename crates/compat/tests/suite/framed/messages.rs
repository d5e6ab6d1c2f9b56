//! Messages: at every split of the wire, over filters, from files, through a change of codec.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use tidegate::http1;
use tidegate_codec::framing::{LengthField, Lines, Payload};
use tidegate_codec::{Codec, FileRegion, Input, Output, Over, Pipeline, Slice, Step};
use tidegate_compat::Framed;
use tidegate_testkit::filters::ToyTls;

use crate::framed::script::{Piece, Script};

const KEY: u8 = 0x33;

/// All messages up to the end, as text.
async fn messages<P: Pipeline<In = Slice>>(framed: &mut Framed<Script, P>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(message) = framed.recv().await.expect("a sound stream") {
        all.push(message.escape_ascii().to_string());
    }
    all
}

#[tokio::test]
async fn the_messages_are_the_same_at_every_split() {
    async fn claim<P: Pipeline<In = Slice>>(codec: impl Fn() -> P, wire: &[u8], expected: &[&str]) {
        for split in 0..=wire.len() {
            let [front, back] = [&wire[..split], &wire[split..]].map(<[u8]>::to_vec);
            let mut pieces = vec![Piece::Pause];
            pieces.extend((!front.is_empty()).then_some(Piece::Bytes(front)));
            pieces.push(Piece::Pause);
            pieces.extend((!back.is_empty()).then_some(Piece::Bytes(back)));
            pieces.push(Piece::End);
            let mut framed = Framed::new(Script::new(pieces), codec());
            assert_eq!(messages(&mut framed).await, expected, "split at {split}");
            assert!(framed.recv().await.expect("the end stays the end").is_none());
        }
        let bytewise = wire.iter().flat_map(|&byte| [Piece::Bytes(vec![byte]), Piece::Pause]);
        let mut framed = Framed::new(Script::new(bytewise.chain([Piece::End])), codec());
        assert_eq!(messages(&mut framed).await, expected, "byte by byte");
    }
    claim(Lines::new, b"ebb\n\nslack water\nflow\n", &["ebb", "", "slack water", "flow"]).await;
    claim(|| LengthField::new(2), b"\0\x03ebb\0\0\0\x04flow", &["ebb", "", "flow"]).await;
    let wire = ToyTls::client_wire(KEY, b"ebb\nand flow\n", 4);
    claim(|| Over::new(ToyTls::server(KEY), Lines::new()), &wire, &["ebb", "and flow"]).await;
}

#[tokio::test]
async fn answers_of_a_batch_leave_together_when_the_task_waits() {
    let script = Script::new([Piece::Bytes(b"one\ntwo\nthree\n".to_vec())]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    for _ in 0..3 {
        let line = framed.recv().await.unwrap().unwrap();
        framed.send(line.into()).unwrap();
        assert!(script.take_written().is_empty(), "more is decoded before the answers leave");
    }
    assert!(futures_util::FutureExt::now_or_never(framed.recv()).is_none());
    assert_eq!(script.take_written(), b"one\ntwo\nthree\n");
    assert_eq!(script.flushes(), 1);
}

#[tokio::test]
async fn a_filter_completes_its_handshake_for_a_task_that_only_sends() {
    let (near, far) = tokio::io::duplex(64);
    let mut server = Framed::new(near, Over::new(ToyTls::server(KEY), Lines::new()));
    let mut client = Framed::new(far, Over::new(ToyTls::client(KEY), Lines::new()));
    server.send("a greeting".into()).unwrap();
    let (flushed, greeting) = tokio::join!(server.flush(), client.recv());
    flushed.unwrap();
    assert_eq!(greeting.unwrap().as_deref(), Some(&b"a greeting"[..]));
    assert_eq!(server.pending_bytes(), 0);
    let (closed, end) = tokio::join!(server.close(), async {
        let end = client.recv().await;
        client.close().await.unwrap();
        end
    });
    closed.unwrap();
    assert!(end.unwrap().is_none(), "the goodbye has come");
}

#[tokio::test]
async fn a_peer_that_ends_within_a_handshake_is_an_error() {
    for send in [false, true] {
        let script = Script::new([Piece::Bytes(b"TO".to_vec()), Piece::Pause, Piece::End]);
        let mut framed = Framed::new(script, Over::new(ToyTls::server(KEY), Lines::new()));
        let failed = if send {
            framed.send("never leaves".into()).unwrap();
            framed.flush().await.map(|()| false)
        } else {
            framed.recv().await.map(|message| message.is_some())
        };
        failed.expect_err("the handshake never ends");
        assert!(framed.recv().await.unwrap().is_none(), "the error comes once");
    }
}

#[tokio::test]
async fn requests_are_answered_and_the_protocol_ends_the_connection() {
    let requests = b"GET /ebb HTTP/1.1\r\nHost: a\r\n\r\nGET /flow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let script = Script::new([Piece::Bytes(requests.to_vec()), Piece::Pause, Piece::End]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    let mut targets = Vec::new();
    while let Some(incoming) = framed.recv().await.unwrap() {
        if let http1::Incoming::Head(head) = incoming {
            targets.push(head.target().to_owned());
            framed.send(http1::Response::text(head.target().to_owned()).into()).unwrap();
        }
    }
    assert_eq!(targets, ["/ebb", "/flow"]);
    assert!(script.is_shut(), "the codec has ended the connection");
    let written = String::from_utf8(script.take_written()).unwrap();
    assert_eq!(written.matches("HTTP/1.1 200 OK").count(), 2, "{written}");
}

#[tokio::test]
async fn another_codec_continues_with_the_bytes_that_are_left() {
    let script = Script::new([Piece::Bytes(b"BINARY\n\0\x03ebb\0\x04fl".to_vec())]);
    let mut text = Framed::new(script.clone(), Lines::new());
    assert_eq!(text.recv().await.unwrap().as_deref(), Some(&b"BINARY"[..]));
    text.send("OK".into()).unwrap();
    let mut binary = text.switch(|_| LengthField::new(2)).expect("it is open");
    assert_eq!(binary.recv().await.unwrap().as_deref(), Some(&b"ebb"[..]));
    binary.send("flow".into()).unwrap();
    binary.flush().await.unwrap();
    assert_eq!(script.take_written(), b"OK\n\0\x04flow");
    let (_, _, unread) = binary.into_parts();
    assert_eq!(unread.bytes(), b"\0\x04fl");
}

/// Sends files behind a byte.
struct Files;

impl Codec for Files {
    type In = Infallible;
    type Out = FileRegion;
    type Error = Infallible;

    fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<Infallible>, Infallible> {
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, region: FileRegion, out: &mut Output<'_>) -> Result<(), Infallible> {
        out.write(b"F");
        out.link_file(region);
        Ok(())
    }
}

#[tokio::test]
async fn pieces_of_files_are_sent_with_and_without_a_filter() {
    let mut path = std::env::temp_dir();
    path.push(format!("tidegate-compat-{}", std::process::id()));
    let bytes: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
    File::create(&path).unwrap().write_all(&bytes).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let region = |length| FileRegion { file: file.clone(), offset: 10, length };

    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Files);
    framed.send(region(70_000)).unwrap();
    framed.flush().await.unwrap();
    assert_eq!(script.take_written(), [b"F", &bytes[10..70_010]].concat());

    let script = Script::new([Piece::Bytes(b"TOY?".to_vec())]);
    let mut framed = Framed::new(script.clone(), Over::new(ToyTls::server(KEY), Files));
    framed.send(region(70_000)).unwrap();
    framed.flush().await.unwrap();
    assert_eq!(ToyTls::decode_wire(KEY, &script.take_written()).0, [b"F", &bytes[10..70_010]].concat());

    let mut framed = Framed::new(Script::new([]), Files);
    framed.send(region(200_000)).unwrap();
    let error = framed.flush().await.expect_err("the file is shorter");
    assert!(
        matches!(error, tidegate_compat::framed::FramedError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
    );
}

#[tokio::test]
async fn a_message_that_the_protocol_cannot_express_is_refused_and_the_connection_goes_on() {
    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    framed.send("two\nlines".into()).expect_err("a line has no line end");
    framed.send(Payload::from("one")).unwrap();
    framed.flush().await.unwrap();
    assert_eq!(script.take_written(), b"one\n");
}
