//! The messages that a server application sends.

use bytes::Bytes;
use tidegate_codec::{FileRegion, Slice};

use crate::encode::INLINE_BYTES_MAX;
use crate::fields::{Fields, InvalidField, is_static_value};
use crate::status::Status;

/// A message that a server sends: a whole response at once, or a head, pieces of a body and the end.
#[derive(Debug)]
pub enum Outgoing {
    /// Head and body at once: the most common and the fastest way.
    Response(Response),
    /// The head of a response; its body follows.
    Head(StreamedResponse),
    /// A piece of the body. An empty piece writes nothing.
    Data(Body),
    /// A piece of the body that is framed once for many connections.
    Chunk(Chunk),
    /// The end of a chunked body, and the fields after it. If the body is not chunked the fields are omitted.
    Trailers(Fields),
    /// The end of the body.
    End,
    /// `100 Continue`: the peer may send its body. Only with
    /// [`Config::continue_by_hand`](crate::Config::continue_by_hand).
    Continue,
    /// An interim response, such as 103 with links for the peer to fetch early; a final one must follow. Nothing is
    /// written to an HTTP/1.0 peer, since HTTP/1.0 has no interim responses.
    Interim(Interim),
}

/// An interim response (RFC 9110 §15.2): a status below 200 and fields.
///
/// ```
/// use tidegate::http1::{Fields, Interim, Status};
///
/// const LINKS: Fields = Fields::from_static("Link: </tides.css>; rel=preload; as=style\r\n");
/// let hints = Interim::new(Status::EARLY_HINTS).fields(LINKS);
/// # drop(hints);
/// ```
#[derive(Debug)]
pub struct Interim {
    pub(crate) status: Status,
    pub(crate) fields: Fields,
}

impl Interim {
    /// An interim response without fields. 100 is [`Outgoing::Continue`], and 101 is no interim response.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self { status, fields: Fields::new() }
    }

    /// Replaces the fields.
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// The status and the fields, for the codec of another HTTP version.
    #[must_use]
    pub fn into_parts(self) -> (Status, Fields) {
        (self.status, self.fields)
    }
}

/// A response with its whole body.
///
/// ```
/// use tidegate::http1::{ContentType, Response, Status};
///
/// let hello = Response::new(Status::OK).content_type(ContentType::TEXT).body("Hello, World!");
/// let moved = Response::new(Status::FOUND).field("Location", "/elsewhere")?;
/// # drop((hello, moved));
/// # Ok::<(), tidegate::http1::InvalidField>(())
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) body: Body,
    pub(crate) parts: Parts,
}

/// The head of a response; its body follows piece by piece.
///
/// With a length, exactly as many bytes must follow. Without one the body is chunked; to an HTTP/1.0 peer it ends with
/// the connection. [`Outgoing::End`] ends the body. A response whose status has no body, 101, 204, and 304 without a
/// length, is complete with its head, unless it answers HEAD.
#[derive(Debug)]
pub struct StreamedResponse {
    pub(crate) length: Option<u64>,
    pub(crate) parts: Parts,
}

/// The common parts of both heads, for the codec of another HTTP version.
#[derive(Debug)]
pub struct Parts {
    pub(crate) fields: Fields,
    pub(crate) content_type: Option<ContentType>,
    pub(crate) status: Status,
    pub(crate) close: bool,
}

impl Parts {
    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The fields beside those that the codec writes.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The media type of the body.
    #[must_use]
    pub fn content_type(&self) -> Option<ContentType> {
        self.content_type
    }

    pub(crate) const fn new(status: Status) -> Self {
        Self { fields: Fields::new(), content_type: None, status, close: false }
    }
}

macro_rules! parts_builder {
    ($name:ident) => {
        impl $name {
            /// Sets the media type of the body.
            #[must_use]
            #[inline]
            pub fn content_type(mut self, content_type: ContentType) -> Self {
                self.parts.content_type = Some(content_type);
                self
            }

            /// Adds a field. Create a constant block of fields only once, and use [`fields`](Self::fields).
            ///
            /// # Errors
            /// If the field cannot be sent.
            pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, InvalidField> {
                self.parts.fields.push(name, value)?;
                Ok(self)
            }

            /// Replaces the fields.
            #[must_use]
            #[inline]
            pub fn fields(mut self, fields: Fields) -> Self {
                self.parts.fields = fields;
                self
            }

            /// Closes the connection after this response.
            #[must_use]
            pub fn close(mut self) -> Self {
                self.parts.close = true;
                self
            }

            /// The status.
            #[must_use]
            pub fn status(&self) -> Status {
                self.parts.status
            }
        }
    };
}

parts_builder!(Response);
parts_builder!(StreamedResponse);

impl Response {
    /// A response without fields and body.
    #[must_use]
    #[inline]
    pub const fn new(status: Status) -> Self {
        Self { body: Body::Empty, parts: Parts::new(status) }
    }

