//! The TLS flags and their configuration.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tidegate::tls::{
    Certificates, ClientAuthorities, ClientCertificates, ConfigError, KeyLogFile, Provider, ServerConfig, TicketKeys,
};

use crate::acme::{self, AcmeOptions};
use crate::config::{CertificateFiles, Listen, ListenLimits, Located, Place};
use crate::qpack::{QpackOptions, QpackTables};

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
    /// Serve HTTP/3 as well, at the same addresses over UDP. Responses over TCP name it in `Alt-Svc`
    #[arg(long)]
    http3: bool,
    /// Take early data (0-RTT) over HTTP/3: requests with GET, HEAD or OPTIONS and without a body are answered before the
    /// handshake is complete, with `Early-Data: 1` for upstreams and handlers, which may answer 425. An attacker can repeat
    /// such a request
    #[arg(long, requires = "http3")]
    http3_early_data: bool,
    /// Append the secrets of the TLS and QUIC connections of clients to FILE, in the format of SSLKEYLOGFILE, for Wireshark. With it
    /// all of them can be decrypted
    #[arg(long, value_name = "FILE")]
    tls_key_log: Option<PathBuf>,
    /// Write a file to FOLDER for each HTTP/3 connection, in the qlog format, for tools such as qvis: 1,000 files of 16 MiB
    /// at most. It needs a build with `--features qlog`
    #[arg(long, value_name = "FOLDER", requires = "http3")]
    qlog: Option<PathBuf>,
    #[command(flatten)]
    qpack: QpackOptions,
    #[command(flatten)]
    acme: AcmeOptions,
}

/// The HTTPS configuration.
pub(crate) struct Tls {
    pub(crate) config: ServerConfig,
    /// Whether HTTP/3 is served as well.
    pub(crate) http3: bool,
    /// Whether HTTP/3 takes early data.
    pub(crate) early_data: bool,
    /// The dynamic QPACK tables.
    pub(crate) qpack: QpackTables,
    /// The folder of files of connections.
    #[cfg(feature = "qlog")]
    pub(crate) qlog: Option<PathBuf>,
    /// The names in the certificates, as they were at first; with an authority those that it issues one for.
    pub(crate) names: Vec<String>,
    /// The directory of the authority that issues the certificate.
    pub(crate) authority: Option<String>,
    /// Those of files.
    certificates: Option<Certificates>,
    authorities: Option<ClientAuthorities>,
    ticket_keys: Option<TicketKeys>,
}

impl TlsOptions {
    /// Adds the certificates of the flags to their listener.
    pub(crate) fn add_to(&self, listen: &mut Listen) -> Result<(), String> {
        let address = listen.addresses.first().and_then(|address| address.value.ip());
        listen.acme = self.acme.settings(address.map(|address| address.port()))?;
        let has_acme = listen.acme.is_some();
        listen.is_https |= has_acme;
        (listen.http3, listen.http3_early_data) = (self.http3, self.http3_early_data);
        self.qpack.add_to(&mut listen.limits);
        listen.tls_key_log.clone_from(&self.tls_key_log);
        #[cfg(feature = "qlog")]
        listen.qlog.clone_from(&self.qlog);
        #[cfg(not(feature = "qlog"))]
        if self.qlog.is_some() {
            return Err("this build has no --qlog: build with `cargo build --release --features qlog`".into());
        }
        if !self.tls_self_signed && self.tls_cert.is_empty() && !has_acme {
            return match (&self.tls_client_ca, &self.tls_ticket_key[..]) {
                (None, []) if self.tls_key_log.is_some() => Err("--tls-key-log needs --tls-cert".into()),
                (None, []) if self.http3 => Err("--http3 needs --tls-cert or --tls-self-signed".into()),
                (None, []) => Ok(()),
                (Some(_), _) => Err("--tls-client-ca needs --tls-cert".into()),
                (None, _) => Err("--tls-ticket-key needs --tls-cert".into()),
            };
        }
        if self.tls_cert.len() != self.tls_key.len() {
            return Err("each --tls-cert needs its --tls-key".into());
        }
        let files = self.tls_cert.iter().zip(&self.tls_key);
        let files =
            files.map(|(cert, key)| CertificateFiles { cert: cert.clone(), key: key.clone(), place: Place::FLAG });
        listen.is_https = true;
        listen.certificates = files.collect();
        listen.self_signed = self.tls_self_signed.then(|| vec!["localhost".to_owned(), "127.0.0.1".to_owned()]);
        listen.client_ca = self.tls_client_ca.clone().map(Located::of_flag);
        listen.ticket_keys = self.tls_ticket_key.iter().cloned().map(Located::of_flag).collect();
        Ok(())
    }
}

impl Tls {
    /// That of a listener; `None` without https.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub(crate) fn of(listen: &Listen, handshake_timeout: Option<Duration>) -> Result<Option<Self>, Box<dyn Error>> {
        if !listen.is_https {
            return Ok(None);
        }
        let provider = Provider::aws_lc_rs();
        let certificates = match (&listen.self_signed, &listen.acme) {
            (_, Some(settings)) => acme::certificates(settings, &provider)?,
            (Some(names), None) => {
                let made = rcgen::generate_simple_self_signed(names.clone())?;
                let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
                Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?
            }
            (None, None) => {
                Certificates::from_files(&provider, listen.certificates.iter().map(|files| (&files.cert, &files.key)))?
            }
        };
        let offered = match &listen.versions[..] {
            [] => vec!["h2", "http/1.1"],
            some => some.iter().map(|version| if version == "http/2" { "h2" } else { "http/1.1" }).collect(),
        };
        let mut builder = ServerConfig::builder(&provider, certificates.clone()).alpn(offered);
        let own = ListenLimits::seconds(listen.limits.handshake_timeout);
        if let Some(timeout) = own.or(handshake_timeout) {
            builder = builder.handshake_timeout(timeout);
        }
        let authorities =
            listen.client_ca.as_ref().map(|path| ClientAuthorities::from_files([&path.value])).transpose()?;
        if let Some(authorities) = &authorities {
            builder = builder.client_certificates(ClientCertificates::RequiredBy(authorities.clone()));
        }
        let keys: Vec<_> = listen.ticket_keys.iter().map(|path| &path.value).collect();
        let ticket_keys = (!keys.is_empty()).then(|| TicketKeys::from_files(&keys)).transpose()?;
        if let Some(keys) = &ticket_keys {
            builder = builder.ticket_keys(keys);
        }
        if let Some(path) = &listen.tls_key_log {
            let log = KeyLogFile::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
            builder = builder.key_log(Arc::new(log));
        }
        let names = listen.acme.as_ref().map_or_else(|| certificates.names(), |settings| settings.names.clone());
        let authority = listen.acme.as_ref().map(|settings| settings.directory.clone());
        let certificates = listen.self_signed.is_none().then_some(certificates);
        let (config, http3, early_data) = (builder.build()?, listen.http3, listen.http3_early_data);
        Ok(Some(Self {
            config,
            http3,
            early_data,
            qpack: QpackTables::of(&listen.limits),
            #[cfg(feature = "qlog")]
            qlog: listen.qlog.clone(),
            names,
            authority,
            certificates,
            authorities,
            ticket_keys,
        }))
    }

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
