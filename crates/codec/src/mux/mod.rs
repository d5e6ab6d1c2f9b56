//! Multiplexing: many streams in one session, each with its own queue, windows and end.
//!
//! A [`Mux`] is a codec whose messages are the events of streams. It is free of I/O like any other: it reads and writes
//! frames, and [`Streams`] counts. The bytes of a stream wait in a queue of its own until [`transmit`] writes them,
//! which happens late: when the session has a window *and* the connection has room. So the bytes of an urgent stream
//! overtake those that wait, and one stream whose peer grants nothing stops no other.
//!
//! | part | file |
//! |---|---|
//! | the protocol's side | here: [`Mux`], [`StreamEvent`], [`transmit`] |
//! | streams, windows | `streams.rs`, `received.rs`; the order of sending: `schedule.rs` |
//! | the events with stream numbers, for one application | `raw.rs` |

mod raw;
mod received;
mod schedule;
mod streams;
#[cfg(test)]
mod tests;

use tidegate_buffer::{Outbound, Slice};

pub use self::raw::{RawStreams, StreamCommand};
pub use self::streams::{FlowError, StreamKey, Streams, WindowUpdate, Windows};
use crate::codec::Codec;
use crate::output::Output;
pub use crate::reset_cause::ResetCause;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer has opened it.
    Opened(StreamKey),
    /// Bytes have arrived, and count against its window.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The bytes.
        bytes: Slice,
    },
    /// The peer sends no more on it.
    Ended(StreamKey),
    /// The peer has reset it: nothing more is sent or received.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// The reason, as a number of the protocol.
        code: u64,
    },
}

/// Why no stream can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer allows no further stream before one ends.
    Full,
    /// The session ends, or its numbers are used up: open another session.
    Ending,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "the peer allows no further stream before one ends",
            Self::Ending => "the session ends: open another one",
        })
    }
}

impl std::error::Error for OpenError {}

/// A protocol with streams: a codec whose messages are [`StreamEvent`]s, and its output for a stream.
///
/// Decoding a frame registers it in [`streams`](Mux::streams): a stream that the peer opens with
/// [`Streams::open`], bytes with [`Streams::receive`], credit with [`Streams::grant`], an end with
/// [`Streams::end_by_peer`]. The caller, which is the engine or [`RawStreams`], closes streams
/// ([`Streams::close`]): after both sides have ended, and after a reset.
///
/// Frames that concern no stream, or a stream that is closed, are the protocol's own business; its replies go to the
/// output of [`decode`](Codec::decode).
pub trait Mux: Codec<In = StreamEvent> {
    /// The protocol's state for each stream.
    type State: Default + 'static;

    /// The streams.
    fn streams(&self) -> &Streams<Self::State>;

    /// The streams, mutable.
    fn streams_mut(&mut self) -> &mut Streams<Self::State>;

