//! `Limits`: the limits that protect a server by default, and the engine's internal bounds.

use std::time::Duration;

use tidegate_buffer::WaterMarks;

use crate::peer_deadlines::Deadlines;
use crate::shaping::Shaping;

/// Limits of the connections of one server. Each has a protective default.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limits, Server, StartError, WaterMarks};
///
/// // Few and slow devices, each of which may be sent a large image.
/// let limits = Limits {
///     water: WaterMarks::new(1024 * 1024, 256 * 1024),
///     write_timeout: Duration::from_secs(300),
///     connections_max: 500,
///     ..Limits::default()
/// };
/// let server = Server::bind("127.0.0.1:0")?.limits(limits);
/// # drop(server);
/// # Ok::<(), StartError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes may wait to be sent on one connection; default 64 and 32 KiB.
    pub water: WaterMarks,
    /// A peer that takes no byte for this long, while bytes wait, is disconnected; default 60 s.
    pub write_timeout: Duration,
    /// The lowest rate at which a peer has to take bytes while some wait, in bytes per second, averaged over a
    /// `write_timeout`; 0 if one byte in that time is enough. A peer below the rate counts as one that takes no byte.
    /// Default 240.
    pub write_rate_min: u32,
    /// After our last byte, how long a silent peer may take to end the connection before we do, so that it can read
    /// that byte; default 2 s. A peer that goes on sending has 30 s.
    pub linger_timeout: Duration,
    /// How long a peer may be silent, slow, or connected; by default only handshakes are bounded.
    pub deadlines: Deadlines,
    /// How fast a connection may receive and send; by default as fast as it can. A server of QUIC, whose connections share one
    /// socket, refuses it.
    pub shaping: Shaping,
    /// Connections of the whole server; further ones wait in the kernel. A closed connection counts for as long as a
    /// task keeps its channel. Default: three quarters of the process's descriptor limit, at most 2^20. The server keeps at
    /// least 32 descriptors for itself, or three quarters of them where the limit is below 43.
    pub connections_max: usize,
    /// Memory that the connections of the whole server may use, in bytes, inbound and outbound. Default: half of the
    /// machine's memory, or of the control group's where that is less. It is divided evenly between the loops. Each
    /// loop reserves an eighth of its part, and up to 512 KiB more, for memory that is not counted: connections
    /// themselves, its tables, the allocator.
    pub memory_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            water: WaterMarks::default(),
            write_timeout: Duration::from_secs(60),
            write_rate_min: 240,
            linger_timeout: Duration::from_secs(2),
            deadlines: Deadlines::default(),
            shaping: Shaping::default(),
            connections_max: connections_of(tidegate_sys::memory::descriptors_max()),
            memory_max: usize::try_from(tidegate_sys::memory::total_bytes() / 2).unwrap_or(usize::MAX),
        }
    }
}

/// The connections that a process with so many descriptors accepts by default. The rest is for those that it makes, for
/// files, and for the server itself: listeners, drivers, the administrative server.
fn connections_of(descriptors: usize) -> usize {
    let others = (descriptors / 4).max(DESCRIPTORS_OF_SERVER).min(descriptors / 4 * 3);
    (descriptors - others).min(1 << 20)
}

/// Descriptors that a small server needs for itself.
const DESCRIPTORS_OF_SERVER: usize = 32;

/// Messages that one connection may decode before others get their turn.
pub(crate) const MESSAGES_PER_DISPATCH_MAX: u32 = 1024;

/// Messages for which the handler of one connection may wait for a future, one after the other, before others get their
/// turn.
pub(crate) const HANDLER_TASKS_PER_DISPATCH_MAX: u32 = 64;

/// Tasks that run before the next completion. One completion wakes fewer, unless it is a broadcast.
pub(crate) const TASKS_PER_RUN_MAX: usize = 1024;

/// Rounds of woken tasks that run before the next completion: a task may wake others, or itself, for the next round.
pub(crate) const TASK_ROUNDS_MAX: u32 = 4;

/// Bytes that tasks may send before their connections are flushed ahead of the end of the pass. Without it a forwarder
/// would keep the memory of everything that it received in the pass, and receive into new memory each time.
pub(crate) const UNFLUSHED_MAX: u64 = 16 * 1024;

/// Sends on one connection before others get their turn.
pub(crate) const SENDS_PER_DISPATCH_MAX: u32 = 4;

/// Bytes that one gathering write may take. The kernel's buffer is rarely larger, so it would take no more.
pub(crate) const SEND_BYTES_MAX: usize = 512 * 1024;

/// How long the end of a connection may take, even if the peer goes on sending.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(30);

/// A loop with less memory could not buffer the bytes of a connection.
pub(crate) const MEMORY_PER_LOOP_MIN: usize = 1024 * 1024;

/// Bytes of a file that are read at a time for a filter that has to process them.
pub(crate) const FILE_PIECE_BYTES: usize = 16 * 1024;

/// How long connecting may take by default.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one address is tried alone: the Connection Attempt Delay of RFC 8305 §5.
pub(crate) const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A turn that takes longer than this hangs: it is logged while it lasts.
pub(crate) const STALL_MIN: Duration = Duration::from_secs(1);

/// How long accepting pauses when the system has no descriptor or no memory left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a listener checks whether the server has room for connections.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(20);

/// How long a loop sleeps at most while its memory is used up and no connection can be shed.
pub(crate) const EXHAUSTED_PAUSE: Duration = Duration::from_millis(10);

