//! `Response` of a client: a head that is read where it lies, and a body that is received piece by piece.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};
#[cfg(feature = "json")]
use serde::de::DeserializeOwned;
use tidegate_codec::framing::Raw;
use tidegate_codec::{DynOver, Filters, Pipeline};
#[cfg(feature = "compress")]
use tidegate_compress::{DecompressionLimits, Decompressor};
use tidegate_engine::Channel;
#[cfg(feature = "compress")]
use tidegate_http_message::body::BodyDecoder;
use tidegate_http_message::body::{Body, BodyKind, ReceivedBody};
#[cfg(feature = "compress")]
use tidegate_http_message::coding::{ContentDecoder, content_codings};
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http_message::{BodyError, HeaderFields};
use tidegate_http_upstream::ClientExchange;
use tidegate_http1::{self as http1, BodyLength, ResponseHead};

use super::error::ClientError;

/// The response to a request.
///
/// The body is received as the caller reads it: a slow caller stops the server. Dropping the response before the end of
/// its body closes the connection, unless the rest has arrived already, or resets the HTTP/2 stream; once the body has
/// been read to its end the connection is free for another request.
pub struct Response {
    head: ResponseHead,
    uri: Uri,
    body: Body,
    collected_bytes_max: usize,
    /// The exchange of a connection that has left HTTP.
    switched: Option<Rc<dyn ClientExchange>>,
}

impl Response {
    /// `exchange` owns the connection.
    pub(super) fn new(
        head: ResponseHead,
        uri: Uri,
        exchange: Rc<dyn ClientExchange>,
        collected_bytes_max: usize,
    ) -> Self {
        let mut switched = None;
        let body = if head.has_body() {
            let length = match head.body() {
                BodyLength::Known(length) => Some(length),
                BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
            };
            let exchange: Rc<dyn Exchange> = Rc::new(ResponseReader(exchange));
            Body::from(BodyKind::Received(ReceivedBody {
                exchange,
                number: 0,
                length,
                first_pieces: None,
                has_ended: false,
                trailers: None,
                decoder: None,
            }))
        } else {
            if exchange.has_left_http() {
                switched = Some(exchange);
            }
            Body::empty()
        };
        // The head leaves the loop's memory for received bytes, which the body needs.
        Self { head: head.detach(), uri, body, collected_bytes_max, switched }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        // The codec yields statuses from 100 to 599.
        StatusCode::from_u16(self.head.status().code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The HTTP version that the server speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        match self.head.version() {
            http1::Version::Http10 => Version::HTTP_10,
            http1::Version::Http11 => Version::HTTP_11,
            http1::Version::Http2 => Version::HTTP_2,
            http1::Version::Http3 => Version::HTTP_3,
        }
    }

    /// The URI of the request that this is the response to: the last one, after redirects.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The value of the first field of this name, without the white space around it. Case does not matter.
    #[must_use]
    pub fn header(&self, name: impl AsRef<str>) -> Option<&[u8]> {
        self.head.header(name.as_ref())
    }

    /// The same as text; `None` as well if the value is not UTF-8.
    #[must_use]
    pub fn header_str(&self, name: impl AsRef<str>) -> Option<&str> {
        std::str::from_utf8(self.header(name)?).ok()
    }

    /// All fields in their order, as pairs of name and value; [`get`](HeaderFields::get) finds one by its name.
    pub fn headers(&self) -> HeaderFields<'_> {
        HeaderFields::new(self.head.headers())
    }

