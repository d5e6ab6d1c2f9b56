//! `Service`: the application that executes commands.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use crate::command::Command;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::transaction::Transaction;

/// The application behind a [`Handler`](crate::Handler): one for each connection.
///
/// ```
/// use tidegate::redis::{Answer, CallContext, Command, Handler, OutgoingReply, Service, error_for_count};
/// use tidegate_testkit::Embedded;
///
/// /// Knows one command.
/// struct Level;
///
/// impl Service for Level {
///     fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
///         match command.name() {
///             b"LEVEL" if command.count() == 2 => Answer::Reply(OutgoingReply::Integer(412)),
///             b"LEVEL" => Answer::Reply(error_for_count(command)),
///             _ => Answer::Unknown,
///         }
///     }
/// }
///
/// let mut pipe = Embedded::new(tidegate::redis::ServerCodec::default(), Handler::new(Level));
/// pipe.receive(b"LEVEL brest\r\nPING\r\n");
/// assert_eq!(pipe.take_written(), b":412\r\n+PONG\r\n");
/// ```
pub trait Service: 'static {
    /// Executes a command. It is called before the handler looks for a command of its own, so that a service may replace
    /// those. It is not called for MULTI, EXEC, DISCARD, SUBSCRIBE and the like, HELLO, AUTH, QUIT and RESET.
    fn call(&mut self, command: &Command, cx: &CallContext) -> Answer;

    /// Whether a command may be queued in a transaction: `Ok(true)` if the service knows it, an error to send if its
    /// arguments cannot be right.
    ///
    /// # Errors
    /// The reply in the place of `QUEUED`. EXEC fails later.
    fn check(&self, _command: &Command) -> Result<bool, OutgoingReply> {
        Ok(true)
    }

    /// Executes a transaction: by default without anything that other connections could not come between.
    fn exec(&mut self, transaction: Transaction<'_>) -> OutgoingReply {
        transaction.run(|command, cx| self.call(command, cx))
    }

    /// The transaction was discarded, or the connection was reset: nothing is watched any more.
    fn discard(&mut self) {}
}

/// The connection of a command.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallContext {
    /// The time of this turn.
    pub now: Instant,
    /// The version that the client has negotiated.
    pub version: Version,
    /// The number of the connection in this process, as in the reply to `CLIENT ID`.
    pub client_id: u64,
}

/// The result of a command.
#[non_exhaustive]
pub enum Answer {
    /// The reply.
    Reply(OutgoingReply),
    /// The reply comes later. Commands that follow go on, and their replies wait. Within a transaction it is an error.
    Later(Pin<Box<dyn Future<Output = OutgoingReply>>>),
    /// The reply comes later, and commands behind it are executed after it, as behind BLPOP. When the client ends its
    /// stream, or the server drains, the future is dropped and the connection closes: no value goes to a client that has
    /// left. Within a transaction it is an error.
    Blocking(Pin<Box<dyn Future<Output = OutgoingReply>>>),
    /// The service does not know the command.
    Unknown,
}

impl Answer {
    /// A reply that comes later.
    pub fn later(reply: impl Future<Output = OutgoingReply> + 'static) -> Self {
        Self::Later(Box::pin(reply))
    }

    /// A reply that comes later, and that the commands behind it wait for.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::redis::{Answer, CallContext, Command, Handler, OutgoingReply, ServerCodec, Service};
    /// use tidegate::task;
    /// use tidegate_testkit::Embedded;
    ///
    /// struct Pauses;
    ///
    /// impl Service for Pauses {
    ///     fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
    ///         match command.name() {
    ///             b"WAIT" => Answer::blocking(async {
    ///                 task::sleep(Duration::from_secs(1)).await;
    ///                 OutgoingReply::Null
    ///             }),
    ///             _ => Answer::Unknown,
    ///         }
    ///     }
    /// }
    ///
    /// let mut pipe = Embedded::new(ServerCodec::default(), Handler::new(Pauses));
    /// pipe.receive(b"WAIT\r\nPING\r\n");
    /// assert_eq!(pipe.take_written(), b"");
    /// pipe.advance(Duration::from_secs(1));
    /// assert_eq!(pipe.take_written(), b"$-1\r\n+PONG\r\n");
    /// ```
    pub fn blocking(reply: impl Future<Output = OutgoingReply> + 'static) -> Self {
        Self::Blocking(Box::pin(reply))
    }
}

impl From<OutgoingReply> for Answer {
    fn from(reply: OutgoingReply) -> Self {
        Self::Reply(reply)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => f.debug_tuple("Reply").field(reply).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
            Self::Blocking(_) => f.write_str("Blocking(..)"),
            Self::Unknown => f.write_str("Unknown"),
        }
    }
}

/// The error of Redis for a command with too few or too many arguments.
#[must_use]
pub fn error_for_count(command: &Command) -> OutgoingReply {
    let name = on_one_line(command.name()).to_ascii_lowercase();
    OutgoingReply::error(format!("ERR wrong number of arguments for '{name}' command"))
}

/// The error of Redis for a command that the server does not have.
#[must_use]
pub fn error_for_unknown(command: &Command) -> OutgoingReply {
    let mut arguments = String::new();
    for argument in command.arguments() {
        if arguments.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let room = QUOTED_BYTES_MAX - arguments.len();
        arguments += &format!("'{}' ", on_one_line(&argument[..argument.len().min(room)]));
    }
    let name = on_one_line(command.name());
    OutgoingReply::error(format!("ERR unknown command '{name}', with args beginning with: {arguments}"))
}

/// At most 128 bytes, as text without line breaks, up to the first zero byte as in Redis.
pub(super) fn on_one_line(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(QUOTED_BYTES_MAX)];
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

const QUOTED_BYTES_MAX: usize = 128;
