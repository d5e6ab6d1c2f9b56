//! `IssuedChain`: the chain that an authority has issued, and its checks before it is used.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::CertificateIdentifier;
use tidegate_tls::Provider;
use tidegate_tls::rustls::RootCertStore;
use tidegate_tls::rustls::pki_types::pem::PemObject;
use tidegate_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use tidegate_tls::rustls::sign::CertifiedKey;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::parse_x509_certificate;

use crate::dns::WILDCARD;
use crate::error::InvalidChain;
use crate::renewal::Lifetime;

/// A chain, the certificate of the server first.
pub(crate) struct IssuedChain {
    certificates: Vec<CertificateDer<'static>>,
    pub(crate) lifetime: Lifetime,
}

impl IssuedChain {
    /// Reads a PEM text.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, InvalidChain> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(CERTIFICATES_MAX + 1).collect();
        let certificates = read.map_err(|_| InvalidChain::Pem)?;
        let Some(first) = certificates.first().filter(|_| certificates.len() <= CERTIFICATES_MAX) else {
            return Err(InvalidChain::Pem);
        };
        let (_, parsed) = parse_x509_certificate(first).map_err(|_| InvalidChain::Certificate)?;
        let validity = parsed.validity();
        let lifetime = Lifetime {
            not_before: time_of(validity.not_before.timestamp()),
            not_after: time_of(validity.not_after.timestamp()),
        };
        Ok(Self { certificates, lifetime })
    }

    /// The first certificate for questions about its renewal (RFC 9773 §4.1); `None` if it has no key identifier.
    pub(crate) fn identifier(&self) -> Option<CertificateIdentifier<'static>> {
        let first = CertificateIdentifier::try_from(self.certificates.first()?).ok()?;
        Some(first.into_owned())
    }

    /// Whether the first certificate is for this key (PEM) and all of these names.
    pub(crate) fn check_identity(&self, provider: &Provider, key: &[u8], names: &[String]) -> Result<(), InvalidChain> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| InvalidChain::Key)?;
        CertifiedKey::from_der(self.certificates.clone(), key, provider.crypto()).map_err(|_| InvalidChain::Key)?;
        let first = self.end_entity()?;
        for name in names {
            // A wildcard is valid for any label in its place.
            let name = match name.strip_prefix(WILDCARD) {
                Some(domain) => ServerName::try_from(format!("{ANY_LABEL}.{domain}")),
                None => ServerName::try_from(name.clone()),
            };
            let name = name.map_err(|_| InvalidChain::Name)?;
            first.verify_is_valid_for_subject_name(&name).map_err(|_| InvalidChain::Name)?;
        }
        Ok(())
    }

    /// Whether the certificates are valid now, each signed by the next one, and lead to one of the roots. Without roots the
    /// last certificate is taken for one; a certificate alone has no signature that could be checked then.
    pub(crate) fn check_signatures(
        &self,
        provider: &Provider,
        roots: Option<&RootCertStore>,
        now: SystemTime,
    ) -> Result<(), InvalidChain> {
        let Lifetime { not_before, not_after } = self.lifetime;
        let now = now.max(UNIX_EPOCH);
        // The clock of the authority may be ahead.
        let early = not_before.checked_sub(CLOCK_SKEW_MAX).unwrap_or(UNIX_EPOCH);
        if now < early || now > not_after {
            return Err(InvalidChain::Signature);
        }
        let (last, others) = self.certificates.split_last().ok_or(InvalidChain::Pem)?;
        let (anchors, intermediates): (Vec<TrustAnchor<'_>>, _) = match roots {
            Some(roots) => (roots.roots.clone(), &self.certificates[1..]),
            None if others.is_empty() => return Ok(()),
            None => (vec![anchor_from_trusted_cert(last).map_err(|_| InvalidChain::Certificate)?], &others[1..]),
        };
        let at = UnixTime::since_unix_epoch(now.max(not_before).duration_since(UNIX_EPOCH).unwrap_or_default());
        let algorithms = provider.crypto().signature_verification_algorithms.all;
        let usage = KeyUsage::server_auth();
        let first = self.end_entity()?;
        let verified = first.verify_for_usage(algorithms, &anchors, intermediates, at, usage, None, None);
        verified.map(drop).map_err(|_| InvalidChain::Signature)
    }

    fn end_entity(&self) -> Result<EndEntityCert<'_>, InvalidChain> {
        let first = self.certificates.first().ok_or(InvalidChain::Pem)?;
        EndEntityCert::try_from(first).map_err(|_| InvalidChain::Certificate)
    }
}

fn time_of(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

const ANY_LABEL: &str = "any";

/// Chains have two or three.
const CERTIFICATES_MAX: usize = 10;

/// By how much the clock of an authority may be ahead of ours.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests;
