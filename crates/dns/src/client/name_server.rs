//! `NameServer`: where a server is, and the connection and the sockets to it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use tidegate_engine::{Client, Remote};

use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::resolver::ResolverServer;

/// A server that a [`StubResolver`](crate::StubResolver) asks.
///
/// ```
/// use std::net::SocketAddr;
/// use tidegate::Client;
/// use tidegate::dns::NameServer;
///
/// let both = NameServer::at(SocketAddr::from(([192, 0, 2, 53], 53)));
/// let streams = NameServer::over_streams(Client::at(SocketAddr::from(([192, 0, 2, 54], 53))));
/// # drop((both, streams));
/// ```
#[derive(Debug, Clone)]
pub struct NameServer {
    pub(super) address: Option<SocketAddr>,
    pub(super) client: Client,
    bailiwick: Name,
}

impl NameServer {
    /// A server that gets queries over UDP, and over TCP at the same address where a datagram is too short or in doubt.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address: Some(address), client: Client::at(address), bailiwick: Name::root() }
    }

    /// A server that gets all queries over one connection of this client.
    #[must_use]
    pub fn over_streams(client: Client) -> Self {
        Self { address: None, client, bailiwick: Name::root() }
    }

    /// The records of names outside this zone are dropped: for a server that is asked for one zone. The root unless set.
    #[must_use]
    pub fn bailiwick(mut self, zone: Name) -> Self {
        self.bailiwick = zone;
        self
    }

    pub(super) fn of_resolver(&self) -> ResolverServer {
        ResolverServer { bailiwick: self.bailiwick.clone(), use_streams: self.address.is_none() }
    }
}

impl From<SocketAddr> for NameServer {
    fn from(address: SocketAddr) -> Self {
        Self::at(address)
    }
}

impl From<Client> for NameServer {
    fn from(client: Client) -> Self {
        Self::over_streams(client)
    }
}

/// A server, and the connection to it.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) address: Option<SocketAddr>,
    pub(super) client: Client,
    pub(super) remote: RefCell<Option<Remote<EncodedMessage>>>,
    pub(super) is_connecting: Cell<bool>,
    /// Queries that wait for the connection: at most one an attempt, so
    /// [`lookups_max`](crate::ResolverConfig::lookups_max) bounds them.
    pub(super) queue: RefCell<Vec<EncodedMessage>>,
}

impl From<NameServer> for ServerState {
    fn from(server: NameServer) -> Self {
        Self {
            address: server.address,
            client: server.client,
            remote: RefCell::default(),
            is_connecting: Cell::new(false),
            queue: RefCell::default(),
        }
    }
}
