//! `Server`: its listeners, how many loops it has, and which loop accepts from which listener.
//!
//! Read next: `listener.rs`, addresses with their services; `handle.rs`, the running server; `acceptor.rs`, a loop's
//! handling of a listener; `datagram_sockets.rs`, the sockets of endpoints,
//! and `session_groups.rs`, of those with sessions that outlast a server; `serve.rs`, how a stream becomes a channel with
//! a task; `ended.rs`, waiting for the end; `takeover.rs`, the other source of listeners.

pub(crate) mod acceptor;
mod connections;
mod control_socket;
mod datagram_sockets;
mod ended;
mod found_sockets;
mod handle;
mod listener;
pub(crate) mod make;
mod serve;
mod service_manager;
mod session_groups;
mod supervisor;
mod takeover;
mod watchdog;
mod watchdog_feeder;

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use tidegate_codec::Pipeline;
use tidegate_sys::{Address, ListenOptions, Side, Socket, handover, inherited};

use self::datagram_sockets::{KeptSockets, OpenedSockets};
pub use self::ended::Ended;
use self::found_sockets::FoundSockets;
use self::handle::ServerState;
pub use self::handle::{RunningListener, ServerHandle, Superseded};
use self::listener::Listen;
pub use self::listener::{Listener, ServedListener};
pub use self::service_manager::ServiceManager;
use self::session_groups::{SessionGroup, SessionGroups, SessionHandover, TakenGroup, WaitingEndpoints};
pub use self::supervisor::{ServerEnd, Supervisor};
use self::takeover::{TakenSockets, Takeover};
pub use self::watchdog_feeder::WatchdogFeeder;
use crate::admission::{Admission, AdmissionControl};
use crate::backend::Backend;
use crate::counters::ListenerCounts;
use crate::endpoint::{Bind, BindPlace, GroupSteering, ServedEndpoint, SocketGroup, SteeredPlace};
use crate::event_loop::EventLoop;
use crate::handler::Handler;
use crate::limits::{Limits, MEMORY_PER_LOOP_MIN};
use crate::tokio_runtime::TokioRuntime;

use crate::load_balancing::{LoadBalancing, LoopGroup, LoopHandle};
use crate::protocols::Protocols;
use crate::start_error::StartError;
use crate::successor::Successor;

/// A server that has not been started.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Handler, Outcome, Server, Slice};
///
/// struct Ignore;
///
/// impl Handler<Lines> for Ignore {
///     type Post = ();
///     fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         Outcome::Continue
///     }
/// }
///
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(|| (Lines::default(), Ignore))?;
/// println!("listening on {}", server.address());
/// server.drain(std::time::Duration::from_secs(1));
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    /// The listener that `start` and `serve` add, if it was given an address.
    main: Option<Listener>,
    listeners: Vec<ServedListener>,
    endpoints: Vec<ServedEndpoint>,
    loops: usize,
    backend: Backend,
    load_balancing: LoadBalancing,
    limits: Limits,
    admission: Admission,
    takeover: Option<PathBuf>,
    /// Keeps its listeners for a server that replaces it.
    is_replaceable: bool,
    /// The listeners of the server that this one replaces.
    replaced: Option<Vec<OwnedFd>>,
    /// The sockets of a service manager.
    passed: Vec<OwnedFd>,
    /// That server has a successor once this one runs.
    replaced_successor: Option<Successor>,
    /// The sessions of that server.
    replaced_sessions: Option<Arc<SessionGroups>>,
    /// Another server has had, and may still have, sockets at the same addresses.
    has_predecessor: bool,
    successor: Successor,
    /// `None` until the server is given one or starts.
    pub(crate) tokio_runtime: Option<TokioRuntime>,
}