    /// All fields as a map of the `http` crate, which is made for this call.
    #[must_use]
    pub fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in self.head.headers() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        map
    }

    /// The length of the body in bytes, as the server announced it; `None` if it is not known before the end. The length
    /// of a body that is decompressed is not known.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.body.length()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The body, to be read: [`Body::next`] yields it piece by piece.
    #[must_use]
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The body alone. It may be the body of another request or of a response: it is passed on as fast as its peer reads.
    #[must_use]
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Whether the connection has left HTTP: after a 101, or a CONNECT that succeeded.
    #[must_use]
    pub fn has_switched(&self) -> bool {
        self.switched.is_some()
    }

    /// Continues with another protocol on the connection, which no longer belongs to the pool: after a 101 to a request
    /// that [asked](crate::RequestBuilder::upgrade) for it, or a CONNECT that succeeded. Bytes that the server has
    /// sent behind its response are the first that the codec decodes. For a tunnel of bytes the codec is
    /// [`Raw`](tidegate_codec::framing::Raw).
    ///
    /// # Errors
    /// The response itself, if the connection has not [left HTTP](Self::has_switched).
    pub fn into_channel<C: Pipeline>(mut self, codec: C) -> Result<Channel<DynOver<C>>, Box<Self>> {
        let Some(exchange) = self.switched.take() else { return Err(Box::new(self)) };
        let channel = exchange.take_switched();
        let channel = channel.map(|channel| {
            channel.switch(move |raw: DynOver<Raw>| raw.into_filters(|_| Filters::default()).stack(codec))
        });
        channel.and_then(Result::ok).ok_or_else(|| Box::new(self))
    }

    /// The same response, or the error that its status is, from 400 on.
    ///
    /// # Errors
    /// [`ClientError::Status`].
    pub fn error_for_status(self) -> Result<Self, ClientError> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() { Err(ClientError::Status(status)) } else { Ok(self) }
    }

    /// All of the body, of at most [`collected_body_bytes_max`] bytes.
    ///
    /// # Errors
    /// [`ClientError::Body`].
    ///
    /// [`collected_body_bytes_max`]: crate::ClientLimits::collected_body_bytes_max
    pub async fn bytes(mut self) -> Result<Bytes, ClientError> {
        Ok(self.body.collect(self.collected_bytes_max).await?.into_bytes())
    }

    /// All of the body as text, of at most [`collected_body_bytes_max`] bytes.
    ///
    /// # Errors
    /// [`ClientError::Body`]; [`ClientError::Decoding`] if it is not UTF-8.
    ///
    /// [`collected_body_bytes_max`]: crate::ClientLimits::collected_body_bytes_max
    pub async fn text(self) -> Result<String, ClientError> {
        String::from_utf8(self.bytes().await?.into()).map_err(|error| ClientError::Decoding(error.into()))
    }

    /// The body as a type of the application, from JSON of at most [`collected_body_bytes_max`] bytes.
    ///
    /// # Errors
    /// [`ClientError::Body`]; [`ClientError::Decoding`] if it is no JSON of this type.
    ///
    /// [`collected_body_bytes_max`]: crate::ClientLimits::collected_body_bytes_max
    #[cfg(feature = "json")]
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.bytes().await?).map_err(|error| ClientError::Decoding(error.into()))
    }

    /// Undoes the content codings of the body, if all of them are built in.
    #[cfg(feature = "compress")]
    pub(super) fn decompress(&mut self, limits: DecompressionLimits) {
        let BodyKind::Received(received) = self.body.kind_mut() else { return };
        let Some(codings) = content_codings(self.head.headers()).filter(|codings| !codings.is_empty()) else { return };
        if let Ok(decompressor) = Decompressor::layers(&codings, limits) {
            self.head = self.head.with_decoded_body();
            received.length = None;
            received.decoder = Some(Box::new(BodyDecoder::new(Box::new(ContentDecoder::new(decompressor)))));
        }
    }

    pub(super) fn head(&self) -> &ResponseHead {
        &self.head
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("head", &self.head).field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The reader of a response. Once it is dropped, nothing reads the rest.
struct ResponseReader(Rc<dyn ClientExchange>);

impl Exchange for ResponseReader {
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.0.poll_body(number, cx)
    }

    fn poll_ready(&self, _: u32, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Err(BodyError::Over))
    }

    fn send(&self, _: u32, _: http1::Outgoing) -> Result<(), BodyError> {
        Err(BodyError::Over)
    }
}

impl Drop for ResponseReader {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
