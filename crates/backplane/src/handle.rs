//! `Backplane`: the handle that applications give to their rooms, and how it starts.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use tidegate_engine::{Backend, BackplaneFull, BackplaneRoom, EventLoop, NodeId, RoomLimits, RoomMessage, task};
use tidegate_nats::{Client as NatsClient, ClientBuilder as NatsClientBuilder, ProtocolLimits};
use tidegate_redis::{Client, ClientBuilder};

use crate::broker::{Broker, HistoryBounds, RoomName};
use crate::counts::BackplaneCounts;
use crate::driver::{Inbox, RoomCall, drive};
use crate::fault::BackplaneFault;
use crate::limits::NodeLimits;
use crate::memory::MemoryBroker;
use crate::nats::NatsBroker;
use crate::node::Node;
use crate::redis::RedisBroker;

/// A node's connection to its broker, which rooms share. Clones are the same node; the last one that is dropped ends it.
///
/// ```no_run
/// use tidegate::backplane::Backplane;
/// use tidegate::framing::Lines;
/// use tidegate::{RoomLimits, Rooms, Slow};
///
/// let backplane = Backplane::redis("redis://127.0.0.1:6379")?.spawn()?;
/// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).with(&backplane);
/// # drop(rooms);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Backplane {
    shared: Arc<SharedNode>,
}

struct SharedNode {
    id: NodeId,
    inbox: Arc<Inbox>,
    limits: NodeLimits,
}

impl Drop for SharedNode {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// The configuration of a [`Backplane`].
#[must_use = "a backplane does nothing until it is started"]
pub struct BackplaneBuilder {
    limits: NodeLimits,
    id: Option<NodeId>,
    prefix: Box<str>,
    /// The bounds of the broker.
    room_name_bytes_max: usize,
    names_bytes_max: usize,
    start: Box<StartBroker>,
}

/// Starts the broker on the loop of this thread, and runs the node; the second argument is the prefix of names.
type StartBroker = dyn FnOnce(Node, &str, Arc<Inbox>, usize) + Send;

impl Backplane {
    /// A backplane on the Redis server at `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or on the cluster of which some
    /// servers are named: `redis://HOST[:PORT],HOST[:PORT]`. A cluster of which one server is named has the scheme
    /// `redis+cluster://`; a cluster has no other database than 0.
    ///
    /// ```
    /// use tidegate::backplane::Backplane;
    ///
    /// assert!(Backplane::redis("redis://:secret@10.0.0.1").is_ok());
    /// assert!(Backplane::redis("redis://10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000").is_ok());
    /// assert!(Backplane::redis("redis+cluster://redis.example:7000").is_ok());
    /// ```
    ///
    /// # Errors
    /// [`AddressError`] if the address is none.
    pub fn redis(address: &str) -> Result<BackplaneBuilder, AddressError> {
        Ok(Self::redis_client(redis_builder(address)?))
    }

    /// A backplane on the Redis server of this client's configuration: for sentinels, clusters, Unix sockets and other timeouts.
    /// In a cluster, a presence request is one call of a script for each slot that its rooms have.
    pub fn redis_client(client: ClientBuilder) -> BackplaneBuilder {
        let names_bytes_max = client.reply_bytes_max() / 8;
        let builder = BackplaneBuilder::new(Box::new(move |node, prefix, inbox, names_max| {
            drop(task::spawn(drive(node, RedisBroker::start(client, prefix), inbox, names_max)));
        }));
        BackplaneBuilder { names_bytes_max, ..builder }
    }

    /// A backplane on the NATS servers at `nats://[USER:PASSWORD@]HOST[:PORT]`, several of a cluster with commas between them.
    ///
    /// Rooms with a history, and members of other nodes in [`Room::present`](tidegate_engine::Room::present), need JetStream
    /// (`nats-server -js`). A room's name has up to 1,000 bytes, since it is part of a subject.
    ///
    /// # Errors
    /// [`AddressError`] if the address is none.
    pub fn nats(address: &str) -> Result<BackplaneBuilder, AddressError> {
        if !address.split(',').all(|server| server.trim().starts_with("nats://")) {
            return Err(AddressError::Scheme);
        }
        let client = NatsClient::to(address).map_err(|_| AddressError::Server)?;
        // A long message of another program in a stream must not end the connection whenever a history is read.
        let limits = ProtocolLimits {
            headers_bytes_max: NATS_MESSAGE_BYTES_MAX,
            payload_bytes_max: NATS_MESSAGE_BYTES_MAX,
            ..ProtocolLimits::default()
        };
        Ok(Self::nats_client(client.name("tidegate-backplane").protocol_limits(limits)))
    }

