//! Rooms over several processes: a backplane connects [`Rooms`](tidegate_engine::Rooms) through a broker that exists already.
//!
//! | for | there is |
//! |---|---|
//! | rooms of several processes | [`Backplane::redis`], and [`Rooms::with`](tidegate_engine::Rooms::with) |
//! | several nodes in one process, for tests | [`Backplane::memory`] with a [`MemoryBroker`] |
//! | another broker | the trait [`Broker`], and [`Backplane::over`] |
//! | bounds | [`NodeLimits`] |
//! | numbers, and whether the broker is connected and takes messages | [`Backplane::counts`], [`Backplane::fault`] |
//!
//! [`Node`](crate::node::Node) has the rules and does no I/O: events of the broker and the time go in, requests and events of
//! rooms come out. `driver.rs` is the task that connects a node, its broker and the rooms.
//!
//! **Ordered rooms** have a history. The broker gives each message an offset in an epoch. A node delivers in the order of the
//! offsets, reads the history where one is missing, and reports a gap where the history does not reach back far enough, and
//! where the epoch is another one. **Ephemeral rooms** have none: a message is delivered at most once.
//!
//! Read next: `feed.rs`, the order of one room; `node/mod.rs`; `broker.rs`; `redis/scripts.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `broker.rs` | `Broker`, its requests and events: the seam to an engine |
//! | `broker_clock.rs` | `BrokerClock`: times of a broker's clock, which may be set, in this node's time |
//! | `feed.rs` | `Feed`: the order of one room's messages, holes and gaps |
//! | `broker_events.rs` | `BrokerEvents`: the events of the brokers on Redis and NATS, with overflows |
//! | `gaps.rs` | `ConnectionGaps`: which gaps of a subscriber are those of a new connection |
//! | `node/` | `Node`: the rooms of a process, without I/O; publishing (`publishing.rs`), presence (`presence.rs`), kicks (`kicks.rs`), timers (`timers.rs`) |
//! | `envelope.rs` | the format of a message between nodes |
//! | `presence_list.rs` | the format of a node's members of a room |
//! | `memory.rs` | `MemoryBroker`, for several nodes in one process |
//! | `refusals.rs` | `Refusals`: servers and streams that refuse messages, and their probes |
//! | `redis/` | the broker on Redis: its scripts (`scripts.rs`), histories in pages (`pages.rs`), members in pages (`presence.rs`), errors that are refusals (`refusals.rs`) |
//! | `nats/` | the broker on NATS: its streams (`streams.rs`), those of members and kicks (`presence.rs`), rooms as subjects (`names.rs`), refused subscriptions (`refused.rs`), streams that refuse messages (`refusals.rs`) |
//! | `driver.rs` | the task that connects node, broker and rooms |
//! | `handle.rs` | `Backplane`, the handle that applications have |
//! | `counts.rs` | numbers for metrics |
//! | `fault.rs` | `BackplaneFault`: why a node cannot do its work at present |
//! | `limits.rs` | `NodeLimits` |

#![forbid(unsafe_code)]

mod broker;
mod broker_clock;
mod broker_events;
mod counts;
mod driver;
mod envelope;
mod fault;
mod feed;
mod gaps;
mod handle;
mod limits;
mod memory;
mod nats;
pub mod node;
mod presence_list;
mod redis;
mod refusals;

pub use broker::{
    Broker, BrokerEvent, BrokerRequest, History, HistoryBounds, HistoryEntry, Lease, OutgoingMessage, PresenceUpdate,
    RoomName,
};
pub use counts::{BackplaneCounts, BackplaneMetric};
pub use fault::BackplaneFault;
pub use handle::{AddressError, Backplane, BackplaneBuilder};
pub use limits::NodeLimits;
pub use memory::MemoryBroker;
