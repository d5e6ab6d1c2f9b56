//! `Address`: the address of a stream socket, TCP or Unix.
//!
//! A Unix socket has a path in the file system, a name in the abstract namespace of Linux, or no name. In text, `@`
//! marks the abstract namespace, as `ss` and `/proc/net/unix` write it. So `unix:./@name` is the text of a file
//! `@name`.

use std::ffi::{CString, OsStr};
use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a stream socket.
///
/// ```
/// use tidegate::Address;
///
/// assert!(matches!("127.0.0.1:8080".parse(), Ok(Address::Ip(_))));
/// assert!(matches!("[::1]:80".parse(), Ok(Address::Ip(_))));
/// assert_eq!("[fe80::1%lo]:80".parse::<Address>(), "[fe80::1%1]:80".parse()); // a zone by name or number
/// assert_eq!("unix:/run/app.sock".parse::<Address>().unwrap().to_string(), "unix:/run/app.sock");
/// assert_eq!("unix:@app".parse(), Ok(Address::Abstract(b"app".to_vec())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Ip(SocketAddr),
    /// A Unix socket at a path. Empty for a socket without a name, as most clients have.
    Unix(PathBuf),
    /// A Unix socket in the abstract namespace of Linux, by its name without the leading zero byte; the text is
    /// `unix:@name`. Such a name belongs to a network namespace, has no permissions, and ends with its socket: every
    /// process of the namespace can connect, and no file is left behind.
    Abstract(Vec<u8>),
}

impl Address {
    /// The IP address and port, unless it is a Unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) | Self::Abstract(_) => None,
        }
    }

    pub(crate) fn to_socket2(&self) -> io::Result<socket2::SockAddr> {
        match self {
            Self::Ip(address) => Ok((*address).into()),
            // The system call would use the path up to its first zero byte, which is another file.
            Self::Unix(path) if path.as_os_str().as_bytes().contains(&0) => Err(io::ErrorKind::InvalidInput.into()),
            Self::Unix(path) => socket2::SockAddr::unix(path),
            // With an empty name the kernel would choose one.
            Self::Abstract(name) if name.is_empty() => Err(io::ErrorKind::InvalidInput.into()),
            Self::Abstract(name) => socket2::SockAddr::unix(OsStr::from_bytes(&[b"\0", name.as_slice()].concat())),
        }
    }

    pub(crate) fn from_socket2(address: &socket2::SockAddr) -> Self {
        if let Some(address) = address.as_socket() {
            return Self::Ip(canonical(address));
        }
        if let Some(name) = address.as_abstract_namespace().filter(|name| !name.is_empty()) {
            return Self::Abstract(name.to_vec());
        }
        Self::Unix(address.as_pathname().map(Path::to_path_buf).unwrap_or_default())
    }

    pub(crate) fn from_rustix(address: Option<rustix::net::SocketAddrAny>) -> Self {
        let Some(address) = address else { return Self::Unix(PathBuf::new()) };
        if let Ok(address) = SocketAddr::try_from(address.clone()) {
            return Self::Ip(canonical(address));
        }
        let unix = rustix::net::SocketAddrUnix::try_from(address).ok();
        if let Some(name) = unix.as_ref().and_then(|unix| unix.abstract_name()).filter(|name| !name.is_empty()) {
            return Self::Abstract(name.to_vec());
        }
        let path = unix.as_ref().and_then(|unix| unix.path_bytes());
        Self::Unix(path.map(|path| PathBuf::from(OsStr::from_bytes(path))).unwrap_or_default())
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(canonical(address)));
        }
        if let Some((host, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            let (ip, zone) = parse_zoned(host).ok_or(BadAddress)?;
            let port = port.parse().map_err(|_| BadAddress)?;
            return Ok(Self::Ip(SocketAddrV6::new(ip, port, 0, zone).into()));
        }
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()).ok_or(BadAddress)?;
        Ok(Self::Ip((Ipv4Addr::LOCALHOST, port).into()))
    }
}

/// An IPv6 address with a zone: `fe80::1%eth0`, or `fe80::1%25eth0` as in a URL (RFC 6874 §2). The zone is the name of a
/// network interface of this machine, or its number. Returns the address and the number; `None` for an address without a
/// zone, and if there is no such interface.
///
/// ```
/// use tidegate_sys::parse_zoned;
///
/// assert_eq!(parse_zoned("fe80::1%lo"), Some(("fe80::1".parse()?, 1)));
/// assert_eq!(parse_zoned("fe80::1"), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn parse_zoned(text: &str) -> Option<(Ipv6Addr, u32)> {
    let (ip, zone) = text.split_once('%')?;
    let ip = ip.parse().ok()?;
    // An interface whose name begins with 25 is written with the escape, or has no other reading.
    let number = match zone.strip_prefix("25") {
        Some("") => return None,
        Some(escaped) => interface(escaped).or_else(|| interface(zone)),
        None => interface(zone),
    };
    Some((ip, number?))
}

