//! Servers: [`DnsServer`] serves UDP and TCP at an address. A [`QueryHandler`] answers its queries, at once or later; a
//! [`Responder`] is one that answers at once, and [`Forwarder`] one that asks other servers. [`respond`] keeps to the rules
//! that all servers have. [`LoopHandlers`] gives the same handlers to listeners of other transports: over TLS, and of protocols
//! that carry messages in requests of their own, by a [`QueryService`].
//!
//! `datagrams.rs` serves datagrams within the limits of a [`RateLimiter`], [`StreamHandler`] a TCP or TLS connection.

mod builder;
mod counters;
mod datagrams;
mod encoded_answers;
mod forwarder;
mod handler;
mod in_flight;
mod limits;
mod loop_handlers;
mod query_handler;
mod rate_limit;
mod response_runs;

pub use builder::DnsServer;
pub use counters::{ServerCounts, ServerMetrics};
pub use forwarder::Forwarder;
pub use handler::StreamHandler;
pub use limits::ServerLimits;
pub use loop_handlers::{LoopHandlers, QueryService, from_base64url};
pub use query_handler::{ClientQuery, LaterResponse, QueryHandler, Reply};
pub use rate_limit::{RateDecision, RateLimiter, RateLimits, ResponseKind};

use crate::edns::{Edns, RESPONSE_BLOCK_BYTES};
use crate::header::Header;
use crate::limits::{UDP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES_MAX, UDP_PAYLOAD_BYTES_MIN};
use crate::message_view::MessageView;
use crate::message_writer::{EncodedMessage, MessageWriter, Section};
use crate::numbers::{Opcode, ResponseCode};
use crate::records::{Question, Record};
use crate::zone::Zone;

/// The parts of a response that do not follow from the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The response code.
    pub response_code: ResponseCode,
    /// AA.
    pub is_authoritative: bool,
    /// RA.
    pub recursion_available: bool,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section.
    pub authorities: Vec<Record>,
    /// The additional section, without OPT.
    pub additionals: Vec<Record>,
    /// An extended error for clients with EDNS.
    pub extended_error: Option<(u16, &'static str)>,
}

impl Response {
    /// A response without records.
    #[must_use]
    pub const fn of_code(response_code: ResponseCode) -> Self {
        Self {
            response_code,
            is_authoritative: false,
            recursion_available: false,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
            extended_error: None,
        }
    }
}

/// Answers queries. [`respond`] has checked the message: it is a query with one question.
///
/// ```
/// use tidegate::dns::{Question, Rdata, Record};
/// use tidegate::dns::server::{Responder, Response, respond};
/// use tidegate::dns::{Header, MessageView, MessageWriter, RecordType, ResponseCode};
///
/// /// Every name has the same address.
/// struct Same;
///
/// impl Responder for Same {
///     fn answer(&self, question: &Question) -> Response {
///         let mut response = Response::of_code(ResponseCode::NOERROR);
///         response.answers.push(Record::new(question.name.clone(), 60, Rdata::a([192, 0, 2, 1].into())));
///         response
///     }
/// }
///
/// let question = Question::new("tides.example".parse()?, RecordType::A);
/// let query = MessageWriter::new(Header::query(7)).question(&question)?.finish();
/// let reply = respond(&Same, &MessageView::parse(&query)?, None);
/// assert_eq!(MessageView::parse(&reply)?.answers().count(), 1);
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
pub trait Responder {
    /// Answers a question, at once.
    fn answer(&self, question: &Question) -> Response;
}

impl Responder for Zone {
    fn answer(&self, question: &Question) -> Response {
        let answer = Self::answer(self, question);
        Response {
            response_code: answer.response_code,
            is_authoritative: answer.is_authoritative,
            recursion_available: false,
            answers: answer.answers,
            authorities: answer.authorities,
            additionals: answer.additionals,
            extended_error: None,
        }
    }
}

impl<R: Responder + ?Sized> Responder for std::sync::Arc<R> {
    fn answer(&self, question: &Question) -> Response {
        (**self).answer(question)
    }
}

/// The payload of a response in a datagram to this query: the bytes that the client accepts, at most 1,232 bytes, and 512 for one
/// without EDNS.
#[must_use]
pub fn datagram_bytes_max(query: &MessageView<'_>) -> usize {
    let accepted = query.edns().map_or(UDP_PAYLOAD_BYTES_MIN, |edns| edns.udp_payload_bytes);
    usize::from(accepted.min(UDP_PAYLOAD_BYTES).min(UDP_PAYLOAD_BYTES_MAX))
}

