//! `Worker`: one thread of a load: its loop, its connections, and the clock of what it counts. Idle connections are made
//! before, in `hold.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidegate::{Address, Backend, Client, ConnectError, EventLoop, Limits, WaterMarks, task};

use super::connection::{Connector, LoadConnection, Role};
use super::figures::{Errors, Held, Interval};
use super::hold;
use super::pace::Pace;
use super::pipeline::{Exchange, Pipeline};
use super::request::{BadRequest, Recipe};
use super::sockets::{AddressPair, established};
use super::start::Runner;
use super::tally::{SharedStats, WorkerStats};

/// What all threads of a load are told.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) recipe: Recipe,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) backend: Backend,
    pub(crate) duration: Duration,
    pub(crate) timeout: Duration,
    pub(crate) never_read: bool,
    /// Connections that ask, of all threads.
    pub(crate) connections: usize,
    pub(crate) board: Arc<SharedStats>,
    /// Whoever sets it wants the load to end.
    pub(crate) stop: Arc<AtomicBool>,
}

impl WorkerConfig {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What one thread does of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) connections: usize,
    pub(crate) idle: usize,
    /// Idle connections of the threads before: they say which addresses come next.
    pub(crate) idle_before: usize,
    /// Requests a second, if they are sent at their times.
    pub(crate) rate: Option<f64>,
}

/// What one thread has counted.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) backend: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
    pub(crate) bytes_read: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) errors: Errors,
    pub(crate) idle: Held,
    pub(crate) stuck: Held,
    pub(crate) over_time: Vec<Interval>,
    pub(crate) rates: Vec<f64>,
    /// Requests that were under way at the end.
    pub(crate) unanswered: u64,
    /// Connections that were being made at the end.
    pub(crate) connecting: u64,
    /// Requests that were due and not sent.
    pub(crate) unsent: u64,
    /// Why a connection could not be made, the last of them.
    pub(crate) last_failure: Option<String>,
}

/// What the connections of one thread share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) pace: Option<Pace>,
    pub(crate) timeout: Duration,
    pub(crate) client: Client,
    turnstile: Semaphore,
    /// Connections that are being made.
    connecting: Cell<u64>,
    last_failure: RefCell<Option<ConnectError>>,
    /// The ends of connections that are never read.
    stuck: RefCell<BTreeSet<AddressPair>>,
    /// When the load was over.
    ended: Cell<Option<Instant>>,
}

/// What the clock of a thread has seen.
struct RunResult {
    elapsed: Duration,
    /// Without what idle connections were told before.
    bytes_read: u64,
    over_time: Vec<Interval>,
    rates: Vec<f64>,
    connecting: u64,
    unsent: u64,
}

/// Runs one thread's part of a load.
///
/// # Errors
/// If there is no event loop to be had, or it ends.
pub(crate) fn run(orders: &WorkerConfig, part: Part, runner: Runner) -> Result<Count, String> {
    let mut event_loop = EventLoop::on(orders.backend).map_err(|error| error.to_string())?;
    let worker = Rc::new(Worker::new(orders, part).map_err(|error| error.to_string())?);
    let course = event_loop.block_on(work(worker.clone(), orders, part, runner));
    let course = course.map_err(|error| format!("an event loop of the load has ended: {error}"))?;
    let backend = event_loop.backend();
    // Connections that wait for answers say so as they go.
    drop(event_loop);
    Ok(worker.count(backend, course))
}

impl Worker {
    fn new(orders: &WorkerConfig, part: Part) -> Result<Self, BadRequest> {
        // Nobody is to be protected from what is sent here, and a server that takes it slowly is what is measured.
        let limits = Limits {
            water: WaterMarks::new(u64::MAX / 8, u64::MAX / 8),
            write_timeout: FOREVER,
            write_rate_min: 0,
            linger_timeout: Duration::ZERO,
            ..Limits::default()
        };
        let addresses = orders.addresses.iter().copied().map(Address::from);
        let client = Client::at_each(addresses).connect_timeout(orders.timeout).limits(limits);
        Ok(Self {
            exchange: Rc::new(Exchange::new(orders.recipe.ask()?, WorkerStats::new(orders.board.clone()))),
            pace: part.rate.map(|rate| Pace::new(rate / f64::from(orders.recipe.depth))),
            timeout: orders.timeout,
            client,
            turnstile: Semaphore::new(CONNECTING_MAX),
            connecting: Cell::default(),
            last_failure: RefCell::default(),
            stuck: RefCell::default(),
            ended: Cell::default(),
        })
    }

