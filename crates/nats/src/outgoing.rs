//! `ClientOperation` and `ServerOperation`: the operations that each role sends, checked and written.
//!
//! Invariant: an operation is written whole or not at all, and the peer reads exactly that operation.

use bytes::Bytes;
use tidegate_codec::Output;

use crate::error::NatsError;
use crate::headers::Headers;
use crate::limits::ProtocolLimits;
use crate::subject::is_token;

/// An operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientOperation {
    /// CONNECT, with its JSON.
    Connect(Bytes),
    /// PUB, or HPUB if the message has headers.
    Publish(OutgoingMessage),
    /// SUB.
    Subscribe {
        /// The subjects that it asks for.
        filter: Bytes,
        /// The queue group.
        queue_group: Option<Bytes>,
        /// An ID that no other subscription of the connection has.
        sid: u64,
    },
    /// UNSUB.
    Unsubscribe {
        /// The ID of the subscription.
        sid: u64,
        /// After so many messages, counted from the beginning of the subscription; at once without a number.
        max_messages: Option<u64>,
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
}

/// An operation of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOperation {
    /// INFO, with its JSON.
    Info(Bytes),
    /// MSG, or HMSG if the message has headers, for this subscription.
    Message(Bytes, OutgoingMessage),
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// +OK.
    Ok,
    /// -ERR, with this text, which gets its quotes here.
    Err(Bytes),
    /// A message whose line is encoded, and the bytes behind the line.
    Encoded(Bytes, Bytes),
}

/// A message to send.
///
/// ```
/// use tidegate::nats::OutgoingMessage;
///
/// let message = OutgoingMessage::new("tides.brest", "ebb").reply("inbox.7");
/// assert_eq!(message.message_bytes(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// Its subject.
    pub subject: Bytes,
    /// The subject for replies.
    pub reply: Option<Bytes>,
    /// Its headers.
    pub headers: Option<Headers>,
    /// Its payload.
    pub payload: Bytes,
}

impl OutgoingMessage {
    /// A message without headers.
    #[must_use]
    pub fn new(subject: impl Into<Bytes>, payload: impl Into<Bytes>) -> Self {
        Self { subject: subject.into(), reply: None, headers: None, payload: payload.into() }
    }

    /// Sets the subject for replies.
    #[must_use]
    pub fn reply(mut self, subject: impl Into<Bytes>) -> Self {
        self.reply = Some(subject.into());
        self
    }

    /// Sets the headers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = Some(headers);
        self
    }

    /// The bytes of headers and payload, which `max_payload` bounds.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.headers_bytes() + self.payload.len()
    }

    fn headers_bytes(&self) -> usize {
        self.headers.as_ref().map_or(0, |headers| headers.as_bytes().len())
    }

    /// Whether the codec sends it with these limits.
    pub(crate) fn check(&self, limits: &ProtocolLimits) -> Result<(), NatsError> {
        let reply = self.reply.as_deref().unwrap_or(b"-");
        if !is_token(&self.subject) || !is_token(reply) {
            return Err(NatsError::Token);
        }
        let line = self.subject.len() + reply.len() + LINE_REST_BYTES;
        if line > limits.control_line_bytes_max
            || self.message_bytes() > limits.payload_bytes_max
            || self.headers_bytes() > limits.headers_bytes_max
        {
            return Err(NatsError::Unsendable);
        }
        Ok(())
    }

    fn write(
        self,
        name: &str,
        sid: Option<&[u8]>,
        limits: &ProtocolLimits,
        out: &mut Output<'_>,
    ) -> Result<(), NatsError> {
        self.check(limits)?;
        let mut line = Vec::with_capacity(self.subject.len() + LINE_REST_BYTES);
        if self.headers.is_some() {
            line.push(b'H');
        }
        line.extend_from_slice(name.as_bytes());
        for part in [Some(&*self.subject), sid, self.reply.as_deref()].into_iter().flatten() {
            line.push(b' ');
            line.extend_from_slice(part);
        }
        let headers = self.headers.as_ref().map(|headers| headers.as_bytes().len());
        for number in headers.into_iter().chain([self.message_bytes()]) {
            line.push(b' ');
            line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        line.extend_from_slice(b"\r\n");
        let block = self.headers.as_ref().map_or(&b""[..], Headers::as_bytes);
        if self.payload.len() < tidegate_buffer::LINK_BYTES_MIN {
            for part in [block, &self.payload, b"\r\n"] {
                line.extend_from_slice(part);
            }
            out.write(&line);
            return Ok(());
        }
        line.extend_from_slice(block);
        out.write(&line);
        out.link_bytes(self.payload);
        out.write(b"\r\n");
        Ok(())
    }
}

