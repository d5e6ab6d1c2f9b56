//! The TLS of servers, and the sessions of those with early data (0-RTT).

use std::fmt;
use std::sync::Arc;

use tidegate_tls::rustls::{
    self,
    server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions},
};

use crate::error::ConfigError;
use crate::limits::TransportLimits;
use crate::quinn::{ServerCrypto, server_crypto};

/// The TLS configuration of a server.
#[derive(Clone)]
pub(crate) struct ServerTls {
    tls: Arc<rustls::ServerConfig>,
    has_early_data: bool,
}

impl ServerTls {
    /// # Errors
    /// QUIC cannot use it.
    pub(crate) fn new(tls: Arc<rustls::ServerConfig>, limits: &TransportLimits) -> Result<Self, ConfigError> {
        let sessions_max = limits.early_sessions_max;
        let tls = if limits.early_data { Arc::new(with_early_data(&tls, sessions_max)) } else { tls };
        // quinn-proto panics within a handshake for a configuration that rustls refuses.
        let probe = rustls::quic::ServerConnection::new(tls.clone(), rustls::quic::Version::V1, Vec::new());
        probe.map_err(|_| ConfigError::Tls)?;
        Ok(Self { tls, has_early_data: limits.early_data })
    }

    /// The cryptography of QUIC.
    pub(crate) fn crypto(&self) -> Result<ServerCrypto, ConfigError> {
        server_crypto(self.tls.clone())
    }

    /// The same for a server whose application has these settings: its sessions are resumed by servers with the same ones.
    /// `None` without early data, where a client has nothing to send that depends on settings.
    pub(crate) fn crypto_for(&self, settings: &[u8]) -> Result<Option<ServerCrypto>, ConfigError> {
        if !self.has_early_data {
            return Ok(None);
        }
        let mut tls = rustls::ServerConfig::clone(&self.tls);
        let settings = settings.into();
        tls.session_storage = Arc::new(SessionsOfSettings { sessions: self.tls.session_storage.clone(), settings });
        server_crypto(tls.into()).map(Some)
    }
}

/// The server remembers sessions, and each is of use once: a ticket that has the session itself could be used again
/// (RFC 8446 §8.1).
fn with_early_data(tls: &rustls::ServerConfig, sessions_max: u32) -> rustls::ServerConfig {
    let mut tls = tls.clone();
    tls.ticketer = Arc::new(NoTickets);
    tls.session_storage = ServerSessionMemoryCache::new(sessions_max as usize);
    // QUIC bounds early data by its windows (RFC 9001 §4.6.1).
    tls.max_early_data_size = u32::MAX;
    tls
}

/// Sessions with the settings of the application that their clients remember. A session of other settings is none here.
struct SessionsOfSettings {
    sessions: Arc<dyn StoresServerSessions>,
    settings: Box<[u8]>,
}

impl SessionsOfSettings {
    /// The session itself. Each value ends with the settings and their length.
    fn strip(&self, mut value: Vec<u8>) -> Option<Vec<u8>> {
        let (rest, length) = value.split_last_chunk()?;
        let is_same = u32::from_be_bytes(*length) as usize == self.settings.len();
        let session = rest.strip_suffix(&*self.settings).filter(|_| is_same)?.len();
        value.truncate(session);
        Some(value)
    }
}

impl StoresServerSessions for SessionsOfSettings {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        let Ok(length) = u32::try_from(self.settings.len()) else { return false };
        value.extend_from_slice(&self.settings);
        value.extend_from_slice(&length.to_be_bytes());
        self.sessions.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.strip(self.sessions.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.strip(self.sessions.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.sessions.can_cache()
    }
}

impl fmt::Debug for SessionsOfSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionsOfSettings").finish_non_exhaustive()
    }
}

/// No ticket has a session.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
