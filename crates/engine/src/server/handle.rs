//! `ServerHandle`: loops on their threads, and the ways to end them.

use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use slab::Slab;
use tidegate_buffer::Pool;
use tidegate_codec::later;
use tidegate_sys::{Address, Side, Socket};

use crate::backend::BackendPlan;
use crate::counters::{Counts, ListenerCounts, PublishedCounters};
use crate::event_loop::EventLoop;
use crate::mailbox::{LoopMessage, Mailbox};
use crate::server::datagram_sockets::KeptSockets;
use crate::server::session_groups::SessionGroups;
use crate::server::takeover::TakeoverListener;
use crate::server::watchdog::Watchdog;
use crate::start_error::StartError;
use crate::successor::Successor;
use crate::tokio_runtime::TokioRuntime;
use crate::unwind::catch_and_log;

/// A running server. A clone refers to the same server, from any thread.
///
/// Dropping the last handle ends the server at once; [`drain`](ServerHandle::drain) ends it gracefully. A handle that
/// the server's own connections or tasks keep counts too: such a server runs until it is drained.
///
/// A program that drains at a signal, and at once at a second one:
///
/// ```
/// use std::time::Duration;
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, Server};
///
/// async fn discard(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while channel.recv().await?.is_some() {}
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::default, discard)?;
/// let for_signals = server.clone();
/// # let (sender, signals) = std::sync::mpsc::channel();
/// # sender.send(())?;
/// # drop(sender);
/// std::thread::spawn(move || {
///     let mut deadline = Duration::from_secs(10);
///     // With the crate `signal-hook`: `Signals::new([SIGTERM, SIGINT])?.forever()`.
///     for _ in signals {
///         for_signals.begin_drain(deadline);
///         deadline = Duration::ZERO;
///     }
/// });
/// server.wait();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "dropping the last handle ends the server"]
pub struct ServerHandle(Arc<ServerState>);

/// Shared state of a server's handles.
#[derive(Debug)]
pub(crate) struct ServerState {
    listeners: Vec<RunningListener>,
    loops: Vec<RunningLoop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    running: Arc<RunningLoops>,
    superseded: Superseded,
    /// A drain has begun.
    is_draining: AtomicBool,
    /// For a server that replaces this one; until a drain begins.
    kept_listeners: Mutex<KeptSockets>,
    /// The endpoints whose sessions outlast this server. They get datagrams from a successor until the loops have ended.
    _sessions: Arc<SessionGroups>,
    /// Hands our listeners over, if a path was given for that.
    control: Mutex<Option<TakeoverListener>>,
    /// Watches the loops while they end, too: it is dropped after them.
    watchdog: Option<Watchdog>,
}

/// How many loops have not ended yet.
#[derive(Debug, Default)]
pub(super) struct RunningLoops {
    state: Mutex<LoopsState>,
    one_ended: Condvar,
}

#[derive(Debug, Default)]
struct LoopsState {
    count: usize,
    /// Of the futures that wait for the last one.
    wakers: Slab<Waker>,
}

impl RunningLoops {
    fn state(&self) -> MutexGuard<'_, LoopsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most `left` loops run, or the time is over. Returns whether that few run.
    fn wait(&self, left: usize, timeout: Option<Duration>) -> bool {
        let more = |state: &mut LoopsState| state.count > left;
        match timeout {
            None => drop(self.one_ended.wait_while(self.state(), more).unwrap_or_else(PoisonError::into_inner)),
            Some(timeout) => {
                let waited = self.one_ended.wait_timeout_while(self.state(), timeout, more);
                return !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
            }
        }
        true
    }

    /// Whether no loop runs; if one does, the waker is called when the last has ended. `place` is that of the waker.
    pub(super) fn poll_ended(&self, place: &mut Option<usize>, cx: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state();
        if state.count == 0 {
            // The end has taken the wakers.
            *place = None;
            return Poll::Ready(());
        }
        match place.and_then(|place| state.wakers.get_mut(place)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *place = Some(state.wakers.insert(cx.waker().clone())),
        }
        Poll::Pending
    }

    /// Forgets the waker of a future that is dropped.
    pub(super) fn forget(&self, place: Option<usize>) {
        let waker = place.and_then(|place| self.state().wakers.try_remove(place));
        drop(waker);
    }

