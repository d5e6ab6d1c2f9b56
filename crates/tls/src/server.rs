//! `ServerConfig`: what the TLS connections of a listener have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{KeyLog, RootCertStore, SupportedProtocolVersion};

use crate::certificates::Certificates;
use crate::error::ConfigError;
use crate::filter::Tls;
use crate::provider::{Placement, Provider};
use crate::tickets::Tickets;

/// The configuration of the server's side. A clone is another handle of the same configuration.
#[derive(Clone)]
pub struct ServerConfig {
    tls: Arc<rustls::ServerConfig>,
    handshake_timeout: Duration,
    placement: Placement,
    tickets: Option<Arc<Tickets>>,
}

/// Builds a [`ServerConfig`].
///
/// | setting | default | what it stops |
/// |---|---|---|
/// | [`handshake_timeout`](Self::handshake_timeout) | 10 s | a peer that does not finish its handshake |
/// | [`tickets`](Self::tickets) | 2 | |
/// | [`alpn`](Self::alpn) | none | |
/// | [`client_certificates`](Self::client_certificates) | not requested | |
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct ServerBuilder {
    provider: Provider,
    certificates: Certificates,
    client_certificates: ClientCertificates,
    alpn: Vec<Vec<u8>>,
    tickets: usize,
    versions: Vec<&'static SupportedProtocolVersion>,
    record_bytes_max: Option<usize>,
    key_log: Option<Arc<dyn KeyLog>>,
    clock: Arc<dyn TimeProvider>,
    handshake_timeout: Duration,
}

/// Whether clients have to present a certificate.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// They are not requested.
    #[default]
    NotRequested,
    /// A client may present one, which is then verified against these roots.
    Optional(Arc<RootCertStore>),
    /// A client without one that these roots vouch for is refused.
    Required(Arc<RootCertStore>),
}

impl ServerConfig {
    /// Begins a configuration with its certificates.
    pub fn builder(provider: &Provider, certificates: Certificates) -> ServerBuilder {
        ServerBuilder {
            provider: provider.clone(),
            certificates,
            client_certificates: ClientCertificates::NotRequested,
            alpn: Vec::new(),
            tickets: TICKETS,
            versions: rustls::DEFAULT_VERSIONS.to_vec(),
            record_bytes_max: None,
            key_log: None,
            clock: Arc::new(DefaultTimeProvider),
            handshake_timeout: HANDSHAKE_TIMEOUT,
        }
    }

    /// The filter of one connection.
    #[must_use]
    pub fn accept(&self) -> Tls {
        Tls::server(self).expect("the builder has made one")
    }

    /// Encrypts tickets for resumption with new keys from now on, on all loops. Tickets of the keys before are still
    /// accepted, those of earlier keys no more. The keys change by themselves every six hours.
    ///
    /// # Errors
    /// The system has no randomness, or the clock no time.
    pub fn replace_ticket_keys(&self) -> Result<(), ConfigError> {
        Ok(self.tickets.as_ref().map_or(Ok(()), |tickets| tickets.replace())?)
    }

    pub(crate) fn tls(&self) -> &Arc<rustls::ServerConfig> {
        &self.tls
    }

    pub(crate) fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    /// Offers these protocols, the preferred one first, if the configuration offers none; see
    /// [`ServerBuilder::alpn`].
    ///
    /// # Panics
    /// If a name is empty or longer than 255 bytes.
    #[must_use]
    pub fn alpn_or<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        if self.tls.alpn_protocols.is_empty() {
            let protocols: Vec<_> = protocols.into_iter().map(Into::into).collect();
            assert!(check_protocols(&protocols).is_ok(), "the name of a protocol has 1 to 255 bytes");
            Arc::make_mut(&mut self.tls).alpn_protocols = protocols;
        }
        self
    }

    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }
}

impl ServerBuilder {
    /// The protocols that the server speaks, the preferred one first (ALPN, RFC 7301). A client that offers protocols,
    /// and none of these, is refused; one that offers none is not.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Whether clients have to present a certificate.
    pub fn client_certificates(mut self, client_certificates: ClientCertificates) -> Self {
        self.client_certificates = client_certificates;
        self
    }

