//! HTTP bodies, as servers and clients share them: `tidegate-http` re-exports the public types at `tidegate::http`.
//!
//! | to | use |
//! |---|---|
//! | read or write a body piece by piece | [`Body`], [`BodyWriter`] |
//! | implement a connection that bodies are read from and written to | [`Exchange`](exchange::Exchange) |
//! | read the fields of a head | [`HeaderFields`] |
//! | undo the content coding of a body | [`BodyDecoder`](body::BodyDecoder) |
//! | choose a content coding | [`preferred_encoding`] |
//! | do long work on a body in slices | [`Slices`](slices::Slices) |
//! | take over a connection that leaves HTTP | [`Upgrade`] |
//! | pass a trace on | [`TraceContext`] |
//!
//! This crate knows neither routes nor upstreams: a body knows its connection as an [`Exchange`](exchange::Exchange) only.
//!
//! Read next: `body/mod.rs` for the kinds of bodies.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `body/` | `Body` and its kinds: whole, received, produced, with trailers (`mod.rs`); `Data`, a piece in memory; `BodyWriter`; `BodyCollector`, up to a limit; `BodyDecoder`, which undoes a content coding |
//! | `coding.rs` | the content codings that are built in |
//! | `error.rs` | `BodyError` |
//! | `exchange.rs` | the trait `Exchange`: a request and its response, as a body and its writer see them |
//! | `header_fields.rs` | `HeaderFields`: the fields of a head, in their order and by name |
//! | `negotiate.rs` | `Accept-Encoding` |
//! | `percent.rs` | percent-encoding |
//! | `slices.rs` | `Slices`: long work on a body, a slice of it at a time |
//! | `trace_context.rs` | `TraceContext`: the trace that a message belongs to (W3C) |
//! | `upgrade.rs` | `Upgrade`: the protocol that takes over a connection which leaves HTTP |
//! | `watched.rs` | `WatchedExchange`: an exchange whose messages a watcher sees, to count, bound or store a body on its way |

#![forbid(unsafe_code)]

pub mod body;
#[cfg(feature = "compress")]
pub mod coding;
mod error;
pub mod exchange;
mod header_fields;
pub mod negotiate;
pub mod percent;
pub mod slices;
mod trace_context;
mod upgrade;
pub mod watched;

pub use self::body::{Body, BodyWriter, Data};
pub use self::error::BodyError;
pub use self::header_fields::HeaderFields;
pub use self::negotiate::{Encoding, preferred_encoding};
pub use self::trace_context::{TRACESTATE_BYTES_MAX, TraceContext};
pub use self::upgrade::Upgrade;
