//! The types of an outbound queue's interface: its write position, the next bytes to send, and the errors of loading a
//! file.

use std::io::IoSlice;

use crate::file_region::FileRegion;

/// A write position: the number of bytes written since the connection began.
///
/// Codecs of a stack count different bytes: these are the bytes of the uppermost codec. A position means nothing after a
/// switch of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WritePosition(pub u64);

/// The next bytes to send; see [`Outbound::gather`](crate::Outbound::gather).
#[derive(Debug)]
pub enum Gathered<'a, 'q> {
    /// All flushed bytes are sent.
    Nothing,
    /// Bytes in memory, in order.
    Parts(&'a [IoSlice<'q>]),
    /// The same, and a piece of a file follows them: a driver lets both leave together.
    PartsBeforeFile(&'a [IoSlice<'q>]),
    /// A piece of a file.
    File(FileRegion),
}

/// Why bytes of a file could not be loaded in place of its region.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file ended before its region did.
    Short,
    /// Reading failed.
    Read(std::io::Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("the file is shorter than the region of it that was to be sent"),
            Self::Read(error) => write!(f, "the file cannot be read: {error}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Short => None,
            Self::Read(error) => Some(error),
        }
    }
}
