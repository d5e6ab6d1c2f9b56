//! Automatic certificates (ACME, RFC 8555): an authority issues and renews them while the server runs.
//!
//! | to | use |
//! |---|---|
//! | have certificates issued for names | [`Acme`], [`AcmeBuilder`] |
//! | answer HTTP-01 on port 80 | [`Acme::http01`], middleware of `tidegate-http` |
//! | set the records of DNS-01 | [`DnsProvider`] |
//! | keep accounts and keys elsewhere than in a folder | [`Store`] |
//! | set times and sizes | [`AcmeLimits`] |
//!
//! One order has all names, and the names share one certificate. The protocol is that of the crate `instant-acme`, over the HTTP
//! client of `tidegate-http-client`. Files and keys are read and made on the pool for
//! [blocking](tidegate_engine::blocking) work.
//!
//! **A certificate is used once it is checked**: its key, its names, its dates and the signatures of its chain. Until then
//! the old one stays. **A failed attempt waits**: as long as `Retry-After` says, and longer each time. The state is
//! in the store, so a restart continues the same order, and does not cut a wait short.
//!
//! Read next: `manager.rs`, which decides when; `attempt.rs`, the way from an account to a checked certificate.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `builder.rs` | `AcmeBuilder` |
//! | `settings.rs` | `AcmeLimits`, `ChallengeKind`, and all that the builder sets |
//! | `manager.rs` | `Acme`: the certificate in use, and the loop that renews it |
//! | `status.rs` | `AcmeStatus`: the state of issuance, for an application |
//! | `renewal.rs` | when a certificate is renewed, and how long a failure waits |
//! | `attempt.rs` | one attempt: account, order, validations, certificate |
//! | `records.rs` | the records of the store: account, order, certificate, failures |
//! | `store.rs` | `Store`, `FolderStore` |
//! | `challenges.rs` | the answers to HTTP-01 and TLS-ALPN-01 |
//! | `dns.rs` | `DnsProvider`: the records of DNS-01 |
//! | `chain.rs` | an issued chain: its dates, and its checks |
//! | `http_client.rs` | the HTTP client below `instant-acme`, and the responses that it refuses |
//! | `error.rs` | `InvalidAcme`, `IssueError`, `InvalidChain` |

#![forbid(unsafe_code)]

mod attempt;
mod builder;
mod chain;
mod challenges;
mod dns;
mod error;
mod http_client;
mod manager;
mod records;
mod renewal;
mod settings;
mod status;
mod store;

pub use self::builder::AcmeBuilder;
pub use self::challenges::Http01;
pub use self::dns::DnsProvider;
pub use self::error::{InvalidAcme, InvalidChain, IssueError};
pub use self::manager::{Acme, RunningAcme};
pub use self::settings::{AcmeLimits, ChallengeKind};
pub use self::status::AcmeStatus;
pub use self::store::{FolderStore, Store};
