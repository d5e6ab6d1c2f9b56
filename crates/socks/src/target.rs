//! `Target`: a host, by address or by name, and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::error::Misuse;

/// Where a client wants to be connected to, or where a proxy has connected from.
///
/// ```
/// use tidegate::socks::{Host, Target};
///
/// let by_name: Target = "sea.example:443".parse()?;
/// assert_eq!(by_name.host().name(), Some("sea.example"));
/// let by_address: Target = "[2001:db8::1]:443".parse()?;
/// assert_eq!(by_address.address(), Some("[2001:db8::1]:443".parse()?));
/// assert_eq!(Target::new("sea.example", 443)?, by_name);
/// assert!(Target::new("no spaces", 443).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    host: Host,
    port: u16,
}

/// A host, by address or by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name that the proxy resolves: 1 to 255 visible ASCII characters.
    Name(Box<str>),
}

impl Host {
    /// The name, unless it is an address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        if let Self::Name(name) = self { Some(name) } else { None }
    }

    /// A name as it was received.
    pub(crate) fn received(name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(name).ok().filter(|text| is_name(text))?;
        Some(Self::Name(text.into()))
    }
}

impl Target {
    /// A host and a port. A host that is an IP address in text, an IPv6 address with or without brackets, is an
    /// address; everything else is a name.
    ///
    /// # Errors
    /// [`Misuse::Name`]: the name is empty, longer than 255 bytes, or has a character other than visible ASCII. An
    /// internationalised name is to be converted by the caller.
    pub fn new(host: &str, port: u16) -> Result<Self, Misuse> {
        let unbracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match unbracketed.unwrap_or(host).parse() {
            Ok(ip) if unbracketed.is_none() || matches!(ip, IpAddr::V6(_)) => Host::Ip(ip),
            _ if is_name(host) => Host::Name(host.into()),
            _ => return Err(Misuse::Name),
        };
        Ok(Self { host, port })
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address with its port, unless the host is a name.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        if let Host::Ip(ip) = self.host { Some(SocketAddr::new(ip, self.port)) } else { None }
    }

    pub(crate) fn of(host: Host, port: u16) -> Self {
        Self { host, port }
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = Misuse;

    /// `HOST:PORT`, with brackets around an IPv6 address.
    fn from_str(text: &str) -> Result<Self, Misuse> {
        let (host, port) = text.rsplit_once(':').ok_or(Misuse::Port)?;
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Misuse::Port);
        }
        let port = port.parse().map_err(|_| Misuse::Port)?;
        // Without brackets the end of an IPv6 address would be read as a port.
        if host.contains(':') && !host.starts_with('[') {
            return Err(Misuse::Name);
        }
        Self::new(host, port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Whether the protocol has this name, and a log shows it as it is.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The length of a name is one byte on the wire.
pub(crate) const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_no_name() {
        for (text, is_address) in [
            ("192.0.2.1:1", true),
            ("[::1]:65535", true),
            ("192.0.2.256:1", false),
            ("sea.example:1", false),
            ("[192.0.2.1]:1", false),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.address().is_some(), is_address, "{text}");
            assert_eq!(target.to_string(), text);
        }
        assert_eq!(Target::new("::1", 7), Ok("[::1]:7".parse::<SocketAddr>().unwrap().into()));
    }

    #[test]
    fn texts_that_are_no_target() {
        for text in ["sea.example", "sea.example:", "sea.example:65536", "sea.example:+1", "sea.example: 1"] {
            assert_eq!(text.parse::<Target>(), Err(Misuse::Port), "{text}");
        }
        for text in [":1", "::1:1", "a b:1", "s\u{e9}a:1", "a\0b:1", &format!("{}:1", "x".repeat(256))] {
            assert_eq!(text.parse::<Target>(), Err(Misuse::Name), "{text}");
        }
        assert!(format!("{}:1", "x".repeat(255)).parse::<Target>().is_ok());
    }
}
