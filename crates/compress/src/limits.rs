//! `DecompressionLimits`: limits against bombs.

/// Limits against compressed messages that are made to exhaust memory, time or a disk: *decompression bombs*. Gzip
/// expands up to 1,032 times, brotli, zstd and nested layers a million times and more.
///
/// ```
/// use tidegate::compress::DecompressionLimits;
///
/// let limits = DecompressionLimits { output_max: 1024 * 1024, ..DecompressionLimits::default() };
/// assert_eq!(limits.ratio_max, 100);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecompressionLimits {
    /// The most bytes that a message may have after any of its layers; 64 MiB by default. It bounds a bomb whose output
    /// the application collects.
    pub output_max: u64,
    /// The most bytes of output, after any layer, for each byte from the peer; 100 by default. It bounds the work that a
    /// peer causes with little. Text rarely exceeds 20.
    pub ratio_max: u32,
    /// Output up to this many bytes is not compared with [`ratio_max`](Self::ratio_max), since short messages of zeros
    /// are common; 1 MiB by default.
    pub ratio_after: u64,
    /// The most layers, as in `Content-Encoding: gzip, br`; 2 by default. Each has a context of its own.
    pub layers_max: usize,
    /// The most bytes of output that a peer may have a context keep for references; 8 MiB by default, as RFC 9659
    /// requires for zstd over HTTP. It bounds memory that a peer takes with a few bytes. Brotli declares up to 16 MiB.
    pub window_max: u32,
}

impl DecompressionLimits {
    /// The defaults without a bound of the sum: for streams that last as long as their connection.
    #[must_use]
    pub fn endless() -> Self {
        Self { output_max: u64::MAX, ..Self::default() }
    }
}

impl Default for DecompressionLimits {
    fn default() -> Self {
        Self {
            output_max: 64 * 1024 * 1024,
            ratio_max: 100,
            ratio_after: 1024 * 1024,
            layers_max: 2,
            window_max: 8 * 1024 * 1024,
        }
    }
}
