//! `RequestHead`: a request head that is parsed once and read in place.

use std::fmt;

use tidegate_buffer::Pool;
use tidegate_codec::Slice;

/// A request head (RFC 9112 §3, §5): 32 bytes that own a view of the head's bytes and the position of the target.
///
/// Fields are looked up on demand, in bytes that were validated by the parser. The view keeps the received memory
/// alive; [`detach`](RequestHead::detach) a head that is to be kept.
#[derive(Clone)]
pub struct RequestHead {
    pub(crate) bytes: Slice,
    pub(crate) spans: Spans,
}

/// The result of parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spans {
    /// A length, or [`CHUNKED`].
    pub(crate) body: u64,
    pub(crate) target_start: u16,
    pub(crate) target_length: u16,
    /// Up to the first `?`.
    pub(crate) path_length: u16,
    pub(crate) method: Method,
    pub(crate) flags: u8,
}

impl RequestHead {
    /// The method.
    #[must_use]
    #[inline]
    pub fn method(&self) -> Method {
        self.spans.method
    }

    /// The method as it was sent; the only way to distinguish extension methods.
    #[must_use]
    pub fn method_text(&self) -> &str {
        text(&self.bytes[..self.spans.target_start as usize - 1])
    }

    /// The version that the peer speaks. A higher minor version than HTTP/1.1 is read as HTTP/1.1.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        match self.spans.flags & (HTTP_10 | HTTP_2) {
            0 => Version::Http11,
            HTTP_10 => Version::Http10,
            HTTP_2 => Version::Http2,
            _ => Version::Http3,
        }
    }

    /// The request target, as it was sent. Of a target that is not UTF-8 this is the part before the first byte that is
    /// not; [`target_bytes`](Self::target_bytes) is the whole.
    #[must_use]
    #[inline]
    pub fn target(&self) -> &str {
        text(self.target_bytes())
    }

    /// The request target as bytes, which is cheaper.
    #[must_use]
    #[inline]
    pub fn target_bytes(&self) -> &[u8] {
        let start = usize::from(self.spans.target_start);
        &self.bytes[start..start + usize::from(self.spans.target_length)]
    }

    /// The path of the target, not decoded: `/` if the target has none, `*` for a request about the server itself. Of a
    /// path that is not UTF-8 this is the part before the first byte that is not.
    #[must_use]
    pub fn path(&self) -> &str {
        text(self.path_bytes())
    }

    /// The path of the target as bytes, not decoded, which is cheaper.
    #[must_use]
    #[inline]
    pub fn path_bytes(&self) -> &[u8] {
        let path = &self.target_bytes()[..usize::from(self.spans.path_length)];
        if path.first() == Some(&b'/') { path } else { path_behind_authority(path) }
    }

    /// The start of the head up to the end of the path: the method, a space, the path. `None` if the target has an
    /// authority before its path.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn start_with_path(&self) -> Option<&[u8]> {
        let (start, path_length) = (usize::from(self.spans.target_start), usize::from(self.spans.path_length));
        let found = &self.bytes[..start + path_length];
        (found.get(start) == Some(&b'/')).then_some(found)
    }

    /// The part of the target after the `?`. Of a query that is not UTF-8 this is the part before the first byte that is
    /// not.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query_bytes().map(text)
    }

    /// The part of the target after the `?` as bytes.
    #[must_use]
    pub fn query_bytes(&self) -> Option<&[u8]> {
        self.target_bytes().get(usize::from(self.spans.path_length) + 1..)
    }

    /// Whether the target may have `%`, or bytes that no URI has (RFC 3986 §2), such as `|` or raw UTF-8. The parser
    /// notes it, so the question costs no search.
    #[must_use]
    #[inline]
    pub fn has_irregular_target(&self) -> bool {
        self.spans.flags & IRREGULAR != 0
    }

    /// The host of the request, with its port: from the target if that names one, else from `Host` (RFC 9112 §3.2.2).
    #[must_use]
    pub fn host(&self) -> &str {
        if self.target_bytes().first() == Some(&b'/') {
            return text(self.header("host").unwrap_or_default());
        }
        let target = self.target();
        if self.spans.method == Method::Connect {
            return target;
        }
        match target.split_once("://") {
            Some((_, rest)) => &rest[..rest.find(['/', '?']).unwrap_or(rest.len())],
            None => text(self.header("host").unwrap_or_default()),
        }
    }

    /// The protocol of an HTTP/2 extended CONNECT (RFC 8441), such as `websocket`.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        let is_extended = self.spans.method == Method::Connect && self.target_bytes().first() == Some(&b'/');
        if is_extended { self.header("upgrade").map(text) } else { None }
    }

    /// The value of the first field of this name, without the white space around it. Case does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields in their order, as pairs of name and value.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        Headers::new(self.field_lines())
    }

    /// The lines of all fields, and the empty line behind them.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn field_lines(&self) -> &[u8] {
        let start = usize::from(self.spans.target_start) + usize::from(self.spans.target_length) + VERSION_BYTES;
        &self.bytes[start..]
    }

    /// How the body is framed.
    #[must_use]
    #[inline]
    pub fn body(&self) -> BodyLength {
        BodyLength::from_span(self.spans.body)
    }

    /// Whether a body follows: pieces, and the end.
    #[must_use]
    #[inline]
    pub fn has_body(&self) -> bool {
        self.spans.body != 0
    }

    /// Whether the peer wants the connection to stay open.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.spans.flags & KEEP_ALIVE != 0
    }

    /// Whether the peer waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.spans.flags & EXPECTS_CONTINUE != 0
    }

    /// The whole head as it was received, its last empty line included.
    #[must_use]
    pub fn bytes(&self) -> &Slice {
        &self.bytes
    }

    /// A head that may be kept: see [`Slice::detach`].
    #[must_use]
    pub fn detach(self) -> Self {
        Self { bytes: self.bytes.detach(), spans: self.spans }
    }

    /// The head without `Content-Encoding` and `Content-Length`, for a server that undoes the content coding of the body. The
    /// length of a body is not known then.
    #[doc(hidden)]
    #[must_use]
    pub fn with_decoded_body(&self) -> Self {
        let fields_start = self.bytes.len() - self.field_lines().len();
        let body = if self.has_body() { CHUNKED } else { 0 };
        Self { bytes: without_coding(&self.bytes, fields_start), spans: Spans { body, ..self.spans } }
    }
}

