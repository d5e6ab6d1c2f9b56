//! The end of an exchange: the facts that are known then, and the line that waits for them.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyFuture, BodyKind, BodyWriter, ProducedBody};
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::Outgoing;
use tidegate_sys::Address;

use super::facts::LateFacts;
use super::json;
use super::template::LateField;
use crate::exchange_note::{EndCause, ExchangeNote};
use crate::line_log::LineLog;
use crate::middleware::now;
use crate::response::Response;

/// Writes a line: to these lines, or else as an event.
pub(super) fn write(lines: Option<&LineLog>, line: &[u8]) {
    match lines {
        Some(lines) => lines.line_of_bytes(line),
        None => tracing::info!(target: "tidegate::access", "{}", String::from_utf8_lossy(line)),
    }
}

/// The target of events.
pub(super) const TARGET: &str = "tidegate::access";

/// A line without the facts of its end.
#[derive(Debug)]
pub(super) enum Draft {
    /// The end of an object is missing.
    Json(Vec<u8>),
    /// Fields are missing, each at its place in the text, in their order.
    Template(String, Vec<(usize, LateField)>),
}

impl Draft {
    fn finish(self, late: &LateFacts) -> Vec<u8> {
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
                line.into_bytes()
            }
        }
    }
}

/// The line of an exchange in progress. It is written when this is dropped: if nothing has ended the exchange before, its
/// connection has.
pub(super) struct PendingLine {
    lines: Option<LineLog>,
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
        lines: Option<LineLog>,
        draft: Draft,
        note: Option<ExchangeNote>,
        (began, request_length): (Instant, Option<u64>),
    ) -> Self {
        let sent = Rc::new(Cell::new(0));
        let draft = Some(draft);
        Self { lines, draft, note, began, request_length, sent, exchange: None, end: EndCause::ClientLeft }
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
        write(self.lines.as_ref(), &draft.finish(&late));
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