    /// Opens a stream.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written.
    fn open(&mut self, out: &mut Output<'_>) -> Result<StreamKey, OpenError>;

    /// Writes the first `length` flushed bytes of `queue` as a frame of a stream, and the stream's end with them if
    /// they are the last. `length` is at most [`frame_bytes_max`](Mux::frame_bytes_max), and within the windows.
    fn write_data(&mut self, stream: StreamKey, queue: &mut Outbound, length: u32, is_last: bool, out: &mut Output<'_>);

    /// Writes a stream's output in its turn: flushed bytes of `queue`, and the stream's end if it `ends` behind them.
    /// Returns whether all was written. An implementation reports written bytes to [`Streams::on_sent`], and the end to
    /// [`Streams::end_locally`].
    fn write_turn(&mut self, stream: StreamKey, queue: &mut Outbound, ends: bool, out: &mut Output<'_>) -> bool {
        write_plain_turn(self, stream, queue, ends, out)
    }

    /// Takes the bytes that have come with the opening of a stream, if they are all that the peer sends on it, right after
    /// the event of the opening. Neither these bytes nor the end become events then. A protocol whose streams open without
    /// bytes has none.
    fn take_opening(&mut self, _stream: StreamKey) -> Option<Slice> {
        None
    }

    /// Writes all that is in `queue`, and the end of the stream behind it, within the dispatch in which the stream was
    /// opened, if the windows allow that. Both sides have ended the stream then, and it is
    /// [closed](Streams::close_for_now). Returns `false`, and writes nothing, otherwise.
    fn write_answer(&mut self, stream: StreamKey, queue: &mut Outbound, out: &mut Output<'_>) -> bool {
        let allowance = self.streams().send_allowance(stream).min(self.frame_bytes_max());
        queue.pending() <= allowance.into()
            && self.write_turn(stream, queue, true, out)
            && self.streams_mut().close_ended(stream)
    }

    /// Writes credit.
    fn write_update(&mut self, update: WindowUpdate, out: &mut Output<'_>);

    /// Writes a reset of a stream that is open.
    fn write_reset(&mut self, stream: StreamKey, cause: ResetCause, out: &mut Output<'_>);

    /// The connection closes: nothing more is read or written. Streams that are open learn of it separately.
    fn on_session_closed(&self) {}

    /// Whether the end of the peer's side of the connection ends all streams but those whose last bytes are queued, as it
    /// does where a peer ends its side to leave. Otherwise the streams that the peer has ended itself go on.
    fn ends_streams_with_peer(&self) -> bool {
        false
    }

    /// The most bytes of one frame: a stream's turn.
    fn frame_bytes_max(&self) -> u32 {
        16 * 1024
    }
}

/// The queues of streams, by the numbers that [`Streams::set_owner`] has set.
pub trait StreamQueues {
    /// Calls `act` with the queue of a stream, and whether the stream ends behind the queued bytes. `act` returns
    /// whether all was written, the end included. A queue that is gone is not an error.
    fn with(&mut self, owner: [u32; 2], act: impl FnOnce(&mut Outbound, bool) -> bool);

    /// The window of a stream is used up, and its queue has bytes: it waits for the peer, for an unknown time.
    fn on_window_used_up(&mut self, _owner: [u32; 2]) {}

    /// The peer sends no more on a stream, since this side does not want more ([`Streams::stop_peer`]).
    fn on_peer_stopped(&mut self, _owner: [u32; 2]) {}
}

/// Writes the bytes of streams that are ready, in their order, until `bytes_max` wait in `out`, no stream is ready, or
/// the window of the session is used up; and credit that is due.
pub fn transmit<M: Mux>(mux: &mut M, queues: &mut impl StreamQueues, bytes_max: u64, out: &mut Output<'_>) {
    while let Some(update) = mux.streams_mut().next_update() {
        mux.write_update(update, out);
    }
    while out.pending() < bytes_max {
        let Some(key) = mux.streams_mut().next_ready() else { break };
        let Some(owner) = mux.streams().owner(key) else { continue };
        let mut is_blocked = false;
        queues.with(owner, |queue, ends| {
            let is_all = mux.write_turn(key, queue, ends, out);
            is_blocked = !is_all && mux.streams().send_allowance(key) == 0;
            if is_blocked {
                // It waits for the peer, for an unknown time.
                queue.settle();
            }
            is_all
        });
        if is_blocked {
            queues.on_window_used_up(owner);
        }
    }
    while let Some(key) = mux.streams_mut().next_stopped() {
        if let Some(owner) = mux.streams().owner(key) {
            queues.on_peer_stopped(owner);
        }
    }
}

/// Whether bytes of a stream that was just opened would be written at once: no stream is ready that it could overtake,
/// the session has a window, and the peer has not asked for any stream to come before it.
#[inline]
#[must_use]
pub fn answers_at_once<M: Mux>(mux: &M, stream: StreamKey) -> bool {
    mux.streams().admits_at_once() && mux.streams().is_most_urgent(stream)
}

/// One turn of a stream whose queue has bytes of its body only. Returns whether all was written.
fn write_plain_turn<M: Mux + ?Sized>(
    mux: &mut M,
    key: StreamKey,
    queue: &mut Outbound,
    ends: bool,
    out: &mut Output<'_>,
) -> bool {
    queue.flush();
    let pending = queue.pending();
    let allowance = mux.streams().send_allowance(key).min(mux.frame_bytes_max());
    let length = pending.min(allowance.into()) as u32;
    let is_all = u64::from(length) == pending;
    if length > 0 || (ends && is_all) {
        mux.write_data(key, queue, length, ends && is_all, out);
        if ends && is_all {
            mux.streams_mut().end_locally(key);
        }
    }
    mux.streams_mut().on_sent(key, length, !is_all);
    is_all
}
