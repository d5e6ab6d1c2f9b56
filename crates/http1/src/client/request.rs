//! The messages that a client application sends.

use std::borrow::Cow;
use std::fmt;

use super::config::host_line;
use crate::fields::{Fields, InvalidField};
use crate::head::Method;
use crate::parse;
use crate::response::{Body, Chunk, ContentType};
use crate::runs;

/// A message that a client sends: a whole request at once, or a head, pieces of a body and the end.
#[derive(Debug)]
pub enum Outgoing {
    /// Head and body at once.
    Request(Request),
    /// The head of a request; its body follows.
    Head(StreamedRequest),
    /// A piece of the body. An empty piece writes nothing.
    Data(Body),
    /// A piece of the body that is framed already.
    Chunk(Chunk),
    /// The end of a chunked body, and the fields after it. If the body has a length the fields are omitted.
    Trailers(Fields),
    /// The end of the body.
    End,
}

/// A request with its whole body. It is validated on creation; clone it to send it again.
///
/// ```
/// use tidegate::http1::{Method, Request};
///
/// let tide = Request::get("/tide?now")?.host("sea.example")?;
/// let log = Request::new(Method::Post, "/log")?.host("sea.example")?.body("high water at noon");
/// # drop((tide, log));
/// # Ok::<(), tidegate::http1::InvalidRequest>(())
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    pub(super) body: Body,
    pub(super) parts: Parts,
}

/// The head of a request; its body follows piece by piece.
///
/// With a length, exactly as many bytes must follow. Without one the body is chunked: that is for a peer that is known
/// to speak HTTP/1.1 (RFC 9112 §6.1). Once the peer has answered in HTTP/1.0, such a request is refused.
#[derive(Debug, Clone)]
pub struct StreamedRequest {
    pub(super) length: Option<u64>,
    pub(super) expects: bool,
    pub(super) parts: Parts,
}

/// The common parts of both heads, for the codec of another HTTP version.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The request line, and then the `Host` line if the request names a host.
    pub(super) start: Vec<u8>,
    pub(super) fields: Fields,
    pub(super) content_type: Option<ContentType>,
    pub(super) method: Method,
    /// The request names its host.
    pub(super) has_host: bool,
    /// The target names the host.
    names_host: bool,
    pub(super) close: bool,
    pub(super) upgrade: Option<Cow<'static, str>>,
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The method is not a token.
    Method,
    /// The target is none of the four forms of RFC 9112 §3.2, or not the form that the method requires. Or it has a
    /// control character, a space, `#`, or `%00` in its path (RFC 3986 §7.3).
    Target,
    /// The host is not a host with an optional port, or differs from the host that the target names.
    Host,
    /// The protocol that the request asks for is not a token, or two tokens with a slash between.
    Protocol,
}

impl Parts {
    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method as text.
    #[must_use]
    pub fn method_text(&self) -> &str {
        std::str::from_utf8(self.word(0)).unwrap_or_default()
    }

    /// The target, as bytes: it may be no text.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.word(1)
    }

    /// The host, if the request names one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let line = &self.start[self.first_line().len()..];
        std::str::from_utf8(line).ok()?.strip_prefix("\r\nHost: ")?.strip_suffix("\r\n")
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

    /// Whether the request asks for another protocol on its connection.
    #[must_use]
    pub fn has_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// The protocol that the request asks for, if it does.
    #[must_use]
    pub fn upgrade(&self) -> Option<&str> {
        self.upgrade.as_deref()
    }

    fn first_line(&self) -> &[u8] {
        let end = memchr::memchr(b'\r', &self.start).unwrap_or(self.start.len());
        &self.start[..end]
    }

    fn word(&self, index: usize) -> &[u8] {
        self.first_line().split(|&byte| byte == b' ').nth(index).unwrap_or_default()
    }

    fn new(method: Method, name: &str, target: &[u8]) -> Result<Self, InvalidRequest> {
        if !is_token(name) {
            return Err(InvalidRequest::Method);
        }
        if !parse::is_target(method, target) {
            return Err(InvalidRequest::Target);
        }
        // Room for the host, too.
        let mut start = Vec::with_capacity(name.len() + target.len() + HOST_ROOM_BYTES);
        for piece in [name.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
            start.extend_from_slice(piece);
        }
        let fields = Fields::new();
        let authority = authority(method, target);
        let names_host = authority.is_some();
        let mut parts = Self {
            start,
            fields,
            content_type: None,
            method,
            has_host: false,
            names_host,
            close: false,
            upgrade: None,
        };
        if let Some(authority) = authority {
            parts.put_host(&host_line(authority)?);
        }
        Ok(parts)
    }

    fn set_host(&mut self, host: &str) -> Result<(), InvalidRequest> {
        if !self.has_host && parse::is_host(host.as_bytes()) {
            // Only the request line is there.
            for piece in [b"Host: ", host.as_bytes(), b"\r\n"] {
                self.start.extend_from_slice(piece);
            }
            self.has_host = true;
            return Ok(());
        }
        let line = host_line(host)?;
        // A target that names a host has set the `Host` line already, and `Host` must be the same (RFC 9112 §3.2).
        if self.names_host && !self.start.ends_with(&[b"\r\n", line.as_slice()].concat()) {
            return Err(InvalidRequest::Host);
        }
        self.put_host(&line);
        Ok(())
    }

    fn put_host(&mut self, line: &[u8]) {
        let line_end = self.start.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.start.truncate(line_end);
        self.start.extend_from_slice(line);
        self.has_host = true;
    }
}

/// Room for the rest of the first line and a usual `Host` line.
const HOST_ROOM_BYTES: usize = 64;

fn is_token(text: &str) -> bool {
    !text.is_empty() && runs::token_end(text.as_bytes(), 0) == text.len()
}

