//! Transactions: MULTI, commands and EXEC as one group, which is sent whole or not at all.

use crate::client::error::{ClientError, ErrorReply, Failure, WrongType};
use crate::client::handle::{Client, ReplyFuture};
use crate::client::pending::{CommandGroup, PendingCommand};
use crate::client::slot::reply_slot;
use crate::outgoing_command::CommandBuffer;
use crate::owned::OwnedValue;

impl Client {
    /// Executes commands as a transaction. No other command of this client comes between them, so that it needs a
    /// [connection of its own](Self::dedicated) only for WATCH before it.
    ///
    /// In a cluster all keys belong to one slot.
    ///
    /// Returns the replies, errors of single commands among them; `None` if a watched key has changed.
    ///
    /// # Errors
    /// [`ClientError`]. If the server refuses a command when it is queued, it executes none, and the error is that of EXEC.
    pub async fn transaction(
        &self,
        commands: impl IntoIterator<Item = CommandBuffer>,
    ) -> Result<Option<Vec<OwnedValue>>, ClientError> {
        let mut group: Vec<_> = commands.into_iter().collect();
        group.push(CommandBuffer::new("EXEC"));
        if group.len() >= self.handle.limits.commands_max {
            return Err(ClientError::NotSent(Failure::QueueFull));
        }
        let reply = self.send_group(CommandBuffer::new("MULTI"), group).await?;
        let OwnedValue::Aggregate(_, mut replies) = reply else { return Err(NO_TRANSACTION) };
        match replies.pop() {
            Some(OwnedValue::Null) => Ok(None),
            Some(OwnedValue::Aggregate(_, results)) => Ok(Some(results)),
            Some(OwnedValue::Error(text) | OwnedValue::BulkError(text)) => {
                Err(ClientError::Reply(ErrorReply::new(text)))
            }
            _ => Err(NO_TRANSACTION),
        }
    }

    fn send_group(&self, first: CommandBuffer, rest: Vec<CommandBuffer>) -> ReplyFuture {
        let (slot, waiting) = reply_slot();
        let bytes = first.memory() + rest.iter().map(CommandBuffer::memory).sum::<usize>();
        let commands = rest.len() + 1;
        // EXEC, the last one, has no key.
        let route = self.handle.route(rest.iter().take(rest.len().saturating_sub(1)), None);
        self.handle.push(
            route,
            PendingCommand {
                wire: Some(first),
                charge: bytes + commands * size_of::<PendingCommand>(),
                timeout: self.handle.timeout,
                deadline: None,
                is_idempotent: false,
                is_detached: false,
                slot: Some(slot.into()),
                is_sent: false,
                cache_key: None,
                group: Some(Box::new(CommandGroup { commands, rest, replies: Vec::new() })),
                is_counted: false,
                route: None,
            },
        );
        ReplyFuture::new(waiting, self.clone())
    }
}

const NO_TRANSACTION: ClientError = ClientError::Type(WrongType { expected: "transaction" });
