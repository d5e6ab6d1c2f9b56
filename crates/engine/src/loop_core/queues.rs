//! `DispatchQueues`: entries that a loop dispatches without an event of the driver.
//!
//! Sessions come behind the streams of the same pass: the bytes of all these streams then leave in the same packets.

use std::collections::VecDeque;

use tidegate_sys::Token;

use crate::limits::SCHEDULED_KEPT_MAX;

/// The entries that wait for a dispatch, in four queues.
#[derive(Default)]
pub(crate) struct DispatchQueues {
    /// Connections that requested another dispatch at the end of this pass, or in the next.
    scheduled: VecDeque<Token>,
    /// Sessions, and endpoints with sessions, that were requested to dispatch again behind the scheduled connections.
    sessions: VecDeque<Token>,
    /// Connections whose handlers have requested `Event::DispatchOver`.
    after_dispatch: VecDeque<Token>,
    /// Connections that used up the budget of one dispatch. They are heavy, and continue in the next turn.
    backlog: VecDeque<Token>,
}

impl DispatchQueues {
    /// Requests another dispatch once this pass is over.
    #[inline]
    pub(crate) fn schedule(&mut self, token: Token) {
        self.scheduled.push_back(token);
    }

    pub(crate) fn scheduled_count(&self) -> usize {
        self.scheduled.len()
    }

    pub(crate) fn next_scheduled(&mut self) -> Option<Token> {
        self.scheduled.pop_front()
    }

    /// Requests another dispatch of a session, or of an endpoint with sessions, behind the streams of this pass.
    #[inline]
    pub(crate) fn schedule_session(&mut self, token: Token) {
        if self.sessions.back() != Some(&token) {
            self.sessions.push_back(token);
        }
    }

    pub(crate) fn sessions_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn next_session(&mut self) -> Option<Token> {
        self.sessions.pop_front()
    }

    /// The handler of an entry requests `Event::DispatchOver`.
    pub(crate) fn notify_after_dispatch(&mut self, token: Token) {
        self.after_dispatch.push_back(token);
    }

    /// How many handlers have requested `Event::DispatchOver`.
    pub(crate) fn after_dispatch_count(&self) -> usize {
        self.after_dispatch.len()
    }

    pub(crate) fn next_after_dispatch(&mut self) -> Option<Token> {
        self.after_dispatch.pop_front()
    }

    /// Queues a connection that has more to do than one dispatch may.
    pub(crate) fn continue_later(&mut self, token: Token) {
        self.backlog.push_back(token);
    }

    /// How many connections have more to do.
    pub(crate) fn backlog_count(&self) -> usize {
        self.backlog.len()
    }

    pub(crate) fn next_in_backlog(&mut self) -> Option<Token> {
        self.backlog.pop_front()
    }

    /// Whether an entry waits.
    pub(crate) fn has_entries(&self) -> bool {
        self.scheduled.len() + self.sessions.len() + self.after_dispatch.len() + self.backlog.len() > 0
    }

    /// Frees the memory of queues that are empty, if a broadcast has made them long.
    pub(crate) fn shrink(&mut self) {
        for queue in [&mut self.scheduled, &mut self.sessions, &mut self.after_dispatch, &mut self.backlog] {
            if queue.is_empty() && queue.capacity() > SCHEDULED_KEPT_MAX {
                *queue = VecDeque::new();
            }
        }
    }
}