    /// As [`nats`](Self::nats), with this client's configuration: for credentials and other timeouts.
    pub fn nats_client(client: NatsClientBuilder) -> BackplaneBuilder {
        let builder = BackplaneBuilder::new(Box::new(move |node, prefix, inbox, names_max| {
            drop(task::spawn(drive(node, NatsBroker::start(client, prefix), inbox, names_max)));
        }));
        let (room_name_bytes_max, names_bytes_max) = (NATS_ROOM_NAME_BYTES_MAX, NATS_NAMES_BYTES_MAX);
        BackplaneBuilder { room_name_bytes_max, names_bytes_max, ..builder }
    }

    /// A backplane on the broker of an address, [`redis://`](Self::redis) or [`nats://`](Self::nats).
    ///
    /// # Errors
    /// [`AddressError`] if the address is none.
    pub fn at(address: &str) -> Result<BackplaneBuilder, AddressError> {
        if address.starts_with("nats://") { Self::nats(address) } else { Self::redis(address) }
    }

    /// A backplane on a broker in the memory of this process: for tests of applications with several nodes.
    pub fn memory(broker: &MemoryBroker) -> BackplaneBuilder {
        let broker = broker.clone();
        Self::over(move || broker.client())
    }

    /// A backplane on another broker, which `make` makes on the loop of the node.
    pub fn over<B: Broker>(make: impl FnOnce() -> B + Send + 'static) -> BackplaneBuilder {
        BackplaneBuilder::new(Box::new(move |node, _, inbox, names_max| {
            drop(task::spawn(drive(node, make(), inbox, names_max)));
        }))
    }

    /// The number of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Why the node cannot do its work at present, if it cannot: for a readiness probe. The broker is not connected, or it refuses
    /// messages. A room whose subscription alone the broker refuses is none: `refused_rooms` of the [counts](Self::counts) has those.
    ///
    /// ```
    /// use tidegate::backplane::{Backplane, MemoryBroker};
    ///
    /// let backplane = Backplane::memory(&MemoryBroker::new()).spawn()?;
    /// while let Some(fault) = backplane.fault() {
    ///     println!("not ready: {fault}");
    ///     std::thread::sleep(std::time::Duration::from_millis(1));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fault(&self) -> Option<BackplaneFault> {
        self.shared.inbox.fault()
    }

    /// Whether the broker is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.counts().is_up
    }

    /// Ends the node: rooms get no messages any more, and refuse those that are sent. Members that are present do not keep it
    /// running.
    pub fn close(&self) {
        self.shared.inbox.close();
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> BackplaneCounts {
        self.shared.inbox.counts()
    }
}

impl tidegate_engine::Backplane for Backplane {
    fn attach(&self, name: &Arc<str>, limits: &RoomLimits, room: Arc<dyn BackplaneRoom>) {
        self.call(RoomCall::Attach(name.clone(), bounds(limits), room, time_of_call()));
    }

    fn detach(&self, name: &Arc<str>) {
        self.call(RoomCall::Detach(name.clone()));
    }

    fn presence_changed(&self, name: &Arc<str>) {
        self.call(RoomCall::PresenceChanged(name.clone()));
    }

    fn publish(&self, name: &Arc<str>, limits: &RoomLimits, message: RoomMessage) -> Result<(), BackplaneFull> {
        let name: RoomName = name.clone();
        if self.call(RoomCall::Publish(name, bounds(limits), message)) { Ok(()) } else { Err(BackplaneFull) }
    }
}

impl Backplane {
    fn call(&self, call: RoomCall) -> bool {
        self.shared.inbox.push(call, &self.shared.limits)
    }
}

/// The time of the caller's loop, which a simulation sets; that of the system on a thread without a loop. A loop's time is that of
/// its turn's begin: a member never seems to have entered after a kick that it did not see.
fn time_of_call() -> Instant {
    if task::can_spawn() { task::now() } else { Instant::now() }
}

fn bounds(limits: &RoomLimits) -> Option<HistoryBounds> {
    let (messages_max, bytes_max) = (limits.history_max, limits.history_bytes_max);
    (messages_max > 0).then_some(HistoryBounds { messages_max, bytes_max })
}

