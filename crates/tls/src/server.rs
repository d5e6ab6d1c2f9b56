//! `ServerConfig`: the shared configuration of a listener's TLS connections.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{KeyLog, RootCertStore, SupportedProtocolVersion};

use crate::authorities::ClientAuthorities;
use crate::certificates::Certificates;
use crate::challenges;
use crate::error::ConfigError;
use crate::filter::Tls;
use crate::provider::{Placement, Provider};
use crate::ticket_keys::{SharedTickets, TicketKeys};
use crate::tickets::{BoundTickets, Tickets, binding};

/// The configuration of the server's side. A clone is another handle of the same configuration.
#[derive(Clone)]
pub struct ServerConfig(Arc<ServerConfigState>);

struct ServerConfigState {
    settings: ServerBuilder,
    tickets: TicketSource,
    current: RwLock<Current>,
}

/// The configuration for rustls, and the version of the client authorities in it.
struct Current {
    tls: Arc<rustls::ServerConfig>,
    version: u64,
}

/// The source of ticket encryption.
#[derive(Clone)]
enum TicketSource {
    /// Nothing: there are none, or the server remembers sessions.
    None,
    /// Keys that the server makes.
    Own(Arc<Tickets>),
    /// Keys that come from outside.
    Shared(Arc<SharedTickets>, TicketKeys),
}

/// Builds a [`ServerConfig`].
///
/// | setting | default | effect |
/// |---|---|---|
/// | [`handshake_timeout`](Self::handshake_timeout) | 10 s | a peer that does not finish its handshake |
/// | [`tickets`](Self::tickets) | 2 | |
/// | [`ticket_keys`](Self::ticket_keys) | the server's own | |
/// | [`alpn`](Self::alpn) | none | |
/// | [`client_certificates`](Self::client_certificates) | not requested | |
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct ServerBuilder {
    provider: Provider,
    certificates: Certificates,
    client_certificates: ClientCertificates,
    alpn: Vec<Vec<u8>>,
    tickets: usize,
    ticket_keys: Option<TicketKeys>,
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
    /// As [`Optional`](Self::Optional), against roots that can be replaced while the server runs.
    OptionalBy(ClientAuthorities),
    /// As [`Required`](Self::Required), with roots that can be replaced while the server runs.
    RequiredBy(ClientAuthorities),
}

impl ClientCertificates {
    fn authorities(&self) -> Option<&ClientAuthorities> {
        match self {
            Self::OptionalBy(authorities) | Self::RequiredBy(authorities) => Some(authorities),
            Self::NotRequested | Self::Optional(_) | Self::Required(_) => None,
        }
    }

    fn roots(&self) -> Option<Arc<RootCertStore>> {
        match self {
            Self::NotRequested => None,
            Self::Optional(roots) | Self::Required(roots) => Some(roots.clone()),
            Self::OptionalBy(authorities) | Self::RequiredBy(authorities) => Some(authorities.roots()),
        }
    }

    fn is_optional(&self) -> bool {
        matches!(self, Self::Optional(_) | Self::OptionalBy(_))
    }

    /// How clients are verified, for the tickets that are bound to it.
    fn mode(&self) -> u8 {
        match self {
            Self::NotRequested => 0,
            Self::Optional(_) | Self::OptionalBy(_) => 1,
            Self::Required(_) | Self::RequiredBy(_) => 2,
        }
    }
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
            ticket_keys: None,
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
    /// accepted, those of earlier keys no more. The keys change by themselves every six hours. With
    /// [`TicketKeys`](ServerBuilder::ticket_keys) it reads their files again.
    ///
    /// # Errors
    /// The system has no randomness, or the clock no time; or a file cannot be used.
    pub fn replace_ticket_keys(&self) -> Result<(), ConfigError> {
        match &self.0.tickets {
            TicketSource::None => Ok(()),
            TicketSource::Own(tickets) => tickets.replace(),
            TicketSource::Shared(_, keys) => keys.reload(),
        }
    }

    /// The keys of tickets that the server has made, for a process that takes its place. They are secret; they are empty if the
    /// server has [`TicketKeys`](ServerBuilder::ticket_keys), or no tickets.
    #[must_use]
    pub fn ticket_state(&self) -> Vec<u8> {
        match &self.0.tickets {
            TicketSource::Own(tickets) => tickets.state(),
            TicketSource::None | TicketSource::Shared(..) => Vec::new(),
        }
    }

    /// Encrypts tickets with the keys of [`ticket_state`](Self::ticket_state) of another process from now on: its sessions are
    /// resumed here. Returns whether they are in use now. A server with [`TicketKeys`](ServerBuilder::ticket_keys) keeps these.
    pub fn adopt_ticket_state(&self, state: &[u8]) -> bool {
        match &self.0.tickets {
            TicketSource::Own(tickets) => tickets.adopt(state),
            TicketSource::None | TicketSource::Shared(..) => false,
        }
    }

