//! Content codings of bodies (RFC 9110 §8.4): `ResponseCompression` and `RequestDecompression`, which are middleware.

mod request;
mod response;

use tidegate_compress::Algorithm;

pub use self::request::RequestDecompression;
pub use self::response::ResponseCompression;
use crate::negotiate::Encoding;

/// The algorithm of a content coding, if it is built in.
fn algorithm(encoding: Encoding) -> Option<Algorithm> {
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
