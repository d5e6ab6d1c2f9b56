//! `EventLoop`: one thread, one driver, one turn after the other.
//!
//! A turn: wait; completions, one at a time, each decoded, handled and flushed while its bytes are in the cache, those
//! of light connections first, of new ones after that, of heavy ones last; timers that are due; messages from other
//! threads; connections that requested another dispatch, and those with work left. Each of these is bounded, in number
//! and in time (`phase.rs`). The loop reads the kernel's bytes before it checks a deadline, so a peer is late only if
//! its bytes have not come. Tasks run after the dispatch that woke them, before the next; those that asked for a turn
//! to do long work run last (`task/long_work.rs`). At the end of a turn the loop checks its memory: if the budget is
//! used up, receiving is paused and the connection with most bytes waiting is shed, until there is room.

mod sockets;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_codec::later;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{Class, Completion, Driver, Token};

use crate::admission::AdmissionControl;
use crate::backend::Backend;
use crate::counters::{Counts, ListenerCounts, PublishedCounters};
use crate::endpoint::SteeredPlace;
use crate::group::{Delivery, DeliveryBudget, GroupMessage};
use crate::limits::{
    ACCEPT_TIME, EXHAUSTED_PAUSE, HEAVY_BYTES_PER_TURN_MAX, HEAVY_TIME, LIGHT_TIME, MEASURED_AFTER_SLOW_TURN,
    MESSAGES_PER_ITEM, MESSAGES_PER_TURN_MAX, NEW_TIME, SLOW_TURN, STALL_MIN, TIMER_TIME, TIMERS_PER_TURN_MAX,
    WAITS_FAILED_MAX,
};
use crate::load_balancing::LoopHandle;
use crate::local::{Local, LoopGuard};
use crate::loop_core::Core;
use crate::mailbox::{LoopMessage, Mailbox};
use crate::memory_guard::MemoryGuard;
use crate::phase::Phase;
use crate::slot_entry::SlotEvent;
use crate::start_error::StartError;
use crate::successor::Successor;
use crate::task::{self, BlockOnWaker, Task};
use crate::tokio_runtime::TokioRuntime;
use crate::unwind::catch_and_log;

/// An event loop. [`Server`](crate::Server) makes one per thread; a test makes one over a driver of its own and turns
/// it by hand.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use std::path::PathBuf;
/// use std::time::Duration;
///
/// use tidegate::codec::Pool;
/// use tidegate::framing::Lines;
/// use tidegate::sys::Socket;
/// use tidegate::sys::readiness::Readiness;
/// use tidegate::{Address, Context, EventLoop, Handler, Limits, Outcome, Slice};
///
/// struct Echo;
///
/// impl Handler<Lines> for Echo {
///     type Post = ();
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         cx.send(line.into()).into()
///     }
/// }
///
/// // The driver receives into memory of the same pool as the loop's.
/// let pool = Pool::new();
/// let mut event_loop = EventLoop::new(Box::new(Readiness::new(&pool)?), pool);
/// let (mut peer, ours) = UnixStream::pair()?;
/// let unnamed = Address::Unix(PathBuf::new());
/// event_loop.adopt(Socket::from_stream(ours)?, &unnamed, Limits::default(), Lines::new(), Echo)?;
///
/// peer.write_all(b"ebb\n")?;
/// event_loop.turn(Some(Duration::from_secs(10)))?;
/// let mut answer = [0; 4];
/// peer.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"ebb\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EventLoop {
    pub(crate) local: Rc<Local>,
    published: Arc<PublishedCounters>,
    /// Messages that did not fit into the last turn.
    messages: std::vec::IntoIter<LoopMessage>,
    /// A broadcast that was not delivered to all members yet.
    delivery: Option<Delivery>,
    /// When the last turn ended.
    last_turn_end: Instant,
    /// How long it took.
    last_turn_time: Duration,
    /// Until when calls are measured, after a slow turn.
    measure_until: Option<Instant>,
    memory: MemoryGuard,
    /// How often waiting has failed in a row.
    waits_failed: u32,
    /// The listener whose sockets are added now: its place among loops that hand connections to each other, and its
    /// counts.
    listener: (Option<LoopHandle>, Option<Arc<ListenerCounts>>),
    /// The caps of listeners that are added now.
    admission: Option<Arc<AdmissionControl>>,
    /// Of the endpoint that is added next: its place among loops that forward datagrams, and the server that may get its socket.
    endpoint: (Option<SteeredPlace>, Option<Successor>),
    /// The runtime that the thread is in while this loop runs.
    tokio_runtime: TokioRuntime,
}

