//! `ClientBuilder`: the configuration of a client, and how it starts.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidegate_engine::{Backend, Backoff, ConnectError, EventLoop, task};

use crate::client::config::{ClientConfig, ClientLimits};
use crate::client::connection::OperationPipeline;
use crate::client::credentials::Credentials;
use crate::client::handle::{Client, ClientHandle};
use crate::client::servers::{ServerAddress, ServerPool};
use crate::client::shared::Shared;
use crate::client::supervisor::supervise;
use crate::client_codec::ClientCodec;
use crate::limits::ProtocolLimits;

/// Why a pipeline could not be made, of any type.
pub(crate) type MakeError = Box<dyn Error>;

/// The configuration of a [`Client`].
#[derive(Debug, Clone)]
#[must_use = "a client does nothing until it is started"]
pub struct ClientBuilder {
    config: ClientConfig,
    servers: Vec<ServerAddress>,
}

impl Client {
    /// A client of one server, or of several with commas between them: `HOST:PORT`, `HOST`, `unix:PATH`,
    /// `nats://HOST:PORT`, `nats://USER:PASSWORD@HOST:PORT` or `nats://TOKEN@HOST:PORT`. The port is 4222 unless given.
    ///
    /// The client begins with the first server, and goes on with the next one in turn when a connection ends or cannot be
    /// made. It learns further servers of a cluster from INFO.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if an address is none of these. Another scheme, such as `tls://`, is none: TLS is a matter of
    /// the pipeline, see [`StartTls`](crate::StartTls).
    pub fn to(servers: &str) -> Result<ClientBuilder, ConnectError> {
        Self::to_each(servers.split(',').map(str::trim))
    }

    /// As [`to`](Self::to), with the servers one by one.
    ///
    /// # Errors
    /// As [`to`](Self::to), and if there is none.
    pub fn to_each(servers: impl IntoIterator<Item: AsRef<str>>) -> Result<ClientBuilder, ConnectError> {
        let mut builder = ClientBuilder { config: ClientConfig::default(), servers: Vec::new() };
        for server in servers {
            let (address, credentials) = ServerAddress::parse(server.as_ref())?;
            builder.servers.push(address);
            builder.config.credentials = builder.config.credentials.or(credentials);
        }
        if builder.servers.is_empty() { Err(ConnectError::NoAddress) } else { Ok(builder) }
    }
}

impl ClientBuilder {
    /// How the client authenticates itself.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.config.credentials = Some(credentials);
        self
    }

    /// The name of the client, which the server's lists of connections show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// The client does not get the messages that it has published itself.
    pub fn no_echo(mut self) -> Self {
        self.config.echoes = false;
        self
    }

    /// Connects to the configured servers only, and not to those that INFO names.
    pub fn no_discovery(mut self) -> Self {
        self.config.uses_discovered = false;
        self
    }

    /// How long a request, a flush, connecting and a PONG may take; 5 s unless set. If the PONG is late, the connection is
    /// dropped.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long the connection is silent before it is probed by a PING; 15 s unless set.
    pub fn ping_after(mut self, silence: Duration) -> Self {
        self.config.ping_after = silence;
        self
    }

    /// The longest time until the client leaves a server that shuts down (`ldm` in INFO), if it knows another one; 5 s unless set.
    /// Each client waits for a random part of it, so that not all clients reach the next server in one moment. It leaves with the result of the last request that it has sent, and its subscribers get [`Down`](crate::SubscriberEvent::Down),
    /// [`Gap`](crate::SubscriberEvent::Gap) and [`Up`](crate::SubscriberEvent::Up).
    pub fn lame_duck_delay(mut self, max: Duration) -> Self {
        self.config.lame_duck_delay = max;
        self
    }

    /// The pauses before the client connects again; from 50 ms to 5 s unless set. Each is a random part of the delay. The
    /// delay doubles when all servers were tried.
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

    /// The limits of operations, received and sent. [`start_with`](Self::start_with) needs them in the codec as well.
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
        let limits = self.config.protocol_limits;
        self.start_with(move |_| Ok(ClientCodec::new(limits)))
    }

    /// Starts the client on the loop of this thread, with the pipeline that `make` makes for each connection to a server: a
    /// [`ClientCodec`] over [`StartTls`](crate::StartTls), for example. A pipeline that cannot be made counts as a
    /// connection that cannot.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn start_with<P: OperationPipeline>(
        self,
        make: impl Fn(&ServerAddress) -> Result<P, Box<dyn Error>> + 'static,
    ) -> Client {
        let client = self.client();
        drop(task::spawn(self.serve(client.shared().clone(), make)));
        client
    }

    /// Starts the client on a loop of its own, on a thread of its own, which ends with the last clone of the client.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn(self) -> io::Result<Client> {
        let limits = self.config.protocol_limits;
        self.spawn_with(move |_| Ok(ClientCodec::new(limits)))
    }

    /// As [`spawn`](Self::spawn), with the pipeline that `make` makes for each connection.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn_with<P: OperationPipeline>(
        self,
        make: impl Fn(&ServerAddress) -> Result<P, Box<dyn Error>> + Send + 'static,
    ) -> io::Result<Client> {
        let client = self.client();
        let shared = client.shared().clone();
        let (started, starting) = mpsc::channel();
        std::thread::Builder::new().name("nats-client".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            // A loop that fails drops the supervisor, which ends the client.
            drop(event_loop.block_on(self.serve(shared, make)));
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(client)
    }

    fn client(&self) -> Client {
        let shared = Arc::new(Shared::new(self.config.limits, self.config.protocol_limits));
        Client { handle: Arc::new(ClientHandle { shared, timeout: self.config.timeout }) }
    }

    async fn serve<P: OperationPipeline>(
        self,
        shared: Arc<Shared>,
        make: impl Fn(&ServerAddress) -> Result<P, MakeError>,
    ) {
        let pool = ServerPool::new(self.servers, self.config.limits.servers_max);
        supervise(Arc::new(self.config), Rc::new(RefCell::new(pool)), shared, make).await;
    }
}