/// A head without the fields about the coded form of its body (RFC 9110 §8.4, §8.6).
pub(crate) fn without_coding(head: &[u8], fields_start: usize) -> Slice {
    let (start, lines) = head.split_at(fields_start);
    let mut text = Vec::with_capacity(head.len());
    text.extend_from_slice(start);
    let is_about_coding =
        |name: &[u8]| name.eq_ignore_ascii_case(b"content-encoding") || name.eq_ignore_ascii_case(b"content-length");
    for (name, value) in Headers::new(lines).filter(|(name, _)| !is_about_coding(name)) {
        for piece in [name, b": ", value, b"\r\n"] {
            text.extend_from_slice(piece);
        }
    }
    text.extend_from_slice(b"\r\n");
    Pool::new().copy(&text)
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method_text())
            .field("target", &self.target())
            .field("version", &self.version())
            .field("body", &self.body())
            .finish_non_exhaustive()
    }
}

/// The path of a target that does not begin with a slash: that of an absolute target, or the whole target.
#[cold]
fn path_behind_authority(target: &[u8]) -> &[u8] {
    let Some(scheme_end) = target.windows(3).position(|three| three == b"://") else { return target };
    let rest = &target[scheme_end + 3..];
    rest.iter().position(|&byte| byte == b'/').map_or(b"/", |start| &rest[start..])
}

/// The fields of a head, in their order.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The fields of validated lines, up to an empty line or the end.
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// No fewer than the bytes of the fields that are left.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The lines are valid: the first colon ends a name, and the next CR its line.
        let (name, rest) = self.rest.split_at(first::<b':'>(self.rest)?);
        let (value, rest) = rest.split_at(first::<b'\r'>(rest)?);
        self.rest = rest.get(2..)?;
        Some((name, trim(&value[1..])))
    }
}

