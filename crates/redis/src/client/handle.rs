//! `Client`: the handles of a client, and `Call`, a command that is being written.

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::client::cache::ReplyCache;
use crate::client::config::ClientLimits;
use crate::client::error::{ClientError, Failure};
use crate::client::from_reply::FromReply;
use crate::client::pending::{CommandRoute, PendingCommand};
use crate::client::queue::CommandQueue;
use crate::client::reply_sink::ResultSlot;
use crate::client::router::Router;
use crate::client::slot::{CommandResult, ReplyWait, reply_slot};
use crate::client::slots::slot_of;
use crate::outgoing_command::CommandBuffer;

/// A client, for any thread and for tasks of any runtime. Clones share its connection.
///
/// [`Client::to`] is a client of one server, [`Client::sentinel`] one of the master that sentinels name, and
/// [`Client::cluster`] one of a cluster.
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
    pub(crate) handle: Arc<ClientHandle>,
}

/// The last one that is dropped ends the connection.
pub(crate) struct ClientHandle {
    pub(crate) queue: Arc<CommandQueue>,
    /// There are several servers; `queue` has the commands that wait for one.
    pub(crate) router: Option<Arc<Router>>,
    /// The client that has the connection, if this one only sends commands over it.
    pub(crate) owner: Option<Arc<ClientHandle>>,
    pub(crate) timeout: Duration,
    pub(crate) limits: ClientLimits,
    pub(crate) cache: Option<Arc<ReplyCache>>,
    /// Connections of their own that are not in use.
    pub(crate) idle: Mutex<Vec<Client>>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        if self.owner.is_none() {
            self.queue.end_handles();
        }
    }
}

impl ClientHandle {
    /// The route of commands that one server executes; none if there is only one.
    pub(crate) fn route<'a>(
        &self,
        commands: impl IntoIterator<Item = &'a CommandBuffer>,
        slot: Option<u16>,
    ) -> Result<Option<CommandRoute>, Failure> {
        self.router.as_ref().map(|router| router.route(commands, slot)).transpose()
    }

    /// Appends a command to the queue of its server, or fails it.
    pub(crate) fn push(&self, route: Result<Option<CommandRoute>, Failure>, mut command: PendingCommand) {
        match (route, &self.router) {
            (Err(failure), _) => command.fail(failure),
            (Ok(route), Some(router)) => {
                command.route = route;
                router.send(command);
            }
            (Ok(_), None) => self.queue.push(command),
        }
    }

    /// Ready once the servers that can be reached take another command each. If none can, one that takes a command will do:
    /// the command waits there.
    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let queues = self.queues();
        // The first one of several has the commands without a server, which stop nothing once there are servers.
        let servers = if queues.len() > 1 { &queues[1..] } else { &queues };
        let mut reachable = servers.iter().filter(|queue| queue.is_reachable()).peekable();
        let is_ready = |queue: &Arc<CommandQueue>| queue.poll_room(cx).is_ready();
        // Each queue without room notes the task.
        let has_room = if reachable.peek().is_some() {
            reachable.map(is_ready).fold(true, |all, one| all & one)
        } else {
            servers.iter().map(is_ready).fold(false, |any, one| any | one)
        };
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The queues of all servers.
    fn queues(&self) -> Vec<Arc<CommandQueue>> {
        self.router.as_ref().map_or_else(|| vec![self.queue.clone()], |router| router.queues())
    }
}

impl Client {
    /// A command, whose arguments follow.
    pub fn cmd(&self, name: impl AsRef<[u8]>) -> Call {
        self.call(CommandBuffer::new(name))
    }

    /// A command with its arguments.
    pub fn call(&self, command: CommandBuffer) -> Call {
        let timeout = self.handle.timeout;
        Call { timeout, client: self.clone(), command, is_idempotent: false, cache_key: None, slot: None }
    }

    /// Waits until the queue takes another command. A caller that has an endless supply of them waits before each.
    ///
    /// A client of several servers waits for all that it reaches. A server that is away stops only its own commands: those
    /// beyond its queue fail.
    pub async fn ready(&self) {
        poll_fn(|cx| self.handle.poll_room(cx)).await;
    }

    /// Whether a connection takes commands at present.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.handle.queues().iter().any(|queue| queue.is_connected())
    }

    /// How many commands wait to be sent or for their replies, and how many bytes they have.
    #[must_use]
    pub fn pending(&self) -> (usize, usize) {
        let sum = |(commands, bytes), queue: &Arc<CommandQueue>| {
            let more = queue.counts();
            (commands + more.0, bytes + more.1)
        };
        self.handle.queues().iter().fold((0, 0), sum)
    }

    /// Why the last connection ended, or could not be made.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        // Those of servers say more than that of the search for them.
        self.handle.queues().iter().rev().find_map(|queue| queue.last_failure())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("redis::Client").field("is_connected", &self.is_connected()).finish_non_exhaustive()
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
    cache_key: Option<Bytes>,
    slot: Option<u16>,
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

    /// The key that decides which server of a cluster gets the command. The client knows the keys of the commands that Redis
    /// has itself; this is for those of modules, for scripts without keys, and for commands without a key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.slot = Some(slot_of(key.as_ref()));
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

    /// The reply is stored in the cache under this key.
    pub(crate) fn cached_as(mut self, key: Bytes) -> Self {
        self.cache_key = Some(key);
        self
    }

    fn enqueue(self, is_detached: bool) -> ReplyFuture {
        let (slot, waiting) = reply_slot();
        ReplyFuture::new(waiting, self.push(slot.into(), is_detached))
    }

    /// Appends the command to the queue. Its result goes to the slot.
    pub(crate) fn push(self, slot: ResultSlot, is_detached: bool) -> Client {
        let charge = self.command.memory() + size_of::<PendingCommand>();
        let route = self.client.handle.route(std::slice::from_ref(&self.command), self.slot);
        self.client.handle.push(
            route,
            PendingCommand {
                charge,
                wire: Some(self.command),
                timeout: self.timeout,
                deadline: None,
                is_idempotent: self.is_idempotent,
                is_detached,
                slot: Some(slot),
                is_sent: false,
                group: None,
                cache_key: self.cache_key,
                is_counted: false,
                route: None,
            },
        );
        self.client
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

impl ReplyFuture {
    pub(crate) fn new(waiting: ReplyWait, client: Client) -> Self {
        Self { waiting, _client: client }
    }
}

impl Future for ReplyFuture {
    type Output = CommandResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandResult> {
        Pin::new(&mut self.waiting).poll(cx)
    }
}
