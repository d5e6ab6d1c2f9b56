//! Shared parts of `serve` and `proxy`: the flags of a server, its signals, its start-up lines, its end.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tidegate::dns::HostResolver;
use tidegate::engine::{RunningListener, WatchdogFeeder, set_default_resolver};
use tidegate::proxy_protocol::{Networks, Policy};
use tidegate::{
    Address, Admission, Backend, Limits, ListenOptions, Listener, LoadBalancing, Server, ServerHandle, ServiceManager,
    StartError, http, http1,
};

use crate::access_log::{self, AccessLogOptions};
use crate::admin::{AdminOptions, RunningAdmin};
use crate::admission::AdmissionOptions;
use crate::complain::complain;
use crate::config::{HeaderMode, Listen, Located};
use crate::counts;
use crate::limits::LimitOptions;
use crate::log;
use crate::telemetry::TelemetryOptions;
use crate::tls::{Tls, TlsOptions};

/// The flags of a server that has one kind of listener.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address to listen on, may be repeated: IP:PORT, [IPV6]:PORT, [IPV6%INTERFACE]:PORT, localhost:PORT, unix:PATH
    /// or unix:@NAME (abstract); port 0 picks a free port, and [::] accepts IPv4 too. A socket that the environment passes (LISTEN_FDS, LISTEN_PID) serves the address that it is bound to; if none is bound to an address of the only listener, they take the place of its addresses. With --takeover,
    /// an address at which the running server listens keeps its listeners
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: Vec<Address>,
    /// Accept only IPv6 at [::]; so it is with 0.0.0.0 at the same port, too
    #[arg(long)]
    ipv6_only: bool,
    /// PROXY protocol, versions 1 and 2, on all listeners: off, optional or required. A header counts only from a trusted
    /// network: another peer that sends one is disconnected, and with `required` every other peer is
    #[arg(long, value_name = "MODE", value_enum, default_value = "off")]
    proxy_protocol: HeaderMode,
    /// Network whose PROXY headers are trusted, may be repeated: ADDRESS, ADDRESS/BITS, or unix for Unix sockets
    /// [default: this machine: 127.0.0.0/8, ::1 and unix]
    #[arg(long, value_name = "NETWORK")]
    proxy_trusted: Vec<Networks>,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    pub(crate) process: ProcessOptions,
}

/// The flags of any server: its loops, its limits, its logs.
#[derive(Debug, Args)]
pub(crate) struct ProcessOptions {
    /// Number of event loops, each on its own thread [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
    /// I/O backend: epoll, uring or auto; auto uses TIDEGATE_BACKEND from the environment if it is set, and otherwise
    /// io_uring where the kernel supports it
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Backend,
    /// Assign each new connection to the loop with the fewest connections: for few, long-lived connections, and for
    /// listeners that loops share, such as Unix sockets
    #[arg(long)]
    least_loaded: bool,
    /// Maximum concurrent connections; further ones wait in the kernel [default: 3/4 of the descriptor limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    #[command(flatten)]
    admission: AdmissionOptions,
    #[command(flatten)]
    limits: LimitOptions,
    /// Resolver of the names of upstreams, of authorities and of other servers: dns asks the servers of /etc/resolv.conf
    /// on the event loops, with /etc/hosts and the TTLs of the answers; system is that of the C library, with
    /// /etc/nsswitch.conf, on threads
    #[arg(long, value_name = "NAME", value_enum, default_value = "dns")]
    resolver: ResolverName,
    /// Refuse request targets with bytes that no URI has (RFC 3986), such as | and raw UTF-8, and with a % without two
    /// hexadecimal digits; browsers send such targets
    #[arg(long)]
    pub(crate) strict_targets: bool,
    /// Maximum memory of all connections, in bytes [default: half of the machine's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(MEMORY_MAX_FLOOR..))]
    memory_max: Option<u64>,
    /// Timeout of a request's head, and grace period of its body, in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    request_timeout: Option<u32>,
    /// Keep-alive timeout: seconds that a connection may be idle between requests. HTTP/1.1 responses name any but the
    /// default one as `Keep-Alive: timeout=N`, a second below [default: 75]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_timeout: Option<u32>,
    /// Write timeout: seconds without progress in sending pending output to a peer [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    write_timeout: Option<u32>,
    /// Minimum rate at which a request's body must arrive, in bytes per second; 0 for none [default: 240]
    #[arg(long, value_name = "BYTES")]
    body_rate_min: Option<u32>,
    /// Minimum rate at which a peer must read pending output, in bytes per second: a slower peer makes no progress for
    /// --write-timeout; 0 for none [default: 240]
    #[arg(long, value_name = "BYTES")]
    write_rate_min: Option<u32>,
    /// Keep requests in progress over HTTP/1.1 when their client ends its side of the connection: it may still read. By
    /// default they end, as most clients that do so have left
    #[arg(long)]
    pub(crate) half_close: bool,
    /// Zero-downtime restart: take over the listeners of the running server that was started with the same PATH, if
    /// any; that server drains and exits. Then offer our listeners at PATH to the next server
    #[arg(long, value_name = "PATH")]
    takeover: Option<PathBuf>,
    /// Do not announce extended CONNECT to HTTP/2 clients (RFC 8441): browsers open WebSockets over HTTP/1.1
    #[arg(long)]
    no_extended_connect: bool,
    #[command(flatten)]
    pub(crate) access_log: AccessLogOptions,
    #[command(flatten)]
    pub(crate) telemetry: TelemetryOptions,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
    /// Log only errors of the server itself, not errors of peers; the start-up line is always printed
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Resolves names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResolverName {
    /// The resolver of this program.
    Dns,
    /// That of the system.
    System,
}

impl ResolverName {
    /// Makes it the resolver of the process.
    pub(crate) fn set_as_default(self) {
        match self {
            Self::Dns => HostResolver::of_system().set_as_default(),
            Self::System => set_default_resolver(None),
        }
    }
}

impl ProcessOptions {
    /// Makes the resolver of the flags that of the process, before any name is resolved.
    pub(crate) fn set_resolver(&self) {
        self.resolver.set_as_default();
    }

