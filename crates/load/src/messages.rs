//! `Messages`: the codec of a load on a WebSocket. It opens the connection by a handshake, sends batches of the same
//! message, and compares each message of the server with it.
//!
//! The frames of a batch are masked once for each thread, and every connection of the thread sends the same bytes:
//! their keys are not fresh for each frame (RFC 6455 §5.3), as a load generator needs no protection from caches.
//!
//! In a broadcast each message begins with the time at which it was sent, and every connection counts the messages that
//! are delivered to it, whatever the server writes around them.

use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use tidegate::codec::{Blame, Codec, CodecStatus, Fault, Input, Lifecycle, Output, Step};
use tidegate::http1::client::{Incoming, Outgoing};
use tidegate::http1::{Client, ResponseHead};
use tidegate::websocket::handshake::{HandshakeError, Request as Handshake};
use tidegate::websocket::{Message, WebSocket};
use tidegate::{Bytes, http1, websocket};

use super::counters::Verdict;
use super::frames;
use super::pipeline::{Batch, Exchange, Responses};
use super::request::EncodedRequest;
use super::stamp;

/// The codec of a load on a WebSocket, on one connection.
#[derive(Debug)]
pub(crate) struct Messages {
    exchange: Rc<Exchange>,
    encoded: Rc<EncodedRequest>,
    state: UpgradeState,
    /// Messages that have not come back. In a broadcast, those of this connection.
    owed: u32,
}

#[derive(Debug)]
enum UpgradeState {
    /// The response to the handshake has not come.
    Opening(Box<(Client, Handshake)>),
    Open(Box<WebSocket>),
}

impl Messages {
    pub(crate) fn new(exchange: Rc<Exchange>, encoded: Rc<EncodedRequest>) -> Self {
        let opening = (Client::new(encoded.config.clone()), Handshake::new(frames::config()));
        Self { exchange, encoded, state: UpgradeState::Opening(Box::new(opening)), owed: 0 }
    }

    fn send_handshake(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let UpgradeState::Opening(opening) = &mut self.state else { return Ok(()) };
        let (client, handshake) = &mut **opening;
        let mut request = self.encoded.request.clone();
        for (name, value) in handshake.fields() {
            request = request.field(name, value).map_err(|_| Error::Handshake(HandshakeError::Key))?;
        }
        Ok(client.encode(Outgoing::Request(request), out)?)
    }

    /// The response to the handshake. The connection is open then.
    fn opened(&mut self, head: &ResponseHead) -> Result<Responses, Error> {
        let UpgradeState::Opening(opening) = &self.state else { return Ok(Responses { all: 0, good: 0 }) };
        let fields = head.headers().filter_map(|(name, value)| Some((str::from_utf8(name).ok()?, value)));
        let completed = opening.1.complete(head.status().code(), fields);
        match completed {
            Ok((codec, _)) => self.state = UpgradeState::Open(Box::new(codec)),
            Err(error) => {
                let stats = &self.exchange.stats;
                if matches!(error, HandshakeError::Status(_)) {
                    stats.bad(Verdict::Status, 1);
                } else {
                    stats.invalid();
                }
                return Err(Error::Counted(error));
            }
        }
        Ok(Responses { all: 0, good: 0 })
    }

