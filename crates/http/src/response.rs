//! `Response`, and the values that become one.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, StatusCode};
use tidegate_buffer::Slice;
use tidegate_http_message::BodyError;
use tidegate_http_message::Upgrade;
use tidegate_http_message::body::{Body, BodyKind, BodyWithTrailers, Data, ProducedBody, ReceivedBody};
use tidegate_http1::{self as http1, ContentType, Fields, InvalidField, Outgoing, Status, StreamedResponse};

use crate::cause::Cause;
use crate::event_stream;

/// A response: a status, fields and a body.
///
/// ```
/// use tidegate::http::{Response, StatusCode};
///
/// let hello = Response::text("Hello, World!");
/// let moved = Response::status(StatusCode::FOUND).header("Location", "/elsewhere")?;
/// # drop((hello, moved));
/// # Ok::<(), tidegate::http::InvalidField>(())
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) body: Body,
    pub(crate) fields: Fields,
    pub(crate) content_type: Option<ContentType>,
    pub(crate) status: Status,
    pub(crate) close: bool,
    pub(crate) origin: ResponseOrigin,
    /// Why the layer has made an error, for `DebugPages`.
    pub(crate) cause: Cause,
}

/// The server that has made a response. One byte, since responses are returned by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseOrigin {
    Here,
    /// Another server has made it.
    Upstream,
    /// Another server has made it, and its last `Set-Cookie` is that of this gateway, for one client.
    UpstreamWithCookie,
}

impl ResponseOrigin {
    pub(crate) fn is_upstream(self) -> bool {
        self != Self::Here
    }
}

