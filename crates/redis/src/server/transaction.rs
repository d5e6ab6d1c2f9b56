//! `Transaction`: the commands between MULTI and EXEC.

use std::fmt;

use crate::command::Command;
use crate::outgoing_reply::OutgoingReply;
use crate::server::service::{Answer, CallContext};
use crate::token::AggregateKind;

/// Commands that EXEC executes without a command of another connection between them.
///
/// A [`Service`](crate::Service) locks its data, and calls [`run`](Self::run) or [`abort`](Self::abort).
pub struct Transaction<'a> {
    pub(super) commands: &'a [Command],
    pub(super) context: CallContext,
    /// Executes a command that the service does not know.
    pub(super) otherwise: &'a mut dyn FnMut(&Command) -> OutgoingReply,
}

impl Transaction<'_> {
    /// The connection, and the time of this turn.
    #[must_use]
    pub fn context(&self) -> &CallContext {
        &self.context
    }

    /// Executes the commands, each with `call`, and returns the array of their replies.
    pub fn run(self, mut call: impl FnMut(&Command, &CallContext) -> Answer) -> OutgoingReply {
        let mut all = vec![OutgoingReply::Aggregate(AggregateKind::Array, self.commands.len() as u64)];
        for command in self.commands {
            let reply = match call(command, &self.context) {
                Answer::Reply(reply) => reply,
                Answer::Later(_) | Answer::Blocking(_) => {
                    OutgoingReply::error("ERR this command cannot be executed in a transaction")
                }
                Answer::Unknown => (self.otherwise)(command),
            };
            match reply {
                OutgoingReply::All(parts) => all.extend(parts),
                reply => all.push(reply),
            }
        }
        OutgoingReply::All(all)
    }

    /// Executes nothing, since a watched value has changed.
    #[must_use]
    pub fn abort(self) -> OutgoingReply {
        OutgoingReply::NullArray
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("commands", &self.commands).finish_non_exhaustive()
    }
}

/// The commands that wait for EXEC.
#[derive(Debug, Default)]
pub(super) struct TransactionQueue {
    pub(super) commands: Vec<Command>,
    pub(super) bytes: usize,
    /// A command was refused: EXEC fails.
    pub(super) is_broken: bool,
}
