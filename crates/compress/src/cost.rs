//! How long each algorithm takes for a byte, as an estimate. [`work`] counts it, and an event loop bounds its turns by
//! it.
//!
//! The figures are those of text on one core of about 3 GHz, rounded up. They need no precision: they bound work where the
//! clock is not read.

use tidegate_codec::work;

use crate::algorithm::Algorithm;

/// Adds the work of compressing so many bytes.
pub(crate) fn add_compressing(algorithm: Algorithm, level: u8, bytes: usize) {
    work::add(bytes as u64 * compressing_nanos(algorithm, level));
}

/// Adds the work of decompressing: of reading so many bytes and writing so many others.
pub(crate) fn add_decompressing(algorithm: Algorithm, read: usize, written: usize) {
    work::add((read + written) as u64 * decompressing_nanos(algorithm));
}

/// Adds the work of making a compressing context: most of it is zeroing its tables.
pub(crate) fn add_context(bytes: usize) {
    work::add(bytes as u64 / ZEROED_BYTES_PER_NANO);
}

/// How long compressing a byte takes, in nanoseconds.
pub(crate) fn compressing_nanos(algorithm: Algorithm, level: u8) -> u64 {
    let _ = level;
    match algorithm {
        #[cfg(feature = "gzip")]
        Algorithm::Gzip | Algorithm::Deflate | Algorithm::RawDeflate => match level {
            0..=1 => 5,
            2..=4 => 12,
            5..=6 => 25,
            _ => 60,
        },
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => match level {
            0..=1 => 5,
            2..=4 => 20,
            5..=6 => 40,
            7..=9 => 100,
            _ => 1_500,
        },
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => match level {
            0..=3 => 4,
            4..=9 => 20,
            10..=15 => 100,
            _ => 400,
        },
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => 2,
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => 2,
    }
}

fn decompressing_nanos(algorithm: Algorithm) -> u64 {
    match algorithm {
        #[cfg(feature = "gzip")]
        Algorithm::Gzip | Algorithm::Deflate | Algorithm::RawDeflate => 3,
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => 4,
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => 2,
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => 1,
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => 1,
    }
}

/// New memory is zeroed page by page, by the kernel and by the library.
const ZEROED_BYTES_PER_NANO: u64 = 4;

#[cfg(all(test, feature = "gzip"))]
mod tests {
    use tidegate_codec::work::Work;

    use crate::{Algorithm, Compression, Compressor, DecompressionLimits, Decompressor};

    #[test]
    fn work_grows_with_the_bytes_and_the_level() {
        let text = b"ebb and flow ".repeat(5_000);
        let compress = |level| {
            let (work, mut out) = (Work::begin(), Vec::new());
            Compressor::new(Compression::new(Algorithm::Gzip).level(level)).finish_with(&text, &mut out).unwrap();
            (work.nanos(), out)
        };
        let (fast, _) = compress(1);
        let (slow, compressed) = compress(9);
        assert!(fast >= 5 * text.len() as u64 && slow > 5 * fast, "{fast} {slow}");

        let (work, mut plain) = (Work::begin(), Vec::new());
        let mut decompressor = Decompressor::new(Algorithm::Gzip, DecompressionLimits::default());
        decompressor.write(&compressed, usize::MAX, &mut plain).unwrap();
        assert_eq!(plain, text);
        assert!(work.nanos() >= 3 * text.len() as u64, "few bytes that become many are as much work as those");
    }
}
