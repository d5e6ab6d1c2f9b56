//! The datagram sockets of a server: opened, or taken from the server before.
//!
//! A server that takes over, or replaces another one, has *the same* sockets: the datagrams in the kernel stay in their
//! queue, and the group of sockets at an address does not change. Until the server before drains, both receive, and either
//! responds; from then on it receives no more, and finishes its responses. So only endpoints without sessions take sockets
//! over: a datagram of a session is for the process that has the session, and those endpoints open sockets of their own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tidegate_sys::{Side, Socket, handover};

use super::LoopEndpoints;
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

/// The sockets of an endpoint: those among `taken` at its address, and as many new ones as are missing for one a loop. Returns
/// whether sockets of the server before are beside them.
///
/// # Errors
/// The address cannot be used.
pub(super) fn open(
    served: &ServedEndpoint,
    loops: usize,
    is_shared: bool,
    taken: &mut Vec<OwnedFd>,
) -> Result<(Vec<Socket>, bool), StartError> {
    let listener = &served.listener;
    let mut bound = taken.iter().filter_map(|socket| handover::datagram_address(socket.as_fd()));
    // Of port 0 it is one of those that the kernel has chosen.
    let at = bound.find(|bound| !served.has_sessions && listener.is_at(*bound));
    let is_ours = |socket: &mut OwnedFd| at.is_some() && handover::datagram_address(socket.as_fd()) == at;
    let adopted = taken.extract_if(.., is_ours).map(|socket| listener.adopt(socket));
    let mut sockets = adopted.collect::<io::Result<Vec<Socket>>>().map_err(StartError::System)?;
    let Some(first) = sockets.first() else { return Ok((listener.open(loops, is_shared)?, true)) };
    if sockets.len() < loops {
        // The port that the kernel chose for the server before stays.
        let address = first.address(Side::Local).map_err(StartError::System)?;
        sockets.extend(listener.open_at(&address, loops - sockets.len(), true)?);
    }
    Ok((sockets, false))
}

/// Adds clones of the sockets that a successor receives from to the others that it gets, if there may be one; as many as
/// one message carries.
///
/// # Errors
/// The process has no descriptors left.
pub(super) fn keep(endpoints: &[LoopEndpoints], kept: Option<&mut Vec<Socket>>) -> Result<(), StartError> {
    let Some(kept) = kept else { return Ok(()) };
    for endpoint in endpoints.iter().flatten().filter(|endpoint| endpoint.successor.is_some()) {
        if kept.len() >= handover::LISTENERS_MAX {
            break;
        }
        kept.push(endpoint.socket.try_clone().map_err(StartError::System)?);
    }
    Ok(())
}