impl EventLoop {
    /// A loop over `driver`, whose memory is `pool`: the pool that the driver receives into. Its ledger has the
    /// loop's budget, which is unlimited until the caller sets it; only [`Server`](crate::Server) applies
    /// `memory_max` of [`Limits`](crate::Limits).
    #[must_use]
    pub fn new(driver: Box<dyn Driver>, pool: Pool) -> Self {
        let published = Arc::<PublishedCounters>::default();
        let last_turn_end = driver.now();
        let core = Core::new(driver, pool);
        // The first turn may be long in coming, and the budget is known.
        published.publish(&core.counters, core.pool.ledger());
        Self {
            last_turn_end,
            last_turn_time: Duration::ZERO,
            measure_until: None,
            local: Local::new(core, published.activity()),
            published,
            messages: Vec::new().into_iter(),
            delivery: None,
            memory: MemoryGuard::default(),
            waits_failed: 0,
            listener: (None, None),
            admission: None,
            endpoint: (None, None),
            tokio_runtime: TokioRuntime::none(),
        }
    }

    /// An event loop for a program of its own: a client, a tool, a test.
    ///
    /// ```
    /// use tidegate::{Backend, EventLoop};
    ///
    /// // io_uring where it is available, otherwise epoll, unless the environment names one.
    /// let mut event_loop = EventLoop::on(Backend::Auto)?;
    /// assert!(["uring", "epoll"].contains(&event_loop.backend()));
    /// assert_eq!(event_loop.block_on(async { 6 * 7 })?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError`]: [`Backend`](StartError::Backend) if the environment names an unknown backend,
    /// [`Uring`](StartError::Uring) if it names io_uring and that is not available, [`System`](StartError::System) if
    /// there is no descriptor left.
    pub fn on(backend: Backend) -> Result<Self, StartError> {
        let pool = Pool::new();
        let driver = backend.plan()?.open(&pool)?;
        Ok(Self::new(driver, pool))
    }

