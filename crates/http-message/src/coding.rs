//! Content codings that are built in (RFC 9110 §8.4): their names, their algorithms, and decoding them.

use tidegate_codec::{Blame, Fault};
use tidegate_compress::{Algorithm, Decompressor};
use tidegate_http1::Headers;

use crate::body::{Decode, DecodedBytes};
use crate::error::BodyError;
use crate::negotiate::Encoding;

/// The algorithm of a content coding, if it is built in.
pub fn algorithm(encoding: Encoding) -> Option<Algorithm> {
    match encoding {
        #[cfg(feature = "brotli")]
        Encoding::Brotli => Some(Algorithm::Brotli),
        #[cfg(feature = "zstd")]
        Encoding::Zstd => Some(Algorithm::Zstd),
        #[cfg(feature = "gzip")]
        Encoding::Gzip => Some(Algorithm::Gzip),
        #[cfg(feature = "gzip")]
        Encoding::Deflate => Some(Algorithm::Deflate),
        _ => None,
    }
}

/// The algorithms of `Content-Encoding` in their order; `None` if one of them is not built in.
pub fn content_codings(headers: Headers<'_>) -> Option<Vec<Algorithm>> {
    let mut algorithms = Vec::new();
    for (_, value) in headers.filter(|(name, _)| name.eq_ignore_ascii_case(b"content-encoding")) {
        for element in value.split(|&byte| byte == b',') {
            match Encoding::from_name(element.trim_ascii())? {
                Encoding::Identity => {}
                encoding => algorithms.push(algorithm(encoding)?),
            }
        }
    }
    Some(algorithms)
}

/// The names of the codings that are built in, with commas between them.
pub fn supported_names() -> String {
    let all = [Encoding::Gzip, Encoding::Deflate, Encoding::Brotli, Encoding::Zstd];
    let names: Vec<_> = all.into_iter().filter(|one| algorithm(*one).is_some()).map(Encoding::as_str).collect();
    names.join(", ")
}

/// Undoes the codings of a body. A body of no bytes is empty, whatever its codings.
pub struct ContentDecoder {
    decompressor: Decompressor,
    has_begun: bool,
}

impl ContentDecoder {
    /// Undoes the codings that `decompressor` has.
    #[must_use]
    pub fn new(decompressor: Decompressor) -> Self {
        Self { decompressor, has_begun: false }
    }
}

impl Decode for ContentDecoder {
    fn decode(&mut self, input: &[u8], bytes_max: usize) -> Result<DecodedBytes, BodyError> {
        let mut bytes = Vec::new();
        self.has_begun |= !input.is_empty();
        let progress = self.decompressor.write(input, bytes_max, &mut bytes).map_err(body_error)?;
        Ok(DecodedBytes { bytes, read: progress.read, is_complete: progress.is_complete })
    }

    fn finish(&mut self) -> Result<(), BodyError> {
        if self.has_begun { self.decompressor.finish().map_err(body_error) } else { Ok(()) }
    }
}

fn body_error(error: tidegate_compress::Error) -> BodyError {
    match error.blame() {
        Blame::Limit => BodyError::TooLong,
        _ => BodyError::Undecodable,
    }
}
