//! `Server`: an address, loops on threads, and the way to end them.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Codec;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{Address, Driver, ListenOptions, Side, Socket};

use crate::counters::{Counts, Published};
use crate::event_loop::EventLoop;
use crate::handler::Handler;
use crate::limits::{Limits, MEMORY_PER_LOOP_MIN};
use crate::mailbox::{Letter, Mailbox};
use crate::watchdog::Watchdog;

/// A server that has not been started.
///
/// ```
/// use tidegate_codec::framing::Lines;
/// use tidegate_codec::Slice;
/// use tidegate_engine::{Context, Handler, Outcome, Server};
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
/// # Ok::<(), tidegate_engine::StartError>(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    source: Source,
    loops: usize,
    transport: Transport,
    options: ListenOptions,
    limits: Limits,
}

#[derive(Debug)]
enum Source {
    Address(Address),
    Listener(std::os::fd::OwnedFd),
}

/// Which driver the loops run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// The best that is there.
    #[default]
    Auto,
    /// Readiness, through epoll.
    Epoll,
}

impl Server {
    /// A server at `address`: `IP:PORT`, `[IPV6]:PORT`, `localhost:PORT` or `unix:PATH`. Port 0 takes any that is free.
    ///
    /// # Errors
    /// [`StartError::Address`] if that is no address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        address.parse().map(Self::at).map_err(|_| StartError::Address(address.into()))
    }

    /// A server at an address.
    pub fn at(address: Address) -> Self {
        Self::new(Source::Address(address))
    }

    /// A server on a TCP listener that somebody else opened.
    pub fn on_tcp(listener: TcpListener) -> Self {
        Self::new(Source::Listener(listener.into()))
    }

    /// A server on a Unix listener that somebody else opened.
    pub fn on_unix(listener: UnixListener) -> Self {
        Self::new(Source::Listener(listener.into()))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            transport: Transport::default(),
            options: ListenOptions::default(),
            limits: Limits::default(),
        }
    }

    /// How many loops run, each on a thread of its own; one per core unless set.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops.max(1);
        self
    }

    /// Which driver the loops run on.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Options of the listener and its streams. Loops share a TCP address by `reuse_port`, whatever it says here.
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.options = options;
        self
    }

    /// What protects the server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts the loops. `make` makes a codec and a handler for each connection.
    ///
    /// # Errors
    /// [`StartError`], with what to do about it.
    pub fn start<C, H>(self, make: impl Fn() -> (C, H) + Send + Sync + 'static) -> Result<Running, StartError>
    where
        C: Codec,
        H: Handler<C>,
    {
        let make = Arc::new(make);
        self.start_each(move |_| {
            let make = make.clone();
            move |_: &Address| make()
        })
    }

    /// Starts the loops. `each` is called once on each loop's thread, with its number, and what it returns makes a codec
    /// and a handler for each connection there, knowing the peer; so handlers of one loop can share what is not `Send`.
    ///
    /// # Errors
    /// [`StartError`], with what to do about it.
    pub fn start_each<C, H, M>(self, each: impl Fn(usize) -> M + Send + Sync + 'static) -> Result<Running, StartError>
    where
        C: Codec,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        self.launch(move |number, event_loop, listener, limits, live| {
            event_loop.listen(listener, limits, live, each(number))
        })
    }

    /// Starts the loops, on each of which `listen` is called once.
    pub(crate) fn launch(
        self,
        listen: impl Fn(usize, &mut EventLoop, Socket, Limits, Arc<AtomicUsize>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Running, StartError> {
        if !self.limits.water.is_sound() {
            return Err(StartError::WaterMarks);
        }
        if self.limits.memory_max / self.loops < MEMORY_PER_LOOP_MIN {
            return Err(StartError::Memory { bytes: self.limits.memory_max, loops: self.loops });
        }
        let listeners = self.listeners()?;
        let address = listeners[0].address(Side::Local).map_err(StartError::System)?;
        let (listen, live) = (Arc::new(listen), Arc::new(AtomicUsize::new(0)));
        let mut limits = self.limits;
        limits.memory_max /= self.loops;
        let mut running =
            Running { address, transport: "epoll", loops: Vec::with_capacity(self.loops), watchdog: None };
        for (number, listener) in listeners.into_iter().enumerate() {
            let (listen, live, limits, transport) = (listen.clone(), live.clone(), limits.clone(), self.transport);
            let (started, outcome) = channel();
            let thread = std::thread::Builder::new().name(format!("tidegate-{number}")).spawn(move || {
                let memory_max = limits.memory_max;
                run_loop(&started, transport, memory_max, |event_loop| {
                    listen(number, event_loop, listener, limits, live)
                });
            });
            let thread = thread.map_err(StartError::System)?;
            match outcome.recv() {
                Ok(Ok(Started { mailbox, published, transport })) => {
                    running.transport = transport;
                    running.loops.push(RunningLoop { mailbox, published, thread: Some(thread) });
                }
                // Dropping what runs already ends it.
                Ok(Err(error)) => return Err(StartError::System(error)),
                Err(_) => return Err(StartError::Panicked),
            }
        }
        let watched = running.loops.iter().map(|running| running.published.clone());
        running.watchdog = Some(Watchdog::start(watched).map_err(StartError::System)?);
        Ok(running)
    }

    /// One listener for each loop.
    fn listeners(&self) -> Result<Vec<Socket>, StartError> {
        let first = match &self.source {
            Source::Address(address) => self.bound(address)?,
            Source::Listener(descriptor) => {
                let descriptor = descriptor.try_clone().map_err(StartError::System)?;
                Socket::from_listener(descriptor, &self.options).map_err(StartError::System)?
            }
        };
        let address = first.address(Side::Local).map_err(StartError::System)?;
        let mut listeners = vec![first];
        for _ in 1..self.loops {
            let next = match (&self.source, &address) {
                (Source::Address(_), Address::Ip(_)) => Socket::listen(&address, &self.shared_options()),
                _ => listeners[0].try_clone(),
            };
            listeners.push(next.map_err(StartError::System)?);
        }
        Ok(listeners)
    }

    /// The first listener. Where loops share the address, a listener that does not share tries it first: otherwise
    /// a second server could take half of the connections of the first without anybody noticing.
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

/// A server that runs. Dropping it ends it at once; [`drain`](Running::drain) ends it in good order.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub struct Running {
    address: Address,
    transport: &'static str,
    loops: Vec<RunningLoop>,
    /// Watches while the loops end, too: it goes after them.
    watchdog: Option<Watchdog>,
}

#[derive(Debug)]
struct RunningLoop {
    mailbox: Arc<Mailbox>,
    published: Arc<Published>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The driver that was chosen: `epoll`.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// How many loops run.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// What each loop has done so far.
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        self.loops.iter().map(|running| running.published.read()).collect()
    }

    /// Whether all loops run. One that does not has ended because waiting for events failed, or because of a bug.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.loops.iter().all(|running| running.thread.as_ref().is_some_and(|thread| !thread.is_finished()))
    }

    /// Waits until the loops have ended, which they do when waiting for events fails, or if another handle drains them:
    /// for a server that runs as long as its process.
    pub fn wait(mut self) {
        self.join();
    }

    /// Ends the server in good order: nothing more is accepted, connections are told, and those that are still there
    /// after `deadline` are closed. Returns when all loops have ended.
    pub fn drain(mut self, deadline: Duration) {
        self.end(deadline);
    }

    fn end(&mut self, deadline: Duration) {
        for running in &self.loops {
            // A loop that takes no letters has ended already.
            let _ = running.mailbox.send(Letter::Drain(deadline));
        }
        self.join();
    }

    fn join(&mut self) {
        for running in &mut self.loops {
            if let Some(thread) = running.thread.take() {
                // A loop catches the panics of its users; one of its own was printed by its thread.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// What a loop's thread reports once it runs.
struct Started {
    mailbox: Arc<Mailbox>,
    published: Arc<Published>,
    transport: &'static str,
}

/// The life of a loop's thread.
fn run_loop(
    started: &Sender<io::Result<Started>>,
    transport: Transport,
    memory_max: usize,
    listen: impl FnOnce(&mut EventLoop) -> io::Result<()>,
) {
    let pool = Pool::new();
    // Something is left for what the ledger does not count: connections themselves, the loop's own tables, and the
    // allocator's gaps.
    pool.ledger().set_budget(memory_max - memory_max / 8 - (memory_max / 8).min(LOOP_BYTES));
    let driver = match transport {
        Transport::Auto | Transport::Epoll => Readiness::new(&pool).map(|driver| Box::new(driver) as Box<dyn Driver>),
    };
    let ready = driver.and_then(|driver| {
        let transport = driver.name();
        let mut event_loop = EventLoop::new(driver, pool);
        listen(&mut event_loop)?;
        Ok((event_loop, transport))
    });
    match ready {
        Ok((mut event_loop, transport)) => {
            let report = Started { mailbox: event_loop.mailbox(), published: event_loop.published(), transport };
            if started.send(Ok(report)).is_ok()
                && let Err(error) = event_loop.run()
            {
                tracing::error!(%error, "an event loop ended: waiting failed");
            }
        }
        // If nobody listens any more, nobody wants to know.
        Err(error) => drop(started.send(Err(error))),
    }
}

impl std::str::FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            _ => Err(UnknownTransport),
        }
    }
}

/// A transport that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTransport;

impl fmt::Display for UnknownTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such transport: there are auto and epoll")
    }
}