    /// The limits of connections.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if let Some(connections) = self.max_connections {
            limits.connections_max = connections as usize;
        }
        if let Some(bytes) = self.memory_max {
            limits.memory_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        if let Some(seconds) = self.write_timeout {
            limits.write_timeout = Duration::from_secs(seconds.into());
        }
        if let Some(bytes) = self.write_rate_min {
            limits.write_rate_min = bytes;
        }
        self.limits.apply(&mut limits);
        limits
    }

    /// Adds the settings that do not depend on listeners.
    pub(crate) fn apply(&self, server: Server) -> Server {
        let admission = self.admission.admission();
        let mut server =
            server.backend(self.backend).limits(self.limits()).admission(admission).without_tokio_runtime();
        if self.least_loaded {
            server = server.load_balancing(LoadBalancing::LeastLoaded);
        }
        if let Some(path) = &self.takeover {
            server = server.takeover(path);
        }
        if let Some(loops) = self.loops {
            server = server.loops(loops.into());
        }
        server
    }

    /// The HTTP/1.1 limits.
    pub(crate) fn limits_of_http1(&self) -> http1::Limits {
        let mut limits_of_http = default_limits_of_http1();
        if let Some(seconds) = self.request_timeout {
            let timeout = Duration::from_secs(seconds.into());
            (limits_of_http.head_timeout, limits_of_http.body_timeout) = (timeout, timeout);
        }
        if let Some(bytes) = self.body_rate_min {
            limits_of_http.body_rate_min = bytes;
        }
        if let Some(seconds) = self.idle_timeout {
            limits_of_http.idle_timeout = Duration::from_secs(seconds.into());
        }
        limits_of_http
    }

    /// The same limits for the layer of applications.
    pub(crate) fn limits_of_http(&self) -> http::Limits {
        let (engine, http1) = (self.limits(), self.limits_of_http1());
        let mut limits = http::Limits::default();
        limits.connections_max = engine.connections_max;
        limits.memory_max = engine.memory_max;
        limits.write_timeout = engine.write_timeout;
        limits.write_rate_min = engine.write_rate_min;
        limits.deadlines = engine.deadlines;
        limits.shaping = engine.shaping;
        limits.head_timeout = http1.head_timeout;
        limits.body_timeout = http1.body_timeout;
        limits.body_rate_min = http1.body_rate_min;
        limits.body_bytes_max = http1.body_bytes_max;
        limits.idle_timeout = http1.idle_timeout;
        limits
    }

    /// Whether clients may open WebSockets over HTTP/2.
    pub(crate) fn extends_connect(&self) -> bool {
        !self.no_extended_connect
    }

    /// Whether a successor takes the listeners over.
    pub(crate) fn has_takeover(&self) -> bool {
        self.takeover.is_some()
    }

    /// How long handshakes may take, unless a listener says otherwise.
    pub(crate) fn handshake_timeout(&self) -> Option<Duration> {
        self.limits.handshake_timeout()
    }

    /// Which peers may connect.
    pub(crate) fn admission(&self) -> Admission {
        self.admission.admission()
    }
}

