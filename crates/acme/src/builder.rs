//! `AcmeBuilder`: whose certificate is issued, by which authority, and within which limits.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::rustls::pki_types::ServerName;
use tidegate_tls::{ClientConfig, Provider};

use crate::error::InvalidAcme;
use crate::manager::Acme;
use crate::store::Store;

/// How a name is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChallengeKind {
    /// By a handshake on port 443 of the name (RFC 8737). The server answers it with [`Acme::certificates`], unless it
    /// requires certificates of clients.
    TlsAlpn01,
    /// By a GET on port 80 of the name (RFC 8555 §8.3). [`Acme::http01`] answers it.
    Http01,
}

/// Times and sizes that protect this process and the authority.
///
/// | limit | default | stops |
/// |---|--:|---|
/// | [`names_max`](Self::names_max) | 100 | an order that the authority would refuse |
/// | [`response_bytes_max`](Self::response_bytes_max) | 256 KiB | a response that fills memory |
/// | [`request_timeout`](Self::request_timeout) | 30 s | an authority that hangs |
/// | [`attempt_timeout`](Self::attempt_timeout) | 10 min | an order that is never ready; the next attempt continues it |
/// | [`poll_min`](Self::poll_min) to [`poll_max`](Self::poll_max) | 1 s to 30 s | questions about an order in quick succession |
/// | [`retry_min`](Self::retry_min) to [`retry_max`](Self::retry_max) | 5 min to 6 h | failed attempts in quick succession; each waits three times as long, a tenth of it if the authority was not reached |
/// | [`retry_after_max`](Self::retry_after_max) | 7 days | a `Retry-After` without end |
/// | [`renewal_info_min`](Self::renewal_info_min) | 1 h | questions about the renewal (RFC 9773) in quick succession |
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AcmeLimits {
    /// Names of a certificate.
    pub names_max: usize,
    /// Bytes of a response of the authority.
    pub response_bytes_max: usize,
    /// Time for one request to the authority.
    pub request_timeout: Duration,
    /// Time for one attempt, from the account to the checked certificate.
    pub attempt_timeout: Duration,
    /// The first wait for an order; each is half as long again as the one before.
    pub poll_min: Duration,
    /// The longest wait for an order.
    pub poll_max: Duration,
    /// The wait after the first failed attempt.
    pub retry_min: Duration,
    /// The longest wait after a failed attempt, unless the authority demands a longer one.
    pub retry_max: Duration,
    /// The longest wait that the authority can demand.
    pub retry_after_max: Duration,
    /// The shortest time between two questions about the renewal.
    pub renewal_info_min: Duration,
}

impl Default for AcmeLimits {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            names_max: 100,
            response_bytes_max: 256 * 1024,
            request_timeout: minute / 2,
            attempt_timeout: 10 * minute,
            poll_min: Duration::from_secs(1),
            poll_max: minute / 2,
            retry_min: 5 * minute,
            retry_max: 6 * 60 * minute,
            retry_after_max: 7 * 24 * 60 * minute,
            renewal_info_min: 60 * minute,
        }
    }
}

/// Builds an [`Acme`].
#[must_use = "a builder does nothing until it builds"]
pub struct AcmeBuilder {
    pub(crate) settings: Settings,
}

/// The settings of one certificate.
pub(crate) struct Settings {
    pub(crate) provider: Provider,
    pub(crate) tls: ClientConfig,
    pub(crate) directory: String,
    /// In lower case, sorted, each once.
    pub(crate) names: Vec<String>,
    pub(crate) contacts: Vec<String>,
    pub(crate) external_account: Option<(String, Vec<u8>)>,
    pub(crate) challenges: Vec<ChallengeKind>,
    pub(crate) issuers: Option<RootCertStore>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: AcmeLimits,
}

impl AcmeBuilder {
    pub(crate) fn new(provider: &Provider, tls: ClientConfig, directory: &str, store: impl Store) -> Self {
        Self {
            settings: Settings {
                provider: provider.clone(),
                tls,
                directory: directory.to_owned(),
                names: Vec::new(),
                contacts: Vec::new(),
                external_account: None,
                challenges: vec![ChallengeKind::TlsAlpn01],
                issuers: None,
                store: Arc::new(store),
                limits: AcmeLimits::default(),
            },
        }
    }

