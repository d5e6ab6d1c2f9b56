//! `TicketKeys`: keys of session tickets that come from outside, so that servers share them and a restart keeps them.
//!
//! Each ticket is encrypted with a key of its own, which HKDF (RFC 5869) derives from a shared secret and a random salt,
//! by the AEAD of a TLS 1.3 cipher suite of the provider. So no nonce repeats, whatever number of servers share a secret.
//!
//! Read next: `tickets.rs`, which binds a ticket to the authorities of clients and to a time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::Tls13CipherSuite;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::{CryptoProvider, SecureRandom};
use rustls::server::ProducesTickets;

use crate::certificates::read;
use crate::error::ConfigError;
use crate::sealing;

/// Keys that encrypt session tickets, from files or from the application: the first one encrypts, and all of them decrypt.
///
/// Servers with the same keys resume each other's sessions, and a restart keeps the sessions of before. A party with a key
/// can decrypt the sessions that were resumed with its tickets, so replace the keys every few hours: put a new one in
/// front, keep the one before behind it for as long as tickets live, which is 12 hours, and delete the others.
///
/// A file holds 80 or 48 random bytes, as for `ssl_session_ticket_key` of nginx: a name of 16 bytes, by which a ticket
/// finds its key, and a secret. `openssl rand 80 > ticket.key` makes one. The tickets themselves are not those of nginx.
///
/// A clone is another handle of the same keys: [`reload`](Self::reload) and [`replace`](Self::replace) apply to all
/// configurations that have them.
///
/// ```no_run
/// use tidegate_tls::{Certificates, Provider, ServerConfig, TicketKeys};
///
/// let provider = Provider::aws_lc_rs();
/// let certificates = Certificates::from_files(&provider, [("site.pem", "site.key")])?;
/// let keys = TicketKeys::from_files(["new.key", "old.key"])?;
/// let config = ServerConfig::builder(&provider, certificates).ticket_keys(&keys).build()?;
/// // Later, after the files were replaced. If one is broken, the old keys stay in use.
/// keys.reload()?;
/// # drop(config);
/// # Ok::<(), tidegate_tls::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct TicketKeys(Arc<TicketKeyStore>);

struct TicketKeyStore {
    files: Vec<PathBuf>,
    keys: RwLock<Arc<[TicketKey]>>,
}

/// One key of session tickets.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: Box<[u8]>,
}

impl TicketKey {
    /// A key of 80 or 48 random bytes, of which the first 16 are its name; `None` for another length.
    ///
    /// ```
    /// use tidegate_tls::TicketKey;
    ///
    /// assert!(TicketKey::from_bytes(&[7; 80]).is_some());
    /// assert!(TicketKey::from_bytes(&[7; 79]).is_none());
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (name, secret) = bytes.split_first_chunk::<NAME_BYTES>()?;
        matches!(bytes.len(), 48 | 80).then(|| Self { name: *name, secret: secret.into() })
    }

    /// The bytes of [`from_bytes`](Self::from_bytes).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.name, &*self.secret].concat()
    }

    fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::from_bytes(&read(path)?).ok_or_else(|| ConfigError::TicketKey(path.to_owned()))
    }
}

impl TicketKeys {
    /// Keys of the application; [`reload`](Self::reload) changes nothing.
    ///
    /// # Errors
    /// [`ConfigError::NoTicketKeys`] if there is none.
    pub fn new(keys: impl IntoIterator<Item = TicketKey>) -> Result<Self, ConfigError> {
        Self::of(Vec::new(), keys.into_iter().collect())
    }

    /// Reads keys from files, one key a file.
    ///
    /// # Errors
    /// The first file that cannot be used, and why; [`ConfigError::NoTicketKeys`] without files.
    pub fn from_files<P: Into<PathBuf>>(files: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        let files: Vec<PathBuf> = files.into_iter().map(Into::into).collect();
        let keys = files.iter().map(|path| TicketKey::read(path)).collect::<Result<_, _>>()?;
        Self::of(files, keys)
    }

    fn of(files: Vec<PathBuf>, keys: Arc<[TicketKey]>) -> Result<Self, ConfigError> {
        if keys.is_empty() {
            return Err(ConfigError::NoTicketKeys);
        }
        Ok(Self(Arc::new(TicketKeyStore { files, keys: RwLock::new(keys) })))
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As for [`from_files`](Self::from_files). Then nothing has changed, and the keys stay in use.
    pub fn reload(&self) -> Result<(), ConfigError> {
        if self.0.files.is_empty() {
            return Ok(());
        }
        self.replace(self.0.files.iter().map(|path| TicketKey::read(path)).collect::<Result<Vec<_>, _>>()?)
    }

    /// Uses these keys from now on: for an application that distributes them itself.
    ///
    /// # Errors
    /// [`ConfigError::NoTicketKeys`] if there is none. Then nothing has changed.
    pub fn replace(&self, keys: impl IntoIterator<Item = TicketKey>) -> Result<(), ConfigError> {
        let keys: Arc<[TicketKey]> = keys.into_iter().collect();
        if keys.is_empty() {
            return Err(ConfigError::NoTicketKeys);
        }
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.0.files
    }

    pub(crate) fn all(&self) -> Arc<[TicketKey]> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("files", &self.0.files).finish_non_exhaustive()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey")
    }
}

/// Encrypts tickets with [`TicketKeys`].
#[derive(Debug)]
pub(crate) struct SharedTickets {
    keys: TicketKeys,
    suite: &'static Tls13CipherSuite,
    random: &'static dyn SecureRandom,
}

impl SharedTickets {
    pub(crate) fn new(keys: TicketKeys, suite: &'static Tls13CipherSuite, crypto: &CryptoProvider) -> Self {
        Self { keys, suite, random: crypto.secure_random }
    }

    /// The key and the nonce of one ticket.
    fn derive(&self, key: &TicketKey, salt: &[u8]) -> Option<(AeadKey, Iv)> {
        let labels: [&[&[u8]]; 2] = [&[KEY_LABEL, &key.name], &[NONCE_LABEL, &key.name]];
        sealing::derive(self.suite, (salt, &key.secret), labels)
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        crate::tickets::LIFETIME_SECONDS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.all();
        let key = keys.first()?;
        let mut salt = [0; SALT_BYTES];
        self.random.fill(&mut salt).ok()?;
        let sealed = sealing::seal(self.suite, self.derive(key, &salt)?, plain)?;
        Some([&key.name, &salt[..], &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (salt, sealed) = rest.split_first_chunk::<SALT_BYTES>()?;
        let keys = self.keys.all();
        let mut named = keys.iter().filter(|key| key.name == *name);
        named.find_map(|key| sealing::open(self.suite, self.derive(key, salt)?, sealed))
    }
}

/// The length of a key's name, in its file and in front of its tickets.
const NAME_BYTES: usize = 16;

/// Random bytes of each ticket, from which its key is derived.
const SALT_BYTES: usize = 32;

const KEY_LABEL: &[u8] = b"tidegate session ticket key ";
const NONCE_LABEL: &[u8] = b"tidegate session ticket nonce ";
