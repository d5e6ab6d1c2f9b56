//! The client: commands to a server, from any thread.
//!
//! A client (`handle.rs`) has one connection, on one loop. Its handles append commands to a queue (`queue.rs`), and the
//! connection (`connection.rs`) sends all that came in a turn at once. A task on the loop connects again (`supervisor.rs`). A
//! subscriber (`subscriber.rs`) has a connection of its own.
//!
//! A client of a cluster, or of a master with sentinels, has such a queue and connection for each server. A router
//! (`router.rs`) chooses one for each command, and a task on the loop finds the servers (`topology.rs`).

mod builder;
mod cache;
mod command_keys;
mod config;
mod connection;
mod counts;
mod dedicated;
mod error;
mod error_kind;
mod from_reply;
mod handle;
mod long_reply;
mod node;
mod pending;
mod queue;
mod redirect;
mod reply_budget;
mod reply_sink;
mod reply_stream;
mod router;
mod scan;
mod script;
mod sentinel;
mod servers;
mod sharded;
mod slot;
mod slots;
mod startup;
mod subscriber;
mod subscriber_queue;
mod subscription;
mod subscription_refusals;
mod supervisor;
mod topology;
mod transaction;
mod typed;
mod url;

pub use self::builder::ClientBuilder;
pub use self::config::ClientLimits;
pub use self::connection::ReplyPipeline;
pub use self::counts::{ClientCounts, ClientMetric, SubscriberCounts};
pub use self::dedicated::Dedicated;
pub use self::error::{ClientError, ErrorReply, Failure, WrongType};
pub use self::error_kind::ErrorKind;
pub use self::from_reply::FromReply;
pub use self::handle::{Call, Client, ReplyFuture};
pub use self::reply_budget::ReplyBudget;
pub use self::reply_stream::{BulkStream, WireReply};
pub use self::scan::Scan;
pub use self::script::Script;
pub use self::slots::slot_of;
pub use self::subscriber::{Subscriber, Subscriptions};
pub use self::subscriber_queue::{ChannelMessage, SubscriberEvent};
pub use self::typed::{Argument, TypedCall, TypedReply};
