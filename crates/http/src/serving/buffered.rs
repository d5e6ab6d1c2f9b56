//! Requests that are held: those whose bodies are likely to come with their heads, as the bodies of unary gRPC calls
//! do.
//!
//! The handler of a stream calls the function of such a request once its body is complete, as it calls that of a
//! request without a body. If the dispatch of the session is over before, the request goes to a task with the received
//! part.

use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_buffer::Slice;
use tidegate_http_message::Body;
use tidegate_http_message::body::BodyCollector;
use tidegate_http1::Method;

use crate::endpoint::Endpoint;
use crate::extract::BodyUse;
use crate::middleware::MiddlewareState;
use crate::request::Request;

/// A request whose body is collected.
pub(crate) struct CollectedRequest {
    pub(crate) request: Request,
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) middleware: MiddlewareState,
    pub(crate) body: BodyCollector,
    /// The body, if it came in one piece.
    pub(crate) whole: Body,
    pub(crate) length: Option<u64>,
}

/// A request whose function is called when its body is complete, or when the dispatch is over in which its head came.
pub(crate) struct BufferedRequest {
    pub(crate) request: Request,
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) middleware: MiddlewareState,
    pub(crate) body: BufferedBody,
    /// How many bytes the pieces have.
    bytes: usize,
}

impl BufferedRequest {
    pub(crate) fn new(request: Request, endpoint: Rc<Endpoint>, middleware: MiddlewareState) -> Self {
        Self { request, endpoint, middleware, body: BufferedBody::One(None), bytes: 0 }
    }

    /// Takes a piece of the body. Returns whether the request is still held: not once there is too much of it.
    pub(crate) fn push(&mut self, piece: Slice) -> bool {
        self.bytes += piece.len();
        self.body.push(piece);
        self.bytes <= BUFFERED_BYTES_MAX
    }
}

/// The received part of the body.
pub(crate) enum BufferedBody {
    /// Most come in one piece.
    One(Option<Slice>),
    More(VecDeque<Slice>),
}

impl BufferedBody {
    fn push(&mut self, piece: Slice) {
        match self {
            Self::One(one @ None) => *one = Some(piece),
            Self::One(one) => *self = Self::More(one.take().into_iter().chain([piece]).collect()),
            Self::More(pieces) => pieces.push_back(piece),
        }
    }

    /// The body, which is complete. It does not keep the memory of the loop that it was received into.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Self::One(None) => Body::empty(),
            Self::One(Some(piece)) => piece.to_bytes().into(),
            Self::More(pieces) => {
                let mut all = Vec::with_capacity(pieces.iter().map(Slice::len).sum());
                pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                all.into()
            }
        }
    }

    /// The same for a function that copies the bytes that it keeps: a body in one piece is the view that was received.
    pub(crate) fn into_view(self) -> Body {
        match self {
            Self::One(Some(piece)) => piece.into(),
            body => body.into_body(),
        }
    }

    /// The pieces, if more will follow.
    pub(crate) fn into_pieces(self) -> VecDeque<Slice> {
        let pieces = match self {
            Self::One(one) => one.into_iter().collect(),
            Self::More(pieces) => pieces,
        };
        pieces.into_iter().map(Slice::detach).collect()
    }
}

/// Whether a request waits for its body before its function is called. One with much to come does not, and neither does one
/// that the peer does not send before it has an answer.
pub(crate) fn may_buffer(request: &Request, endpoint: &Endpoint) -> bool {
    let head = request.head();
    endpoint.body != BodyUse::Collected
        && head.has_body()
        && head.method() != Method::Connect
        && !head.expects_continue()
        && request.content_length().is_none_or(|length| length <= BUFFERED_BYTES_MAX as u64)
        && (request.content_length().is_some() || endpoint.body_bytes_max().is_none())
        && !request.has_decoding()
}

/// Whether the body of a request is collected before the async middleware of its function is called, which is cheaper than
/// a task: one that is short, and whose length is known.
pub(crate) fn may_collect_early(request: &Request, endpoint: &Endpoint) -> bool {
    endpoint.collects_late && request.content_length().is_some() && may_buffer(request, endpoint)
}

/// Bodies up to this length are held.
const BUFFERED_BYTES_MAX: usize = 16 * 1024;
