//! The end of an exchange: the facts that are known then, and the line that waits for them.

use std::borrow::Cow;
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyFuture, BodyKind, BodyWriter, ProducedBody};
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::Outgoing;
use tidegate_sys::Address;

use super::template::LateField;
use super::{AccessLog, json};
use crate::exchange_note::{EndCause, ExchangeNote, NotedFacts};
use crate::middleware::now;
use crate::request::Request;
use crate::response::Response;

/// The facts of an exchange that are known at its end.
#[derive(Debug, Default)]
pub(super) struct LateFacts {
    /// Bytes of the response's body, and of the request's; `None` if they are not known.
    pub(super) sent: Option<u64>,
    pub(super) received: Option<u64>,
    pub(super) total: Duration,
    /// The end came after the head of the response.
    pub(super) is_later: bool,
    pub(super) attempts: u32,
    pub(super) upstream_status: Option<u16>,
    pub(super) head_time: Option<Duration>,
    pub(super) whole_time: Option<Duration>,
    pub(super) upstream_error: Option<String>,
    pub(super) cache: Option<Cow<'static, str>>,
    pub(super) end: EndCause,
}

impl LateFacts {
    /// Those of a response that is complete with its head.
    pub(super) fn of(facts: Option<&NotedFacts>, request: &Request, sent: Option<u64>, total: Duration) -> Self {
        Self { sent, ..Self::noted(facts.cloned().unwrap_or_default(), request.content_length(), total) }
    }

    fn noted(facts: NotedFacts, request_length: Option<u64>, total: Duration) -> Self {
        Self {
            sent: None,
            received: facts.received.or(request_length),
            total,
            is_later: false,
            attempts: facts.attempts,
            upstream_status: facts.upstream_status,
            head_time: facts.head_time,
            whole_time: facts.whole_time,
            upstream_error: facts.upstream_error,
            cache: facts.cache,
            end: facts.end.unwrap_or_default(),
        }
    }
}

/// A line without the facts of its end.
#[derive(Debug)]
pub(super) enum Draft {
    /// The end of an object is missing.
    Json(String),
    /// Fields are missing, each at its place in the text, in their order.
    Template(String, Vec<(usize, LateField)>),
}

impl Draft {
    pub(super) fn json(line: String) -> Self {
        Self::Json(line)
    }

    fn finish(self, late: &LateFacts) -> String {
        match self {
            Self::Json(mut line) => {
                json::end(&mut line, late);
                line
            }
            Self::Template(text, fields) => {
                let (mut line, mut from) = (String::with_capacity(text.len() + 16 * fields.len()), 0);
                for (at, field) in fields {
                    line.push_str(&text[from..at]);
                    field.push(&mut line, late);
                    from = at;
                }
                line.push_str(&text[from..]);
                line
            }
        }
    }
}

/// The line of an exchange in progress. It is written when this is dropped: if nothing has ended the exchange before, its
/// connection has.
pub(super) struct PendingLine {
    log: AccessLog,
    draft: Option<Draft>,
    note: Option<ExchangeNote>,
    began: Instant,
    request_length: Option<u64>,
    sent: Rc<Cell<u64>>,
    /// Once the body has begun.
    exchange: Option<Rc<dyn Exchange>>,
    end: EndCause,
}

impl PendingLine {
    pub(super) fn new(
        log: AccessLog,
        draft: Draft,
        note: Option<ExchangeNote>,
        (began, request_length): (Instant, Option<u64>),
    ) -> Self {
        let sent = Rc::new(Cell::new(0));
        let draft = Some(draft);
        Self { log, draft, note, began, request_length, sent, exchange: None, end: EndCause::ClientLeft }
    }

    /// The function that writes the body has returned.
    fn end(mut self, result: &Result<(), Box<dyn Error>>) {
        self.end = match result {
            Ok(()) => EndCause::Done,
            Err(error) if error.downcast_ref::<BodyError>().is_some_and(is_of_client) => EndCause::ClientLeft,
            Err(_) => EndCause::Failed,
        };
    }
}

/// Whether a body cannot be written since the connection is gone.
fn is_of_client(error: &BodyError) -> bool {
    matches!(error, BodyError::Closed(_) | BodyError::Over)
}

impl Drop for PendingLine {
    fn drop(&mut self) {
        let Some(draft) = self.draft.take() else { return };
        let facts = self.note.as_ref().map(ExchangeNote::facts).unwrap_or_default();
        let is_draining = || self.exchange.as_ref().is_some_and(|exchange| exchange.is_draining());
        let end = match (self.end, facts.end) {
            // The note has the cause if an upstream has failed.
            (EndCause::ClientLeft | EndCause::Failed, Some(noted)) => noted,
            (EndCause::ClientLeft, None) if is_draining() => EndCause::Drained,
            (end, _) => end,
        };
        let total = now().saturating_duration_since(self.began);
        let late = LateFacts::noted(facts, self.request_length, total);
        let late = LateFacts { sent: Some(self.sent.get()), is_later: true, end, ..late };
        self.log.write(&draft.finish(&late));
    }
}

/// Has the line follow the body of a response, which is produced while it is sent.
pub(super) fn follow(response: &mut Response, mut pending: PendingLine) {
    let body = std::mem::take(&mut response.body).into_kind();
    let BodyKind::Produced(produced) = body else {
        response.body = Body::from(body);
        return;
    };
    let ProducedBody { length, produce } = *produced;
    let produce = Box::new(move |writer: BodyWriter| -> BodyFuture {
        let (exchange, number) = writer.into_parts();
        pending.exchange = Some(exchange.clone());
        let counted = Rc::new(CountedExchange { exchange, sent: pending.sent.clone() });
        let producing = produce(BodyWriter::new(counted, number));
        Box::pin(async move {
            let result = producing.await;
            pending.end(&result);
            result
        })
    });
    response.body = Body::from(BodyKind::Produced(Box::new(ProducedBody { length, produce })));
}

/// An exchange whose response is counted.
struct CountedExchange {
    exchange: Rc<dyn Exchange>,
    sent: Rc<Cell<u64>>,
}

impl Exchange for CountedExchange {
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.exchange.poll_body(number, cx)
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(number, cx)
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        let bytes = if let Outgoing::Data(piece) = &message { piece.len() } else { 0 };
        self.exchange.send(number, message)?;
        self.sent.set(self.sent.get() + bytes);
        Ok(())
    }

    fn account(&self, number: u32) -> Option<Account> {
        self.exchange.account(number)
    }

    fn hand_over(&self, number: u32, piece: &[u8]) {
        self.exchange.hand_over(number, piece);
    }

    fn keep(&self, number: u32, charge: ConnectionCharge) {
        self.exchange.keep(number, charge);
    }

    fn destination(&self, number: u32) -> Option<Address> {
        self.exchange.destination(number)
    }

    fn is_draining(&self) -> bool {
        self.exchange.is_draining()
    }
}
