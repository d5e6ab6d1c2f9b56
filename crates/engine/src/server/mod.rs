//! `Server`: where it listens, how many loops it has, and which loop accepts from which listener.
//!
//! Read next: `handle.rs`, the running server; `acceptor.rs`, what a loop does with a listener; `serve.rs`, how a
//! stream becomes a channel with a task; `load_balancing.rs`, how a loop hands a stream to another; `takeover.rs`, the
//! other source of listeners.

pub(crate) mod acceptor;
mod backend;
mod control_socket;
mod handle;
pub(crate) mod load_balancing;
pub(crate) mod serve;
mod start_error;
mod takeover;
mod watchdog;

use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tidegate_codec::Pipeline;
use tidegate_sys::{Address, ListenOptions, Side, Socket, handover, inherited};

pub use self::backend::{Backend, UnknownBackend};
use self::handle::ServerState;
pub use self::handle::{ServerHandle, Superseded};
pub use self::load_balancing::LoadBalancing;
use self::load_balancing::LoopGroup;
pub use self::start_error::StartError;
use self::takeover::Takeover;
use crate::event_loop::EventLoop;
use crate::handler::Handler;
use crate::limits::{Limits, MEMORY_PER_LOOP_MIN};
use crate::loop_core::catch_and_log;

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
    source: Source,
    loops: usize,
    backend: Backend,
    load_balancing: LoadBalancing,
    options: ListenOptions,
    limits: Limits,
    takeover: Option<PathBuf>,
}

