//! The errors of the codec, sorted by blame, and the status that the peer receives for each.

use std::fmt;

use tidegate_codec::{Blame, Fault};

use crate::status::Status;

/// An error of the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(align(8))]
pub enum Error {
    /// The peer broke the protocol; the connection closes.
    Peer(Violation),
    /// A limit was reached; the connection closes.
    Limit(Exceeded),
    /// The application sent a message that is not valid now. Nothing was written, and the connection continues, except
    /// after [`Misuse::BodyTooShort`].
    Caller(Misuse),
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A line ended with LF alone.
    BareLf,
    /// The request line is not a method, a target and a version with one space between.
    RequestLine,
    /// The status line is not a version, a status of three digits and a reason.
    StatusLine,
    /// The target is none of the four forms of RFC 9112 §3.2, has a control character or `#`, or its path has `%00` (RFC
    /// 3986 §7.3); or it has other bytes that a [strict](crate::Config::strict_targets) server refuses.
    Target,
    /// The major HTTP version is not 1.
    Version,
    /// The name of a field is empty, has characters that names do not have, or is not followed by a colon.
    FieldName,
    /// The value of a field has control characters, CR included.
    FieldValue,
    /// A field continues on a second line (RFC 9112 §5.2).
    FoldedLine,
    /// HTTP/1.1 without `Host`.
    HostMissing,
    /// More than one `Host`.
    HostRepeated,
    /// `Host` is not a host with an optional port.
    HostInvalid,
    /// `Content-Length` is not a plain decimal number below 10^19.
    ContentLengthInvalid,
    /// More than one `Content-Length`.
    ContentLengthRepeated,
    /// `Content-Length` together with `Transfer-Encoding`.
    LengthAndEncoding,
    /// A CONNECT with a body: a tunnel has none (RFC 9110 §9.3.6).
    ConnectBody,
    /// `Transfer-Encoding` in HTTP/1.0, more than one `Transfer-Encoding`, or an empty one.
    TransferEncoding,
    /// `chunked` is not the last transfer coding, or occurs twice.
    ChunkedNotLast,
    /// A transfer coding other than `chunked`, before `chunked`.
    CodingUnknown,
    /// An expectation other than `100-continue`.
    ExpectationUnknown,
    /// No body length, and the server requires one.
    LengthRequired,
    /// The size of a chunk is not one to sixteen hexadecimal digits, or its extension has control characters.
    ChunkSize,
    /// A chunk is not followed by CR LF.
    ChunkEnd,
    /// A trailer is not a field.
    Trailer,
    /// A trailer is a field that must come before the body (RFC 9110 §6.5.1).
    TrailerForbidden,
    /// The peer stopped sending within a request.
    Truncated,
    /// A response, or bytes of one, that no request waits for.
    UnsolicitedResponse,
    /// 101 to a request that did not request another protocol, or without the name of a protocol.
    SwitchUnasked,
    /// The peer stopped sending within a response.
    ResponseTruncated,
    /// The peer stopped sending before it answered.
    Unanswered,
}

/// Which limit was reached; see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The request line is too long.
    RequestLine,
    /// The request line is too long, and so is its method.
    Method,
    /// The head is too long.
    Head,
    /// The head has too many fields.
    Headers,
    /// The body is too long.
    Body,
    /// A chunk extension is too long.
    ChunkExtension,
    /// The trailer is too long.
    Trailer,
    /// The head took too long.
    HeadTime,
    /// No byte of the body arrived for too long, or too few.
    BodyTime,
    /// Too many interim responses to one request.
    Interim,
}

/// How the application misused the codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// A response, but no request waits for one.
    NoRequest,
    /// A second head, while a response is in progress.
    ResponseUnderWay,
    /// A piece of a body or its end, but no response is in progress.
    NoResponse,
    /// An interim status in a final response, or a status that is not an interim one in an interim response.
    InterimStatus,
    /// A body with a status that does not allow one.
    BodyForbidden,
    /// The body is longer than announced.
    BodyTooLong,
    /// The body is shorter than announced. The connection closes, since the peer would read the next message as the
    /// rest.
    BodyTooShort,
    /// `100 Continue`, but the peer does not wait for it.
    ContinueUnexpected,
    /// A trailer that must come before the body; see [`Violation::TrailerForbidden`].
    TrailerForbidden,
    /// A request without a host, on a client without a configured host.
    HostMissing,
    /// A second request, while the body of one is in progress.
    RequestUnderWay,
    /// A piece of a body or its end, but no request is in progress.
    NoRequestUnderWay,
    /// As many requests wait for their responses as [`pipeline_max`](crate::client::Limits::pipeline_max) allows, or
    /// one of them may switch to another protocol.
    PipelineFull,
    /// The connection takes no more requests: it closes, or has switched to another protocol.
    NoMoreRequests,
    /// A HEAD or CONNECT that requests another protocol, or a request that does so by a field instead of
    /// [`Request::upgrade`](crate::Request::upgrade).
    UpgradeForbidden,
    /// 101 before the whole request has arrived.
    SwitchTooEarly,
    /// 101 without `Upgrade`, the field with the name of the protocol (RFC 9110 §7.8).
    SwitchUnnamed,
    /// A body without a length, an expectation, or another protocol, for a peer that speaks HTTP/1.0 (RFC 9112 §6.1).
    PeerTooOld,
}

