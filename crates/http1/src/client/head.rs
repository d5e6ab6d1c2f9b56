//! `ResponseHead`: a response head that is parsed once and read in place; and the parsing of its first line.

use std::fmt;

use tidegate_codec::Slice;

use super::config::Limits;
use crate::error::{Error, Exceeded, Violation};
use crate::head::{
    BodyLength, CHUNKED, HTTP_2, HTTP_10, Headers, KEEP_ALIVE, OPTIONS, UNTIL_CLOSE, Version, without_coding,
};
use crate::parse::{self, Facts, ParseStop};
use crate::runs;
use crate::status::Status;

/// A response head (RFC 9112 §4, §5): 32 bytes that own a view of the head's bytes and the position of the fields.
///
/// Fields are looked up on demand, in bytes that were validated by the parser. The view keeps the received memory
/// alive; [`detach`](ResponseHead::detach) a head that is to be kept.
#[derive(Clone)]
pub struct ResponseHead {
    pub(super) bytes: Slice,
    pub(super) spans: Spans,
}

/// The result of parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spans {
    /// A length, [`CHUNKED`](crate::head::CHUNKED) or [`UNTIL_CLOSE`](crate::head::UNTIL_CLOSE).
    pub(super) body: u64,
    pub(super) status: Status,
    fields_start: u16,
    /// How many seconds the peer keeps an idle connection, or [`NOT_ANNOUNCED`](crate::parse::NOT_ANNOUNCED).
    pub(super) kept_seconds: u16,
    pub(super) flags: u8,
}

impl ResponseHead {
    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.spans.status
    }

    /// The reason phrase. A client should ignore it (RFC 9112 §4).
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        let line_end = usize::from(self.spans.fields_start) - 2;
        self.bytes.get(REASON_START..line_end).unwrap_or_default()
    }

    /// The version that the peer speaks. A higher minor version than HTTP/1.1 is read as HTTP/1.1.
    #[must_use]
    pub fn version(&self) -> Version {
        match self.spans.flags & (HTTP_10 | HTTP_2) {
            0 => Version::Http11,
            HTTP_10 => Version::Http10,
            HTTP_2 => Version::Http2,
            _ => Version::Http3,
        }
    }

    /// The value of the first field of this name, without the white space around it. Case does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields in their order, as pairs of name and value.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        Headers::new(&self.bytes[usize::from(self.spans.fields_start)..])
    }

    /// How the body is framed. A response to HEAD has no body, whatever its fields declare for a GET.
    #[must_use]
    pub fn body(&self) -> BodyLength {
        BodyLength::from_span(self.spans.body)
    }

    /// Whether a body follows: pieces, and the end.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.spans.body != 0
    }

    /// Whether the peer lets the connection stay open.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.spans.flags & KEEP_ALIVE != 0
    }

    /// Whether `Connection` has options other than `keep-alive`. The parser notes it, so the question costs no search.
    #[must_use]
    pub fn has_connection_options(&self) -> bool {
        self.spans.flags & OPTIONS != 0
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

    /// The head without `Content-Encoding` and `Content-Length`, for a client that undoes the content coding of the body. The
    /// length of a body is not known then.
    #[doc(hidden)]
    #[must_use]
    pub fn with_decoded_body(&self) -> Self {
        let body = if self.has_body() { CHUNKED } else { 0 };
        let bytes = without_coding(&self.bytes, usize::from(self.spans.fields_start));
        Self { bytes, spans: Spans { body, ..self.spans } }
    }
}

impl ResponseHead {
    /// A head that came by HTTP/2, as HTTP/1.1 text, its last empty line included; see
    /// [`RequestHead::of_http2`](crate::RequestHead::of_http2). A response that `has_no_body` has none, whatever length
    /// it declares.
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    pub fn of_http2(text: Slice, has_no_body: bool, limits: &Limits) -> Result<Self, Error> {
        let mut spans = match parse(&text, false, limits) {
            Ok((spans, _)) => spans,
            Err(ParseStop::Broken(error)) => return Err(error),
            Err(ParseStop::Partial) => return Err(Error::Limit(Exceeded::Head)),
        };
        spans.flags = spans.flags & !HTTP_10 | HTTP_2 | KEEP_ALIVE;
        spans.body = match spans.body {
            _ if has_no_body => 0,
            UNTIL_CLOSE => CHUNKED,
            length => length,
        };
        Ok(Self { bytes: text, spans })
    }

