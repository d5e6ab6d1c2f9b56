//! `Algorithm` and `Compression`: which algorithm, and how hard it tries. This file alone knows which are built in.

use std::fmt;

use crate::coder::{Decode, Encode};
use crate::decompressor::DecompressionLimits;
use crate::error::Error;

/// A compression algorithm with its format. Those whose feature is off do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// gzip (RFC 1952), of one member or several.
    #[cfg(feature = "gzip")]
    Gzip,
    /// Deflate with the header and checksum of zlib (RFC 1950), which HTTP calls `deflate`. A decompressor accepts raw
    /// deflate (RFC 1951) as well, as some peers send it under that name.
    #[cfg(feature = "gzip")]
    Deflate,
    /// Deflate without header and checksum (RFC 1951), as in `COMPRESS=DEFLATE` of IMAP and in WebSocket.
    #[cfg(feature = "gzip")]
    RawDeflate,
    /// Brotli (RFC 7932).
    #[cfg(feature = "brotli")]
    Brotli,
    /// Zstandard (RFC 8878), of one frame or several.
    #[cfg(feature = "zstd")]
    Zstd,
    /// Snappy in its framing format.
    #[cfg(feature = "snappy")]
    Snappy,
    /// LZ4 in its frame format, of one frame or several.
    #[cfg(feature = "lz4")]
    Lz4,
}

impl Algorithm {
    /// Those that are built in.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "gzip")]
        Self::Gzip,
        #[cfg(feature = "gzip")]
        Self::Deflate,
        #[cfg(feature = "gzip")]
        Self::RawDeflate,
        #[cfg(feature = "brotli")]
        Self::Brotli,
        #[cfg(feature = "zstd")]
        Self::Zstd,
        #[cfg(feature = "snappy")]
        Self::Snappy,
        #[cfg(feature = "lz4")]
        Self::Lz4,
    ];

    fn properties(self) -> Properties {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Properties { name: "gzip", frames: true, marks_ends: true, ..crate::deflate::PROPERTIES },
            #[cfg(feature = "gzip")]
            Self::Deflate => crate::deflate::PROPERTIES,
            #[cfg(feature = "gzip")]
            Self::RawDeflate => Properties { name: "raw deflate", ..crate::deflate::PROPERTIES },
            #[cfg(feature = "brotli")]
            Self::Brotli => crate::brotli::PROPERTIES,
            #[cfg(feature = "zstd")]
            Self::Zstd => crate::zstd::PROPERTIES,
            #[cfg(feature = "snappy")]
            Self::Snappy => crate::snappy::PROPERTIES,
            #[cfg(feature = "lz4")]
            Self::Lz4 => crate::lz4::PROPERTIES,
        }
    }

    /// Whether a message may consist of several parts, each of which is a message. Such a message ends with any part.
    #[must_use]
    pub fn has_frames(self) -> bool {
        self.properties().frames
    }

    /// Whether a part marks its end, so that what follows does not refer to it.
    pub(crate) fn marks_ends(self) -> bool {
        self.properties().marks_ends
    }

    pub(crate) fn decoder(self, limits: &DecompressionLimits) -> Result<Box<dyn Decode>, Error> {
        let _ = limits;
        Ok(match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Box::new(crate::gzip::Decoder::new()),
            #[cfg(feature = "gzip")]
            Self::Deflate | Self::RawDeflate => Box::new(crate::deflate::Decoder::new(self)),
            #[cfg(feature = "brotli")]
            Self::Brotli => Box::new(crate::brotli::Decoder::new(limits)),
            #[cfg(feature = "zstd")]
            Self::Zstd => Box::new(crate::zstd::Decoder::new(limits)?),
            #[cfg(feature = "snappy")]
            Self::Snappy => Box::new(crate::blocks::Decoder::new(crate::snappy::Reading::default(), limits)),
            #[cfg(feature = "lz4")]
            Self::Lz4 => Box::new(crate::blocks::Decoder::new(crate::lz4::Reading::default(), limits)),
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().name)
    }
}

/// An algorithm with its settings.
///
/// ```
/// use tidegate::compress::{Algorithm, Compression, Compressor};
///
/// let small = Compression::new(Algorithm::Gzip).level(9).window_bits(12);
/// let mut compressed = Vec::new();
/// Compressor::new(small).finish_with(b"ebb and flow", &mut compressed)?;
/// assert_eq!(compressed[..2], [0x1f, 0x8b]);
/// # Ok::<(), tidegate::compress::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Compression {
    algorithm: Algorithm,
    level: u8,
    window_bits: u8,
}

impl Compression {
    /// The algorithm with defaults that suit responses that are made on the fly:
    ///
    /// | algorithm | levels | default | window bits | default |
    /// |---|---|--:|---|--:|
    /// | gzip, deflate | 1 to 9 | 6 | 9 to 15 | 15 |
    /// | brotli | 0 to 11 | 4 | 10 to 24 | 18 |
    /// | zstd | 1 to 19 | 3 | 10 to 23 | 18 |
    /// | snappy, lz4 | | | | |
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let Properties { level, window_bits, .. } = algorithm.properties();
        Self { algorithm, level: level.default, window_bits: window_bits.default }
    }

    /// Sets the level: a higher one compresses better and takes more time. A level out of range becomes the nearest one.
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.level = self.algorithm.properties().level.clamp(level);
        self
    }

    /// Sets the logarithm of the window: how far back repetitions are found, and most of the memory of a context. Bits
    /// out of range become the nearest ones.
    #[must_use]
    pub fn window_bits(mut self, bits: u8) -> Self {
        self.window_bits = self.algorithm.properties().window_bits.clamp(bits);
        self
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn encoder(&self) -> Result<Box<dyn Encode>, Error> {
        Ok(match self.algorithm {
            #[cfg(feature = "gzip")]
            Algorithm::Gzip | Algorithm::Deflate | Algorithm::RawDeflate => {
                Box::new(crate::deflate::Encoder::new(self.algorithm, self.level, self.window_bits))
            }
            #[cfg(feature = "brotli")]
            Algorithm::Brotli => Box::new(crate::brotli::Encoder::new(self.level, self.window_bits)),
            #[cfg(feature = "zstd")]
            Algorithm::Zstd => Box::new(crate::zstd::Encoder::new(self.level, self.window_bits)?),
            #[cfg(feature = "snappy")]
            Algorithm::Snappy => Box::new(crate::blocks::Encoder::new(crate::snappy::Writing::new())),
            #[cfg(feature = "lz4")]
            Algorithm::Lz4 => Box::new(crate::blocks::Encoder::new(crate::lz4::Writing::default())),
        })
    }
}

impl From<Algorithm> for Compression {
    fn from(algorithm: Algorithm) -> Self {
        Self::new(algorithm)
    }
}

/// What an algorithm offers.
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    pub(crate) name: &'static str,
    pub(crate) level: Range,
    pub(crate) window_bits: Range,
    pub(crate) frames: bool,
    pub(crate) marks_ends: bool,
}

/// A range of settings.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) least: u8,
    pub(crate) default: u8,
    pub(crate) most: u8,
}

impl Range {
    fn clamp(self, value: u8) -> u8 {
        value.clamp(self.least, self.most)
    }
}
