//! `WorkerStats`: the counts of one loop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::results::{Errors, HeldConnections, Interval};
use super::role::Role;
use super::shared_stats::{LiveFigures, SharedStats, UNKNOWN};

/// The counts of one loop. They live on that loop's thread; `shared` is the part that other threads may read meanwhile.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    shared: Arc<SharedStats>,
    /// All complete responses.
    requests: Cell<u64>,
    /// Those that were good.
    good: Cell<u64>,
    /// Responses by status.
    statuses: RefCell<Vec<u64>>,
    bytes_read: Cell<u64>,
    errors: Cell<Errors>,
    unanswered: Cell<u64>,
    idle: Cell<HeldConnections>,
    stuck: Cell<HeldConnections>,
    goaways: Cell<u64>,
    refused: Cell<u64>,
    latency: RefCell<Histogram<u64>>,
    interval: RefCell<Current>,
}

/// The current interval.
#[derive(Debug)]
struct Current {
    since_requests: u64,
    latency: Histogram<u64>,
}

/// The verdict on a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    #[default]
    Good,
    /// Its status is neither 2xx nor 3xx.
    Status,
    /// Its body is longer or shorter than that of the first.
    Length,
    /// It is an error reply of Redis.
    Reply,
}

impl WorkerStats {
    pub(crate) fn new(shared: Arc<SharedStats>) -> Self {
        Self {
            shared,
            requests: Cell::default(),
            good: Cell::default(),
            statuses: RefCell::default(),
            bytes_read: Cell::default(),
            errors: Cell::default(),
            unanswered: Cell::default(),
            idle: Cell::default(),
            stuck: Cell::default(),
            goaways: Cell::default(),
            refused: Cell::default(),
            latency: RefCell::new(histogram(DIGITS)),
            interval: RefCell::new(Current { since_requests: 0, latency: histogram(DIGITS_OF_INTERVALS) }),
        }
    }

    /// The time since the load was prepared.
    pub(crate) fn since_epoch(&self) -> Duration {
        self.shared.epoch.elapsed()
    }

    /// As for [`Exchange`](super::pipeline::Exchange::author).
    pub(crate) fn author(&self) -> u64 {
        self.shared.author
    }

    /// Counts a connection that is open to receive messages.
    pub(crate) fn opened(&self) {
        self.shared.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts received bytes.
    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_read.set(self.bytes_read.get() + bytes as u64);
    }

    /// Counts complete responses with this status.
    pub(crate) fn count_status(&self, status: u16, count: u32) {
        let (mut statuses, index) = (self.statuses.borrow_mut(), usize::from(status));
        if statuses.len() <= index {
            statuses.resize(index + 1, 0);
        }
        statuses[index] += u64::from(count);
    }

    /// The complete responses by status, without zeros.
    pub(crate) fn statuses(&self) -> BTreeMap<u16, u64> {
        let statuses = self.statuses.borrow();
        (0..).zip(statuses.iter().copied()).filter(|(_, count)| *count > 0).collect()
    }

    /// The verdict on a response with this status, and with this length if it is known.
    pub(crate) fn judge(&self, status: u16, length: Option<u64>) -> Verdict {
        if !(200..400).contains(&status) {
            return Verdict::Status;
        }
        length.map_or(Verdict::Good, |length| self.judge_length(length))
    }

    /// The verdict on a response with a good status and this length. The first response sets the expected length.
    pub(crate) fn judge_length(&self, length: u64) -> Verdict {
        if self.shared.any_length {
            return Verdict::Good;
        }
        match self.shared.length.compare_exchange(UNKNOWN, length, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if first != length => Verdict::Length,
            _ => Verdict::Good,
        }
    }

    /// Whether responses may differ.
    pub(crate) fn accepts_any_length(&self) -> bool {
        self.shared.any_length
    }

    /// Counts bad responses.
    pub(crate) fn bad(&self, verdict: Verdict, count: u32) {
        match verdict {
            Verdict::Good => {}
            Verdict::Status => self.count(|errors| errors.status += u64::from(count)),
            Verdict::Length => self.count(|errors| errors.length += u64::from(count)),
            Verdict::Reply => self.count(|errors| errors.reply += u64::from(count)),
        }
    }

    /// Counts complete responses, each with this latency, and how many of them are good.
    pub(crate) fn count_responses(&self, all: u32, good: u32, after: Duration) {
        self.requests.set(self.requests.get() + u64::from(all));
        self.good.set(self.good.get() + u64::from(good));
        self.took(all.into(), nanoseconds(after));
    }

    /// Counts requests that had waited for this long when the load ended. A wait below the shortest latency is not
    /// counted: it carries no information.
    pub(crate) fn count_unanswered(&self, count: u64, so_far: Duration) {
        let shortest = if self.requests.get() == 0 { 0 } else { self.latency.borrow().min() };
        let nanoseconds = nanoseconds(so_far);
        if nanoseconds >= shortest {
            self.took(count, nanoseconds);
        }
    }

    fn took(&self, count: u64, nanoseconds: u64) {
        for histogram in [&mut *self.latency.borrow_mut(), &mut self.interval.borrow_mut().latency] {
            // The histogram resizes itself, so it accepts every value.
            let _ = histogram.record_n(nanoseconds, count);
        }
    }

