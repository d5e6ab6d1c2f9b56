//! `WriteSide`: how the sending side of a connection comes to its end.
//!
//! ```text
//!            Finish           Written            Sent              Linger
//!   Open ───────────▶ Finishing ───▶ Flushing ───────▶ Shut ───────────────▶ Lingering
//!                         └────────────── Sent ─────────▲
//! ```
//!
//! The application's `shutdown_write` finishes the side, and so does every reason to close in good order. The codec
//! writes its closing bytes, the queue drains, and the driver shuts the side down. A connection that only the
//! application has half-closed stays in `Shut`, and receives. A connection that closes lingers: the peer has a moment to
//! end its side, since closing a socket with unread bytes would reset the connection and might destroy the last response
//! before the peer reads it. A reset skips all of that.

/// How far the sending side has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum WriteSide {
    /// The application may send.
    Open,
    /// The application sends no more; the codec has its closing bytes still to write.
    Finishing,
    /// The closing bytes are in the queue.
    Flushing,
    /// The side is shut down.
    Shut,
    /// The same, and the connection closes: the peer has a moment to end its side.
    Lingering,
}

/// An event that brings it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEvent {
    /// The application sends no more, or the connection closes.
    Finish,
    /// The codec has written its closing bytes.
    Written,
    /// The driver has taken everything that could be sent.
    Sent,
    /// The connection closes.
    Linger,
}

impl WriteSide {
    /// The state after an event. An event that does not apply changes nothing.
    pub(super) const fn after(self, event: WriteEvent) -> Self {
        match (self, event) {
            (Self::Open, WriteEvent::Finish) => Self::Finishing,
            (Self::Finishing, WriteEvent::Written) => Self::Flushing,
            // Closing bytes that a failed codec, or one in its handshake, cannot write are not waited for.
            (Self::Finishing | Self::Flushing, WriteEvent::Sent) => Self::Shut,
            (Self::Shut, WriteEvent::Linger) => Self::Lingering,
            (state, _) => state,
        }
    }

    /// The state whose number is `bits`.
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Open,
            1 => Self::Finishing,
            2 => Self::Flushing,
            3 => Self::Shut,
            _ => Self::Lingering,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WriteEvent::{Finish, Linger, Sent, Written};
    use super::WriteSide::{self, Finishing, Flushing, Lingering, Open, Shut};

    const STATES: [WriteSide; 5] = [Open, Finishing, Flushing, Shut, Lingering];

    #[test]
    fn every_transition() {
        for (event, after) in [
            (Finish, [Finishing, Finishing, Flushing, Shut, Lingering]),
            (Written, [Open, Flushing, Flushing, Shut, Lingering]),
            (Sent, [Open, Shut, Shut, Shut, Lingering]),
            (Linger, [Open, Finishing, Flushing, Lingering, Lingering]),
        ] {
            assert_eq!(STATES.map(|state| state.after(event)), after, "{event:?}");
        }
    }

    #[test]
    fn a_state_is_restored_from_its_number() {
        assert_eq!(STATES.map(|state| WriteSide::from_bits(state as u8)), STATES);
    }
}
