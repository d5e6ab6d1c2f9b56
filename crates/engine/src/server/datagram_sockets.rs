//! The datagram sockets of a server: opened, or taken from the server before.
//!
//! A server that takes over, or replaces another one, has *the same* sockets: the datagrams in the kernel stay in their
//! queue, and the group of sockets at an address does not change. Until the server before drains, both receive, and either
//! responds; from then on it receives no more, and finishes its responses. A datagram of a session is for the process that has
//! the session: endpoints whose sessions outlast a restart hand their sockets over in another way (`session_groups.rs`), and
//! the others with sessions open sockets of their own.
//!
//! The sockets stay in the order in which they joined their group, since that is how a program of the kernel counts them.
//! The clones for a successor close with their endpoints.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use tidegate_sys::{Address, Side, Socket, handover};

use super::found_sockets::{self, FoundSockets};
use super::session_groups::{SessionGroups, TakenGroup};
use crate::endpoint::{Predecessors, ServedEndpoint, SocketGroup};
use crate::start_error::StartError;

/// Takes the datagram sockets out of the descriptors of a predecessor, and of a server of this process that is replaced. If
/// there are both, they are the same server.
pub(super) fn split(taken: &mut Option<Vec<OwnedFd>>, replaced: &mut Option<Vec<OwnedFd>>) -> Vec<OwnedFd> {
    let is_replacement = replaced.is_some();
    let [of_path, of_process] = [taken, replaced].map(take);
    if is_replacement { of_process } else { of_path }
}

/// Takes the datagram sockets out of these. `None` is left if there are no others.
fn take(descriptors: &mut Option<Vec<OwnedFd>>) -> Vec<OwnedFd> {
    let Some(all) = descriptors else { return Vec::new() };
    let sockets = all.extract_if(.., |descriptor| handover::is_datagram_socket(descriptor.as_fd())).collect();
    if all.is_empty() {
        *descriptors = None;
    }
    sockets
}

/// The datagram sockets of one address.
pub(super) struct OpenedSockets {
    pub(super) sockets: Vec<Socket>,
    pub(super) group: SocketGroup,
    /// The predecessors whose sessions go on, and the number of their group in the parcel.
    pub(super) predecessors: Option<(Predecessors, usize)>,
}

/// The sockets of `served`, one of `all` endpoints: those among `taken` at its address, and as many new ones as are missing for
/// one a loop; else those that a service manager passed; else new ones. The last two are in the `own` group.
///
/// # Errors
/// The address cannot be used.
pub(super) fn open(
    served: &ServedEndpoint,
    all: &[ServedEndpoint],
    (loops, is_shared, own): (usize, bool, SocketGroup),
    (taken, found, sessions): (&mut Vec<OwnedFd>, &FoundSockets, &mut Vec<TakenGroup>),
) -> Result<OpenedSockets, StartError> {
    if served.has_sessions {
        served.listener.check_sessions()?;
        let bound = sessions.iter().map(|group| Address::Ip(group.address));
        let at = taken_address(served, all, bound);
        if let Some(opened) =
            at.and_then(|at| at.ip()).and_then(|at| take_sessions(served, at, loops, sessions).transpose())
        {
            return opened;
        }
        return open_own(served, own_address(served, all), (loops, is_shared, own), found);
    }
    let bound = taken.iter().filter_map(|socket| handover::datagram_address(socket.as_fd()));
    let at = taken_address(served, all, bound);
    let is_ours = |socket: &mut OwnedFd| at.is_some() && handover::datagram_address(socket.as_fd()) == at;
    let adopted: Vec<OwnedFd> = taken.extract_if(.., is_ours).collect();
    if adopted.is_empty() {
        return open_own(served, own_address(served, all), (loops, is_shared, own), found);
    }
    let (_, only_v6) = own_address(served, all);
    for socket in &adopted {
        let address = at.as_ref().unwrap_or_else(|| served.listener.address());
        found_sockets::check_ip_versions(address, socket, only_v6, found_sockets::Origin::ServerBefore)?;
    }
    let sockets = adopt(served, adopted, loops)?;
    Ok(OpenedSockets { sockets, group: SocketGroup::Taken, predecessors: None })
}

