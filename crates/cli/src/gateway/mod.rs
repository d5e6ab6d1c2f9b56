//! Runs a configuration: `run`, `serve --config`, `serve --root` and `proxy`.
//!
//! `listeners.rs` starts the server, `forwarding.rs` makes forwarders for listeners below HTTP, `routes.rs` makes routers,
//! with `conditions.rs`, `guards.rs`, `rate_stores.rs` and `upstreams.rs`. Here a
//! configuration takes the place of another one, as a whole or not at all. If the listeners stay as they are, the loops
//! take other routers. Otherwise another server starts, which keeps the listeners of the addresses that stay; then the old
//! one drains.

mod conditions;
mod forwarding;
mod guards;
mod listeners;
mod rate_stores;
mod routes;
mod upstreams;

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use clap::Args;
use signal_hook::consts::SIGHUP;
use tidegate::admin::{Admin, ReloadError};
use tidegate::http::UdpProxyCounts;
use tidegate::http::cache::CacheCounts;
use tidegate::metrics::{HttpMetrics, MetricsText};
use tidegate::{Server, StartError};

use self::forwarding::{Forwarder, Forwarding, write_forwarders};
use self::listeners::{ListenPlan, ServerParts};
use self::routes::{OpenRoutes, RouteTable};
use crate::access_log::AccessLines;
use crate::acme;
use crate::admin::RunningAdmin;
use crate::config::{Config, Listen};
use crate::findings;
use crate::log::{self, log_to_stderr_without_spans};
use crate::server::{CUT_SHORT_STATUS, CurrentServer, ProcessOptions, announce, signals, supervise};
use crate::tls::Tls;

/// The flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The configuration (TOML): [[listen]], [[site]], [[route]] and [[upstream]]. SIGHUP reads it again; a file with a
    /// mistake changes nothing
    #[arg(long, value_name = "FILE", required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Print the JSON schema of the file, for editors, and end
    #[arg(long, conflicts_with = "config")]
    schema: bool,
    #[command(flatten)]
    process: ProcessOptions,
}

/// Where the configuration comes from.
pub(crate) enum Source {
    /// A file, and the listener for one without any.
    File(PathBuf, Option<Box<Listen>>),
    /// Flags, which do not change; the files that they name do.
    Flags(Box<dyn Fn() -> Result<Config, Box<dyn Error>> + Send + Sync>),
}

/// Runs a file, or prints the schema.
pub(crate) fn run_file(options: RunOptions) -> Result<(), Box<dyn Error>> {
    match options.config {
        Some(path) => run(Source::File(path, None), options.process),
        None => {
            use std::io::Write as _;
            // A closed standard output is no error.
            let _ = writeln!(std::io::stdout(), "{:#}", crate::config::schema());
            Ok(())
        }
    }
}

/// Serves until SIGTERM, Ctrl-C or a takeover by another server, then drains. A second signal closes all connections.
/// SIGUSR1 prints the counts, SIGHUP reads the files again.
pub(crate) fn run(source: Source, process: ProcessOptions) -> Result<(), Box<dyn Error>> {
    log_to_stderr_without_spans(process.quiet);
    process.set_resolver();
    // Before this process opens descriptors of its own.
    let passed = Server::sockets_from_environment()?;
    // Registered before the server starts, so that no signal is missed once the start-up line is printed.
    let signals = signals()?;
    signals.handle().add_signal(SIGHUP).map_err(StartError::System)?;
    let access_log = process.access_log.open()?;
    let metrics = process.admin.metrics();
    let gateway = Arc::new(Gateway::start(source, process, access_log, metrics, passed)?);
    gateway.start_admin()?;
    gateway.announce();
    gateway.admin.announce();
    let on_hangup = {
        let gateway = gateway.clone();
        move || {
            gateway.reload_and_log();
            gateway.access_log.reopen();
        }
    };
    if supervise(&gateway.servers, &gateway.admin, signals, on_hangup)? {
        log::exit(CUT_SHORT_STATUS);
    }
    Ok(())
}

/// Checks a configuration as a server would read it: opens folders, reads certificates. It listens nowhere, asks no
/// upstream, and leaves the folders of caches alone, which a server may use.
pub(crate) fn check(mut config: Config) -> Result<String, Box<dyn Error>> {
    for cache in config.routes.iter_mut().filter_map(|route| route.guards.cache.as_mut()) {
        cache.check_folder()?;
    }
    OpenRoutes::open(&config, None)?;
    // Reading the file has checked `acme`. Its folder is the server's to make.
    for listen in config.listen.iter().filter(|listen| listen.acme.is_none()) {
        Tls::of(listen, None)?;
    }
    let (listeners, upstreams, routes) = (config.listen.len(), config.upstreams.len(), config.routes.len());
    Ok(format!("{listeners} listeners, {upstreams} upstreams, {routes} routes"))
}

