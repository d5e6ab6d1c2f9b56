//! How connections end: half-closed both ways, by errors of the codec, by failures of the stream and of the application.

use std::io::ErrorKind;

use futures_util::FutureExt;
use tidegate::http1;
use tidegate_codec::framing::{LengthField, Lines, Raw};
use tidegate_compat::Framed;
use tidegate_compat::framed::FramedError;
use tidegate_engine::SendError;

use crate::framed::script::{Piece, Script};

#[tokio::test]
async fn after_the_peers_end_messages_are_still_sent() {
    let script = Script::new([Piece::Bytes(b"ask\n".to_vec()), Piece::End]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"ask"[..]));
    assert!(framed.recv().await.unwrap().is_none());
    for _ in 0..3 {
        framed.send("answer".into()).unwrap();
        framed.flush().await.unwrap();
    }
    assert!(!script.is_shut());
    framed.close().await.unwrap();
    assert!(script.is_shut());
    assert_eq!(script.take_written(), b"answer\nanswer\nanswer\n");
    framed.close().await.unwrap();
    assert!(matches!(framed.send("more".into()), Err(SendError::Closed(_))));
}

#[tokio::test]
async fn after_our_end_messages_are_still_received() {
    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    framed.send("question".into()).unwrap();
    framed.shutdown_write();
    assert!(matches!(framed.send("more".into()), Err(SendError::Closed(_))));
    assert!(framed.recv().now_or_never().is_none());
    assert!(script.is_shut());
    assert_eq!(script.take_written(), b"question\n");
    for piece in [Piece::Bytes(b"one\ntwo\n".to_vec()), Piece::End] {
        script.push(piece);
    }
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"two"[..]));
    assert!(framed.recv().await.unwrap().is_none());
}

#[tokio::test]
async fn the_peer_gets_the_codecs_last_reply_before_the_application_gets_the_error() {
    let script = Script::new([Piece::Bytes(b"GET / HTTP/9.9\r\n\r\n".to_vec()), Piece::Pause, Piece::End]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    let error = framed.recv().await.map(drop).expect_err("no such version");
    assert!(matches!(error, FramedError::Protocol(_)), "{error:?}");
    let written = String::from_utf8(script.take_written()).unwrap();
    assert!(written.starts_with("HTTP/1.1 505 "), "{written}");
    assert!(script.is_shut());
    assert!(framed.recv().await.unwrap().is_none(), "the error comes once");
    framed.close().await.unwrap();
}

#[tokio::test]
async fn a_truncated_message_is_an_error_where_the_codec_says_so() {
    let script = Script::new([
        Piece::Bytes(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf".to_vec()),
        Piece::End,
    ]);
    let mut framed = Framed::new(script, http1::Server::default());
    let error = loop {
        match framed.recv().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a truncated body is no end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FramedError::Protocol(_)), "{error:?}");
}

#[tokio::test]
async fn a_stream_that_fails_to_read_is_an_error_after_the_messages_before_it() {
    let script = Script::new([Piece::Bytes(b"one\ntwo\nhalf".to_vec()), Piece::Error(ErrorKind::ConnectionReset)]);
    let mut framed = Framed::new(script, Lines::new());
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"two"[..]));
    let error = framed.recv().await.map(drop).expect_err("a reset");
    assert!(matches!(&error, FramedError::Io(error) if error.kind() == ErrorKind::ConnectionReset), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert!(matches!(framed.send("more".into()), Err(SendError::Closed(_))));
    assert!(framed.recv().await.unwrap().is_none(), "the error comes once");
}

#[tokio::test]
async fn a_stream_that_fails_to_write_is_an_error_after_the_messages_that_had_arrived() {
    let script = Script::new([Piece::Bytes(b"first\n".to_vec())]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"first"[..]));
    framed.send("answer".into()).unwrap();
    script.fail_writes(ErrorKind::BrokenPipe);
    script.push(Piece::Bytes(b"last words\n".to_vec()));
    assert_eq!(framed.recv().await.unwrap().as_deref(), Some(&b"last words"[..]));
    let error = framed.recv().await.map(drop).expect_err("a broken stream");
    assert!(matches!(&error, FramedError::Io(error) if error.kind() == ErrorKind::BrokenPipe), "{error:?}");

    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Lines::new());
    script.fail_writes(ErrorKind::BrokenPipe);
    framed.send("never arrives".into()).unwrap();
    framed.flush().await.expect_err("a broken stream");
    framed.ready().await.expect_err("nothing can be sent");
}

#[tokio::test]
async fn an_application_that_fails_sends_the_protocols_reply_or_must_reset() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let script = Script::new([Piece::Bytes(request), Piece::Pause, Piece::End]);
    let mut framed = Framed::new(script.clone(), http1::Server::default());
    framed.recv().await.unwrap().unwrap();
    framed.fail().await.unwrap();
    let written = String::from_utf8(script.take_written()).unwrap();
    assert!(written.starts_with("HTTP/1.1 500 "), "{written}");
    assert!(script.is_shut());

    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), Raw);
    framed.send("half".into()).unwrap();
    assert!(matches!(framed.fail().await, Err(FramedError::ResetRequired)));
    assert!(!script.is_shut() && script.take_written().is_empty(), "an end would look like a whole");
}

#[tokio::test]
async fn a_codec_that_is_replaced_too_late_stays() {
    let script = Script::new([Piece::End]);
    let mut framed = Framed::new(script, Lines::new());
    framed.close().await.unwrap();
    let framed = framed.switch(|_| LengthField::new(2)).map(drop).expect_err("it is closed");
    assert!(format!("{framed:?}").starts_with("Framed"));
}