    /// How many tickets for resumption a client gets after a TLS 1.3 handshake; 0 turns resumption off for all
    /// versions. The keys of tickets live in memory only, and change every six hours.
    pub fn tickets(mut self, tickets: usize) -> Self {
        self.tickets = tickets;
        self
    }

    /// The versions of TLS; both by default.
    pub fn versions(mut self, versions: &[&'static SupportedProtocolVersion]) -> Self {
        self.versions = versions.to_vec();
        self
    }

    /// How many bytes a record that we send has at most, with its header; 32 to 16,389. By default they are as long as
    /// TLS allows, where that pays.
    pub fn record_bytes_max(mut self, bytes_max: usize) -> Self {
        self.record_bytes_max = Some(bytes_max);
        self
    }

    /// Logs the secrets of each connection, so that Wireshark can decrypt a capture. `Arc::new(rustls::KeyLogFile::new())`
    /// appends them to the file that the environment names in `SSLKEYLOGFILE`. By default nothing logs them.
    pub fn key_log(mut self, log: Arc<dyn KeyLog>) -> Self {
        self.key_log = Some(log);
        self
    }

    /// The time by which the keys of tickets grow old and certificates of clients are valid. It is that of the system by
    /// default; a test may have another.
    pub fn clock(mut self, clock: Arc<dyn TimeProvider>) -> Self {
        self.clock = clock;
        self
    }

    /// How long a handshake may take.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// # Errors
    /// [`ConfigError::ProtocolName`], [`ConfigError::NoRoots`], or what rustls refuses.
    pub fn build(self) -> Result<ServerConfig, ConfigError> {
        check_protocols(&self.alpn)?;
        let crypto = self.provider.crypto();
        let verifier = match self.client_certificates {
            ClientCertificates::NotRequested => WebPkiClientVerifier::no_client_auth(),
            ClientCertificates::Optional(ref roots) | ClientCertificates::Required(ref roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), crypto.clone());
                let is_optional = matches!(self.client_certificates, ClientCertificates::Optional(_));
                let verifier = if is_optional { verifier.allow_unauthenticated() } else { verifier };
                verifier.build().map_err(|_| ConfigError::NoRoots)?
            }
        };
        let builder = rustls::ServerConfig::builder_with_details(crypto.clone(), self.clock.clone())
            .with_protocol_versions(&self.versions)?;
        let mut tls = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(self.certificates));
        tls.alpn_protocols = self.alpn;
        tls.send_tls13_tickets = self.tickets;
        let make_tickets = self.provider.tickets().filter(|_| self.tickets > 0);
        let tickets = make_tickets.map(|make| Tickets::new(make, self.clock.clone())).transpose()?.map(Arc::new);
        tls.session_storage = if self.tickets == 0 || tickets.is_some() {
            // A ticket has the session; nothing is stored here.
            Arc::new(NoServerSessionStorage {})
        } else {
            ServerSessionMemoryCache::new(SESSIONS_MAX)
        };
        if let Some(tickets) = &tickets {
            tls.ticketer = tickets.clone();
        }
        tls.max_fragment_size = self.record_bytes_max;
        if let Some(log) = self.key_log {
            tls.key_log = log;
        }
        let config = ServerConfig {
            tls: Arc::new(tls),
            handshake_timeout: self.handshake_timeout,
            placement: self.provider.placement(),
            tickets,
        };
        // rustls checks some settings only here.
        Tls::server(&config)?;
        Ok(config)
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig").field("alpn", &self.tls.alpn_protocols).finish_non_exhaustive()
    }
}

/// RFC 7301 §3.1.
pub(crate) fn check_protocols(protocols: &[Vec<u8>]) -> Result<(), ConfigError> {
    let fit = protocols.iter().all(|name| (1..=255).contains(&name.len()));
    if fit { Ok(()) } else { Err(ConfigError::ProtocolName) }
}

/// How long a handshake may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A browser opens several connections at once, and a ticket serves one.
const TICKETS: usize = 2;

/// Sessions that a server remembers whose provider has no tickets.
const SESSIONS_MAX: usize = 1024;
