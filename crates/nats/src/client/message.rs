//! `Message`: a message that the client has received, for any thread.

use bytes::Bytes;

use crate::headers::Headers;
use crate::message_view::MessageView;

/// A message that the client has received. Its parts share one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The subject to which it was published.
    pub subject: Bytes,
    /// The subject for replies.
    pub reply: Option<Bytes>,
    /// Its headers; `None` if it has none.
    pub headers: Option<Headers>,
    /// Its payload.
    pub payload: Bytes,
}

impl Message {
    /// The status of the headers, such as 503 for *no responders*.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.headers.as_ref().and_then(Headers::status)
    }

    /// The bytes that it counts against bounds.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| headers.as_bytes().len());
        self.subject.len() + self.reply.as_ref().map_or(0, Bytes::len) + headers + self.payload.len() + MESSAGE_BYTES
    }
}

impl From<&MessageView> for Message {
    /// It copies once.
    fn from(view: &MessageView) -> Self {
        let all = view.to_bytes();
        let part = |part: std::ops::Range<usize>| all.slice(part);
        let headers = Some(part(view.headers_range())).filter(|block| !block.is_empty()).map(Headers::from_block);
        let reply = Some(part(view.reply_range())).filter(|reply| !reply.is_empty());
        Self { subject: part(view.subject_range()), reply, headers, payload: part(view.payload_range()) }
    }
}

/// The memory of a message beside its bytes.
const MESSAGE_BYTES: usize = size_of::<Message>();
