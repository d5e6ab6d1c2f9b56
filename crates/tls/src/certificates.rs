//! `Certificates`: the certificates of a server, chosen by the name that the client requests, replaced while it runs.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::EndEntityCert;

use crate::challenges::{Challenges, is_challenge};
use crate::error::ConfigError;
use crate::provider::Provider;

/// The certificates of a server, each with its key.
///
/// A client requests a name (SNI, RFC 6066 §3). It gets the certificate that lists that name, else the one that lists a
/// wildcard for it, else the first one. A wildcard stands for one label: `*.example.org` covers `a.example.org`, and
/// neither `example.org` nor `a.b.example.org` (RFC 6125 §6.4.3). The names are those in the certificates.
///
/// A clone is another handle of the same certificates: all handshakes that begin after a [`reload`](Self::reload) use
/// the certificates that it read, on all loops. Established connections keep their certificates.
///
/// ```no_run
/// use tidegate_tls::{Certificates, Provider};
///
/// let certificates = Certificates::from_files(&Provider::aws_lc_rs(), [("site.pem", "site.key")])?;
/// // Later, after the files were replaced. If they are broken, the old ones stay in use.
/// certificates.reload()?;
/// # Ok::<(), tidegate_tls::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Certificates(Arc<CertificateStore>);

struct CertificateStore {
    provider: Provider,
    files: Vec<PemFiles>,
    table: RwLock<Arc<Table>>,
    /// `Some` for certificates that an authority issues while the server runs.
    challenges: Option<Challenges>,
}

/// A certificate chain and its key, as PEM files.
#[derive(Debug, Clone)]
pub(crate) struct PemFiles {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Certificates by name, in lower case.
#[derive(Default)]
struct Table {
    /// By full name.
    exact: HashMap<Box<str>, Arc<CertifiedKey>>,
    /// By the name behind `*.`.
    wildcard: HashMap<Box<str>, Arc<CertifiedKey>>,
    /// For clients that request another name or none.
    first: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads pairs of PEM files: a chain, the certificate of the server first, and its private key.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn from_files<C: Into<PathBuf>, K: Into<PathBuf>>(
        provider: &Provider,
        pairs: impl IntoIterator<Item = (C, K)>,
    ) -> Result<Self, ConfigError> {
        let pairs = pairs.into_iter().map(|(chain, key)| PemFiles { chain: chain.into(), key: key.into() });
        let files: Vec<_> = pairs.collect();
        Ok(Self::of(provider, files.clone(), Table::read(provider, &files)?, None))
    }

    /// One chain with its private key, both as PEM text; [`reload`](Self::reload) changes nothing.
    ///
    /// # Errors
    /// As for [`from_files`](Self::from_files); the path is `certificate` or `key`.
    pub fn from_pem(provider: &Provider, chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let certified = certified(provider, (Path::new("certificate"), chain), (Path::new("key"), key))?;
        let mut table = Table::default();
        table.add(&certified, Path::new("certificate"))?;
        Ok(Self::of(provider, Vec::new(), table, None))
    }

    /// No certificate yet: an authority issues them while the server runs, and [`replace_pem`](Self::replace_pem) sets
    /// each. A handshake fails as long as there is none.
    ///
    /// A [`ServerConfig`](crate::ServerConfig) with these certificates and with [ALPN](crate::ServerBuilder::alpn)
    /// answers TLS-ALPN-01 challenges (RFC 8737) that [`set_challenge`](Self::set_challenge) sets. Such a connection
    /// carries no data. The feature `acme` of the crate `tidegate` does all of this.
    ///
    /// ```
    /// use tidegate_tls::{Certificates, Provider};
    ///
    /// let provider = Provider::aws_lc_rs();
    /// let certificates = Certificates::issued_later(&provider);
    /// let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    /// certificates.replace_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())?;
    /// # Ok::<(), tidegate_tls::ConfigError>(())
    /// ```
    #[must_use]
    pub fn issued_later(provider: &Provider) -> Self {
        Self::of(provider, Vec::new(), Table::default(), Some(Challenges::default()))
    }

    fn of(provider: &Provider, files: Vec<PemFiles>, table: Table, challenges: Option<Challenges>) -> Self {
        let table = RwLock::new(Arc::new(table));
        Self(Arc::new(CertificateStore { provider: provider.clone(), files, table, challenges }))
    }

    /// Uses this chain with its private key, both as PEM text, in place of all certificates. A later
    /// [`reload`](Self::reload) of [files](Self::from_files) replaces it again.
    ///
    /// # Errors
    /// As for [`from_pem`](Self::from_pem). Then nothing has changed, and the certificates stay in use.
    pub fn replace_pem(&self, chain: &[u8], key: &[u8]) -> Result<(), ConfigError> {
        let certified = certified(&self.0.provider, (Path::new("certificate"), chain), (Path::new("key"), key))?;
        let mut table = Table::default();
        table.add(&certified, Path::new("certificate"))?;
        *self.0.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        Ok(())
    }

