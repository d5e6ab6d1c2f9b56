//! `Client`: commands to a server, from any thread.
//!
//! A client has one connection, on one loop. Its handles append commands to a queue (`queue.rs`), and the connection
//! (`connection.rs`) sends all that came in a turn at once. A task on the loop connects again (`supervisor.rs`). A
//! subscriber (`subscriber.rs`) has a connection of its own.

mod config;
mod connection;
mod dedicated;
mod error;
mod from_reply;
mod queue;
mod scan;
mod script;
mod slot;
mod startup;
mod subscriber;
mod subscription;
mod supervisor;
mod transaction;
mod typed;

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{Backend, Backoff, ConnectError, EventLoop, task};

use self::config::ClientConfig;
pub use self::config::ClientLimits;
pub use self::connection::ReplyPipeline;
pub use self::dedicated::Dedicated;
pub use self::error::{ClientError, ErrorReply, Failure, WrongType};
pub use self::from_reply::FromReply;
use self::queue::{CommandQueue, PendingCommand};
pub use self::scan::Scan;
pub use self::script::Script;
use self::slot::{CommandResult, ReplyWait, reply_slot};
use self::subscriber::SubscriberQueue;
pub use self::subscriber::{ChannelMessage, Subscriber, SubscriberEvent};
pub use self::typed::{Argument, TypedCall, TypedReply};
use crate::client_codec::ClientCodec;
use crate::limits::ProtocolLimits;
use crate::outgoing_command::CommandBuffer;

/// A client of one server, for any thread and for tasks of any runtime. Clones share its connection.
///
/// Commands are sent in the order of their calls, and all those of one turn of the loop together. Each has a deadline. If
/// the connection breaks, the client connects again; a command that was sent before then has an error that says so, unless
/// it is [idempotent](Call::idempotent).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::redis::Client;
///
/// let client = Client::to("127.0.0.1:6379")?.start();
/// client.cmd("SET").arg("brest").arg("412").await?;
/// let height: u32 = client.cmd("GET").arg("brest").idempotent().fetch().await?;
/// # assert_eq!(height, 412);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<ClientHandle>,
}

/// The last one that is dropped ends the connection.
struct ClientHandle {
    queue: Arc<CommandQueue>,
    timeout: Duration,
    limits: ClientLimits,
    /// Connections of their own that are not in use.
    idle: Mutex<Vec<Client>>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.queue.end_handles();
    }
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

    /// A command, whose arguments follow.
    pub fn cmd(&self, name: impl AsRef<[u8]>) -> Call {
        self.call(CommandBuffer::new(name))
    }

    /// A command with its arguments.
    pub fn call(&self, command: CommandBuffer) -> Call {
        Call { timeout: self.handle.timeout, client: self.clone(), command, is_idempotent: false }
    }

    /// Waits until the queue takes another command. A caller that has an endless supply of them waits before each.
    pub async fn ready(&self) {
        poll_fn(|cx| self.handle.queue.poll_room(cx)).await;
    }

    /// Whether a connection takes commands at present.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.handle.queue.is_connected()
    }

    /// How many commands wait to be sent or for their replies, and how many bytes they have.
    #[must_use]
    pub fn pending(&self) -> (usize, usize) {
        self.handle.queue.counts()
    }

    /// Why the last connection ended, or could not be made.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.handle.queue.last_failure()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("redis::Client").field("is_connected", &self.is_connected()).finish_non_exhaustive()
    }
}

/// The configuration of a [`Client`].
#[derive(Debug, Clone)]
#[must_use = "a client does nothing until it is started"]
pub struct ClientBuilder {
    config: ClientConfig,
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
        let limits = self.config.protocol_limits;
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
        drop(task::spawn(supervisor::supervise_subscriber(Arc::new(self.config), queue.clone(), make)));
        Subscriber::new(queue)
    }

    /// Starts the client on a loop of its own, on a thread of its own, which ends with the last clone of the client.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn(self) -> io::Result<Client> {
        let limits = self.config.protocol_limits;
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

    fn client(self) -> (Client, Arc<ClientConfig>) {
        let queue = Arc::new(CommandQueue::new(self.config.limits));
        let handle =
            ClientHandle { queue, timeout: self.config.timeout, limits: self.config.limits, idle: Mutex::default() };
        (Client { handle: Arc::new(handle) }, Arc::new(self.config))
    }
}

/// A command that is being written. Awaiting it sends it, and yields the reply.
#[derive(Debug)]
#[must_use = "a command does nothing until it is sent"]
pub struct Call {
    client: Client,
    command: CommandBuffer,
    timeout: Duration,
    is_idempotent: bool,
}

impl Call {
    /// Adds an argument, of any bytes.
    pub fn arg(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.command = self.command.arg(bytes);
        self
    }

    /// Adds arguments.
    pub fn args(self, arguments: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Adds an argument that is not copied, if it is long.
    pub fn shared_arg(mut self, bytes: Bytes) -> Self {
        self.command = self.command.shared_arg(bytes);
        self
    }

    /// How long this command may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The command has the same effect if it is executed twice: it is sent again if the connection breaks before its
    /// reply.
    pub fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Sends the command now. The future yields the reply; dropping it gives up, and a command that was not sent yet is
    /// not sent then.
    pub fn send(self) -> ReplyFuture {
        self.enqueue(false)
    }

    /// Sends the command, and ignores the reply.
    pub fn post(self) {
        drop(self.enqueue(true));
    }

    /// Sends the command, and converts the reply.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Type`] if the reply is no `T`.
    pub async fn fetch<T: FromReply>(self) -> Result<T, ClientError> {
        let reply = self.send().await?;
        Ok(T::from_reply(reply)?)
    }

    fn enqueue(self, is_detached: bool) -> ReplyFuture {
        let (slot, waiting) = reply_slot();
        let charge = self.command.memory() + size_of::<PendingCommand>();
        self.client.handle.queue.push(PendingCommand {
            charge,
            wire: Some(self.command),
            timeout: self.timeout,
            deadline: None,
            is_idempotent: self.is_idempotent,
            is_detached,
            slot: Some(slot),
            is_sent: false,
            group: None,
        });
        ReplyFuture { waiting, _client: self.client }
    }
}

impl IntoFuture for Call {
    type Output = CommandResult;
    type IntoFuture = ReplyFuture;

    fn into_future(self) -> ReplyFuture {
        self.send()
    }
}

/// The reply to a command, when it has come.
#[derive(Debug)]
#[must_use = "dropping the reply gives up; post() sends a command whose reply is ignored"]
pub struct ReplyFuture {
    waiting: ReplyWait,
    /// The connection lasts until the reply has come.
    _client: Client,
}

impl Future for ReplyFuture {
    type Output = CommandResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandResult> {
        Pin::new(&mut self.waiting).poll(cx)
    }
}
