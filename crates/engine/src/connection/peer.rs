//! `Peer`: the address of a connection's peer, in 8 bytes.
//!
//! The connection keeps it for its log line: after a reset the system no longer knows the address.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::rc::Rc;

use slab::Slab;
use tidegate_sys::Address;

use super::settings::Settings;

/// The peer's address in 8 bytes, if it is of the most common kind; otherwise where it is stored.
#[derive(Clone, Copy)]
pub(super) enum Peer {
    V4(SocketAddrV4),
    Unnamed,
    Kept(u32),
    /// No address: a stream of a session.
    Stream {
        session: [u8; 3],
        index: u32,
    },
}

impl Peer {
    pub(super) fn new(address: &Address, kept: &RefCell<Slab<Address>>) -> Self {
        match address {
            Address::Ip(SocketAddr::V4(address)) => Self::V4(*address),
            Address::Unix(path) if path.as_os_str().is_empty() => Self::Unnamed,
            // A loop has fewer slots than that.
            other => Self::Kept(kept.borrow_mut().insert(other.clone()) as u32),
        }
    }

    #[inline]
    pub(super) fn address(self, kept: &RefCell<Slab<Address>>) -> Address {
        match self {
            Self::V4(address) => Address::Ip(address.into()),
            other => other.rare_address(kept),
        }
    }

    #[cold]
    fn rare_address(self, kept: &RefCell<Slab<Address>>) -> Address {
        match self {
            Self::V4(address) => Address::Ip(address.into()),
            Self::Unnamed | Self::Stream { .. } => unnamed(),
            Self::Kept(key) => kept.borrow()[key as usize].clone(),
        }
    }

    /// The IP address, if it has one.
    pub(super) fn ip(self, kept: &RefCell<Slab<Address>>) -> Option<IpAddr> {
        match self {
            Self::V4(address) => Some((*address.ip()).into()),
            Self::Unnamed | Self::Stream { .. } => None,
            Self::Kept(key) => kept.borrow()[key as usize].ip().map(|address| address.ip()),
        }
    }

    pub(super) fn forget(self, kept: &RefCell<Slab<Address>>) {
        if let Self::Kept(key) = self {
            let mut kept = kept.borrow_mut();
            kept.remove(key as usize);
            if kept.is_empty() {
                *kept = Slab::new();
            }
        }
    }
}

/// The address of a link's peer, as the link stores it.
pub(crate) struct PeerAddress {
    peer: Peer,
    settings: Rc<Settings>,
    /// No link forgets the address.
    is_owner: bool,
}

impl PeerAddress {
    pub(super) fn new(peer: Peer, settings: Rc<Settings>) -> Self {
        Self { peer, settings, is_owner: false }
    }

    /// The address of a peer that has no link of its own. It is kept in `settings` until this is dropped, if need be.
    pub(crate) fn of_session(address: &Address, settings: Rc<Settings>) -> Self {
        Self { peer: Peer::new(address, &settings.peers), settings, is_owner: true }
    }

    pub(crate) fn address(&self) -> Address {
        self.peer.address(&self.settings.peers)
    }
}

impl Drop for PeerAddress {
    fn drop(&mut self) {
        if self.is_owner {
            self.peer.forget(&self.settings.peers);
        }
    }
}

pub(super) fn unnamed() -> Address {
    Address::Unix(PathBuf::new())
}
