//! `RequestDecompression`: bodies of requests that have a content coding.

use tidegate_compress::{DecompressionLimits, Decompressor};
use tidegate_http_message::coding::{ContentDecoder, content_codings, supported_names};
use tidegate_http1::Status;

use crate::middleware::Middleware;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// Decompresses the bodies of requests with `Content-Encoding`. A function sees the plain body, and a head without
/// `Content-Encoding` and `Content-Length`: so it may pass both on, as a proxy or a tower service does. Other middleware of the
/// same router, such as an access log, sees the head of the client. Without this middleware a function sees the body as it
/// was sent.
///
/// A coding that is not built in is answered with 415 and the codings that are, invalid bytes with 400. The limits stop
/// bombs, small bodies that become large: beyond them the response is 413, and a body that is read piece by piece ends
/// with [`BodyError::TooLong`](crate::BodyError::TooLong). A body that is collected has [`collected_body_bytes_max`] for its plain bytes as well.
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
        request.decode_body(Box::new(ContentDecoder::new(decompressor))).map_err(IntoResponse::into_response)
    }
}

/// 415, with the supported codings (RFC 9110 §12.5.3).
fn unsupported() -> Response {
    let response = Response::of_error(Status::UNSUPPORTED_MEDIA_TYPE).close();
    response.header("Accept-Encoding", supported_names()).expect("they are tokens")
}
