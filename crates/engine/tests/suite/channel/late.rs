//! A driver whose last completion for a socket comes late, as that of a completion driver: the time in between.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Slice;
use tidegate_codec::framing::{LengthField, Lines};
use tidegate_engine::{Channel, ChannelError, CloseReason, Context, EventLoop, Handler, Limits, Outcome};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

use crate::journal::Journal;

/// Breaks every connection at once, and reports `Closed` when the test allows it.
#[derive(Default)]
struct Late {
    broken: Vec<Token>,
    closing: Vec<Token>,
    lets_go: Rc<Cell<bool>>,
}

impl Driver for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    fn waker(&self) -> Waker {
        struct NoWake;
        impl Wake for NoWake {
            fn wake(&self) {}
        }
        Waker::new(Arc::new(NoWake))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Adopt(_) => self.broken.push(token),
            Operation::Close { .. } => self.closing.push(token),
            _ => {}
        }
        None
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        if let Some(token) = self.broken.pop() {
            return Some((token, Completion::Failed(io::ErrorKind::ConnectionReset.into())));
        }
        let closed = self.lets_go.get().then(|| self.closing.pop())??;
        Some((closed, Completion::Closed))
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, _: bool) {}

    fn address(&self, _: Token, _: Side) -> io::Result<Address> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn late() -> (EventLoop, Rc<Cell<bool>>) {
    let driver = Late::default();
    let lets_go = driver.lets_go.clone();
    (EventLoop::new(Box::new(driver), Pool::new()), lets_go)
}

fn open(event_loop: &mut EventLoop) -> Channel<Lines> {
    let peer = Address::Ip(([192, 0, 2, 1], 7000).into());
    let channel = event_loop.open(Socket::Simulated(0), &peer, Limits::default(), Lines::new());
    let channel = channel.expect("the driver takes it");
    event_loop.turn(None).expect("waiting does not fail");
    channel
}

#[test]
fn a_closing_channel_can_be_switched_and_reports_its_close_reason() {
    let (mut event_loop, lets_go) = late();
    let channel = open(&mut event_loop);
    let mut frames = channel.switch(|_| LengthField::new(2)).expect("it is still there");
    let waiting = event_loop.spawn(async move {
        let come = frames.recv().await;
        matches!(come, Err(ChannelError::Closed(reason)) if matches!(*reason, CloseReason::Broken(_)))
    });
    event_loop.turn(None).expect("waiting does not fail");
    assert!(!waiting.is_finished());
    lets_go.set(true);
    assert!(event_loop.block_on(waiting).expect("waiting does not fail").expect("it is fine"));
    assert_eq!((event_loop.counts().connections, event_loop.counts().closed_broken), (0, 1));
}

#[test]
fn a_closing_channel_can_be_lost_in_a_switch() {
    let (mut event_loop, lets_go) = late();
    let channel = open(&mut event_loop);
    assert!(channel.switch(|_| -> LengthField { panic!("on request") }).is_err());
    lets_go.set(true);
    event_loop.drain(Duration::from_secs(1));
    event_loop.run().expect("waiting does not fail");
    assert!(event_loop.is_drained());
    assert_eq!(event_loop.counts().connections, 0);
}

#[test]
fn a_closing_connection_is_notified_once_when_the_loop_ends() {
    struct Recorder(Journal);

    impl Handler<Lines> for Recorder {
        type Post = ();

        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::Continue
        }

        fn closed(&mut self, reason: &CloseReason) {
            self.0.note(reason.to_string());
        }
    }

    let (mut event_loop, _) = late();
    let journal = Journal::default();
    let recorder = Recorder(journal.clone());
    let peer = Address::Ip(([192, 0, 2, 1], 7000).into());
    event_loop.adopt(Socket::Simulated(0), &peer, Limits::default(), Lines::new(), recorder).expect("it is taken");
    event_loop.turn(None).expect("waiting does not fail");
    assert_eq!(journal.take(), [""; 0]);
    drop(event_loop);
    assert_eq!(journal.take(), ["the connection broke: connection reset"]);
}
