//! `AcmeBuilder`: makes an `Acme`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::rustls::pki_types::ServerName;
use tidegate_tls::{ClientConfig, Provider};

use crate::dns::{DnsProvider, WILDCARD};
use crate::error::InvalidAcme;
use crate::manager::Acme;
use crate::settings::{AcmeLimits, ChallengeKind, Settings, is_https};
use crate::store::Store;

/// Builds an [`Acme`].
#[must_use = "a builder does nothing until it builds"]
pub struct AcmeBuilder {
    settings: Settings,
}

impl Acme {
    /// Begins the settings of a certificate: `directory` is the URL of the authority's directory, `tls` says whose
    /// certificates that server may have, and `store` keeps accounts, keys and orders.
    pub fn builder(provider: &Provider, tls: ClientConfig, directory: &str, store: impl Store) -> AcmeBuilder {
        AcmeBuilder {
            settings: Settings {
                provider: provider.clone(),
                tls,
                directory: directory.to_owned(),
                names: Vec::new(),
                contacts: Vec::new(),
                external_account: None,
                challenges: vec![ChallengeKind::TlsAlpn01],
                dns: None,
                issuers: None,
                store: Arc::new(store),
                limits: AcmeLimits::default(),
            },
        }
    }
}

impl AcmeBuilder {
    /// Adds names to the certificate: DNS names and IP addresses, and wildcards such as `*.example.org` with DNS-01 alone. Names in Unicode are written as `xn--` labels.
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

    /// Sets the records of [`ChallengeKind::Dns01`], which is among the [`challenges`](Self::challenges) then:
    /// `builder.challenges([ChallengeKind::Dns01]).dns(provider)`.
    pub fn dns(mut self, provider: impl DnsProvider) -> Self {
        self.settings.dns = Some(Arc::new(provider));
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
        if settings.challenges.contains(&ChallengeKind::Dns01) && settings.dns.is_none() {
            return Err(InvalidAcme::NoDnsProvider);
        }
        let allows_wildcards = settings.challenges.iter().all(|kind| *kind == ChallengeKind::Dns01);
        settings.names = checked_names(&settings.names, allows_wildcards)?;
        if settings.names.len() > settings.limits.names_max {
            return Err(InvalidAcme::TooManyNames);
        }
        Acme::open(settings).map_err(InvalidAcme::Store)
    }
}

/// Names in lower case, sorted, each once.
fn checked_names(names: &[String], allows_wildcards: bool) -> Result<Vec<String>, InvalidAcme> {
    let mut checked = BTreeSet::new();
    for name in names {
        if name.contains('*') && !allows_wildcards {
            return Err(InvalidAcme::Wildcard(name.as_str().into()));
        }
        let lower = name.to_ascii_lowercase();
        // A wildcard is a whole label before a name (RFC 8555 §7.1.3).
        let (plain, is_wildcard) = lower.strip_prefix(WILDCARD).map_or((&*lower, false), |domain| (domain, true));
        let is_name = match ServerName::try_from(plain) {
            Ok(ServerName::DnsName(_)) => !plain.ends_with('.') && !plain.contains('*'),
            Ok(_) => !is_wildcard,
            Err(_) => false,
        };
        if !is_name {
            return Err(InvalidAcme::Name(name.as_str().into()));
        }
        checked.insert(lower);
    }
    if checked.is_empty() { Err(InvalidAcme::NoNames) } else { Ok(checked.into_iter().collect()) }
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
        checked_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), false)
    }

    #[test]
    fn a_wildcard_is_a_label_before_a_name() {
        let checked = |name: &str| checked_names(&[name.to_owned()], true);
        assert_eq!(checked("*.A.test").unwrap(), ["*.a.test"]);
        for name in ["*", "*.", "a.*.test", "*a.test", "*.*.test", "*.::1", "*.192.0.2.1"] {
            assert!(matches!(checked(name), Err(InvalidAcme::Name(_))), "{name:?}");
        }
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
}