    fn count_ended(&self) {
        let mut state = self.state();
        state.count -= 1;
        let woken = if state.count == 0 { mem::take(&mut state.wakers) } else { Slab::new() };
        drop(state);
        self.one_ended.notify_all();
        for (_, waker) in woken {
            catch_and_log(|| waker.wake());
        }
    }
}

/// Counts a loop for as long as its thread has this.
struct CountedLoop(Arc<RunningLoops>);

impl CountedLoop {
    fn new(running: &Arc<RunningLoops>) -> Self {
        running.state().count += 1;
        Self(running.clone())
    }
}

impl Drop for CountedLoop {
    fn drop(&mut self) {
        self.0.count_ended();
    }
}

/// Reports when another server has superseded this one by [taking over](crate::Server::takeover).
#[derive(Debug, Clone, Default)]
pub struct Superseded(Arc<(Mutex<SupersededState>, Condvar)>, Successor);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SupersededState {
    #[default]
    Serving,
    Superseded,
    Ended,
}

impl Superseded {
    /// Whether that has happened.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        *self.state() == SupersededState::Superseded
    }

    /// Waits until the server was superseded, or has ended otherwise. Returns whether it was superseded.
    #[must_use]
    pub fn wait(&self) -> bool {
        let serving = |state: &mut SupersededState| *state == SupersededState::Serving;
        let ended = self.0.1.wait_while(self.state(), serving).unwrap_or_else(PoisonError::into_inner);
        *ended == SupersededState::Superseded
    }

    pub(crate) fn set_superseded(&self) {
        self.1.set();
        self.set_state(SupersededState::Superseded);
    }

    fn set_ended(&self) {
        self.set_state(SupersededState::Ended);
    }

    fn set_state(&self, decided: SupersededState) {
        let mut state = self.state();
        if *state == SupersededState::Serving {
            *state = decided;
            self.0.1.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, SupersededState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct RunningLoop {
    backend: &'static str,
    mailbox: Arc<Mailbox>,
    published: Arc<PublishedCounters>,
    thread: ThreadId,
}

/// A listener of a running server.
#[derive(Debug)]
pub struct RunningListener {
    label: String,
    addresses: Vec<Address>,
    counts: Arc<ListenerCounts>,
}

impl RunningListener {
    pub(crate) fn new(label: &str, sockets: &[Socket]) -> Result<Self, StartError> {
        let mut addresses = Vec::new();
        for socket in sockets {
            let address = socket.address(Side::Local).map_err(StartError::System)?;
            // Loops share an address.
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(StartError::NoListener);
        }
        Ok(Self { label: label.into(), addresses, counts: Arc::default() })
    }

    /// The label of its [`Listener`](crate::Listener).
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its addresses, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Its connections on all loops.
    #[must_use]
    pub fn counts(&self) -> &ListenerCounts {
        &self.counts
    }

    pub(crate) fn shared_counts(&self) -> Arc<ListenerCounts> {
        self.counts.clone()
    }
}

impl ServerHandle {
    /// The first address of the first listener; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.0.listeners[0].addresses[0]
    }

    /// All listeners, in the order in which they were added; the server's own comes first.
    #[must_use]
    pub fn listeners(&self) -> &[RunningListener] {
        &self.0.listeners
    }

    /// The driver of all loops, `epoll` or `uring`; or `uring and epoll` if io_uring was not available to some of them.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        let mut backends = self.backends();
        let first = backends.next().unwrap_or_default();
        if backends.all(|other| other == first) { first } else { "uring and epoll" }
    }

    /// The driver of each loop: `epoll` or `uring`.
    pub fn backends(&self) -> impl Iterator<Item = &'static str> {
        self.0.loops.iter().map(|running| running.backend)
    }

    /// The number of loops that were started.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.0.loops.len()
    }

    /// The counts of each loop so far; while the server drains, and afterwards, too.
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        self.0.loops.iter().map(|running| running.published.read()).collect()
    }

    /// Whether all loops run. A loop of a server that does not drain ends only because waiting for events failed, or
    /// because of a bug.
    #[must_use]
    pub fn all_loops_run(&self) -> bool {
        self.0.running.state().count == self.0.loops.len()
    }

    /// Whether another server has [taken over](crate::Server::takeover): it accepts, and it is time to
    /// [`drain`](ServerHandle::drain) this one. Until then both accept.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.0.superseded.is_superseded()
    }

    /// A handle that waits for that, in any thread.
    #[must_use]
    pub fn superseded(&self) -> Superseded {
        self.0.superseded.clone()
    }

    /// Waits until the loops have ended, which they do when waiting for events fails, or when a clone of this handle
    /// drains them. A server that may be [`superseded`](ServerHandle::superseded) waits for that instead.
    ///
    /// On a thread of one of these loops it waits for the others: that one goes on when the caller has returned.
    pub fn wait(&self) {
        self.0.wait(None);
    }

    /// The same for at most `timeout`. Returns whether the loops have ended.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.wait(Some(timeout))
    }

    /// Ends the server gracefully: no connection is accepted any more, each open one receives the drain event, and
    /// those that are still open after `deadline` are closed. Returns when all loops have ended.
    pub fn drain(&self, deadline: Duration) {
        self.begin_drain(deadline);
        self.wait();
    }

    /// Begins the same and returns at once; [`wait`](ServerHandle::wait) waits for the end. While the server drains its
    /// [`counts`](ServerHandle::counts) give the connections that are left. A further call can only shorten the time:
    /// zero closes the remaining connections now.
    pub fn begin_drain(&self, deadline: Duration) {
        self.0.begin_drain(deadline);
    }

    /// Whether a drain has begun, or is over.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.is_draining.load(Ordering::Relaxed)
    }

    /// Its listeners, if it is replaceable and does not drain, the flag that says that another server has them, and its
    /// endpoints whose sessions outlast it.
    pub(super) fn kept_listeners(&self) -> io::Result<(Vec<OwnedFd>, Successor, Arc<SessionGroups>)> {
        let kept = self.0.kept_listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = kept.with(|all| all.iter().map(BorrowedFd::try_clone_to_owned).collect())?;
        Ok((listeners, self.0.superseded.1.clone(), kept.sessions()))
    }

    /// Where messages for a loop go.
    pub(super) fn mailbox(&self, event_loop: usize) -> Option<&Mailbox> {
        self.0.loops.get(event_loop).map(|running| &*running.mailbox)
    }

    pub(super) fn running_loops(&self) -> Arc<RunningLoops> {
        self.0.running.clone()
    }
}

