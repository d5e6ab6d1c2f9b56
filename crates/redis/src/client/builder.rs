//! `ClientBuilder`: the configuration of a client or a subscriber, and how it starts.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tidegate_engine::{Backend, Backoff, ConnectError, EventLoop, task};

use crate::client::cache::ReplyCache;
use crate::client::config::{ClientConfig, ClientLimits, ServerSource, reading_target};
use crate::client::connection::{PipelineMaker, ReplyPipeline};
use crate::client::handle::{Client, ClientHandle};
use crate::client::queue::CommandQueue;
use crate::client::router::Router;
use crate::client::sharded::divide_sharded;
use crate::client::subscriber::Subscriber;
use crate::client::subscriber_queue::SubscriberQueue;
use crate::client::supervisor::{self, SubscriberServer};
use crate::client::topology::supervise_servers;
use crate::client_codec::ClientCodec;
use crate::limits::ProtocolLimits;

/// The configuration of a [`Client`].
#[derive(Debug, Clone)]
#[must_use = "a client does nothing until it is started"]
pub struct ClientBuilder {
    config: ClientConfig,
}

impl Client {
    /// A client of `IP:PORT`, `NAME:PORT`, `unix:PATH` or `unix:@NAME`.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if that is none of these.
    pub fn to(target: &str) -> Result<ClientBuilder, ConnectError> {
        Ok(Self::over(reading_target(target)?))
    }

    /// A client of the master with this name, which sentinels (`NAME:PORT`) know. They are asked in turn, and again when the
    /// master changes, when its connection ends, and when a server answers as a replica. ROLE verifies that the server is a
    /// master.
    ///
    /// With [`start_with`](ClientBuilder::start_with) the connections to the sentinels have the same pipeline.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if one of the addresses is none, or if there is none.
    pub fn sentinel(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: impl Into<Box<str>>,
    ) -> Result<ClientBuilder, ConnectError> {
        Self::with_source(sentinels, |sentinels| ServerSource::Sentinel(sentinels, master.into()))
    }

    /// A client of a cluster, of which these are some servers (`NAME:PORT`). Each command goes to the server that has its keys;
    /// a connection is made when it is needed first.
    ///
    /// Commands whose keys belong to several slots fail before they are sent, and so do those that concern all keys, such as
    /// KEYS: [`masters`](Client::masters) is the way to them.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if one of the addresses is none, or if there is none.
    pub fn cluster(seeds: impl IntoIterator<Item: AsRef<str>>) -> Result<ClientBuilder, ConnectError> {
        Self::with_source(seeds, ServerSource::Cluster)
    }

    fn with_source(
        addresses: impl IntoIterator<Item: AsRef<str>>,
        source: impl FnOnce(Vec<Box<str>>) -> ServerSource,
    ) -> Result<ClientBuilder, ConnectError> {
        let addresses: Vec<Box<str>> = addresses.into_iter().map(|address| address.as_ref().into()).collect();
        // The first of them stands for all in the configuration.
        let mut builder = Self::to(addresses.first().map_or("", |first| first))?;
        for address in &addresses {
            drop(tidegate_engine::Client::to(address)?);
        }
        builder.config.source = Some(source(addresses));
        Ok(builder)
    }

    /// A client that connects as this one does, with its timeouts and socket options. Its water marks
    /// should be above the longest commands: while more bytes wait to be sent, the connection reads no replies.
    pub fn over(target: tidegate_engine::Client) -> ClientBuilder {
        ClientBuilder { config: ClientConfig::new(target) }
    }
}

