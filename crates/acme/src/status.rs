//! `AcmeStatus`: the state of issuance.

use std::time::SystemTime;

/// The certificate in use, and the next attempt, as [`Acme::status`](crate::Acme::status) returns them.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AcmeStatus {
    /// The end of the certificate in use; `None` as long as there is none.
    pub not_after: Option<SystemTime>,
    /// Certificates that were issued since the start.
    pub issued: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Attempts that failed since the last certificate, before the start too.
    pub failures: u32,
    /// The time of the next attempt, or of the renewal.
    pub next_attempt: Option<SystemTime>,
    /// Why the last failed attempt failed, also after a later one that did not.
    pub last_error: Option<Box<str>>,
}
