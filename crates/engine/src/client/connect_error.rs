//! `ConnectError`: why there is no connection, and the remedy.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tidegate_sys::Address;

/// Why there is no connection.
///
/// Its `Debug` equals its `Display`, because `main` prints the `Debug` of an error that it returns.
#[non_exhaustive]
pub enum ConnectError {
    /// The text is neither an address nor a name with a port.
    Target(Box<str>),
    /// The name could not be resolved.
    Name(Box<str>, io::Error),
    /// The name has no address, or none was given.
    NoAddress,
    /// Connecting to the address failed; the last one, if there are several.
    Failed(Address, io::Error),
    /// The time was up. The address is the one that was tried last, if any was tried.
    Timeout(Option<SocketAddr>),
}

impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(text) => {
                write!(f, "cannot connect to '{text}': write IP:PORT, [IPV6]:PORT, NAME:PORT, unix:PATH or unix:@NAME")
            }
            Self::Name(name, error) => {
                write!(f, "cannot resolve '{name}': {error}; check the name, or the name servers of this machine")
            }
            Self::NoAddress => {
                f.write_str("there is no address to connect to: the name has none, or the list is empty")
            }
            Self::Failed(address, error) => {
                write!(f, "cannot connect to {address}: {error}{}", advice(address, error))
            }
            Self::Timeout(Some(address)) => write!(
                f,
                "cannot connect to {address}: no answer in time; check the address and the firewalls on the way, or \
                 raise Client::connect_timeout"
            ),
            Self::Timeout(None) => f.write_str(
                "cannot connect: the name was not resolved in time; check the name servers of this machine, or raise \
                 Client::connect_timeout",
            ),
        }
    }
}

/// The probable cause and the remedy, where the text of the error does not name it.
fn advice(address: &Address, error: &io::Error) -> &'static str {
    let is_ip = address.ip().is_some();
    match (error.kind(), error.raw_os_error()) {
        (_, Some(EMFILE)) => "; this process has no descriptor left: close connections, or raise the limit (ulimit -n)",
        (_, Some(ENFILE)) => "; this machine has no descriptor left: raise the setting fs.file-max",
        (ErrorKind::ConnectionRefused, _) if is_ip => "; no server listens on this port: start it, or correct the port",
        (ErrorKind::ConnectionRefused, _) => "; no server listens on this socket: start it, or correct the path",
        (ErrorKind::NotFound, _) => "; start the server that makes this socket, or correct the path",
        (ErrorKind::PermissionDenied, _) if is_ip => {
            "; a firewall of this machine forbids it, or it is a broadcast address"
        }
        (ErrorKind::PermissionDenied, _) => "; connecting needs write permission on the socket and its directories",
        (ErrorKind::TimedOut, _) => "; the peer does not answer: check the address and the firewalls on the way",
        (ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable, _) => {
            "; this machine has no route there: check the address and the network, and whether it has IPv6"
        }
        (ErrorKind::AddrNotAvailable, _) => {
            "; no local port is left for this peer, or the address of Client::local is not on this machine: reuse \
             connections, or connect from several addresses"
        }
        (ErrorKind::AddrInUse, _) => "; the local address is in use: let the system choose the port",
        (ErrorKind::WouldBlock, _) => "; the backlog of the server is full: it accepts too slowly, try again later",
        _ => "",
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Name(_, error) | Self::Failed(_, error) => Some(error),
            Self::Target(_) | Self::NoAddress | Self::Timeout(_) => None,
        }
    }
}

/// Linux's numbers, for which `ErrorKind` has no names.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_names_a_remedy() {
        let ip: Address = "127.0.0.1:7".parse().expect("an address");
        let unix: Address = "unix:/run/a.sock".parse().expect("an address");
        // Linux's numbers.
        for (number, address, advice) in [
            (1, &ip, "firewall"),
            (2, &unix, "correct the path"),
            (11, &unix, "backlog"),
            (13, &unix, "write permission"),
            (23, &ip, "fs.file-max"),
            (24, &ip, "ulimit -n"),
            (98, &ip, "local address is in use"),
            (99, &ip, "no local port is left"),
            (101, &ip, "no route"),
            (110, &ip, "does not answer"),
            (111, &ip, "correct the port"),
            (111, &unix, "correct the path"),
            (113, &ip, "no route"),
        ] {
            let error = ConnectError::Failed(address.clone(), io::Error::from_raw_os_error(number));
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot connect to {address}: ")) && text.contains(advice), "{text}");
            assert_eq!(format!("{error:?}"), text);
        }
        let name = ConnectError::Name("a.invalid".into(), io::Error::other("unknown"));
        assert!(name.to_string().contains("name servers"), "{name}");
        let timeout = ConnectError::Timeout(Some(([127, 0, 0, 1], 7).into()));
        assert!(timeout.to_string().contains("Client::connect_timeout"), "{timeout}");
    }
}
