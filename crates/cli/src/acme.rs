//! `--acme` and the key `acme`: a certificate that an authority issues and renews, and the server that answers HTTP-01.
//!
//! The certificates of a process are in one table: a configuration that is read again finds those of the running one.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate::acme::{Acme, AcmeBuilder, ChallengeKind, FolderStore, Http01, RunningAcme, Store};
use tidegate::http::{self, Request, Router};
use tidegate::tls::{Certificates, ClientConfig, Provider};
use tidegate::{Address, ListenOptions, Listener, ServerHandle};

use crate::config::{Listen, Place};
use crate::dns_program::DnsProgram;
use crate::to_https::to_https;

/// The flags of a certificate that an authority issues.
#[derive(Debug, Args)]
pub(crate) struct AcmeOptions {
    /// Serve HTTPS with a certificate for each NAME that an authority issues and renews (ACME). It validates the names at
    /// port 443 of each, which has to reach this server; the flag agrees to the authority's terms of service
    #[arg(
        long, value_name = "NAME", num_args = 1.., requires_all = ["acme_directory", "acme_folder"],
        conflicts_with_all = ["tls_cert", "tls_key", "tls_self_signed"]
    )]
    acme: Vec<String>,
    /// With --acme: the directory of the authority, such as https://acme-v02.api.letsencrypt.org/directory
    #[arg(long, value_name = "URL", requires = "acme")]
    acme_directory: Option<String>,
    /// With --acme: keep the account, keys and orders in DIR, which only its owner may read
    #[arg(long, value_name = "DIR", requires = "acme")]
    acme_folder: Option<PathBuf>,
    /// With --acme: certificates (PEM) that vouch for the authority's own server [default: those that the system trusts]
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_root: Option<PathBuf>,
    /// With --acme: a URL at which the authority reaches the owner of the account, such as mailto:admin@example.org
    #[arg(long, value_name = "URL", requires = "acme")]
    acme_contact: Vec<String>,
    /// With --acme: answer HTTP-01 at ADDRESS too, which port 80 of each name has to reach, and redirect other requests to
    /// https
    #[arg(long, value_name = "ADDRESS", requires = "acme")]
    acme_http: Option<Address>,
    /// With --acme: run PROGRAM for DNS-01, which wildcards need: `PROGRAM set NAME VALUE` adds a TXT record and ends once
    /// the name servers have it, `PROGRAM remove NAME VALUE` removes it
    #[arg(long, value_name = "PROGRAM", requires = "acme")]
    acme_dns_exec: Option<PathBuf>,
    /// With --acme: how names are validated; may be repeated: each attempt has the next kind [default: dns-01 with
    /// --acme-dns-exec; otherwise tls-alpn-01, and http-01 too with --acme-http]
    #[arg(long, value_name = "KIND", value_enum, requires = "acme")]
    acme_challenge: Vec<KindName>,
}

/// How names are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindName {
    /// A handshake at port 443.
    #[value(name = "tls-alpn-01")]
    TlsAlpn01,
    /// A request at port 80.
    #[value(name = "http-01")]
    Http01,
    /// A TXT record.
    #[value(name = "dns-01")]
    Dns01,
}

/// One certificate, as a listener has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AcmeSettings {
    pub(crate) place: Place,
    pub(crate) names: Vec<String>,
    pub(crate) directory: String,
    pub(crate) folder: PathBuf,
    pub(crate) root: Option<PathBuf>,
    pub(crate) contacts: Vec<String>,
    /// Where a server of its own answers HTTP-01.
    http: Option<Address>,
    pub(crate) kinds: Vec<KindName>,
    /// The program that sets the records of DNS-01.
    pub(crate) dns_exec: Option<PathBuf>,
    /// The port of redirects to https; `None` for the default one.
    https_port: Option<u16>,
}

impl AcmeSettings {
    pub(crate) fn has_http01(&self) -> bool {
        self.kinds.contains(&KindName::Http01)
    }
}

impl AcmeOptions {
    /// The certificate of the flags, for the listener at this port; `None` without --acme.
    pub(crate) fn settings(&self, port: Option<u16>) -> Result<Option<AcmeSettings>, String> {
        let (Some(directory), Some(folder)) = (&self.acme_directory, &self.acme_folder) else { return Ok(None) };
        let kinds = match &self.acme_challenge[..] {
            [] if self.acme_dns_exec.is_some() => vec![KindName::Dns01],
            [] if self.acme_http.is_some() => vec![KindName::TlsAlpn01, KindName::Http01],
            [] => vec![KindName::TlsAlpn01],
            some => some.to_vec(),
        };
        if kinds.contains(&KindName::Http01) && self.acme_http.is_none() {
            return Err("--acme-challenge http-01 needs --acme-http".into());
        }
        if kinds.contains(&KindName::Dns01) && self.acme_dns_exec.is_none() {
            return Err("--acme-challenge dns-01 needs --acme-dns-exec".into());
        }
        Ok(Some(AcmeSettings {
            place: Place::FLAG,
            names: self.acme.clone(),
            directory: directory.clone(),
            folder: folder.clone(),
            root: self.acme_root.clone(),
            contacts: self.acme_contact.clone(),
            http: self.acme_http.clone(),
            kinds,
            dns_exec: self.acme_dns_exec.clone(),
            https_port: port.filter(|port| *port != HTTPS_PORT),
        }))
    }
}

/// A certificate of this process.
struct IssuedCertificate {
    settings: AcmeSettings,
    acme: Acme,
    /// Its renewals, and the server that answers HTTP-01, once they are started.
    running: Option<(RunningAcme, Option<ServerHandle>)>,
}

