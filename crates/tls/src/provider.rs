//! `Provider`: the cryptography behind TLS.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite, Tls13CipherSuite};

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
    /// Servers have tickets without keys from outside.
    has_tickets: bool,
    /// The suite that encrypts tickets of shared keys, whatever suites connections may use.
    sealing: Option<&'static Tls13CipherSuite>,
    placement: Placement,
}

/// Where the plain bytes of a record lie, once they are decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Behind the header of the record.
    #[cfg_attr(not(feature = "ring"), expect(dead_code, reason = "ring alone has it"))]
    Header,
    /// Behind the header, and in TLS 1.2 with AES behind the explicit nonce (RFC 5288 §3).
    #[cfg_attr(not(feature = "aws-lc-rs"), expect(dead_code, reason = "AWS-LC alone has it"))]
    Nonce,
    /// Not known.
    Unknown,
}

impl Provider {
    /// AWS-LC. Key exchange prefers X25519MLKEM768, which is safe against quantum computers, where the peer has it.
    #[cfg(feature = "aws-lc-rs")]
    #[must_use]
    pub fn aws_lc_rs() -> Self {
        use rustls::crypto::aws_lc_rs::default_provider;
        let crypto = default_provider();
        Self {
            sealing: sealing_suite(&crypto),
            crypto: Arc::new(crypto),
            name: "aws-lc-rs",
            has_tickets: true,
            placement: Placement::Nonce,
        }
    }

    /// ring. It has no post-quantum key exchange.
    #[cfg(feature = "ring")]
    #[must_use]
    pub fn ring() -> Self {
        use rustls::crypto::ring::default_provider;
        let crypto = default_provider();
        Self {
            sealing: sealing_suite(&crypto),
            crypto: Arc::new(crypto),
            name: "ring",
            has_tickets: true,
            placement: Placement::Header,
        }
    }

    /// The one of the features of this build: AWS-LC if it is there, else ring; `None` without either.
    #[must_use]
    pub fn of_features() -> Option<Self> {
        #[cfg(feature = "aws-lc-rs")]
        return Some(Self::aws_lc_rs());
        #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
        return Some(Self::ring());
        #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
        None
    }

    /// Another implementation. It has no session tickets of its own, so a server without
    /// [`TicketKeys`](crate::TicketKeys) remembers sessions for resumption instead; and received bytes are copied once more,
    /// since where it puts them is not known.
    #[must_use]
    pub fn custom(crypto: Arc<CryptoProvider>) -> Self {
        let sealing = sealing_suite(&crypto);
        Self { crypto, name: "custom", has_tickets: false, sealing, placement: Placement::Unknown }
    }

    /// The same with these cipher suites alone, of those that it has.
    ///
    /// ```
    /// use tidegate_tls::Provider;
    /// use tidegate_tls::rustls::CipherSuite;
    ///
    /// let provider = Provider::aws_lc_rs().with_cipher_suites(&[CipherSuite::TLS13_AES_256_GCM_SHA384]);
    /// ```
    #[must_use]
    pub fn with_cipher_suites(mut self, suites: &[CipherSuite]) -> Self {
        let mut crypto = CryptoProvider::clone(&self.crypto);
        crypto.cipher_suites.retain(|own| suites.contains(&own.suite()));
        self.crypto = Arc::new(crypto);
        self
    }

    /// Its name, for logs and figures.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The implementation, for further uses of the same cryptography: signatures of a protocol's own, for example.
    #[must_use]
    pub fn crypto(&self) -> &Arc<CryptoProvider> {
        &self.crypto
    }

    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// The suite that encrypts tickets of shared keys; `None` if the provider has no suite for it.
    pub(crate) fn sealing(&self) -> Option<&'static Tls13CipherSuite> {
        self.sealing
    }

    /// A digest of bytes; empty if the provider has no cipher suite, and so no connections.
    pub(crate) fn digest(&self, bytes: &[u8]) -> Vec<u8> {
        let of_suite = |suite: &SupportedCipherSuite| match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
            SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider,
        };
        let sealing = self.sealing.map(|suite| suite.common.hash_provider);
        let hash = sealing.or_else(|| self.crypto.cipher_suites.first().map(of_suite));
        hash.map_or_else(Vec::new, |hash| hash.hash(bytes).as_ref().to_vec())
    }

    /// The suite that encrypts tickets with keys of the server's own; `None` if it has none.
    pub(crate) fn own_tickets(&self) -> Option<&'static Tls13CipherSuite> {
        self.sealing.filter(|_| self.has_tickets)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.name)
    }
}

/// The suite of a provider that encrypts tickets of shared keys: the same one for all servers with the provider.
fn sealing_suite(crypto: &CryptoProvider) -> Option<&'static Tls13CipherSuite> {
    let suites = crypto.cipher_suites.iter().filter_map(SupportedCipherSuite::tls13);
    suites.filter(|suite| suite.aead_alg.key_len() == AEAD_KEY_BYTES).max_by_key(|suite| {
        // By number, so that the order of a provider's preference changes nothing: AES-256-GCM comes first.
        std::cmp::Reverse(u16::from(suite.common.suite))
    })
}

/// The length of a key of AES-256-GCM and of ChaCha20-Poly1305.
pub(crate) const AEAD_KEY_BYTES: usize = 32;
