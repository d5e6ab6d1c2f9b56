//! The memory of a thread: one pool, one receive buffer and one clock for all [`Framed`](super::Framed)s on it.
//!
//! A tokio stream has no readiness that could be awaited without a buffer: `poll_read` takes one, and gives it back
//! unused if nothing has come. So all connections of a thread read into the same buffer, and an idle one has none.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use tidegate_buffer::{Pool, Scratch, Slice};
use tidegate_codec::Time;

pub(super) struct ThreadMemory {
    pool: Pool,
    /// Absent while a stream reads into it: such a stream may be a layer over another `Framed`.
    scratch: Cell<Option<Scratch>>,
    time: RefCell<Time>,
}

impl ThreadMemory {
    pub(super) fn current() -> Rc<Self> {
        thread_local! {
            static MEMORY: Rc<ThreadMemory> = Rc::new(ThreadMemory::new());
        }
        MEMORY.with(Rc::clone)
    }

    fn new() -> Self {
        let time = RefCell::new(Time::new(clock(), SystemTime::now()));
        Self { pool: Pool::new(), scratch: Cell::default(), time }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn time(&self) -> Ref<'_, Time> {
        self.time.borrow()
    }

    /// Reads tokio's clock, which tests may pause. Returns the time, which stands still until the next call.
    pub(super) fn advance(&self) -> Instant {
        let now = clock();
        self.time.borrow_mut().advance(now, SystemTime::now);
        now
    }

    /// Has `read` fill the receive buffer, and returns a view of the bytes that it wrote.
    pub(super) fn receive<E>(
        &self,
        bytes_max: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Slice, E> {
        let mut scratch = self.scratch.take().unwrap_or_else(|| Scratch::new(&self.pool));
        let received = read(scratch.space(bytes_max)).map(|count| scratch.received(count));
        self.scratch.set(Some(scratch));
        received
    }
}

/// The time by the clock of the thread's runtime.
fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