    /// A response of all of its parts at once; `close` closes the connection after it.
    #[must_use]
    #[inline(always)]
    pub const fn with_parts(
        status: Status,
        content_type: Option<ContentType>,
        fields: Fields,
        body: Body,
        close: bool,
    ) -> Self {
        Self { body, parts: Parts { fields, content_type, status, close } }
    }

    /// A 200 with a text.
    #[must_use]
    #[inline]
    pub fn text(body: impl Into<Body>) -> Self {
        let parts = Parts { content_type: Some(ContentType::TEXT), ..Parts::new(Status::OK) };
        Self { body: body.into(), parts }
    }

    /// Replaces the body.
    #[must_use]
    #[inline(always)]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }
}

impl Response {
    /// The head and the body, for the codec of another HTTP version.
    #[must_use]
    pub fn into_parts(self) -> (Parts, Body) {
        (self.parts, self.body)
    }

    /// Whether it owns no memory, so that dropping it does nothing.
    #[inline(always)]
    pub(crate) fn has_no_allocation(&self) -> bool {
        matches!(self.body, Body::Empty | Body::Static(_)) && self.parts.fields.has_no_allocation()
    }
}

impl StreamedResponse {
    /// The head of a response without fields, with a body of unknown length.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self { length: None, parts: Parts::new(status) }
    }

    /// The head, and the length of the body, for the codec of another HTTP version.
    #[must_use]
    pub fn into_parts(self) -> (Parts, Option<u64>) {
        (self.parts, self.length)
    }

    /// Sets the length of the body.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = Some(bytes);
        self
    }
}

impl From<Response> for Outgoing {
    #[inline]
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

impl From<StreamedResponse> for Outgoing {
    fn from(head: StreamedResponse) -> Self {
        Self::Head(head)
    }
}

impl From<Chunk> for Outgoing {
    fn from(chunk: Chunk) -> Self {
        Self::Chunk(chunk)
    }
}

/// A body, or a piece of one. The outbound queue copies short bodies, and links long ones.
#[derive(Debug, Clone)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Static bytes of the program.
    Static(&'static [u8]),
    /// Shared bytes.
    Bytes(Bytes),
    /// A view of the loop's memory.
    Slice(Slice),
    /// A piece of a file.
    File(FileRegion),
}

impl Body {
    /// The number of bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::File(region) => region.length,
            other => other.memory().len() as u64,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are few enough to be copied after their head.
    #[inline(always)]
    pub(crate) fn short(&self) -> Option<&[u8]> {
        let bytes = self.memory();
        (bytes.len() <= INLINE_BYTES_MAX && !matches!(self, Self::File(_))).then_some(bytes)
    }

    /// The bytes in memory; none for a file.
    #[must_use]
    #[inline(always)]
    pub fn memory(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
            Self::Slice(slice) => slice,
            Self::Empty | Self::File(_) => &[],
        }
    }
}

impl From<&'static str> for Body {
    #[inline]
    fn from(text: &'static str) -> Self {
        Self::Static(text.as_bytes())
    }
}

impl From<&'static [u8]> for Body {
    #[inline]
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl<const N: usize> From<&'static [u8; N]> for Body {
    #[inline]
    fn from(bytes: &'static [u8; N]) -> Self {
        Self::Static(bytes)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<Slice> for Body {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl From<FileRegion> for Body {
    fn from(region: FileRegion) -> Self {
        Self::File(region)
    }
}

/// A piece of a body in the chunked coding, framed once: a broadcast clones it for every connection.
///
/// If the body is not chunked, only the data is sent, without the framing.
#[derive(Debug, Clone)]
pub struct Chunk {
    framed: Bytes,
    start: u8,
}

impl Chunk {
    /// Frames `data`.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self { framed: Bytes::new(), start: 0 };
        }
        let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
        let start = framed.len() as u8;
        framed.extend_from_slice(data);
        framed.extend_from_slice(b"\r\n");
        Self { framed: framed.into(), start }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.framed.is_empty()
    }

    pub(crate) fn into_framed(self) -> Bytes {
        self.framed
    }

    /// The bytes, without the framing.
    #[must_use]
    pub fn into_data(self) -> Bytes {
        let end = self.framed.len().saturating_sub(2);
        self.framed.slice(usize::from(self.start)..end)
    }
}

/// A media type, validated on creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentType(&'static str);

impl ContentType {
    /// `text/plain`
    pub const TEXT: Self = Self("text/plain");
    /// `text/html; charset=utf-8`
    pub const HTML: Self = Self("text/html; charset=utf-8");
    /// `application/json`
    pub const JSON: Self = Self("application/json");
    /// `application/octet-stream`
    pub const BYTES: Self = Self("application/octet-stream");
    /// `text/event-stream`
    pub const EVENTS: Self = Self("text/event-stream");

    /// Any other media type. For one that is only known at run time use [`Response::field`].
    ///
    /// # Panics
    /// If `name` cannot be the value of a field. In a const context this fails at compile time.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        assert!(!name.is_empty() && is_static_value(name.as_bytes()), "a media type is the value of a field");
        Self(name)
    }

    /// The name.
    #[must_use]
    #[inline]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

const _: () = assert!(size_of::<Outgoing>() <= 88);
