//! TLS 1.2 and 1.3 (RFC 5246, RFC 8446) for servers and clients, as a filter over rustls, free of I/O.
//!
//! The caller chooses the [`Provider`] of the cryptography; nothing here has a default for it.
//!
//! Read next: `filter.rs`, and `records.rs` below it, which alone knows how rustls takes and returns bytes;
//! `certificates.rs` for a server's certificates; `authorities.rs` for those that vouch for its clients; `server.rs` and `client.rs` for the configuration of each role.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `filter.rs` | `Tls`, the filter: deadline of the handshake, ends, agreed parameters |
//! | `records.rs` | `Records`: rustls between two queues of bytes; it alone knows rustls' interface of bytes |
//! | `record_sizes.rs` | how long the records are that we send |
//! | `server.rs` | the configuration of servers, and certificates of clients |
//! | `client.rs` | the configuration of clients, verification, and whose roots they trust |
//! | `listed.rs` | a server's own certificate among the roots |
//! | `certificates.rs` | certificates by name, and their reload |
//! | `certificate_names.rs` | `CertificateNames`: the subject and the alternative names, as texts |
//! | `challenges.rs` | certificates by which an authority validates names (TLS-ALPN-01) |
//! | `authorities.rs` | `ClientAuthorities`: roots that vouch for clients, and their reload |
//! | `watch.rs` | `Watch`: a reload when files change |
//! | `tickets.rs` | keys of session tickets, replaced by a clock; the binding of a ticket |
//! | `ticket_keys.rs` | `TicketKeys`: keys of session tickets that come from outside |
//! | `key_log_file.rs` | `KeyLogFile`: secrets in a file, for tools that decrypt captures |
//! | `sealing.rs` | `SealingKey`: encryption of bytes that others keep |
//! | `provider.rs` | `Provider`: the cryptography |
//! | `error.rs` | `Error`, `ConfigError` |

#![forbid(unsafe_code)]

mod authorities;
mod certificate_names;
mod certificates;
mod challenges;
mod client;
mod error;
mod filter;
mod key_log_file;
mod listed;
mod provider;
mod record_sizes;
mod records;
mod sealing;
mod server;
mod ticket_keys;
mod tickets;
mod watch;

pub use authorities::ClientAuthorities;
pub use certificate_names::CertificateNames;
pub use certificates::Certificates;
pub use client::{ClientBuilder, ClientConfig};
pub use error::{ConfigError, Error};
pub use filter::Tls;
pub use key_log_file::KeyLogFile;
pub use provider::Provider;
/// The TLS library below, for its types that appear here.
pub use rustls;
pub use sealing::SealingKey;
pub use server::{ClientCertificates, ServerBuilder, ServerConfig};
pub use ticket_keys::{TicketKey, TicketKeys};
pub use watch::{Reload, Watch};