/// The position of the first such byte. Names and most values are so short that words of eight bytes find it before a
/// search with vector instructions has begun.
#[inline(always)]
fn first<const BYTE: u8>(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks();
    let words = &words[..words.len().min(SHORT_WORDS)];
    for (place, word) in words.iter().enumerate() {
        let differences = u64::from_le_bytes(*word) ^ (u64::from(BYTE) * LOWEST_BITS);
        // The lowest bit that is set is that of the first byte without a difference.
        let found = differences.wrapping_sub(LOWEST_BITS) & !differences & (LOWEST_BITS << 7);
        if found != 0 {
            return Some(place * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = words.len() * 8;
    memchr::memchr(BYTE, &bytes[at..]).map(|place| at + place)
}

/// The lowest bit of each byte of a word.
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;

/// Behind so many words a search with vector instructions begins.
const SHORT_WORDS: usize = 3;

/// A method (RFC 9110 §9.3, RFC 5789).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named as in the standard")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// Any other method; [`RequestHead::method_text`] has its name.
    Extension,
}

impl Method {
    /// The name, unless it is an extension.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Extension => return None,
        })
    }

    /// The method of this name; one that is not listed here is [`Extension`](Self::Extension).
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Self::from_token(name.as_bytes())
    }

    pub(crate) fn from_token(token: &[u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Extension,
        }
    }
}

/// The version in a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a higher minor version (RFC 9110 §2.5).
    Http11,
    /// HTTP/2: a head that the codec of that version has translated; see [`RequestHead::of_http2`].
    Http2,
    /// HTTP/3: the same of that version; see [`RequestHead::of_http3`].
    Http3,
}

/// How a body is framed (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyLength {
    /// No body.
    None,
    /// This many bytes, at least one.
    Known(u64),
    /// Chunks, up to the last one.
    Chunked,
    /// All bytes up to the end of the connection; in responses only.
    UntilClose,
}

impl BodyLength {
    #[inline]
    pub(crate) fn from_span(span: u64) -> Self {
        match span {
            0 => Self::None,
            CHUNKED => Self::Chunked,
            UNTIL_CLOSE => Self::UntilClose,
            length => Self::Known(length),
        }
    }
}

/// The bytes as text, up to the first one that is not UTF-8. Only the path and the query of a target may have such.
fn text(bytes: &[u8]) -> &str {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => return text,
        Err(error) => &bytes[..error.valid_up_to()],
    };
    std::str::from_utf8(valid).unwrap_or_default()
}

/// Removes the optional white space around a value (RFC 9110 §5.6.3).
#[inline]
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let mut value = value;
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// In place of a length: the body is chunked, ...
pub(crate) const CHUNKED: u64 = u64::MAX;
/// ... or ends with the connection.
pub(crate) const UNTIL_CLOSE: u64 = u64::MAX - 1;

/// Flags of a head: HTTP/1.0, ...
pub(crate) const HTTP_10: u8 = 1;
/// ... the peer wants the connection to stay open, ...
pub(crate) const KEEP_ALIVE: u8 = 2;
/// ... the peer waits for `100 Continue`, ...
pub(crate) const EXPECTS_CONTINUE: u8 = 4;
/// ... or a response names the protocol that it switches to.
pub(crate) const UPGRADE: u8 = 8;
/// An HTTP/2 head; an HTTP/3 head has `HTTP_10` as well.
pub(crate) const HTTP_2: u8 = 16;
/// The target may have `%`, or bytes that no URI has.
pub(crate) const IRREGULAR: u8 = 32;

/// `Connection` has an option other than `keep-alive`.
pub(crate) const OPTIONS: u8 = 64;

/// The bytes between a target and the first field: ` HTTP/1.1` and a line end.
pub(crate) const VERSION_BYTES: usize = 11;

const _: () = assert!(size_of::<RequestHead>() == 32);