    /// Uses the present certificates of another handle in place of all certificates, until these are replaced: for
    /// certificates that are issued later, in place of those in use.
    ///
    /// ```
    /// use tidegate_tls::{Certificates, Provider};
    ///
    /// let provider = Provider::aws_lc_rs();
    /// let made = rcgen::generate_simple_self_signed(["sea.example".to_owned()])?;
    /// let used = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())?;
    /// let certificates = Certificates::issued_later(&provider);
    /// certificates.replace_with(&used);
    /// assert_eq!(certificates.names(), ["sea.example"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_with(&self, other: &Self) {
        let table = other.0.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        *self.0.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// Presents this certificate with its key, both as PEM text, to an authority that validates `name` by TLS-ALPN-01:
    /// to a client that offers `acme-tls/1` alone and requests `name` (SNI). For an IP address that is the name of
    /// RFC 8738 §6. Nothing happens unless the certificates are [`issued_later`](Self::issued_later).
    ///
    /// # Errors
    /// As for [`from_pem`](Self::from_pem), but that the key is not compared with the certificate.
    pub fn set_challenge(&self, name: &str, chain: &[u8], key: &[u8]) -> Result<(), ConfigError> {
        let chain = certificates(Path::new("certificate"), chain)?;
        let key = private_key(Path::new("key"), key)?;
        let loaded = self.0.provider.crypto().key_provider.load_private_key(key);
        let key = loaded.map_err(|error| ConfigError::Key(PathBuf::from("key"), error))?;
        // Its critical extension is unknown to webpki, so nothing compares the key with the certificate.
        let certified = Arc::new(CertifiedKey::new(chain, key));
        if let Some(challenges) = &self.0.challenges {
            challenges.set(name, certified);
        }
        Ok(())
    }

    /// Forgets the certificate that [`set_challenge`](Self::set_challenge) has set for `name`.
    pub fn clear_challenge(&self, name: &str) {
        if let Some(challenges) = &self.0.challenges {
            challenges.clear(name);
        }
    }

    /// Whether an authority may validate names here.
    pub(crate) fn answers_challenges(&self) -> bool {
        self.0.challenges.is_some()
    }

    /// The names in the certificates in alphabetical order, those of wildcards with their `*.`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let wildcards = table.wildcard.keys().map(|name| format!("*.{name}"));
        let mut names: Vec<_> = table.exact.keys().map(|name| name.to_string()).chain(wildcards).collect();
        names.sort();
        names
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As for [`from_files`](Self::from_files). Then nothing has changed, and the certificates stay in use.
    pub fn reload(&self) -> Result<(), ConfigError> {
        if self.0.files.is_empty() {
            return Ok(());
        }
        let table = Arc::new(Table::read(&self.0.provider, &self.0.files)?);
        *self.0.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(())
    }

    pub(crate) fn files(&self) -> &[PemFiles] {
        &self.0.files
    }

    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        table.find(name)
    }
}

impl Table {
    fn read(provider: &Provider, files: &[PemFiles]) -> Result<Self, ConfigError> {
        let mut table = Self::default();
        for PemFiles { chain, key } in files {
            let certified = certified(provider, (chain, &read(chain)?), (key, &read(key)?))?;
            table.add(&certified, chain)?;
        }
        Ok(table)
    }

    fn add(&mut self, certified: &Arc<CertifiedKey>, path: &Path) -> Result<(), ConfigError> {
        let malformed = || ConfigError::Certificate(path.to_owned());
        let first = certified.end_entity_cert().map_err(|_| malformed())?;
        let certificate = EndEntityCert::try_from(first).map_err(|_| malformed())?;
        for name in certificate.valid_dns_names() {
            let name = name.to_ascii_lowercase();
            // The certificate that was listed first is used, as for the default.
            match name.strip_prefix("*.") {
                Some(rest) => self.wildcard.entry(rest.into()).or_insert_with(|| certified.clone()),
                None => self.exact.entry(name.into()).or_insert_with(|| certified.clone()),
            };
        }
        self.first.get_or_insert_with(|| certified.clone());
        Ok(())
    }

    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let by_name = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let by_wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(&*name).or_else(by_wildcard)
        });
        by_name.or(self.first.as_ref()).cloned()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        REQUESTED_NAME.set(hello.server_name().map(Into::into));
        let found = match &self.0.challenges {
            Some(challenges) if is_challenge(&hello) => hello.server_name().and_then(|name| challenges.find(name)),
            _ => self.find(hello.server_name()),
        };
        IS_MISSING.set(found.is_none());
        found
    }
}

thread_local! {
    /// The name in the last ClientHello on this thread. rustls does not report it on the interface that `records.rs`
    /// uses, and calls `resolve` before it returns there.
    static REQUESTED_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

thread_local! {
    /// Whether the last ClientHello on this thread has found no certificate, which rustls reports as a text alone.
    static IS_MISSING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the bytes that rustls has just processed on this thread had a ClientHello for which there is no certificate.
pub(crate) fn take_missing() -> bool {
    IS_MISSING.take()
}

/// The name that the client has requested whose bytes rustls has just processed on this thread, if they had one.
pub(crate) fn take_requested_name() -> Option<Box<str>> {
    REQUESTED_NAME.take()
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.0.files).finish_non_exhaustive()
    }
}

/// A chain with its key, from PEM texts with the paths that errors name.
pub(crate) fn certified(
    provider: &Provider,
    (chain_path, chain): (&Path, &[u8]),
    (key_path, key): (&Path, &[u8]),
) -> Result<Arc<CertifiedKey>, ConfigError> {
    let chain = certificates(chain_path, chain)?;
    let key = private_key(key_path, key)?;
    let certified = CertifiedKey::from_der(chain, key, provider.crypto()).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => ConfigError::KeyMismatch(chain_path.to_owned()),
        Error::InvalidCertificate(_) => ConfigError::Certificate(chain_path.to_owned()),
        error => ConfigError::Key(key_path.to_owned(), error),
    })?;
    Ok(Arc::new(certified))
}

/// The first private key in a PEM text.
fn private_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound => ConfigError::NoKey(path.to_owned()),
        _ => ConfigError::Pem(path.to_owned()),
    })
}

/// The certificates in a PEM text, at least one.
pub(crate) fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(ConfigError::NoCertificate(path.to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(ConfigError::Pem(path.to_owned())),
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |error| ConfigError::Read(path.to_owned(), error);
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLong(path.to_owned()));
    }
    Ok(text)
}

/// No file of certificates or of a key is longer.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests;
