//! `FramingError`: the errors of a frame, sorted by blame.

use std::fmt;

use crate::fault::{Blame, Fault};

/// The error of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// The peer shut down its sending side within a frame.
    Truncated {
        /// Bytes of the frame that had arrived.
        bytes: usize,
    },
    /// The peer declared a length that does not even cover the required part of the frame.
    DeclaredTooShort {
        /// The value of the length field.
        declared: u64,
    },
    /// A byte of the frame cannot stand where it does: a length that does not end, a bracket that closes no other.
    Unexpected {
        /// The position of the byte in the frame.
        at: usize,
    },
    /// The message is not exactly one frame.
    NotOneFrame {
        /// The position up to which it is.
        at: usize,
    },
    /// Values of the frame are nested more deeply than the limit.
    TooDeep {
        /// The limit, in values within each other.
        depth_max: usize,
    },
    /// The message contains its own end, or its last bytes would be read as a part of its end.
    EndWithin {
        /// The position of that end.
        at: usize,
    },
    /// The message does not have the one permitted length, or is shorter than its header.
    WrongLength {
        /// The length of the message.
        bytes: usize,
        /// The required length, or the least one.
        expected: usize,
    },
    /// The length field cannot hold the message's length.
    Undeclarable {
        /// The length of the message.
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
            Self::Truncated { .. } | Self::DeclaredTooShort { .. } | Self::Unexpected { .. } => Blame::Peer,
            Self::EndWithin { .. }
            | Self::NotOneFrame { .. }
            | Self::WrongLength { .. }
            | Self::Undeclarable { .. } => Blame::Caller,
            Self::TooLong { .. } | Self::TooDeep { .. } => Blame::Limit,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { bytes } => write!(f, "the peer ended after {bytes} bytes of a frame"),
            Self::DeclaredTooShort { declared } => write!(f, "a declared length of {declared} is too short"),
            Self::Unexpected { at } => write!(f, "byte {at} of a frame cannot stand there"),
            Self::NotOneFrame { at } => write!(f, "the message is not exactly one frame, from byte {at} on"),
            Self::TooDeep { depth_max } => write!(f, "a frame is nested more than {depth_max} deep"),
            Self::EndWithin { at } => write!(f, "the message contains its own end at byte {at}"),
            Self::WrongLength { bytes, expected } => write!(f, "a message of {bytes} bytes instead of {expected}"),
            Self::Undeclarable { bytes } => write!(f, "the length field cannot declare a message of {bytes} bytes"),
            Self::TooLong { bytes_max } => write!(f, "a frame is longer than {bytes_max} bytes"),
        }
    }
}

impl std::error::Error for FramingError {}

const _: () = assert!(size_of::<FramingError>() <= 24);
