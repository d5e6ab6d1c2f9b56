//! Loops with socket pairs, and futures that do one thing.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, EventLoop, Limits};
use tidegate_sys::{Address, Socket};

/// Notes when it is dropped.
pub(crate) struct Drops(pub(crate) Rc<Cell<u32>>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Lets the other tasks run.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for ever.
pub(crate) async fn never() {
    std::future::pending::<()>().await;
}

/// The waker of the task that awaits this.
pub(crate) async fn waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

pub(crate) fn event_loop() -> EventLoop {
    EventLoop::readiness().expect("there is a descriptor left")
}

/// A channel over a socket pair; the other end does not block.
pub(crate) fn open(event_loop: &mut EventLoop) -> (Channel<Lines>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("there are descriptors left");
    theirs.set_nonblocking(true).expect("a socket");
    let (ours, peer) = (Socket::from_stream(ours).expect("a stream"), Address::Unix(PathBuf::new()));
    let channel = event_loop.open(ours, &peer, Limits::default(), Lines::new());
    (channel.expect("the driver takes it"), theirs)
}

pub(crate) fn say(peer: &mut UnixStream, bytes: &[u8]) {
    peer.write_all(bytes).expect("there is room");
}

/// The bytes that the peer can read.
pub(crate) fn received(peer: &mut UnixStream) -> Vec<u8> {
    let mut room = [0; 4096];
    let count = peer.read(&mut room).unwrap_or(0);
    room[..count].to_vec()
}

/// `count` turns, none of which waits.
pub(crate) fn turns(event_loop: &mut EventLoop, count: usize) {
    for _ in 0..count {
        event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail");
    }
}
