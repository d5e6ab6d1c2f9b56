//! `Address`: the address of a socket: of IP, Unix, or between a virtual machine and its host.
//!
//! It is here, and not beside the sockets, since a [`Datagram`](crate::Datagram) of a Unix socket has one.
//!
//! A Unix socket has a path in the file system, a name in the abstract namespace of Linux, or no name. In text, `@`
//! marks the abstract namespace, as `ss` and `/proc/net/unix` write it. So `unix:./@name` is the text of a file
//! `@name`.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a socket.
///
/// ```
/// use tidegate::Address;
///
/// assert!(matches!("127.0.0.1:8080".parse(), Ok(Address::Ip(_))));
/// assert!(matches!("[::1]:80".parse(), Ok(Address::Ip(_))));
/// assert_eq!("[fe80::1%lo]:80".parse::<Address>(), "[fe80::1%1]:80".parse()); // a zone by name or number
/// assert_eq!("unix:/run/app.sock".parse::<Address>().unwrap().to_string(), "unix:/run/app.sock");
/// assert_eq!("unix:@app".parse(), Ok(Address::Abstract(b"app".to_vec())));
/// assert_eq!("vsock:2:1024".parse(), Ok(Address::Vsock { cid: 2, port: 1024 }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4 or IPv6, and a port.
    Ip(SocketAddr),
    /// A Unix socket at a path. Empty for a socket without a name, as most clients have.
    Unix(PathBuf),
    /// A Unix socket in the abstract namespace of Linux, by its name without the leading zero byte; the text is
    /// `unix:@name`. Such a name belongs to a network namespace, has no permissions, and ends with its socket: every
    /// process of the namespace can connect, and no file is left behind.
    Abstract(Vec<u8>),
    /// A stream socket between a virtual machine and its host (AF_VSOCK); the text is `vsock:CID:PORT`, with `*` for
    /// [`VSOCK_CID_ANY`](Self::VSOCK_CID_ANY) and for [`VSOCK_PORT_ANY`](Self::VSOCK_PORT_ANY).
    Vsock {
        /// The context identifier: 1 is this machine, 2 the host, and each virtual machine has its own from 3 on.
        cid: u32,
        /// The port; a process needs a privilege to listen at one below 1,024.
        port: u32,
    },
}

impl Address {
    /// Listens at every context identifier of this machine (VMADDR_CID_ANY).
    pub const VSOCK_CID_ANY: u32 = u32::MAX;
    /// The kernel chooses a free port (VMADDR_PORT_ANY).
    pub const VSOCK_PORT_ANY: u32 = u32::MAX;

    /// The IP address and port, if it has them.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) | Self::Abstract(_) | Self::Vsock { .. } => None,
        }
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        if let Some(rest) = text.strip_prefix("vsock:") {
            return vsock(rest);
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
/// use tidegate::sys::parse_zoned;
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
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
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

/// Parses the text after `vsock:`.
fn vsock(text: &str) -> Result<Address, BadAddress> {
    let number = |text: &str| match text {
        "*" => Ok(u32::MAX),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().map_err(|_| BadAddress),
        _ => Err(BadAddress),
    };
    let (cid, port) = text.split_once(':').ok_or(BadAddress)?;
    Ok(Address::Vsock { cid: number(cid)?, port: number(port)? })
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
            Self::Vsock { cid, port } => {
                f.write_str("vsock:")?;
                vsock_number(*cid, f)?;
                f.write_char(':')?;
                vsock_number(*port, f)
            }
        }
    }
}

fn vsock_number(number: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if number == u32::MAX { f.write_char('*') } else { write!(f, "{number}") }
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
        f.write_str("not an address: write IP:PORT, [IPV6]:PORT, [IPV6%INTERFACE]:PORT, localhost:PORT, unix:PATH, unix:@NAME or vsock:CID:PORT")
    }
}

impl std::error::Error for BadAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_address_is_an_error_that_lists_the_forms() {
        for text in [
            "",
            "8080",
            ":8080",
            "host:80",
            "127.0.0.1",
            "127.0.0.1:99999",
            "unix:",
            "unix:@",
            "unix:/a\0b",
            "vsock:",
            "vsock:2",
            "vsock:+2:1",
            "vsock:2:4294967296",
        ] {
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
    fn a_vsock_address_prints_as_it_parses() {
        for (text, cid, port) in [("vsock:2:1024", 2, 1024), ("vsock:*:5", u32::MAX, 5), ("vsock:1:*", 1, u32::MAX)] {
            let address = text.parse::<Address>().unwrap();
            assert_eq!((address.to_string().as_str(), address.ip()), (text, None));
            assert_eq!(address, Address::Vsock { cid, port });
        }
    }

    #[test]
    fn a_path_that_begins_with_the_marker_stays_a_path() {
        let address = Address::Unix("@app".into());
        assert_eq!(address.to_string(), "unix:./@app");
        assert_eq!("unix:./@app".parse(), Ok(Address::Unix("./@app".into())));
    }
}
