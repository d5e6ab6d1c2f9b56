//! `Supervisor`: waits for the end of a server, by signals or a takeover, and keeps a service manager informed.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;

use super::handle::ServerHandle;
use super::service_manager::ServiceManager;
use super::watchdog_feeder::WatchdogFeeder;
use crate::unwind::catch_and_log;

/// Runs a server until SIGTERM, SIGINT, or a [takeover](crate::Server::takeover): then it drains. A second signal cuts the
/// drain short, and a third one ends the wait even if a loop hangs. [`ServerHandle::run_until_signal`] is the short form.
///
/// A [`ServiceManager`] is notified of the start, of each reload, of the drain, and twice in the interval of its watchdog
/// as long as all loops get on.
///
/// ```no_run
/// use std::time::Duration;
///
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, ChannelError, Server, Supervisor};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Before the server starts, so that no signal is missed.
/// let supervisor = Supervisor::new()?.on_hangup(|| println!("reading the configuration again"))?;
/// let server = Server::bind("127.0.0.1:7000")?.serve(Lines::default, echo)?;
/// let end = supervisor.run(&server, Duration::from_secs(25))?;
/// println!("{end:?}");
/// # Ok(())
/// # }
/// ```
#[must_use = "a supervisor does nothing until it runs"]
pub struct Supervisor {
    signals: Signals,
    manager: ServiceManager,
    on_hangup: Option<Box<dyn Fn() + Send>>,
    on_user_signal: Option<OnUserSignal>,
    on_superseded: Option<Box<dyn FnOnce() + Send>>,
}

/// The action of a user signal.
type OnUserSignal = Box<dyn Fn(&ServerHandle) + Send>;

/// How a server ended that a [`Supervisor`] ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEnd {
    /// All connections ended, or the time of the drain did.
    Drained,
    /// A second signal closed the connections. A shell expects the exit status 130.
    CutShort,
    /// A loop has ended by itself, by a panic outside of all connections. Nothing can be served without it.
    LoopEnded,
}

impl Supervisor {
    /// Registers SIGTERM and SIGINT, and reads the [service manager](ServiceManager::of_environment) from the environment.
    ///
    /// # Errors
    /// The system refuses: it has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let has_returned = default_actions()?;
        has_returned.store(false, Ordering::Relaxed);
        Ok(Self {
            signals: Signals::new([SIGTERM, SIGINT])?,
            manager: ServiceManager::of_environment(),
            on_hangup: None,
            on_user_signal: None,
            on_superseded: None,
        })
    }

    /// Notifies this service manager.
    pub fn service_manager(self, manager: ServiceManager) -> Self {
        Self { manager, ..self }
    }

    /// At SIGHUP calls a function that reads files again. It runs on a thread of its own, one call at a time.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn on_hangup(mut self, act: impl Fn() + Send + 'static) -> io::Result<Self> {
        self.signals.add_signal(SIGHUP)?;
        self.on_hangup = Some(Box::new(act));
        Ok(self)
    }

    /// Registers SIGHUP already, for [`on_hangup`](Self::on_hangup) later: until then it does nothing, instead of ending the
    /// process.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn with_hangup(self) -> io::Result<Self> {
        self.signals.add_signal(SIGHUP)?;
        Ok(self)
    }

    /// At SIGUSR1 calls a function.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn on_user_signal(mut self, act: impl Fn(&ServerHandle) + Send + 'static) -> io::Result<Self> {
        self.signals.add_signal(SIGUSR1)?;
        self.on_user_signal = Some(Box::new(act));
        Ok(self)
    }

    /// When a successor has taken the listeners over, calls a function before the drain begins.
    pub fn on_superseded(mut self, act: impl FnOnce() + Send + 'static) -> Self {
        self.on_superseded = Some(Box::new(act));
        self
    }

    /// Runs until the server has ended. The connections have the time `drain` for their requests in progress;
    /// Kubernetes kills 30 seconds after SIGTERM, so 25 seconds leave time for the rest of the program.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn run(self, server: &ServerHandle, drain: Duration) -> io::Result<ServerEnd> {
        let Self { mut signals, manager, on_hangup, on_user_signal, on_superseded } = self;
        let (manager, progress) = (Arc::new(manager), Arc::new(Progress::default()));
        manager.listening(server);
        let signal_handle = signals.handle();
        let (handle, of_signals, manager_of_signals) = (server.clone(), progress.clone(), manager.clone());
        let on_signals = move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => {
                        manager_of_signals.reloading();
                        on_hangup.iter().for_each(|act| act());
                        manager_of_signals.listening(&handle);
                    }
                    SIGUSR1 => on_user_signal.iter().for_each(|act| act(&handle)),
                    _ => of_signals.end(&handle, drain),
                }
            }
        };
        let signal_thread = thread::Builder::new().name("tidegate-signals".into()).spawn(on_signals)?;
        let (handle, of_takeover) = (server.clone(), progress.clone());
        let on_takeover = move || {
            if handle.superseded().wait() {
                on_superseded.into_iter().for_each(|act| act());
                of_takeover.has_begun.store(true, Ordering::Relaxed);
                handle.begin_drain(drain);
            }
        };
        thread::Builder::new().name("tidegate-takeover".into()).spawn(on_takeover)?;
        let end = watch(server, &manager, &progress);
        signal_handle.close();
        if end != ServerEnd::LoopEnded {
            // A function of a signal may run still; it ends before the caller goes on.
            let _ = signal_thread.join();
        }
        default_actions()?.store(true, Ordering::Relaxed);
        Ok(end)
    }
}

