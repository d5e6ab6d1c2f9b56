//! `Challenges`: the certificates by which an authority validates names (TLS-ALPN-01, RFC 8737).
//!
//! A validating authority offers the protocol `acme-tls/1` alone. No other client gets such a certificate, and a
//! validating authority gets no other one.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

/// Certificates of validations under way, by name in lower case.
#[derive(Default)]
pub(crate) struct Challenges(RwLock<HashMap<Box<str>, Arc<CertifiedKey>>>);

impl Challenges {
    pub(crate) fn set(&self, name: &str, certified: Arc<CertifiedKey>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(name.to_ascii_lowercase().into(), certified);
    }

    pub(crate) fn clear(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&*name.to_ascii_lowercase());
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&*name.to_ascii_lowercase()).cloned()
    }
}

/// Whether the client validates a name: RFC 8737 §3 has it offer exactly this protocol.
pub(crate) fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.next() == Some(PROTOCOL) && offered.next().is_none())
}

/// The protocol of a validation. It carries no data (RFC 8737 §4).
pub(crate) const PROTOCOL: &[u8] = b"acme-tls/1";
