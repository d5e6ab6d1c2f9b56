//! Content codings of bodies (RFC 9110 §8.4): `ResponseCompression` and `RequestDecompression`, which are middleware.

mod request;
mod response;

pub use self::request::RequestDecompression;
pub use self::response::ResponseCompression;