/// A running configuration, and the way to another one.
struct Gateway {
    source: Source,
    process: ProcessOptions,
    /// The sockets of a service manager. They stay open, for the listeners of a later configuration.
    passed: Vec<OwnedFd>,
    access_log: AccessLines,
    metrics: Option<HttpMetrics>,
    servers: CurrentServer,
    admin: RunningAdmin,
    /// The table in use, which can be read during a reload.
    table: Mutex<Arc<RouteTable>>,
    /// The forwarders in use, each with the addresses of its listener.
    forwarders: Mutex<Vec<(String, Forwarder)>>,
    /// Held as long as a reload takes.
    current: Mutex<Running>,
}

/// The configuration in use.
struct Running {
    plan: ListenPlan,
    tls: Vec<Option<Tls>>,
    table: Arc<RouteTable>,
    forwarding: Forwarding,
}

impl Gateway {
    fn start(
        source: Source,
        process: ProcessOptions,
        access_log: AccessLines,
        metrics: Option<HttpMetrics>,
        passed: Vec<OwnedFd>,
    ) -> Result<Self, Box<dyn Error>> {
        let config = source.read(&process)?;
        let plan = ListenPlan::new(&config);
        let table = Arc::new(RouteTable::new(OpenRoutes::open(&config, None)?.maintain()?, access_log.lines()));
        let tls = plan.tls(&process)?;
        let forwarding = Forwarding::open(&config, &process, None)?.maintain()?;
        let parts =
            ServerParts { process: &process, metrics: metrics.as_ref(), table: &table, forwarding: &forwarding };
        let server = plan.start(&parts, &tls, &passed, None)?;
        acme::start()?;
        let (in_use, forwarders) = (Mutex::new(table.clone()), Mutex::new(forwarding.named(&config)));
        let current = Mutex::new(Running { plan, tls, table, forwarding });
        let (servers, admin) = (CurrentServer::new(server), RunningAdmin::default());
        Ok(Self { source, process, passed, access_log, metrics, servers, admin, table: in_use, forwarders, current })
    }

    /// Starts the administrative server, which follows the server and its routes through reloads.
    fn start_admin(self: &Arc<Self>) -> Result<(), Box<dyn Error>> {
        // The administrative server does not keep the gateway.
        let gateway = Arc::downgrade(self);
        let reload = move || match gateway.upgrade() {
            Some(gateway) => gateway.reload_unless_busy(),
            None => Err(ReloadError::Busy),
        };
        let gateway = Arc::downgrade(self);
        let table = move || gateway.upgrade().map(|gateway| gateway.table());
        let gateway = Arc::downgrade(self);
        let forwarders = move || gateway.upgrade().map_or_else(Vec::new, |gateway| gateway.forwarders());
        let (of_caches, of_metrics, of_udp) = (table.clone(), table.clone(), table.clone());
        let caches = move || of_caches().map_or_else(Vec::new, |table| table.caches());
        let servers = self.servers.clone();
        let admin = Admin::following(move || servers.get());
        self.admin.start(&self.process.admin, admin, self.metrics.as_ref(), |admin| {
            let admin = admin
                .upstreams(move || table().map_or_else(Vec::new, |table| table.snapshot()))
                .metrics(move |text| {
                    write_caches(of_metrics().as_deref(), text);
                    write_udp_proxies(of_udp().as_deref(), text);
                    write_forwarders(&forwarders(), text);
                })
                .caches(move || caches().into_iter().map(|(_, cache)| cache).collect());
            let admin = if self.process.has_takeover() { admin.share_address() } else { admin };
            if self.process.admin.allows_reload() { admin.reload(reload) } else { admin }
        })
    }

