//! What an application asks.

use std::fmt;

use super::config::host_line;
use crate::fields::{Fields, InvalidField};
use crate::head::Method;
use crate::parse;
use crate::response::{Body, Chunk, ContentType};
use crate::runs;

/// What a client sends: a whole request at once, or a head, pieces of a body and their end.
#[derive(Debug)]
pub enum Outgoing {
    /// Head and body at once.
    Request(Request),
    /// The head of a request whose body follows.
    Head(StreamedRequest),
    /// A piece of the body. An empty one is nothing.
    Data(Body),
    /// A piece of the body that was framed before.
    Chunk(Chunk),
    /// The end of a body in chunks, and fields behind it. Where the body has a length they are left out.
    Trailers(Fields),
    /// The end of the body.
    End,
}

/// A request with its whole body. It is checked when it is made, and may be sent again by a clone.
///
/// ```
/// use tidegate_http1::{Method, Request};
///
/// let tide = Request::get("/tide?now")?.host("sea.example")?;
/// let log = Request::new(Method::Post, "/log")?.host("sea.example")?.body("high water at noon");
/// # drop((tide, log));
/// # Ok::<(), tidegate_http1::InvalidRequest>(())
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    pub(super) body: Body,
    pub(super) parts: Parts,
}

/// The head of a request whose body follows piece by piece.
///
/// With a length, exactly as many bytes have to follow. Without one the body is chunked: that is for a peer that is
/// known to speak HTTP/1.1 (RFC 9112 §6.1). Once it has answered in HTTP/1.0, such a request is refused.
#[derive(Debug, Clone)]
pub struct StreamedRequest {
    pub(super) length: Option<u64>,
    pub(super) expects: bool,
    pub(super) parts: Parts,
}

/// What both have.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    /// The request line, and then the host if it is not the usual one.
    pub(super) start: Vec<u8>,
    pub(super) fields: Fields,
    pub(super) content_type: Option<ContentType>,
    pub(super) method: Method,
    /// It says which host it asks.
    pub(super) has_host: bool,
    /// Its target does.
    names_host: bool,
    pub(super) close: bool,
    pub(super) upgrade: Option<&'static str>,
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The method is not a token.
    Method,
    /// The target is none of the four forms of RFC 9112 §3.2, or not the one that the method has. Or it has a character
    /// that no URI has, a `%` without two hexadecimal digits behind it, or `%00` in its path (RFC 3986 §2, §7.3).
    Target,
    /// The host is not a host with an optional port, or not the one that the target names.
    Host,
}

impl Parts {
    fn new(method: Method, name: &str, target: &str) -> Result<Self, InvalidRequest> {
        if !is_token(name) {
            return Err(InvalidRequest::Method);
        }
        if !parse::is_target(method, target.as_bytes()) {
            return Err(InvalidRequest::Target);
        }
        let start = format!("{name} {target} HTTP/1.1\r\n").into();
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
        let line = host_line(host)?;
        // A target that names a host has brought it along, and `Host` says the same (RFC 9112 §3.2).
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

fn is_token(text: &str) -> bool {
    !text.is_empty() && runs::token_end(text.as_bytes(), 0) == text.len()
}

/// The host that a good target names by itself.
fn authority(method: Method, target: &str) -> Option<&str> {
    if method == Method::Connect {
        return Some(target);
    }
    let (_, rest) = target.split_once("://").filter(|_| !target.starts_with('/'))?;
    rest.split(['/', '?']).next()
}

macro_rules! parts_builder {
    ($name:ident, $make:expr) => {
        impl $name {
            /// A request with a method that has a name of its own.
            ///
            /// # Errors
            /// If the target is none; and for [`Method::Extension`], which [`extension`](Self::extension) makes.
            pub fn new(method: Method, target: &str) -> Result<Self, InvalidRequest> {
                Parts::new(method, method.name().ok_or(InvalidRequest::Method)?, target).map($make)
            }

            /// GET.
            ///
            /// # Errors
            /// If the target is none.
            pub fn get(target: &str) -> Result<Self, InvalidRequest> {
                Self::new(Method::Get, target)
            }

            /// A request with any method.
            ///
            /// # Errors
            /// If the method is not a token, or the target none.
            pub fn extension(method: &str, target: &str) -> Result<Self, InvalidRequest> {
                Parts::new(Method::from_token(method.as_bytes()), method, target).map($make)
            }

            /// The host that is asked, in place of that of the [`Config`](super::Config).
            ///
            /// # Errors
            /// If it is no host.
            pub fn host(mut self, host: &str) -> Result<Self, InvalidRequest> {
                self.parts.set_host(host)?;
                Ok(self)
            }

            /// Says what the body is.
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

            /// Puts these fields in place of those it has.
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
    /// Puts this body in place of the one it has.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Asks for another protocol on this connection (RFC 9110 §7.8), `websocket` say. The peer takes it up with 101; compare
    /// its `Upgrade` with what was asked for. Neither HEAD nor CONNECT can ask for one.
    ///
    /// # Panics
    /// If it is not the name of a protocol: a token, or two with a slash between, the second of which is a version.
    #[must_use]
    pub fn upgrade(mut self, protocol: &'static str) -> Self {
        let is_protocol = match protocol.split_once('/') {
            None => is_token(protocol),
            Some((name, version)) => is_token(name) && is_token(version),
        };
        assert!(is_protocol, "a protocol is a token, or two with a slash between");
        self.parts.upgrade = Some(protocol);
        self
    }
}

impl StreamedRequest {
    /// Announces how many bytes the body will have.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.length = Some(bytes);
        self
    }

    /// Asks the peer to say `100 Continue` before the body is sent (RFC 9110 §10.1.1). Wait for
    /// [`Interim`](super::Incoming::Interim) with that status, and for no longer than you like; a final response may come
    /// instead, and then the body is not sent.
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
        })
    }
}