    /// Adds names to the certificate: DNS names and IP addresses. Names in Unicode are written as `xn--` labels.
    pub fn names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.settings.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds a URL, such as `mailto:admin@example.org`, at which the authority reaches the owner of the account: it counts
    /// when the account is created.
    pub fn contact(mut self, contact: impl Into<String>) -> Self {
        self.settings.contacts.push(contact.into());
        self
    }

    /// Binds a new account to an account that the authority's owner has given out (RFC 8555 §7.3.4): its number and its
    /// key, decoded.
    pub fn external_account(mut self, id: impl Into<String>, key: impl Into<Vec<u8>>) -> Self {
        self.settings.external_account = Some((id.into(), key.into()));
        self
    }

    /// How names are validated: TLS-ALPN-01, unless set. Of several kinds each attempt has one, in turn.
    pub fn challenges(mut self, kinds: impl IntoIterator<Item = ChallengeKind>) -> Self {
        self.settings.challenges = kinds.into_iter().collect();
        self
    }

    /// Accepts only certificates that lead to one of these roots. Without them the signatures of an issued chain are
    /// checked up to its last certificate.
    pub fn issuers(mut self, roots: RootCertStore) -> Self {
        self.settings.issuers = Some(roots);
        self
    }

    /// Times and sizes.
    pub fn limits(mut self, limits: AcmeLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Reads the store: a certificate that is in it is used at once. This blocks for the time of reading a few files.
    ///
    /// # Errors
    /// [`InvalidAcme`].
    pub fn build(self) -> Result<Acme, InvalidAcme> {
        let mut settings = self.settings;
        if !is_https(&settings.directory) {
            return Err(InvalidAcme::Directory);
        }
        if settings.challenges.is_empty() {
            return Err(InvalidAcme::NoChallenges);
        }
        settings.names = checked_names(&settings.names)?;
        if settings.names.len() > settings.limits.names_max {
            return Err(InvalidAcme::TooManyNames);
        }
        Acme::open(settings).map_err(InvalidAcme::Store)
    }
}

/// Names in lower case, sorted, each once.
fn checked_names(names: &[String]) -> Result<Vec<String>, InvalidAcme> {
    let mut checked = BTreeSet::new();
    for name in names {
        if name.contains('*') {
            return Err(InvalidAcme::Wildcard(name.as_str().into()));
        }
        let lower = name.to_ascii_lowercase();
        let is_name = ServerName::try_from(lower.as_str()).is_ok() && !lower.ends_with('.');
        if !is_name {
            return Err(InvalidAcme::Name(name.as_str().into()));
        }
        checked.insert(lower);
    }
    if checked.is_empty() { Err(InvalidAcme::NoNames) } else { Ok(checked.into_iter().collect()) }
}

/// Whether this is a URL of https with a host: RFC 8555 §6.1 demands it of every URL of an authority.
pub(crate) fn is_https(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    uri.is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty()))
}

impl fmt::Debug for AcmeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { directory, names, .. } = &self.settings;
        f.debug_struct("AcmeBuilder").field("directory", directory).field("names", names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[&str]) -> Result<Vec<String>, InvalidAcme> {
        checked_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_lower_case_and_each_is_there_once() {
        assert_eq!(checked(&["B.test", "a.test", "b.TEST", "::1"]).unwrap(), ["::1", "a.test", "b.test"]);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert!(matches!(checked(&[]), Err(InvalidAcme::NoNames)));
        assert!(matches!(checked(&["*.a.test"]), Err(InvalidAcme::Wildcard(_))));
        for name in ["", "a b", "a/b", "a.test.", "https://a.test", "a..test", "ä.test"] {
            assert!(matches!(checked(&[name]), Err(InvalidAcme::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_directory_is_a_url_of_https() {
        assert!(is_https("https://authority.test/directory") && is_https("https://[::1]:14000/dir"));
        for url in ["", "http://a.test/", "https://", "https:///d", "a.test", "https://a b/", "ftp://a.test/"] {
            assert!(!is_https(url), "{url:?}");
        }
    }
}
