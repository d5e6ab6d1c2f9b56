//! Counters of a loop, readable from any thread.
//!
//! [`Counters`] has the loop's own counts, in plain numbers; [`PublishedCounters`] is a copy, stored once a turn. Two numbers
//! in it are no copies, because a loop that hangs publishes nothing: the turn that the loop is busy with, stored when
//! the turn's work begins and when it ends; and `stalls`, which the thread of `watchdog.rs` counts.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use tidegate_buffer::Ledger;
use tidegate_codec::SessionCounts;

use crate::activity::Activity;
use crate::admission::Refusal;
use crate::close_reason::{CAUSES, Cause};
use crate::limits::SLOW_TURN;

/// The counts of a loop so far. The loop publishes them once a turn, except `stalls`, which the watchdog counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that are open now.
    pub connections: u64,
    /// Streams of sessions that are open now.
    pub streams: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that an [`Admission`](crate::Admission) refused. They do not count as accepted.
    pub refused: u64,
    /// Times that accepting failed, as when descriptors ran out.
    pub accepts_failed: u64,
    /// Messages that were decoded.
    pub messages: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
    /// Bytes that the kernel took.
    pub sent_bytes: u64,
    /// Bytes of memory that the connections use, and that of the loop's receive buffer, which is 81 KiB from the first
    /// receive on.
    pub memory_bytes: u64,
    /// Tasks that panicked.
    pub tasks_panicked: u64,
    /// Pieces of long work, such as compressing a part of a body, that waited for their turn: see
    /// [`task::long_work`](crate::task::long_work).
    pub long_work_waits: u64,
    /// Bytes of memory that the loop's connections may use together, or `usize::MAX`: see
    /// [`Limits::memory_max`](crate::Limits::memory_max).
    pub memory_budget_bytes: u64,
    /// Handshakes of filters, such as TLS, that were completed.
    pub handshakes: u64,
    /// Connections that ended within the handshake of a filter.
    pub handshakes_failed: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// How long turns took, without the time spent waiting for events.
    pub turn_times: TurnTimes,
    /// The sum of all turns that have ended.
    pub busy_time: Duration,
    /// The longest turn that has ended, without the time spent waiting for events.
    pub longest_turn: Duration,
    /// Turns that took longer than 100 ms: a handler or a task blocked the loop. They are counted when they have ended.
    pub slow_turns: u64,
    /// Turns that took longer than a second: a handler or a task did not yield. They are counted while they last, at
    /// most half a second later, and again as slow turns if they end. Only the loops of a [`Server`](crate::Server)
    /// are watched.
    pub stalls: u64,
    /// The loop is in a turn that was counted as a stall.
    pub is_stalled: bool,
    /// Datagram sockets that are open now.
    pub endpoints: u64,
    /// Datagrams that were received, those of runs one by one. They count as messages too.
    pub datagrams_received: u64,
    /// Datagrams that the kernel took, those of runs one by one.
    pub datagrams_sent: u64,
    /// Datagrams that were dropped unsent, since too many waited: [`EndpointLimits`](crate::EndpointLimits).
    pub datagrams_dropped: u64,
    /// Datagrams that the kernel dropped at a full receive buffer, since the loop received too slowly. The kernel reports
    /// them with a later datagram.
    pub datagrams_overflowed: u64,
    /// Datagrams that the kernel refused, or for which a device had no room.
    pub datagrams_lost: u64,
    /// Datagrams that came to this loop and were for another one: [`Steering`](tidegate_sys::Steering).
    pub datagrams_forwarded: u64,
    /// Datagrams that came to this loop and were for a server before this one, which drains: they were sent on to it.
    pub datagrams_to_predecessor: u64,
    /// Datagrams of this server's sessions that a successor has received and sent on.
    pub datagrams_from_successor: u64,
    /// Reports that a datagram was not delivered or not sent.
    pub datagram_errors: u64,
    /// Protocols of datagram sockets that panicked.
    pub endpoints_panicked: u64,
    /// Of datagram sockets whose sessions carry streams: QUIC.
    pub sessions: SessionCounts,
    /// Connections that were closed in good order.
    pub closed_done: u64,
    /// Connections that the application reset.
    pub closed_aborted: u64,
    /// Connections that broke.
    pub closed_broken: u64,
    /// Connections that the protocol ended: violations, limits, time-outs.
    pub closed_protocol: u64,
    /// Connections whose handler or task failed.
    pub closed_failed: u64,
    /// Connections that a deadline of the application ended.
    pub closed_deadline: u64,
    /// Connections whose handler, codec or task panicked.
    pub closed_panicked: u64,
    /// Connections whose peer took no bytes, or too few, for too long.
    pub closed_write_timeout: u64,
    /// Connections on which no byte moved for too long.
    pub closed_idle_timeout: u64,
    /// Connections whose peer did not complete a message in time.
    pub closed_read_timeout: u64,
    /// Connections whose handshake took too long.
    pub closed_handshake_timeout: u64,
    /// Connections that had reached their age, and did not end in time.
    pub closed_age_timeout: u64,
    /// Connections whose peer did not read the protocol's replies.
    pub closed_replies_unread: u64,
    /// Connections that were shed because memory was used up.
    pub closed_shed: u64,
    /// Connections that read more slowly than messages came to their group.
    pub closed_too_slow: u64,
    /// Connections that a drain, or the end of the loop, cut off.
    pub closed_drained: u64,
}

