//! `ReadPhase` and `Ending`: two state machines of a server's connection, in seven bits of its flags.
//!
//! ```text
//!            EmptyLine                    Begin                                  Await
//!   Idle ────────────▶ OneEmptyLine .. ─────────▶ Head, HeadAfterOne ..   Idle ◀───────▶ Body
//!                                                                          │    Arrived   │
//!                                                                          ▼     Skip     ▼
//!                                                                       Skipping ◀───▶ SkippedBody
//!
//!         Drain            Batch            Batch              Batch                Batch
//!   Open ──────▶ Draining ──────▶ OneBatch ──────▶ TwoBatches ──────▶ ThreeBatches ──────▶ Closing
//! ```
//!
//! [`Inbound`](crate::body::Inbound) is where the codec is in the input. `ReadPhase` adds to that position: how much of a
//! head or a body has arrived, and whether the codec waits for the rest. A request or a response that is complete
//! brings it back to `Idle`. `Ending` is how the connection comes to its end, and outlives the requests. Both machines
//! have zero as their first state, so that clearing the bits is that state.

/// How far the head or the body has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReadPhase {
    /// The codec waits for nothing that has begun: it is between two requests, or the application has the last piece of
    /// the body.
    Idle,
    /// Before a request line, after an empty line (RFC 9112 §2.2).
    OneEmptyLine,
    TwoEmptyLines,
    /// After the last empty line that is tolerated.
    ThreeEmptyLines,
    /// A part of a head has arrived.
    Head,
    HeadAfterOne,
    HeadAfterTwo,
    HeadAfterThree,
    /// The codec waits for more bytes of the body.
    Body,
    /// The codec skips the body.
    Skipping,
    /// The codec skips the body, and waits for more bytes of it.
    SkippedBody,
}

/// An event that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadEvent {
    /// An empty line came in place of a request line.
    EmptyLine,
    /// The received bytes end within a head.
    Begin,
    /// The received bytes end within a body.
    Await,
    /// A piece of the body came.
    Arrived,
    /// The response is complete before the body is.
    Skip,
}

impl ReadPhase {
    const ALL: [Self; 11] = [
        Self::Idle,
        Self::OneEmptyLine,
        Self::TwoEmptyLines,
        Self::ThreeEmptyLines,
        Self::Head,
        Self::HeadAfterOne,
        Self::HeadAfterTwo,
        Self::HeadAfterThree,
        Self::Body,
        Self::Skipping,
        Self::SkippedBody,
    ];

    /// The state after an event; `None` if the event is not allowed in this state.
    pub(crate) const fn after(self, event: ReadEvent) -> Option<Self> {
        Some(match (self, event) {
            (Self::Idle, ReadEvent::EmptyLine) => Self::OneEmptyLine,
            (Self::OneEmptyLine, ReadEvent::EmptyLine) => Self::TwoEmptyLines,
            (Self::TwoEmptyLines, ReadEvent::EmptyLine) => Self::ThreeEmptyLines,
            // The first byte of an empty line may have arrived alone, as the beginning of a head.
            (Self::Head, ReadEvent::EmptyLine) => Self::HeadAfterOne,
            (Self::HeadAfterOne, ReadEvent::EmptyLine) => Self::HeadAfterTwo,
            (Self::HeadAfterTwo, ReadEvent::EmptyLine) => Self::HeadAfterThree,
            (Self::Idle, ReadEvent::Begin) => Self::Head,
            (Self::OneEmptyLine, ReadEvent::Begin) => Self::HeadAfterOne,
            (Self::TwoEmptyLines, ReadEvent::Begin) => Self::HeadAfterTwo,
            (Self::ThreeEmptyLines, ReadEvent::Begin) => Self::HeadAfterThree,
            (Self::Idle, ReadEvent::Await) => Self::Body,
            (Self::Skipping, ReadEvent::Await) => Self::SkippedBody,
            (Self::Idle | Self::Body, ReadEvent::Arrived) => Self::Idle,
            (Self::Skipping | Self::SkippedBody, ReadEvent::Arrived) => Self::Skipping,
            (Self::Idle | Self::Body, ReadEvent::Skip) => Self::Skipping,
            _ => return None,
        })
    }

    /// Whether a part of a head has arrived.
    pub(crate) const fn is_in_head(self) -> bool {
        matches!(self, Self::Head | Self::HeadAfterOne | Self::HeadAfterTwo | Self::HeadAfterThree)
    }

    /// Whether the codec waits for more bytes of a body.
    pub(crate) const fn awaits_body(self) -> bool {
        matches!(self, Self::Body | Self::SkippedBody)
    }

    pub(crate) const fn is_skipping(self) -> bool {
        matches!(self, Self::Skipping | Self::SkippedBody)
    }

    /// The state in a server's flags.
    pub(crate) const fn of(flags: u16) -> Self {
        let number = (flags >> READING_SHIFT) as usize & READING_MAX;
        if number < Self::ALL.len() { Self::ALL[number] } else { Self::Idle }
    }

    /// The flags with this state in place of theirs.
    pub(crate) const fn put(self, flags: u16) -> u16 {
        flags & !READING | (self as u16) << READING_SHIFT
    }
}

