//! Event streams at a drain: a response of the type `text/event-stream`, of any function or service, ends between two events
//! when the server drains, or its connection at its age.
//!
//! Such a body has no end of its own, and would be cut off at the deadline. Its client reconnects by itself (the HTML
//! standard, section 9.2), so an end between two events loses none.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tidegate_engine::task;
use tidegate_http_message::body::{BodyFuture, BodyWriter, ProducedBody};
use tidegate_http_message::exchange::Exchange;
use tidegate_http_message::watched::{ExchangeWatcher, WatchedExchange};
use tidegate_http1::{Body, Outgoing};

/// Whether a content type is that of an event stream.
pub(crate) fn is_type(content_type: &[u8]) -> bool {
    content_type.split_at_checked(TYPE.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(TYPE) && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
    })
}

/// The same producer, which ends between two events once its connection drains, alone or with its loop. One whose length is known has to write all of it.
pub(crate) fn end_at_drain(produced: ProducedBody) -> ProducedBody {
    if produced.length.is_some() {
        return produced;
    }
    let produce = Box::new(move |writer: BodyWriter| {
        let (exchange, number) = writer.into_parts();
        let events = Rc::new(WatchedExchange::new(exchange, EventEnds::default()));
        let mut producing = (produced.produce)(BodyWriter::new(events.clone(), number));
        Box::pin(async move {
            let mut draining = task::draining();
            poll_fn(|cx| {
                let drains = Pin::new(&mut draining).poll(cx).is_ready() || events.is_draining();
                match producing.as_mut().poll(cx) {
                    Poll::Pending if drains && events.watcher().0.get().is_of_event() => Poll::Ready(Ok(())),
                    polled => polled,
                }
            })
            .await
        }) as BodyFuture
    });
    ProducedBody { length: None, produce }
}

/// Notes how the body ends so far.
#[derive(Default)]
struct EventEnds(Cell<End>);

impl ExchangeWatcher for EventEnds {
    fn on_send(&self, message: &Outgoing) {
        if let Outgoing::Data(piece) = message {
            self.0.set(match piece {
                // Its bytes are not here.
                Body::File(_) => End { line_ends: 0, is_after_cr: false },
                piece => self.0.get().after(piece.memory()),
            });
        }
    }
}

/// How an event stream ends so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// The line ends in a row: LF, CR, or CRLF. Two are the end of an event.
    line_ends: u8,
    is_after_cr: bool,
}

impl Default for End {
    /// That of an empty body, which ends behind no event.
    fn default() -> Self {
        Self { line_ends: 2, is_after_cr: false }
    }
}

impl End {
    fn is_of_event(self) -> bool {
        self.line_ends >= 2
    }

    fn after(self, piece: &[u8]) -> Self {
        // The last bytes decide, and four of them are two line ends at most.
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let others = piece.iter().rposition(|byte| !is_end(byte));
        let (mut end, ends) = match others {
            Some(at) => (Self { line_ends: 0, is_after_cr: false }, &piece[at + 1..]),
            None => (self, piece),
        };
        for byte in ends {
            let completes_crlf = end.is_after_cr && *byte == b'\n';
            end.line_ends = end.line_ends.saturating_add(u8::from(!completes_crlf));
            end.is_after_cr = *byte == b'\r';
        }
        end
    }
}

const TYPE: &[u8] = b"text/event-stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line_however_its_bytes_are_split() {
        for (text, expected) in [
            ("", true),
            ("data: a\n\n", true),
            ("data: a\r\n\r\n", true),
            ("data: a\r\r", true),
            ("data: a\n\r\n", true),
            (":\n\n", true),
            ("data: a\n", false),
            ("data: a\r\n", false),
            ("data: a", false),
            ("data: a\n\ndata: b\n", false),
            ("data: a\n\nd", false),
        ] {
            for step in 1..=text.len().max(1) {
                let end = text.as_bytes().chunks(step).fold(End::default(), End::after);
                assert_eq!(end.is_of_event(), expected, "{text:?}, {step} bytes at a time");
            }
        }
    }

    #[test]
    fn parameters_and_case_do_not_change_the_type() {
        for (value, expected) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8", true),
            ("text/event-stream ;x", true),
            ("text/event-streams", false),
            ("text/event", false),
            ("text/html", false),
        ] {
            assert_eq!(is_type(value.as_bytes()), expected, "{value}");
        }
    }
}