pub(crate) fn write_client_operation(
    operation: ClientOperation,
    limits: &ProtocolLimits,
    out: &mut Output<'_>,
) -> Result<(), NatsError> {
    match operation {
        ClientOperation::Connect(json) => write_text(b"CONNECT ", &json, b"\r\n", limits, out),
        ClientOperation::Publish(message) => message.write("PUB", None, limits, out),
        ClientOperation::Subscribe { filter, queue_group, sid } => {
            let group = queue_group.as_deref().unwrap_or(b"-");
            if !is_token(&filter) || !is_token(group) {
                return Err(NatsError::Token);
            }
            if filter.len() + group.len() + LINE_REST_BYTES > limits.control_line_bytes_max {
                return Err(NatsError::Unsendable);
            }
            out.write(b"SUB ");
            out.write(&filter);
            if let Some(group) = &queue_group {
                out.write(b" ");
                out.write(group);
            }
            write_number(sid, out);
            out.write(b"\r\n");
            Ok(())
        }
        ClientOperation::Unsubscribe { sid, max_messages } => {
            out.write(b"UNSUB");
            write_number(sid, out);
            max_messages.into_iter().for_each(|max| write_number(max, out));
            out.write(b"\r\n");
            Ok(())
        }
        ClientOperation::Ping => written(b"PING\r\n", out),
        ClientOperation::Pong => written(b"PONG\r\n", out),
    }
}

pub(crate) fn write_server_operation(
    operation: ServerOperation,
    limits: &ProtocolLimits,
    out: &mut Output<'_>,
) -> Result<(), NatsError> {
    match operation {
        ServerOperation::Info(json) => write_text(b"INFO ", &json, b"\r\n", limits, out),
        ServerOperation::Message(sid, message) => {
            if !is_token(&sid) {
                return Err(NatsError::Token);
            }
            message.write("MSG", Some(&sid), limits, out)
        }
        ServerOperation::Ping => written(b"PING\r\n", out),
        ServerOperation::Pong => written(b"PONG\r\n", out),
        ServerOperation::Ok => written(b"+OK\r\n", out),
        ServerOperation::Err(text) => write_text(b"-ERR '", &text, b"'\r\n", limits, out),
        ServerOperation::Encoded(line, body) => {
            out.write(&line);
            if body.len() < tidegate_buffer::LINK_BYTES_MIN {
                out.write(&body);
            } else {
                out.link_bytes(body);
            }
            Ok(())
        }
    }
}

fn write_text(
    name: &[u8],
    text: &[u8],
    end: &[u8],
    limits: &ProtocolLimits,
    out: &mut Output<'_>,
) -> Result<(), NatsError> {
    if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(NatsError::LineBreak);
    }
    if name.len() + text.len() > limits.json_bytes_max {
        return Err(NatsError::Unsendable);
    }
    out.write(name);
    out.write(text);
    out.write(end);
    Ok(())
}

fn write_number(number: u64, out: &mut Output<'_>) {
    out.write(b" ");
    out.write(itoa::Buffer::new().format(number).as_bytes());
}

fn written(bytes: &'static [u8], out: &mut Output<'_>) -> Result<(), NatsError> {
    out.write(bytes);
    Ok(())
}

/// The bytes of a line beside its subjects: name, numbers, spaces.
const LINE_REST_BYTES: usize = 64;
