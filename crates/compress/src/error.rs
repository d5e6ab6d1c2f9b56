//! `Error`: why compression or decompression fails, by blame.

use std::fmt;

use tidegate_codec::{Blame, Fault};

use crate::algorithm::Algorithm;

/// Why compression or decompression fails.
///
/// After an error a compressor or a decompressor is only good for being dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The compressed bytes are invalid.
    Corrupt(Algorithm),
    /// The compressed bytes need a dictionary, or a part of the format that is not supported.
    Unsupported(Algorithm),
    /// The input ended within a message.
    Truncated,
    /// Bytes follow the end of the message.
    TrailingBytes,
    /// The message is longer than [`DecompressionLimits::output_max`](crate::DecompressionLimits::output_max).
    OutputTooLong {
        /// The limit in bytes.
        output_max: u64,
    },
    /// The message expands by more than [`DecompressionLimits::ratio_max`](crate::DecompressionLimits::ratio_max).
    RatioTooHigh {
        /// The limit: bytes of output for each byte of input.
        ratio_max: u32,
    },
    /// The message needs a window above [`DecompressionLimits::window_max`](crate::DecompressionLimits::window_max).
    WindowTooLarge {
        /// The limit in bytes.
        window_max: u32,
    },
    /// There are more layers than [`DecompressionLimits::layers_max`](crate::DecompressionLimits::layers_max).
    TooManyLayers {
        /// The limit.
        layers_max: usize,
    },
    /// A header of optional fields is longer than this crate reads.
    HeaderTooLong {
        /// The limit in bytes.
        header_bytes_max: usize,
    },
    /// The caller used a compressor or a decompressor after its end.
    Finished,
    /// The caller ended the input before it took all output.
    OutputPending,
    /// The library of the algorithm failed, most likely because memory is short.
    System(Algorithm),
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Corrupt(_) | Self::Unsupported(_) | Self::Truncated | Self::TrailingBytes => Blame::Peer,
            Self::OutputTooLong { .. }
            | Self::RatioTooHigh { .. }
            | Self::WindowTooLarge { .. }
            | Self::TooManyLayers { .. }
            | Self::HeaderTooLong { .. } => Blame::Limit,
            Self::Finished | Self::OutputPending => Blame::Caller,
            Self::System(_) => Blame::System,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(algorithm) => write!(f, "invalid {algorithm} data"),
            Self::Unsupported(algorithm) => write!(f, "{algorithm} data that needs a dictionary or a rare feature"),
            Self::Truncated => f.write_str("compressed data ends too early"),
            Self::TrailingBytes => f.write_str("bytes follow the end of compressed data"),
            Self::OutputTooLong { output_max } => write!(f, "decompressed data exceeds {output_max} bytes"),
            Self::RatioTooHigh { ratio_max } => write!(f, "decompressed data exceeds {ratio_max} times the compressed"),
            Self::WindowTooLarge { window_max } => write!(f, "the window exceeds {window_max} bytes"),
            Self::TooManyLayers { layers_max } => write!(f, "more than {layers_max} layers of compression"),
            Self::HeaderTooLong { header_bytes_max } => write!(f, "a header exceeds {header_bytes_max} bytes"),
            Self::Finished => f.write_str("the compressor or decompressor has ended already"),
            Self::OutputPending => f.write_str("the input was ended before all output was taken"),
            Self::System(algorithm) => write!(f, "the library of {algorithm} failed, perhaps for lack of memory"),
        }
    }
}

impl std::error::Error for Error {}