/// How long the turns of a loop took: numbers of turns by powers of two.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::engine::TurnTimes;
///
/// let mut times = TurnTimes::default();
/// times.add(Duration::from_micros(3));
/// assert_eq!(times.buckets()[2], 1);
/// assert_eq!(TurnTimes::bound(2), Some(Duration::from_micros(4)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TurnTimes([u64; TURN_BUCKETS]);

impl TurnTimes {
    /// The number of turns that took less than `bound(n)`, and not less than the bound before it.
    #[must_use]
    pub fn buckets(&self) -> &[u64] {
        &self.0
    }

    /// The exclusive upper bound of a bucket: 2 to the power of `n` microseconds. The last bucket has none.
    #[must_use]
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < TURN_BUCKETS).then(|| Duration::from_micros(1 << bucket))
    }

    /// Counts a turn.
    pub fn add(&mut self, took: Duration) {
        self.0[turn_bucket(took)] += 1;
    }
}

fn turn_bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    ((u64::BITS - micros.leading_zeros()) as usize).min(TURN_BUCKETS - 1)
}

/// The last but one ends at four seconds.
const TURN_BUCKETS: usize = 24;

/// The loop's own side: plain numbers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) accepts_failed: u64,
    pub(crate) messages: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) turns: u64,
    pub(crate) tasks_panicked: u64,
    pub(crate) long_work_waits: u64,
    pub(crate) longest_turn: Duration,
    pub(crate) busy_time: Duration,
    pub(crate) handshakes: u64,
    pub(crate) handshakes_failed: u64,
    pub(crate) slow_turns: u64,
    pub(crate) connections: u64,
    pub(crate) streams: u64,
    /// The loop has an endpoint, or had one.
    pub(crate) has_endpoints: bool,
    pub(crate) endpoints: u64,
    pub(crate) datagrams_received: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_dropped: u64,
    pub(crate) datagrams_overflowed: u64,
    pub(crate) datagrams_lost: u64,
    pub(crate) datagrams_forwarded: u64,
    pub(crate) datagrams_to_predecessor: u64,
    pub(crate) datagrams_from_successor: u64,
    pub(crate) datagram_errors: u64,
    pub(crate) endpoints_panicked: u64,
    pub(crate) sessions: SessionCounts,
    closed: [u64; CAUSES],
}

impl Counters {
    /// Counts a turn that has ended.
    pub(crate) fn count_turn(&mut self, took: Duration) {
        self.turns += 1;
        self.longest_turn = self.longest_turn.max(took);
        self.busy_time += took;
        self.slow_turns += u64::from(took > SLOW_TURN);
    }

