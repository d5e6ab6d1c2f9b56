//! `ClientBuilder`: the configuration of a client or a subscriber, and how it starts.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tidegate_engine::{Backend, Backoff, ConnectError, EventLoop, task};

use crate::client::cache::ReplyCache;
use crate::client::config::{ClientConfig, ClientLimits};
use crate::client::connection::ReplyPipeline;
use crate::client::handle::{Client, ClientHandle};
use crate::client::queue::CommandQueue;
use crate::client::subscriber::{Subscriber, SubscriberQueue};
use crate::client::supervisor;
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
        Ok(Self::over(tidegate_engine::Client::to(target)?))
    }

    /// A client that connects as this one does, with its timeouts and socket options.
    pub fn over(target: tidegate_engine::Client) -> ClientBuilder {
        ClientBuilder { config: ClientConfig::new(target) }
    }
}

impl ClientBuilder {
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

    /// The name that CLIENT LIST shows.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// The number of the database; 0 unless set.
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
    /// changed. It needs RESP3. A connection that is lost without a sign is noticed after `ping_after` and `timeout`; until
    /// then a value may be out of date.
    pub fn cache(mut self, bytes_max: usize) -> Self {
        self.config.cache = Some(Arc::new(ReplyCache::new(bytes_max)));
        self
    }

    /// The pauses before the client connects again; from 50 ms to 5 s unless set.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.config.backoff = Backoff::new(min, max);
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
        let (client, config) = self.client();
        drop(task::spawn(supervisor::supervise(config, client.handle.queue.clone(), make)));
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
        let queue = Arc::new(SubscriberQueue::default());
        let config = Arc::new(ClientConfig { cache: None, ..self.config });
        drop(task::spawn(supervisor::supervise_subscriber(config, queue.clone(), make)));
        Subscriber::new(queue)
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
        let queue = client.handle.queue.clone();
        let (started, starting) = mpsc::channel();
        std::thread::Builder::new().name("redis-client".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            // A loop that fails drops the supervisor, which fails the commands.
            drop(event_loop.block_on(supervisor::supervise(config, queue, make)));
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
        let queue = Arc::new(CommandQueue::new(self.config.limits));
        let handle = ClientHandle {
            queue,
            timeout: self.config.timeout,
            limits: self.config.limits,
            cache: self.config.cache.clone(),
            idle: Mutex::default(),
        };
        (Client { handle: Arc::new(handle) }, Arc::new(self.config))
    }
}

/// A longer reply arrives in pieces.
const PIECES_FROM_BYTES: usize = 256 << 10;
