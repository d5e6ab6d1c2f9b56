//! A protocol of its own: a store of values that speaks lines of text.
//!
//! `protocol.rs` is the codec of each side, `store.rs` the values, `handler.rs` a connection of the server, `client.rs` a
//! client. `settings.rs` reads the configuration, `main.rs` starts the server. `tests/codec.rs` tests the codec at every split
//! of its input, `tests/server.rs` the server without a network and on a simulated one.

#![forbid(unsafe_code)]

pub mod client;
pub mod handler;
pub mod protocol;
pub mod settings;
pub mod store;