    /// The cryptography.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.0.settings.provider
    }

    /// The configuration for rustls, for a connection that begins now: for a protocol that carries the handshake itself,
    /// such as QUIC (RFC 9001).
    #[must_use]
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        let current = |shared: &ServerConfigState| {
            let current = shared.current.read().unwrap_or_else(PoisonError::into_inner);
            (current.tls.clone(), current.version)
        };
        let (tls, version) = current(&self.0);
        let authorities = self.0.settings.client_certificates.authorities();
        if authorities.is_none_or(|authorities| authorities.version() == version) {
            return tls;
        }
        // Roots that were empty would have been refused, so there is a verifier for these.
        if let Ok(renewed) = self.0.settings.make(&self.0.tickets) {
            *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        }
        current(&self.0).0
    }

    /// How long a handshake may take.
    #[must_use]
    pub fn handshake_timeout(&self) -> Duration {
        self.0.settings.handshake_timeout
    }

    /// Offers these protocols, the preferred one first, if the configuration offers none; see
    /// [`ServerBuilder::alpn`].
    ///
    /// # Panics
    /// If a name is empty or longer than 255 bytes.
    #[must_use]
    pub fn alpn_or<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        if self.0.settings.alpn.is_empty() { self.with_alpn(protocols) } else { self }
    }

    /// Offers these protocols, the preferred one first, whatever the configuration offers. Certificates, tickets and their
    /// keys are shared with it.
    ///
    /// # Panics
    /// If a name is empty or longer than 255 bytes.
    #[must_use]
    pub fn with_alpn<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        let protocols: Vec<_> = protocols.into_iter().map(Into::into).collect();
        assert!(check_protocols(&protocols).is_ok(), "the name of a protocol has 1 to 255 bytes");
        let settings = ServerBuilder { alpn: protocols, ..self.0.settings.clone() };
        // The same settings have made a configuration before.
        let Ok(current) = settings.make(&self.0.tickets) else { return self };
        Self(Arc::new(ServerConfigState { settings, tickets: self.0.tickets.clone(), current: RwLock::new(current) }))
    }

    pub(crate) fn placement(&self) -> Placement {
        self.0.settings.provider.placement()
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
    /// versions. The keys of tickets live in memory only, and change every six hours, unless
    /// [`ticket_keys`](Self::ticket_keys) are set.
    pub fn tickets(mut self, tickets: usize) -> Self {
        self.tickets = tickets;
        self
    }

    /// Encrypts tickets with these keys, which other servers share, or which a restart keeps. By default the server makes
    /// keys of its own.
    pub fn ticket_keys(mut self, keys: &TicketKeys) -> Self {
        self.ticket_keys = Some(keys.clone());
        self
    }

    /// The TLS versions; both by default.
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
    /// [`ConfigError::ProtocolName`], [`ConfigError::NoRoots`], [`ConfigError::TicketCipher`], or the error of rustls.
    pub fn build(self) -> Result<ServerConfig, ConfigError> {
        check_protocols(&self.alpn)?;
        let tickets = self.ticket_source()?;
        let current = RwLock::new(self.make(&tickets)?);
        let config = ServerConfig(Arc::new(ServerConfigState { settings: self, tickets, current }));
        // rustls checks some settings only here.
        Tls::server(&config)?;
        Ok(config)
    }

    fn ticket_source(&self) -> Result<TicketSource, ConfigError> {
        if self.tickets == 0 {
            return Ok(TicketSource::None);
        }
        if let Some(keys) = &self.ticket_keys {
            let suite = self.provider.sealing().ok_or(ConfigError::TicketCipher)?;
            let tickets = SharedTickets::new(keys.clone(), suite, self.provider.crypto());
            return Ok(TicketSource::Shared(Arc::new(tickets), keys.clone()));
        }
        Ok(match self.provider.own_tickets() {
            Some(suite) => {
                TicketSource::Own(Arc::new(Tickets::new(suite, self.provider.crypto(), self.clock.clone())?))
            }
            None => TicketSource::None,
        })
    }

    /// Makes the configuration for rustls with the current client authorities.
    fn make(&self, tickets: &TicketSource) -> Result<Current, ConfigError> {
        let crypto = self.provider.crypto();
        // The version before the roots: roots that change meanwhile are taken again at the next connection.
        let version = self.client_certificates.authorities().map_or(0, ClientAuthorities::version);
        let roots = self.client_certificates.roots();
        let binding = binding(&self.provider, self.client_certificates.mode(), roots.as_deref());
        let verifier = match roots {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, crypto.clone());
                let is_optional = self.client_certificates.is_optional();
                let verifier = if is_optional { verifier.allow_unauthenticated() } else { verifier };
                verifier.build().map_err(|_| ConfigError::NoRoots)?
            }
        };
        let builder = rustls::ServerConfig::builder_with_details(crypto.clone(), self.clock.clone())
            .with_protocol_versions(&self.versions)?;
        let mut tls =
            builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(self.certificates.clone()));
        tls.alpn_protocols = self.alpn.clone();
        // Last: a client that offers another protocol as well gets that one. A server without protocols refuses no
        // client for those that it offers, so it offers none here either.
        if self.certificates.answers_challenges() && !self.alpn.is_empty() {
            tls.alpn_protocols.push(challenges::PROTOCOL.to_vec());
        }
        tls.send_tls13_tickets = self.tickets;
        let bound = |keys: Arc<dyn ProducesTickets>| Arc::new(BoundTickets::new(keys, binding, self.clock.clone()));
        // A ticket has the session; nothing is stored here. Sessions that are stored end with their authorities.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        match tickets {
            TicketSource::Own(tickets) => tls.ticketer = bound(tickets.clone()),
            TicketSource::Shared(tickets, _) => tls.ticketer = bound(tickets.clone()),
            TicketSource::None if self.tickets > 0 => tls.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX),
            TicketSource::None => {}
        }
        tls.max_fragment_size = self.record_bytes_max;
        if let Some(log) = &self.key_log {
            tls.key_log = log.clone();
        }
        Ok(Current { tls: Arc::new(tls), version })
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig").field("alpn", &self.0.settings.alpn).finish_non_exhaustive()
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
