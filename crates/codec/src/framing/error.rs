//! `FramingError`: what can be wrong with a frame, sorted by whose fault it is.

use std::fmt;

use crate::fault::{Blame, Fault};

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// The peer shut down its sending side within a frame.
    Truncated {
        /// Bytes of the frame that had come.
        bytes: usize,
    },
    /// The peer declared a length that does not even cover what has to be there.
    DeclaredTooShort {
        /// What stood in the length field.
        declared: u64,
    },
    /// The message contains what would end it early, or ends in something that would be taken for a part of its end.
    EndWithin {
        /// Where that is.
        at: usize,
    },
    /// The message has not the one length that there is, or is shorter than its header.
    WrongLength {
        /// How long it is.
        bytes: usize,
        /// How long it has to be, at least.
        expected: usize,
    },
    /// The message's length is not a number that the length field can hold.
    Undeclarable {
        /// How long the message is.
        bytes: usize,
    },
    /// The frame is longer than the limit.
    TooLong {
        /// The limit, in bytes.
        bytes_max: usize,
    },
}

impl Fault for FramingError {
    fn blame(&self) -> Blame {
        match self {
            Self::Truncated { .. } | Self::DeclaredTooShort { .. } => Blame::Peer,
            Self::EndWithin { .. } | Self::WrongLength { .. } | Self::Undeclarable { .. } => Blame::Caller,
            Self::TooLong { .. } => Blame::Limit,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { bytes } => write!(f, "the peer ended after {bytes} bytes of a frame"),
            Self::DeclaredTooShort { declared } => write!(f, "a declared length of {declared} is too short"),
            Self::EndWithin { at } => write!(f, "the message contains its own end at byte {at}"),
            Self::WrongLength { bytes, expected } => write!(f, "a message of {bytes} bytes instead of {expected}"),
            Self::Undeclarable { bytes } => write!(f, "the length field cannot declare a message of {bytes} bytes"),
            Self::TooLong { bytes_max } => write!(f, "a frame is longer than {bytes_max} bytes"),
        }
    }
}

impl std::error::Error for FramingError {}

const _: () = assert!(size_of::<FramingError>() <= 24);
