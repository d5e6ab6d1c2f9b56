//! `Algorithm`: the built-in algorithms and their properties. `contexts.rs` makes their contexts.

use std::fmt;

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

    pub(crate) fn properties(self) -> Properties {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Properties { name: "gzip", frames: true, ..DEFLATE },
            #[cfg(feature = "gzip")]
            Self::Deflate => DEFLATE,
            #[cfg(feature = "gzip")]
            Self::RawDeflate => Properties { name: "raw deflate", ..DEFLATE },
            #[cfg(feature = "brotli")]
            Self::Brotli => Properties {
                name: "brotli",
                level: Range { least: 0, default: 4, most: 11 },
                window_bits: Range { least: 10, default: 16, most: 24 },
                frames: false,
                marks_ends: true,
            },
            #[cfg(feature = "zstd")]
            Self::Zstd => Properties {
                name: "zstd",
                level: Range { least: 1, default: 3, most: 19 },
                window_bits: Range { least: 10, default: 17, most: 23 },
                frames: true,
                marks_ends: true,
            },
            #[cfg(feature = "snappy")]
            Self::Snappy => {
                Properties { name: "snappy", level: NONE, window_bits: NONE, frames: true, marks_ends: false }
            }
            #[cfg(feature = "lz4")]
            Self::Lz4 => Properties { name: "lz4", level: NONE, window_bits: NONE, frames: true, marks_ends: true },
        }
    }

    /// Whether a message may consist of several parts, each of which is a message. Such a message ends with any part.
    #[must_use]
    pub fn has_frames(self) -> bool {
        self.properties().frames
    }

    /// Whether a part marks its end, so that later parts do not refer to it.
    pub(crate) fn marks_ends(self) -> bool {
        self.properties().marks_ends
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().name)
    }
}

/// The properties of an algorithm.
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
    pub(crate) fn clamp(self, value: u8) -> u8 {
        value.clamp(self.least, self.most)
    }
}

/// The wrapping of zlib; the other ones differ in the name, and gzip has members.
#[cfg(feature = "gzip")]
const DEFLATE: Properties = Properties {
    name: "deflate",
    level: Range { least: 1, default: 4, most: 9 },
    window_bits: Range { least: 9, default: 15, most: 15 },
    frames: false,
    marks_ends: true,
};

/// The range of a setting that an algorithm does not have.
#[cfg(any(feature = "lz4", feature = "snappy"))]
const NONE: Range = Range { least: 0, default: 0, most: 0 };
