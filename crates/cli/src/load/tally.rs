//! `Counters`: what one loop has counted.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::connection::Role;
use super::figures::{Errors, Held, Interval};

/// What one loop has counted. It lives on that loop's thread; `board` is what others may look at meanwhile.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    board: Arc<SharedStats>,
    requests: Cell<u64>,
    bytes_read: Cell<u64>,
    errors: Cell<Errors>,
    unanswered: Cell<u64>,
    idle: Cell<Held>,
    stuck: Cell<Held>,
    latency: RefCell<Histogram<u64>>,
    interval: RefCell<Current>,
}

/// The interval that is under way.
#[derive(Debug)]
struct Current {
    since_requests: u64,
    latency: Histogram<u64>,
}

/// What all loops share, and whoever shows how far they are.
#[derive(Debug)]
pub(crate) struct SharedStats {
    requests: AtomicU64,
    errors: AtomicU64,
    /// Connections that were made, and that could not be.
    connected: AtomicU64,
    unconnected: AtomicU64,
    /// The length of the first good response, or [`UNKNOWN`].
    length: AtomicU64,
    /// Whether responses may differ in their lengths.
    any_length: bool,
}

/// What a response was found to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    #[default]
    Good,
    /// Its status is neither 2xx nor 3xx.
    Status,
    /// Its body is longer or shorter than that of the first.
    Length,
}

impl SharedStats {
    pub(crate) fn new(any_length: bool) -> Self {
        Self {
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            unconnected: AtomicU64::new(0),
            length: AtomicU64::new(UNKNOWN),
            any_length,
        }
    }

    /// Good responses so far, and errors.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed))
    }

    /// Whether anybody could be reached.
    fn has_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed) > 0
    }

    /// Whether so many connections have been tried, and none could be made.
    pub(crate) fn is_hopeless(&self, connections: usize) -> bool {
        !self.has_connected() && self.unconnected.load(Ordering::Relaxed) >= connections.max(1) as u64
    }
}

impl WorkerStats {
    pub(crate) fn new(board: Arc<SharedStats>) -> Self {
        Self {
            board,
            requests: Cell::default(),
            bytes_read: Cell::default(),
            errors: Cell::default(),
            unanswered: Cell::default(),
            idle: Cell::default(),
            stuck: Cell::default(),
            latency: RefCell::new(histogram(DIGITS)),
            interval: RefCell::new(Current { since_requests: 0, latency: histogram(DIGITS_OF_INTERVALS) }),
        }
    }

