//! `DnsUpstream`: a server that `tidegate dns` asks, over UDP and TCP, over TLS or over HTTPS.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tidegate::dns::{ClientCodec, NameServer};
use tidegate::http::client::{ClientLimits, Http3Config, Resolve, Resolving};
use tidegate::http::{self, DNS_PATH};
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Client, Over};

/// `IP`, `IP:PORT` or `[IPV6]:PORT`; `tls://` or `https://` or `h3://` before it, `/PATH` behind it for HTTPS, and `#NAME` at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsUpstream {
    address: SocketAddr,
    transport: UpstreamTransport,
}

/// How a server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum UpstreamTransport {
    /// Over UDP and TCP.
    Plain,
    /// Over TLS, with the name of its certificate.
    Tls { name: String },
    /// Over HTTPS, with the name of its certificate and the path; over HTTP/3 alone, or else over HTTP/2 or HTTP/1.1.
    Https { name: String, path: String, is_http3: bool },
}

impl DnsUpstream {
    pub(crate) fn is_secure(&self) -> bool {
        self.transport != UpstreamTransport::Plain
    }

    /// The server, with the configuration of [`tls`] if it is one over TLS or HTTPS.
    pub(crate) fn server(&self, tls: Option<&ClientConfig>) -> NameServer {
        match (&self.transport, tls.cloned()) {
            (UpstreamTransport::Tls { name }, Some(tls)) => {
                let name = name.clone();
                let make = move || Ok(Over::new(tls.connect(&name)?, ClientCodec::default()));
                NameServer::over(Client::at(self.address), make)
            }
            (UpstreamTransport::Https { name, path, is_http3 }, Some(tls)) => {
                let host = if name.contains(':') { format!("[{name}]") } else { name.clone() };
                let (address, is_http3) = (self.address, *is_http3);
                http::name_server(format!("https://{host}:{}{path}", address.port()), move || {
                    let mut limits = ClientLimits::default();
                    (limits.request_timeout, limits.collected_body_bytes_max) =
                        (Some(REQUEST_TIMEOUT), usize::from(u16::MAX));
                    let builder = http::Client::builder().tls(tls.clone()).resolver(OneAddress(address)).limits(limits);
                    if is_http3 { builder.http3_prior_knowledge(Http3Config::default()) } else { builder }.build()
                })
            }
            _ => NameServer::at(self.address),
        }
    }

    /// Whether a certificate can have the name.
    pub(crate) fn check(&self, tls: &ClientConfig) -> Result<(), Box<dyn Error>> {
        match &self.transport {
            UpstreamTransport::Tls { name } | UpstreamTransport::Https { name, .. } => {
                tls.connect(name).map(drop).map_err(|error| format!("{self}: {error}").into())
            }
            UpstreamTransport::Plain => Ok(()),
        }
    }
}

/// The name of an upstream has its address.
struct OneAddress(SocketAddr);

impl Resolve for OneAddress {
    fn resolve(&self, _: &str, _: u16) -> Resolving {
        Box::pin(std::future::ready(Ok(vec![self.0])))
    }
}

/// The configuration of connections to servers over TLS (RFC 7858), whose certificates are verified.
pub(crate) fn tls(ca: Option<&Path>) -> Result<ClientConfig, Box<dyn Error>> {
    let provider = Provider::aws_lc_rs();
    let builder = match ca {
        Some(ca) => ClientConfig::builder_with_root_file(&provider, ca)?,
        None => ClientConfig::builder_with_platform_roots(&provider)?,
    };
    // Without ALPN, as most clients: a server that knows other protocols only would refuse `dot`.
    Ok(builder.build()?)
}

impl FromStr for DnsUpstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        let (place, name) = match rest.split_once('#').filter(|_| scheme.is_some()) {
            Some((place, name)) => (place, Some(name.to_owned())),
            None => (rest, None),
        };
        let (host, path) = match place.find('/').filter(|_| matches!(scheme, Some("https" | "h3"))) {
            Some(at) => place.split_at(at),
            None => (place, DNS_PATH),
        };
        let port = match scheme {
            None => PORT,
            Some("tls") => TLS_PORT,
            Some("https" | "h3") => HTTPS_PORT,
            Some(_) => return Err(NO_UPSTREAM.into()),
        };
        let ip = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let address = host.parse::<SocketAddr>().ok().or_else(|| ip().map(|ip| SocketAddr::new(ip, port)));
        let address = address.filter(|address| address.port() != 0 && !address.ip().is_unspecified());
        let address = address.ok_or(NO_UPSTREAM)?;
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| address.ip().to_string());
        let transport = match scheme {
            None => UpstreamTransport::Plain,
            Some("tls") => UpstreamTransport::Tls { name },
            Some(scheme) => UpstreamTransport::Https { name, path: path.to_owned(), is_http3: scheme == "h3" },
        };
        Ok(Self { address, transport })
    }
}

impl fmt::Display for DnsUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            UpstreamTransport::Plain => write!(f, "{}", self.address),
            UpstreamTransport::Tls { name } => write!(f, "tls://{}#{name}", self.address),
            UpstreamTransport::Https { name, path, is_http3 } => {
                let scheme = if *is_http3 { "h3" } else { "https" };
                write!(f, "{scheme}://{}{path}#{name}", self.address)
            }
        }
    }
}

const NO_UPSTREAM: &str = "not IP, IP:PORT, [IPV6]:PORT, tls://IP[:PORT][#NAME], https://IP[:PORT]/PATH[#NAME] or \
                           h3://IP[:PORT]/PATH[#NAME]: a name would need another server to be looked up";

/// The port of DNS servers.
const PORT: u16 = 53;

/// That of DNS over TLS (RFC 7858 §3.1).
const TLS_PORT: u16 = 853;

/// That of DNS over HTTPS.
const HTTPS_PORT: u16 = 443;

/// How long a request may take. The resolver asks another server before.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_address_with_a_port_or_without_one() {
        for (text, expected) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
            ("tls://192.0.2.53", "tls://192.0.2.53:853#192.0.2.53"),
            ("tls://192.0.2.53:8853#dns.example", "tls://192.0.2.53:8853#dns.example"),
            ("tls://[2001:db8::53]#dns.example", "tls://[2001:db8::53]:853#dns.example"),
            ("https://192.0.2.53", "https://192.0.2.53:443/dns-query#192.0.2.53"),
            ("h3://192.0.2.53#dns.example", "h3://192.0.2.53:443/dns-query#dns.example"),
            ("https://[2001:db8::53]:8443/a/b?c#dns.example", "https://[2001:db8::53]:8443/a/b?c#dns.example"),
        ] {
            assert_eq!(text.parse::<DnsUpstream>().map(|server| server.to_string()).as_deref(), Ok(expected));
        }
        for text in [
            "",
            "dns.example",
            "192.0.2.53:",
            "192.0.2.53:0",
            "192.0.2.53:x",
            "0.0.0.0",
            "[::]:53",
            "192.0.2.53#a",
            "tls://",
            "tls://dns.example",
            "https://dns.example/dns-query",
            "https://192.0.2.53:0/dns-query",
            "http://192.0.2.53/dns-query",
            "://192.0.2.53",
        ] {
            assert!(text.parse::<DnsUpstream>().is_err(), "{text}");
        }
    }
}