    /// Bytes in both directions.
    pub(crate) const fn transferred_bytes(&self) -> u64 {
        self.received_bytes + self.sent_bytes
    }

    pub(crate) fn count_closed(&mut self, cause: Cause) {
        self.closed[cause as usize] += 1;
    }
}

/// The copy that other threads read. Each number is correct by itself; two of them may be a turn apart. None is older
/// than the number of connections.
#[derive(Debug, Default)]
pub(crate) struct PublishedCounters {
    connections: AtomicU64,
    numbers: [AtomicU64; NUMBERS],
    datagram_numbers: [AtomicU64; DATAGRAM_NUMBERS],
    session_numbers: [AtomicU64; SessionCounts::NUMBERS],
    closed: [AtomicU64; CAUSES],
    /// No copy: the loop counts a turn here, in one place of many.
    turn_times: [AtomicU64; TURN_BUCKETS],
    /// The turn that the loop is busy with, counted from one; zero while it waits.
    busy_turn: AtomicU64,
    stalls: AtomicU64,
    /// The turn that was counted last among them.
    stalled_turn: AtomicU64,
    activity: Activity,
}

impl PublishedCounters {
    /// Counts how long a turn took. Only the loop calls it.
    #[inline]
    pub(crate) fn count_turn_time(&self, took: Duration) {
        let bucket = &self.turn_times[turn_bucket(took)];
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
    }

    pub(crate) fn publish(&self, counters: &Counters, ledger: &Ledger) {
        let numbers = [
            counters.accepted,
            counters.accepts_failed,
            counters.messages,
            counters.received_bytes,
            counters.sent_bytes,
            ledger.used() as u64,
            counters.turns,
            counters.tasks_panicked,
            nanos(counters.longest_turn),
            counters.slow_turns,
            counters.streams,
            counters.refused,
            ledger.budget() as u64,
            counters.handshakes,
            counters.handshakes_failed,
            nanos(counters.busy_time),
            counters.long_work_waits,
        ];
        for (shown, number) in self.numbers.iter().zip(numbers) {
            shown.store(number, Relaxed);
        }
        if counters.has_endpoints {
            self.publish_datagrams(counters);
        }
        for (shown, number) in self.closed.iter().zip(counters.closed) {
            shown.store(number, Relaxed);
        }
        // Last: a reader that sees that a connection is gone sees its last counts as well.
        self.connections.store(counters.connections, Release);
    }

    /// The counts of datagrams. A loop that has never had an endpoint does not spend a turn's time on them.
    #[cold]
    fn publish_datagrams(&self, counters: &Counters) {
        let numbers = [
            counters.endpoints,
            counters.datagrams_received,
            counters.datagrams_sent,
            counters.datagrams_dropped,
            counters.datagrams_overflowed,
            counters.datagrams_lost,
            counters.datagrams_forwarded,
            counters.datagrams_to_predecessor,
            counters.datagrams_from_successor,
            counters.datagram_errors,
            counters.endpoints_panicked,
        ];
        for (shown, number) in self.datagram_numbers.iter().zip(numbers) {
            shown.store(number, Relaxed);
        }
        for (shown, number) in self.session_numbers.iter().zip(counters.sessions.numbers()) {
            shown.store(number, Relaxed);
        }
    }

    /// A turn's work begins; turns are counted from one.
    pub(crate) fn begin_turn(&self, turn: u64) {
        self.busy_turn.store(turn, Relaxed);
    }

    /// The turn's work is done: the loop waits, or ends.
    pub(crate) fn end_turn(&self) {
        self.busy_turn.store(0, Relaxed);
    }

    /// The turn whose work has begun and not ended.
    pub(crate) fn busy_turn(&self) -> Option<u64> {
        Some(self.busy_turn.load(Relaxed)).filter(|&turn| turn > 0)
    }

