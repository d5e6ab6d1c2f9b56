//! The event loop: one thread, one driver, its connections, timers and buffers; it shares nothing.
//!
//! An application is a [`Handler`], which gets the events of one connection and answers each with an [`Outcome`], and
//! is never re-entered; or it is a task with a [`Channel`], which pulls one message after the other. [`Server`]
//! accepts connections and runs the loops, and [`Client`] connects.
//!
//! | part | file |
//! |---|---|
//! | an application as a handler | `handler.rs`, and the handler's view of its connection: `context.rs` |
//! | an application as a task | `channel/`, `task/` |
//! | one message to many connections | `group/` |
//! | listening, accepting, threads, drain, restarts | `server/` |
//! | which peers may connect | `admission/` |
//! | several protocols on one listener | `protocols.rs` |
//! | connecting | `client/` |
//! | one connection: dispatch, deadlines, pulling | `connection/` |
//! | one turn of a loop | `event_loop.rs`, and the state of the loop: `loop_core.rs`, `local.rs` |
//! | slots, timers, messages from other threads | `slots.rs`, `slot_entry.rs`, `wheel.rs`, `mailbox.rs`, `remote.rs` |
//! | counters, log lines, the code that a loop executes | `counters.rs`, `log.rs`, `activity.rs` |
//! | the tokio runtime beside the loops | `companion/` |

#![forbid(unsafe_code)]

pub mod activity;
mod admission;
mod ages;
mod backend;
mod channel;
mod charges;
mod client;
mod close_reason;
#[cfg_attr(not(feature = "tokio"), path = "companion/none.rs")]
#[cfg_attr(feature = "tokio", path = "companion/tokio.rs")]
mod companion;
mod connection;
mod connection_pages;
mod context;
mod counters;
mod event_loop;
mod group;
mod handler;
mod inspection;
mod limits;
mod load_balancing;
mod local;
mod log;
mod loop_core;
mod mailbox;
mod memory_guard;
mod pages;
mod peer_deadlines;
mod phase;
mod protocols;
mod remote;
mod server;
mod session;
mod shaping;
mod slot_entry;
mod slot_table;
mod slots;
mod start_error;
mod sync;
pub mod task;
mod unwind;
mod wheel;
#[cfg(feature = "tokio")]
mod with_companion;

pub use admission::{Admission, AdmissionControl, ConnectionRate, Refusal};
pub use backend::{Backend, UnknownBackend};
pub use channel::{Channel, ChannelError, Close, Flushed, ReadHalf, Ready, Recv, Within, WriteHalf};
pub use charges::{Account, ConnectionCharge};
pub use client::{Client, Connect, ConnectError, ConnectWith, OpenSession, resolve};
pub use close_reason::CloseReason;
#[cfg(feature = "tokio")]
pub use companion::Companion;
pub use connection::Switch;
pub use context::{Context, SendError};
pub use counters::{Counts, ListenerCounts, TurnTimes};
pub use event_loop::EventLoop;
pub use group::{Group, GroupFull, Member, PublishError, Room, RoomError, RoomLimits, Rooms, Slow, Visit};
pub use handler::{Event, Handler, Outcome};
pub use inspection::{
    CloseConnection, ConnectionCursor, ConnectionInfo, ConnectionPage, ConnectionState, Inspect, ProtocolNames,
};
pub use ipnet::IpNet;
pub use limits::Limits;
pub use load_balancing::LoadBalancing;
pub use peer_deadlines::Deadlines;
pub use protocols::{Protocol, ProtocolIndex, Protocols, SharedProtocols, SniffHandler};
pub use remote::{PostError, Remote};
pub use server::{Ended, Listener, RunningListener, ServedListener, Server, ServerHandle, Superseded};
pub use session::{Session, SessionError, Streams};
pub use shaping::{Rate, Shaping};
pub use start_error::StartError;
pub use task::blocking::{Blocking, BlockingError, blocking};