/// Waits for the end, and feeds the watchdog.
fn watch(server: &ServerHandle, manager: &ServiceManager, progress: &Progress) -> ServerEnd {
    let (mut watchdog, mut is_stopping) = (WatchdogFeeder::new(manager), false);
    loop {
        let has_ended = server.wait_timeout(watchdog.wait_max(CHECK_INTERVAL));
        if server.is_draining() && !std::mem::replace(&mut is_stopping, true) {
            manager.stopping();
        }
        watchdog.feed(manager, server);
        if !server.all_loops_run() && !progress.has_begun.load(Ordering::Relaxed) && !server.is_draining() {
            return ServerEnd::LoopEnded;
        }
        let requests = progress.requests.load(Ordering::Relaxed);
        if has_ended || requests > 2 {
            return if requests > 1 { ServerEnd::CutShort } else { ServerEnd::Drained };
        }
    }
}

/// The requests of signals and takeovers so far.
#[derive(Debug, Default)]
struct Progress {
    has_begun: AtomicBool,
    requests: AtomicU32,
}

impl Progress {
    /// A signal asks for the end.
    fn end(&self, server: &ServerHandle, drain: Duration) {
        self.has_begun.store(true, Ordering::Relaxed);
        match self.requests.fetch_add(1, Ordering::Relaxed) {
            0 => {
                server.begin_drain(drain);
                server.log_drain(drain);
            }
            _ => server.begin_drain(Duration::ZERO),
        }
    }
}

impl ServerHandle {
    /// Waits for SIGTERM or SIGINT (Ctrl-C), then drains the server: connections have the time `drain` to finish their
    /// requests in progress. A second signal cuts the drain short. A service manager such as systemd is notified.
    ///
    /// [`Supervisor`] has more: reloads at SIGHUP, and signals that come before the server has started.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use tidegate::http::{Router, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::bind("127.0.0.1:8080")?.start(|| Router::new().get("/", || "hello"))?;
    /// server.run_until_signal(Duration::from_secs(25))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system has no descriptor or no thread left.
    pub fn run_until_signal(&self, drain: Duration) -> io::Result<ServerEnd> {
        Supervisor::new()?.run(self, drain)
    }

    /// Logs that a drain at a signal waits for open connections, at most for the time `drain`, and how to end the wait. With
    /// no connection open it logs nothing. [`Supervisor`] calls it; a program with signal handling of its own calls it after
    /// [`begin_drain`](Self::begin_drain).
    pub fn log_drain(&self, drain: Duration) {
        let connections: u64 = self.counts().iter().map(|counts| counts.connections).sum();
        if connections == 0 || drain.is_zero() {
            return;
        }
        let seconds = drain.as_secs();
        catch_and_log(|| {
            tracing::info!(
                subsystem = "server",
                connections,
                "draining for up to {seconds} s; a second signal (Ctrl-C again) closes all connections at once"
            );
        });
    }
}

/// Has SIGTERM and SIGINT end the process again, once the flag is set: after a supervisor has returned.
fn default_actions() -> io::Result<Arc<AtomicBool>> {
    static HAS_RETURNED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = HAS_RETURNED.get() {
        return Ok(flag.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    register_conditional_default(SIGTERM, flag.clone())?;
    register_conditional_default(SIGINT, flag.clone())?;
    Ok(HAS_RETURNED.get_or_init(|| flag).clone())
}

/// How often a supervisor checks that all loops are alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("manager", &self.manager).finish_non_exhaustive()
    }
}