/// The sockets of an endpoint beside a listener, at one of its addresses; they accept only IPv6 if those of the listener do.
///
/// # Errors
/// The address cannot be used.
pub(super) fn open_beside(
    served: &ServedEndpoint,
    (address, of_listener): (&Address, &[Socket]),
    options: (usize, bool, SocketGroup),
    (found, sessions): (&FoundSockets, &mut Vec<TakenGroup>),
) -> Result<OpenedSockets, StartError> {
    if let Some(at) = address.ip()
        && let Some(opened) = take_sessions(served, at, options.0, sessions)?
    {
        return Ok(opened);
    }
    let mut only_v6 = false;
    for socket in of_listener {
        let is_here = socket.address(Side::Local).map_err(StartError::System)? == *address;
        only_v6 |= is_here && is_only_v6(socket)?;
    }
    open_own(served, (address, only_v6), options, found)
}

/// The address of an endpoint, one of `all`, and whether its sockets accept only IPv6: as well where another one has
/// `0.0.0.0` with its port.
fn own_address<'a>(served: &'a ServedEndpoint, all: &[ServedEndpoint]) -> (&'a Address, bool) {
    let address = served.listener.address();
    let v4 = address.ip().filter(|ip| ip.port() > 0).map(|ip| (Ipv4Addr::UNSPECIFIED, ip.port()).into());
    let is_any = address.ip().is_some_and(|ip| ip.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED));
    let has_both = is_any && v4.is_some() && all.iter().any(|other| other.listener.address().ip() == v4);
    (address, served.listener.is_only_v6() || has_both)
}

/// The sockets that no server before had, at an address: those that a service manager passed, or new ones.
fn open_own(
    served: &ServedEndpoint,
    (address, only_v6): (&Address, bool),
    (loops, is_shared, group): (usize, bool, SocketGroup),
    found: &FoundSockets,
) -> Result<OpenedSockets, StartError> {
    let passed = found.datagrams_at(address)?;
    if passed.is_empty() {
        let sockets = served.listener.open_at((address, only_v6), loops, is_shared)?;
        return Ok(OpenedSockets { sockets, group, predecessors: None });
    }
    for socket in &passed {
        found_sockets::check_ip_versions(address, socket, only_v6, found_sockets::Origin::Passed)?;
    }
    Ok(OpenedSockets { sockets: adopt(served, passed, loops)?, group, predecessors: None })
}

/// The sockets of a predecessor whose sessions go on, if there are any at an address.
fn take_sessions(
    served: &ServedEndpoint,
    at: SocketAddr,
    loops: usize,
    sessions: &mut Vec<TakenGroup>,
) -> Result<Option<OpenedSockets>, StartError> {
    let Some(place) = sessions.iter().position(|group| group.address == at) else { return Ok(None) };
    let group = sessions.swap_remove(place);
    let Some(own) = served.listener.generation_of(group.sockets.len().max(loops)) else { return Ok(None) };
    if !own.succeed(&group.state, &group.predecessors.places()) {
        return Ok(None);
    }
    let number = group.number();
    let sockets = adopt(served, group.sockets, loops)?;
    Ok(Some(OpenedSockets { sockets, group: SocketGroup::Taken, predecessors: Some((group.predecessors, number)) }))
}

