//! `ReplyQueue`: replies in the order of their commands, whichever is ready first.

use std::collections::VecDeque;

use tidegate_engine::task::HandlerTask;

use crate::outgoing_reply::OutgoingReply;

/// Replies behind one that is not ready, and that one.
///
/// Invariant: `bytes` is the memory of those that are `Ready`.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    replies: VecDeque<QueuedReply>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) enum QueuedReply {
    /// It is ready.
    Ready(OutgoingReply),
    /// Its task runs.
    Task(HandlerTask<OutgoingReply>),
}

impl ReplyQueue {
    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// The memory of the replies that are ready.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn push(&mut self, reply: QueuedReply) {
        if let QueuedReply::Ready(reply) = &reply {
            self.bytes += reply.memory();
        }
        self.replies.push_back(reply);
    }

    /// The first one, unless its task still runs.
    pub(super) fn pop(&mut self) -> Option<OutgoingReply> {
        match self.replies.front_mut()? {
            QueuedReply::Task(task) if !task.is_finished() => None,
            QueuedReply::Task(task) => {
                let reply = output(task);
                self.replies.pop_front();
                Some(reply)
            }
            QueuedReply::Ready(_) => {
                let Some(QueuedReply::Ready(reply)) = self.replies.pop_front() else { return None };
                self.bytes -= reply.memory();
                Some(reply)
            }
        }
    }

    /// Removes the last one if its task still runs, and drops the future.
    pub(super) fn cancel_last(&mut self) {
        if matches!(self.replies.back(), Some(QueuedReply::Task(task)) if !task.is_finished()) {
            self.replies.pop_back();
        }
    }

    /// Counts the replies of tasks that have finished before the first one.
    pub(super) fn count_finished(&mut self) {
        for queued in &mut self.replies {
            if let QueuedReply::Task(task) = queued
                && task.is_finished()
            {
                let reply = output(task);
                self.bytes += reply.memory();
                *queued = QueuedReply::Ready(reply);
            }
        }
    }
}

/// A task that panicked has no reply; the loop has logged it.
fn output(task: &mut HandlerTask<OutgoingReply>) -> OutgoingReply {
    task.take_output().unwrap_or_else(|| OutgoingReply::error("ERR internal error"))
}