/// The number of a network interface, by its name or its number.
fn interface(zone: &str) -> Option<u32> {
    if zone.bytes().all(|byte| byte.is_ascii_digit()) {
        return zone.parse().ok().filter(|number| *number > 0);
    }
    let name = CString::new(zone).ok()?;
    // SAFETY: the name ends with a zero byte and lives until the call returns.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number > 0).then_some(number)
}

/// An IPv4 peer of a listener of both families has an IPv4 address, as it has at any other listener (RFC 4291 §2.5.5.2).
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Parses the text after `unix:`. A command line cannot contain a zero byte, so the escape `\0` is accepted as well.
fn unix(text: &str) -> Result<Address, BadAddress> {
    let name = ["@", "\0", "\\0"].iter().find_map(|marker| text.strip_prefix(marker));
    match name {
        Some(name) if !name.is_empty() => Ok(Address::Abstract(name.into())),
        None if !text.is_empty() && !text.contains('\0') => Ok(Address::Unix(text.into())),
        _ => Err(BadAddress),
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
                let text = path.to_string_lossy();
                let is_ambiguous = text.starts_with('@') || text.starts_with("\\0");
                f.write_str(if is_ambiguous { "unix:./" } else { "unix:" })?;
                escaped(&text, f)
            }
            Self::Abstract(name) => {
                f.write_str("unix:@")?;
                escaped(&String::from_utf8_lossy(name), f)
            }
        }
    }
}

/// Escapes control characters. A peer chooses its own name, which goes into logs, and must not forge log lines with it.
fn escaped(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|character| match character.is_control() {
        true => write!(f, "{}", character.escape_default()),
        false => f.write_char(character),
    })
}

/// The error for a text that is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadAddress;

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address: write IP:PORT, [IPV6]:PORT, [IPV6%INTERFACE]:PORT, localhost:PORT, unix:PATH or unix:@NAME")
    }
}

impl std::error::Error for BadAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_address_is_an_error_that_lists_the_forms() {
        for text in ["", "8080", ":8080", "host:80", "127.0.0.1", "127.0.0.1:99999", "unix:", "unix:@", "unix:/a\0b"] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress), "{text}");
        }
        assert!(BadAddress.to_string().contains("IP:PORT"));
    }

    #[test]
    fn a_zone_is_the_name_or_the_number_of_an_interface() {
        let scope = |text: &str| match text.parse::<Address>() {
            Ok(Address::Ip(SocketAddr::V6(address))) => Some((address.scope_id(), address.port())),
            _ => None,
        };
        for text in ["[fe80::1%lo]:80", "[fe80::1%25lo]:80", "[fe80::1%1]:80"] {
            assert_eq!(scope(text), Some((1, 80)), "{text}");
        }
        // The printed address parses again.
        let address = "[fe80::1%251]:80".parse::<Address>().unwrap();
        assert_eq!(address.to_string().parse(), Ok(address));
        assert_eq!(parse_zoned("fe80::1%251"), Some(("fe80::1".parse().unwrap(), 1)));
        for text in ["[fe80::1%]:80", "[fe80::1%25]:80x", "[fe80::1%nosuch0]:80", "[fe80::1%lo]", "[1.2.3.4%lo]:80"] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_within_ipv6_is_an_ipv4_address() {
        let address = "[::ffff:127.0.0.1]:80".parse::<Address>().unwrap();
        assert_eq!(address, "127.0.0.1:80".parse().unwrap());
        let of_kernel = socket2::SockAddr::from("[::ffff:10.0.0.7]:80".parse::<SocketAddr>().unwrap());
        assert_eq!(Address::from_socket2(&of_kernel).to_string(), "10.0.0.7:80");
    }

    #[test]
    fn localhost_is_an_address() {
        assert_eq!("localhost:80".parse::<Address>().unwrap().to_string(), "127.0.0.1:80");
    }

    #[test]
    fn control_characters_in_a_peer_name_are_escaped() {
        let name = Address::Unix(PathBuf::from("p\n2026 ERROR forged \x1b[31m"));
        assert_eq!(name.to_string(), "unix:p\\n2026 ERROR forged \\u{1b}[31m");
        assert_eq!(Address::Abstract(b"a\nb\xff".to_vec()).to_string(), "unix:@a\\nb\u{fffd}");
    }

    #[test]
    fn all_spellings_of_an_abstract_name_parse_alike() {
        for text in ["unix:@app/1", "unix:\0app/1", "unix:\\0app/1"] {
            let address = text.parse::<Address>().unwrap();
            assert_eq!((address.to_string().as_str(), address.ip()), ("unix:@app/1", None), "{text}");
            assert_eq!(address, Address::Abstract(b"app/1".to_vec()));
        }
    }

    #[test]
    fn a_path_that_begins_with_the_marker_stays_a_path() {
        let address = Address::Unix("@app".into());
        assert_eq!(address.to_string(), "unix:./@app");
        assert_eq!("unix:./@app".parse(), Ok(Address::Unix("./@app".into())));
    }
}
