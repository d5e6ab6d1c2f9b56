//! The broker: subscriptions of all connections of a server, on all loops, and the handler of one connection.
//!
//! A handler (`handler.rs`) matches each message by a trie (`trie.rs`) under one lock, and appends it to the outbox
//! (`outbox.rs`) of each receiver, whose loop it wakes. The broker (`broker.rs`) has the trie and the configuration.

mod broker;
mod handler;
mod outbox;
mod trie;

pub use self::broker::{Broker, BrokerConfig, BrokerCounts};
pub use self::handler::Handler;
pub use self::outbox::WakeUp;