/// The host that a valid target names.
fn authority(method: Method, target: &[u8]) -> Option<&str> {
    // Beyond the authority a target may be no text.
    let text = |bytes| std::str::from_utf8(bytes).ok();
    if method == Method::Connect {
        return text(target);
    }
    if target.starts_with(b"/") {
        return None;
    }
    let scheme_end = target.windows(3).position(|three| three == b"://")?;
    text(target[scheme_end + 3..].split(|byte| matches!(byte, b'/' | b'?')).next()?)
}

macro_rules! parts_builder {
    ($name:ident, $make:expr) => {
        impl $name {
            /// A request with one of the named methods. The target is sent as it is: it may have any byte but control
            /// characters, the space, and `#`.
            ///
            /// # Errors
            /// If the target is invalid; and for [`Method::Extension`]: use [`extension`](Self::extension).
            pub fn new(method: Method, target: impl AsRef<[u8]>) -> Result<Self, InvalidRequest> {
                Parts::new(method, method.name().ok_or(InvalidRequest::Method)?, target.as_ref()).map($make)
            }

            /// A GET request.
            ///
            /// # Errors
            /// If the target is invalid.
            pub fn get(target: impl AsRef<[u8]>) -> Result<Self, InvalidRequest> {
                Self::new(Method::Get, target)
            }

            /// A request with any method.
            ///
            /// # Errors
            /// If the method is not a token, or the target is invalid.
            pub fn extension(method: &str, target: impl AsRef<[u8]>) -> Result<Self, InvalidRequest> {
                Parts::new(Method::from_token(method.as_bytes()), method, target.as_ref()).map($make)
            }

            /// Sets the host of this request, in place of that of the [`Config`](super::Config).
            ///
            /// # Errors
            /// If `host` is no valid host.
            pub fn host(mut self, host: &str) -> Result<Self, InvalidRequest> {
                self.parts.set_host(host)?;
                Ok(self)
            }

            /// Sets the media type of the body.
            #[must_use]
            pub fn content_type(mut self, content_type: ContentType) -> Self {
                self.parts.content_type = Some(content_type);
                self
            }

            /// Adds a field.
            ///
            /// # Errors
            /// If the field cannot be sent.
            pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, InvalidField> {
                self.parts.fields.push(name, value)?;
                Ok(self)
            }

            /// Replaces the fields.
            #[must_use]
            pub fn fields(mut self, fields: Fields) -> Self {
                self.parts.fields = fields;
                self
            }

            /// Asks the peer to close the connection after its response.
            #[must_use]
            pub fn close(mut self) -> Self {
                self.parts.close = true;
                self
            }
        }
    };
}

parts_builder!(Request, |parts| Self { body: Body::Empty, parts });
parts_builder!(StreamedRequest, |parts| Self { length: None, expects: false, parts });

impl Request {
    /// The head and the body, for the codec of another HTTP version.
    #[must_use]
    pub fn into_parts(self) -> (Parts, Body) {
        (self.parts, self.body)
    }

    /// Replaces the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Requests another protocol on this connection (RFC 9110 §7.8), for example `websocket`. The peer accepts it with
    /// 101; compare its `Upgrade` with `protocol`. HEAD and CONNECT cannot request another protocol.
    ///
    /// # Panics
    /// If `protocol` is not the name of a protocol: a token, or a token, a slash, and a version that is a token.
    #[must_use]
    pub fn upgrade(mut self, protocol: impl Into<Cow<'static, str>>) -> Self {
        let protocol = protocol.into();
        assert!(is_protocol(&protocol), "a protocol is a token, or two with a slash between");
        self.parts.upgrade = Some(protocol);
        self
    }

    /// As [`upgrade`](Self::upgrade), with a protocol that is known at run time only.
    ///
    /// # Errors
    /// [`InvalidRequest::Protocol`].
    pub fn upgrade_to(mut self, protocol: &str) -> Result<Self, InvalidRequest> {
        if !is_protocol(protocol) {
            return Err(InvalidRequest::Protocol);
        }
        self.parts.upgrade = Some(Cow::Owned(protocol.to_owned()));
        Ok(self)
    }
}

/// Whether `protocol` is the name of a protocol, with or without a version (RFC 9110 §7.8).
fn is_protocol(protocol: &str) -> bool {
    match protocol.split_once('/') {
        None => is_token(protocol),
        Some((name, version)) => is_token(name) && is_token(version),
    }
}

impl StreamedRequest {
    /// The head, the length of the body, and whether the peer is to grant it with `100 Continue`, for the codec of
    /// another HTTP version.
    #[must_use]
    pub fn into_parts(self) -> (Parts, Option<u64>, bool) {
        (self.parts, self.length, self.expects)
    }

    /// Sets the length of the body.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = Some(bytes);
        self
    }

    /// Requests `100 Continue` before the body is sent (RFC 9110 §10.1.1). Wait for
    /// [`Interim`](super::Incoming::Interim) with that status, as long as the application chooses. If a final response
    /// arrives instead, the body is not sent.
    #[must_use]
    pub fn expect_continue(mut self) -> Self {
        self.expects = true;
        self
    }
}

impl From<Request> for Outgoing {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl From<StreamedRequest> for Outgoing {
    fn from(head: StreamedRequest) -> Self {
        Self::Head(head)
    }
}

impl From<Chunk> for Outgoing {
    fn from(chunk: Chunk) -> Self {
        Self::Chunk(chunk)
    }
}

impl std::error::Error for InvalidRequest {}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the method is not a token",
            Self::Target => "the request target is malformed",
            Self::Host => "the host is malformed",
            Self::Protocol => "the name of the protocol is malformed",
        })
    }
}