impl ServerOptions {
    /// The server without services on its listener: bound to the addresses, or on the sockets that a service manager passed.
    pub(crate) fn server(&self, passed: Vec<OwnedFd>) -> Server {
        let options = ListenOptions { only_v6: self.ipv6_only, ..ListenOptions::default() };
        let listener = self.listen.iter().cloned().collect::<Listener>().options(options);
        self.process.apply(Server::on(listener)).passed(passed)
    }

    /// The listener of the flags, as a file would have it.
    pub(crate) fn as_listen(&self) -> Result<Listen, String> {
        let mut listen = Listen {
            addresses: self.listen.iter().cloned().map(Located::of_flag).collect(),
            ipv6_only: self.ipv6_only,
            proxy_protocol: self.proxy_protocol,
            proxy_trusted: (!self.proxy_trusted.is_empty()).then(|| self.trusted()),
            ..Listen::default()
        };
        self.tls.add_to(&mut listen)?;
        Ok(listen)
    }

    /// The HTTPS configuration; `None` without its flags.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Box<dyn Error>> {
        Tls::of(&self.as_listen()?, self.process.handshake_timeout())
    }

    pub(crate) fn has_proxy_protocol(&self) -> bool {
        self.proxy_protocol != HeaderMode::Off
    }

    /// Whether connections begin with a PROXY header, and whose headers count.
    pub(crate) fn proxy_policy(&self) -> Policy {
        let trusted = (!self.proxy_trusted.is_empty()).then(|| self.trusted());
        self.proxy_protocol.policy(trusted.as_ref())
    }

    fn trusted(&self) -> Networks {
        self.proxy_trusted.iter().fold(Networks::default(), |all, networks| all.and_all(networks))
    }
}

/// The HTTP/1.1 limits without flags.
pub(crate) fn default_limits_of_http1() -> http1::Limits {
    http1::Limits { body_bytes_max: BODY_BYTES_MAX, ..http1::Limits::default() }
}

/// Registers the signals, before the server starts, so that none is missed once the start-up line is printed.
pub(crate) fn signals() -> Result<Signals, StartError> {
    Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(StartError::System)
}

/// The running server of the process, which another one may replace.
#[derive(Clone)]
pub(crate) struct CurrentServer {
    /// The server, and how many came before it.
    current: Arc<Mutex<(u64, ServerHandle)>>,
    /// Held while one replaces another, and while a drain begins: whether it has.
    is_ending: Arc<Mutex<bool>>,
}

impl CurrentServer {
    pub(crate) fn new(server: ServerHandle) -> Self {
        Self { current: Arc::new(Mutex::new((0, server))), is_ending: Arc::default() }
    }

    pub(crate) fn get(&self) -> ServerHandle {
        self.numbered().1
    }