impl Response {
    /// A 200 without fields and body.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self::with(Status::OK)
    }

    /// A response with a status. One that HTTP does not define, beyond 599, becomes a 500.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        Self::with(known(status))
    }

    /// A 200 with a text.
    #[must_use]
    #[inline]
    pub fn text(text: impl Into<Body>) -> Self {
        Self::new().content_type(ContentType::TEXT).body(text)
    }

    /// A 200 with a page of HTML in UTF-8.
    #[must_use]
    pub fn html(page: impl Into<Body>) -> Self {
        Self::new().content_type(ContentType::HTML).body(page)
    }

    /// A redirection: 303 (See Other) to another resource, which the client asks for with GET.
    ///
    /// # Errors
    /// [`InvalidField`] if the target has control characters.
    pub fn see_other(target: &str) -> Result<Self, InvalidField> {
        Self::with(Status::SEE_OTHER).header("Location", target)
    }

    /// A response with a status of the codec.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub const fn with(status: Status) -> Self {
        Self {
            body: Body::empty(),
            fields: Fields::new(),
            content_type: None,
            status,
            close: false,
            origin: ResponseOrigin::Here,
            cause: Cause::NONE,
        }
    }

    /// A short text for the status.
    #[doc(hidden)]
    #[must_use]
    pub fn of_error(status: Status) -> Self {
        let text = format!("{status}\n");
        Self::with(status).content_type(ContentType::TEXT).body(text)
    }

    /// The same with the cause of an error, which a debug build keeps.
    pub(crate) fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Cause::new(cause);
        self
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = known(status);
        self
    }

    /// Replaces the body.
    #[must_use]
    #[inline]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the media type of the body. For one that is only known at run time, use [`header`](Self::header).
    #[must_use]
    #[inline]
    pub fn content_type(mut self, content_type: ContentType) -> Self {
        self.content_type = Some(content_type);
        self
    }

    /// Adds a field.
    ///
    /// # Errors
    /// [`InvalidField`]: the name is no token, the value has control characters such as CR and LF, or the server writes
    /// the field by itself: `Content-Length`, `Transfer-Encoding`, `Connection`. `Date` and `Server` are
    /// sent in place of the server's own.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<Self, InvalidField> {
        self.add_header(name, value)?;
        Ok(self)
    }

    /// As [`header`](Self::header), in place.
    ///
    /// # Errors
    /// As [`header`](Self::header); nothing is added then.
    pub fn add_header(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let name = name.as_ref();
        if name.eq_ignore_ascii_case("content-type") {
            self.content_type = None;
        }
        self.fields.push(name, value)
    }

    /// As [`add_header`](Self::add_header), for a name and a value that are valid already.
    ///
    /// # Errors
    /// [`InvalidField::Reserved`] if the server writes the field by itself; nothing is added then.
    pub fn append(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), InvalidField> {
        if is_reserved(name) {
            return Err(InvalidField::Reserved);
        }
        if name == CONTENT_TYPE {
            self.content_type = None;
        }
        self.fields.push_valid(name.as_str(), value.as_bytes());
        Ok(())
    }

    /// Replaces the fields with a block that was made once, such as a constant one.
    #[must_use]
    #[inline]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Closes the connection after this response.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// The status.
    #[must_use]
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The value of the first field of this name. Case does not matter.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        if let Some(content_type) = self.content_type
            && name.eq_ignore_ascii_case("content-type")
        {
            return Some(content_type.as_str().as_bytes());
        }
        self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The length of the body, if it is known.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.body.length()
    }

    /// Drops a body that the status does not allow: nothing would take a producer's output either.
    #[inline]
    pub(crate) fn drop_forbidden_body(&mut self) {
        if !self.status.allows_body() && !matches!(self.body.kind(), BodyKind::Upgrade(_)) {
            (self.body, self.content_type) = (Body::empty(), None);
        }
    }

    /// The message, if the body is whole.
    #[inline(always)]
    pub(crate) fn into_whole(self) -> Option<http1::Response> {
        let Self { body, fields, content_type, status, close, .. } = self;
        let BodyKind::Whole(body) = body.into_kind() else { return None };
        Some(http1::Response::with_parts(status, content_type, fields, body, close))
    }

    /// The head, and the body with its trailers, of a body that is [ready](Body::is_ready).
    #[inline]
    pub(crate) fn into_ready(self) -> Option<(Outgoing, BodyWithTrailers)> {
        let Self { body, fields, content_type, status, close, .. } = self;
        let BodyKind::WithTrailers(ready) = body.into_kind() else { return None };
        Some((head(None, fields, content_type, status, close), ready))
    }

    /// The message with its whole body, or a head with the source of the body. Has the body of an event stream end
    /// between two events when the server drains. One with a content coding shows no events; the encoder of the message
    /// calls this before.
    pub(crate) fn end_events_at_drain(&mut self) {
        if !matches!(self.body.kind(), BodyKind::Produced(_))
            || !self.field("content-type").is_some_and(event_stream::is_type)
            || self.field("content-encoding").is_some()
        {
            return;
        }
        if let BodyKind::Produced(produced) = std::mem::take(&mut self.body).into_kind() {
            self.body = Body::from(BodyKind::Produced(Box::new(event_stream::end_at_drain(*produced))));
        }
    }

    pub(crate) fn into_message(mut self) -> Message {
        self.end_events_at_drain();
        let Self { body, fields, content_type, status, close, .. } = self;
        match body.into_kind() {
            BodyKind::Whole(body) => {
                let response = http1::Response::with_parts(status, content_type, fields, body, close);
                Message::Whole(Outgoing::Response(response))
            }
            BodyKind::Received(received) => {
                let length = received.length;
                Message::Head(head(length, fields, content_type, status, close), Source::Received(received))
            }
            BodyKind::WithTrailers(ready) => {
                Message::Head(head(None, fields, content_type, status, close), Source::WithTrailers(ready))
            }
            BodyKind::Produced(produced) => {
                let length = produced.length;
                Message::Head(head(length, fields, content_type, status, close), Source::Produced(produced))
            }
            BodyKind::Upgrade(upgrade) => {
                let response = http1::Response::with_parts(status, None, fields, http1::Body::Empty, false);
                Message::Upgrade(Outgoing::Response(response), upgrade)
            }
        }
    }
}

