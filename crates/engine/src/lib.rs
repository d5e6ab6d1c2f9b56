//! The event loop: one thread, one driver, its connections, timers and buffers; it shares nothing.
//!
//! An application is a [`Handler`], which gets events of one connection and answers each with an [`Outcome`], and is
//! never re-entered; or it is a task with a [`Channel`], which asks for one message after the other. [`Server`] accepts
//! connections and runs the loops, and [`Client`] connects.
//!
//! | what | where |
//! |---|---|
//! | what an application writes as a handler | `handler.rs`, and what it is handed: `context.rs` |
//! | what it uses as a task | `channel/`, `task/`, `serve.rs` |
//! | connecting | `client.rs`, `connect.rs` |
//! | what happens to one connection | `connection/` |
//! | what happens in one turn of a loop | `event_loop.rs` |
//! | accepting | `acceptor.rs` |
//! | one message to many connections | `group/` |
//! | slots, timers, mail from other threads | `slots.rs`, `wheel.rs`, `mailbox.rs`, `remote.rs` |
//! | addresses and listeners | `server.rs` |
//! | threads, drain | `running.rs` |
//! | a restart without a gap | `takeover.rs` |
//! | a loop that hangs, and who says so | `watchdog.rs`, `counters.rs`, `log.rs` |
//! | work that blocks, names to addresses | `blocking.rs`, `resolve.rs` |

#![forbid(unsafe_code)]

mod acceptor;
mod blocking;
mod channel;
mod client;
mod closed;
mod connect;
mod connection;
mod context;
mod core;
mod counters;
mod event_loop;
mod group;
mod handler;
mod limits;
mod local;
mod log;
mod mailbox;
mod pages;
mod remote;
mod resolve;
mod running;
mod serve;
mod server;
mod slots;
mod start_error;
mod sync;
mod takeover;
pub mod task;
mod watchdog;
mod wheel;

pub use blocking::{Blocking, BlockingError, blocking};
pub use channel::{Channel, ChannelError, Close, Flushed, Reader, Ready, Recv, Within, Writer};
pub use client::{Client, ConnectError};
pub use closed::Closed;
pub use connect::{Connect, ConnectWith};
pub use context::{Context, SendError};
pub use counters::Counts;
pub use event_loop::EventLoop;
pub use group::{Group, GroupFull, Member, PublishError, Slow};
pub use handler::{Event, Handler, Outcome, Switch};
pub use limits::Limits;
pub use remote::{PostError, Remote};
pub use running::{Running, Superseded};
pub use server::{Server, Transport, UnknownTransport};
pub use start_error::StartError;