    fn numbered(&self) -> (u64, ServerHandle) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_current(&self, number: u64) -> bool {
        self.numbered().0 == number
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server that `start` returns take the place of the current one, which drains.
    pub(crate) fn replace(
        &self,
        start: impl FnOnce(&ServerHandle) -> Result<ServerHandle, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let is_ending = self.lock();
        if *is_ending {
            return Err("the server is ending".into());
        }
        let (number, old) = self.numbered();
        let new = start(&old)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (number + 1, new);
        old.begin_drain(DRAIN_DEADLINE);
        // The old loops accept connections until each has seen the drain.
        let wait = move || {
            old.wait();
            tracing::info!(subsystem = "config", "the replaced server has ended");
        };
        std::thread::Builder::new().name("tidegate-replaced".into()).spawn(wait)?;
        Ok(())
    }

    /// Begins to end: no server replaces the current one from here on.
    fn begin_drain(&self, deadline: Duration) {
        let mut is_ending = self.lock();
        *is_ending = true;
        self.get().begin_drain(deadline);
    }

    /// Waits until a server of another process has taken over; `false` if the server ends without that.
    fn wait_for_takeover(&self) -> bool {
        loop {
            let (number, server) = self.numbered();
            let superseded = server.superseded();
            drop(server);
            let is_superseded = superseded.wait();
            // A server of this process that takes over does so with the lock.
            drop(self.lock());
            if self.is_current(number) {
                return is_superseded;
            }
        }
    }
}

/// Waits until the server has ended: by SIGTERM, Ctrl-C, or a takeover by another server. Returns whether a second signal
/// has closed its connections.
pub(crate) fn supervise(
    servers: &CurrentServer,
    admin: &RunningAdmin,
    signals: Signals,
    on_hangup: impl Fn() + Send + 'static,
) -> Result<bool, StartError> {
    let manager = ServiceManager::of_environment();
    let mut watchdog = WatchdogFeeder::new(&manager);
    manager.listening(&servers.get());
    let mut is_stopping = false;
    let shutdown = Arc::new(Shutdown::default());
    let (taken, on_superseded, superseded_admin) = (servers.clone(), shutdown.clone(), admin.clone());
    let on_takeover = move || {
        if taken.wait_for_takeover() {
            // The successor has one at the same address.
            superseded_admin.end();
            on_superseded.has_begun.store(true, Ordering::Relaxed);
            taken.begin_drain(DRAIN_DEADLINE);
        }
    };
    std::thread::Builder::new().name("tidegate-takeover".into()).spawn(on_takeover).map_err(StartError::System)?;
    let (signaled, on_signal) = (servers.clone(), shutdown.clone());
    // A reload may wait for names and files for long, and a signal ends the server in the meantime. One that comes during a
    // reload has another one follow; further ones are that same one.
    let (reloads, reload_requests) = mpsc::sync_channel(1);
    let reload = move || reload_requests.iter().for_each(|()| on_hangup());
    std::thread::Builder::new().name("tidegate-reload".into()).spawn(reload).map_err(StartError::System)?;
    let on_signal = move || handle_signals(signals, &signaled, &on_signal, &reloads);
    std::thread::Builder::new().name("tidegate-signals".into()).spawn(on_signal).map_err(StartError::System)?;
    loop {
        let (number, server) = servers.numbered();
        let has_ended = server.wait_timeout(watchdog.wait_max(LOOP_CHECK_INTERVAL));
        if !servers.is_current(number) {
            continue;
        }
        if server.is_draining() && !std::mem::replace(&mut is_stopping, true) {
            manager.stopping();
        }
        watchdog.feed(&manager, &server);
        if !server.all_loops_run() && !shutdown.has_begun.load(Ordering::Relaxed) {
            complain(format_args!("an event loop has ended; nothing can be served without it"));
            log::exit(1);
        }
        if has_ended {
            break;
        }
    }
    admin.end();
    Ok(shutdown.is_cut_short.load(Ordering::Relaxed))
}

/// The requests of signals and takeovers so far.
#[derive(Debug, Default)]
struct Shutdown {
    has_begun: AtomicBool,
    is_cut_short: AtomicBool,
}

/// SIGUSR1 prints the counts and opens the access log again, SIGHUP has another thread read files again. The first other signal
/// drains the server, and the second closes its connections. The third exits, which helps if a loop is stuck.
fn handle_signals(mut signals: Signals, servers: &CurrentServer, shutdown: &Shutdown, reloads: &SyncSender<()>) {
    let mut requests = 0;
    for signal in signals.forever() {
        if signal == SIGUSR1 {
            counts::print(&servers.get());
            access_log::reopen();
            continue;
        }
        if signal == SIGHUP {
            // Where one waits already, it reads the files as they are now.
            let _ = reloads.try_send(());
            continue;
        }
        requests += 1;
        match requests {
            1 => {
                shutdown.has_begun.store(true, Ordering::Relaxed);
                servers.begin_drain(DRAIN_DEADLINE);
                servers.get().log_drain(DRAIN_DEADLINE);
            }
            2 => {
                shutdown.is_cut_short.store(true, Ordering::Relaxed);
                servers.begin_drain(Duration::ZERO);
            }
            _ => log::exit(CUT_SHORT_STATUS),
        }
    }
}

/// Prints a start-up line for each address: address, backend, number of loops. `schemes` has one for each listener.
pub(crate) fn announce(running: &ServerHandle, schemes: &[&str]) {
    let (backend, loops) = (running.backend(), running.loops());
    let plural = if loops == 1 { "" } else { "s" };
    let mut lines = Vec::new();
    for (number, listener) in running.listeners().iter().enumerate() {
        let scheme = schemes.get(number).copied().unwrap_or("http://");
        for address in RunningListener::addresses(listener) {
            let scheme = if address.ip().is_some() { scheme } else { "" };
            let (scheme, over) = if listener.label() == HTTP3 { ("https://", "HTTP/3, ") } else { (scheme, "") };
            lines.push(format!("tidegate: listening on {scheme}{address} ({over}{backend}, {loops} loop{plural})"));
        }
    }
    log::announce(&lines.join("\n"));
}

/// The label of UDP sockets beside a listener.
const HTTP3: &str = "http3";

/// How often the main thread checks that all loops are alive.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long connections may take to finish requests in progress: Kubernetes kills a process 30 seconds after SIGTERM.
const DRAIN_DEADLINE: Duration = Duration::from_secs(25);

/// The exit status after a second signal, as a shell reports a process that SIGINT has ended.
pub(crate) const CUT_SHORT_STATUS: i32 = 130;

/// The maximum length of a request's body, of which nothing is kept.
const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// With less memory than this a loop could not buffer even one connection's input.
const MEMORY_MAX_FLOOR: u64 = 1024 * 1024;