static ENTRIES: Mutex<Vec<IssuedCertificate>> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Vec<IssuedCertificate>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks settings without opening their folder, which the server makes with its own rights.
///
/// # Errors
/// The settings cannot be used, and why.
pub(crate) fn check(settings: &AcmeSettings) -> Result<(), Box<dyn Error>> {
    if settings.folder.exists() && !settings.folder.is_dir() {
        return Err(format!("`{}` is no folder", settings.folder.display()).into());
    }
    builder(settings, &Provider::aws_lc_rs(), NoStore)?.build()?;
    Ok(())
}

/// No records: those of a check.
struct NoStore;

impl Store for NoStore {
    fn read(&self, _: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn write(&self, _: &str, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

fn builder(settings: &AcmeSettings, provider: &Provider, store: impl Store) -> Result<AcmeBuilder, Box<dyn Error>> {
    let tls = match &settings.root {
        Some(path) => ClientConfig::builder_with_root_file(provider, path)?,
        None => ClientConfig::builder_with_platform_roots(provider)?,
    };
    let mut builder = Acme::builder(provider, tls.build()?, &settings.directory, store);
    builder = builder.names(settings.names.clone()).challenges(settings.kinds.iter().map(|kind| match kind {
        KindName::TlsAlpn01 => ChallengeKind::TlsAlpn01,
        KindName::Http01 => ChallengeKind::Http01,
        KindName::Dns01 => ChallengeKind::Dns01,
    }));
    if let Some(program) = &settings.dns_exec {
        builder = builder.dns(DnsProgram(program.clone()));
    }
    Ok(settings.contacts.iter().fold(builder, |builder, contact| builder.contact(contact)))
}

/// The certificates of these settings. It reads the folder the first time.
///
/// # Errors
/// The settings cannot be used, and why.
pub(crate) fn certificates(settings: &AcmeSettings, provider: &Provider) -> Result<Certificates, Box<dyn Error>> {
    let mut entries = entries();
    if let Some(entry) = entries.iter().find(|entry| entry.settings == *settings) {
        return Ok(entry.acme.certificates());
    }
    let folder = &settings.folder;
    let store = FolderStore::open(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    let acme = builder(settings, provider, store)?.build()?;
    let certificates = acme.certificates();
    if certificates.names().is_empty() {
        // Other settings for the same names: clients get the certificate in use until the authority has issued another.
        let has_a_name =
            |entry: &&IssuedCertificate| entry.settings.names.iter().any(|name| settings.names.contains(name));
        if let Some(entry) = entries.iter().find(has_a_name) {
            certificates.replace_with(&entry.acme.certificates());
        }
    }
    entries.push(IssuedCertificate { settings: settings.clone(), acme, running: None });
    Ok(certificates)
}

/// Starts the renewals of all certificates, once the server answers challenges.
///
/// # Errors
/// There is no thread, or the address of --acme-http cannot be used.
pub(crate) fn start() -> Result<(), Box<dyn Error>> {
    for entry in entries().iter_mut().filter(|entry| entry.running.is_none()) {
        let http = entry.settings.http.as_ref().map(|address| entry.serve_http(address)).transpose()?;
        entry.running = Some((entry.acme.start()?, http));
    }
    Ok(())
}

/// The same while the server runs: a failure is logged, and the next reload tries again.
pub(crate) fn start_or_log() {
    if let Err(error) = start() {
        tracing::error!(subsystem = "acme", %error, "certificates are not renewed");
    }
}

/// Forgets the certificates of a configuration that was refused: their copies of a certificate in use grow old.
pub(crate) fn forget_unstarted() {
    entries().retain(|entry| entry.running.is_some());
}

/// Ends the renewals of certificates that no listener has any more.
pub(crate) fn retain(listens: &[Listen]) {
    let is_used =
        |entry: &IssuedCertificate| listens.iter().any(|listen| listen.acme.as_ref() == Some(&entry.settings));
    let (used, unused): (Vec<_>, Vec<_>) = std::mem::take(&mut *entries()).into_iter().partition(is_used);
    entries().splice(0..0, used);
    for entry in unused {
        tracing::info!(subsystem = "acme", names = ?entry.settings.names, "certificate no longer in use");
        if let Some((_, Some(http))) = &entry.running {
            http.begin_drain(Duration::ZERO);
        }
    }
}

/// The answers to HTTP-01 of the certificates of these listeners, for the routers of http listeners.
pub(crate) fn http01(listens: &[Listen]) -> Vec<Http01> {
    let entries = entries();
    let is_of = |entry: &&IssuedCertificate| listens.iter().any(|listen| listen.acme.as_ref() == Some(&entry.settings));
    entries.iter().filter(is_of).filter(|entry| entry.settings.has_http01()).map(|entry| entry.acme.http01()).collect()
}

impl IssuedCertificate {
    fn serve_http(&self, address: &Address) -> Result<ServerHandle, Box<dyn Error>> {
        let (http01, port) = (self.acme.http01(), self.settings.https_port);
        let router = move || {
            let redirect = move |request: Request| to_https(&request, port);
            Router::new().fallback(redirect).with(http01.clone())
        };
        // A successor in a restart listens there while this process drains.
        let listener = Listener::from_iter([address.clone()])
            .options(ListenOptions { reuse_port: true, ..ListenOptions::default() });
        let server = http::Server::on(listener).loops(1).start(router)?;
        tracing::info!(subsystem = "acme", address = %server.address(), "answering HTTP-01");
        Ok(server)
    }
}

const HTTPS_PORT: u16 = 443;