impl Response {
    /// Upgrades the connection: 101 (Switching Protocols), after which `upgrade` has the connection. Other fields may be
    /// added, such as those of a handshake.
    ///
    /// The request has to ask for the protocol: see
    /// [`Request::asks_for_upgrade`](crate::Request::asks_for_upgrade). If it does not, or if its body is not read to the end, the protocol does not allow the response: the peer gets a 500, and the error is logged.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::http::{Config, IntoResponse, Request, Response, Router, StatusCode, Upgrade};
    /// use tidegate_testkit::Embedded;
    ///
    /// fn shout(request: Request) -> Response {
    ///     if !request.asks_for_upgrade("shout") {
    ///         return StatusCode::BAD_REQUEST.into_response();
    ///     }
    ///     let upgrade = Upgrade::channel(Lines::new(), async |mut channel| {
    ///         while let Some(line) = channel.recv().await? {
    ///             channel.send(line.to_ascii_uppercase().into())?;
    ///         }
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     });
    ///     Response::upgrade("shout", upgrade).into_response()
    /// }
    ///
    /// let (codec, handler) = Config::new().connections(Router::new().get("/", shout))();
    /// let mut pipe = Embedded::new(codec, handler);
    /// pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nebb\n");
    /// let wire = pipe.take_written();
    /// assert!(wire.starts_with(b"HTTP/1.1 101 ") && wire.ends_with(b"\r\n\r\nEBB\n"));
    /// ```
    ///
    /// # Errors
    /// [`InvalidField`] if the name of the protocol cannot be the value of a field.
    pub fn upgrade(protocol: &str, upgrade: Upgrade) -> Result<Self, InvalidField> {
        Ok(Self::status(StatusCode::SWITCHING_PROTOCOLS).header("Upgrade", protocol)?.with_upgrade(upgrade))
    }

    /// Makes the connection a tunnel: the 200 to a CONNECT, after which `upgrade` has the connection. After a request of
    /// another method there is no tunnel: the connection closes behind the response, and the error is logged.
    #[must_use]
    pub fn tunnel(upgrade: Upgrade) -> Self {
        Self::new().with_upgrade(upgrade)
    }

    /// The same response with an upgrade in place of its body: for a response that is made already. It is a 101 with
    /// the field `Upgrade`, or a 2xx to a CONNECT.
    #[must_use]
    pub fn with_upgrade(self, upgrade: Upgrade) -> Self {
        self.body(Body::from(BodyKind::Upgrade(Box::new(upgrade))))
    }
}

/// A response, ready to be sent.
pub(crate) enum Message {
    Whole(Outgoing),
    Head(Outgoing, Source),
    /// Without a body; later bytes are not HTTP.
    Upgrade(Outgoing, Box<Upgrade>),
}

/// The source of a response body.
pub(crate) enum Source {
    Received(ReceivedBody),
    WithTrailers(BodyWithTrailers),
    Produced(Box<ProducedBody>),
}

fn head(
    length: Option<u64>,
    fields: Fields,
    content_type: Option<ContentType>,
    status: Status,
    close: bool,
) -> Outgoing {
    let mut head = StreamedResponse::new(status).fields(fields);
    if let Some(length) = length {
        head = head.length(length);
    }
    if let Some(content_type) = content_type {
        head = head.content_type(content_type);
    }
    Outgoing::Head(if close { head.close() } else { head })
}

/// Whether the server writes the field by itself.
fn is_reserved(name: &HeaderName) -> bool {
    name == CONTENT_LENGTH || name == TRANSFER_ENCODING || name == CONNECTION
}

fn known(status: StatusCode) -> Status {
    Status::new(status.as_u16()).unwrap_or(Status::INTERNAL_SERVER_ERROR)
}

impl Default for Response {
    fn default() -> Self {
        Self::new()
    }
}

