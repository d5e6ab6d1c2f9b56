//! `ClientAuthorities`: the roots that vouch for clients, replaced while the server runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::RootCertStore;

use crate::certificates::{certificates, read};
use crate::error::ConfigError;

/// The root certificates that vouch for the certificates of clients, from PEM files or from the application.
///
/// A clone is another handle of the same roots: the roots that [`reload`](Self::reload) reads apply to all connections
/// that are accepted afterwards, on all loops, resumed ones included: a session that began under other roots is not
/// resumed. A handshake that is under way has the old roots, for
/// [`handshake_timeout`](crate::ServerBuilder::handshake_timeout) at most. Connections that are established stay.
///
/// ```no_run
/// use tidegate_tls::{Certificates, ClientAuthorities, ClientCertificates, Provider, ServerConfig};
///
/// let provider = Provider::aws_lc_rs();
/// let certificates = Certificates::from_files(&provider, [("site.pem", "site.key")])?;
/// let authorities = ClientAuthorities::from_files(["clients.pem"])?;
/// let clients = ClientCertificates::RequiredBy(authorities.clone());
/// let config = ServerConfig::builder(&provider, certificates).client_certificates(clients).build()?;
/// // Later, after the file was replaced. If it is broken, the old roots stay in use.
/// authorities.reload()?;
/// # drop(config);
/// # Ok::<(), tidegate_tls::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ClientAuthorities(Arc<AuthorityStore>);

struct AuthorityStore {
    files: Vec<PathBuf>,
    roots: RwLock<Arc<RootCertStore>>,
    /// How often the roots were replaced. It changes after them.
    version: AtomicU64,
}

impl ClientAuthorities {
    /// Roots of the application; [`reload`](Self::reload) changes nothing.
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`] if there is none.
    pub fn new(roots: RootCertStore) -> Result<Self, ConfigError> {
        Self::of(Vec::new(), roots)
    }

    /// Reads the certificates of PEM files.
    ///
    /// # Errors
    /// The first file that cannot be used, and why; [`ConfigError::NoRoots`] without files.
    pub fn from_files<P: Into<PathBuf>>(files: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        let files: Vec<PathBuf> = files.into_iter().map(Into::into).collect();
        let roots = read_roots(&files)?;
        Self::of(files, roots)
    }

    fn of(files: Vec<PathBuf>, roots: RootCertStore) -> Result<Self, ConfigError> {
        if roots.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        Ok(Self(Arc::new(AuthorityStore { files, roots: RwLock::new(Arc::new(roots)), version: AtomicU64::new(0) })))
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As for [`from_files`](Self::from_files). Then nothing has changed, and the roots stay in use.
    pub fn reload(&self) -> Result<(), ConfigError> {
        if self.0.files.is_empty() { Ok(()) } else { self.replace(read_roots(&self.0.files)?) }
    }

    /// Uses these roots from now on.
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`] if there is none. Then nothing has changed.
    pub fn replace(&self, roots: RootCertStore) -> Result<(), ConfigError> {
        if roots.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        *self.0.roots.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(roots);
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.0.files
    }

    /// The version of the roots. Those that [`roots`](Self::roots) returns afterwards are of this version or a later one.
    pub(crate) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        self.0.roots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").field("files", &self.0.files).finish_non_exhaustive()
    }
}

fn read_roots(files: &[PathBuf]) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for path in files {
        for certificate in certificates(path, &read(path)?)? {
            roots.add(certificate).map_err(|_| ConfigError::Certificate(path.clone()))?;
        }
    }
    Ok(roots)
}
