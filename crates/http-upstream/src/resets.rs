//! `Resets`: how many streams of one HTTP/2 connection this side resets, and the streams whose reset waits.
//!
//! A server counts the streams that its peer resets, and ends the connection of one that resets many (CVE-2023-44487), with
//! all requests that share it. So resets have a rate. A stream beyond it is *discarded*: it stays
//! open until its reset is due, or until its response is complete. Nothing of it is kept, and no more than
//! [`DISCARDED_BYTES_MAX`] is read: its window bounds the rest.
//!
//! A connection on which half of the streams are discarded is *spent*: it takes no further stream, and closes once no
//! other stream is left.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::{ChannelError, task};
use tidegate_http1::client::Incoming;

/// The resets of one connection.
#[derive(Debug)]
pub(super) struct Resets {
    interval: Duration,
    /// How many streams may be reset at once.
    max: u32,
    /// When the next reset comes at the sustained rate (the generic cell rate algorithm).
    arrival: Cell<Option<Instant>>,
    /// Streams that are discarded at present.
    discarded: Cell<usize>,
    is_spent: Cell<bool>,
    /// No other stream is left: the discarded ones end with their connection.
    is_over: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// A stream of which nothing is needed any more. Dropping it resets it, unless it is complete.
pub(super) trait DiscardableStream: 'static {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>>;
}

impl Resets {
    /// So many resets at once, and so many a second.
    pub(super) fn new(max: u32, per_second: u32) -> Rc<Self> {
        Rc::new(Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            max,
            arrival: Cell::new(None),
            discarded: Cell::new(0),
            is_spent: Cell::new(false),
            is_over: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// Resets a stream, now or when that is due. Without a loop, which would have to wait, it is reset now.
    pub(super) fn reset(self: &Rc<Self>, stream: impl DiscardableStream) {
        if !task::can_spawn() {
            return;
        }
        if let Some(due) = self.due(task::now()) {
            self.discarded.set(self.discarded.get() + 1);
            drop(task::spawn(discard(DiscardedCount(self.clone()), stream, due)));
        }
    }

    /// When one more stream may be reset; `None` if that is now.
    fn due(&self, now: Instant) -> Option<Instant> {
        let arrival = self.arrival.get().map_or(now, |arrival| arrival.max(now));
        self.arrival.set(arrival.checked_add(self.interval));
        let due = arrival.checked_sub(self.interval.checked_mul(self.max.saturating_sub(1))?)?;
        (due > now).then_some(due)
    }

    /// Whether the connection, which permits so many streams, takes no further one, since half of them are discarded.
    pub(super) fn is_spent(&self, permitted: usize) -> bool {
        if self.discarded.get() * 2 >= permitted.clamp(1, STREAMS_MAX) {
            self.is_spent.set(true);
        }
        self.is_spent.get()
    }

    /// So many streams are open. If the connection is spent and all of them are discarded, they end.
    pub(super) fn on_open(&self, open: usize) {
        if self.is_spent.get() && open <= self.discarded.get() && !self.is_over.replace(true) {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The place of a stream that is discarded.
struct DiscardedCount(Rc<Resets>);

impl Drop for DiscardedCount {
    fn drop(&mut self) {
        self.0.discarded.set(self.0.discarded.get() - 1);
        if self.0.discarded.get() == 0 {
            self.0.waiting.take();
        }
    }
}

/// Reads and discards the bytes of a stream, until its reset is due.
async fn discard(place: DiscardedCount, mut stream: impl DiscardableStream, due: Instant) {
    let mut due = pin!(task::sleep_until(due));
    let mut left = DISCARDED_BYTES_MAX;
    poll_fn(|cx| {
        if due.as_mut().poll(cx).is_ready() || place.0.poll_over(cx).is_ready() {
            return Poll::Ready(());
        }
        // The codec bounds interim responses, so the rounds are bounded.
        while left > 0 {
            match stream.poll_recv(cx) {
                Poll::Ready(Ok(Some(Incoming::Data(data)))) => left = left.saturating_sub(data.len()),
                Poll::Ready(Ok(Some(Incoming::Head(head)))) if !head.has_body() => return Poll::Ready(()),
                Poll::Ready(Ok(Some(Incoming::Head(_) | Incoming::Interim(_) | Incoming::Trailers(_)))) => {}
                Poll::Ready(Ok(Some(Incoming::End) | None) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        Poll::Pending
    })
    .await;
    // The stream first: its connection may close with it.
    drop(stream);
    drop(place);
}

/// Of so many streams at most a connection is spent if half of them are discarded.
const STREAMS_MAX: usize = 128;

/// How many bytes of a stream are read and discarded: fewer than would have its window granted again.
const DISCARDED_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_beyond_the_burst_are_due_one_after_the_other() {
        let (resets, start) = (Resets::new(3, 10), Instant::now());
        let due = |millis: u64| {
            let now = start + Duration::from_millis(millis);
            resets.due(now).map(|due| (due - start).as_millis())
        };
        assert_eq!([due(0), due(0), due(0)], [None; 3]);
        assert_eq!([due(0), due(0)], [Some(100), Some(200)]);
        assert_eq!(due(1_000), None, "time brings them back");
    }

    #[test]
    fn a_connection_is_spent_for_good_once_half_of_its_streams_are_discarded() {
        let resets = Resets::new(3, 10);
        resets.discarded.set(49);
        assert!(!resets.is_spent(100));
        resets.discarded.set(50);
        assert!(resets.is_spent(100));
        resets.discarded.set(2);
        assert!(resets.is_spent(100));
        resets.on_open(3);
        assert!(!resets.is_over.get(), "a stream is left that is not discarded");
        resets.on_open(2);
        assert!(resets.is_over.get());
    }
}
