//! Content codings of bodies (RFC 9110 §8.4): `ResponseCompression` and `RequestDecompression`, which are middleware.

mod request;
mod response;

use tidegate_compress::Algorithm;
use tidegate_http1::Headers;

pub(crate) use self::request::Decoding;
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

/// The algorithms of `Content-Encoding` in their order; `None` if one of them is not built in.
pub(crate) fn content_codings(headers: Headers<'_>) -> Option<Vec<Algorithm>> {
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
pub(crate) fn supported_names() -> String {
    let all = [Encoding::Gzip, Encoding::Deflate, Encoding::Brotli, Encoding::Zstd];
    let names: Vec<_> = all.into_iter().filter(|one| algorithm(*one).is_some()).map(Encoding::as_str).collect();
    names.join(", ")
}