    /// Bytes have come.
    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_read.set(self.bytes_read.get() + bytes as u64);
    }

    /// What a response with this status is, and with this length if that is known.
    pub(crate) fn judge(&self, status: u16, length: Option<u64>) -> Verdict {
        if !(200..400).contains(&status) {
            return Verdict::Status;
        }
        length.map_or(Verdict::Good, |length| self.judge_length(length))
    }

    /// What a response with a good status and this length is. The first says what is right.
    pub(crate) fn judge_length(&self, length: u64) -> Verdict {
        if self.board.any_length {
            return Verdict::Good;
        }
        match self.board.length.compare_exchange(UNKNOWN, length, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if first != length => Verdict::Length,
            _ => Verdict::Good,
        }
    }

    /// So many responses have come that are not as they should be.
    pub(crate) fn bad(&self, verdict: Verdict, count: u32) {
        match verdict {
            Verdict::Good => {}
            Verdict::Status => self.count(|errors| errors.status += u64::from(count)),
            Verdict::Length => self.count(|errors| errors.length += u64::from(count)),
        }
    }

    /// So many good responses have come, each this long after its request.
    pub(crate) fn answered(&self, count: u32, after: Duration) {
        self.requests.set(self.requests.get() + u64::from(count));
        self.took(count.into(), nanoseconds(after));
    }

    /// So many requests had waited for this long when the load ended, and would have waited longer. One that has not waited
    /// for as long as any answer took says nothing.
    pub(crate) fn waited(&self, count: u64, so_far: Duration) {
        let shortest = if self.requests.get() == 0 { 0 } else { self.latency.borrow().min() };
        let nanoseconds = nanoseconds(so_far);
        if nanoseconds >= shortest {
            self.took(count, nanoseconds);
        }
    }

    fn took(&self, count: u64, nanoseconds: u64) {
        for histogram in [&mut *self.latency.borrow_mut(), &mut self.interval.borrow_mut().latency] {
            // It grows to what it is given, so there is nothing that it could refuse.
            let _ = histogram.record_n(nanoseconds, count);
        }
    }

    /// So many requests were under way when the load ended.
    pub(crate) fn left(&self, count: u32) {
        self.unanswered.set(self.unanswered.get() + u64::from(count));
    }

    /// A connection was made.
    pub(crate) fn connected(&self) {
        self.board.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a connection was made, on whatever loop.
    pub(crate) fn somebody_is_there(&self) -> bool {
        self.board.has_connected()
    }

    /// A connection could not be made.
    pub(crate) fn unconnected(&self) {
        self.board.unconnected.fetch_add(1, Ordering::Relaxed);
        self.count(|errors| errors.connect += 1);
    }

    /// A connection broke.
    pub(crate) fn broken(&self, while_writing: bool) {
        self.count(|errors| if while_writing { errors.write += 1 } else { errors.read += 1 });
    }

    /// So many requests were not answered in time.
    pub(crate) fn timed_out(&self, count: u32) {
        self.count(|errors| errors.timeout += u64::from(count));
    }

    /// Something came that is no answer.
    pub(crate) fn invalid(&self) {
        self.count(|errors| errors.invalid += 1);
    }

    /// The server has closed although it owed answers.
    pub(crate) fn closed(&self) {
        self.count(|errors| errors.closed += 1);
    }

    fn count(&self, count: impl FnOnce(&mut Errors)) {
        let mut errors = self.errors.get();
        count(&mut errors);
        self.errors.set(errors);
    }

    /// A connection is there that does nothing, or that is never read.
    pub(crate) fn held(&self, role: Role) {
        let counted = self.holding(role);
        counted.set(Held { held: counted.get().held + 1, ..counted.get() });
    }

    /// One of them is there no more.
    pub(crate) fn lost(&self, role: Role) {
        let counted = self.holding(role);
        let Held { held, lost } = counted.get();
        counted.set(Held { held: held - 1, lost: lost + 1 });
    }

    /// Only so many of those that are never read are still there.
    pub(crate) fn still_stuck(&self, count: u64) {
        let Held { held, lost } = self.stuck.get();
        let still = held.min(count);
        self.stuck.set(Held { held: still, lost: lost + (held - still) });
    }

    fn holding(&self, role: Role) -> &Cell<Held> {
        if role == Role::NeverRead { &self.stuck } else { &self.idle }
    }

    pub(crate) fn errors(&self) -> Errors {
        self.errors.get()
    }

    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.get()
    }

    pub(crate) fn idle(&self) -> Held {
        self.idle.get()
    }

    pub(crate) fn stuck(&self) -> Held {
        self.stuck.get()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.get()
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.get()
    }

    /// Shows others how far it is: what has changed since `shown`, which is what it has shown before.
    pub(crate) fn show(&self, shown: &mut (u64, u64)) {
        let now = (self.requests.get(), self.errors.get().total());
        self.board.requests.fetch_add(now.0 - shown.0, Ordering::Relaxed);
        self.board.errors.fetch_add(now.1 - shown.1, Ordering::Relaxed);
        *shown = now;
    }

    /// Ends an interval.
    pub(crate) fn take_interval(&self, until: Duration) -> Interval {
        let mut current = self.interval.borrow_mut();
        let latency = std::mem::replace(&mut current.latency, histogram(DIGITS_OF_INTERVALS));
        let requests = self.requests.get() - std::mem::replace(&mut current.since_requests, self.requests.get());
        Interval { until, requests, latency }
    }

    pub(crate) fn take_latency(&self) -> Histogram<u64> {
        self.latency.replace(histogram(DIGITS))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).clamp(1, LATENCY_MAX)
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).expect("HdrHistogram takes up to five digits")
}

/// No good response has come yet.
const UNKNOWN: u64 = u64::MAX;

/// An hour, in nanoseconds: what takes longer counts as that.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// There are many of them, and they become lines of a picture.
const DIGITS_OF_INTERVALS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_there_only_if_no_thread_has_reached_anybody() {
        let board = Arc::new(SharedStats::new(false));
        let (one, other) = (WorkerStats::new(board.clone()), WorkerStats::new(board.clone()));
        one.unconnected();
        assert!(!board.is_hopeless(2), "the other has not tried");
        other.unconnected();
        assert!(board.is_hopeless(2));
        other.connected();
        assert!(!board.is_hopeless(2), "the first may try again");
    }

    #[test]
    fn what_waits_at_the_end_counts_if_it_waits_for_as_long_as_an_answer_took() {
        let tally = WorkerStats::new(Arc::new(SharedStats::new(false)));
        tally.answered(3, Duration::from_millis(5));
        tally.waited(2, Duration::from_millis(1));
        tally.waited(4, Duration::from_secs(1));
        assert_eq!(tally.requests(), 3);
        let latency = tally.take_latency();
        assert_eq!((latency.len(), latency.min() / 1_000_000), (7, 4));
        assert!(latency.max() >= 1_000_000_000);
        // Where nothing was answered, all that is known is what has waited.
        let tally = WorkerStats::new(Arc::new(SharedStats::new(false)));
        tally.waited(1, Duration::from_secs(2));
        tally.waited(1, Duration::from_secs(1));
        assert_eq!(tally.take_latency().len(), 2);
    }
}
