//! TLS 1.2 and 1.3 (RFC 5246, RFC 8446) for servers and clients, as a filter over rustls, free of I/O.
//!
//! The caller chooses the [`Provider`] of the cryptography; nothing here has a default for it.
//!
//! Read next: `filter.rs`, and `records.rs` below it, which alone knows how rustls takes and returns bytes;
//! `certificates.rs` for a server's certificates; `authorities.rs` for those that vouch for its clients; `server.rs` and `client.rs` for the configuration of each role.

#![forbid(unsafe_code)]

mod authorities;
mod certificates;
mod client;
mod error;
mod filter;
mod provider;
mod record_sizes;
mod records;
mod server;
mod ticket_keys;
mod tickets;
mod watch;

pub use authorities::ClientAuthorities;
pub use certificates::Certificates;
pub use client::{ClientBuilder, ClientConfig};
pub use error::{ConfigError, Error};
pub use filter::Tls;
pub use provider::Provider;
/// The TLS library below, for its types that appear here.
pub use rustls;
pub use server::{ClientCertificates, ServerBuilder, ServerConfig};
pub use ticket_keys::{TicketKey, TicketKeys};
pub use watch::{Reload, Watch};
