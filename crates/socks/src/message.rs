//! The messages of a server: events from its client, and the application's answers.

use std::fmt;
use std::net::SocketAddr;

use crate::refusal::Refusal;
use crate::target::Target;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// SOCKS 4, and 4a if the target is a name.
    Four,
    /// SOCKS 5.
    Five,
}

/// A message that a server receives: it waits for an [`Answer`] to each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The client authenticates: [`Answer::Authenticated`] or [`Answer::Denied`].
    Credentials(Credentials),
    /// The client wants to be connected: [`Answer::Connected`] or [`Answer::Refused`].
    Connect(Request),
}

/// A user name and a password (RFC 1929): up to 255 bytes each, which may be any. The `Debug` text omits the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Box<[u8]>,
    pub(crate) password: Box<[u8]>,
}

impl Credentials {
    /// The user name.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// The password.
    #[must_use]
    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// Whether they are these. The time that it takes does not depend on where the bytes differ.
    #[must_use]
    pub fn is(&self, user: &[u8], password: &[u8]) -> bool {
        is_equal(&self.user, user) & is_equal(&self.password, password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: \"{}\", .. }}", self.user.escape_ascii())
    }
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) version: Version,
    pub(crate) target: Target,
    pub(crate) user_id: Box<[u8]>,
}

impl Request {
    /// The version that the client speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the client wants to be connected to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The user ID of version 4: the client's unproved claim. Empty in version 5.
    #[must_use]
    pub fn user_id(&self) -> &[u8] {
        &self.user_id
    }
}

/// A server's answer to an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The credentials are right: the request comes next.
    Authenticated,
    /// The credentials are wrong. The connection closes when this is sent.
    Denied,
    /// The target is connected, from this address of the proxy. The application switches to the codec of the tunnelled
    /// bytes. Version 4 cannot express an IPv6 address: the reply has zeros then.
    Connected(SocketAddr),
    /// The target is not connected. The connection closes when this is sent.
    Refused(Refusal),
}

fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}
