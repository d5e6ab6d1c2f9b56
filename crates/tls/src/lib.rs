//! TLS 1.2 and 1.3 (RFC 5246, RFC 8446) for servers and clients, as a filter over rustls, free of I/O.
//!
//! The caller chooses the [`Provider`] of the cryptography; nothing here has a default for it.
//!
//! Read next: `filter.rs`, and `records.rs` below it, which alone knows how rustls takes and returns bytes;
//! `certificates.rs` for a server's certificates; `server.rs` and `client.rs` for the configuration of each role.

#![forbid(unsafe_code)]

mod certificates;
mod client;
mod error;
mod filter;
mod provider;
mod record_sizes;
mod records;
mod server;
mod tickets;
mod watch;

pub use certificates::Certificates;
pub use client::{ClientBuilder, ClientConfig};
pub use error::{ConfigError, Error};
pub use filter::Tls;
pub use provider::Provider;
/// The TLS library below, for its types that appear here.
pub use rustls;
pub use server::{ClientCertificates, ServerBuilder, ServerConfig};
pub use watch::Watch;
