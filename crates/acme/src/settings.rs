//! `Settings`: whose certificate is issued, by which authority, and within which limits.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::{ClientConfig, Provider};

use crate::dns::DnsProvider;
use crate::store::Store;

/// How a name is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChallengeKind {
    /// By a handshake on port 443 of the name (RFC 8737). The server answers it with [`Acme::certificates`](crate::Acme::certificates), unless it
    /// requires certificates of clients.
    TlsAlpn01,
    /// By a GET on port 80 of the name (RFC 8555 §8.3). [`Acme::http01`](crate::Acme::http01) answers it.
    Http01,
    /// By a TXT record of the name (RFC 8555 §8.4), which an [`AcmeBuilder::dns`](crate::AcmeBuilder::dns) sets: the only kind for
    /// wildcards, and one for servers that the authority cannot reach.
    Dns01,
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
    pub(crate) dns: Option<Arc<dyn DnsProvider>>,
    pub(crate) issuers: Option<RootCertStore>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: AcmeLimits,
}

/// Whether this is a URL of https with a host: RFC 8555 §6.1 demands it of every URL of an authority.
pub(crate) fn is_https(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    uri.is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_url_of_https() {
        assert!(is_https("https://authority.test/directory") && is_https("https://[::1]:14000/dir"));
        for url in ["", "http://a.test/", "https://", "https:///d", "a.test", "https://a b/", "ftp://a.test/"] {
            assert!(!is_https(url), "{url:?}");
        }
    }
}
