//! Serving a connection: from the events of a connection to functions, and from their responses back.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `connection.rs` | the connection state machine: each event, and the next step |
//! | `handler.rs` | `HttpHandler`: the state of a connection that no task serves; `RareState` |
//! | `begin.rs` | `begin`: from a head to its function, for the handler, the pipeline and the task |
//! | `inline.rs` | functions that respond within the dispatch, or are polled in it for the first time |
//! | `request_body.rs` | pieces and ends of the bodies that functions wait for |
//! | `buffered.rs` | `BufferedRequest`: an HTTP/2 request that waits for its body until the dispatch is over in which its head came; `CollectedRequest` |
//! | `pending.rs` | `PendingResponse`: a function that has not responded yet |
//! | `pipeline.rs` | `RequestPipeline`: requests that are in progress side by side, as those of a proxy are |
//! | `order.rs` | `Order`: which request of a connection is in turn, and the memory of the others; `PipelineSlot` |
//! | `task.rs` | the task that serves a connection while something does: a body that is received or sent piece by piece |
//! | `exchanges.rs` | `Exchanges`: the requests of a task's connection and their responses, as bodies and their writers see them |
//! | `retained.rs` | `RetainedBytes`: the bytes of a body that a function may still have in memory |
//! | `refusals.rs` | responses and log lines of limits that refuse a request, and of panics |
//! | `stall_label.rs` | `StallLabel`: names the function that runs, for the watchdog |
//! | `http2.rs` | a connection that continues in HTTP/2, and the facts that its streams share |
//! | `http3.rs` | the streams of a QUIC connection, with the feature `http3` |
//! | `sessions.rs` | `Sessions`: the HTTP/2 state that the connections of a loop share |

mod begin;
mod buffered;
mod connection;
pub(crate) mod exchanges;
mod handler;
mod http2;
#[cfg(feature = "http3")]
pub(crate) mod http3;
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
pub(crate) use self::refusals::{panicked, too_long};
