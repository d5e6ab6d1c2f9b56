//! The flags of TLS, and what they configure.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::rustls::pki_types::CertificateDer;
use tidegate::tls::rustls::pki_types::pem::PemObject;
use tidegate::tls::{Certificates, ClientCertificates, Provider, ServerConfig};

/// The flags of TLS.
#[derive(Debug, Args)]
pub(crate) struct TlsOptions {
    /// Serve HTTPS with the certificate chain in FILE (PEM); may be repeated: a client gets the certificate with the
    /// name that it requests, otherwise the first. SIGHUP reads all files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// Private key (PEM) of the --tls-cert at the same position
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
    /// Serve HTTPS with a certificate for localhost that is made at start-up, to try; no client trusts it
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    tls_self_signed: bool,
    /// Refuse clients without a certificate that one in FILE (PEM) vouches for
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

/// What serves HTTPS.
pub(crate) struct Tls {
    pub(crate) config: ServerConfig,
    certificates: Certificates,
}

impl TlsOptions {
    /// `None` without flags.
    pub(crate) fn configure(&self, handshake_timeout: Option<Duration>) -> Result<Option<Tls>, Box<dyn Error>> {
        let provider = Provider::aws_lc_rs();
        let certificates = if self.tls_self_signed {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
            Certificates::from_pem(&provider, made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())?
        } else if self.tls_cert.is_empty() {
            return if self.tls_client_ca.is_none() {
                Ok(None)
            } else {
                Err("--tls-client-ca needs --tls-cert".into())
            };
        } else if self.tls_cert.len() == self.tls_key.len() {
            Certificates::from_files(&provider, self.tls_cert.iter().zip(&self.tls_key))?
        } else {
            return Err("each --tls-cert needs its --tls-key".into());
        };
        let mut builder = ServerConfig::builder(&provider, certificates.clone()).alpn(["h2", "http/1.1"]);
        if let Some(timeout) = handshake_timeout {
            builder = builder.handshake_timeout(timeout);
        }
        if let Some(path) = &self.tls_client_ca {
            let failed = |error: &dyn Error| format!("cannot use {}: {error}", path.display());
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
                roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            }
            builder = builder.client_certificates(ClientCertificates::Required(Arc::new(roots)));
        }
        Ok(Some(Tls { config: builder.build()?, certificates }))
    }
}

impl Tls {
    /// Reads the files again, and logs the outcome in one line.
    pub(crate) fn reload(&self) {
        match self.certificates.reload() {
            Ok(()) => tracing::info!(subsystem = "tls", "certificates reloaded"),
            Err(error) => {
                tracing::error!(subsystem = "tls", %error, "certificates not reloaded; the old ones stay in use");
            }
        }
    }
}