/// The response of a responder to a query. `bytes_max` is the payload of a datagram, from [`datagram_bytes_max`]; a stream
/// has none. A response that does not fit is truncated.
///
/// Without the responder, a message without a question is answered with FORMERR, another operation than a query with
/// NOTIMP, a later version of EDNS with BADVERS, and a cookie of a wrong length with FORMERR.
#[must_use]
pub fn respond(
    responder: &(impl Responder + ?Sized),
    query: &MessageView<'_>,
    bytes_max: Option<usize>,
) -> EncodedMessage {
    let parts = QueryParts::of(query);
    let response = match (refusal(query), &parts.question) {
        (None, Some(question)) => responder.answer(question),
        (code, _) => Response::of_code(code.unwrap_or(ResponseCode::FORMERR)),
    };
    parts.encode(&response, bytes_max)
}

/// The parts of a query that its response repeats.
#[derive(Debug, Clone)]
pub(crate) struct QueryParts {
    header: Header,
    has_edns: bool,
    /// DO, which the response repeats (RFC 3225 §3).
    wants_dnssec: bool,
    /// Whether the query has padding: its response over a stream has some too.
    is_padded: bool,
    question: Option<Question>,
}

impl QueryParts {
    pub(crate) fn of(query: &MessageView<'_>) -> Self {
        let question = query.question().map(|question| question.to_question());
        let edns = query.edns();
        let wants_dnssec = edns.is_some_and(|edns| edns.wants_dnssec);
        let is_padded = edns.is_some_and(|edns| edns.is_padded());
        Self { header: *query.header(), has_edns: edns.is_some(), wants_dnssec, is_padded, question }
    }

    pub(crate) const fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    /// The OPT record of a response, for a query with one (RFC 6891 §6.1.1).
    fn edns(&self) -> Option<Edns> {
        self.has_edns.then(|| Edns { wants_dnssec: self.wants_dnssec, ..Edns::default() })
    }

    /// A response without records that is marked as truncated: the client asks again over a stream.
    pub(crate) fn truncated(&self) -> EncodedMessage {
        let header = Header { is_truncated: true, ..self.header.response(ResponseCode::NOERROR) };
        let writer = MessageWriter::new(header);
        let writer = match &self.question {
            Some(question) => writer.question(question).unwrap_or_else(|_| MessageWriter::new(header)),
            None => writer,
        };
        match self.edns() {
            Some(edns) => writer.edns(&edns).map_or_else(|_| crate::format_error(&self.header), MessageWriter::finish),
            None => writer.finish(),
        }
    }

    /// Writes a response, truncated if it is too long.
    pub(crate) fn encode(&self, response: &Response, bytes_max: Option<usize>) -> EncodedMessage {
        let header = Header {
            is_authoritative: response.is_authoritative,
            recursion_available: response.recursion_available,
            ..self.header.response(response.response_code)
        };
        let edns = self.edns().map(|edns| match response.extended_error {
            Some((code, text)) => edns.extended_error(code, text),
            None => edns,
        });
        let reserved = edns.as_ref().map_or(0, Edns::wire_bytes);
        let writer =
            MessageWriter::with_bytes_max(header, bytes_max.unwrap_or(usize::from(u16::MAX))).reserve(reserved);
        let mut writer = match &self.question {
            // A question of the shortest message fits in the least payload.
            Some(question) => writer.question(question).unwrap_or_else(|_| MessageWriter::new(header)),
            None => writer,
        };
        write_sections(&mut writer, response);
        // Padding in datagrams would amplify, and they are not encrypted (RFC 7830 §6).
        let edns = edns.map(|edns| match bytes_max {
            None if self.is_padded => edns.padding(writer.wire_bytes(), RESPONSE_BLOCK_BYTES),
            _ => edns,
        });
        match edns {
            Some(edns) => writer.edns(&edns).map_or_else(|_| crate::format_error(&self.header), MessageWriter::finish),
            None => writer.finish(),
        }
    }
}

/// The code of a query that no responder gets.
fn refusal(query: &MessageView<'_>) -> Option<ResponseCode> {
    let edns = query.edns();
    if query.header().opcode != Opcode::QUERY {
        Some(ResponseCode::NOTIMP)
    } else if edns.is_some_and(|edns| edns.version > 0) {
        Some(ResponseCode::BADVERS)
    } else if query.question_wire().is_empty() || edns.is_some_and(|edns| edns.cookie().is_err()) {
        Some(ResponseCode::FORMERR)
    } else {
        None
    }
}

fn write_sections(writer: &mut MessageWriter, response: &Response) {
    let sections = [
        (Section::Answer, &response.answers),
        (Section::Authority, &response.authorities),
        (Section::Additional, &response.additionals),
    ];
    for (section, records) in sections {
        for record in records {
            if writer.record(section, record).is_err() {
                // Additional records are left out without a word (RFC 2181 §9).
                if section != Section::Additional {
                    writer.set_truncated();
                }
                return;
            }
        }
    }
}