impl ServerState {
    /// A server without loops yet.
    pub(super) fn new(listeners: Vec<RunningListener>, successor: Successor, sessions: Arc<SessionGroups>) -> Self {
        Self {
            listeners,
            loops: Vec::new(),
            threads: Mutex::default(),
            running: Arc::default(),
            superseded: Superseded(Arc::default(), successor),
            is_draining: AtomicBool::new(false),
            kept_listeners: Mutex::default(),
            _sessions: sessions,
            control: Mutex::default(),
            watchdog: None,
        }
    }

    /// Starts one loop more. `listen` is called on its thread. Dropping this then ends the other loops.
    pub(crate) fn start_loop(
        &mut self,
        plan: BackendPlan,
        memory_max: usize,
        tokio_runtime: TokioRuntime,
        listen: impl FnOnce(&mut EventLoop) -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let (started, outcome) = channel();
        let counted = CountedLoop::new(&self.running);
        let thread = std::thread::Builder::new()
            .name(format!("tidegate-{}", self.loops.len()))
            .spawn(move || {
                let _counted = counted;
                run_loop(&started, plan, memory_max, &tokio_runtime, listen);
            })
            .map_err(StartError::System)?;
        let id = thread.thread().id();
        self.threads().push(thread);
        let StartReport { mailbox, published, backend } = outcome.recv().map_err(|_| StartError::Panicked)??;
        self.loops.push(RunningLoop { backend, mailbox, published, thread: id });
        Ok(())
    }

    /// All loops have been added: starts the watchdog, and serves takeovers if there is a `control` that does.
    pub(crate) fn into_handle(
        mut self,
        control: impl FnOnce(Superseded) -> Result<Option<TakeoverListener>, StartError>,
    ) -> Result<ServerHandle, StartError> {
        let watched = self.loops.iter().map(|running| running.published.clone());
        self.watchdog = Some(Watchdog::start(watched).map_err(StartError::System)?);
        *self.control() = control(self.superseded.clone())?;
        Ok(ServerHandle(Arc::new(self)))
    }

