//! The listeners of `tidegate dns` over TLS and HTTPS, with their certificates.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tidegate::dns::ServerCodec;
use tidegate::dns::server::{DnsServer, Forwarder, LoopHandlers, ServerLimits};
use tidegate::engine::RunningListener;
use tidegate::http::{self, DNS_PATH, dns_router};
use tidegate::metrics::HttpMetrics;
use tidegate::{Address, Listener, Over, ServerHandle, quic};

use crate::config::{CertificateFiles, Listen, Place};
use crate::dns::parse_listen;
use crate::tls::Tls;

/// The flags of listeners over TLS.
#[derive(Debug, Args)]
pub(crate) struct SecureListeners {
    /// Address of DNS over TLS (RFC 7858), may be repeated: IP:PORT, [IPV6]:PORT or localhost:PORT; the usual port is 853
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen_tls: Vec<SocketAddr>,
    /// Address of DNS over HTTPS (RFC 8484), at the path /dns-query over HTTP/1.1 and HTTP/2, may be repeated: IP:PORT,
    /// [IPV6]:PORT or localhost:PORT; the usual port is 443
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen_https: Vec<SocketAddr>,
    /// Certificate chain in FILE (PEM) of --listen-tls and --listen-https; may be repeated: a client gets the certificate with
    /// the name that it requests, otherwise the first. SIGHUP reads all files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// Private key (PEM) of the --tls-cert at the same position
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
    /// Use a certificate for localhost that is made at start-up, to try; no client trusts it
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    tls_self_signed: bool,
    /// Serve HTTP/3 as well, at the addresses of --listen-https over UDP. Responses over TCP name it in `Alt-Svc`
    #[arg(long, requires = "listen_https")]
    http3: bool,
}

impl SecureListeners {
    /// The certificates; `None` without such a listener.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Box<dyn Error>> {
        let has_certificate = self.tls_self_signed || !self.tls_cert.is_empty();
        let has_listener = !self.listen_tls.is_empty() || !self.listen_https.is_empty();
        match (has_listener, has_certificate) {
            (false, false) => return Ok(None),
            (true, true) => {}
            (true, false) => return Err("--listen-tls and --listen-https need --tls-cert or --tls-self-signed".into()),
            (false, true) => return Err("certificates need --listen-tls or --listen-https".into()),
        }
        if self.tls_cert.len() != self.tls_key.len() {
            return Err("each --tls-cert needs its --tls-key".into());
        }
        let files = self.tls_cert.iter().zip(&self.tls_key);
        let files =
            files.map(|(cert, key)| CertificateFiles { cert: cert.clone(), key: key.clone(), place: Place::FLAG });
        let listen = Listen {
            is_https: true,
            certificates: files.collect(),
            self_signed: self.tls_self_signed.then(|| vec!["localhost".to_owned(), "127.0.0.1".to_owned()]),
            ..Listen::default()
        };
        Tls::of(&listen, None)
    }

    /// Adds the listeners to a server: those over TLS come first.
    pub(crate) fn add_to(
        &self,
        mut server: DnsServer,
        handlers: &LoopHandlers<Forwarder>,
        tls: &Tls,
        limits: &ServerLimits,
        metrics: Option<&HttpMetrics>,
    ) -> Result<DnsServer, quic::ConfigError> {
        for address in &self.listen_tls {
            let tls = tls.config.clone().with_alpn(["dot"]);
            let pipeline = move || Over::new(tls.accept(), ServerCodec::default());
            server = server.listener(handlers.serve(Listener::at(Address::Ip(*address)), pipeline));
        }
        for address in &self.listen_https {
            let (tls, handlers) = (tls.config.clone(), handlers.clone());
            let mut config = http::Config::new().tls(tls).limits(limits_of_http(limits));
            if let Some(metrics) = metrics {
                config = config.metrics(metrics);
            }
            if self.http3 {
                config = config.http3()?;
            }
            let listener = Listener::at(Address::Ip(*address));
            server = server.listener(config.serve(listener, move || dns_router(&handlers)));
        }
        Ok(server)
    }

    /// The start-up lines of the listeners of a server behind its first ones.
    pub(crate) fn lines(&self, running: &ServerHandle, first: usize) -> Vec<String> {
        let listeners = running.listeners().iter().skip(first).take(self.listen_tls.len() + self.listen_https.len());
        let lines = listeners.enumerate().flat_map(|(number, listener)| {
            let is_https = number >= self.listen_tls.len();
            RunningListener::addresses(listener).iter().map(move |address| {
                if is_https {
                    let versions = if self.http3 { " (HTTP/1.1, HTTP/2, HTTP/3)" } else { "" };
                    format!("tidegate: listening on https://{address}{DNS_PATH}{versions}")
                } else {
                    format!("tidegate: listening on tls://{address}")
                }
            })
        });
        lines.collect()
    }
}

/// The limits of connections over HTTPS: those of all others.
fn limits_of_http(limits: &ServerLimits) -> http::Limits {
    let mut http = http::Limits::default();
    http.connections_max = limits.connections_max.max(1);
    http.idle_timeout = limits.idle_timeout;
    http.write_timeout = limits.write_timeout;
    (http.head_timeout, http.body_timeout) = (limits.read_timeout, limits.read_timeout);
    http.body_bytes_max = u64::from(u16::MAX);
    http
}
