//! `Address`: where a stream socket is, TCP or Unix.

use std::fmt::{self, Write};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a stream socket.
///
/// ```
/// use tidegate_sys::Address;
///
/// assert!(matches!("127.0.0.1:8080".parse(), Ok(Address::Ip(_))));
/// assert!(matches!("[::1]:80".parse(), Ok(Address::Ip(_))));
/// assert_eq!("unix:/run/app.sock".parse::<Address>().unwrap().to_string(), "unix:/run/app.sock");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Ip(SocketAddr),
    /// A Unix socket at a path. Empty for a socket without a name, as most clients have.
    Unix(PathBuf),
}

impl Address {
    /// The IP address and port, unless it is a Unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn to_socket2(&self) -> io::Result<socket2::SockAddr> {
        match self {
            Self::Ip(address) => Ok((*address).into()),
            Self::Unix(path) => socket2::SockAddr::unix(path),
        }
    }

    pub(crate) fn from_socket2(address: &socket2::SockAddr) -> Self {
        match address.as_socket() {
            Some(address) => Self::Ip(address),
            None => Self::Unix(address.as_pathname().map(Path::to_path_buf).unwrap_or_default()),
        }
    }

    pub(crate) fn from_rustix(address: Option<rustix::net::SocketAddrAny>) -> Self {
        let Some(address) = address else { return Self::Unix(PathBuf::new()) };
        if let Ok(address) = SocketAddr::try_from(address.clone()) {
            return Self::Ip(address);
        }
        let unix = rustix::net::SocketAddrUnix::try_from(address).ok();
        let path = unix.as_ref().and_then(|unix| unix.path_bytes());
        Self::Unix(path.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path))).unwrap_or_default())
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(BadAddress) } else { Ok(Self::Unix(path.into())) };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()).ok_or(BadAddress)?;
        Ok(Self::Ip((Ipv4Addr::LOCALHOST, port).into()))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) if path.as_os_str().is_empty() => f.write_str("unix:(unnamed)"),
            Self::Unix(path) => {
                // A peer chooses its own name, and the name goes into logs: it must not write lines of its own there.
                f.write_str("unix:")?;
                path.to_string_lossy().chars().try_for_each(|character| match character.is_control() {
                    true => write!(f, "{}", character.escape_default()),
                    false => f.write_char(character),
                })
            }
        }
    }
}

/// A text that is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadAddress;

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address: write IP:PORT, [IPV6]:PORT, localhost:PORT or unix:PATH")
    }
}

impl std::error::Error for BadAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_says_what_would_be() {
        for text in ["", "8080", ":8080", "host:80", "127.0.0.1", "127.0.0.1:99999", "unix:"] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress), "{text}");
        }
        assert!(BadAddress.to_string().contains("IP:PORT"));
    }

    #[test]
    fn localhost_is_an_address() {
        assert_eq!("localhost:80".parse::<Address>().unwrap().to_string(), "127.0.0.1:80");
    }

    #[test]
    fn a_name_that_a_peer_chose_stays_on_its_line() {
        let name = Address::Unix(PathBuf::from("p\n2026 ERROR forged \x1b[31m"));
        assert_eq!(name.to_string(), "unix:p\\n2026 ERROR forged \\u{1b}[31m");
    }
}
