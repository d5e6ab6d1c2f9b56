//! `Membership`: a change of the groups that a datagram socket receives from.

use std::net::IpAddr;

/// A multicast group to join or to leave (RFC 3678 §5).
///
/// ```
/// use std::net::IpAddr;
///
/// use tidegate::codec::Membership;
///
/// let group: IpAddr = "239.1.2.3".parse()?;
/// let membership = Membership::join(group).from_source("192.0.2.7".parse()?).on_interface(2);
/// assert_eq!((membership.group, membership.interface, membership.joins), (group, 2, true));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The address of the group.
    pub group: IpAddr,
    /// The address of the one sender, of the same family; `None` for any sender.
    pub source: Option<IpAddr>,
    /// The index of the interface; zero for the kernel's choice.
    pub interface: u32,
    /// Whether the socket joins the group, or leaves it.
    pub joins: bool,
}

impl Membership {
    /// To join a group, from any source, at the interface of the kernel's choice.
    #[must_use]
    pub const fn join(group: IpAddr) -> Self {
        Self { group, source: None, interface: 0, joins: true }
    }

    /// To leave a group. The source and the interface are those with which the socket has joined.
    #[must_use]
    pub const fn leave(group: IpAddr) -> Self {
        Self { joins: false, ..Self::join(group) }
    }

    /// The same from one source alone: the kernel drops datagrams to the group from others.
    #[must_use]
    pub const fn from_source(self, source: IpAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// The same at the interface of this index.
    #[must_use]
    pub const fn on_interface(self, interface: u32) -> Self {
        Self { interface, ..self }
    }
}
