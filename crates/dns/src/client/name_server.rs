//! `NameServer`: where a server is, and the connection and the sockets to it.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_codec::Pipeline;
use tidegate_engine::{Client, Remote};

use super::connection::{OpenConnection, ServerConnection};
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
    pub(super) transport: StreamTransport,
    bailiwick: Name,
    pads_queries: bool,
}

/// The way of queries that go in no datagram.
#[derive(Debug, Clone)]
pub(super) enum StreamTransport {
    /// All over one connection.
    Connection(StreamConnector),
    /// Each in a request of its own.
    Requests(MakeRequests),
}

/// Makes the function of a loop that sends requests.
#[derive(Clone)]
pub(super) struct MakeRequests(Arc<dyn Fn() -> SendRequest + Send + Sync>);

/// Sends a query in a request.
pub(super) type SendRequest = Rc<dyn Fn(EncodedMessage) -> Exchanging>;

/// The future of the response to a query in a request of its own; see [`NameServer::by_requests`].
pub type Exchanging = Pin<Box<dyn Future<Output = Result<Vec<u8>, Box<dyn Error>>>>>;

/// A pipeline with a [`ClientCodec`] at its upper end.
pub trait ResponsePipeline: Pipeline<In = Message, Out = EncodedMessage> {}

impl<P: Pipeline<In = Message, Out = EncodedMessage>> ResponsePipeline for P {}

/// Connects to a server, with a pipeline whose type it hides.
#[derive(Clone)]
pub(super) struct StreamConnector(Arc<dyn Fn(ServerConnection) -> Connecting + Send + Sync>);

/// `None` if there is no connection.
pub(super) type Connecting = Pin<Box<dyn Future<Output = Option<Remote<EncodedMessage>>>>>;

impl StreamConnector {
    fn new<P: ResponsePipeline>(
        client: Client,
        make: impl Fn() -> Result<P, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        Self::of(move |handler| {
            let (client, pipeline) = (client.clone(), make());
            Box::pin(async move { client.connect_with(pipeline.ok()?, handler).await.ok() })
        })
    }

    pub(super) fn of(connect: impl Fn(ServerConnection) -> Connecting + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
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

impl fmt::Debug for MakeRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeRequests").finish_non_exhaustive()
    }
}

impl NameServer {
    /// A server that gets queries over UDP, and over TCP at the same address where a datagram is too short or in doubt.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let connector = StreamConnector::new(Client::at(address), || Ok(ClientCodec::default()));
        Self { address: Some(address), pads_queries: false, ..Self::by(StreamTransport::Connection(connector)) }
    }

    /// A server that gets all queries over one connection of this client.
    #[must_use]
    pub fn over_streams(client: Client) -> Self {
        Self::over(client, || Ok(ClientCodec::default())).padding(false)
    }

    /// A server that gets all queries over one connection of this client, with the pipeline that `make` makes for each
    /// connection: a [`ClientCodec`] over TLS (RFC 7858), for example. A pipeline that cannot be made counts as a connection
    /// that cannot.
    #[must_use]
    pub fn over<P: ResponsePipeline>(
        client: Client,
        make: impl Fn() -> Result<P, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        Self::by(StreamTransport::Connection(StreamConnector::new(client, make)))
    }

    /// A server that gets each query in a request of its own, such as one over HTTPS (RFC 8484): the feature `dns` with
    /// `http-client` has it ready, as `tidegate::http::name_server`. Each loop calls `make` once; the function that it
    /// returns sends a query and returns the response, both in wire form. It bounds how long that takes. With an error all
    /// lookups that wait for the server try another one.
    #[must_use]
    pub fn by_requests<S: Fn(EncodedMessage) -> Exchanging + 'static>(
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        Self::by(StreamTransport::Requests(MakeRequests(Arc::new(move || Rc::new(make())))))
    }

    fn by(transport: StreamTransport) -> Self {
        Self { address: None, transport, bailiwick: Name::root(), pads_queries: true }
    }

    /// The records of names outside this zone are dropped: for a server that is asked for one zone. The root unless set.
    #[must_use]
    pub fn bailiwick(mut self, zone: Name) -> Self {
        self.bailiwick = zone;
        self
    }

    /// Whether queries over streams and requests have padding (RFC 8467), which hides the lengths of names from observers of an
    /// encrypted connection. Unless set, those of [`over`](Self::over) and [`by_requests`](Self::by_requests) have it.
    #[must_use]
    pub const fn padding(mut self, pads_queries: bool) -> Self {
        self.pads_queries = pads_queries;
        self
    }

    pub(super) fn of_resolver(&self) -> ResolverServer {
        let (use_streams, pads_queries) = (self.address.is_none(), self.pads_queries);
        ResolverServer { bailiwick: self.bailiwick.clone(), use_streams, pads_queries }
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
    pub(super) link: ServerLink,
    pub(super) connection: RefCell<Option<OpenConnection>>,
    pub(super) is_connecting: Cell<bool>,
    /// Queries that wait for the connection: at most one an attempt, so
    /// [`lookups_max`](crate::ResolverConfig::lookups_max) bounds them.
    pub(super) queue: RefCell<Vec<EncodedMessage>>,
}

/// The way of queries that go in no datagram, on one loop.
pub(super) enum ServerLink {
    Connection(StreamConnector),
    Requests(SendRequest),
}

impl fmt::Debug for ServerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection(_) => "Connection",
            Self::Requests(_) => "Requests",
        })
    }
}

impl From<NameServer> for ServerState {
    fn from(server: NameServer) -> Self {
        Self {
            address: server.address,
            link: match server.transport {
                StreamTransport::Connection(connector) => ServerLink::Connection(connector),
                StreamTransport::Requests(make) => ServerLink::Requests((make.0)()),
            },
            connection: RefCell::default(),
            is_connecting: Cell::new(false),
            queue: RefCell::default(),
        }
    }
}
