//! JetStream, by its API subjects (`$JS.API.`): streams, their messages, and history in order.
//!
//! A [`JetStream`] (`context.rs`) sends requests of the client and reads their JSON (`api.rs`). A [`History`] (`history.rs`) reads
//! the messages after a sequence, one batch at a time.

mod api;
mod context;
mod history;

pub use self::api::{ApiError, JetStreamError, Republish, StreamConfig, StreamInfo, StreamState};
pub use self::context::{JetStream, PublishAck, PublishOptions, StoredMessage};
pub use self::history::History;