/// Assigns listeners to loops, so that each listener is accepted from, and each loop accepts at each address: closing a
/// listener that shares its address with others would lose the connections in its queue.
fn assign_listeners(listeners: Vec<Socket>, loops: usize) -> io::Result<Vec<Vec<Socket>>> {
    let mut groups: Vec<(Address, Vec<Socket>)> = Vec::new();
    for listener in listeners {
        let address = listener.address(Side::Local)?;
        match groups.iter_mut().find(|(other, _)| *other == address) {
            Some((_, group)) => group.push(listener),
            None => groups.push((address, vec![listener])),
        }
    }
    let mut per_loop: Vec<Vec<Socket>> = (0..loops).map(|_| Vec::new()).collect();
    for (_, group) in groups {
        for (number, sockets) in per_loop.iter_mut().enumerate().skip(group.len()) {
            sockets.push(group[number % group.len()].try_clone()?);
        }
        for (number, listener) in group.into_iter().enumerate() {
            per_loop[number % loops].push(listener);
        }
    }
    Ok(per_loop)
}

impl Server {
    /// A server without listeners: [`listener`](Server::listener) adds one, [`run`](Server::run) starts it.
    pub fn new() -> Self {
        Self {
            main: None,
            listeners: Vec::new(),
            endpoints: Vec::new(),
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            backend: Backend::default(),
            load_balancing: LoadBalancing::default(),
            limits: Limits::default(),
            admission: Admission::default(),
            takeover: None,
            is_replaceable: false,
            replaced: None,
            passed: Vec::new(),
            replaced_successor: None,
            replaced_sessions: None,
            has_predecessor: false,
            successor: Successor::default(),
            tokio_runtime: None,
        }
    }

