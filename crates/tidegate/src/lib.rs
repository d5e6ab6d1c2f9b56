//! Tidegate: an asynchronous, event-driven network application framework.
//!
//! For gateways, brokers, proxies, push servers, game and IoT backends: many connections, custom protocols, little
//! memory. A connection costs memory only while bytes are in it, and back-pressure is the default.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Codec`] | one protocol, free of I/O: bytes in, messages out; messages in, bytes out |
//! | [`Filter`] | bytes to bytes, both ways, free of I/O; [`Over`] puts a codec over it |
//! | [`Handler`] | the application on one connection: gets events, returns an [`Outcome`] |
//! | [`Channel`] | the same connection as an async handle, for straight-line code |
//! | [`task`] | futures on the loop's own thread: spawn, sleep, timeouts; [`blocking`] for work that would block it |
//! | [`Server`] | an address and its event loops, one per core |
//! | [`Client`] | the address to connect to; returns a [`Channel`], or runs a [`Handler`] on the connection |
//! | [`Group`] | connections on any loop that get the same messages |
//!
//! A server that echoes every line:
//!
//! ```no_run
//! use tidegate::framing::Lines;
//! use tidegate::{Context, Handler, Outcome, Server, Slice};
//!
//! struct Echo;
//!
//! impl Handler<Lines> for Echo {
//!     type Post = ();
//!
//!     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
//!         cx.send(line.into()).into()
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind("127.0.0.1:7000")?.start(|| (Lines::default(), Echo))?;
//! println!("listening on {}", server.address());
//! server.wait();
//! # Ok(())
//! # }
//! ```
//!
//! The same with a channel: an async task pulls each line instead of receiving a callback:
//!
//! ```no_run
//! use tidegate::framing::Lines;
//! use tidegate::{Channel, Server};
//!
//! async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
//!     while let Some(line) = channel.recv().await? {
//!         channel.send(line.into())?;
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Server::bind("127.0.0.1:7000")?.serve(Lines::default, echo)?.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Protocols and handlers are tested without a network: see `tidegate-testkit`. The repository has a guide, which
//! starts with a first codec, in `docs/guide`.

#![forbid(unsafe_code)]

pub use bytes::Bytes;
pub use tidegate_buffer::{
    Cursor, FileRegion, Gathered, Input, Ledger, LoadError, Outbound, Pieces, Pool, Scratch, Short, Slice, WaterMarks,
    WritePosition,
};
pub use tidegate_codec::{
    Blame, Codec, EncodeError, Encoded, Fault, Filter, Output, Over, OverError, Step, Time, encode, framing,
};
pub use tidegate_engine::{
    Backend, Blocking, BlockingError, Channel, ChannelError, Client, Close, CloseReason, Connect, ConnectError,
    ConnectWith, Context, Counts, Event, EventLoop, Flushed, Group, GroupFull, Handler, Limits, LoadBalancing, Member,
    Outcome, PostError, PublishError, ReadHalf, Ready, Recv, Remote, SendError, Server, ServerHandle, Slow, StartError,
    Superseded, Switch, UnknownBackend, Within, WriteHalf, blocking, task,
};
/// HTTP/1.1.
#[cfg(feature = "http1")]
pub use tidegate_http1 as http1;
/// Sockets and drivers, for applications that run an [`EventLoop`] themselves.
pub use tidegate_sys as sys;
pub use tidegate_sys::{Address, BadAddress, ListenOptions, SocketOptions};

/// The examples in the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
