//! The tasks that wait for a connection: one for messages, one to send. They may be two.
//!
//! A tokio stream remembers one task for each direction: the one that polled last. Yet a task that waits for messages
//! also writes, and a task that sends reads during a handshake. So each polls the stream with a waker that wakes both,
//! and neither takes the place of the other.

use std::sync::Arc;
use std::task::{Wake, Waker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
}

#[derive(Debug, Default)]
pub(super) struct Wakers {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Wakers {
    /// A waker for `waker`'s task and the task that waits on the other side, if that is another one.
    pub(super) fn joined(&self, side: Side, waker: &Waker) -> Option<Waker> {
        let other = match side {
            Side::Reader => self.writer.as_ref(),
            Side::Writer => self.reader.as_ref(),
        };
        let other = other.filter(|other| !other.will_wake(waker))?;
        Some(Waker::from(Arc::new(WakerPair(waker.clone(), other.clone()))))
    }

    /// The task waits on its side.
    pub(super) fn register(&mut self, side: Side, waker: &Waker) {
        *self.place(side) = Some(waker.clone());
    }

    /// No task waits on this side any more.
    pub(super) fn forget(&mut self, side: Side) {
        *self.place(side) = None;
    }

    /// Whether a task waits on a side.
    pub(super) fn waits(&self, side: Side) -> bool {
        match side {
            Side::Reader => self.reader.is_some(),
            Side::Writer => self.writer.is_some(),
        }
    }

    /// Wakes the task that waits on a side.
    pub(super) fn wake(&mut self, side: Side) {
        if let Some(waker) = self.place(side).take() {
            waker.wake();
        }
    }

    fn place(&mut self, side: Side) -> &mut Option<Waker> {
        match side {
            Side::Reader => &mut self.reader,
            Side::Writer => &mut self.writer,
        }
    }
}

struct WakerPair(Waker, Waker);

impl Wake for WakerPair {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}
