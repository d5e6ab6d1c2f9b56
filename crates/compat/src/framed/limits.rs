//! The limits of a codec over a stream, and the bounds of one poll.

use std::time::Duration;

use tidegate_buffer::WaterMarks;

/// Limits of a [`Framed`](super::Framed). Each has a protective default.
///
/// ```
/// use std::time::Duration;
/// use tidegate::compat::framed::FramedLimits;
///
/// let limits = FramedLimits { write_timeout: Duration::from_secs(60), ..FramedLimits::default() };
/// assert_eq!(limits.water.high, 64 * 1024);
/// ```
#[derive(Debug, Clone)]
pub struct FramedLimits {
    /// How many bytes may wait to be sent; default 64 and 32 KiB.
    pub water: WaterMarks,
    /// For how long the stream may take no byte while bytes wait; default 300 s. A stream reports only the bytes that
    /// the kernel took, not those that the peer acknowledged. The kernel takes none until a third of its buffer is
    /// free, so a shorter time disconnects peers that read slowly.
    pub write_timeout: Duration,
    /// After our last byte, how long a silent peer may take to end its side; default 2 s. A peer that goes on sending
    /// has 30 s.
    pub linger_timeout: Duration,
}

impl Default for FramedLimits {
    fn default() -> Self {
        Self {
            water: WaterMarks::default(),
            write_timeout: Duration::from_secs(300),
            linger_timeout: Duration::from_secs(2),
        }
    }
}

/// How long the end of a connection may take, even if the peer goes on sending.
pub(super) const LINGER_MAX: Duration = Duration::from_secs(30);

/// Reads and writes of one poll, before other tasks of the thread get their turn.
pub(super) const ROUNDS_PER_POLL_MAX: u32 = 64;

/// Pieces of memory that one write takes.
pub(super) const PARTS_MAX: usize = 64;

/// Bytes that one write takes.
pub(super) const SEND_BYTES_MAX: usize = 512 * 1024;

/// Bytes of a file that are read at a time.
pub(super) const FILE_PIECE_BYTES: usize = 16 * 1024;

/// From one request for a message to the next, a codec's deadlines rest if it takes at least this long.
pub(super) const SUSPENSION_MIN: Duration = Duration::from_millis(1);

/// How long until a codec's deadline that has come, and that its handler left in place, is handled again.
pub(super) const TIMEOUT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