/// How the connection comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ending {
    /// It stays open as long as the peer wants it.
    Open,
    /// The server drains: the response to a request that is not followed by another is the last one.
    Draining,
    /// The same; since the drain the received bytes have ended within a head once.
    OneBatch,
    TwoBatches,
    ThreeBatches,
    /// The next response is the last one.
    Closing,
}

/// An event that brings it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndEvent {
    /// The server begins to drain.
    Drain,
    /// The received bytes end within a head.
    Batch,
    /// The peer has closed its side.
    Close,
}

impl Ending {
    const ALL: [Self; 6] =
        [Self::Open, Self::Draining, Self::OneBatch, Self::TwoBatches, Self::ThreeBatches, Self::Closing];

    /// The state after an event. An event that does not apply changes nothing.
    pub(crate) const fn after(self, event: EndEvent) -> Self {
        match (self, event) {
            (_, EndEvent::Close) => Self::Closing,
            (Self::Open, EndEvent::Drain) => Self::Draining,
            (Self::Draining, EndEvent::Batch) => Self::OneBatch,
            (Self::OneBatch, EndEvent::Batch) => Self::TwoBatches,
            (Self::TwoBatches, EndEvent::Batch) => Self::ThreeBatches,
            // A peer that never stops sending must have a last request.
            (Self::ThreeBatches, EndEvent::Batch) => Self::Closing,
            (state, _) => state,
        }
    }

    pub(crate) const fn is_draining(self) -> bool {
        matches!(self, Self::Draining | Self::OneBatch | Self::TwoBatches | Self::ThreeBatches)
    }

    /// The state in a server's flags.
    pub(crate) const fn of(flags: u16) -> Self {
        let number = (flags >> ENDING_SHIFT) as usize & ENDING_MAX;
        if number < Self::ALL.len() { Self::ALL[number] } else { Self::Closing }
    }

    /// The flags with this state in place of theirs.
    pub(crate) const fn put(self, flags: u16) -> u16 {
        flags & !ENDING | (self as u16) << ENDING_SHIFT
    }
}

/// Where the two states are in a server's flags, beside the single bits in `server.rs`.
const ENDING_SHIFT: u16 = 6;
const ENDING_MAX: usize = 7;
pub(crate) const ENDING: u16 = (ENDING_MAX as u16) << ENDING_SHIFT;
const READING_SHIFT: u16 = 9;
const READING_MAX: usize = 15;
pub(crate) const READING: u16 = (READING_MAX as u16) << READING_SHIFT;

#[cfg(test)]
mod tests {
    use super::EndEvent::{Batch, Close, Drain};
    use super::ReadEvent::{Arrived, Await, Begin, EmptyLine, Skip};
    use super::*;

    #[test]
    fn every_transition_of_reading() {
        use ReadPhase::{
            Body, Head, HeadAfterOne, HeadAfterThree, HeadAfterTwo, Idle, OneEmptyLine, SkippedBody, Skipping,
            ThreeEmptyLines, TwoEmptyLines,
        };
        let events = [EmptyLine, Begin, Await, Arrived, Skip];
        for (state, after) in [
            (Idle, [Some(OneEmptyLine), Some(Head), Some(Body), Some(Idle), Some(Skipping)]),
            (OneEmptyLine, [Some(TwoEmptyLines), Some(HeadAfterOne), None, None, None]),
            (TwoEmptyLines, [Some(ThreeEmptyLines), Some(HeadAfterTwo), None, None, None]),
            (ThreeEmptyLines, [None, Some(HeadAfterThree), None, None, None]),
            (Head, [Some(HeadAfterOne), None, None, None, None]),
            (HeadAfterOne, [Some(HeadAfterTwo), None, None, None, None]),
            (HeadAfterTwo, [Some(HeadAfterThree), None, None, None, None]),
            (HeadAfterThree, [None; 5]),
            (Body, [None, None, None, Some(Idle), Some(Skipping)]),
            (Skipping, [None, None, Some(SkippedBody), Some(Skipping), None]),
            (SkippedBody, [None, None, None, Some(Skipping), None]),
        ] {
            assert_eq!(events.map(|event| state.after(event)), after, "{state:?}");
        }
    }

    #[test]
    fn every_transition_of_ending() {
        use Ending::{Closing, Draining, OneBatch, Open, ThreeBatches, TwoBatches};
        for (event, after) in [
            (Drain, [Draining, Draining, OneBatch, TwoBatches, ThreeBatches, Closing]),
            (Batch, [Open, OneBatch, TwoBatches, ThreeBatches, Closing, Closing]),
            (Close, [Closing; 6]),
        ] {
            assert_eq!(Ending::ALL.map(|state| state.after(event)), after, "{event:?}");
        }
    }

    #[test]
    fn a_state_is_restored_from_the_flags_and_leaves_the_others_alone() {
        for flags in [0, u16::MAX] {
            for state in ReadPhase::ALL {
                assert_eq!(ReadPhase::of(state.put(flags)), state);
                assert_eq!(state.put(flags) & !READING, flags & !READING);
            }
            for state in Ending::ALL {
                assert_eq!(Ending::of(state.put(flags)), state);
                assert_eq!(state.put(flags) & !ENDING, flags & !ENDING);
            }
        }
    }
}
