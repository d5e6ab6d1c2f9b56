//! `Provider`: the cryptography behind TLS.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;

/// The cryptography behind TLS: cipher suites, key exchange, signatures, and the encryption of session tickets.
///
/// ```
/// let provider = tidegate_tls::Provider::aws_lc_rs();
/// assert_eq!(provider.name(), "aws-lc-rs");
/// ```
#[derive(Clone)]
pub struct Provider {
    crypto: Arc<CryptoProvider>,
    name: &'static str,
    tickets: Option<MakeTickets>,
}

/// Makes an encryption of session tickets with keys that it rotates by itself.
type MakeTickets = fn() -> Result<Arc<dyn ProducesTickets>, rustls::Error>;

impl Provider {
    /// AWS-LC. Key exchange prefers X25519MLKEM768, which is safe against quantum computers, where the peer has it.
    #[cfg(feature = "aws-lc-rs")]
    #[must_use]
    pub fn aws_lc_rs() -> Self {
        use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
        Self { crypto: Arc::new(default_provider()), name: "aws-lc-rs", tickets: Some(Ticketer::new) }
    }

    /// ring. It has no post-quantum key exchange.
    #[cfg(feature = "ring")]
    #[must_use]
    pub fn ring() -> Self {
        use rustls::crypto::ring::{Ticketer, default_provider};
        Self { crypto: Arc::new(default_provider()), name: "ring", tickets: Some(Ticketer::new) }
    }

    /// Another implementation, or another choice of cipher suites. It has no session tickets: a server remembers sessions
    /// for resumption instead.
    #[must_use]
    pub fn custom(crypto: Arc<CryptoProvider>) -> Self {
        Self { crypto, name: "custom", tickets: None }
    }

    /// Its name, for logs and figures.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn crypto(&self) -> &Arc<CryptoProvider> {
        &self.crypto
    }

    /// The encryption of tickets; `None` if the provider has none.
    pub(crate) fn tickets(&self) -> Result<Option<Arc<dyn ProducesTickets>>, rustls::Error> {
        self.tickets.map(|make| make()).transpose()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.name)
    }
}