#[derive(Debug)]
enum Source {
    Address(Address),
    Listeners(Vec<OwnedFd>),
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
    /// A server at `address`: `IP:PORT`, `[IPV6]:PORT`, `localhost:PORT`, `unix:PATH`, or `unix:@NAME` for a name in
    /// the abstract namespace of Linux. For port 0 the kernel chooses a free one.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        address.parse().map(Self::at).map_err(|_| StartError::Address(address.into()))
    }

    /// A server at an address.
    pub fn at(address: Address) -> Self {
        Self::new(Source::Address(address))
    }

    /// A server on a TCP listener that the caller opened.
    pub fn on_tcp(listener: TcpListener) -> Self {
        Self::on_listeners(vec![listener.into()])
    }

    /// A server on a Unix listener that the caller opened.
    pub fn on_unix(listener: UnixListener) -> Self {
        Self::on_listeners(vec![listener.into()])
    }

    /// A server on listening stream sockets that the caller opened. Every one of them is accepted from, for any number
    /// of loops: by one loop, or by several if it is the only one at its address.
    pub fn on_listeners(listeners: Vec<OwnedFd>) -> Self {
        Self::new(Source::Listeners(listeners))
    }

    /// A server on the listeners that a service manager has passed to this process (`LISTEN_PID` and `LISTEN_FDS`, as
    /// of `sd_listen_fds(3)`); `None` if it has passed none, or an earlier call has taken them. Call this early, before
    /// the process deals with descriptors by number.
    ///
    /// # Errors
    /// [`StartError::Inherited`] if the variables are malformed, or a passed descriptor is not a listener.
    pub fn from_environment() -> Result<Option<Self>, StartError> {
        let listeners = inherited::take().map_err(StartError::Inherited)?;
        Ok(listeners.map(Self::on_listeners))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            backend: Backend::default(),
            load_balancing: LoadBalancing::default(),
            options: ListenOptions::default(),
            limits: Limits::default(),
            takeover: None,
        }
    }

    /// How many loops run, each on a thread of its own; one per core unless set.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops.max(1);
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

    /// Options of the listener and its streams. Loops share a TCP address by `reuse_port`, whatever these options say.
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.options = options;
        self
    }

    /// What protects the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
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

    /// Starts the loops. `make` makes a codec and a handler for each connection.
    ///
    /// # Errors
    /// [`StartError`], with what to do about it.
    pub fn start<C, H>(self, make: impl Fn() -> (C, H) + Send + Sync + 'static) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        H: Handler<C>,
    {
        let make = Arc::new(make);
        self.start_each(move |_| {
            let make = make.clone();
            move |_: &Address| make()
        })
    }

    /// Starts the loops. `each` is called once on each loop's thread, with the loop's number. It returns a closure that
    /// makes a codec and a handler for each connection there, given the peer's address; so handlers of one loop can
    /// share what is not `Send`. `each` may start tasks, which end with the loop.
    ///
    /// # Errors
    /// [`StartError`], with what to do about it.
    pub fn start_each<C, H, M>(
        self,
        each: impl Fn(usize) -> M + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError>
    where
        C: Pipeline,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        self.launch(move |number, event_loop, listeners, limits, live| {
            let make = Rc::new(RefCell::new(each(number)));
            listeners.into_iter().try_for_each(|listener| {
                let make = make.clone();
                event_loop.listen(listener, limits.clone(), live.clone(), move |peer| (make.borrow_mut())(peer))
            })
        })
    }

    /// Starts the loops. `listen` is called once on each loop's thread, with its number, the listeners that it is to
    /// accept from, its limits, and the count of connections that all loops share.
    pub(crate) fn launch(
        mut self,
        listen: impl Fn(usize, &mut EventLoop, Vec<Socket>, Limits, Arc<AtomicUsize>) -> io::Result<()>
        + Send
        + Sync
        + 'static,
    ) -> Result<ServerHandle, StartError> {
        self.check()?;
        let plan = self.backend.plan()?;
        let takeover = self.begin_takeover()?;
        let listeners = self.listeners()?;
        let none = || StartError::System(io::Error::new(io::ErrorKind::InvalidInput, "there is no listener"));
        let first = listeners.first().ok_or_else(none)?;
        let mut running = ServerState::new(first.address(Side::Local).map_err(StartError::System)?);
        let kept = if takeover.is_some() { &listeners[..] } else { &[] };
        let kept = kept.iter().map(Socket::try_clone).collect::<io::Result<_>>().map_err(StartError::System)?;
        let (listen, live) = (Arc::new(listen), Arc::new(AtomicUsize::new(0)));
        let mut limits = self.limits;
        limits.memory_max /= self.loops;
        let per_loop = assign_listeners(listeners, self.loops).map_err(StartError::System)?;
        let hands_over = self.load_balancing == LoadBalancing::LeastLoaded && self.loops > 1;
        let group = hands_over.then(|| LoopGroup::new(self.loops, live.clone()));
        for (number, sockets) in per_loop.into_iter().enumerate() {
            let (listen, live, limits) = (listen.clone(), live.clone(), limits.clone());
            let handle = group.as_ref().map(|group| group.handle(number));
            running.add(plan, limits.memory_max, move |event_loop| {
                if let Some(handle) = handle {
                    event_loop.join_group(handle);
                }
                listen(number, event_loop, sockets, limits, live)
            })?;
        }
        running.into_handle(|superseded| {
            let Some((path, takeover)) = takeover else { return Ok(None) };
            takeover.complete(kept, superseded).map(Some).map_err(|error| StartError::Takeover(path, error))
        })
    }

    fn check(&self) -> Result<(), StartError> {
        if !self.limits.water.is_sound() {
            return Err(StartError::WaterMarks);
        }
        if self.limits.memory_max / self.loops < MEMORY_PER_LOOP_MIN {
            return Err(StartError::Memory { bytes: self.limits.memory_max, loops: self.loops });
        }
        Ok(())
    }

    /// Checks whether a server runs at the path, if one was set, and takes its listeners.
    fn begin_takeover(&mut self) -> Result<Option<(PathBuf, Takeover)>, StartError> {
        let Some(path) = self.takeover.take() else { return Ok(None) };
        match Takeover::begin(&path) {
            Ok((takeover, listeners)) => {
                listeners.map_or(Ok(()), |listeners| self.replace_listeners(listeners))?;
                Ok(Some((path, takeover)))
            }
            Err(error) => Err(StartError::Takeover(path, error)),
        }
    }

    /// Replaces the source by listeners that were taken over. A different configured address is logged: this server
    /// does not listen there.
    fn replace_listeners(&mut self, listeners: Vec<OwnedFd>) -> Result<(), StartError> {
        let taken = Source::Listeners(listeners);
        if let Source::Address(wanted) = std::mem::replace(&mut self.source, taken) {
            let listeners = self.listeners()?;
            let addresses = listeners.iter().map(|listener| listener.address(Side::Local));
            let found = addresses.filter_map(Result::ok).any(|address| match (&wanted, &address) {
                (Address::Ip(wanted), Address::Ip(address)) if wanted.port() == 0 => wanted.ip() == address.ip(),
                _ => wanted == address,
            });
            if !found {
                catch_and_log(|| {
                    let reason = "the listeners of the server before are used";
                    tracing::warn!(subsystem = "takeover", address = %wanted, reason, "address ignored");
                });
            }
        }
        Ok(())
    }

    /// The listeners to accept from. On TCP each loop has its own listener, and the kernel distributes connections over
    /// them; other listeners are shared.
    fn listeners(&self) -> Result<Vec<Socket>, StartError> {
        let address = match &self.source {
            Source::Address(address) => address,
            Source::Listeners(descriptors) => {
                let adopt = |descriptor: &OwnedFd| {
                    handover::check(descriptor.as_fd())?;
                    Socket::from_listener(descriptor.try_clone()?, &self.options)
                };
                return descriptors.iter().map(adopt).collect::<io::Result<_>>().map_err(StartError::System);
            }
        };
        let first = self.bound(address)?;
        let address = first.address(Side::Local).map_err(StartError::System)?;
        let mut listeners = vec![first];
        if address.ip().is_some() {
            for _ in 1..self.loops {
                listeners.push(Socket::listen(&address, &self.shared_options()).map_err(StartError::System)?);
            }
        }
        Ok(listeners)
    }

    /// The first listener. Where loops share the address, a listener that does not share tries it first: otherwise a
    /// second server could silently take half of the connections of the first.
    fn bound(&self, address: &Address) -> Result<Socket, StartError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse(address.clone()),
            _ => StartError::Listen(address.clone(), error),
        };
        let alone = Socket::listen(address, &self.options).map_err(failed)?;
        if self.loops == 1 || address.ip().is_none() || self.options.reuse_port {
            return Ok(alone);
        }
        let address = alone.address(Side::Local).map_err(StartError::System)?;
        drop(alone);
        Socket::listen(&address, &self.shared_options()).map_err(failed)
    }

    fn shared_options(&self) -> ListenOptions {
        ListenOptions { reuse_port: true, ..self.options.clone() }
    }
}
