//! `PendingInput`: how far a codec has read the operation at hand.

use tidegate_buffer::ReceiveHint;
use tidegate_codec::{Input, Step};

use crate::error::NatsError;
use crate::message_view::{MessageHead, MessageView};

/// How far the operation at hand is read.
#[derive(Debug, Default)]
pub(crate) struct PendingInput {
    /// No line ends before this byte.
    pub(crate) scanned: usize,
    /// The line of a message is read, and its bytes are awaited.
    pub(crate) message: Option<MessageHead>,
    /// Bytes of that message that are missing.
    missing_bytes: usize,
}

/// A message, or the need of more bytes.
pub(crate) struct MessageStep(Option<MessageView>);

impl MessageStep {
    pub(crate) fn map<T>(self, to: impl FnOnce(MessageView) -> T) -> Step<T> {
        self.0.map_or(Step::NeedMore, |message| Step::Message(to(message)))
    }
}

impl PendingInput {
    /// The message whose line was read; `None` if a line comes next.
    pub(crate) fn take_message(&mut self, input: &mut Input) -> Result<Option<MessageStep>, NatsError> {
        let Some(head) = &self.message else { return Ok(None) };
        if !head.is_complete(input.bytes())? {
            self.missing_bytes = head.bytes().saturating_sub(input.len());
            return Ok(Some(MessageStep(None)));
        }
        self.missing_bytes = 0;
        let Some(head) = self.message.take() else { return Ok(None) };
        let wire = input.take(head.bytes());
        Ok(Some(MessageStep(Some(MessageView::new(wire, head)))))
    }
}

/// The next receive, if a long message is awaited.
pub(crate) fn message_hint(state: &PendingInput) -> Option<ReceiveHint> {
    (state.missing_bytes >= tidegate_buffer::BULK_RECEIVE_BYTES)
        .then(|| ReceiveHint { missing_bytes: state.missing_bytes as u32, ..ReceiveHint::default() })
}
