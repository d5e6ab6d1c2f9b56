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
//! | the tokio runtime beside the loops | `tokio_runtime/` |
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `ages.rs` | when connections were opened, without memory in any of them |
//! | `connection_pages.rs` | the answer to a request for some connections of the loop |
//! | `inspection.rs` | `ConnectionInfo`: the connections of a loop as an operator sees them, in pages |
//! | `handler.rs` | `Handler`, `Event`, `Outcome`, `Switch`: the interface of applications |
//! | `context.rs` | `Context`, which a handler receives with each call |
//! | `protocols.rs` | `Protocols`: several protocols on one listener, chosen by the first bytes |
//! | `charges.rs` | `Account`: memory that an application keeps for a connection, so that the memory guard knows whose it is |
//! | `channel/` | `Channel`: its halves, its futures, how a handle reaches its connection; the task that serves it (`serve.rs`) |
//! | `load_balancing.rs` | which loop serves a connection, and the handover |
//! | `task/` | tasks: futures that live on one loop (`table.rs`), those that a handler waits for (`handler_task.rs`), turns for long work (`long_work.rs`, `long_work_queue.rs`), the count of those that serve (`serving.rs`), timers (`time.rs`), waiting for a drain (`draining.rs`, `drain_waiters.rs`), blocking work (`blocking.rs`) |
//! | `group/` | `Group`: one message to many connections on any loop; its members on one loop (`local_members.rs`), and the delivery to them (`delivery.rs`); `Room`, a group with presence and history (`room.rs`, `room_state.rs`); rooms by name (`rooms.rs`); users (`users.rs`); members that are no connections (`subscriber.rs`); rooms for an operator (`summary.rs`); the seam to a broker that processes share (`backplane.rs`, `shared_room.rs`) |
//! | `client/` | `Client`: several addresses in turn (`connect.rs`); names to addresses (`resolver.rs`, by the system `resolve.rs`); why there is no connection (`connect_error.rs`) |
//! | `server/` | `Server`: the listeners of each loop; addresses with their applications (`listener.rs`); sockets of the server before and of a service manager (`found_sockets.rs`); accepting (`acceptor.rs`); from a socket to its application (`make.rs`); threads and drain (`handle.rs`); listeners from one process to the next (`takeover.rs`), and sessions of datagrams (`session_groups.rs`); the socket at which a successor finds its predecessor (`control_socket.rs`); noticing a hanging loop (`watchdog.rs`); signals (`supervisor.rs`); systemd and its like (`service_manager.rs`, `watchdog_feeder.rs`); listing and closing connections (`connections.rs`); its end as a future (`ended.rs`) |
//! | `tokio_runtime/` | `TokioRuntime`: the tokio runtime in which loops run (`tokio.rs`); its place without the feature (`none.rs`) |
//! | `with_tokio_runtime.rs` | servers and loops with a `TokioRuntime` |
//! | `activity.rs` | `Activity`: the application code that a loop executes, for the watchdog |
//! | `admission/` | `Admission`: which peers may connect, and how many connections each may have: lists of networks (`networks.rs`), counts and rates of addresses (`table.rs`) |
//! | `connection/` | one connection: its state (`link.rs`), its peer's address (`peer.rs`), the limits of its listener (`settings.rs`), events (`dispatch.rs`), those that are rare (`rare_events.rs`), sending (`sending.rs`) and its end (`closing.rs`), deadlines (`deadlines.rs`), shaping (`shaping.rs`), a short way for streams that come with all their bytes (`opening.rs`), a complete response that waits for a window (`finished.rs`, `parked.rs`), its description for an operator (`describe.rs`), events of a channel (`pull.rs`) and requests of its handle (`pull/requests.rs`), its application (`application.rs`), changing codec and application (`switch.rs`) |
//! | `endpoint/` | datagram sockets: a protocol on one (`mod.rs`), adding it to a loop (`bind.rs`), `DatagramChannel` for tasks (`channel.rs`), `EndpointListener` for servers (`listener.rs`); a protocol whose sessions carry streams (`sessions.rs`, `session_tables.rs`, `answers.rs`, `stream_io.rs`), and its handle (`session_handle.rs`) |
//! | `session/` | requests of streams to their session (`mod.rs`); its application (`application.rs`); how streams are made (`make.rs`); connections that become sessions (`streams.rs`); `Session` (`handle.rs`) |
//! | `backend.rs` | epoll or io_uring |
//! | `backoff.rs` | `Backoff`: delays before a client connects again; `ReconnectPauses` |
//! | `successor.rs` | whether another server has the sockets of this one |
//! | `start_error.rs` | `StartError`: why a server or a loop did not start |
//! | `event_loop.rs` | one turn of a loop; the listeners and sockets that it is given: `event_loop/sockets.rs` |
//! | `phase.rs` | `Phase`: the time limit of one part of a turn |
//! | `loop_core.rs` | the state that a loop lends to a dispatched connection; entries that wait for a dispatch: `loop_core/queues.rs`, a drain and its waiters: `loop_core/drain.rs`, delays that excuse peers: `loop_core/lag.rs`, the rest of a closed connection in its slot: `loop_core/closing.rs` |
//! | `unwind.rs` | catching panics |
//! | `memory_guard.rs` | shedding, and giving memory back |
//! | `local.rs` | `Local`: the state that a loop shares with its tasks and their handles |
//! | `slot_entry.rs` | `SlotEntry`: a connection, a stream, a listener or a timer in a slot; its events, and the work after a dispatch |
//! | `slots.rs` | the slots of a loop, by token |
//! | `pages.rs` | the table behind slots and tasks: with generations, in pages that are given back |
//! | `wheel.rs` | timers |
//! | `shaping/` | `Shaping`, `Rate`: how fast connections receive and send; the token bucket (`bucket.rs`), their state in the loop (`states.rs`) |
//! | `slot_table.rs` | `SlotTable`: optional state of connections, by slot |
//! | `peer_deadlines.rs` | `Deadlines`: how long a peer may be silent, slow, or connected; their state, by slot |
//! | `mailbox.rs` | the loop's mailbox: messages, woken tasks, and waking a sleeping loop |
//! | `sync.rs` | primitives that a test replaces with a model |
//! | `remote.rs` | `Remote`: posting to a connection from any thread |
//! | `limits.rs` | `Limits` with defaults, and the bounds of a dispatch and a turn |
//! | `close_reason.rs` | `CloseReason`: why a connection closed |
//! | `portable_error.rs` | `PortableError`: the texts of an error, for other threads |
//! | `counters.rs` | `Counts`, `TurnTimes` |
//! | `log.rs` | one log line for each close reason, one for many that end in their handshake, and a bound on their rate |