impl std::error::Error for UnknownTransport {}

/// Why a server did not start.
///
/// Its `Debug` is its `Display`: that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum StartError {
    /// The text is no address.
    Address(Box<str>),
    /// Somebody listens there already.
    InUse(Address),
    /// The system does not let us listen there.
    Listen(Address, io::Error),
    /// The low water mark is zero, or lies above the high one: a connection would never become writable again.
    WaterMarks,
    /// The memory is too little for so many loops.
    Memory {
        /// [`Limits::memory_max`].
        bytes: usize,
        /// How many loops were to share it.
        loops: usize,
    },
    /// The closure that makes codecs and handlers for a loop panicked.
    Panicked,
    /// The system failed in another way.
    System(io::Error),
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => {
                write!(f, "'{text}' is no address: write IP:PORT, [IPV6]:PORT, localhost:PORT or unix:PATH")
            }
            Self::InUse(address) => write!(f, "{address} is in use: stop what listens there, or choose another port"),
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::WaterMarks => f.write_str("the low water mark has to lie above zero and not above the high one"),
            Self::Memory { bytes, loops } => {
                write!(f, "{bytes} bytes of memory are too little for {loops} loops: each needs {MEMORY_PER_LOOP_MIN}")
            }
            Self::Panicked => f.write_str("cannot start: the closure that prepares a loop panicked"),
            Self::System(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::System(error) => Some(error),
            _ => None,
        }
    }
}

/// What a loop takes for itself once it has work, roughly.
const LOOP_BYTES: usize = 512 * 1024;