    /// Counts requests that were in flight when the load ended.
    pub(crate) fn left(&self, count: u32) {
        self.unanswered.set(self.unanswered.get() + u64::from(count));
    }

    /// Counts a successful connection attempt.
    pub(crate) fn connected(&self) {
        self.shared.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether any connection attempt has succeeded, on any loop.
    pub(crate) fn has_connected(&self) -> bool {
        self.shared.has_connected()
    }

    /// Counts a failed connection attempt.
    pub(crate) fn unconnected(&self) {
        self.shared.unconnected.fetch_add(1, Ordering::Relaxed);
        self.count(|errors| errors.connect += 1);
    }

    /// Counts a broken connection.
    pub(crate) fn broken(&self, while_writing: bool) {
        self.count(|errors| if while_writing { errors.write += 1 } else { errors.read += 1 });
    }

    /// Counts requests that timed out.
    pub(crate) fn timed_out(&self, count: u32) {
        self.count(|errors| errors.timeout += u64::from(count));
    }

    /// Counts a connection with invalid input.
    pub(crate) fn invalid(&self) {
        self.count(|errors| errors.invalid += 1);
    }

    /// Counts a close by the server with responses outstanding.
    pub(crate) fn closed(&self) {
        self.count(|errors| errors.closed += 1);
    }

    /// Counts a stream that the server has reset, whose request is not sent again.
    pub(crate) fn reset(&self) {
        self.count(|errors| errors.reset += 1);
    }

    /// Counts a connection on which the server has sent GOAWAY.
    pub(crate) fn goaway(&self) {
        self.goaways.set(self.goaways.get() + 1);
    }

    pub(crate) fn goaways(&self) -> u64 {
        self.goaways.get()
    }

    /// Counts a request that the server did not process, and that is sent again.
    pub(crate) fn refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refused.get()
    }

    fn count(&self, count: impl FnOnce(&mut Errors)) {
        let mut errors = self.errors.get();
        count(&mut errors);
        self.errors.set(errors);
    }

    /// Counts an established connection that is idle or never reads.
    pub(crate) fn held(&self, role: Role) {
        let counted = self.holding(role);
        counted.set(HeldConnections { held: counted.get().held + 1, ..counted.get() });
    }

    /// Counts the close of such a connection.
    pub(crate) fn lost(&self, role: Role) {
        let counted = self.holding(role);
        let HeldConnections { held, lost } = counted.get();
        counted.set(HeldConnections { held: held - 1, lost: lost + 1 });
    }

    /// Only `count` of the connections that never read are still established.
    pub(crate) fn still_stuck(&self, count: u64) {
        let HeldConnections { held, lost } = self.stuck.get();
        let still = held.min(count);
        self.stuck.set(HeldConnections { held: still, lost: lost + (held - still) });
    }

    fn holding(&self, role: Role) -> &Cell<HeldConnections> {
        if role == Role::NeverRead { &self.stuck } else { &self.idle }
    }

    pub(crate) fn errors(&self) -> Errors {
        self.errors.get()
    }

    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.get()
    }

    pub(crate) fn idle(&self) -> HeldConnections {
        self.idle.get()
    }

    pub(crate) fn stuck(&self) -> HeldConnections {
        self.stuck.get()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.get()
    }

    pub(crate) fn good(&self) -> u64 {
        self.good.get()
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.get()
    }

    /// Publishes progress to the shared counts: the difference to `shown`, the counts published before.
    pub(crate) fn show(&self, shown: &mut (u64, u64)) {
        let now = (self.requests.get(), self.errors.get().total());
        self.shared.requests.fetch_add(now.0 - shown.0, Ordering::Relaxed);
        self.shared.errors.fetch_add(now.1 - shown.1, Ordering::Relaxed);
        *shown = now;
    }

    /// Publishes the figures of the loop with this number, if a live table is shown.
    pub(crate) fn show_live(&self, index: usize) {
        self.shared.show_live(index, || LiveFigures {
            latency: Some(self.latency.borrow().clone()),
            statuses: self.statuses(),
            errors: self.errors.get(),
        });
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

/// An hour, in nanoseconds. Longer latencies count as an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// Significant digits of latencies in intervals: fewer, since there are many intervals, which become chart lines.
const DIGITS_OF_INTERVALS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_request_counts_if_it_waited_as_long_as_a_response_took() {
        let stats = WorkerStats::new(Arc::new(SharedStats::new(false, None)));
        stats.count_responses(3, 3, Duration::from_millis(5));
        stats.count_unanswered(2, Duration::from_millis(1));
        stats.count_unanswered(4, Duration::from_secs(1));
        assert_eq!(stats.requests(), 3);
        let latency = stats.take_latency();
        assert_eq!((latency.len(), latency.min() / 1_000_000), (7, 4));
        assert!(latency.max() >= 1_000_000_000);
        // Without any response, all waits count.
        let stats = WorkerStats::new(Arc::new(SharedStats::new(false, None)));
        stats.count_unanswered(1, Duration::from_secs(2));
        stats.count_unanswered(1, Duration::from_secs(1));
        assert_eq!(stats.take_latency().len(), 2);
    }
}
