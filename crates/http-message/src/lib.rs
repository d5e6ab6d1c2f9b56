//! HTTP bodies, as servers and clients share them: `tidegate-http` re-exports the public types at `tidegate::http`.
//!
//! | to | use |
//! |---|---|
//! | read or write a body piece by piece | [`Body`], [`BodyWriter`] |
//! | implement a connection that bodies are read from and written to | [`Exchange`](exchange::Exchange) |
//! | undo the content coding of a body | [`BodyDecoder`](body::BodyDecoder) |
//! | choose a content coding | [`preferred_encoding`] |
//! | do long work on a body in slices | [`Slices`](slices::Slices) |
//! | take over a connection that leaves HTTP | [`Upgrade`] |
//!
//! This crate knows neither routes nor upstreams: a body knows its connection as an [`Exchange`](exchange::Exchange) only.
//!
//! Read next: `body/mod.rs` for the kinds of bodies.

#![forbid(unsafe_code)]

pub mod body;
#[cfg(feature = "compress")]
pub mod coding;
mod error;
pub mod exchange;
pub mod negotiate;
pub mod percent;
pub mod slices;
mod upgrade;

pub use self::body::{Body, BodyWriter, Data};
pub use self::error::BodyError;
pub use self::negotiate::{Encoding, preferred_encoding};
pub use self::upgrade::Upgrade;