    /// The name of the driver: `epoll`, `uring`.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.local.core.borrow().driver.name()
    }

    /// An event loop on epoll, whatever the environment names.
    ///
    /// # Errors
    /// The system's, if there is no descriptor left.
    pub fn readiness() -> io::Result<Self> {
        let pool = Pool::new();
        let driver = Readiness::new(&pool)?;
        Ok(Self::new(Box::new(driver), pool))
    }

    /// Makes this the loop of the thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> LoopGuard {
        self.local.enter()
    }

    /// The runtime that the thread is in while this loop runs, from the next call on. It has started.
    pub(crate) fn set_tokio_runtime(&mut self, tokio_runtime: TokioRuntime) {
        self.tokio_runtime = tokio_runtime;
    }

    /// Starts a task on this loop: [`task::spawn`](crate::task::spawn) from outside.
    pub fn spawn<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let _entered = self.local.enter();
        task::spawn(future)
    }

    /// Turns until a future has come to its end, and returns its output. The future may borrow from its surroundings,
    /// and runs between turns, where tasks run within them.
    ///
    /// ```
    /// use tidegate::{Backend, EventLoop};
    ///
    /// assert_eq!(EventLoop::on(Backend::Auto)?.block_on(async { 6 * 7 })?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The driver's, if waiting fails again and again.
    pub fn block_on<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let tokio_runtime = self.tokio_runtime.clone();
        let _runtime = tokio_runtime.enter();
        let mut future = pin!(future);
        let call = BlockOnWaker::new(self.mailbox());
        let waker = Waker::from(call.clone());
        loop {
            if call.take_woken() {
                let _entered = self.local.enter();
                self.local.tasks.refill_message_budget();
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
            }
            self.turn_entered(None)?;
        }
    }

    /// Begins to drain: nothing more is accepted, every connection is notified, and after `deadline` those that are
    /// left are closed. A further call notifies no connection again and can only shorten the time.
    pub fn drain(&mut self, deadline: Duration) {
        self.refresh_time();
        self.begin_drain(deadline);
    }

    fn begin_drain(&mut self, deadline: Duration) {
        let _entered = self.local.enter();
        let tokens = {
            let mut core = self.local.core.borrow_mut();
            let until = later(core.time.now(), deadline);
            if core.drain.begin(until) { core.tokens() } else { Vec::new() }
        };
        for token in tokens {
            self.local.dispatch(token, SlotEvent::Drain);
        }
        self.local.drain_waiters.begin();
        self.local.run_tasks();
        self.check_drain();
    }

    /// Whether a drain has come to its end.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let core = self.local.core.borrow();
        core.drain.is_under_way()
            && core.drain.has_no_awaited_entry()
            && (core.tasks.serving() == 0 || core.is_overdue())
    }

    /// Turns until a drain has come to its end.
    ///
    /// # Errors
    /// The driver's, if waiting fails again and again.
    pub fn run(&mut self) -> io::Result<()> {
        let tokio_runtime = self.tokio_runtime.clone();
        let _runtime = tokio_runtime.enter();
        while !self.is_drained() {
            self.turn_entered(None)?;
        }
        Ok(())
    }

    /// One turn. It waits for something to happen, at most for `timeout`.
    ///
    /// # Errors
    /// The driver's, if waiting fails again and again.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let tokio_runtime = self.tokio_runtime.clone();
        let _runtime = tokio_runtime.enter();
        self.turn_entered(timeout)
    }

    /// One turn, within the runtime of the tokio_runtime.
    fn turn_entered(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let _entered = self.local.enter();
        let begun = self.wait(timeout)?;
        self.published.begin_turn(self.local.core.borrow().counters.turns + 1);
        self.local.activity.begin_turn();
        self.local.tasks.begin_turn();
        let mut paused = self.memory.is_exhausted();
        self.complete(Class::Light, &mut paused);
        // The other classes wait in the driver's queues.
        if self.local.core.borrow().driver.has_ready() {
            for class in [Class::Listener, Class::New, Class::Heavy] {
                self.complete(class, &mut paused);
            }
        }
        self.fire_timers(begun);
        self.handle_messages();
        self.local.dispatch_scheduled();
        self.local.continue_backlog();
        // Tasks that were spawned or woken from outside of any dispatch.
        self.local.run_tasks();
        self.local.do_long_work();
        self.check_drain();
        self.memory.check(&mut self.local.core.borrow_mut(), paused);
        let mut core = self.local.core.borrow_mut();
        core.counters.tasks_panicked = core.tasks.panicked();
        core.counters.long_work_waits = core.tasks.long_work_waits();
        self.last_turn_end = core.driver.now();
        let took = self.last_turn_end.saturating_duration_since(begun);
        self.last_turn_time = took;
        core.counters.count_turn(took);
        self.published.count_turn_time(took);
        if took > SLOW_TURN {
            self.measure_until = Some(self.last_turn_end + MEASURED_AFTER_SLOW_TURN);
            let call = self.local.activity.of_slow_turn();
            if call.is_some() || took >= STALL_MIN {
                core.log.slow_turn(self.last_turn_end, took, call);
            }
            self.local.activity.measure(true);
        } else if self.measure_until.is_some_and(|until| until <= self.last_turn_end) {
            self.measure_until = None;
            self.local.activity.measure(false);
        }
        self.published.publish(&core.counters, core.pool.ledger());
        self.published.end_turn();
        Ok(())
    }

    /// Between two turns the loop's time stands still as well, and the last turn may be long ago: a deadline that is
    /// set now must not be late already.
    pub(crate) fn refresh_time(&self) {
        let core = &mut *self.local.core.borrow_mut();
        let now = core.driver.now();
        core.time.advance(now, || core.driver.system_time());
        self.local.set_now(now);
    }

    /// Waits, and returns the time afterwards.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Instant> {
        let local = self.local.clone();
        let mut core = local.core.borrow_mut();
        let mut timeout = self.timeout(&core, timeout);
        if timeout != Some(Duration::ZERO) {
            if let Some(wait) = self.memory.before_sleep(&mut core) {
                timeout = Some(timeout.map_or(wait, |timeout| timeout.min(wait)));
            }
            if !core.mailbox.fall_asleep() {
                timeout = Some(Duration::ZERO);
            }
        }
        let waited = core.driver.wait(timeout);
        core.mailbox.wake_up();
        match waited {
            Ok(()) => self.waits_failed = 0,
            // An error that lasts for a few calls only, such as the want of memory, must not end a server.
            Err(error) => {
                self.waits_failed += 1;
                if self.waits_failed > WAITS_FAILED_MAX {
                    return Err(error);
                }
                if self.waits_failed == 1 {
                    let now = core.time.now();
                    core.log.wait_failed(now, &error);
                }
            }
        }
        drop(core);
        self.refresh_time();
        let slept = local.now().saturating_duration_since(self.last_turn_end);
        let overslept = timeout.map_or(Duration::ZERO, |timeout| slept.saturating_sub(timeout));
        let now = local.now();
        local.core.borrow_mut().lag.note(self.last_turn_time.max(overslept), now);
        Ok(now)
    }

    /// Whether the next turn would not wait: there are messages, woken tasks or scheduled connections, or a timer has
    /// come. For a caller that turns a loop and does not block in [`turn`](Self::turn), so that no sender has to wake
    /// the loop meanwhile.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.timeout(&self.local.core.borrow(), None) == Some(Duration::ZERO)
    }

    /// The loop's counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.published.read()
    }

    pub(crate) fn published(&self) -> Arc<PublishedCounters> {
        self.published.clone()
    }

    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        self.local.core.borrow().mailbox.clone()
    }

    fn timeout(&self, core: &Core, timeout: Option<Duration>) -> Option<Duration> {
        // Messages that came while older ones were delivered do not wake the loop.
        let busy = core.queues.has_entries()
            || self.local.tasks.has_long_work()
            || core.driver.has_ready()
            || self.messages.len() > 0
            || self.delivery.is_some()
            || core.mailbox.has_messages();
        if busy || core.tasks.has_runnable() {
            return Some(Duration::ZERO);
        }
        // The clock was read a moment ago, when the last turn ended.
        let now = self.last_turn_end;
        // Once it has come, and no entry is left to be notified, there is no reason to wake up any more.
        let ahead = core.drain.until().filter(|until| *until > core.time.now() || !core.drain.awaits_driver_only());
        let drain = ahead.map(|until| until.saturating_duration_since(now));
        let exhausted = self.memory.is_exhausted().then_some(EXHAUSTED_PAUSE);
        [timeout, core.wheel.timeout(now), drain, exhausted].into_iter().flatten().min()
    }

    fn fire_timers(&mut self, now: Instant) {
        // The others keep their place: the wheel's timeout is zero then.
        let mut phase = Phase::of(TIMER_TIME);
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(token) = self.next_expired(now) else { break };
            self.local.dispatch(token, SlotEvent::Timer);
            if phase.is_over_after(1, &*self.local.core.borrow().driver) {
                break;
            }
        }
        let overdue = {
            let core = self.local.core.borrow();
            // Connections that wait for the driver's last completion only are closed already.
            if core.is_overdue() && !core.drain.awaits_driver_only() { core.tokens() } else { Vec::new() }
        };
        for token in overdue {
            self.local.dispatch(token, SlotEvent::DrainTimeout);
        }
    }

    /// When the last of the tasks that serve has ended in a drain, connections that were made for them are notified.
    fn check_drain(&mut self) {
        let tokens = {
            let mut core = self.local.core.borrow_mut();
            if !core.take_serving_done() {
                return;
            }
            core.tokens()
        };
        for token in tokens {
            self.local.dispatch(token, SlotEvent::ServingDone);
        }
    }

    /// Dispatches completions of one class of sockets, one at a time, while the time of the class lasts. The others
    /// keep their place. If one uses memory up, receiving is paused.
    #[inline]
    fn complete(&mut self, class: Class, paused: &mut bool) {
        let (mut phase, bytes_max) = match class {
            Class::Light => (Phase::of(LIGHT_TIME), u64::MAX),
            Class::Listener => (Phase::of(ACCEPT_TIME), u64::MAX),
            Class::New => (Phase::of(NEW_TIME), u64::MAX),
            Class::Heavy => (Phase::of_long_items(HEAVY_TIME), HEAVY_BYTES_PER_TURN_MAX),
        };
        let (mut messages, bytes) = {
            let counters = &self.local.core.borrow().counters;
            (counters.messages, counters.transferred_bytes())
        };
        while let Some((token, completion)) = self.next_completion(class) {
            self.handle_completion(token, completion);
            let core = &mut *self.local.core.borrow_mut();
            if core.pool.ledger().is_exhausted() && !*paused {
                *paused = true;
                core.driver.pause_receives(true);
            }
            // A few bytes may be many messages, which take their time.
            let items = 1 + (core.counters.messages - messages) / MESSAGES_PER_ITEM;
            messages = core.counters.messages;
            if core.counters.transferred_bytes() - bytes >= bytes_max || phase.is_over_after(items, &*core.driver) {
                break;
            }
        }
    }

    #[inline]
    fn handle_completion(&mut self, token: Token, completion: Completion) {
        let event = match completion {
            Completion::Received(bytes) => SlotEvent::Received(bytes),
            Completion::Sent(result) => SlotEvent::Sent(result),
            Completion::Accepted(result) => SlotEvent::Accepted(result),
            Completion::Connected(result) => SlotEvent::Connected(result),
            Completion::Ended => SlotEvent::Ended,
            Completion::HungUp => SlotEvent::HungUp,
            Completion::Failed(error) => SlotEvent::Failed(error),
            Completion::Closed => SlotEvent::Closed,
            Completion::Datagrams(batch) => SlotEvent::Datagrams(batch),
            // The result of a call comes with the call.
            Completion::Transmitted(_) => SlotEvent::TransmitRoom,
            Completion::DatagramErrors(errors) => SlotEvent::DatagramErrors(errors),
            Completion::Woken => return self.local.run_tasks(),
        };
        self.local.dispatch(token, event);
    }

    // These release the core before the dispatch, which a borrow in the head of the loop would not.

    fn next_expired(&self, now: Instant) -> Option<Token> {
        self.local.core.borrow_mut().expired(now)
    }

    #[inline]
    fn next_completion(&self, class: Class) -> Option<(Token, Completion)> {
        self.local.core.borrow_mut().driver.next(class)
    }

    fn handle_messages(&mut self) {
        if self.is_end_overdue() {
            return self.begin_drain(Duration::ZERO);
        }
        let mut budget = DeliveryBudget::new(&self.local.core.borrow());
        if !self.continue_delivery(&mut budget) {
            return;
        }
        if self.messages.len() == 0 {
            let core = self.local.core.borrow();
            if !core.mailbox.has_messages() {
                return;
            }
            self.messages = core.mailbox.collect().into_iter();
        }
        for _ in 0..MESSAGES_PER_TURN_MAX {
            match self.messages.next() {
                Some(LoopMessage::Post { token, post }) => self.local.dispatch(token, SlotEvent::Posted(post)),
                Some(LoopMessage::Broadcast(message)) => {
                    if let Ok(message) = message.downcast::<GroupMessage>() {
                        self.delivery = Delivery::begin(&message, &mut self.local.core.borrow_mut());
                        catch_and_log(move || drop(message));
                    }
                    if !self.continue_delivery(&mut budget) {
                        return;
                    }
                }
                Some(LoopMessage::Drain(by)) => {
                    let left = by.saturating_duration_since(self.local.now());
                    self.begin_drain(left);
                }
                Some(LoopMessage::Inspect(request)) => {
                    request.answer(|number, cursor| self.local.core.borrow().connection_page(number, cursor));
                }
                Some(LoopMessage::Close(request)) => {
                    request.answer(|token| self.local.core.borrow_mut().close_by_operator(token));
                }
                None => break,
            }
            if budget.is_over_after_message(&self.local.core.borrow()) {
                break;
            }
        }
        if self.messages.len() == 0 {
            // The vector's memory goes as well.
            self.messages = Vec::new().into_iter();
        }
    }

    /// Whether the loop is to have ended by now, and has more to read before the message that ends it. Messages that
    /// are not read by then would not be delivered any more.
    fn is_end_overdue(&self) -> bool {
        let behind = self.delivery.is_some() || self.messages.len() > 0;
        let core = self.local.core.borrow();
        behind && !core.is_overdue() && core.mailbox.is_overdue(core.time.now())
    }

    /// Delivers the message of a group to its members, as far as the turn's budget goes. Returns whether all have it.
    /// Until then no other message is taken, so that order is kept.
    fn continue_delivery(&mut self, budget: &mut DeliveryBudget) -> bool {
        let Some(delivery) = &mut self.delivery else { return true };
        let done = delivery.deliver_to_members(&mut self.local.core.borrow_mut(), budget);
        if done {
            let delivery = self.delivery.take();
            // The drop of its bytes may run code of the application.
            catch_and_log(move || drop(delivery));
        }
        done
    }
}

impl Drop for EventLoop {
    /// Tasks are dropped as they are; connections that are left are closed, and their handlers are notified.
    fn drop(&mut self) {
        // If it ends by a panic of its own, it was in the middle of a turn.
        self.published.end_turn();
        let tokio_runtime = self.tokio_runtime.clone();
        let _runtime = tokio_runtime.enter();
        let _entered = self.local.enter();
        let messages = self.local.core.borrow().mailbox.close();
        catch_and_log(move || drop(messages));
        self.local.tasks.drop_tasks();
        let tokens = self.local.core.borrow().tokens();
        for token in tokens {
            self.local.core.borrow_mut().close_at_loop_end(token);
        }
        // A handler that is notified of its end may have spawned a task, which will not run.
        self.local.tasks.drop_tasks();
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop").field("driver", &self.local.core.borrow().driver.name()).finish_non_exhaustive()
    }
}