/// Adopts sockets at one address, in their order, and opens as many as are missing for one a loop. The system may refuse those
/// beside a socket that a service manager opened: then some loops have none.
fn adopt(served: &ServedEndpoint, taken: Vec<OwnedFd>, loops: usize) -> Result<Vec<Socket>, StartError> {
    let listener = &served.listener;
    let adopted = taken.into_iter().map(|socket| listener.adopt(socket));
    let mut sockets = adopted.collect::<io::Result<Vec<Socket>>>().map_err(StartError::System)?;
    if let Some(first) = sockets.first().filter(|_| sockets.len() < loops) {
        // The port that the kernel chose for the server before stays.
        let address = first.address(Side::Local).map_err(StartError::System)?;
        if address.ip().is_none() {
            return Ok(sockets);
        }
        match listener.open_at((&address, is_only_v6(first)?), loops - sockets.len(), true) {
            Ok(others) => sockets.extend(others),
            Err(StartError::InUse(_)) => {}
            Err(StartError::Listen(_, error)) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

/// Whether a socket accepts only IPv6.
fn is_only_v6(socket: &Socket) -> Result<bool, StartError> {
    let only_v6 = socket.descriptor().and_then(handover::is_only_v6).map_err(StartError::System)?;
    Ok(only_v6.unwrap_or_default())
}

/// The address of the taken sockets, of those that are `bound`, that are for an endpoint.
fn taken_address(
    served: &ServedEndpoint,
    all: &[ServedEndpoint],
    bound: impl Iterator<Item = Address>,
) -> Option<Address> {
    let bound: Vec<Address> = bound.collect();
    let is_of_other = |bound: &Address| all.iter().any(|other| other.listener.is_at(bound));
    let is_at = |bound: &&Address| served.listener.is_at(bound);
    // Of port 0 it is one of those that the kernel has chosen.
    let is_at_any_port = |bound: &&Address| served.listener.is_at_any_port_of(bound) && !is_of_other(bound);
    bound.iter().find(is_at).or_else(|| bound.iter().find(is_at_any_port)).cloned()
}

/// Clones of an endpoint's sockets for a successor, in the order of the group, if it may have them and there is `room` for
/// all of them.
///
/// # Errors
/// The process has no descriptors left.
pub(super) fn keep(
    served: &ServedEndpoint,
    sockets: &[Socket],
    room: &mut usize,
) -> Result<Vec<Arc<OwnedFd>>, StartError> {
    let goes_on = !served.has_sessions || served.listener.generation_of(sockets.len()).is_some();
    if !goes_on || sockets.len() > *room {
        return Ok(Vec::new());
    }
    *room -= sockets.len();
    let clone = |socket: &Socket| socket.descriptor()?.try_clone_to_owned().map(Arc::new);
    sockets.iter().map(clone).collect::<io::Result<_>>().map_err(StartError::System)
}

/// The sockets that a successor gets.
#[derive(Debug, Default)]
pub(crate) struct KeptSockets {
    listeners: Vec<Socket>,
    /// For as long as their endpoints have them.
    datagrams: Vec<Weak<OwnedFd>>,
    /// Those whose sessions go on.
    sessions: Arc<SessionGroups>,
}

impl KeptSockets {
    pub(super) fn new(listeners: Vec<Socket>, datagrams: Vec<Weak<OwnedFd>>, sessions: Arc<SessionGroups>) -> Self {
        Self { listeners, datagrams, sessions }
    }

    pub(super) fn sessions(&self) -> Arc<SessionGroups> {
        self.sessions.clone()
    }

    /// Calls a function with those that are open.
    ///
    /// # Errors
    /// Those of the function, and `Unsupported` in a simulation.
    pub(super) fn with<T>(&self, each: impl FnOnce(&[BorrowedFd<'_>]) -> io::Result<T>) -> io::Result<T> {
        let open: Vec<Arc<OwnedFd>> = self.datagrams.iter().filter_map(Weak::upgrade).collect();
        let listeners = self.listeners.iter().map(Socket::descriptor);
        let all = listeners.chain(open.iter().map(|socket| Ok(socket.as_fd())));
        each(&all.collect::<io::Result<Vec<_>>>()?)
    }
}