    /// One connection after the other with the same role, for as long as the load lasts.
    async fn keep(self: Rc<Self>, role: Role) {
        let mut pause = PAUSE_MIN;
        loop {
            let door = Rc::new(Connector::default());
            let is_made = self.connect(&self.client, role, door.clone()).await;
            if is_made {
                door.pass().await;
            }
            if is_made && role == Role::NeverRead {
                return;
            }
            if door.has_served.get() {
                pause = PAUSE_MIN;
            } else {
                // Before there was one, nobody may be there at all: that is found out before it is tried again.
                let longer = if self.exchange.tally.somebody_is_there() { pause } else { PAUSE_MAX };
                task::sleep(longer).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }

    pub(crate) async fn connect(self: &Rc<Self>, client: &Client, role: Role, door: Rc<Connector>) -> bool {
        let _turn = self.turnstile.enter().await;
        let visitor = LoadConnection::new(self.clone(), role, door);
        self.connecting.set(self.connecting.get() + 1);
        let connected = client.connect_with(Pipeline::new(self.exchange.clone()), visitor).await;
        self.connecting.set(self.connecting.get() - 1);
        match connected {
            Ok(_) => {
                self.exchange.tally.connected();
                true
            }
            Err(error) => {
                self.exchange.tally.unconnected();
                self.last_failure.replace(Some(error));
                false
            }
        }
    }

    /// A connection is there that will not be read.
    pub(crate) fn never_reads(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        self.stuck.borrow_mut().extend(local.zip(remote));
    }

    /// A connection goes that waits for so many answers since then. If the load is over, nobody knows what comes of them.
    pub(crate) fn left_waiting(&self, count: u32, since: Instant) {
        let Some(ended) = self.ended.get() else { return };
        self.exchange.tally.left(count);
        // Without a rate nothing was due, and a latency is that of an answer.
        if self.pace.is_some() {
            self.exchange.tally.waited(count.into(), ended.saturating_duration_since(since));
        }
    }

    /// The load is over, and its connections are still there. Gives how many requests were due and not sent.
    fn end(&self, now: Instant) -> u64 {
        self.ended.set(Some(now));
        let (tally, stuck) = (&self.exchange.tally, self.stuck.borrow());
        if !stuck.is_empty()
            && let Ok(all) = established()
        {
            tally.still_stuck(stuck.intersection(&all).count() as u64);
        }
        let Some(pace) = &self.pace else { return 0 };
        let depth = u64::from(self.exchange.ask.depth);
        for (volleys, so_far) in pace.waits(now) {
            tally.waited(volleys * depth, so_far);
        }
        pace.unsent(now) * depth
    }

    /// All that was counted, once the loop is gone.
    fn count(&self, backend: &'static str, course: RunResult) -> Count {
        let RunResult { elapsed, bytes_read, mut over_time, rates, connecting, unsent } = course;
        let tally = &self.exchange.tally;
        over_time.push(tally.take_interval(elapsed));
        Count {
            backend,
            elapsed,
            requests: tally.requests(),
            bytes_read,
            latency: tally.take_latency(),
            errors: tally.errors(),
            idle: tally.idle(),
            stuck: tally.stuck(),
            over_time,
            rates,
            unanswered: tally.unanswered(),
            connecting,
            unsent,
            last_failure: self.last_failure.borrow().as_ref().map(ToString::to_string),
        }
    }
}

async fn work(worker: Rc<Worker>, orders: &WorkerConfig, part: Part, runner: Runner) -> RunResult {
    let tally = &worker.exchange.tally;
    hold::hold(&worker, orders, part).await;
    let begun = runner.ready().await;
    let bytes_before = tally.bytes_read();
    // Whoever has had enough before it begins wants none of it.
    let (duration, connections) =
        if orders.is_stopped() { (Duration::ZERO, 0) } else { (orders.duration, part.connections) };
    let end = begun + duration;
    if let Some(pace) = &worker.pace {
        pace.begin(begun);
        let worker = worker.clone();
        task::spawn(async move {
            if let Some(pace) = &worker.pace {
                pace.keep().await;
            }
        });
    }
    let role = if orders.never_read { Role::NeverRead } else { Role::Ask };
    for _ in 0..connections {
        task::spawn(worker.clone().keep(role));
    }

    let ticks_per_interval = (orders.duration.as_millis() / TICK.as_millis()).div_ceil(INTERVALS_MAX).max(1);
    let (mut over_time, mut rates, mut shown) = (Vec::new(), Vec::new(), (0, 0));
    let (mut ticks, mut last, mut last_requests) = (0, begun, 0);
    loop {
        ticks += 1;
        task::sleep_until((begun + TICK * ticks).min(end)).await;
        let now = Instant::now();
        let is_over = now >= end || orders.is_stopped() || orders.board.is_hopeless(orders.connections);
        let (requests, passed) = (tally.requests(), now - last);
        // A thread that only holds connections has no rate.
        if passed >= TICK / 2 && part.connections > 0 {
            rates.push((requests - last_requests) as f64 / passed.as_secs_f64());
            (last, last_requests) = (now, requests);
        }
        tally.show(&mut shown);
        if is_over {
            let (elapsed, bytes_read) = (now.saturating_duration_since(begun), tally.bytes_read() - bytes_before);
            let (connecting, unsent) = (worker.connecting.get(), worker.end(now));
            return RunResult { elapsed, bytes_read, over_time, rates, connecting, unsent };
        }
        if u128::from(ticks) % ticks_per_interval == 0 {
            over_time.push(tally.take_interval(now - begun));
        }
    }
}

/// Lets so many pass at a time: a listener has room for so many who wait to be accepted.
#[derive(Debug)]
struct Semaphore {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// Somebody who has passed; who waits may pass when it is dropped.
struct Turn<'a>(&'a Semaphore);

impl Semaphore {
    fn new(free: usize) -> Self {
        Self { free: Cell::new(free), waiting: RefCell::default() }
    }

    async fn enter(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if self.free.get() > 0 {
                self.free.set(self.free.get() - 1);
                return Poll::Ready(Turn(self));
            }
            self.waiting.borrow_mut().push_back(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        if let Some(waker) = self.0.waiting.borrow_mut().pop_front() {
            waker.wake();
        }
    }
}

/// Connections of a thread that are on their way at a time.
pub(crate) const CONNECTING_MAX: usize = 64;

/// How often is counted: as often as wrk does.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Points of the lines over time.
const INTERVALS_MAX: u128 = 100;

/// How long is waited after a connection that came to nothing, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Longer than any load.
const FOREVER: Duration = Duration::from_secs(1_000_000);
