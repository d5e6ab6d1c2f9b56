//! `Limits`: what protects a server unless it is told otherwise.

use std::time::Duration;

use tidegate_buffer::WaterMarks;

/// Limits of the connections of one server. Each has a default that protects.
///
/// ```
/// use std::time::Duration;
/// use tidegate_buffer::WaterMarks;
/// use tidegate_engine::{Limits, Server, StartError};
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
#[derive(Debug, Clone)]
pub struct Limits {
    /// How much may wait to be sent on one connection; 64 and 32 KiB.
    pub water: WaterMarks,
    /// A peer that takes nothing for this long, while bytes wait, is disconnected; 60 s.
    pub write_timeout: Duration,
    /// The least rate at which a peer has to take bytes while some wait, in bytes per second, over a `write_timeout`; 0 if
    /// one byte in that time is enough. Who takes less counts as one who takes nothing. 240.
    pub write_rate_min: u32,
    /// After our last byte, how long a silent peer may take to end the connection before we do, so that it can read that
    /// byte; 2 s. One that goes on sending has half a minute.
    pub linger_timeout: Duration,
    /// Connections of the whole server; further ones wait in the kernel. One that is gone counts for as long as a task
    /// keeps its channel. Three quarters of the process's limit of
    /// descriptors, and never more than a million.
    pub connections_max: usize,
    /// Memory that the connections of the whole server may hold, in bytes, inbound and outbound; half of the machine's,
    /// or of the control group's where that is less. It is divided evenly between the loops, and each keeps an eighth of
    /// its part, and up to 512 KiB more, for what is not counted: connections themselves, its tables, the allocator.
    pub memory_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            water: WaterMarks::default(),
            write_timeout: Duration::from_secs(60),
            write_rate_min: 240,
            linger_timeout: Duration::from_secs(2),
            connections_max: tidegate_sys::memory::descriptors_max().saturating_mul(3).div_euclid(4).min(1 << 20),
            memory_max: usize::try_from(tidegate_sys::memory::total_bytes() / 2).unwrap_or(usize::MAX),
        }
    }
}

/// Messages that one connection may decode before others get their turn.
pub(crate) const MESSAGES_PER_VISIT_MAX: u32 = 1024;

/// Tasks that run before the next completion, which is more than one wakes unless it is a broadcast.
pub(crate) const TASKS_PER_RUN_MAX: usize = 1024;

/// How often the tasks that run may wake others, or themselves, before the next completion.
pub(crate) const TASK_ROUNDS_MAX: u32 = 4;

/// Bytes that tasks may send before what they touched is flushed, and not only at the end of the pass: otherwise a
/// forwarder would hold a pass's worth of received memory, and receive into ever new one.
pub(crate) const UNFLUSHED_MAX: u64 = 16 * 1024;

/// Sends on one connection before others get their turn.
pub(crate) const SENDS_PER_VISIT_MAX: u32 = 4;

/// Bytes that one gathering write may take. More would only be walked over: the kernel's buffer is rarely larger.
pub(crate) const SEND_BYTES_MAX: usize = 512 * 1024;

/// How long the end of a connection may take, however busily the peer goes on sending.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(30);

/// Memory below which a loop could not hold the bytes of a connection.
pub(crate) const MEMORY_PER_LOOP_MIN: usize = 1024 * 1024;

/// Bytes of a file that are read at once for a filter that must see them.
pub(crate) const FILE_PIECE_BYTES: usize = 16 * 1024;

/// How long connecting may take unless a client is told otherwise.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one address is tried alone: the Connection Attempt Delay of RFC 8305 §5.
pub(crate) const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A turn that takes longer than this hangs: it is logged while it lasts.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(1);

/// How long accepting pauses when the system has no descriptor or no memory left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a listener looks again whether the server has room for connections.
pub(crate) const CAP_PAUSE: Duration = Duration::from_millis(20);