/// How often waiting may fail in a row before the loop gives up.
pub(crate) const WAITS_FAILED_MAX: u32 = 100;

/// Time of a turn for completions of light connections, which come first.
pub(crate) const LIGHT_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for accepting connections.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for connections from which no byte was received yet.
pub(crate) const NEW_TIME: Duration = Duration::from_micros(500);

/// Time of a turn for completions of heavy connections. For them a light connection waits at most that long, and for
/// the dispatch that began before. With a shorter time, polling the kernel for light ones in between would cost
/// noticeably.
pub(crate) const HEAVY_TIME: Duration = Duration::from_micros(500);

/// Bytes that heavy connections may receive and send in one turn. It is a bound also where time stands still.
pub(crate) const HEAVY_BYTES_PER_TURN_MAX: u64 = 1024 * 1024;

/// Time of a turn for timers.
pub(crate) const TIMER_TIME: Duration = Duration::from_micros(500);

/// Time of a turn for messages from other threads, and for delivering broadcasts to members of groups.
pub(crate) const MESSAGE_TIME: Duration = Duration::from_micros(500);

/// How many decoded messages count as one completion when the time of a class is checked.
pub(crate) const MESSAGES_PER_ITEM: u64 = 16;

/// Time of a turn for flushing connections that were written to outside of their own dispatch.
pub(crate) const FLUSH_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for connections that used up the budget of one dispatch.
pub(crate) const BACKLOG_TIME: Duration = Duration::from_micros(500);

/// Time of a turn for long work of tasks: compressing a piece of a body, parsing a long one. Light connections wait at most
/// for that, and for the piece that began before. Asking the kernel for events once in that time costs about a hundredth of
/// it.
pub(crate) const LONG_WORK_TIME: Duration = Duration::from_millis(2);

/// Pieces of long work that begin in one turn although the loop has not looked for bytes of others.
pub(crate) const LONG_WORK_AT_ONCE_MAX: u32 = 2;

/// Pieces of long work in one turn. It is a bound also where time stands still and the pieces do not estimate their work.
pub(crate) const LONG_WORK_PER_TURN_MAX: u32 = 64;

/// Estimated work of one dispatch before others get their turn, in nanoseconds.
pub(crate) const WORK_PER_DISPATCH_MAX: u64 = 500_000;

/// Estimated work of a task that is polled before others get their turn, in nanoseconds. A task that waits for its turn
/// before each piece of long work does not reach it.
pub(crate) const WORK_PER_TASK_MAX: u64 = 1_000_000;

/// How long a task that asks may run before others get their turn.
pub(crate) const TASK_TIME_MAX: Duration = Duration::from_micros(500);

/// A loop that wakes up so much later than planned was held up: by a handler, or because the process was stopped.
pub(crate) const LAG_MIN: Duration = Duration::from_millis(50);

/// How long a peer's deadline that is due may be postponed while bytes of the peer wait to be read, in addition to the
/// time for which the loop was held up.
pub(crate) const UNREAD_GRACE: Duration = Duration::from_secs(1);

/// How long until a postponed deadline is checked again.
pub(crate) const GRACE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A turn that takes longer delays the other connections of the loop noticeably.
pub(crate) const SLOW_TURN: Duration = Duration::from_millis(100);

/// How long a loop measures the calls of functions after a slow turn.
pub(crate) const MEASURED_AFTER_SLOW_TURN: Duration = Duration::from_secs(60);

/// Lines that a loop logs within a second; further ones are counted, and one line reports their number.
pub(crate) const LOG_LINES_PER_SECOND_MAX: u32 = 100;

/// How long the loop does not log another accept failure.
pub(crate) const ACCEPT_LINE_PAUSE: Duration = Duration::from_secs(60);

/// How long the loop does not log another peer that ended its connection before its handshake was complete.
pub(crate) const HANDSHAKE_LINE_PAUSE: Duration = Duration::from_secs(10);

/// Capacity that an empty queue of scheduled connections may keep.
pub(crate) const SCHEDULED_KEPT_MAX: usize = 4096;

/// Timers that fire in one turn. Many connections that fell silent together time out together, and active connections
/// must not wait for all of them.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 1024;

/// Messages taken from the mailbox in one turn.
pub(crate) const MESSAGES_PER_TURN_MAX: usize = 1024;

/// Members of groups that are sent something in one turn; the others wait for the next turn. It bounds the duration of
/// a turn, since sending takes most of the time.
pub(crate) const RECIPIENTS_PER_TURN_MAX: usize = 16_384;

/// Deliveries of messages to members of groups in one turn: each message counts once for each member. It bounds
/// memory: a pending message costs an entry. All messages to a member in one turn are sent at once, so the number is
/// several times the one above.
pub(crate) const DELIVERIES_PER_TURN_MAX: usize = 65_536;

/// Messages that may wait in the mailbox of one loop.
pub(crate) const MAILBOX_MESSAGES_MAX: usize = 1 << 20;

/// Accepted connections that other loops may have handed to one loop, and that it has not read yet. A loop that hangs
/// and does not read them is sent no more.
pub(crate) const HANDOFFS_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::connections_of;

    #[test]
    fn a_server_with_few_descriptors_keeps_some_for_itself() {
        assert_eq!([1024, 128, 64, 33].map(connections_of), [768, 96, 32, 9]);
        assert_eq!([0, 1, 16].map(connections_of), [0, 1, 4]);
        assert_eq!(connections_of(usize::MAX), 1 << 20);
    }
}
