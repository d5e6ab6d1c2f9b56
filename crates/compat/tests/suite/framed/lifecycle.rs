//! The calls of a codec, in their order.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};
use tidegate_compat::Framed;

use crate::framed::script::{Piece, Script};

/// Every byte is a message; notes its calls.
struct Noted {
    calls: Rc<RefCell<Vec<String>>>,
    status: CodecStatus,
    timeout: Option<Instant>,
}

impl Noted {
    fn note(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl Codec for Noted {
    type In = u8;
    type Out = u8;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<u8>, Infallible> {
        let Some(&byte) = input.bytes().first() else { return Ok(Step::NeedMore) };
        if self.status.is_blocked {
            return Ok(Step::NeedMore);
        }
        input.consume(1);
        self.note(format!("decoded {}", char::from(byte)));
        self.status.is_blocked = byte == b'?';
        Ok(Step::Message(byte))
    }

    fn encode(&mut self, byte: u8, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.note(format!("encoded {}", char::from(byte)));
        self.status.is_blocked = false;
        self.status.is_finished = byte == b'.';
        out.write(&[byte]);
        Ok(())
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.note(format!("{event:?}"));
        out.write(match event {
            Lifecycle::Opened => b"<",
            Lifecycle::Drain => b"d",
            Lifecycle::Fail => b"f",
            Lifecycle::Close => b">",
            _ => b"",
        });
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        self.status
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }

    fn handle_timeout(&mut self, _: &Input, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.note("timeout".into());
        self.timeout = None;
        out.write(b"t");
        Ok(())
    }
}

fn noted() -> (Rc<RefCell<Vec<String>>>, Noted) {
    let calls = Rc::default();
    (Rc::clone(&calls), Noted { calls, status: CodecStatus::default(), timeout: None })
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_opened_resumed_drained_and_closed() {
    let (calls, codec) = noted();
    let script = Script::new([Piece::Bytes(b"ab".to_vec())]);
    let mut framed = Framed::new(script.clone(), codec);
    assert_eq!(*calls.borrow(), ["Opened"], "before every other call");
    assert_eq!(framed.recv().await.unwrap(), Some(b'a'));
    assert_eq!(framed.recv().await.unwrap(), Some(b'b'));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(framed.recv().now_or_never().is_none());
    framed.drain();
    framed.send(b'x').unwrap();
    script.push(Piece::End);
    assert_eq!(framed.recv().await.unwrap(), None);
    framed.close().await.unwrap();
    assert_eq!(
        calls.take(),
        ["Opened", "decoded a", "decoded b", "Resumed", "Drain", "encoded x", "Close"],
        "resumed after a second in which no task waited, and not between two calls"
    );
    assert_eq!(script.take_written(), b"<dx>");
}

#[tokio::test(start_paused = true)]
async fn a_failure_comes_before_the_close() {
    let (calls, codec) = noted();
    let script = Script::new([Piece::End]);
    let mut framed = Framed::new(script.clone(), codec);
    framed.fail().await.unwrap();
    assert_eq!(calls.take(), ["Opened", "Fail", "Close"]);
    assert_eq!(script.take_written(), b"<f>");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_our_side_closes_the_codecs_side_once() {
    let (calls, codec) = noted();
    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), codec);
    framed.shutdown_write();
    framed.flush().await.unwrap();
    assert!(script.is_shut());
    script.push(Piece::Bytes(b"z".to_vec()));
    script.push(Piece::End);
    assert_eq!(framed.recv().await.unwrap(), Some(b'z'));
    assert_eq!(framed.recv().await.unwrap(), None);
    framed.close().await.unwrap();
    assert_eq!(calls.take(), ["Opened", "Close", "decoded z"]);
}

#[tokio::test(start_paused = true)]
async fn a_codec_that_waits_for_an_answer_is_read_no_further() {
    let (_, codec) = noted();
    let script = Script::new([Piece::Bytes(b"?ab".to_vec()), Piece::Bytes(b"cd".to_vec())]);
    let mut framed = Framed::new(script.clone(), codec);
    assert_eq!(framed.recv().await.unwrap(), Some(b'?'));
    for _ in 0..3 {
        assert!(framed.recv().now_or_never().is_none());
    }
    assert_eq!(script.unread(), 1, "the bytes behind the request stay where they are");
    framed.send(b'!').unwrap();
    for byte in b"abcd" {
        assert_eq!(framed.recv().await.unwrap(), Some(*byte));
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_that_is_finished_closes_behind_its_last_message() {
    let (calls, codec) = noted();
    let script = Script::new([Piece::Bytes(b"a".to_vec()), Piece::Bytes(b"unread".to_vec()), Piece::End]);
    let mut framed = Framed::new(script.clone(), codec);
    assert_eq!(framed.recv().await.unwrap(), Some(b'a'));
    framed.send(b'.').unwrap();
    assert_eq!(framed.recv().await.unwrap(), None);
    assert_eq!(calls.take(), ["Opened", "decoded a", "encoded .", "Close"]);
    assert_eq!(script.take_written(), b"<.>");
    assert!(script.is_shut());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_codec_is_handled_while_a_task_waits() {
    let (calls, mut codec) = noted();
    codec.timeout = Some(tokio::time::Instant::now().into_std() + Duration::from_secs(10));
    let script = Script::new([]);
    let mut framed = Framed::new(script.clone(), codec);
    let begun = tokio::time::Instant::now();
    tokio::time::timeout(Duration::from_secs(60), framed.recv()).await.expect_err("no message comes");
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert_eq!(calls.take(), ["Opened", "timeout"]);
    assert_eq!(script.take_written(), b"<t", "its output leaves at once");
}
