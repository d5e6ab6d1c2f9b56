//! `ClientCodec`: the operations of a server from bytes, and those of a client as bytes.

use tidegate_buffer::{ReceiveHint, Slice};
use tidegate_codec::{Codec, Input, Output, Step};

use crate::error::NatsError;
use crate::limits::ProtocolLimits;
use crate::line;
use crate::message_view::{MessageForm, MessageHead, MessageView};
use crate::outgoing::{ClientOperation, write_client_operation};
use crate::pending_input::{PendingInput, message_hint};

/// The codec of a client. It yields an [`IncomingServerOperation`] at a time, and takes a [`ClientOperation`].
///
/// ```
/// use tidegate::nats::{ClientCodec, IncomingServerOperation};
/// use tidegate_testkit::CodecHarness;
///
/// let mut client = CodecHarness::new(ClientCodec::default());
/// let operations = client.decode(b"HMSG inbox.7 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\n")?;
/// let [IncomingServerOperation::Message(message)] = &operations[..] else { panic!("{operations:?}") };
/// assert_eq!(message.headers().and_then(|headers| headers.status()), Some(503));
/// # Ok::<(), tidegate::nats::NatsError>(())
/// ```
#[derive(Debug, Default)]
pub struct ClientCodec {
    limits: ProtocolLimits,
    state: PendingInput,
}

/// An operation of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum IncomingServerOperation {
    /// INFO, with its JSON: [`ServerInfo::from_json`](crate::ServerInfo::from_json) reads it.
    Info(Slice),
    /// MSG or HMSG.
    Message(MessageView),
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// +OK.
    Ok,
    /// -ERR, with its text in quotes.
    Err(Slice),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Info,
    Message,
    MessageWithHeaders,
    Ping,
    Pong,
    Ok,
    Err,
}

const OPERATIONS: &[(&[u8], Operation)] = &[
    (b"MSG", Operation::Message),
    (b"HMSG", Operation::MessageWithHeaders),
    (b"PING", Operation::Ping),
    (b"PONG", Operation::Pong),
    (b"+OK", Operation::Ok),
    (b"-ERR", Operation::Err),
    (b"INFO", Operation::Info),
];

impl ClientCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self { limits: limits.effective(), state: PendingInput::default() }
    }

    fn advance(&mut self, input: &mut Input) -> Result<Step<IncomingServerOperation>, NatsError> {
        if let Some(message) = self.state.take_message(input)? {
            return Ok(message.map(IncomingServerOperation::Message));
        }
        let bytes = input.bytes();
        let Some((operation, from)) = line::operation(bytes, OPERATIONS)? else { return Ok(Step::NeedMore) };
        let bytes_max = line::bytes_max(operation == Operation::Info, &self.limits);
        let Some((end, next)) = line::line_end(bytes, &mut self.state.scanned, bytes_max)? else {
            return Ok(Step::NeedMore);
        };
        self.state.scanned = 0;
        let line = &bytes[..end];
        let text = line::rest(line, from);
        let form = |has_headers| MessageForm { has_sid: true, has_headers };
        let operation = match operation {
            Operation::Message | Operation::MessageWithHeaders => {
                let form = form(operation == Operation::MessageWithHeaders);
                self.state.message = Some(MessageHead::read(line, from, next, form, &self.limits)?);
                return self.advance(input);
            }
            Operation::Info => IncomingServerOperation::Info(input.take(next).slice(text)),
            Operation::Err => IncomingServerOperation::Err(input.take(next).slice(text)),
            short => {
                input.consume(next);
                match short {
                    Operation::Ping => IncomingServerOperation::Ping,
                    Operation::Pong => IncomingServerOperation::Pong,
                    _ => IncomingServerOperation::Ok,
                }
            }
        };
        Ok(Step::Message(operation))
    }
}

impl Codec for ClientCodec {
    type In = IncomingServerOperation;
    type Out = ClientOperation;
    type Error = NatsError;

    fn protocol(&self) -> &'static str {
        "NATS"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Self::In>, NatsError> {
        self.advance(input)
    }

    fn encode(&mut self, operation: ClientOperation, out: &mut Output<'_>) -> Result<(), NatsError> {
        write_client_operation(operation, &self.limits, out)
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
