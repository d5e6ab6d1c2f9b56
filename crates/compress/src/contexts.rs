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
            Ok(Box::new(crate::deflate::DeflateEncoder::new(algorithm, level, window_bits)))
        }
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => Ok(Box::new(crate::brotli::BrotliEncoder::new(level, window_bits))),
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => Ok(Box::new(crate::zstd::ZstdEncoder::new(level, window_bits)?)),
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => Ok(Box::new(crate::blocks::BlockEncoder::new(crate::snappy::SnappyWriter::new()))),
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => Ok(Box::new(crate::blocks::BlockEncoder::new(crate::lz4::Lz4Writer::default()))),
    }
}

/// A decompressing context.
pub(crate) fn decoder(algorithm: Algorithm, limits: &DecompressionLimits) -> Result<Box<dyn Decode>, Error> {
    let _ = limits;
    match algorithm {
        #[cfg(feature = "gzip")]
        Algorithm::Gzip => Ok(Box::new(crate::gzip::GzipDecoder::new())),
        #[cfg(feature = "gzip")]
        Algorithm::Deflate | Algorithm::RawDeflate => Ok(Box::new(crate::deflate::DeflateDecoder::new(algorithm))),
        #[cfg(feature = "brotli")]
        Algorithm::Brotli => Ok(Box::new(crate::brotli::BrotliDecoder::new(limits))),
        #[cfg(feature = "zstd")]
        Algorithm::Zstd => Ok(Box::new(crate::zstd::ZstdDecoder::new(limits)?)),
        #[cfg(feature = "snappy")]
        Algorithm::Snappy => {
            Ok(Box::new(crate::blocks::BlockDecoder::new(crate::snappy::SnappyReader::default(), limits)))
        }
        #[cfg(feature = "lz4")]
        Algorithm::Lz4 => Ok(Box::new(crate::blocks::BlockDecoder::new(crate::lz4::Lz4Reader::default(), limits))),
    }
}
