//! `ServerHandle`: loops on their threads, and the ways to end them.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_sys::Address;

use crate::counters::{Counts, Published};
use crate::event_loop::EventLoop;
use crate::mailbox::{LoopMessage, Mailbox};
use crate::server::backend::BackendPlan;
use crate::server::start_error::StartError;
use crate::server::takeover::TakeoverListener;
use crate::server::watchdog::Watchdog;

/// A server that runs. Dropping it ends it at once; [`drain`](ServerHandle::drain) ends it gracefully.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub struct ServerHandle {
    address: Address,
    loops: Vec<RunningLoop>,
    superseded: Superseded,
    /// Hands our listeners over, if a path was given for that.
    pub(crate) control: Option<TakeoverListener>,
    /// Watches the loops while they end, too: it is dropped after them.
    watchdog: Option<Watchdog>,
}

/// Reports when another server has superseded this one by [taking over](crate::Server::takeover).
#[derive(Debug, Clone, Default)]
pub struct Superseded(Arc<(Mutex<SupersededState>, Condvar)>);

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
    published: Arc<Published>,
    thread: Option<JoinHandle<()>>,
}

impl ServerHandle {
    /// A server at `address` without loops yet.
    pub(crate) fn new(address: Address) -> Self {
        let superseded = Superseded::default();
        Self { address, loops: Vec::new(), superseded, control: None, watchdog: None }
    }

    /// Starts the watchdog: all loops have been added.
    pub(crate) fn watch(&mut self) -> Result<(), StartError> {
        let watched = self.loops.iter().map(|running| running.published.clone());
        self.watchdog = Some(Watchdog::start(watched).map_err(StartError::System)?);
        Ok(())
    }

    /// Starts one loop more. `listen` is called on its thread. Dropping this handle then ends the other loops.
    pub(crate) fn add(
        &mut self,
        plan: BackendPlan,
        memory_max: usize,
        listen: impl FnOnce(&mut EventLoop) -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let (started, outcome) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("tidegate-{}", self.loops.len()))
            .spawn(move || run_loop(&started, plan, memory_max, listen))
            .map_err(StartError::System)?;
        let Started { mailbox, published, backend } = outcome.recv().map_err(|_| StartError::Panicked)??;
        self.loops.push(RunningLoop { backend, mailbox, published, thread: Some(thread) });
        Ok(())
    }

    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
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
        self.loops.iter().map(|running| running.backend)
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

    /// Whether all loops run. A loop that does not run has ended because waiting for events failed, or because of a
    /// bug.
    #[must_use]
    pub fn all_loops_run(&self) -> bool {
        self.loops.iter().all(|running| running.thread.as_ref().is_some_and(|thread| !thread.is_finished()))
    }

    /// Whether another server has [taken over](crate::Server::takeover): it accepts, and it is time to
    /// [`drain`](ServerHandle::drain) this one. Until then both accept.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.superseded.is_superseded()
    }

    /// A handle that waits for that, in any thread.
    #[must_use]
    pub fn superseded(&self) -> Superseded {
        self.superseded.clone()
    }

    /// Waits until the loops have ended, which they do when waiting for events fails, or if another handle drains
    /// them: for a server that runs as long as its process. A server that may be
    /// [`superseded`](ServerHandle::superseded) waits for that instead.
    pub fn wait(mut self) {
        self.join();
    }

    /// Ends the server gracefully: no connection is accepted any more, each open one receives the drain event, and
    /// those that are still open after `deadline` are closed. Returns when all loops have ended.
    pub fn drain(mut self, deadline: Duration) {
        self.shut_down(deadline);
    }

    fn shut_down(&mut self, deadline: Duration) {
        // First, since it holds the listeners too: a queue that no loop accepts from has to refuse connections.
        self.control = None;
        self.superseded.set_ended();
        let now = Instant::now();
        let by = now.checked_add(deadline).unwrap_or_else(|| now + Duration::from_secs(86_400));
        for running in &self.loops {
            // A loop that takes no messages has ended already.
            let _ = running.mailbox.send(LoopMessage::Drain(by));
        }
        self.join();
    }

    fn join(&mut self) {
        for running in &mut self.loops {
            if let Some(thread) = running.thread.take()
                // A loop that ends its own server ends after the caller has returned to the loop.
                && thread.thread().id() != std::thread::current().id()
            {
                // A loop catches the panics of user code; a panic of its own was printed by its thread.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shut_down(Duration::ZERO);
    }
}

/// What a loop's thread reports once it runs.
struct Started {
    mailbox: Arc<Mailbox>,
    published: Arc<Published>,
    backend: &'static str,
}

/// The life of a loop's thread.
fn run_loop(
    started: &Sender<Result<Started, StartError>>,
    plan: BackendPlan,
    memory_max: usize,
    listen: impl FnOnce(&mut EventLoop) -> io::Result<()>,
) {
    let pool = Pool::new();
    // An eighth and more stays for what the ledger does not count: connections themselves, the loop's own tables, and
    // the allocator's gaps.
    pool.ledger().set_budget(memory_max - memory_max / 8 - (memory_max / 8).min(LOOP_BYTES));
    let ready = plan.open(&pool).and_then(|driver| {
        let backend = driver.name();
        let mut event_loop = EventLoop::new(driver, pool);
        // `listen` may start tasks there: a pool of connections, a report each minute.
        let entered = event_loop.enter();
        listen(&mut event_loop).map_err(StartError::System)?;
        drop(entered);
        Ok((event_loop, backend))
    });
    match ready {
        Ok((mut event_loop, backend)) => {
            let report = Started { mailbox: event_loop.mailbox(), published: event_loop.published(), backend };
            if started.send(Ok(report)).is_ok()
                && let Err(error) = event_loop.run()
            {
                tracing::error!(%error, "an event loop ended: waiting failed");
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
        let mut running = ServerHandle::new("127.0.0.1:1".parse().expect("it is an address"));
        assert_eq!(running.backend(), "");
        for plan in [BackendPlan::Epoll, BackendPlan::UringOrEpoll] {
            running.add(plan, 1 << 20, |_| Ok(())).expect("it starts");
        }
        let second = running.backends().nth(1);
        assert_eq!(running.backends().next(), Some("epoll"));
        let all = if second == Some("uring") { "uring and epoll" } else { "epoll" };
        assert_eq!((running.backend(), running.loops()), (all, 2));
    }
}
