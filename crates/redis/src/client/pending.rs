//! `PendingCommand`: a command with the place of its result, until it has one.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::client::error::{ClientError, Failure};
use crate::client::reply_sink::ResultSlot;
use crate::client::slot::CommandResult;
use crate::outgoing_command::CommandBuffer;
use crate::owned::OwnedValue;

/// A command with the place of its result.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    /// `None` once it was sent, unless it may be sent again.
    pub(crate) wire: Option<CommandBuffer>,
    pub(crate) charge: usize,
    pub(crate) timeout: Duration,
    /// `None` until the loop has seen it: only the loop knows the time.
    pub(crate) deadline: Option<Instant>,
    /// It has no effect if it is executed twice.
    pub(crate) is_idempotent: bool,
    /// It is sent even if nothing waits for its result.
    pub(crate) is_detached: bool,
    /// `None` once it has its result.
    pub(crate) slot: Option<ResultSlot>,
    /// It was sent, over this connection or an earlier one.
    pub(crate) is_sent: bool,
    /// The cache keeps the reply under this key.
    pub(crate) cache_key: Option<Bytes>,
    /// Commands that follow it at once.
    pub(crate) group: Option<Box<CommandGroup>>,
    /// It was counted when it entered its first queue.
    pub(crate) is_counted: bool,
    /// The client has several servers.
    pub(crate) route: Option<CommandRoute>,
}

/// Which server of several a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandRoute {
    /// The slot of its keys; none if any server will do.
    pub(crate) slot: Option<u16>,
    /// A replica may answer.
    pub(crate) may_use_replica: bool,
    /// ASKING comes before it.
    pub(crate) is_asking: bool,
    /// How often it was redirected.
    pub(crate) redirects: u8,
}

/// Commands that are sent together with the one before them, or not at all. All have one result, an array.
#[derive(Debug, Clone)]
pub(crate) struct CommandGroup {
    /// How many commands there are, with the first.
    pub(crate) commands: usize,
    /// Those behind the first, until they are sent.
    pub(crate) rest: Vec<CommandBuffer>,
    pub(crate) replies: Vec<OwnedValue>,
}

impl PendingCommand {
    /// The bytes to send. They stay here if they may be sent again.
    pub(crate) fn take_wire(&mut self) -> Option<CommandBuffer> {
        if self.is_idempotent || self.route.is_some() { self.wire.clone() } else { self.wire.take() }
    }

    /// The commands that follow at once, as [`take_wire`](Self::take_wire).
    pub(crate) fn take_rest(&mut self) -> Vec<CommandBuffer> {
        let keeps = self.route.is_some();
        let rest = |group: &mut Box<CommandGroup>| {
            if keeps { group.rest.clone() } else { std::mem::take(&mut group.rest) }
        };
        self.group.as_mut().map(rest).unwrap_or_default()
    }

    pub(crate) fn finish(mut self, result: CommandResult) {
        if let Some(slot) = self.slot.take() {
            slot.finish(result);
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        !self.is_detached && self.slot.as_ref().is_none_or(ResultSlot::is_abandoned)
    }

    pub(crate) fn fail(self, failure: Failure) {
        let error = if self.is_sent { ClientError::MaybeExecuted } else { ClientError::NotSent };
        self.finish(Err(error(failure)));
    }
}

impl Drop for PendingCommand {
    /// A command that is dropped with its loop has a result as well.
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let error = if self.is_sent { ClientError::MaybeExecuted } else { ClientError::NotSent };
            slot.finish(Err(error(Failure::LoopEnded)));
        }
    }
}