    /// The same for a head that came by HTTP/3.
    ///
    /// # Errors
    /// As for an HTTP/1.1 head.
    pub fn of_http3(text: Slice, has_no_body: bool, limits: &Limits) -> Result<Self, Error> {
        let mut head = Self::of_http2(text, has_no_body, limits)?;
        head.spans.flags |= HTTP_10;
        Ok(head)
    }
}

impl fmt::Debug for ResponseHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("body", &self.body())
            .finish_non_exhaustive()
    }
}

/// Parses the head at the start of `bytes`, and returns its spans and its length. Bytes beyond the largest head are
/// not read.
pub(super) fn parse(bytes: &[u8], connects: bool, limits: &Limits) -> Result<(Spans, usize), ParseStop> {
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max as usize)];
    let (status, old, start) = status_line(bytes)?;
    let is_tunnel = connects && (200..300).contains(&status.code());
    let (mut facts, mut count) = (Facts::of_response(is_tunnel), 0);
    let end = tidegate_scan::fields(bytes, start, |field| {
        count += 1;
        facts.learn_of_response(field)
    });
    let end = end.map_err(parse::stopped)?;
    if count > limits.headers_max {
        return Err(Exceeded::Headers.into());
    }
    let body = facts.body_of_response(status.code(), old)?;
    // `Limits` keeps heads below 64 KiB.
    let flags = facts.flags_of_response(status.code(), old);
    Ok((Spans { body, status, fields_start: start as u16, kept_seconds: facts.kept_seconds, flags }, end))
}

/// A head without the white space between names and colons, which a proxy removes (RFC 9112 §5.1). A line that is no
/// field for another reason stays as it is.
#[cold]
pub(super) fn without_space_before_colons(head: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(head.len());
    for (index, line) in head.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let name_end = if index == 0 { 0 } else { runs::token_end(line, 0) };
        let spaces = line[name_end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let is_field = name_end > 0 && line.get(name_end + spaces) == Some(&b':');
        clean.extend_from_slice(&line[..name_end]);
        clean.extend_from_slice(&line[if is_field { name_end + spaces } else { name_end }..]);
    }
    clean
}

/// The status, whether the version is HTTP/1.0, and the start of the fields (RFC 9112 §4). The reason may be missing
/// together with the space before it, which is common.
fn status_line(bytes: &[u8]) -> Result<(Status, bool, usize), ParseStop> {
    let Some(start) = bytes.first_chunk::<STATUS_END>() else { return Err(ParseStop::Partial) };
    let (version, code) = start.split_at(VERSION_BYTES);
    let old = match version {
        b"HTTP/1.1 " => false,
        b"HTTP/1.0 " => true,
        // A higher minor version is read as HTTP/1.1 (RFC 9110 §2.5).
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' '] if minor.is_ascii_digit() => false,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ']
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Violation::Version.into());
        }
        _ => return Err(Violation::StatusLine.into()),
    };
    if !code.iter().all(u8::is_ascii_digit) {
        return Err(Violation::StatusLine.into());
    }
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    let status = Status::new(code).ok_or(Violation::StatusLine)?;
    let end = match bytes.get(STATUS_END) {
        None => return Err(ParseStop::Partial),
        Some(b' ') => runs::value_end(bytes, REASON_START),
        Some(b'\r') => STATUS_END,
        Some(b'\n') => return Err(Violation::BareLf.into()),
        Some(_) => return Err(Violation::StatusLine.into()),
    };
    match &bytes[end..] {
        [b'\r', b'\n', ..] => Ok((status, old, end + 2)),
        [] | [b'\r'] => Err(ParseStop::Partial),
        [b'\n', ..] => Err(Violation::BareLf.into()),
        _ => Err(Violation::StatusLine.into()),
    }
}

/// Searches for the end of a head that did not arrive at once; see [`parse::head_end`].
pub(super) fn head_end(bytes: &[u8], seen: usize, limits: &Limits) -> Result<Option<usize>, Error> {
    // A peer that speaks another protocol would never send an empty line.
    let start = &bytes[..bytes.len().min(START.len())];
    if !START.starts_with(start) {
        return Err(Error::Peer(Violation::StatusLine));
    }
    parse::empty_line(bytes, seen, limits.head_bytes_max as usize)
}

const START: &[u8] = b"HTTP/";

/// `HTTP/1.1 `.
const VERSION_BYTES: usize = 9;

/// The end of the status.
const STATUS_END: usize = VERSION_BYTES + 3;

/// The start of the reason.
const REASON_START: usize = STATUS_END + 1;

const _: () = assert!(size_of::<ResponseHead>() == 32);
