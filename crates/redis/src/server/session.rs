//! `Session`: the state of one connection of a server, and the commands that show or change it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_codec::Broadcast;
use tidegate_engine::Context;

use crate::command::Command;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::channels::{ChannelPost, Channels, SubscriberInfo};
use crate::server::config::HandlerConfig;
use crate::server::connection_commands::{self, ConnectionCommand, Identity};
use crate::server::queue::ReplyQueue;
use crate::server::service::CallContext;
use crate::server::subcommands;
use crate::server::subscriptions::Subscriptions;
use crate::server::transaction::TransactionQueue;

/// The state of a connection.
pub(super) struct Session<C> {
    pub(super) config: Arc<HandlerConfig>,
    pub(super) channels: Channels<C>,
    pub(super) client_id: u64,
    pub(super) version: Version,
    pub(super) is_authenticated: bool,
    /// No bound, transaction, queue or subscription changes the effect of a command.
    pub(super) is_plain: bool,
    /// The connection closes once the queue is empty.
    pub(super) is_closing: bool,
    /// The last reply of the queue is one that the commands behind it wait for.
    pub(super) is_blocked: bool,
    pub(super) more: Option<Box<OptionalState>>,
}

/// Optional state, boxed to keep idle connections small.
#[derive(Debug, Default)]
pub(super) struct OptionalState {
    name: Bytes,
    pub(super) subscriptions: Subscriptions,
    pub(super) transaction: Option<TransactionQueue>,
    pub(super) queue: ReplyQueue,
    /// The command that waits until the queue is empty.
    pub(super) held: Option<Command>,
}

impl<C: Broadcast> Session<C> {
    pub(super) fn new(config: Arc<HandlerConfig>, channels: Channels<C>) -> Self {
        let is_authenticated = config.password.is_none();
        Self {
            config,
            channels,
            client_id: CLIENTS.fetch_add(1, Ordering::Relaxed),
            version: Version::Resp2,
            is_authenticated,
            is_plain: is_authenticated,
            is_closing: false,
            is_blocked: false,
            more: None,
        }
    }

    pub(super) fn context(&self, cx: &Context<'_, C, ChannelPost>) -> CallContext {
        CallContext { now: cx.now(), version: self.version, client_id: self.client_id }
    }

    /// The connection as a subscriber.
    pub(super) fn subscriber(&self) -> SubscriberInfo {
        SubscriberInfo { client_id: self.client_id, version: self.version }
    }

    pub(super) fn more(&mut self) -> &mut OptionalState {
        self.more.get_or_insert_default()
    }

    pub(super) fn has_queue(&self) -> bool {
        self.more.as_deref().is_some_and(|more| !more.queue.is_empty())
    }

    /// No further command is decoded until replies have left.
    pub(super) fn has_full_queue(&self) -> bool {
        self.more.as_deref().is_some_and(|more| {
            more.queue.len() >= self.config.queued_replies_max || more.queue.bytes() >= self.config.queued_bytes_max
        })
    }

    /// Finds out again whether the connection is in its usual state.
    pub(super) fn settle(&mut self) {
        let is_resp3 = self.version == Version::Resp3;
        let is_usual = self.more.as_deref().is_none_or(|more| {
            more.transaction.is_none()
                && more.queue.is_empty()
                && more.held.is_none()
                && (is_resp3 || more.subscriptions.is_empty())
        });
        self.is_plain = self.is_authenticated && !self.is_closing && is_usual;
    }

    /// A command was refused: a transaction that is open fails.
    pub(super) fn break_transaction(&mut self) {
        if let Some(transaction) = self.more.as_deref_mut().and_then(|more| more.transaction.as_mut()) {
            transaction.is_broken = true;
        }
    }

    /// Executes a command that a transaction may have as well.
    pub(super) fn execute(
        &mut self,
        what: ConnectionCommand,
        command: &Command,
        cx: &mut Context<'_, C, ChannelPost>,
    ) -> OutgoingReply {
        if let Err(error) = what.check(command) {
            return error;
        }
        match what {
            ConnectionCommand::Auth => {
                match connection_commands::authenticate(command, self.config.password.as_deref()) {
                    Ok(()) => {
                        self.is_authenticated = true;
                        OutgoingReply::All(vec![OutgoingReply::Restricted(false), OutgoingReply::ok()])
                    }
                    Err(error) => error,
                }
            }
            ConnectionCommand::Client => {
                let context = self.context(cx);
                let is_naming = self.more.is_some() || subcommands::names_client(command);
                let mut unnamed = Bytes::new();
                let name = if is_naming { &mut self.more().name } else { &mut unnamed };
                subcommands::client(command, name, &context)
            }
            ConnectionCommand::Hello => self.hello(command, cx),
            ConnectionCommand::Publish | ConnectionCommand::Pubsub => {
                match subcommands::check_names(what, command, &self.config) {
                    Ok(()) => connection_commands::reply(what, command, &self.identity(), &self.channels),
                    Err(error) => error,
                }
            }
            what => connection_commands::reply(what, command, &self.identity(), &self.channels),
        }
    }

    fn identity(&self) -> Identity {
        Identity { server_version: self.config.server_version, client_id: self.client_id, version: self.version }
    }

    fn hello(&mut self, command: &Command, cx: &mut Context<'_, C, ChannelPost>) -> OutgoingReply {
        let hello = connection_commands::hello(command, self.config.password.as_deref(), self.is_authenticated);
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => return error,
        };
        self.is_authenticated = true;
        if let Some(name) = hello.name {
            self.more().name = name;
        }
        if let Some(version) = hello.version.filter(|version| *version != self.version) {
            self.version = version;
            if let Some(more) = &mut self.more {
                more.subscriptions.change_version(
                    SubscriberInfo { client_id: self.client_id, version },
                    &self.channels,
                    cx,
                );
            }
        }
        self.identity().hello()
    }
}

impl<C> fmt::Debug for Session<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("version", &self.version).field("more", &self.more).finish_non_exhaustive()
    }
}

/// The number of the next connection, of all servers of this process.
static CLIENTS: AtomicU64 = AtomicU64::new(1);