/// How long a loop sleeps at most while its memory is used up and nobody can be shed.
pub(crate) const EXHAUSTED_PAUSE: Duration = Duration::from_millis(10);

/// How often waiting may fail in a row before the loop gives up.
pub(crate) const WAITS_FAILED_MAX: u32 = 100;

/// Time of a turn for completions of light connections, which come first.
pub(crate) const LIGHT_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for connections that are accepted.
pub(crate) const ACCEPT_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for connections of which nothing was received yet.
pub(crate) const NEW_TIME: Duration = Duration::from_micros(500);

/// Time of a turn for completions of heavy connections: beside them alone a light one waits for that long at most, and for
/// the dispatch that began before. Shorter, and asking the kernel for light ones in between would cost noticeably.
pub(crate) const HEAVY_TIME: Duration = Duration::from_micros(500);

/// Bytes that heavy connections may receive and send in one turn, also where time stands still.
pub(crate) const HEAVY_BYTES_PER_TURN_MAX: u64 = 1024 * 1024;

/// Time of a turn for timers.
pub(crate) const TIMER_TIME: Duration = Duration::from_micros(500);

/// Time of a turn for messages from other threads, and for bringing those of groups to their members.
pub(crate) const MESSAGE_TIME: Duration = Duration::from_micros(500);

/// So many decoded messages count as much as a completion, when the time of a class is looked at.
pub(crate) const MESSAGES_PER_ITEM: u64 = 16;

/// Time of a turn for connections that were written to from elsewhere and are flushed.
pub(crate) const FLUSH_TIME: Duration = Duration::from_millis(1);

/// Time of a turn for connections that used up what one dispatch may do.
pub(crate) const BACKLOG_TIME: Duration = Duration::from_micros(500);

/// A loop that comes back so much later than it planned to was held up: by a handler, or since the process was stopped.
pub(crate) const LAG_MIN: Duration = Duration::from_millis(50);

/// How long a deadline of a peer that is due may be put off while bytes of the peer wait to be read, beside the time for
/// which the loop was held up.
pub(crate) const UNREAD_GRACE: Duration = Duration::from_secs(1);

/// A deadline that was put off is looked at again after so long.
pub(crate) const PUT_OFF_PAUSE: Duration = Duration::from_millis(10);

/// A turn that takes longer makes everybody else on the loop wait noticeably.
pub(crate) const SLOW_TURN: Duration = Duration::from_millis(100);

/// Lines that a loop logs within a second; what is beyond is counted and said in one.
pub(crate) const LOG_LINES_PER_SECOND_MAX: u32 = 100;

/// How long it is not said again that accepting fails.
pub(crate) const ACCEPT_LINE_PAUSE: Duration = Duration::from_secs(60);

/// How many that asked for another visit may have room in the line without being in it.
pub(crate) const AGAIN_KEPT_MAX: usize = 4096;

/// Timers that fire in one turn. A crowd that fell silent together is let go together, and whoever still asks must not
/// wait for all of that.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 1024;

/// Letters taken from the mailbox in one turn.
pub(crate) const LETTERS_PER_TURN_MAX: usize = 1024;

/// Members of groups to whom something is sent in one turn; the others have to wait for the next. It bounds the turn,
/// since sending is what takes time.
pub(crate) const HEARERS_PER_TURN_MAX: usize = 16_384;

/// Messages that are brought to members of groups in one turn, each counted for each of them. It bounds memory: a message
/// that waits costs an entry. What comes to a member in one turn is sent at once, so it is several times the number above.
pub(crate) const DELIVERIES_PER_TURN_MAX: usize = 65_536;

/// Letters that may wait for one loop.
pub(crate) const MESSAGES_MAX: usize = 1 << 20;

/// Connections that may be on their way to one loop from those that have accepted them. One that does not come to read
/// them, since it hangs, is sent no more.
pub(crate) const HANDED_MAX: u64 = 256;
