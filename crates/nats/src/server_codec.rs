//! `ServerCodec`: the operations of a client from bytes, and those of a server as bytes.

use tidegate_buffer::{ReceiveHint, Slice};
use tidegate_codec::{Codec, Input, Output, Step};

use crate::error::NatsError;
use crate::limits::ProtocolLimits;
use crate::line;
use crate::message_view::{MessageForm, MessageHead, MessageView};
use crate::outgoing::{ServerOperation, write_server_operation};
use crate::pending_input::{PendingInput, message_hint};

/// The codec of a server. It yields an [`IncomingClientOperation`] at a time, and takes a [`ServerOperation`].
///
/// ```
/// use tidegate::nats::{IncomingClientOperation, ServerCodec};
/// use tidegate_testkit::CodecHarness;
///
/// let mut server = CodecHarness::new(ServerCodec::default());
/// let operations = server.decode(b"PUB tides.brest 3\r\nebb\r\n")?;
/// let [IncomingClientOperation::Publish(message)] = &operations[..] else { panic!("{operations:?}") };
/// assert_eq!((message.subject(), message.payload()), (&b"tides.brest"[..], &b"ebb"[..]));
/// # Ok::<(), tidegate::nats::NatsError>(())
/// ```
#[derive(Debug, Default)]
pub struct ServerCodec {
    limits: ProtocolLimits,
    state: PendingInput,
}

/// An operation of a client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum IncomingClientOperation {
    /// CONNECT, with its JSON.
    Connect(Slice),
    /// PUB or HPUB.
    Publish(MessageView),
    /// SUB.
    Subscribe {
        /// The subjects that it asks for.
        filter: Slice,
        /// The queue group: one of its subscriptions gets each message.
        queue_group: Option<Slice>,
        /// The ID that the client has chosen.
        sid: Slice,
    },
    /// UNSUB, at once or after so many messages in all.
    Unsubscribe {
        /// The ID of the subscription.
        sid: Slice,
        /// After so many messages, counted from the beginning of the subscription; at once without a number.
        max_messages: Option<u64>,
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Connect,
    Publish,
    PublishWithHeaders,
    Subscribe,
    Unsubscribe,
    Ping,
    Pong,
}

const OPERATIONS: &[(&[u8], Operation)] = &[
    (b"PUB", Operation::Publish),
    (b"HPUB", Operation::PublishWithHeaders),
    (b"SUB", Operation::Subscribe),
    (b"UNSUB", Operation::Unsubscribe),
    (b"PING", Operation::Ping),
    (b"PONG", Operation::Pong),
    (b"CONNECT", Operation::Connect),
];

impl ServerCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self { limits: limits.effective(), state: PendingInput::default() }
    }

    fn advance(&mut self, input: &mut Input) -> Result<Step<IncomingClientOperation>, NatsError> {
        if let Some(message) = self.state.take_message(input)? {
            return Ok(message.map(IncomingClientOperation::Publish));
        }
        let bytes = input.bytes();
        let Some((operation, from)) = line::operation(bytes, OPERATIONS)? else { return Ok(Step::NeedMore) };
        let bytes_max = line::bytes_max(operation == Operation::Connect, &self.limits);
        let Some((end, next)) = line::line_end(bytes, &mut self.state.scanned, bytes_max)? else {
            return Ok(Step::NeedMore);
        };
        self.state.scanned = 0;
        let line = &bytes[..end];
        let form = |has_headers| MessageForm { has_sid: false, has_headers };
        let operation = match operation {
            Operation::Publish | Operation::PublishWithHeaders => {
                let form = form(operation == Operation::PublishWithHeaders);
                self.state.message = Some(MessageHead::read(line, from, next, form, &self.limits)?);
                return self.advance(input);
            }
            Operation::Ping => IncomingClientOperation::Ping,
            Operation::Pong => IncomingClientOperation::Pong,
            Operation::Connect => {
                let json = line::rest(line, from);
                return Ok(Step::Message(IncomingClientOperation::Connect(input.take(next).slice(json))));
            }
            Operation::Subscribe => {
                let (parts, count) = line::arguments::<3>(line, from, 2)?;
                let wire = input.take(next);
                let part = |index: usize| wire.slice(parts[index].clone());
                let queue_group = (count == 3).then(|| part(1));
                let subscribe =
                    IncomingClientOperation::Subscribe { filter: part(0), queue_group, sid: part(count - 1) };
                return Ok(Step::Message(subscribe));
            }
            Operation::Unsubscribe => {
                let (parts, count) = line::arguments::<2>(line, from, 1)?;
                let max_messages = (count == 2).then(|| line::number(&line[parts[1].clone()])).transpose()?;
                let sid = input.take(next).slice(parts[0].clone());
                let max_messages = max_messages.filter(|max| *max > 0).map(|max| max as u64);
                return Ok(Step::Message(IncomingClientOperation::Unsubscribe { sid, max_messages }));
            }
        };
        input.consume(next);
        Ok(Step::Message(operation))
    }
}

impl Codec for ServerCodec {
    type In = IncomingClientOperation;
    type Out = ServerOperation;
    type Error = NatsError;

    fn protocol(&self) -> &'static str {
        "NATS"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, NatsError> {
        self.advance(input).inspect_err(|error| reply.write(error_line(*error)))
    }

    fn encode(&mut self, operation: ServerOperation, out: &mut Output<'_>) -> Result<(), NatsError> {
        write_server_operation(operation, &self.limits, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, NatsError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() => Ok(Step::End),
            Step::NeedMore => Err(NatsError::Truncated),
            step => Ok(step),
        }
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        message_hint(&self.state)
    }
}

/// The error in the words of nats-server.
const fn error_line(error: NatsError) -> &'static [u8] {
    match error {
        NatsError::Operation => b"-ERR 'Unknown Protocol Operation'\r\n",
        NatsError::LineTooLong { .. } => b"-ERR 'Maximum Control Line Exceeded'\r\n",
        NatsError::PayloadTooLong { .. } | NatsError::HeadersTooLong { .. } => b"-ERR 'Maximum Payload Violation'\r\n",
        _ => b"-ERR 'Parser Error'\r\n",
    }
}