    /// Keeps these for a server that replaces this one.
    pub(crate) fn keep_listeners(&self, listeners: KeptSockets) {
        let before = mem::replace(&mut *self.kept_listeners.lock().unwrap_or_else(PoisonError::into_inner), listeners);
        drop(before);
    }

    fn begin_drain(&self, deadline: Duration) {
        self.is_draining.store(true, Ordering::Relaxed);
        // First, since it holds the listeners too: a queue that no loop accepts from has to refuse connections.
        let control = self.control().take();
        drop(control);
        self.keep_listeners(KeptSockets::default());
        self.superseded.set_ended();
        let by = later(Instant::now(), deadline);
        for running in &self.loops {
            // A loop that takes no messages has ended already.
            let _ = running.mailbox.send(LoopMessage::Drain(by));
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let current = std::thread::current().id();
        // A loop that ends its own server ends after the caller has returned to the loop.
        let own = self.loops.iter().any(|running| running.thread == current);
        if !self.running.wait(usize::from(own), timeout) {
            return false;
        }
        // These threads have nothing left to do but to exit.
        let ended = mem::take(&mut *self.threads());
        for thread in ended.into_iter().filter(|thread| thread.thread().id() != current) {
            // A loop catches the panics of user code; a panic of its own was printed by its thread.
            let _ = thread.join();
        }
        true
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Option<TakeoverListener>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServerState {
    fn drop(&mut self) {
        self.begin_drain(Duration::ZERO);
        self.wait(None);
    }
}

/// The report of a loop's thread once it runs.
struct StartReport {
    mailbox: Arc<Mailbox>,
    published: Arc<PublishedCounters>,
    backend: &'static str,
}

/// The life of a loop's thread.
fn run_loop(
    started: &Sender<Result<StartReport, StartError>>,
    plan: BackendPlan,
    memory_max: usize,
    tokio_runtime: &TokioRuntime,
    listen: impl FnOnce(&mut EventLoop) -> io::Result<()>,
) {
    let pool = Pool::new();
    // An eighth and more stays for memory that the ledger does not count: connections themselves, the loop's own
    // tables, and the allocator's gaps.
    pool.ledger().set_budget(memory_max - memory_max / 8 - (memory_max / 8).min(LOOP_BYTES));
    let ready = plan.open(&pool).and_then(|driver| {
        let backend = driver.name();
        let mut event_loop = EventLoop::new(driver, pool);
        event_loop.set_tokio_runtime(tokio_runtime.clone());
        let _runtime = tokio_runtime.enter();
        // `listen` may start tasks there: a pool of connections, a report each minute.
        let entered = event_loop.enter();
        listen(&mut event_loop).map_err(StartError::System)?;
        drop(entered);
        Ok((event_loop, backend))
    });
    match ready {
        Ok((mut event_loop, backend)) => {
            let report = StartReport { mailbox: event_loop.mailbox(), published: event_loop.published(), backend };
            if started.send(Ok(report)).is_ok()
                && let Err(error) = event_loop.run()
            {
                tracing::error!(subsystem = "loop", %error, "loop ended");
            }
        }
        // The receiver may be gone; then the result has no reader.
        Err(error) => drop(started.send(Err(error))),
    }
}

/// Memory that a loop takes for itself once it has work, roughly.
const LOOP_BYTES: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Without io_uring the second plan falls back to epoll as well, and each name is reported once.
    #[test]
    fn the_handle_reports_the_backend_of_each_loop() {
        let mut state = ServerState::new(Vec::new(), Successor::default(), Arc::default());
        for plan in [BackendPlan::Epoll, BackendPlan::UringOrEpoll] {
            state.start_loop(plan, 1 << 20, TokioRuntime::none(), |_| Ok(())).expect("it starts");
        }
        let running = state.into_handle(|_| Ok(None)).expect("it starts");
        let second = running.backends().nth(1);
        assert_eq!(running.backends().next(), Some("epoll"));
        let all = if second == Some("uring") { "uring and epoll" } else { "epoll" };
        assert_eq!((running.backend(), running.loops()), (all, 2));
    }
}
