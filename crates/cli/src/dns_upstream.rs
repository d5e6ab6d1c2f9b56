//! `DnsUpstream`: a server that `tidegate dns` asks, over UDP and TCP or over TLS.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use tidegate::dns::{ClientCodec, NameServer};
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Client, Over};

/// `IP`, `IP:PORT` or `[IPV6]:PORT`; `tls://` before it and `#NAME` behind it for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsUpstream {
    address: SocketAddr,
    /// The name of its certificate: the IP address unless given.
    tls_name: Option<String>,
}

impl DnsUpstream {
    pub(crate) fn is_secure(&self) -> bool {
        self.tls_name.is_some()
    }

    /// The server, with the configuration of [`tls`] if it is one over TLS.
    pub(crate) fn server(&self, tls: Option<&ClientConfig>) -> NameServer {
        let (Some(name), Some(tls)) = (self.tls_name.clone(), tls.cloned()) else {
            return NameServer::at(self.address);
        };
        let make = move || Ok(Over::new(tls.connect(&name)?, ClientCodec::default()));
        NameServer::over(Client::at(self.address), make)
    }

    /// Whether a certificate can have the name.
    pub(crate) fn check(&self, tls: &ClientConfig) -> Result<(), Box<dyn Error>> {
        match &self.tls_name {
            Some(name) => tls.connect(name).map(drop).map_err(|error| format!("{self}: {error}").into()),
            None => Ok(()),
        }
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
        let (rest, is_secure) = text.strip_prefix("tls://").map_or((text, false), |rest| (rest, true));
        let (host, name) = match rest.split_once('#').filter(|_| is_secure) {
            Some((host, name)) => (host, Some(name.to_owned())),
            None => (rest, None),
        };
        let port = if is_secure { TLS_PORT } else { PORT };
        let ip = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let address = host.parse::<SocketAddr>().ok().or_else(|| ip().map(|ip| SocketAddr::new(ip, port)));
        let address = address.filter(|address| address.port() != 0 && !address.ip().is_unspecified()).ok_or_else(|| {
            String::from(
                "not IP, IP:PORT, [IPV6]:PORT or tls://IP[:PORT][#NAME]: a name would need another server to be looked up",
            )
        })?;
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| address.ip().to_string());
        Ok(Self { address, tls_name: is_secure.then_some(name) })
    }
}

impl fmt::Display for DnsUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tls_name {
            Some(name) => write!(f, "tls://{}#{name}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// The port of DNS servers.
const PORT: u16 = 53;

/// That of DNS over TLS (RFC 7858 §3.1).
const TLS_PORT: u16 = 853;

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
            "https://192.0.2.53",
        ] {
            assert!(text.parse::<DnsUpstream>().is_err(), "{text}");
        }
    }
}
