//! `ServerCodec` and `ClientCodec`: messages on a stream, each behind its length in two bytes (RFC 1035 §4.2.2, RFC 7766).

use tidegate_codec::{Codec, Input, Output, Step};

use crate::error::DnsError;
use crate::header::{HEADER_BYTES, Header};
use crate::limits::ProtocolLimits;
use crate::message_view::{Message, MessageView};
use crate::message_writer::{EncodedMessage, MessageWriter};
use crate::numbers::ResponseCode;

/// The codec of a server, for TCP and TLS: queries in, responses out.
///
/// The codec itself answers a message that has a header and is malformed, with FORMERR, and goes on. It closes the
/// connection on a length that no message has and on a response.
///
/// ```
/// use tidegate::dns::{Header, MessageWriter, Question, RecordType, ServerCodec};
/// use tidegate_testkit::CodecHarness;
///
/// let question = Question::new("tides.example".parse()?, RecordType::A);
/// let query = MessageWriter::new(Header::query(7)).question(&question)?.finish();
/// let mut server = CodecHarness::new(ServerCodec::default());
/// let wire = [&(query.len() as u16).to_be_bytes(), &query[..]].concat();
/// let queries = server.decode(&wire)?;
/// assert_eq!(queries[0].view().question().expect("it has one").to_question(), question);
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerCodec {
    limits: ProtocolLimits,
}

/// The codec of a client, for TCP and TLS: responses in, queries out. A malformed response is an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientCodec {
    limits: ProtocolLimits,
}

impl ServerCodec {
    /// A codec with these limits.
    #[must_use]
    pub const fn new(limits: ProtocolLimits) -> Self {
        Self { limits }
    }
}

impl ClientCodec {
    /// A codec with these limits.
    #[must_use]
    pub const fn new(limits: ProtocolLimits) -> Self {
        Self { limits }
    }
}

/// The length of the next message, if it is there as a whole.
fn message_length(input: &Input, limits: &ProtocolLimits) -> Result<Option<usize>, DnsError> {
    let &[high, low, ref rest @ ..] = input.bytes() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < HEADER_BYTES {
        return Err(DnsError::Truncated);
    }
    if length > limits.message_bytes_max {
        return Err(DnsError::MessageTooLong { bytes_max: limits.message_bytes_max });
    }
    Ok((rest.len() >= length).then_some(length))
}

fn write(message: &EncodedMessage, limits: &ProtocolLimits, out: &mut Output<'_>) -> Result<(), DnsError> {
    let length = u16::try_from(message.len()).map_err(|_| DnsError::Full)?;
    if message.len() > limits.message_bytes_max {
        return Err(DnsError::Full);
    }
    out.write(&length.to_be_bytes());
    out.link_bytes(message.clone().into_bytes());
    Ok(())
}

impl Codec for ServerCodec {
    type In = Message;
    type Out = EncodedMessage;
    type Error = DnsError;

    fn protocol(&self) -> &'static str {
        "DNS"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, DnsError> {
        while let Some(length) = message_length(input, &self.limits)? {
            input.consume(2);
            let wire = input.take(length);
            let header = MessageView::header_of(&wire).ok_or(DnsError::Truncated)?;
            if header.is_response {
                return Err(DnsError::Direction);
            }
            match Message::parse(wire, &self.limits) {
                Ok(message) => return Ok(Step::Message(message)),
                Err(_) => write(&format_error(&header), &self.limits, reply)?,
            }
        }
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, message: EncodedMessage, out: &mut Output<'_>) -> Result<(), DnsError> {
        write(&message, &self.limits, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, DnsError> {
        let step = self.decode(input, reply)?;
        at_eof(step, input)
    }
}

/// The response to a message of which only the header could be read.
#[must_use]
pub fn format_error(header: &Header) -> EncodedMessage {
    MessageWriter::new(header.response(ResponseCode::FORMERR)).finish()
}

impl Codec for ClientCodec {
    type In = Message;
    type Out = EncodedMessage;
    type Error = DnsError;

    fn protocol(&self) -> &'static str {
        "DNS"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Message>, DnsError> {
        let Some(length) = message_length(input, &self.limits)? else { return Ok(Step::NeedMore) };
        input.consume(2);
        let message = Message::parse(input.take(length), &self.limits)?;
        if !message.view().header().is_response {
            return Err(DnsError::Direction);
        }
        Ok(Step::Message(message))
    }

    fn encode(&mut self, message: EncodedMessage, out: &mut Output<'_>) -> Result<(), DnsError> {
        write(&message, &self.limits, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, DnsError> {
        let step = self.decode(input, reply)?;
        at_eof(step, input)
    }
}

fn at_eof(step: Step<Message>, input: &Input) -> Result<Step<Message>, DnsError> {
    match step {
        Step::NeedMore if input.is_empty() => Ok(Step::End),
        Step::NeedMore => Err(DnsError::TruncatedStream),
        step => Ok(step),
    }
}
