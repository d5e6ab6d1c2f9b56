//! Makes the contexts of each algorithm that is built in.

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Encode};
use crate::compression::Compression;
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A compressing context.
pub(crate) fn encoder(compression: &Compression) -> Result<Box<dyn Encode>, Error> {
    let (level, window_bits) = compression.level_and_window_bits();
    let _ = (level, window_bits);
    match compression.algorithm() {
        #[cfg(feature = "gzip")]
        algorithm @ (Algorithm::Gzip | Algorithm::Deflate | Algorithm::RawDeflate) => {
            Ok(Box::new(crate::deflate::Encoder::new(algorithm, level, window_bits)))
        }
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => Ok(Box::new(crate::brotli::Encoder::new(level, window_bits))),
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => Ok(Box::new(crate::zstd::Encoder::new(level, window_bits)?)),
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => Ok(Box::new(crate::blocks::Encoder::new(crate::snappy::Writing::new()))),
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => Ok(Box::new(crate::blocks::Encoder::new(crate::lz4::Writing::default()))),
    }
}

/// A decompressing context.
pub(crate) fn decoder(algorithm: Algorithm, limits: &DecompressionLimits) -> Result<Box<dyn Decode>, Error> {
    let _ = limits;
    match algorithm {
        #[cfg(feature = "gzip")]
        Algorithm::Gzip => Ok(Box::new(crate::gzip::Decoder::new())),
        #[cfg(feature = "gzip")]
        Algorithm::Deflate | Algorithm::RawDeflate => Ok(Box::new(crate::deflate::Decoder::new(algorithm))),
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => Ok(Box::new(crate::brotli::Decoder::new(limits))),
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => Ok(Box::new(crate::zstd::Decoder::new(limits)?)),
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => Ok(Box::new(crate::blocks::Decoder::new(crate::snappy::Reading::default(), limits))),
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => Ok(Box::new(crate::blocks::Decoder::new(crate::lz4::Reading::default(), limits))),
    }
}