impl ClientBuilder {
    /// Whether the client is one of a [cluster](Client::cluster).
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.config.source, Some(ServerSource::Cluster(_)))
    }

    /// The password of AUTH.
    pub fn password(mut self, password: impl Into<Box<[u8]>>) -> Self {
        self.config.password = Some(password.into());
        self
    }

    /// The user of AUTH; `default` unless set.
    pub fn user(mut self, user: impl Into<Box<str>>) -> Self {
        self.config.user = Some(user.into());
        self
    }

    /// The password of the sentinels; that of the servers is [`password`](Self::password).
    pub fn sentinel_password(mut self, password: impl Into<Box<[u8]>>) -> Self {
        self.config.sentinel_password = Some(password.into());
        self
    }

    /// The user at the sentinels.
    pub fn sentinel_user(mut self, user: impl Into<Box<str>>) -> Self {
        self.config.sentinel_user = Some(user.into());
        self
    }

    /// With sentinels and in a cluster: commands that only read go to replicas, in turn, and to the master if there is no
    /// replica that answers. A replica may return older values than the master.
    pub fn read_replicas(mut self) -> Self {
        self.config.reads_replicas = true;
        self
    }

    /// The name that CLIENT LIST shows.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// The number of the database; 0 unless set. A cluster has no other.
    pub fn database(mut self, number: u32) -> Self {
        self.config.database = number;
        self
    }

    /// Speaks RESP2 without asking for RESP3: for servers that close the connection at a command that they do not know.
    pub fn resp2(mut self) -> Self {
        self.config.speaks_resp3 = false;
        self
    }

    /// How long a command may take, from its call to its reply; 5 s unless set. If the time of a command that was sent
    /// passes, the connection is dropped.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long the connection is silent before it is probed by a PING; 15 s unless set, and 5 s for
    /// a subscriber.
    pub fn ping_after(mut self, silence: Duration) -> Self {
        self.config.ping_after = Some(silence);
        self
    }

    /// Keeps values that [`Client::get_cached`] has read, in at most so many bytes, until the server reports that they have
    /// changed. It needs RESP3 and one server: with sentinels and in a cluster nothing is kept. A connection that is lost without a sign is noticed after `ping_after` and `timeout`; until
    /// then a value may be out of date.
    pub fn cache(mut self, bytes_max: usize) -> Self {
        self.config.cache = Some(Arc::new(ReplyCache::new(bytes_max)));
        self
    }

    /// The pauses before the client connects again, and before a subscriber asks for a name again that the server has refused;
    /// from 50 ms to 5 s unless set.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.config.backoff = Backoff::new(min, max);
        self
    }

    /// Sets the number from which the random parts of these pauses follow, for tests that repeat. It is random unless set, and
    /// clients of one server have different ones. [`backoff`](Self::backoff) makes it random again.
    pub fn backoff_seed(mut self, seed: u64) -> Self {
        self.config.backoff = self.config.backoff.clone().with_seed(seed);
        self
    }

    /// How much may wait.
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.config.limits = limits;
        self
    }

    /// The limits of replies. One that is longer than [`whole_bytes_max`](ProtocolLimits::whole_bytes_max), 64 MiB unless
    /// set, ends the connection.
    pub fn protocol_limits(mut self, limits: ProtocolLimits) -> Self {
        self.config.protocol_limits = limits;
        self
    }

    /// The bytes of the longest reply, as [`protocol_limits`](Self::protocol_limits) has set them.
    ///
    /// ```
    /// use tidegate::redis::Client;
    ///
    /// assert_eq!(Client::to("127.0.0.1:6379")?.reply_bytes_max(), 64 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reply_bytes_max(&self) -> usize {
        self.config.protocol_limits.whole_bytes_max
    }

    /// Starts the client on the loop of this thread.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn start(self) -> Client {
        let limits = self.codec_limits();
        self.start_with(move || ClientCodec::new(limits))
    }

    /// Starts the client on the loop of this thread, with the pipeline that `make` makes for each connection: a
    /// [`ClientCodec`] over a TLS filter, for example.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn start_with<P: ReplyPipeline>(self, make: impl Fn() -> P + 'static) -> Client {
        self.start_by(Rc::new(make))
    }

    fn start_by<P: ReplyPipeline>(self, make: PipelineMaker<P>) -> Client {
        let (client, config) = self.client();
        let (queue, router) = (client.handle.queue.clone(), client.handle.router.clone());
        drop(task::spawn(serve(config, queue, router, make)));
        client
    }

    /// Starts a subscriber on the loop of this thread, with a connection of its own.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn subscriber(self) -> Subscriber {
        let limits = self.config.protocol_limits;
        self.subscriber_with(move || ClientCodec::new(limits))
    }

    /// As [`subscriber`](Self::subscriber), with the pipeline that `make` makes for each connection.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn subscriber_with<P: ReplyPipeline>(self, make: impl Fn() -> P + 'static) -> Subscriber {
        self.subscriber_by(Rc::new(make))
    }

    fn subscriber_by<P: ReplyPipeline>(self, make: PipelineMaker<P>) -> Subscriber {
        let config = Arc::new(ClientConfig { cache: None, ..self.config.clone() });
        let (mut client, mut server) = (None, SubscriberServer::Configured);
        let mut queue = SubscriberQueue::default();
        if config.source.is_some() {
            let finder = self.start_by(make.clone());
            server = finder.handle.router.clone().map_or(server, SubscriberServer::AnyMaster);
            client = Some(finder);
        }
        if matches!(config.source, Some(ServerSource::Cluster(_))) {
            queue = SubscriberQueue::for_cluster();
        }
        let queue = Arc::new(queue);
        if let (SubscriberServer::AnyMaster(router), Some(ServerSource::Cluster(_))) = (&server, &config.source) {
            drop(task::spawn(divide_sharded(config.clone(), router.clone(), queue.clone(), make.clone())));
        }
        drop(task::spawn(supervisor::supervise_subscriber(config, server, queue.clone(), make)));
        Subscriber::new(queue, client)
    }

    /// Starts the client on a loop of its own, on a thread of its own, which ends with the last clone of the client.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn(self) -> io::Result<Client> {
        let limits = self.codec_limits();
        self.spawn_with(move || ClientCodec::new(limits))
    }

    /// As [`spawn`](Self::spawn), with the pipeline that `make` makes for each connection.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn_with<P: ReplyPipeline>(self, make: impl Fn() -> P + Send + 'static) -> io::Result<Client> {
        let (client, config) = self.client();
        let (queue, router) = (client.handle.queue.clone(), client.handle.router.clone());
        let (started, starting) = mpsc::channel();
        std::thread::Builder::new().name("redis-client".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            // A loop that fails drops the supervisor, which fails the commands.
            drop(event_loop.block_on(serve(config, queue, router, Rc::new(make))));
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(client)
    }

    /// Long replies arrive in pieces, so that those that are read in pieces need little memory. The connection joins others.
    fn codec_limits(&self) -> ProtocolLimits {
        let limits = self.config.protocol_limits;
        ProtocolLimits { whole_bytes_max: limits.whole_bytes_max.min(PIECES_FROM_BYTES), ..limits }
    }

    fn client(self) -> (Client, Arc<ClientConfig>) {
        let mut config = self.config;
        let is_cluster = matches!(config.source, Some(ServerSource::Cluster(_)));
        let router = config.source.as_ref().map(|_| {
            config.cache = None;
            Arc::new(Router::new(is_cluster, config.reads_replicas, config.limits))
        });
        let queue = || Arc::new(CommandQueue::new(config.limits));
        let handle = ClientHandle {
            queue: router.as_ref().map_or_else(queue, |router| router.front.clone()),
            router,
            owner: None,
            timeout: config.timeout,
            limits: config.limits,
            cache: config.cache.clone(),
            idle: Mutex::default(),
        };
        (Client { handle: Arc::new(handle) }, Arc::new(config))
    }
}

/// Serves the queue of a client, or those of its servers.
async fn serve<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    queue: Arc<CommandQueue>,
    router: Option<Arc<Router>>,
    make: PipelineMaker<P>,
) {
    match router {
        None => supervisor::supervise(config, None, queue, make).await,
        Some(router) => supervise_servers(config, router, make).await,
    }
}

/// A longer reply arrives in pieces.
const PIECES_FROM_BYTES: usize = 256 << 10;
