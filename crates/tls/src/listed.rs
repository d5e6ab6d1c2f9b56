//! `ListedVerifier`: a server whose own certificate is one of the roots, although the certificate is that of an authority.
//!
//! rustls refuses an authority's certificate as that of a server. `openssl req -x509` makes self-signed certificates that
//! are both, and a caller that lists one trusts it ([decision 184](../../../docs/decisions/0184-listed-certificates.md)).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

#[derive(Debug)]
pub(crate) struct ListedVerifier {
    usual: Arc<dyn ServerCertVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl ListedVerifier {
    pub(crate) fn new(usual: Arc<dyn ServerCertVerifier>, listed: Vec<CertificateDer<'static>>) -> Self {
        Self { usual, listed }
    }
}

impl ServerCertVerifier for ListedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.usual.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(error) if is_of_authority(&error) && self.listed.iter().any(|listed| listed == certificate) => {
                // The usual verification compares the time before it refuses an authority, and the name after that.
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether the only fault that was found is that a server presents the certificate of an authority. rustls has no variant
/// for it, only its text.
fn is_of_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == OF_AUTHORITY)
}

/// The text of the error of rustls-webpki. If it changes, such certificates are refused.
const OF_AUTHORITY: &str = "CaUsedAsEndEntity";
