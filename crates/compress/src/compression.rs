//! `Compression`: an algorithm with its settings.

use std::time::Duration;

use crate::algorithm::{Algorithm, Properties};
use crate::cost;

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
    /// | gzip, deflate | 1 to 9 | 4 | 9 to 15 | 15 |
    /// | brotli | 0 to 11 | 4 | 10 to 24 | 16 |
    /// | zstd | 1 to 19 | 3 | 10 to 23 | 17 |
    /// | snappy, lz4 | | | | |
    ///
    /// From level 5 on, brotli has at least 17 window bits. Files that are compressed once are worth the highest levels
    /// and windows, from a tool of the algorithm.
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

    /// How many bytes of text are compressed in about this time, on one core: at least 1 KiB, at most 64 KiB, and a power of
    /// two. An event loop that compresses in pieces of this length serves others in between.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::compress::{Algorithm, Compression};
    ///
    /// let (fast, slow) = (Compression::new(Algorithm::Gzip), Compression::new(Algorithm::Gzip).level(9));
    /// let time = Duration::from_micros(500);
    /// assert!(fast.bytes_within(time) > slow.bytes_within(time));
    /// ```
    #[must_use]
    pub fn bytes_within(&self, time: Duration) -> usize {
        let bytes = time.as_nanos() as usize / cost::compressing_nanos(self.algorithm, self.level) as usize;
        1 << bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).ilog2()
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn level_and_window_bits(&self) -> (u8, u8) {
        (self.level, self.window_bits)
    }
}

impl From<Algorithm> for Compression {
    fn from(algorithm: Algorithm) -> Self {
        Self::new(algorithm)
    }
}

const PIECE_BYTES_MIN: usize = 1024;
const PIECE_BYTES_MAX: usize = 64 * 1024;
