//! The client: commands to a server, from any thread.
//!
//! A client (`handle.rs`) has one connection, on one loop. Its handles append commands to a queue (`queue.rs`), and the
//! connection (`connection.rs`) sends all that came in a turn at once. A task on the loop connects again (`supervisor.rs`). A
//! subscriber (`subscriber.rs`) has a connection of its own.

mod builder;
mod cache;
mod config;
mod connection;
mod dedicated;
mod error;
mod from_reply;
mod handle;
mod long_reply;
mod queue;
mod reply_budget;
mod reply_stream;
mod scan;
mod script;
mod slot;
mod startup;
mod subscriber;
mod subscription;
mod supervisor;
mod transaction;
mod typed;

pub use self::builder::ClientBuilder;
pub use self::config::ClientLimits;
pub use self::connection::ReplyPipeline;
pub use self::dedicated::Dedicated;
pub use self::error::{ClientError, ErrorReply, Failure, WrongType};
pub use self::from_reply::FromReply;
pub use self::handle::{Call, Client, ReplyFuture};
pub use self::reply_budget::ReplyBudget;
pub use self::reply_stream::{BulkStream, WireReply};
pub use self::scan::Scan;
pub use self::script::Script;
pub use self::subscriber::{ChannelMessage, Subscriber, SubscriberEvent};
pub use self::typed::{Argument, TypedCall, TypedReply};
