//! Multicast groups: joining and leaving them, by the requests for both families (RFC 3678 §5).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use tidegate_buffer::Membership;

use super::control::Name;
use super::messages::{set_option, set_option_bytes};
use super::options::DatagramOptions;

/// Joins or leaves a group. Joining a second time changes nothing.
///
/// # Errors
/// Those of the system: `AddrNotAvailable` for a group that the socket has not joined. `InvalidInput` if the addresses are
/// of two families.
pub(crate) fn set_membership(socket: BorrowedFd<'_>, membership: &Membership) -> io::Result<()> {
    let Membership { group, source, interface, joins } = *membership;
    if source.is_some_and(|source| source.is_ipv6() != group.is_ipv6()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = match (source.is_some(), joins) {
        (false, true) => libc::MCAST_JOIN_GROUP,
        (false, false) => libc::MCAST_LEAVE_GROUP,
        (true, true) => libc::MCAST_JOIN_SOURCE_GROUP,
        (true, false) => libc::MCAST_LEAVE_SOURCE_GROUP,
    };
    let level = if group.is_ipv6() { libc::SOL_IPV6 } else { libc::SOL_IP };
    let addresses: &[IpAddr] = match &source {
        None => &[group],
        Some(source) => &[group, *source],
    };
    match set_option_bytes(socket, level, name, &request(interface, addresses)) {
        // IPv4 reports a second join as an address in use, or not available for one from a source; IPv6 as the first.
        Err(error) if joins && is_joined_already(&error, source.is_some()) => Ok(()),
        // As for a group of any source.
        Err(error) if !joins && error.raw_os_error() == Some(libc::EINVAL) => {
            Err(io::ErrorKind::AddrNotAvailable.into())
        }
        other => other,
    }
}

/// Has a socket receive from the groups alone that it has joined: by default, one at `0.0.0.0` receives from all groups that any
/// process of the host has joined.
pub(super) fn only_joined_groups(socket: BorrowedFd<'_>, is_v6: bool) {
    let (level, name) =
        if is_v6 { (libc::SOL_IPV6, IPV6_MULTICAST_ALL) } else { (libc::SOL_IP, libc::IP_MULTICAST_ALL) };
    // Linux before 4.20 has no such option for IPv6.
    let _ = set_option(socket, level, name, 0);
    if is_v6 {
        // Groups of IPv4 at a socket of both.
        let _ = set_option(socket, libc::SOL_IP, libc::IP_MULTICAST_ALL, 0);
    }
}

/// Joins the groups of a new socket, each once.
pub(super) fn join_all(socket: BorrowedFd<'_>, options: &DatagramOptions) -> io::Result<()> {
    let from_any = options.groups.iter().map(|(group, interface)| Membership::join(*group).on_interface(*interface));
    let from_one = options
        .source_groups
        .iter()
        .map(|of| Membership::join(of.group).from_source(of.source).on_interface(of.interface));
    from_any.chain(from_one).try_for_each(|membership| set_membership(socket, &membership))
}

/// `struct group_req` or `struct group_source_req`: the interface, and addresses at multiples of the word size.
fn request(interface: u32, addresses: &[IpAddr]) -> Vec<u8> {
    let mut request = vec![0; WORD + addresses.len() * size_of::<Name>()];
    request[..4].copy_from_slice(&interface.to_ne_bytes());
    for (address, place) in addresses.iter().zip(request[WORD..].chunks_exact_mut(size_of::<Name>())) {
        let mut name = Name::EMPTY;
        name.encode(SocketAddr::new(*address, 0), address.is_ipv6());
        place.copy_from_slice(name.as_bytes());
    }
    request
}

fn is_joined_already(error: &io::Error, from_source: bool) -> bool {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => true,
        Some(libc::EADDRNOTAVAIL) => from_source,
        _ => false,
    }
}

const WORD: usize = size_of::<usize>();
const IPV6_MULTICAST_ALL: i32 = 29;
