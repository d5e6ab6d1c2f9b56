//! `Shaping`: how fast a connection, and the connections of a loop together, receive and send.
//!
//! Shaping is back-pressure: a connection that is ahead of its rate does not receive or does not send for a while, and no
//! byte is dropped. The kernel's buffers fill, and the peer, or the application, waits.
//!
//! - **Sending** never exceeds the tokens: a send takes at most the tokens of the bucket, and the rest of the queue
//!   waits.
//! - **Receiving** goes into debt: the loop learns how much has arrived by receiving it. The next receive waits until the
//!   debt is paid. The loop asks the driver for no more than the bucket has, and a driver that receives into buffers of
//!   its own may bring more.
//!
//! `bucket.rs` has the arithmetic, `states.rs` a loop's state, `connection/shaping.rs` its use by a connection.

mod bucket;
mod states;

use std::num::NonZeroU64;

pub(crate) use self::states::ShapingStates;

/// How fast a connection receives and sends. By default nothing is shaped.
///
/// Bytes count as they are on the wire, with TLS and PROXY headers included. A session is shaped as a whole, and its
/// streams with it. Time for which a connection waits because of its shaping counts for no deadline of its peer: not
/// for [`write_rate_min`](crate::Limits::write_rate_min), nor for those of [`Deadlines`](crate::Deadlines) except the
/// age. After the end of our side, further bytes of the peer are discarded and not shaped.
///
/// ```
/// use tidegate::{Limits, Rate, Shaping};
///
/// // A connection sends 1 MB/s, and all connections of a loop receive 10 MB/s together.
/// let shaping = Shaping {
///     send: Some(Rate::per_second(1_000_000)),
///     loop_receive: Some(Rate::per_second(10_000_000).burst(1_000_000)),
///     ..Shaping::default()
/// };
/// let limits = Limits { shaping, ..Limits::default() };
/// # drop(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shaping {
    /// How fast the connection receives.
    pub receive: Option<Rate>,
    /// How fast the connection sends.
    pub send: Option<Rate>,
    /// How fast the connections of a loop receive together: all those of the loop whose `loop_receive` and `loop_send`
    /// are the same. A connection that waits is served in turn, after it has received 10 ms of the rate, and at most
    /// 64 KiB. A server with several loops has this rate on each.
    pub loop_receive: Option<Rate>,
    /// How fast those connections send together.
    pub loop_send: Option<Rate>,
}

impl Shaping {
    pub(crate) fn is_set(&self) -> bool {
        *self != Self::default()
    }
}

/// A rate in bytes per second, and how many bytes may exceed it at once: a token bucket.
///
/// In any time `t`, a connection sends at most `burst + rate * t` bytes. It receives at most 64 KiB more than that, the
/// size of the largest receive.
///
/// ```
/// use tidegate::Rate;
///
/// let rate = Rate::per_second(1_000_000);
/// assert_eq!((rate.bytes_per_second(), rate.burst_bytes()), (1_000_000, 100_000));
/// assert_eq!(rate.burst(20_000).burst_bytes(), 20_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    bytes_per_second: NonZeroU64,
    burst_bytes: u64,
}

impl Rate {
    /// A rate in bytes per second; zero counts as one. The burst is 100 ms of the rate, and at least 16 KiB.
    #[must_use]
    pub const fn per_second(bytes: u64) -> Self {
        let bytes_per_second = match NonZeroU64::new(bytes) {
            Some(bytes) => bytes,
            None => NonZeroU64::MIN,
        };
        let burst_bytes = if bytes / 10 > BURST_BYTES_DEFAULT_MIN { bytes / 10 } else { BURST_BYTES_DEFAULT_MIN };
        Self { bytes_per_second, burst_bytes }.burst(burst_bytes)
    }

    /// The same rate with another burst, in bytes. It is at least one byte, and at least 4 ms of the rate: timers are
    /// precise to a millisecond, so the rate is out of reach with less.
    #[must_use]
    pub const fn burst(self, bytes: u64) -> Self {
        let least = 1 + (self.bytes_per_second.get() - 1) / 250;
        let bytes = if bytes < least { least } else { bytes };
        let burst_bytes = if bytes > BURST_BYTES_MAX { BURST_BYTES_MAX } else { bytes };
        Self { burst_bytes, ..self }
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.bytes_per_second.get()
    }

    /// How many bytes may exceed the rate at once.
    #[must_use]
    pub const fn burst_bytes(self) -> u64 {
        self.burst_bytes
    }

    /// The bytes that are worth waiting for: 10 ms of the rate, and at least a packet, but half of the burst at most: a
    /// timer that fires late then finds more tokens, and none was lost. Connections that share the rate take turns of
    /// this size.
    fn turn_bytes(self) -> u64 {
        let worth = (self.bytes_per_second.get() / 100).clamp(PACKET_BYTES, TURN_BYTES_MAX);
        worth.min(self.burst_bytes.div_ceil(2))
    }
}

/// The least default burst: a TLS record.
const BURST_BYTES_DEFAULT_MIN: u64 = 16 * 1024;

/// A larger burst is no limit.
const BURST_BYTES_MAX: u64 = 1 << 50;

/// The payload of a TCP segment in an Ethernet frame.
const PACKET_BYTES: u64 = 1460;

/// The most bytes of one turn, as much as one receive.
const TURN_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn a_rate_has_a_burst_that_makes_it_reachable() {
        assert_eq!(Rate::per_second(0).bytes_per_second(), 1);
        assert_eq!(Rate::per_second(1_000).burst_bytes(), 16 * 1024);
        assert_eq!(Rate::per_second(1_000).burst(0).burst_bytes(), 4);
        assert_eq!(Rate::per_second(1_000_000_000).burst(1).burst_bytes(), 4_000_000);
        assert_eq!(Rate::per_second(u64::MAX).burst(u64::MAX).burst_bytes(), 1 << 50);
    }

    #[test]
    fn a_turn_is_ten_milliseconds_between_a_packet_and_a_receive() {
        let turn = |rate: Rate| rate.turn_bytes();
        assert_eq!(turn(Rate::per_second(10)), 1460);
        assert_eq!(turn(Rate::per_second(1_000_000)), 10_000);
        assert_eq!(turn(Rate::per_second(1_000_000_000)), 64 * 1024);
        assert_eq!(turn(Rate::per_second(1_000).burst(101)), 51);
    }
}