    fn next(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Step<Responses>, Error> {
        if matches!(self.state, UpgradeState::Opening(_)) {
            return self.next_of_handshake(input, reply, ended);
        }
        let Self { exchange, encoded, state: UpgradeState::Open(codec), owed } = self else {
            return Ok(Step::NeedMore);
        };
        let mut responses = Responses { all: 0, good: 0 };
        loop {
            let before = input.len();
            let step = if ended { codec.decode_eof(input, reply) } else { codec.decode(input, reply) };
            exchange.stats.received(before - input.len());
            let message = match step? {
                Step::Message(Message::Text(text)) => text.into_payload(),
                Step::Message(Message::Binary(payload)) => payload,
                Step::Message(_) => continue,
                Step::NeedMore | Step::End if responses.all > 0 => return Ok(Step::Message(responses)),
                Step::NeedMore => return Ok(Step::NeedMore),
                // The server has closed in good order.
                Step::End => return if *owed > 0 { Err(Error::Closed) } else { Ok(Step::End) },
            };
            let message = message.as_ref();
            if exchange.broadcasts && !is_own_delivery(exchange, *owed, message) {
                continue;
            }
            if *owed == 0 {
                return Err(Error::Unsolicited);
            }
            *owed -= 1;
            responses.all += 1;
            match judge(exchange, encoded, message) {
                Verdict::Good => responses.good += 1,
                verdict => exchange.stats.bad(verdict, 1),
            }
        }
    }

    fn next_of_handshake(
        &mut self,
        input: &mut Input,
        reply: &mut Output<'_>,
        ended: bool,
    ) -> Result<Step<Responses>, Error> {
        let UpgradeState::Opening(opening) = &mut self.state else { return Ok(Step::NeedMore) };
        loop {
            let before = input.len();
            let client = &mut opening.0;
            let step = if ended { client.decode_eof(input, reply) } else { client.decode(input, reply) };
            self.exchange.stats.received(before - input.len());
            match step? {
                Step::Message(Incoming::Head(head)) => return self.opened(&head).map(Step::Message),
                Step::Message(_) => {}
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End => return Err(Error::Closed),
            }
        }
    }
}

/// Whether a message is as it was sent. In a broadcast the server may write around it.
fn judge(exchange: &Exchange, encoded: &EncodedRequest, message: &[u8]) -> Verdict {
    let is_equal = encoded.message.as_deref() == Some(message);
    let is_good = is_equal || exchange.broadcasts || exchange.stats.accepts_any_length();
    if is_good { Verdict::Good } else { Verdict::Length }
}

/// Counts a message of a broadcast, and returns whether this connection has sent it.
fn is_own_delivery(exchange: &Exchange, owed: u32, message: &[u8]) -> bool {
    // Other messages of a room have no stamp: its history, and joins and leaves.
    let Some((author, sent)) = stamp::find(message) else { return false };
    if author != exchange.author() {
        return false;
    }
    exchange.stats.count_responses(1, 1, exchange.stats.since_epoch().saturating_sub(sent));
    owed > 0
}

impl Codec for Messages {
    type In = Responses;
    type Out = Batch;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Responses>, Error> {
        self.next(input, reply, false).inspect_err(|error| self.count(error))
    }

    fn encode(&mut self, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let encoded = &self.encoded;
        let (bytes, count) = match batch {
            Batch::Opening => return self.send_handshake(out),
            Batch::One => (encoded.one.clone(), 1),
            Batch::Run(count) => (encoded.of_run(count), count),
        };
        self.owed += count;
        if !self.exchange.broadcasts {
            out.link_bytes(bytes);
            return Ok(());
        }
        let UpgradeState::Open(codec) = &mut self.state else { return Ok(()) };
        let length = encoded.message.as_ref().map_or(0, Bytes::len);
        for _ in 0..count {
            let mut text = stamp::write(self.exchange.author(), self.exchange.stats.since_epoch());
            text.extend(std::iter::repeat_n('x', length.saturating_sub(text.len())));
            codec.encode(Message::from(text), out)?;
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Responses>, Error> {
        self.next(input, reply, true).inspect_err(|error| self.count(error))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match &mut self.state {
            UpgradeState::Opening(opening) => Ok(opening.0.on(event, out)?),
            UpgradeState::Open(codec) => Ok(codec.on(event, out)?),
        }
    }

    fn status(&self) -> CodecStatus {
        match &self.state {
            UpgradeState::Opening(_) => CodecStatus { reports_finish: true, ..CodecStatus::default() },
            UpgradeState::Open(codec) => codec.status(),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            UpgradeState::Opening(_) => None,
            UpgradeState::Open(codec) => codec.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match &mut self.state {
            UpgradeState::Opening(_) => Ok(()),
            UpgradeState::Open(codec) => Ok(codec.handle_timeout(input, reply)?),
        }
    }
}

impl Messages {
    fn count(&self, error: &Error) {
        match error {
            Error::Counted(_) => {}
            Error::Closed
            | Error::Http(http1::Error::Peer(http1::Violation::Unanswered | http1::Violation::ResponseTruncated))
            | Error::WebSocket(websocket::Error::Peer(websocket::Violation::Truncated)) => self.exchange.stats.closed(),
            _ => self.exchange.stats.invalid(),
        }
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Error {
    Http(http1::Error),
    WebSocket(websocket::Error),
    Handshake(HandshakeError),
    /// The handshake was refused, and is counted.
    Counted(HandshakeError),
    /// The server closed the connection in good order, and messages had not come back.
    Closed,
    /// The server sent a message that answers none.
    Unsolicited,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Http(error) => error.blame(),
            Self::WebSocket(error) => error.blame(),
            Self::Handshake(_) | Self::Counted(_) | Self::Closed | Self::Unsolicited => Blame::Peer,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::WebSocket(error) => error.fmt(f),
            Self::Handshake(error) | Self::Counted(error) => error.fmt(f),
            Self::Closed => f.write_str("the server closed the WebSocket before all messages came back"),
            Self::Unsolicited => f.write_str("the server sent a message that answers none"),
        }
    }
}

impl std::error::Error for Error {}

impl From<http1::Error> for Error {
    fn from(error: http1::Error) -> Self {
        Self::Http(error)
    }
}

impl From<websocket::Error> for Error {
    fn from(error: websocket::Error) -> Self {
        Self::WebSocket(error)
    }
}
