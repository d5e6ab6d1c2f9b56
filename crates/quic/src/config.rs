//! `ServerConfig`, `ClientConfig`: the settings that all endpoints of a server or a client share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::{EndpointGeneration, SessionCounts as Counts};
use tidegate_sys::{DatagramOptions, Steering};
use tidegate_tls as tls;

use crate::codes::Codes;
use crate::connection_ids::{STEERING, origin};
use crate::counters::CounterSet;
use crate::endpoint::Endpoint;
use crate::error::ConfigError;
use crate::generation::Generation;
use crate::limits::TransportLimits;
#[cfg(feature = "qlog")]
use crate::qlog::QlogFolder;
use crate::quinn::{self, Outgoing, Shared};
use crate::refusals::Refusals;
use crate::server_tls::ServerTls;

/// The decision on a client that wants to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// The handshake begins.
    Accept,
    /// The client has to prove its address first, by a Retry (RFC 9000 §8.1.2). One that has proved it is accepted.
    Retry,
    /// The client gets CONNECTION_REFUSED.
    Refuse,
    /// Nothing is sent.
    Ignore,
}

/// Decides on a client by its address, which is forged unless it is validated.
pub(crate) type Decide = dyn Fn(SocketAddr, bool) -> Admit + Send + Sync;

/// The configuration of a server. All loops share it: its keys of stateless resets, of Retry tokens and of tickets are the
/// same for each. A clone is another handle.
///
/// ```
/// use tidegate::quic::{TransportLimits, ServerConfig};
/// # fn certificates() -> Result<tidegate::tls::ServerConfig, Box<dyn std::error::Error>> { Err("none".into()) }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let Ok(tls) = certificates() else { return Ok(()) };
/// let limits = TransportLimits { connections_max: 1000, ..TransportLimits::default() };
/// let config = ServerConfig::new(&tls, limits)?;
/// assert_eq!(config.counts().connections, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerConfig(pub(crate) Settings);

/// The configuration of a client's connections. A clone is another handle; TLS sessions are resumed between connections
/// that share it.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) settings: Settings,
    pub(crate) outgoing: Outgoing,
    /// The same without early data, for a server that has refused it.
    pub(crate) outgoing_without_early: Outgoing,
}

/// The settings of an endpoint.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) shared: Shared,
    pub(crate) limits: Arc<TransportLimits>,
    pub(crate) codes: Codes,
    pub(crate) handshake_timeout: Duration,
    pub(crate) decide: Option<Arc<Decide>>,
    pub(crate) counters: Arc<CounterSet>,
    /// Those of a client's servers.
    pub(crate) refusals: Refusals,
    /// That of a server.
    pub(crate) generation: Option<Arc<Generation>>,
    /// That of a server.
    tls: Option<ServerTls>,
    #[cfg(feature = "qlog")]
    qlog: Option<QlogFolder>,
}

impl Settings {
    fn new(shared: Shared, limits: TransportLimits, handshake_timeout: Duration) -> Self {
        Self {
            shared,
            limits: Arc::new(limits),
            codes: Codes::default(),
            handshake_timeout,
            decide: None,
            counters: Arc::default(),
            refusals: Refusals::default(),
            generation: None,
            tls: None,
            #[cfg(feature = "qlog")]
            qlog: None,
        }
    }
}

#[cfg(feature = "qlog")]
impl Settings {
    /// The configuration of the next connection of a server, if it has a qlog.
    pub(crate) fn of_connection(&self) -> Option<Arc<quinn::OfServer>> {
        self.shared.server_with_qlog(&self.limits, self.qlog.as_ref()?)
    }

    /// The configuration of the next connection of a client.
    pub(crate) fn of_outgoing(&self, outgoing: &Outgoing) -> Outgoing {
        let with_qlog = self.qlog.as_ref().and_then(|qlog| quinn::outgoing_with_qlog(outgoing, &self.limits, qlog));
        with_qlog.unwrap_or_else(|| outgoing.clone())
    }
}

#[cfg(not(feature = "qlog"))]
impl Settings {
    /// All connections of a server have the same configuration.
    pub(crate) fn of_connection(&self) -> Option<Arc<quinn::OfServer>> {
        None
    }

    /// The configuration of the next connection of a client.
    pub(crate) fn of_outgoing(&self, outgoing: &Outgoing) -> Outgoing {
        outgoing.clone()
    }
}

