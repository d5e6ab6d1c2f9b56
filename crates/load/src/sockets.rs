//! Established connections, from the kernel's table: the only way to notice that the peer has closed a connection that
//! the application never reads.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

/// The local and the remote address of a connection.
pub(crate) type AddressPair = (SocketAddr, SocketAddr);

/// The TCP connections that neither side has closed.
///
/// # Errors
/// If /proc/net/tcp cannot be read.
pub(crate) fn established() -> io::Result<BTreeSet<AddressPair>> {
    let mut all = ends(&fs::read_to_string("/proc/net/tcp")?);
    // Without IPv6 the file does not exist.
    all.extend(ends(&fs::read_to_string("/proc/net/tcp6").unwrap_or_default()));
    Ok(all)
}

/// The established connections in a table in the kernel's format.
fn ends(table: &str) -> BTreeSet<AddressPair> {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        (fields.next()? == ESTABLISHED).then_some((address(local)?, address(remote)?))
    };
    table.lines().filter_map(line).collect()
}

/// Parses an address: 32-bit words in memory order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// TCP_ESTABLISHED in the kernel's numbering.
const ESTABLISHED: &str = "01";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_listed_until_one_side_closes() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has both IPv4 and IPv6.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let ends = (stream.local_addr().expect("a socket"), stream.peer_addr().expect("a socket"));
            let (other, _) = listener.accept().expect("it was connected");
            assert!(established().expect("/proc/net/tcp is readable").contains(&ends), "{ends:?}");
            drop(other);
            assert!(!established().expect("/proc/net/tcp is readable").contains(&ends), "{ends:?}");
        }
    }

    #[test]
    fn malformed_lines_list_no_connections() {
        for text in
            ["", "sl local rem st\n", "0: 1:1 2:2 01", "0: zzzzzzzz:1 0100007F:2 01", "0: 0100007F:1 é0000000:2 01"]
        {
            assert!(ends(text).is_empty(), "{text}");
        }
    }
}