    /// The table of routes in use.
    fn table(&self) -> Arc<RouteTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The forwarders in use.
    fn forwarders(&self) -> Vec<(String, Forwarder)> {
        self.forwarders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn announce(&self) {
        let running = self.lock();
        announce(&self.servers.get(), &running.plan.schemes());
        findings::announce(&self.process, None, running.tls.iter().flatten());
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a reload that is under way, reads the configuration again, and logs the outcome in one line.
    fn reload_and_log(self: &Arc<Self>) {
        match self.reload(self.lock()) {
            Ok(_) => tracing::info!(subsystem = "config", "configuration reloaded"),
            Err(error) => {
                let error = error.to_string().replace('\n', "; ");
                tracing::error!(subsystem = "config", %error, "configuration not reloaded; the old one stays in use");
            }
        }
    }

    /// The same at the request of the administrative server, unless a reload is under way.
    fn reload_unless_busy(self: &Arc<Self>) -> Result<String, ReloadError> {
        let running = match self.current.try_lock() {
            Ok(running) => running,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(ReloadError::Busy),
        };
        let reloaded = self.reload(running).map_err(|error| error.to_string());
        match &reloaded {
            Ok(summary) => tracing::info!(subsystem = "config", "configuration reloaded: {summary}"),
            Err(error) => {
                tracing::error!(subsystem = "config", %error, "configuration not reloaded; the old one stays in use");
            }
        }
        reloaded.map_err(ReloadError::Mistakes)
    }

    /// Reads the configuration again. If that fails, nothing has changed.
    fn reload(self: &Arc<Self>, mut running: MutexGuard<'_, Running>) -> Result<String, Box<dyn Error>> {
        let config = self.source.read(&self.process)?;
        let plan = ListenPlan::new(&config);
        // Before anything changes: certificates that cannot be used refuse the configuration.
        acme::forget_unstarted();
        let tls = plan.tls(&self.process)?;
        let routes = OpenRoutes::open(&config, Some(&running.table.current()))?.maintain()?;
        let forwarding = Forwarding::open(&config, &self.process, Some(&running.forwarding))?.maintain()?;
        let summary = format!("{} listeners, {} routes", config.listen.len(), config.routes.len());
        if plan == running.plan {
            running.table.replace(routes);
            running.tls.iter().flatten().for_each(Tls::reload);
            running.forwarding = forwarding.continue_with(&running.forwarding, &config, &self.process)?;
            acme::start_or_log();
            return Ok(summary);
        }
        let table = Arc::new(RouteTable::new(routes, self.access_log.lines()));
        let (process, metrics) = (&self.process, self.metrics.as_ref());
        let parts = ServerParts { process, metrics, table: &table, forwarding: &forwarding };
        let schemes = plan.schemes();
        running.plan.hand_tickets_over(&running.tls, &plan, &tls);
        self.servers.replace(|old| plan.start(&parts, &tls, &self.passed, Some(old)))?;
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = table.clone();
        *self.forwarders.lock().unwrap_or_else(PoisonError::into_inner) = forwarding.named(&config);
        *running = Running { plan, tls, table, forwarding };
        acme::retain(&running.plan.listens);
        acme::start_or_log();
        let server = self.servers.get();
        tracing::info!(subsystem = "config", addresses = ?listeners::addresses(&server), "listeners changed");
        announce(&server, &schemes);
        Ok(summary)
    }
}

/// Writes the figures of the caches in use.
fn write_caches(table: Option<&RouteTable>, text: &mut MetricsText) {
    let caches = table.map_or_else(Vec::new, RouteTable::caches);
    if !caches.is_empty() {
        let named: Vec<_> = caches.iter().map(|(name, cache)| (name.as_str(), cache)).collect();
        CacheCounts::write_metrics(&named, text);
    }
}

/// Writes the figures of the UDP proxies in use.
fn write_udp_proxies(table: Option<&RouteTable>, text: &mut MetricsText) {
    let proxies = table.map_or_else(Vec::new, RouteTable::udp_proxies);
    if !proxies.is_empty() {
        let named: Vec<_> = proxies.iter().map(|(name, counts)| (name.as_str(), *counts)).collect();
        UdpProxyCounts::write_metrics(&named, text);
    }
}

impl Source {
    /// The configuration, with the parts that flags have in its place.
    fn read(&self, process: &ProcessOptions) -> Result<Config, Box<dyn Error>> {
        let mut config = match self {
            Self::Flags(read) => read()?,
            Self::File(path, listener) => {
                let mut config = Config::load(path)?;
                if config.listen.is_empty() {
                    let none = || format!("{}: there is no [[listen]]", path.display());
                    config.listen.push(*listener.clone().ok_or_else(none)?);
                }
                config
            }
        };
        if let Some(mut telemetry) = process.telemetry.settings()? {
            telemetry.trusted = Some(config.trusted.clone());
            config.telemetry = Some(telemetry);
        }
        Ok(config)
    }
}
