//! The datagram sockets of a server: opened, or taken from the server before.
//!
//! A server that takes over, or replaces another one, has *the same* sockets: the datagrams in the kernel stay in their
//! queue, and the group of sockets at an address does not change. Until the server before drains, both receive, and either
//! responds; from then on it receives no more, and finishes its responses. So only endpoints without sessions take sockets
//! over: a datagram of a session is for the process that has the session, and those endpoints open sockets of their own.
//!
//! The sockets stay in the order in which they joined their group, since that is how a program of the kernel counts them.
//! The clones for a successor close with their endpoints.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use tidegate_sys::{Side, Socket, handover};

use crate::endpoint::ServedEndpoint;
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

/// The sockets of `served`, one of `all` endpoints: those among `taken` at its address, and as many new ones as are missing for
/// one a loop. Returns whether there are taken ones.
///
/// # Errors
/// The address cannot be used.
pub(super) fn open(
    served: &ServedEndpoint,
    all: &[ServedEndpoint],
    (loops, is_shared): (usize, bool),
    taken: &mut Vec<OwnedFd>,
) -> Result<(Vec<Socket>, bool), StartError> {
    let listener = &served.listener;
    let at = if served.has_sessions { None } else { taken_address(served, all, taken) };
    let is_ours = |socket: &mut OwnedFd| at.is_some() && handover::datagram_address(socket.as_fd()) == at;
    let adopted = taken.extract_if(.., is_ours).map(|socket| listener.adopt(socket));
    let mut sockets = adopted.collect::<io::Result<Vec<Socket>>>().map_err(StartError::System)?;
    let Some(first) = sockets.first() else { return Ok((listener.open(loops, is_shared)?, false)) };
    if sockets.len() < loops {
        // The port that the kernel chose for the server before stays.
        let address = first.address(Side::Local).map_err(StartError::System)?;
        sockets.extend(listener.open_at(&address, loops - sockets.len(), true)?);
    }
    Ok((sockets, true))
}

/// The address of the sockets among `taken` that are for an endpoint.
fn taken_address(served: &ServedEndpoint, all: &[ServedEndpoint], taken: &[OwnedFd]) -> Option<SocketAddr> {
    let bound = || taken.iter().filter_map(|socket| handover::datagram_address(socket.as_fd()));
    let is_of_other = |bound: SocketAddr| all.iter().any(|other| other.listener.is_at(bound));
    // Of port 0 it is one of those that the kernel has chosen.
    bound()
        .find(|bound| served.listener.is_at(*bound))
        .or_else(|| bound().find(|bound| served.listener.is_at_any_port_of(*bound) && !is_of_other(*bound)))
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
    if served.has_sessions || sockets.len() > *room {
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
}

impl KeptSockets {
    pub(super) fn new(listeners: Vec<Socket>, datagrams: Vec<Weak<OwnedFd>>) -> Self {
        Self { listeners, datagrams }
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