#![forbid(unsafe_code)]

pub mod activity;
mod admission;
mod ages;
mod backend;
mod backoff;
mod channel;
mod charges;
mod client;
mod close_reason;
mod connection;
mod connection_pages;
mod context;
mod counters;
mod endpoint;
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
mod portable_error;
mod protocols;
mod remote;
mod server;
mod session;
mod shaping;
mod slot_entry;
mod slot_table;
mod slots;
mod start_error;
mod successor;
mod sync;
pub mod task;
#[cfg_attr(not(feature = "tokio"), path = "tokio_runtime/none.rs")]
#[cfg_attr(feature = "tokio", path = "tokio_runtime/tokio.rs")]
mod tokio_runtime;
mod unwind;
mod wheel;
#[cfg(feature = "tokio")]
mod with_tokio_runtime;

pub use admission::{Admission, AdmissionControl, ConnectionRate, Refusal, contains_address};
pub use backend::{Backend, UnknownBackend};
pub use backoff::{Backoff, ReconnectPauses};
pub use channel::{Channel, ChannelError, Close, Flushed, ReadHalf, Ready, Recv, Within, WriteHalf};
pub use charges::{Account, ConnectionCharge};
pub use client::{
    Client, Connect, ConnectError, ConnectWith, DefaultResolver, HttpsEndpoint, HttpsEndpoints, NameResolver,
    OpenSession, Resolve, ResolvedServer, ResolvedServers, Resolving, ResolvingHttps, ResolvingServers, SystemResolver,
    set_default_resolver,
};
pub use close_reason::CloseReason;
pub use connection::Switch;
pub use context::{Context, SendError};
pub use counters::{Counts, ListenerCounts, TurnTimes};
pub use endpoint::{
    DatagramChannel, EndpointLimits, EndpointListener, EndpointSession, EndpointWaker, RecvFrom, ServedEndpoint,
    SessionEndpoint, SessionLimits, SessionStreams,
};
pub use event_loop::EventLoop;
pub use group::{
    Backplane, BackplaneFull, BackplaneRoom, Group, GroupFull, Kick, Member, MemberName, MessageForm, NoPosition,
    NodeId, NodePresence, Position, PublishError, Room, RoomDelivery, RoomError, RoomEvent, RoomLimits, RoomMessage,
    RoomNotice, RoomSubscriber, RoomSummary, Rooms, RoomsSummary, Slow, UserLimits, Users, Visit,
};
pub use handler::{Event, Handler, Outcome};
pub use inspection::{
    CloseConnection, ConnectionCursor, ConnectionInfo, ConnectionPage, ConnectionState, Inspect, ProtocolNames,
};
pub use ipnet::IpNet;
pub use limits::Limits;
pub use load_balancing::LoadBalancing;
pub use peer_deadlines::Deadlines;
pub use portable_error::PortableError;
pub use protocols::{Protocol, ProtocolIndex, Protocols, SharedProtocols, SniffHandler};
pub use remote::{PostError, Remote};
pub use server::{
    Ended, Listener, RunningListener, ServedListener, Server, ServerEnd, ServerHandle, ServiceManager, Superseded,
    Supervisor, WatchdogFeeder,
};
pub use session::{Session, SessionError, Streams};
pub use shaping::{Rate, Shaping};
pub use start_error::StartError;
pub use task::blocking::{Blocking, BlockingError, blocking};
#[cfg(feature = "tokio")]
pub use tokio_runtime::TokioRuntime;
