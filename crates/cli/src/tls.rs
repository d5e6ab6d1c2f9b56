//! The TLS flags and their configuration.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate::tls::{
    Certificates, ClientAuthorities, ClientCertificates, ConfigError, Provider, ServerConfig, TicketKeys,
};

/// The TLS flags.
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
    /// Refuse clients without a certificate that one in FILE (PEM) vouches for. SIGHUP reads it again; connections that are
    /// established stay
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Encrypt session tickets with the key in FILE, 80 or 48 random bytes (openssl rand 80), so that servers with the same
    /// key resume each other's sessions and a restart keeps them; may be repeated: the first encrypts, all decrypt. SIGHUP
    /// reads them again [default: a key of this process, replaced every six hours]
    #[arg(long, value_name = "FILE")]
    tls_ticket_key: Vec<PathBuf>,
}

/// The HTTPS configuration.
pub(crate) struct Tls {
    pub(crate) config: ServerConfig,
    /// Those of files.
    certificates: Option<Certificates>,
    authorities: Option<ClientAuthorities>,
    ticket_keys: Option<TicketKeys>,
}

impl TlsOptions {
    /// `None` without flags.
    pub(crate) fn configure(&self, handshake_timeout: Option<Duration>) -> Result<Option<Tls>, Box<dyn Error>> {
        let provider = Provider::aws_lc_rs();
        let certificates = if self.tls_self_signed {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
            Certificates::from_pem(&provider, made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())?
        } else if self.tls_cert.is_empty() {
            return match (&self.tls_client_ca, &self.tls_ticket_key[..]) {
                (None, []) => Ok(None),
                (Some(_), _) => Err("--tls-client-ca needs --tls-cert".into()),
                (None, _) => Err("--tls-ticket-key needs --tls-cert".into()),
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
        let authorities = self.tls_client_ca.as_ref().map(|path| ClientAuthorities::from_files([path])).transpose()?;
        if let Some(authorities) = &authorities {
            builder = builder.client_certificates(ClientCertificates::RequiredBy(authorities.clone()));
        }
        let has_keys = !self.tls_ticket_key.is_empty();
        let ticket_keys = has_keys.then(|| TicketKeys::from_files(&self.tls_ticket_key)).transpose()?;
        if let Some(keys) = &ticket_keys {
            builder = builder.ticket_keys(keys);
        }
        let certificates = (!self.tls_self_signed).then_some(certificates);
        Ok(Some(Tls { config: builder.build()?, certificates, authorities, ticket_keys }))
    }
}

impl Tls {
    /// Reads the files again, and logs the outcome in one line for each kind.
    pub(crate) fn reload(&self) {
        if let Some(certificates) = &self.certificates {
            report("certificates", certificates.reload());
        }
        if let Some(authorities) = &self.authorities {
            report("client authorities", authorities.reload());
        }
        if let Some(keys) = &self.ticket_keys {
            report("ticket keys", keys.reload());
        }
    }
}

fn report(what: &str, result: Result<(), ConfigError>) {
    match result {
        Ok(()) => tracing::info!(subsystem = "tls", "{what} reloaded"),
        Err(error) => tracing::error!(subsystem = "tls", %error, "{what} not reloaded; the old ones stay in use"),
    }
}