/// A value that becomes a response: the result of an application's function.
///
/// | value | response |
/// |---|---|
/// | [`Response`] | itself |
/// | `()` | 200 without a body |
/// | [`StatusCode`] | that status, with a short text if it is an error |
/// | text (`&str`, `String`) | 200, `text/plain; charset=utf-8` |
/// | bytes (`&[u8]`, `Vec<u8>`, [`Bytes`], [`Slice`]) | 200, `application/octet-stream` |
/// | `(StatusCode, T)` | the response of `T` with that status; without its body if the status has none, such as 204 |
/// | `([(name, value)], T)`, `(StatusCode, [(name, value)], T)` | the response of `T` with these fields; 500 if one [cannot be sent](Response::header) |
/// | `Option<T>` | the response of `T`, or 404 |
/// | `Result<T, E>` | the response of `T` or of `E` |
///
/// An error type of the application that becomes a response makes `?` work in its functions:
///
/// ```
/// use tidegate::http::{IntoResponse, Response, StatusCode};
///
/// enum Refusal {
///     NoSuchBook(u32),
/// }
///
/// impl IntoResponse for Refusal {
///     fn into_response(self) -> Response {
///         match self {
///             Self::NoSuchBook(id) => (StatusCode::NOT_FOUND, format!("there is no book {id}\n")).into_response(),
///         }
///     }
/// }
///
/// fn title(id: u32) -> Result<&'static str, Refusal> {
///     if id == 7 { Ok("Tides") } else { Err(Refusal::NoSuchBook(id)) }
/// }
/// # drop(title(7).into_response());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not become an HTTP response",
    note = "return a `Response`, a text, a `StatusCode`, `(StatusCode, T)`, `([(name, value)], T)`, a `Result` of two such types, or implement `IntoResponse`"
)]
pub trait IntoResponse {
    /// The response.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new()
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        let status = known(self);
        if self.is_client_error() || self.is_server_error() {
            Response::of_error(status)
        } else {
            Response::with(status)
        }
    }
}

macro_rules! response_of {
    ($content_type:expr, $($source:ty),*) => {
        $(impl IntoResponse for $source {
            fn into_response(self) -> Response {
                Response::new().content_type($content_type).body(self)
            }
        })*
    };
}

response_of!(TEXT_UTF8, &'static str, String);
response_of!(ContentType::BYTES, &'static [u8], Vec<u8>, Bytes, Slice, Data, Body);

impl IntoResponse for Cow<'static, str> {
    fn into_response(self) -> Response {
        match self {
            Cow::Borrowed(text) => text.into_response(),
            Cow::Owned(text) => text.into_response(),
        }
    }
}

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const COUNT: usize, T: IntoResponse> IntoResponse for ([(N, V); COUNT], T) {
    fn into_response(self) -> Response {
        let mut response = self.1.into_response();
        for (name, value) in &self.0 {
            if let Err(error) = response.add_header(name, value) {
                return error.into_response();
            }
        }
        response
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const COUNT: usize, T: IntoResponse> IntoResponse
    for (StatusCode, [(N, V); COUNT], T)
{
    fn into_response(self) -> Response {
        (self.1, self.2.into_response().with_status(self.0)).into_response()
    }
}

impl<T: IntoResponse> IntoResponse for Option<T> {
    fn into_response(self) -> Response {
        self.map_or_else(|| Response::of_error(Status::NOT_FOUND), IntoResponse::into_response)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// A field that cannot be sent is a bug of the application: 500, and a line in the log.
impl IntoResponse for InvalidField {
    fn into_response(self) -> Response {
        tracing::error!("a response has a field that cannot be sent: {self}");
        let cause = format_args!("the response has a field that cannot be sent: {self}");
        Response::of_error(Status::INTERNAL_SERVER_ERROR).caused_by(cause)
    }
}

/// 413 if the body is too long, and 400 if it is not valid in its content coding. Where the peer gets no response any
/// more, the status does not matter; the rest is a bug of the application: 500, and a line in the log.
impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        match self {
            Self::TooLong => Response::of_error(Status::CONTENT_TOO_LARGE).close(),
            Self::Closed(_) | Self::Undecodable => Response::of_error(Status::BAD_REQUEST).close(),
            Self::Deadline => Response::of_error(Status::GATEWAY_TIMEOUT).close(),
            _ => {
                tracing::error!("a function failed with a body: {self}");
                Response::of_error(Status::INTERNAL_SERVER_ERROR).caused_by(self)
            }
        }
    }
}

impl IntoResponse for std::convert::Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Message")
    }
}

const TEXT_UTF8: ContentType = ContentType::from_static("text/plain; charset=utf-8");
