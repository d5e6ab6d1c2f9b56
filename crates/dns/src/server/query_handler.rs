//! `QueryHandler`: answers queries of a loop, at once or later.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Instant;

use super::{QueryParts, Responder, Response, refusal};
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::numbers::ResponseCode;
use crate::records::Question;

/// A query, as a [`QueryHandler`] gets it. It has one question.
#[derive(Debug)]
pub struct ClientQuery<'a> {
    /// The question.
    pub question: &'a Question,
    /// The whole query.
    pub message: MessageView<'a>,
    /// The source of the query, which a datagram may have forged; `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// Bytes that the response may have; `None` on a stream.
    pub bytes_max: Option<usize>,
    /// The time of this turn.
    pub now: Instant,
    /// Whether the server waits for a response. Without room for one more query in flight, it answers [`Reply::Later`] with
    /// SERVFAIL and drops the future: a handler then begins nothing.
    pub can_wait: bool,
}

/// A response that is not there yet.
pub type LaterResponse = Pin<Box<dyn Future<Output = Response>>>;

/// The reply to a query.
#[non_exhaustive]
pub enum Reply {
    /// A response, which is encoded for the query.
    Response(Response),
    /// A message that is sent as it is: it has the ID and the question of the query, and fits.
    Message(EncodedMessage),
    /// A task waits for the response.
    Later(LaterResponse),
}

impl Reply {
    /// A response that a future computes.
    pub fn later(future: impl Future<Output = Response> + 'static) -> Self {
        Self::Later(Box::pin(future))
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

/// Answers queries on one loop, at once or later. Every [`Responder`] is a handler that answers at once.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::dns::server::{ClientQuery, DnsServer, QueryHandler, Reply, Response};
/// use tidegate::dns::{Rdata, Record, ResponseCode};
/// use tidegate::task;
///
/// /// Every name has the same address, after a while.
/// struct Slow;
///
/// impl QueryHandler for Slow {
///     fn query(&self, query: &ClientQuery<'_>) -> Reply {
///         let name = query.question.name.clone();
///         Reply::later(async move {
///             task::sleep(Duration::from_millis(5)).await;
///             let mut response = Response::of_code(ResponseCode::NOERROR);
///             response.answers.push(Record::new(name, 60, Rdata::a([192, 0, 2, 1].into())));
///             response
///         })
///     }
/// }
///
/// let server = DnsServer::bind("127.0.0.1:0")?.loops(1).start(|_loop| Slow)?;
/// # drop(server);
/// # Ok::<(), tidegate::StartError>(())
/// ```
pub trait QueryHandler {
    /// Answers a query. The loop waits for it: long work belongs into [`Reply::Later`].
    fn query(&self, query: &ClientQuery<'_>) -> Reply;

    /// The whole response, if the handler has it in wire form: with the ID and the question of the query, and of at most `bytes_max`
    /// bytes. It is called before [`query`](Self::query), which is called for `None`, the default. The query has one
    /// question, and nothing of it is copied yet.
    fn encoded(&self, query: &MessageView<'_>, bytes_max: Option<usize>, now: Instant) -> Option<EncodedMessage> {
        let _ = (query, bytes_max, now);
        None
    }
}

impl<R: Responder> QueryHandler for R {
    fn query(&self, query: &ClientQuery<'_>) -> Reply {
        Reply::Response(self.answer(query.question))
    }
}

/// The beginning of a response.
pub(super) enum Begun {
    Ready(EncodedMessage),
    Waiting(QueryParts, LaterResponse),
}

/// Asks the handler, or answers a query that no handler gets.
pub(super) fn begin(
    handler: &(impl QueryHandler + ?Sized),
    message: MessageView<'_>,
    client: Option<IpAddr>,
    bytes_max: Option<usize>,
    now: Instant,
    can_wait: bool,
) -> Begun {
    let refusal = refusal(&message);
    if refusal.is_none()
        && let Some(message) = handler.encoded(&message, bytes_max, now)
    {
        return Begun::Ready(message);
    }
    let parts = QueryParts::of(&message);
    let (None, Some(question)) = (refusal, parts.question()) else {
        let code = refusal.unwrap_or(ResponseCode::FORMERR);
        return Begun::Ready(parts.encode(&Response::of_code(code), bytes_max));
    };
    match handler.query(&ClientQuery { question, message, client, bytes_max, now, can_wait }) {
        Reply::Response(response) => Begun::Ready(parts.encode(&response, bytes_max)),
        Reply::Message(message) => Begun::Ready(message),
        Reply::Later(future) => Begun::Waiting(parts, future),
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Response(response) => f.debug_tuple("Response").field(response).finish(),
            Self::Message(message) => f.debug_tuple("Message").field(message).finish(),
            Self::Later(_) => f.debug_tuple("Later").finish_non_exhaustive(),
        }
    }
}
