//! `NameServer`: where a server is, and the connection and the sockets to it.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_codec::Pipeline;
use tidegate_engine::{Client, Remote};

use super::connection::ServerConnection;
use crate::message_view::Message;
use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::resolver::ResolverServer;
use crate::stream_codecs::ClientCodec;

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
    pub(super) connector: StreamConnector,
    bailiwick: Name,
}

/// A pipeline with a [`ClientCodec`] at its upper end.
pub trait ResponsePipeline: Pipeline<In = Message, Out = EncodedMessage> {}

impl<P: Pipeline<In = Message, Out = EncodedMessage>> ResponsePipeline for P {}

/// Connects to a server, with a pipeline whose type it hides.
#[derive(Clone)]
pub(super) struct StreamConnector(Arc<dyn Fn(ServerConnection) -> Connecting + Send + Sync>);

/// `None` if there is no connection.
type Connecting = Pin<Box<dyn Future<Output = Option<Remote<EncodedMessage>>>>>;

impl StreamConnector {
    fn new<P: ResponsePipeline>(
        client: Client,
        make: impl Fn() -> Result<P, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |handler| {
            let (client, pipeline) = (client.clone(), make());
            Box::pin(async move { client.connect_with(pipeline.ok()?, handler).await.ok() })
        }))
    }

    pub(super) fn connect(&self, handler: ServerConnection) -> Connecting {
        (self.0)(handler)
    }
}

impl fmt::Debug for StreamConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConnector").finish_non_exhaustive()
    }
}

impl NameServer {
    /// A server that gets queries over UDP, and over TCP at the same address where a datagram is too short or in doubt.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let connector = StreamConnector::new(Client::at(address), || Ok(ClientCodec::default()));
        Self { address: Some(address), connector, bailiwick: Name::root() }
    }

    /// A server that gets all queries over one connection of this client.
    #[must_use]
    pub fn over_streams(client: Client) -> Self {
        Self::over(client, || Ok(ClientCodec::default()))
    }

    /// A server that gets all queries over one connection of this client, with the pipeline that `make` makes for each
    /// connection: a [`ClientCodec`] over TLS (RFC 7858), for example. A pipeline that cannot be made counts as a connection
    /// that cannot.
    #[must_use]
    pub fn over<P: ResponsePipeline>(
        client: Client,
        make: impl Fn() -> Result<P, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        Self { address: None, connector: StreamConnector::new(client, make), bailiwick: Name::root() }
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
    pub(super) connector: StreamConnector,
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
            connector: server.connector,
            remote: RefCell::default(),
            is_connecting: Cell::new(false),
            queue: RefCell::default(),
        }
    }
}
