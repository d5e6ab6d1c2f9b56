//! A server of the protocol: [`Handler`] is the application on one connection, and a [`Service`] executes commands.
//!
//! The handler has the commands that concern a connection: HELLO and the version, AUTH, MULTI and EXEC, channels, the commands that
//! clients send when they start, and the order of replies. The service has the data.
//!
//! Read next: `handler.rs`, then `queue.rs` and `channels.rs`.

mod channels;
mod config;
mod connection_commands;
mod glob;
mod handler;
mod queue;
mod service;
mod session;
mod subcommands;
mod subscriber_groups;
mod subscriptions;
mod transaction;

pub use channels::{ChannelPost, Channels};
pub use config::HandlerConfig;
pub use glob::matches;
pub use handler::Handler;
pub use service::{Answer, CallContext, Service, error_for_count, error_for_unknown};
pub use transaction::Transaction;
