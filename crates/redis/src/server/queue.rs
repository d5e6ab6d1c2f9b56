//! `ReplyQueue`: replies in the order of their commands, whichever is ready first.

use std::collections::VecDeque;

use tidegate_engine::task::HandlerTask;

use crate::outgoing_reply::OutgoingReply;

/// Replies behind one that is not ready, and that one.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue(VecDeque<QueuedReply>);

#[derive(Debug)]
pub(super) enum QueuedReply {
    /// It is ready.
    Ready(OutgoingReply),
    /// Its task runs.
    Task(HandlerTask<OutgoingReply>),
}

impl ReplyQueue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, reply: QueuedReply) {
        self.0.push_back(reply);
    }

    /// The first one, unless its task still runs.
    pub(super) fn pop(&mut self) -> Option<QueuedReply> {
        match self.0.front_mut()? {
            QueuedReply::Task(task) if !task.is_finished() => None,
            QueuedReply::Task(task) => {
                let reply = task.take_output();
                self.0.pop_front();
                // A task that panicked has no reply; the loop has logged it.
                Some(QueuedReply::Ready(reply.unwrap_or_else(|| OutgoingReply::error("ERR internal error"))))
            }
            _ => self.0.pop_front(),
        }
    }
}