impl BackplaneBuilder {
    fn new(start: Box<StartBroker>) -> Self {
        let (room_name_bytes_max, names_bytes_max) = (usize::MAX, usize::MAX);
        let (limits, prefix) = (NodeLimits::default(), PREFIX.into());
        Self { limits, id: None, prefix, room_name_bytes_max, names_bytes_max, start }
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: NodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the beginning of all names in the broker; `tidegate:` unless set. Applications that share a broker have different
    /// ones.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the number of the node, for tests that repeat. It is random unless set, and must be another one at each start.
    pub fn id(mut self, id: NodeId) -> Self {
        self.id = Some(id);
        self
    }

    /// Starts the node on the loop of this thread.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    #[must_use]
    pub fn start(self) -> Backplane {
        let (backplane, run) = self.prepare();
        run();
        backplane
    }

    /// Starts the node on a loop of its own, on a thread of its own, which ends with the last clone of the backplane and the
    /// last member.
    ///
    /// # Errors
    /// The system's, if there is no thread or no loop.
    pub fn spawn(self) -> io::Result<Backplane> {
        let (backplane, run) = self.prepare();
        let inbox = backplane.shared.inbox.clone();
        let (started, starting) = mpsc::channel();
        std::thread::Builder::new().name("tidegate-backplane".to_owned()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Auto) {
                Ok(event_loop) => event_loop,
                Err(error) => return drop(started.send(Err(io::Error::other(error.to_string())))),
            };
            drop(started.send(Ok(())));
            // A loop that fails drops the node; rooms go on without messages.
            drop(event_loop.block_on(async move {
                run();
                inbox.closed().await;
            }));
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(backplane)
    }

    fn prepare(self) -> (Backplane, impl FnOnce() + Send + 'static) {
        let Self { mut limits, id, prefix, room_name_bytes_max, names_bytes_max, start } = self;
        limits.room_name_bytes_max = limits.room_name_bytes_max.min(room_name_bytes_max);
        limits.names_bytes_max = limits.names_bytes_max.min(names_bytes_max);
        let id = id.unwrap_or_else(random_id);
        let inbox = Arc::<Inbox>::default();
        let (node, names_max) = (Node::new(id, limits.clone()), limits.names_max);
        let backplane = Backplane { shared: Arc::new(SharedNode { id, inbox: inbox.clone(), limits }) };
        (backplane, move || start(node, &prefix, inbox, names_max))
    }
}

impl fmt::Debug for Backplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backplane").field("id", &self.shared.id).field("is_up", &self.is_up()).finish_non_exhaustive()
    }
}

impl fmt::Debug for BackplaneBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackplaneBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A number of 128 bits that the system's random keys determine.
fn random_id() -> NodeId {
    let half = || RandomState::new().hash_one(std::process::id());
    NodeId((u128::from(half()) << 64 | u128::from(half())).to_be_bytes())
}

fn redis_builder(address: &str) -> Result<ClientBuilder, AddressError> {
    let of_cluster = address.strip_prefix("redis+cluster://");
    let Some(rest) = of_cluster.or_else(|| address.strip_prefix("redis://")) else { return Err(AddressError::Scheme) };
    let (servers, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, servers) = servers.rsplit_once('@').map_or((None, servers), |(login, servers)| (Some(login), servers));
    let with_port = |server: &str| {
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        if has_port { server.to_owned() } else { format!("{server}:{PORT}") }
    };
    let targets: Vec<_> = servers.split(',').map(|server| with_port(server.trim())).collect();
    let builder = match &targets[..] {
        [target] if of_cluster.is_none() => Client::to(target),
        _ => Client::cluster(&targets),
    };
    let mut builder = builder.map_err(|_| AddressError::Server)?.name("tidegate-backplane");
    if let Some((user, password)) = login.map(|login| login.split_once(':').unwrap_or(("", login))) {
        builder = builder.password(password.as_bytes());
        if !user.is_empty() {
            builder = builder.user(user);
        }
    }
    if !database.is_empty() {
        let number = database.parse().ok().filter(|number| *number == 0 || !builder.is_cluster());
        builder = builder.database(number.ok_or(AddressError::Database)?);
    }
    Ok(builder)
}

/// Why a text is no address of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// It begins with neither `redis://` nor `nats://`.
    Scheme,
    /// The server is not `HOST` or `HOST:PORT`.
    Server,
    /// The database is no number, or not 0 in a cluster.
    Database,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "the address of a backplane begins with redis:// or nats://, such as redis://127.0.0.1:6379"
            }
            Self::Server => {
                "a server is redis://HOST:PORT or nats://HOST:PORT; those of a cluster have commas between them, as in \
                 redis://HOST:PORT,HOST:PORT"
            }
            Self::Database => "the database of redis://HOST:PORT/DATABASE is a number, and 0 in a cluster",
        })
    }
}

impl std::error::Error for AddressError {}

const PREFIX: &str = "tidegate:";
const PORT: u16 = 6379;
/// Each byte may take three of the 4,096 that a server allows for an operation's line.
const NATS_ROOM_NAME_BYTES_MAX: usize = 1000;
/// Half of the messages that a server takes unless it is configured otherwise (`max_payload`).
const NATS_NAMES_BYTES_MAX: usize = 512 << 10;
/// A server takes up to 8 MiB (`max_payload`, of which it advises no more), and adds its headers to a stored message.
const NATS_MESSAGE_BYTES_MAX: usize = 9 << 20;
