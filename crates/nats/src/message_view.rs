//! `MessageView`: a message in the bytes in which it came, for PUB, HPUB, MSG and HMSG.

use std::ops::Range;

use bytes::Bytes;
use tidegate_buffer::Slice;

use crate::error::NatsError;
use crate::headers::HeadersView;
use crate::limits::ProtocolLimits;
use crate::line::{self, Part};

/// A message as it was received: a view of its operation. Nothing is copied.
#[derive(Clone)]
pub struct MessageView {
    wire: Slice,
    head: MessageHead,
}

/// Where the parts of a message stand, from the start of its line.
#[derive(Debug, Clone)]
pub(crate) struct MessageHead {
    subject: Range<u32>,
    /// Empty in PUB and HPUB.
    sid: Range<u32>,
    /// Empty if there is none.
    reply: Range<u32>,
    /// Where the headers begin, the payload begins, and the payload ends.
    headers: u32,
    payload: u32,
    end: u32,
}

impl MessageHead {
    /// Reads the arguments of a line. `next` is where the bytes behind the line begin.
    pub(crate) fn read(
        line: &[u8],
        from: usize,
        next: usize,
        form: MessageForm,
        limits: &ProtocolLimits,
    ) -> Result<Self, NatsError> {
        let fixed = 2 + usize::from(form.has_sid) + usize::from(form.has_headers);
        let (parts, count) = line::arguments::<5>(line, from, fixed)?;
        if count > fixed + 1 {
            return Err(NatsError::Arguments);
        }
        let sizes = count - 1 - usize::from(form.has_headers);
        let (sid, behind) = if form.has_sid { (parts[1].clone(), 2) } else { (0..0, 1) };
        let reply = if behind < sizes { parts[behind].clone() } else { 0..0 };
        let bytes = line::number(&line[parts[count - 1].clone()])?;
        if bytes > limits.payload_bytes_max {
            return Err(NatsError::PayloadTooLong { bytes_max: limits.payload_bytes_max });
        }
        let headers = if form.has_headers { line::number(&line[parts[sizes].clone()])? } else { 0 };
        if headers > bytes {
            return Err(NatsError::HeadersBeyondMessage);
        }
        if headers > limits.headers_bytes_max {
            return Err(NatsError::HeadersTooLong { bytes_max: limits.headers_bytes_max });
        }
        let (subject, sid, reply) = (short(&parts[0]), short(&sid), short(&reply));
        let (payload, end) = ((next + headers) as u32, (next + bytes) as u32);
        Ok(Self { subject, sid, reply, headers: next as u32, payload, end })
    }

    /// The bytes of the whole operation.
    pub(crate) const fn bytes(&self) -> usize {
        self.end as usize + 2
    }

    /// Whether the operation is complete.
    pub(crate) fn is_complete(&self, bytes: &[u8]) -> Result<bool, NatsError> {
        let end = self.end as usize;
        match bytes.get(end..) {
            None | Some([] | [b'\r']) => Ok(false),
            Some([b'\r', b'\n', ..]) => Ok(true),
            Some(_) => Err(NatsError::PayloadEnd),
        }
    }
}

/// The arguments of an operation with a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageForm {
    pub(crate) has_sid: bool,
    pub(crate) has_headers: bool,
}

impl MessageView {
    pub(crate) const fn new(wire: Slice, head: MessageHead) -> Self {
        Self { wire, head }
    }

    /// The subject to which it was published.
    #[must_use]
    pub fn subject(&self) -> &[u8] {
        self.part(&self.head.subject)
    }

    /// The subject for replies.
    #[must_use]
    pub fn reply(&self) -> Option<&[u8]> {
        Some(self.part(&self.head.reply)).filter(|reply| !reply.is_empty())
    }

    /// The ID of the subscription; empty in a message that a client publishes.
    #[must_use]
    pub fn sid(&self) -> &[u8] {
        self.part(&self.head.sid)
    }

    /// The header block; `None` if the message has none.
    #[must_use]
    pub fn headers(&self) -> Option<HeadersView<'_>> {
        Some(self.header_block()).filter(|block| !block.is_empty()).map(HeadersView::new)
    }

    /// The bytes of the header block; empty if there is none.
    #[must_use]
    pub fn header_block(&self) -> &[u8] {
        self.part(&(self.head.headers..self.head.payload))
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.part(&(self.head.payload..self.head.end))
    }

    /// The bytes of headers and payload, which `max_payload` bounds.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        (self.head.end - self.head.headers) as usize
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        self.wire.to_bytes()
    }

    pub(crate) fn subject_range(&self) -> Range<usize> {
        long(&self.head.subject)
    }

    pub(crate) fn reply_range(&self) -> Range<usize> {
        long(&self.head.reply)
    }

    pub(crate) const fn headers_range(&self) -> Range<usize> {
        self.head.headers as usize..self.head.payload as usize
    }

    pub(crate) const fn payload_range(&self) -> Range<usize> {
        self.head.payload as usize..self.head.end as usize
    }

    /// Headers, payload and the CR LF behind them, copied once for other threads.
    pub(crate) fn body(&self) -> Bytes {
        self.wire.slice(self.head.headers as usize..self.head.bytes()).to_bytes()
    }

    fn part(&self, range: &Range<u32>) -> &[u8] {
        &self.wire[range.start as usize..range.end as usize]
    }
}

impl std::fmt::Debug for MessageView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageView")
            .field("subject", &self.subject().escape_ascii().to_string())
            .field("sid", &self.sid().escape_ascii().to_string())
            .field("reply", &self.reply().map(|reply| reply.escape_ascii().to_string()))
            .field("headers", &self.header_block().escape_ascii().to_string())
            .field("payload", &self.payload().escape_ascii().to_string())
            .finish()
    }
}

fn short(part: &Part) -> Range<u32> {
    part.start as u32..part.end as u32
}

const fn long(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
