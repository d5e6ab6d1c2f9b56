//! Accepting: one operation that stays armed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use super::Machine;
use super::kernel::{Event, Kernel};
use super::table::Flags;
use crate::address::Address;
use crate::driver::{Accepted, Completion, Side, Token};
use crate::socket::{self, Socket};

impl<K: Kernel> Machine<K> {
    pub(super) fn accepted(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            // It goes on with the next request to, or by itself if nothing was wrong.
            self.line_up(token);
        }
        if let Some(descriptor) = stream(event) {
            let peer = peer_of(&descriptor);
            return Some(Completion::Accepted(Ok(Accepted { socket: Socket::Descriptor(descriptor), peer })));
        }
        match -event.result {
            libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ECONNABORTED => None,
            errno => {
                // To try again at once would fail again, for as long as it lasts.
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.flags.set(Flags::RECEIVING, false);
                }
                Some(Completion::Accepted(Err(io::Error::from_raw_os_error(errno))))
            }
        }
    }
}

/// The stream that an event of accepting brings, if any. Each event is asked once.
pub(super) fn stream(event: Event) -> Option<OwnedFd> {
    // SAFETY: the kernel made this descriptor for us, in answer to our request to accept, and nobody else has it.
    (event.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.result) })
}

/// Who is at the other end. Who has reset the connection already has no address any more, only a family.
fn peer_of(stream: &OwnedFd) -> Address {
    let address = |side| socket::address_of(stream.as_fd(), side);
    address(Side::Peer).unwrap_or_else(|_| match address(Side::Local) {
        Ok(Address::Ip(SocketAddr::V4(_))) => Address::Ip((Ipv4Addr::UNSPECIFIED, 0).into()),
        Ok(Address::Ip(SocketAddr::V6(_))) => Address::Ip((Ipv6Addr::UNSPECIFIED, 0).into()),
        _ => Address::Unix(PathBuf::new()),
    })
}
