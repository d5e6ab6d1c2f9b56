//! `Refusal`: why a proxy does not connect, and its codes in both versions.

use std::fmt;
use std::io::{self, ErrorKind};

/// Why a proxy does not connect a client to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The proxy gives no reason. It is the only one that version 4 has, beside [`Identd`](Self::Identd) and
    /// [`UserId`](Self::UserId).
    General,
    /// The rules of the proxy forbid the connection.
    NotAllowed,
    /// The network cannot be reached.
    NetworkUnreachable,
    /// The host cannot be reached, or its name does not resolve.
    HostUnreachable,
    /// The target refuses the connection.
    ConnectionRefused,
    /// Connecting took too long.
    Expired,
    /// The proxy does not have the command.
    CommandNotSupported,
    /// The proxy does not have this type of address.
    AddressNotSupported,
    /// The proxy cannot connect to the identd of the client. Version 4 alone has it.
    Identd,
    /// The identd of the client reports another user. Version 4 alone has it.
    UserId,
    /// The proxy accepts none of the methods of authentication that the client offers. A client receives it; a server
    /// sends it by itself.
    NoMethod,
    /// The proxy does not accept the user name and the password. A client receives it; a server sends it after
    /// [`Answer::Denied`](crate::Answer::Denied).
    Credentials,
    /// A code that no RFC assigns.
    Unassigned(u8),
}

impl Refusal {
    /// The code of version 5 (RFC 1928 §6).
    pub(crate) fn v5_code(self) -> u8 {
        match self {
            Self::NotAllowed => 2,
            Self::NetworkUnreachable => 3,
            Self::HostUnreachable => 4,
            Self::ConnectionRefused => 5,
            Self::Expired => 6,
            Self::CommandNotSupported => 7,
            Self::AddressNotSupported => 8,
            // A code of success would be a lie.
            Self::Unassigned(code) if code > 8 => code,
            Self::General | Self::Identd | Self::UserId | Self::NoMethod | Self::Credentials | Self::Unassigned(_) => 1,
        }
    }

    /// The refusal with this code of version 5, which is not zero.
    pub(crate) fn from_v5(code: u8) -> Self {
        match code {
            1 => Self::General,
            2 => Self::NotAllowed,
            3 => Self::NetworkUnreachable,
            4 => Self::HostUnreachable,
            5 => Self::ConnectionRefused,
            6 => Self::Expired,
            7 => Self::CommandNotSupported,
            8 => Self::AddressNotSupported,
            _ => Self::Unassigned(code),
        }
    }

    /// The code of version 4.
    pub(crate) fn v4_code(self) -> u8 {
        match self {
            Self::Identd => 92,
            Self::UserId => 93,
            _ => 91,
        }
    }

    /// The refusal with this code of version 4; `None` if the version has no such code.
    pub(crate) fn from_v4(code: u8) -> Option<Self> {
        match code {
            91 => Some(Self::General),
            92 => Some(Self::Identd),
            93 => Some(Self::UserId),
            _ => None,
        }
    }
}

/// The refusal that a proxy sends when its own connect fails.
impl From<&io::Error> for Refusal {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            ErrorKind::HostUnreachable => Self::HostUnreachable,
            ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            ErrorKind::TimedOut => Self::Expired,
            ErrorKind::PermissionDenied => Self::NotAllowed,
            _ => Self::General,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::General => "the SOCKS proxy refuses the connection without a reason",
            Self::NotAllowed => "the rules of the SOCKS proxy forbid the connection",
            Self::NetworkUnreachable => "the SOCKS proxy cannot reach the network",
            Self::HostUnreachable => "the SOCKS proxy cannot reach the host",
            Self::ConnectionRefused => "the target refuses the connection of the SOCKS proxy",
            Self::Expired => "connecting took the SOCKS proxy too long",
            Self::CommandNotSupported => "the SOCKS proxy does not have the command",
            Self::AddressNotSupported => "the SOCKS proxy does not have the type of the address",
            Self::Identd => "the SOCKS proxy cannot connect to the identd of the client",
            Self::UserId => "the identd of the client reports another user to the SOCKS proxy",
            Self::NoMethod => "the SOCKS proxy accepts no method of authentication that the client offers",
            Self::Credentials => "the SOCKS proxy does not accept the user name and the password",
            Self::Unassigned(code) => return write!(f, "the SOCKS proxy refuses with the unassigned code {code}"),
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_the_refusal_that_writes_it() {
        for code in 1..=u8::MAX {
            assert_eq!(Refusal::from_v5(code).v5_code(), code);
        }
        for code in 91..=93 {
            assert_eq!(Refusal::from_v4(code).unwrap().v4_code(), code);
        }
        assert_eq!((Refusal::from_v4(90), Refusal::from_v4(94)), (None, None));
    }

    #[test]
    fn no_refusal_is_written_as_success() {
        for refusal in [Refusal::Unassigned(0), Refusal::Unassigned(90), Refusal::NoMethod, Refusal::Credentials] {
            assert_ne!(refusal.v5_code(), 0);
            assert_eq!(refusal.v4_code(), 91);
        }
    }
}
