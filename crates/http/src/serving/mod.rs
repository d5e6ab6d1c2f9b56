//! Serving a connection: from the events of a connection to functions, and from their responses back.
//!
//! | file | step |
//! |---|---|
//! | `connection.rs` | the state machine: each event of a connection, and its consequence |
//! | `begin.rs` | from a head to its function: host, route, state, middleware, counts |
//! | `inline.rs` | a function that responds within the dispatch |
//! | `request_body.rs`, `buffered.rs` | a function that waits for its request's body |
//! | `pending.rs` | a function that has not responded yet |
//! | `pipeline.rs`, `order.rs` | pipelined requests in progress side by side |
//! | `task.rs`, `exchanges.rs` | bodies that are received or sent piece by piece |
//! | `http2.rs`, `sessions.rs` | a connection that goes on in HTTP/2 |

mod begin;
mod buffered;
mod connection;
pub(crate) mod exchanges;
mod handler;
mod http2;
mod inline;
pub(crate) mod order;
mod pending;
mod pipeline;
mod refusals;
mod request_body;
mod retained;
pub(crate) mod sessions;
pub(crate) mod stall_label;
mod task;

pub use self::handler::HttpHandler;
pub use self::http2::StreamClient;