impl ServerConfig {
    /// A server with these TLS certificates and protocols (ALPN). Its handshakes have the deadline of `tls`, and its
    /// secrets go to the key log of `tls`. Clients may change their address.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(tls: &tls::ServerConfig, limits: TransportLimits) -> Result<Self, ConfigError> {
        Self::with_migration(tls, limits, true)
    }

    /// The same, and chooses whether clients may change their address (RFC 9000 §9).
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn with_migration(
        tls: &tls::ServerConfig,
        limits: TransportLimits,
        migrates: bool,
    ) -> Result<Self, ConfigError> {
        let of_quic = ServerTls::new(tls.tls(), &limits)?;
        let shared = Shared::new(&limits, Some(of_quic.crypto()?), migrates)?;
        let (generation, of_quic) = (Some(Arc::new(Generation::new(tls)?)), Some(of_quic));
        Ok(Self(Settings { generation, tls: of_quic, ..Settings::new(shared, limits, tls.handshake_timeout()) }))
    }

    /// Decides on each client that wants to connect, by its address and whether that is validated. The limits come first.
    #[must_use]
    pub fn admit(mut self, decide: impl Fn(SocketAddr, bool) -> Admit + Send + Sync + 'static) -> Self {
        self.0.decide = Some(Arc::new(decide));
        self
    }

    /// The numbers that peers get for the causes of resets; zero by default.
    #[must_use]
    pub fn codes(mut self, codes: Codes) -> Self {
        self.0.codes = codes;
        self
    }

    /// The generation of the endpoints, for [`EndpointListener::generation`](tidegate_engine::EndpointListener::generation):
    /// connections outlast a restart. Its keys are those of a predecessor with the same sockets. `None` is that of no server.
    #[must_use]
    pub fn generation(&self) -> Option<Arc<dyn EndpointGeneration>> {
        self.0.generation.clone().map(|generation| generation as Arc<dyn EndpointGeneration>)
    }

    /// The same configuration for another server, with keys of its own: a server and its successor in one process have a
    /// generation each.
    ///
    /// # Errors
    /// [`ConfigError::Tls`] if the cryptography has no randomness.
    pub fn for_another_server(&self) -> Result<Self, ConfigError> {
        let another = self.0.generation.as_ref().map(|own| own.another().map(Arc::new)).transpose()?;
        Ok(Self(Settings { generation: another, ..self.0.clone() }))
    }

    /// The settings of the application that a client may rely on in early data, in any form: the SETTINGS frame of HTTP/3 (RFC
    /// 9114 §7.2.4.2). Servers that share a configuration share the sessions for early data as well, and a session of other
    /// settings is of no use: its client handshakes in full, and its early data is refused.
    ///
    /// ```
    /// # fn example(config: &tidegate::quic::ServerConfig) -> Result<(), tidegate::quic::ConfigError> {
    /// let [before, after] = [config.application_settings(b"rows=64")?, config.application_settings(b"rows=16")?];
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Tls`] if QUIC cannot use the TLS.
    pub fn application_settings(&self, settings: &[u8]) -> Result<Self, ConfigError> {
        let mut config = self.clone();
        if let Some(crypto) = self.0.tls.as_ref().map(|tls| tls.crypto_for(settings)).transpose()?.flatten() {
            config.0.shared = config.0.shared.with_crypto(crypto);
        }
        Ok(config)
    }

    /// Each connection has a file in this folder.
    #[cfg(feature = "qlog")]
    #[must_use]
    pub fn qlog(mut self, folder: QlogFolder) -> Self {
        self.0.qlog = Some(folder);
        self
    }

    /// The rule by which datagrams of a client that has changed its address come to the loop that has the connection, for
    /// [`DatagramOptions::steering`](tidegate_sys::DatagramOptions::steering) of the listener. It tells 128 loops apart.
    #[must_use]
    pub fn steering(&self) -> Steering {
        STEERING
    }

    /// The options of the sockets of a listener: its [steering](Self::steering), and room for the longest payload that
    /// [`payload_bytes_max`](TransportLimits::payload_bytes_max) permits. A longer datagram is truncated, and dropped.
    ///
    /// ```
    /// use tidegate::quic::{ServerConfig, TransportLimits};
    /// # fn example(tls: &tidegate::tls::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ServerConfig::new(tls, TransportLimits { payload_bytes_max: 8_972, ..TransportLimits::default() })?;
    /// assert_eq!(config.socket_options().payload_bytes_max, 8_972);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn socket_options(&self) -> DatagramOptions {
        DatagramOptions { steering: Some(self.steering()), ..self.0.limits.socket_options() }
    }

    /// The endpoint of a socket, by its place among those at the address.
    #[must_use]
    pub fn endpoint(&self, place: usize) -> Endpoint {
        let generation = self.0.generation.as_ref().map_or(0, |generation| generation.number());
        Endpoint::new(self.0.clone(), origin(generation, place))
    }

    /// The counts of all endpoints of this configuration.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }
}

impl ClientConfig {
    /// A client with the trust of `tls`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(tls: &tls::ClientConfig, limits: TransportLimits) -> Result<Self, ConfigError> {
        let shared = Shared::new(&limits, None, false)?;
        let outgoing = shared.outgoing(tls.tls().clone(), limits.early_data)?;
        let outgoing_without_early = shared.outgoing(tls.tls().clone(), false)?;
        let settings = Settings::new(shared, limits, tls.handshake_timeout());
        Ok(Self { settings, outgoing, outgoing_without_early })
    }

    /// The numbers that peers get for the causes of resets; zero by default.
    #[must_use]
    pub fn codes(mut self, codes: Codes) -> Self {
        self.settings.codes = codes;
        self
    }

    /// Each connection has a file in this folder.
    #[cfg(feature = "qlog")]
    #[must_use]
    pub fn qlog(mut self, folder: QlogFolder) -> Self {
        self.settings.qlog = Some(folder);
        self
    }

    /// An endpoint that connects.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.settings.clone(), origin(0, 0))
    }

    /// The options of a socket for it. The kernel joins the datagrams of a download into runs (UDP_GRO), unless
    /// [`payload_bytes_max`](TransportLimits::payload_bytes_max) is above 2,048: the loop's memory for a batch of runs is at
    /// least 256 of the longest payload.
    ///
    /// ```
    /// use tidegate::quic::{ClientConfig, TransportLimits};
    /// # fn example(tls: &tidegate::tls::ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::new(tls, TransportLimits::default())?;
    /// assert!(config.socket_options().joins_runs);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn socket_options(&self) -> DatagramOptions {
        let options = self.settings.limits.socket_options();
        let joins_runs = options.payload_bytes_max <= DatagramOptions::default().payload_bytes_max;
        DatagramOptions { joins_runs, ..options }
    }

    /// The counts of all endpoints of this configuration.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.settings.counters.read()
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig").field("limits", &self.settings.limits).finish_non_exhaustive()
    }
}
