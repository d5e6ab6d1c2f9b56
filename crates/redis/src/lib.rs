//! The protocol of Redis: RESP2 and RESP3, in both roles.
//!
//! | for | there is |
//! |---|---|
//! | a server | [`ServerCodec`]: [`IncomingCommand`]s in, [`OutgoingReply`]s out |
//! | a client | [`ClientCodec`]: [`IncomingReply`]s in, [`OutgoingCommand`]s out |
//! | a command, a reply | [`Command`] and [`Reply`]: views of the received bytes; [`OwnedValue`], a copy as a tree |
//! | a server's connection | [`Handler`], and a [`Service`] that executes commands; [`Channels`] of all loops |
//! | a connection to a server, a cluster, a master with sentinels | [`Client`], from any thread; [`FromReply`] converts replies; [`Subscriber`] has messages of channels |
//! | bounds | [`ProtocolLimits`], [`ClientLimits`] |
//! | errors | [`RedisError`], sorted by blame; [`ClientError`], which says whether a command may have been executed |
//!
//! The codecs know neither sockets nor the loop. Only the modules `server` and `client` do.
//!
//! Read next: `token.rs` and `nesting.rs`, which both roles share; then `server_codec.rs` and `client_codec.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `token.rs` | `Token`, the smallest part of a value that is read at once |
//! | `nesting.rs` | `Nesting`: where in a value the next token stands |
//! | `number.rs` | lengths, integers, doubles |
//! | `limits.rs` | `ProtocolLimits` |
//! | `server_codec.rs` | `ServerCodec`, the codec of a server |
//! | `command.rs` | `Command`: the arguments of a command, read in place |
//! | `command_class.rs` | `CommandClass`: which commands may share a connection |
//! | `inline.rs` | inline commands |
//! | `client_codec.rs` | `ClientCodec`, the codec of a client |
//! | `value.rs` | `Reply`, `Value` and `Elements`: a reply read in place |
//! | `owned.rs` | `OwnedValue`, a reply as a tree |
//! | `reply_writer.rs` | `ReplyWriter`: pieces of a reply as bytes again |
//! | `outgoing_reply.rs` | `OutgoingReply`: a server's messages, checked and written |
//! | `outgoing_command.rs` | `OutgoingCommand`: a client's messages |
//! | `error.rs` | errors by blame |
//! | `client/` | `Client`: its handles and calls: `handle.rs`, how it starts: `builder.rs`, `url.rs`, configuration and bounds: `config.rs`; the queue that threads share: `queue.rs`; a command until it has its reply: `pending.rs`; one connection: `connection.rs`, its first commands: `startup.rs`; connecting again: `supervisor.rs`; connections of their own: `dedicated.rs`; transactions: `transaction.rs`; scripts: `script.rs`; iterators: `scan.rs`; a method for each usual command: `typed.rs`; values that the client keeps: `cache.rs`; replies in pieces: `reply_stream.rs`, `reply_sink.rs`, `long_reply.rs`, `reply_budget.rs`; a subscriber: `subscriber.rs`, its names and events: `subscriber_queue.rs`, its connection: `subscription.rs`, names that it may not have: `subscription_refusals.rs`, sharded channels: `sharded.rs`; several servers: which one a command goes to: `router.rs`, one of them: `node.rs`, `servers.rs`, how they are found: `topology.rs`, `sentinel.rs`; slots: `slots.rs`; keys of commands: `command_keys.rs`; MOVED and ASK: `redirect.rs`; numbers for metrics: `counts.rs`; results: `slot.rs`, `error.rs`, `error_kind.rs`, `from_reply.rs` |
//! | `server/` | the application on one connection: `handler.rs`, its state: `session.rs`, its limits: `config.rs`; commands of the connection: `connection_commands.rs`, `subcommands.rs`; the order of replies: `queue.rs`; MULTI: `transaction.rs`; channels: `channels.rs`, `subscriber_groups.rs`, `subscriptions.rs`, `glob.rs`; the trait of applications: `service.rs` |

#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
mod client_codec;
mod command;
mod command_class;
mod error;
mod inline;
mod limits;
mod nesting;
mod number;
mod outgoing_command;
mod outgoing_reply;
mod owned;
mod reply_writer;
#[cfg(feature = "server")]
mod server;
mod server_codec;
mod token;
mod value;

#[cfg(feature = "client")]
pub use client::{
    Argument, BulkStream, Call, ChannelMessage, Client, ClientBuilder, ClientCounts, ClientError, ClientLimits,
    ClientMetric, Dedicated, ErrorKind, ErrorReply, Failure, FromReply, ReplyBudget, ReplyFuture, ReplyPipeline, Scan,
    Script, Subscriber, SubscriberCounts, SubscriberEvent, Subscriptions, TypedCall, TypedReply, WireReply, WrongType,
    slot_of,
};
pub use client_codec::{ClientCodec, IncomingReply, ReplyPiece};
pub use command::{Arguments, Command};
pub use command_class::CommandClass;
pub use error::RedisError;
pub use limits::ProtocolLimits;
pub use outgoing_command::{CommandBuffer, OutgoingCommand};
pub use outgoing_reply::{OutgoingReply, Version};
pub use owned::OwnedValue;
pub use reply_writer::ReplyWriter;
#[cfg(feature = "server")]
pub use server::{
    Answer, CallContext, ChannelPost, Channels, Handler, HandlerConfig, Service, Transaction, error_for_count,
    error_for_unknown, matches,
};
pub use server_codec::{IncomingCommand, ServerCodec};
pub use token::{AggregateKind, BulkKind};
pub use value::{Chunks, Elements, Reply, Value};

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tidegate_testkit::allocations::CountingAllocator = tidegate_testkit::allocations::CountingAllocator;