    /// A server with one protocol, at `address`: `IP:PORT`, `[IPV6]:PORT`, `localhost:PORT`, `unix:PATH`, or
    /// `unix:@NAME` for a name in the abstract namespace of Linux. For port 0 the kernel chooses a free one.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        Listener::bind(address).map(Self::on)
    }

    /// The same protocol at one address more.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn and_bind(mut self, address: &str) -> Result<Self, StartError> {
        self.main = Some(self.main.unwrap_or_default().and_bind(address)?);
        Ok(self)
    }

    /// A server with one protocol, at an address.
    pub fn at(address: Address) -> Self {
        Self::on(Listener::at(address))
    }

    /// A server on a TCP listener that the caller opened.
    pub fn on_tcp(listener: TcpListener) -> Self {
        Self::on_listeners(vec![listener.into()])
    }

    /// A server on a Unix listener that the caller opened.
    pub fn on_unix(listener: UnixListener) -> Self {
        Self::on_listeners(vec![listener.into()])
    }

    /// A server on listening stream sockets that the caller opened, as [`Listener::on`].
    pub fn on_listeners(listeners: Vec<OwnedFd>) -> Self {
        Self::on(Listener::on(listeners))
    }

    /// A server on the listeners that a service manager has passed to this process (`LISTEN_PID` and `LISTEN_FDS`, as
    /// of `sd_listen_fds(3)`); `None` if it has passed none, or an earlier call has taken them. Call this early, before
    /// the process deals with descriptors by number.
    ///
    /// # Errors
    /// [`StartError::Inherited`] if the variables are malformed, or a passed descriptor is not a listener.
    pub fn from_environment() -> Result<Option<Self>, StartError> {
        Ok(Listener::from_environment()?.map(Self::on))
    }

    /// The sockets that a service manager has passed to this process, for [`passed`](Server::passed): listening stream
    /// sockets, and bound datagram sockets. Empty if it has passed none, or an earlier call has taken them. Call this early,
    /// as [`from_environment`](Server::from_environment).
    ///
    /// # Errors
    /// [`StartError::Inherited`] if the variables are malformed, or a passed descriptor is no such socket.
    pub fn sockets_from_environment() -> Result<Vec<OwnedFd>, StartError> {
        inherited::take().map(Option::unwrap_or_default).map_err(StartError::Inherited)
    }

    /// Sockets that were opened elsewhere: each listener and each endpoint uses those that are bound to its addresses, and
    /// opens its other addresses itself. `[::]:80` and `0.0.0.0:80` are two addresses, and an address with port 0 is none of
    /// a passed socket. A server with one listener, to none of whose addresses a stream socket is bound, uses all of those in
    /// place of its addresses. A socket without a listener is logged, and stays open: its connections wait. A datagram socket
    /// is served by one loop; for more loops pass several at the same address, each with `SO_REUSEPORT`.
    ///
    /// ```
    /// # use std::net::TcpListener;
    /// # use tidegate::framing::Lines;
    /// # use tidegate::{Channel, ChannelError, Listener, Server};
    /// # async fn discard(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
    /// #     while channel.recv().await?.is_some() {}
    /// #     Ok(())
    /// # }
    /// // As a service manager does.
    /// let socket = TcpListener::bind("127.0.0.1:0")?;
    /// let address = socket.local_addr()?;
    /// let server = Server::new()
    ///     .loops(1)
    ///     .passed(vec![socket.into()])
    ///     .listener(Listener::at(address.into()).serve(Lines::new, discard))
    ///     .listener(Listener::bind("127.0.0.1:0")?.serve(Lines::new, discard))
    ///     .run()?;
    /// assert_eq!(server.listeners()[0].addresses(), [address.into()]);
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`run`](Server::run) fails if a descriptor is neither a listening stream socket nor a bound datagram socket.
    pub fn passed(mut self, sockets: Vec<OwnedFd>) -> Self {
        self.passed = sockets;
        self
    }

    /// A server with one protocol, on a listener: [`start`](Server::start) or [`serve`](Server::serve) names the
    /// protocol.
    pub fn on(listener: Listener) -> Self {
        Self { main: Some(listener), ..Self::new() }
    }

    /// Adds a listener with the service of its connections. The loops, the drain and the takeover are the same for all
    /// listeners of a server.
    pub fn listener(mut self, listener: ServedListener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Adds a protocol of datagrams at an address. The loops and the drain are the same as for the listeners, and the running
    /// server lists it behind them. A successor that [takes over](Server::takeover), or [replaces](Server::replaces) this
    /// server, receives from the same sockets, so that no datagram is lost; a successor that fails when its first loops have
    /// started may have received a few. Sessions go on with a [`generation`](crate::EndpointListener::generation): the
    /// successor sends their datagrams on to this server while it drains. Other protocols with sessions open sockets of their
    /// own: datagrams that wait in the kernel for the predecessor then are lost when it ends.
    pub fn endpoint(mut self, endpoint: ServedEndpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// How many loops run, each on a thread of its own; one per core unless set.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops.max(1);
        self
    }

    /// The loops run in no tokio runtime, even if the feature `tokio` is on: for a program without tokio, while another
    /// package of its build may have the feature on. It saves the thread of the runtime.
    pub fn without_tokio_runtime(mut self) -> Self {
        self.tokio_runtime = Some(TokioRuntime::none());
        self
    }

    /// Which driver the loops run on: [`Backend::Auto`] unless set.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Which loop serves a fresh connection: the one that has accepted it, unless set.
    pub fn load_balancing(mut self, load_balancing: LoadBalancing) -> Self {
        self.load_balancing = load_balancing;
        self
    }

    /// Options of the server's own listener and its streams, as [`Listener::options`].
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.main = Some(self.main.unwrap_or_default().options(options));
        self
    }

    /// The limits that protect the server. [`Limits::connections_max`] is for all listeners without limits of their own
    /// together, and the lowest `memory_max` of all listeners is that of the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Which peers may connect, and how many connections each may have, on all listeners without admission of their own
    /// together. The default admits every connection.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// Takes over from the server that serves takeovers at `path`, if there is one: this server uses its listeners
    /// instead of its own address or listeners, and once our loops run the other is
    /// [superseded](ServerHandle::is_superseded). If there is none, this server starts as usual. Either way it then
    /// serves takeovers there itself, until it ends.
    ///
    /// At `path` there is a Unix socket for processes of the same user only; an abstract name, such as `@name`, is
    /// refused. A successor that dies before its loops run changes nothing. A server that is superseded continues until
    /// it is drained:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::framing::Lines;
    /// # use tidegate::{Context, Handler, Outcome, Server, Slice};
    /// # struct Ignore;
    /// # impl Handler<Lines> for Ignore {
    /// #     type Post = ();
    /// #     fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    /// #         Outcome::Continue
    /// #     }
    /// # }
    /// let path = std::env::temp_dir().join(format!("takeover-{}", std::process::id()));
    /// let start = || Server::bind("127.0.0.1:0")?.loops(1).takeover(&path).start(|| (Lines::default(), Ignore));
    /// let old = start()?;
    /// // In production this is another process.
    /// let new = start()?;
    /// assert!(old.superseded().wait());
    /// old.drain(Duration::from_secs(1));
    /// # new.drain(Duration::from_secs(1));
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    pub fn takeover(mut self, path: impl Into<PathBuf>) -> Self {
        self.takeover = Some(path.into());
        self
    }

    /// Keeps the listeners for a server of the same process that [replaces](Server::replaces) this one.
    pub fn replaceable(mut self) -> Self {
        self.is_replaceable = true;
        self
    }

    /// Replaces a running [replaceable](Server::replaceable) server of this process: an address at which both listen keeps
    /// its listeners, so that no connection is refused meanwhile; the other addresses are opened. The old server goes on
    /// until it is drained. If this server does not start, the old one is as it was.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::framing::Lines;
    /// # use tidegate::{Context, Handler, Outcome, Server, Slice};
    /// # struct Ignore;
    /// # impl Handler<Lines> for Ignore {
    /// #     type Post = ();
    /// #     fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    /// #         Outcome::Continue
    /// #     }
    /// # }
    /// let old = Server::bind("127.0.0.1:0")?.loops(1).replaceable().start(|| (Lines::default(), Ignore))?;
    /// let address = old.address().clone();
    /// let new = Server::at(address).loops(1).replaces(&old)?.start(|| (Lines::default(), Ignore))?;
    /// old.drain(Duration::from_secs(1));
    /// # new.drain(Duration::from_secs(1));
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError::System`] if the process has no descriptors left.
    pub fn replaces(mut self, old: &ServerHandle) -> Result<Self, StartError> {
        let (listeners, successor, sessions) = old.kept_listeners().map_err(StartError::System)?;
        (self.replaced, self.replaced_successor) = (Some(listeners), Some(successor));
        self.replaced_sessions = Some(sessions);
        Ok(self)
    }

    /// Starts the loops. `make` makes a codec and a handler for each connection of the server's own listener.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start<C, H>(self, make: impl Fn() -> (C, H) + Send + Sync + 'static) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        H: Handler<C>,
    {
        self.run_main(|listener| listener.handle(make))
    }

    /// Starts the loops. `each` is called once on each loop's thread, as [`Listener::handle_each`] describes.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start_each<C, H, M>(
        self,
        each: impl Fn(usize) -> M + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        self.run_main(|listener| listener.handle_each(each))
    }

    /// Starts the loops. The first bytes of each connection choose one of several protocols, as [`Listener::sniff`]
    /// describes.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn sniff(self, each: impl Fn(usize) -> Protocols + Send + Sync + 'static) -> Result<ServerHandle, StartError> {
        self.run_main(|listener| listener.sniff(each))
    }

    /// Starts the loops. `served` returns the service of the server's own listener, the first of its listeners: for
    /// protocols with a configuration of their own.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn run_main(mut self, served: impl FnOnce(Listener) -> ServedListener) -> Result<ServerHandle, StartError> {
        let main = self.main.take().ok_or(StartError::NoListener)?;
        self.listeners.insert(0, served(main));
        self.run()
    }

    /// Starts the loops with the listeners that were [added](Server::listener). If one of their addresses cannot be used,
    /// nothing is started.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn run(mut self) -> Result<ServerHandle, StartError> {
        self.check()?;
        let plan = self.backend.plan()?;
        let is_shared = self.takeover.is_some() || self.is_replaceable || self.replaced.is_some();
        let (takeover, taken) = self.begin_takeover()?;
        let (mut taken, mut sessions) =
            taken.map_or((None, Vec::new()), |taken| (Some(taken.listeners), taken.sessions));
        let handover = self.begin_replacement(taken.is_some(), &mut sessions)?;
        self.has_predecessor = taken.is_some() || self.replaced.is_some();
        let datagrams = datagram_sockets::split(&mut taken, &mut self.replaced);
        let found = FoundSockets::new(taken, self.replaced.take(), std::mem::take(&mut self.passed))?;
        let (opened, beside) = self.open_sockets(&found, is_shared, &mut sessions)?;
        let clones = |is_needed: bool| {
            let kept = if is_needed { &opened[..] } else { &[] };
            kept.iter().flatten().map(Socket::try_clone).collect::<io::Result<Vec<_>>>().map_err(StartError::System)
        };
        let (kept, for_replacement) = (clones(takeover.is_some())?, clones(self.is_replaceable)?);
        let room = handover::LISTENERS_MAX.saturating_sub(opened.iter().map(Vec::len).sum());
        let room = if takeover.is_some() || self.is_replaceable { room } else { 0 };
        let memory_max = self.memory_max() / self.loops;
        let (per_loop, running) = self.assign(opened, memory_max)?;
        // A server of which no datagram socket was taken goes on receiving while it drains.
        let replaced = self.replaced_successor.take().filter(|_| !datagrams.is_empty());
        let mut endpoints = OpenedEndpoints::new(self.loops, room, running);
        self.open_endpoints((is_shared, datagrams, &mut sessions), &found, &mut endpoints)?;
        self.add_beside(beside, &per_loop, &mut endpoints)?;
        self.report(&found, &endpoints.running);
        let OpenedEndpoints { per_loop: mut of_loops, kept: datagrams, groups, waiting, steerings, running, .. } =
            endpoints;
        let tokio_runtime = self.tokio_runtime.unwrap_or_else(TokioRuntime::of_this_thread);
        tokio_runtime.start().map_err(StartError::System)?;
        let sessions = SessionGroups::new(groups);
        let mut state = ServerState::new(running, self.successor, sessions.clone());
        state.keep_listeners(KeptSockets::new(for_replacement, datagrams.clone(), sessions.clone()));
        for (number, listeners) in per_loop.into_iter().enumerate() {
            let endpoints = std::mem::take(&mut of_loops[number]);
            state.start_loop(plan, memory_max, tokio_runtime.clone(), move |event_loop| {
                listeners.into_iter().try_for_each(|listener| listener.start(number, event_loop))?;
                endpoints.into_iter().try_for_each(|endpoint| endpoint.start(number, event_loop))
            })?;
        }
        let mut establishing = Vec::new();
        let handle = state.into_handle(|superseded| {
            let Some((path, takeover)) = takeover else { return Ok(None) };
            let completed = takeover.complete(KeptSockets::new(kept, datagrams, sessions), superseded);
            let (control, of_predecessor) = completed.map_err(|error| StartError::Takeover(path, error))?;
            establishing = of_predecessor;
            Ok(Some(control))
        })?;
        // From here on this server runs: before, nothing has changed for the other one.
        replaced.iter().for_each(Successor::set);
        if let Some((old, handover)) = handover {
            establishing = old.release(handover);
        }
        waiting.begin(&establishing);
        steerings.into_iter().for_each(GroupSteering::apply);
        Ok(handle)
    }

    /// Takes the sessions of a server of this process, unless those of the same server came by its path.
    fn begin_replacement(
        &mut self,
        has_taken: bool,
        sessions: &mut Vec<TakenGroup>,
    ) -> Result<Option<(Arc<SessionGroups>, SessionHandover)>, StartError> {
        let Some(old) = self.replaced_sessions.take().filter(|_| !has_taken) else { return Ok(None) };
        let mut handover = old.pack().map_err(StartError::System)?;
        *sessions = TakenGroup::unpack(std::mem::take(&mut handover.parcel)).map_err(StartError::System)?;
        Ok(Some((old, handover)))
    }

    /// The listeners of each loop, and those of the running server.
    fn assign(&self, opened: Vec<Vec<Socket>>, memory_max: usize) -> Result<AssignedListeners, StartError> {
        let shared = Arc::new(AtomicUsize::new(0));
        let shared_admission = AdmissionControl::new(&self.admission);
        let mut per_loop: Vec<Vec<LoopListener>> = (0..self.loops).map(|_| Vec::new()).collect();
        let mut running = Vec::new();
        for (served, sockets) in self.listeners.iter().zip(opened) {
            running.push(RunningListener::new(served.listener.name(), &sockets)?);
            let own = served.listener.limits.clone();
            let live = if own.is_some() { Arc::default() } else { shared.clone() };
            let limits = Limits { memory_max, ..own.unwrap_or_else(|| self.limits.clone()) };
            let admission = match &served.listener.admission {
                Some(own) => AdmissionControl::new(own),
                None => shared_admission.clone(),
            };
            let hands_over = self.load_balancing == LoadBalancing::LeastLoaded && self.loops > 1;
            let group = hands_over.then(|| LoopGroup::new(self.loops, live.clone()));
            let sockets = assign_listeners(sockets, self.loops).map_err(StartError::System)?;
            for (number, sockets) in sockets.into_iter().enumerate() {
                per_loop[number].push(LoopListener {
                    listen: served.listen.clone(),
                    limits: limits.clone(),
                    live: live.clone(),
                    admission: admission.clone(),
                    counts: running[running.len() - 1].shared_counts(),
                    handle: group.as_ref().map(|group| group.handle(number)),
                    sockets,
                });
            }
        }
        Ok((per_loop, running))
    }

    /// Opens the sockets of all listeners, and those of the endpoints beside them, one list for each loop and address. A port
    /// that the kernel has chosen for a listener may be in use for datagrams: then another one is chosen.
    fn open_sockets(
        &self,
        found: &FoundSockets,
        is_shared: bool,
        sessions: &mut Vec<TakenGroup>,
    ) -> Result<(Vec<Vec<Socket>>, Vec<BesideSockets>), StartError> {
        let mut tries_left = if found.has_before() { 1 } else { PORT_TRIES };
        loop {
            let opened = found.open(&self.listeners, self.loops)?;
            tries_left -= 1;
            match self.open_beside(&opened, is_shared, found, sessions) {
                Ok(beside) => return Ok((opened, beside)),
                Err(StartError::InUse(_)) if tries_left > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn open_beside(
        &self,
        opened: &[Vec<Socket>],
        is_shared: bool,
        found: &FoundSockets,
        sessions: &mut Vec<TakenGroup>,
    ) -> Result<Vec<BesideSockets>, StartError> {
        let options = (self.loops, is_shared, self.own_group());
        let mut all = Vec::new();
        for (served, sockets) in self.listeners.iter().zip(opened) {
            let mut groups = BesideSockets::new();
            if let Some(beside) = &served.beside {
                let addresses = RunningListener::new("", sockets)?;
                for address in addresses.addresses().iter().filter(|address| address.ip().is_some()) {
                    let at = (address, &sockets[..]);
                    groups.push(datagram_sockets::open_beside(&beside.endpoint, at, options, (found, sessions))?);
                }
                (beside.bound)(addresses.addresses());
            }
            all.push(groups);
        }
        Ok(all)
    }

    /// Adds the endpoints beside listeners to the loops.
    fn add_beside(
        &self,
        beside: Vec<BesideSockets>,
        per_loop: &[Vec<LoopListener>],
        opened: &mut OpenedEndpoints,
    ) -> Result<(), StartError> {
        for (number, (served, groups)) in self.listeners.iter().zip(beside).enumerate() {
            let Some(beside) = &served.beside else { continue };
            let of_listener = |listeners: &Vec<LoopListener>| listeners.get(number)?.admission.clone();
            let admission = per_loop.first().and_then(of_listener);
            for sockets in groups {
                self.add_endpoint(&beside.endpoint, sockets, admission.as_ref(), opened)?;
            }
        }
        Ok(())
    }

    /// Adds the endpoints of the sockets at one address to the loops.
    fn add_endpoint(
        &self,
        served: &ServedEndpoint,
        OpenedSockets { sockets, group, predecessors }: OpenedSockets,
        admission: Option<&Arc<AdmissionControl>>,
        opened: &mut OpenedEndpoints,
    ) -> Result<(), StartError> {
        opened.steerings.extend(served.listener.steer(&sockets, group)?);
        opened.running.push(RunningListener::new(served.listener.name(), &sockets)?);
        let kept = datagram_sockets::keep(served, &sockets, &mut opened.room)?;
        let (predecessors, number) = predecessors.unzip();
        // The place of a socket in its group counts where a loop may have several.
        let places = if served.has_sessions { sockets.len() } else { self.loops.min(sockets.len()) };
        let steered = served.listener.steered(places, predecessors);
        let descriptors = kept.iter().map(Arc::downgrade);
        match steered.as_ref().filter(|endpoints| endpoints.generation().is_some()) {
            Some(endpoints) => {
                opened.waiting.0.extend(number.map(|number| (number, endpoints.clone())));
                let sockets: Vec<_> = descriptors.collect();
                if !sockets.is_empty() {
                    opened.groups.push(SessionGroup { endpoints: endpoints.clone(), sockets });
                }
            }
            None => opened.kept.extend(descriptors),
        }
        for (place, socket) in sockets.into_iter().enumerate() {
            let loop_number = place % self.loops;
            let successor = kept.get(place).map(|kept| self.successor.keeping(kept.clone()));
            let member = if served.has_sessions { place } else { loop_number };
            let steered = steered.as_ref().map(|endpoints| endpoints.place(member));
            let (bind, admission) = (served.bind.clone(), admission.cloned());
            opened.per_loop[loop_number].push(LoopEndpoint { bind, place, admission, steered, successor, socket });
        }
        Ok(())
    }

    /// The group of sockets that this server has opened.
    fn own_group(&self) -> SocketGroup {
        if self.has_predecessor { SocketGroup::Beside } else { SocketGroup::New }
    }

    /// Opens the sockets of all endpoints: for each loop one of each, with the function that binds it.
    fn open_endpoints(
        &self,
        (is_shared, mut taken, sessions): (bool, Vec<OwnedFd>, &mut Vec<TakenGroup>),
        found: &FoundSockets,
        opened: &mut OpenedEndpoints,
    ) -> Result<(), StartError> {
        let options = (self.loops, is_shared, self.own_group());
        for served in &self.endpoints {
            let sockets =
                datagram_sockets::open(served, &self.endpoints, options, (&mut taken, found, &mut *sessions))?;
            self.add_endpoint(served, sockets, None, opened)?;
        }
        Ok(())
    }

    /// Logs how the sockets that were there are used. The listeners come first among those that run.
    fn report(&self, found: &FoundSockets, running: &[RunningListener]) {
        let (streams, datagrams) = running.split_at(self.listeners.len());
        let addresses = |running: &[RunningListener]| -> Vec<Address> {
            running.iter().flat_map(RunningListener::addresses).cloned().collect()
        };
        found.report(&self.listeners, &addresses(streams), &addresses(datagrams));
    }

    /// The limits of all listeners.
    fn all_limits(&self) -> impl Iterator<Item = &Limits> {
        self.listeners.iter().map(|served| served.listener.limits.as_ref().unwrap_or(&self.limits))
    }

    fn memory_max(&self) -> usize {
        self.all_limits().map(|limits| limits.memory_max).min().unwrap_or(self.limits.memory_max)
    }

    fn check(&self) -> Result<(), StartError> {
        if self.main.is_some() {
            return Err(StartError::NotServed);
        }
        if self.listeners.is_empty() && self.endpoints.is_empty() {
            return Err(StartError::NoListener);
        }
        if !self.all_limits().all(|limits| limits.water.is_sound()) {
            return Err(StartError::WaterMarks);
        }
        let bytes = self.memory_max();
        if bytes / self.loops < MEMORY_PER_LOOP_MIN {
            return Err(StartError::Memory { bytes, loops: self.loops });
        }
        Ok(())
    }

    /// Checks whether a server runs at the path, if one was set, and takes its listeners.
    fn begin_takeover(&mut self) -> Result<TakeoverParts, StartError> {
        let Some(path) = self.takeover.take() else { return Ok((None, None)) };
        match Takeover::begin(&path) {
            Ok((takeover, taken)) => Ok((Some((path, takeover)), taken)),
            Err(error) => Err(StartError::Takeover(path, error)),
        }
    }
}

/// A takeover that has begun, with its path, and the sockets of the server before.
type TakeoverParts = (Option<(PathBuf, Takeover)>, Option<TakenSockets>);

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

/// The listeners of each loop, and those of the running server.
type AssignedListeners = (Vec<Vec<LoopListener>>, Vec<RunningListener>);

/// The datagram sockets of all loops.
struct OpenedEndpoints {
    per_loop: Vec<Vec<LoopEndpoint>>,
    /// Those that a successor gets.
    kept: Vec<Weak<OwnedFd>>,
    /// Those whose sessions outlast the server.
    groups: Vec<SessionGroup>,
    /// Those that receive once the predecessor has stopped.
    waiting: WaitingEndpoints,
    /// For the time when the loops run.
    steerings: Vec<GroupSteering>,
    running: Vec<RunningListener>,
    /// A successor gets at most so many more sockets.
    room: usize,
}

impl OpenedEndpoints {
    fn new(loops: usize, room: usize, running: Vec<RunningListener>) -> Self {
        let per_loop = (0..loops).map(|_| Vec::new()).collect();
        let (kept, groups, steerings) = Default::default();
        Self { per_loop, kept, groups, waiting: WaitingEndpoints(Vec::new()), steerings, running, room }
    }
}

/// A datagram socket of a loop, and the function that binds it.
struct LoopEndpoint {
    bind: Arc<Bind>,
    /// Among the sockets at the address.
    place: usize,
    admission: Option<Arc<AdmissionControl>>,
    steered: Option<SteeredPlace>,
    /// The server that gets the socket, if one may.
    successor: Option<Successor>,
    socket: Socket,
}

impl LoopEndpoint {
    fn start(self, loop_number: usize, event_loop: &mut EventLoop) -> io::Result<()> {
        event_loop.admission(self.admission);
        event_loop.begin_endpoint(self.steered, self.successor);
        (self.bind)(BindPlace { loop_number, place: self.place }, event_loop, self.socket)
    }
}

/// The datagram sockets beside a listener, for each of its addresses.
type BesideSockets = Vec<OpenedSockets>;

/// How many ports are tried for a listener with an endpoint beside it.
const PORT_TRIES: u32 = 8;

/// The state that one loop needs to accept from one listener.
struct LoopListener {
    listen: Arc<Listen>,
    limits: Limits,
    /// Connections that count against `limits`.
    live: Arc<AtomicUsize>,
    admission: Option<Arc<AdmissionControl>>,
    counts: Arc<ListenerCounts>,
    handle: Option<LoopHandle>,
    sockets: Vec<Socket>,
}

impl LoopListener {
    fn start(self, number: usize, event_loop: &mut EventLoop) -> io::Result<()> {
        event_loop.admission(self.admission);
        event_loop.begin_listener(self.handle, Some(self.counts));
        (self.listen)(number, event_loop, self.sockets, &self.limits, &self.live)
    }
}
