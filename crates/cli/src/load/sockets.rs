//! Connections as the kernel has them: it knows that a peer has closed one which is never read, and whose end nobody hears.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

/// The two ends of a connection, ours first.
pub(crate) type AddressPair = (SocketAddr, SocketAddr);

/// The connections over TCP that neither side has closed.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn established() -> io::Result<BTreeSet<AddressPair>> {
    let mut all = ends(&fs::read_to_string("/proc/net/tcp")?);
    // Where there is no IPv6 there is no such file.
    all.extend(ends(&fs::read_to_string("/proc/net/tcp6").unwrap_or_default()));
    Ok(all)
}

/// Those of a table as the kernel writes it.
fn ends(table: &str) -> BTreeSet<AddressPair> {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        (fields.next()? == ESTABLISHED).then_some((address(local)?, address(remote)?))
    };
    table.lines().filter_map(line).collect()
}

/// Words of 32 bits as they lie in memory, and a port.
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

/// TCP_ESTABLISHED, as the kernel numbers its states.
const ESTABLISHED: &str = "01";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_there_until_one_side_has_closed() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has both.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let ends = (stream.local_addr().expect("a socket"), stream.peer_addr().expect("a socket"));
            let (other, _) = listener.accept().expect("it was connected");
            assert!(established().expect("Linux tells").contains(&ends), "{ends:?}");
            drop(other);
            assert!(!established().expect("Linux tells").contains(&ends), "{ends:?}");
        }
    }

    #[test]
    fn what_is_no_table_has_no_connections() {
        for text in
            ["", "sl local rem st\n", "0: 1:1 2:2 01", "0: zzzzzzzz:1 0100007F:2 01", "0: 0100007F:1 é0000000:2 01"]
        {
            assert!(ends(text).is_empty(), "{text}");
        }
    }
}