    /// The code that the loop executes now, where code of the application runs.
    pub(crate) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Counts a turn that hangs. The watchdog's thread calls it.
    pub(crate) fn count_stall(&self, turn: u64) {
        self.stalled_turn.store(turn, Relaxed);
        self.stalls.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let connections = self.connections.load(Acquire);
        let [
            accepted,
            accepts_failed,
            messages,
            received_bytes,
            sent_bytes,
            memory_bytes,
            turns,
            tasks_panicked,
            longest_turn,
            slow_turns,
            streams,
            refused,
            memory_budget_bytes,
            handshakes,
            handshakes_failed,
            busy_time,
            long_work_waits,
        ] = self.numbers.each_ref().map(|number| number.load(Relaxed));
        Counts {
            connections,
            streams,
            accepted,
            refused,
            accepts_failed,
            messages,
            received_bytes,
            sent_bytes,
            memory_bytes,
            turns,
            tasks_panicked,
            long_work_waits,
            longest_turn: Duration::from_nanos(longest_turn),
            memory_budget_bytes,
            handshakes,
            handshakes_failed,
            turn_times: TurnTimes(self.turn_times.each_ref().map(|count| count.load(Relaxed))),
            busy_time: Duration::from_nanos(busy_time),
            slow_turns,
            stalls: self.stalls.load(Relaxed),
            is_stalled: self.busy_turn().is_some_and(|turn| turn == self.stalled_turn.load(Relaxed)),
            ..self.read_datagrams()
        }
    }

    /// The counts of datagrams and of closed connections; all others are zero.
    fn read_datagrams(&self) -> Counts {
        let [
            endpoints,
            datagrams_received,
            datagrams_sent,
            datagrams_dropped,
            datagrams_overflowed,
            datagrams_lost,
            datagrams_forwarded,
            datagrams_to_predecessor,
            datagrams_from_successor,
            datagram_errors,
            endpoints_panicked,
        ] = self.datagram_numbers.each_ref().map(|number| number.load(Relaxed));
        Counts {
            endpoints,
            datagrams_received,
            datagrams_sent,
            datagrams_dropped,
            datagrams_overflowed,
            datagrams_lost,
            datagrams_forwarded,
            datagrams_to_predecessor,
            datagrams_from_successor,
            datagram_errors,
            endpoints_panicked,
            sessions: SessionCounts::from_numbers(self.session_numbers.each_ref().map(|number| number.load(Relaxed))),
            ..self.read_closed()
        }
    }

    /// The counts of closed connections by cause; all others are zero.
    fn read_closed(&self) -> Counts {
        let closed = |cause: Cause| self.closed[cause as usize].load(Relaxed);
        Counts {
            closed_done: closed(Cause::Done),
            closed_aborted: closed(Cause::Aborted),
            closed_broken: closed(Cause::Broken),
            closed_protocol: closed(Cause::Protocol),
            closed_failed: closed(Cause::Failed),
            closed_deadline: closed(Cause::Deadline),
            closed_panicked: closed(Cause::Panicked),
            closed_write_timeout: closed(Cause::WriteTimeout),
            closed_idle_timeout: closed(Cause::IdleTimeout),
            closed_read_timeout: closed(Cause::ReadTimeout),
            closed_handshake_timeout: closed(Cause::HandshakeTimeout),
            closed_age_timeout: closed(Cause::AgeTimeout),
            closed_replies_unread: closed(Cause::RepliesUnread),
            closed_shed: closed(Cause::Shed),
            closed_too_slow: closed(Cause::TooSlow),
            closed_drained: closed(Cause::Drained),
            ..Counts::default()
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const NUMBERS: usize = 17;
const DATAGRAM_NUMBERS: usize = 11;

/// The connections of one listener, on all loops.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl ListenerCounts {
    /// Open connections. A closed connection counts for as long as a task keeps its channel.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Accepted connections, since the server has started.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Connections that were refused for this reason, since the server has started.
    #[must_use]
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize].load(Relaxed)
    }

    pub(crate) fn count_refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
    }
}
