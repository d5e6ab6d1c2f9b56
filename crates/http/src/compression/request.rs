//! `RequestDecompression`: bodies of requests that have a content coding.

use tidegate_codec::{Blame, Fault};
use tidegate_compress::{DecompressionLimits, Decompressor};
use tidegate_http1::Status;

use super::{content_codings, supported_names};
use crate::body::{Decode, Decoded};
use crate::exchange::BodyError;
use crate::middleware::Middleware;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// Decompresses the bodies of requests with `Content-Encoding`. A function sees the plain body; without this middleware
/// it sees the body as it was sent.
///
/// A coding that is not built in is answered with 415 and the codings that are, invalid bytes with 400. The limits stop
/// bombs, small bodies that become large: beyond them the response is 413, and a body that is read piece by piece ends
/// with [`BodyError::TooLong`]. A body that is collected has [`collected_body_bytes_max`] for its plain bytes as well.
///
/// [`collected_body_bytes_max`]: crate::Limits::collected_body_bytes_max
#[derive(Debug, Default)]
pub struct RequestDecompression {
    limits: DecompressionLimits,
}

impl RequestDecompression {
    /// With the default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With other limits.
    #[must_use]
    pub fn limits(mut self, limits: DecompressionLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl Middleware for RequestDecompression {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if !request.head().has_body() {
            return Ok(());
        }
        let algorithms = content_codings(request.head().headers()).ok_or_else(unsupported)?;
        if algorithms.is_empty() {
            return Ok(());
        }
        let decompressor = Decompressor::layers(&algorithms, self.limits).map_err(|_| unsupported())?;
        request.decode_body(Box::new(Decoding::new(decompressor))).map_err(IntoResponse::into_response)
    }
}

/// 415, with what is supported (RFC 9110 §12.5.3).
fn unsupported() -> Response {
    let response = Response::of_error(Status::UNSUPPORTED_MEDIA_TYPE).close();
    response.header("Accept-Encoding", supported_names()).expect("they are tokens")
}

/// Undoes the codings of a body. A body of no bytes is empty, whatever its codings.
pub(crate) struct Decoding {
    decompressor: Decompressor,
    has_begun: bool,
}

impl Decoding {
    pub(crate) fn new(decompressor: Decompressor) -> Self {
        Self { decompressor, has_begun: false }
    }
}

impl Decode for Decoding {
    fn decode(&mut self, input: &[u8], bytes_max: usize) -> Result<Decoded, BodyError> {
        let mut bytes = Vec::new();
        self.has_begun |= !input.is_empty();
        let progress = self.decompressor.write(input, bytes_max, &mut bytes).map_err(body_error)?;
        Ok(Decoded { bytes, read: progress.read, is_complete: progress.is_complete })
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