impl Error {
    /// The status that the peer receives, if it receives a response.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        Some(match self {
            Self::Peer(Violation::Version) => Status::VERSION_NOT_SUPPORTED,
            Self::Peer(Violation::CodingUnknown) | Self::Limit(Exceeded::Method) => Status::NOT_IMPLEMENTED,
            Self::Peer(Violation::ExpectationUnknown) => Status::EXPECTATION_FAILED,
            Self::Peer(Violation::LengthRequired) => Status::LENGTH_REQUIRED,
            // A peer that stopped sending does not wait for a response, and a client never answers a response.
            Self::Peer(
                Violation::Truncated
                | Violation::ResponseTruncated
                | Violation::StatusLine
                | Violation::UnsolicitedResponse
                | Violation::SwitchUnasked
                | Violation::Unanswered,
            )
            | Self::Limit(Exceeded::Interim)
            | Self::Caller(_) => return None,
            Self::Peer(_) | Self::Limit(Exceeded::ChunkExtension) => Status::BAD_REQUEST,
            Self::Limit(Exceeded::RequestLine) => Status::URI_TOO_LONG,
            Self::Limit(Exceeded::Head | Exceeded::Headers | Exceeded::Trailer) => Status::FIELDS_TOO_LARGE,
            Self::Limit(Exceeded::Body) => Status::CONTENT_TOO_LARGE,
            Self::Limit(Exceeded::HeadTime | Exceeded::BodyTime) => Status::REQUEST_TIMEOUT,
        })
    }

    /// The error in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Peer(violation) => violation.text(),
            Self::Limit(exceeded) => exceeded.text(),
            Self::Caller(misuse) => misuse.text(),
        }
    }
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Peer(_) => Blame::Peer,
            Self::Limit(_) => Blame::Limit,
            Self::Caller(_) => Blame::Caller,
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Violation {
    fn text(self) -> &'static str {
        match self {
            Self::BareLf => "a line ends with LF alone",
            Self::RequestLine => "the request line is malformed",
            Self::StatusLine => "the status line is malformed",
            Self::Target => "the request target is malformed",
            Self::Version => "the version of HTTP is not supported",
            Self::FieldName => "the name of a field is malformed",
            Self::FieldValue => "the value of a field has control characters",
            Self::FoldedLine => "a field is folded",
            Self::HostMissing => "the Host field is missing",
            Self::HostRepeated => "there is more than one Host field",
            Self::HostInvalid => "the Host field is malformed",
            Self::ContentLengthInvalid => "Content-Length is not a decimal number",
            Self::ContentLengthRepeated => "there is more than one Content-Length",
            Self::LengthAndEncoding => "there are both Content-Length and Transfer-Encoding",
            Self::ConnectBody => "a CONNECT has a body",
            Self::TransferEncoding => "Transfer-Encoding is empty, repeated, or in HTTP/1.0",
            Self::ChunkedNotLast => "chunked is not the last transfer coding, or occurs twice",
            Self::CodingUnknown => "the transfer coding is unknown",
            Self::ExpectationUnknown => "the expectation is unknown",
            Self::LengthRequired => "the length of the body is missing",
            Self::ChunkSize => "the size of a chunk is malformed",
            Self::ChunkEnd => "a chunk is not followed by CR LF",
            Self::Trailer => "a trailer field is malformed",
            Self::TrailerForbidden => "a trailer field has to come before the body",
            Self::Truncated => "the peer stopped sending within a request",
            Self::ResponseTruncated => "the peer stopped sending within a response",
            Self::UnsolicitedResponse => "a response arrived that no request waits for",
            Self::SwitchUnasked => "the peer switched to a protocol that was not requested",
            Self::Unanswered => "the peer stopped sending before it answered",
        }
    }
}

impl Exceeded {
    fn text(self) -> &'static str {
        match self {
            Self::RequestLine => "the request line is too long",
            Self::Method => "the method is too long",
            Self::Head => "the head is too long",
            Self::Headers => "the head has too many fields",
            Self::Body => "the body is too long (the limit is body_bytes_max)",
            Self::ChunkExtension => "a chunk extension is too long",
            Self::Trailer => "the trailer is too long",
            Self::HeadTime => "the head took too long (the limit is head_timeout)",
            Self::BodyTime => {
                "the body arrives too slowly, or has stopped (the limits are body_timeout and body_rate_min)"
            }
            Self::Interim => "there are too many interim responses",
        }
    }
}

impl Misuse {
    /// The application's fault, as a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NoRequest => "no request waits for a response",
            Self::ResponseUnderWay => "a response is already under way",
            Self::NoResponse => "no response is under way",
            Self::InterimStatus => "an interim status cannot be the response",
            Self::BodyForbidden => "the status does not allow a body",
            Self::BodyTooLong => "the body is longer than announced",
            Self::BodyTooShort => "the body is shorter than announced",
            Self::ContinueUnexpected => "the peer does not wait for 100 Continue",
            Self::TrailerForbidden => "the trailer field has to come before the body",
            Self::HostMissing => "neither the request nor the client has a host",
            Self::RequestUnderWay => "a request is already under way",
            Self::NoRequestUnderWay => "no request is under way",
            Self::PipelineFull => "too many requests wait for their responses",
            Self::NoMoreRequests => "the connection takes no more requests",
            Self::UpgradeForbidden => "neither HEAD nor CONNECT asks for another protocol, nor does a field alone",
            Self::SwitchTooEarly => "the request is not complete, so the connection cannot switch protocols yet",
            Self::SwitchUnnamed => "no protocol is named to switch to",
            Self::PeerTooOld => "the peer speaks HTTP/1.0",
        }
    }
}

// One word, moved as one: with two bytes the compiler splits every message that it moves, byte by byte.
const _: () = assert!(size_of::<Error>() == 8);
