//! `CodingError`: integers and strings of a field section that cannot be decoded.

use std::fmt;

/// Why an integer or a string cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodingError {
    /// The bytes end within it.
    Truncated,
    /// The integer is too large, or too long.
    Integer,
    /// The string is no Huffman code.
    Huffman,
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the bytes end within an integer or a string",
            Self::Integer => "an integer is too large",
            Self::Huffman => "a string is no Huffman code",
        })
    }
}

impl std::error::Error for CodingError {}
