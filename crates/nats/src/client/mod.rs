//! The client: messages, subscriptions and requests over one connection, from any thread.
//!
//! A client (`handle.rs`) has one connection, on one loop. Its handles append operations to a queue (`shared.rs`), and the
//! connection (`connection.rs`) sends all that came in a turn at once. A task on the loop connects again, to the next server
//! (`supervisor.rs`, `servers.rs`). Messages go to subscribers (`subscriber.rs`) and to requests (`results.rs`).

mod builder;
mod config;
mod connection;
mod counts;
mod credentials;
mod error;
mod events;
mod handle;
mod message;
mod results;
mod server_error;
mod servers;
mod shared;
mod subscriber;
mod subscriber_queue;
mod subscription;
mod supervisor;

pub use self::builder::ClientBuilder;
pub use self::config::ClientLimits;
pub use self::connection::OperationPipeline;
pub use self::counts::{ClientCounts, ClientMetric, SubscriberCounts};
pub use self::credentials::Credentials;
#[cfg(feature = "nkeys")]
pub use self::credentials::NkeyError;
pub use self::error::{ClientError, Failure};
pub use self::events::{ClientEvent, ClientEvents};
pub use self::handle::{Client, ReplyFuture};
pub use self::message::Message;
pub use self::server_error::{ServerError, ServerErrorKind};
pub use self::servers::ServerAddress;
pub use self::subscriber::{Subscriber, Subscriptions};
pub use self::subscriber_queue::SubscriberEvent;
