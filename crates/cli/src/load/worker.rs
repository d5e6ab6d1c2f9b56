//! `Worker`: one thread of a load: its loop, its connections, and the clock of what it counts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidegate::{Address, Client, ConnectError, EventLoop, Limits, Transport, WaterMarks, task};

use super::figures::{Errors, Held, Interval};
use super::pace::Pace;
use super::pipeline::{Exchange, Pipeline};
use super::request::{BadRequest, Recipe};
use super::tally::{Board, Tally};
use super::visitor::{Door, Role, Visitor};

/// What all threads of a load are told.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) recipe: Recipe,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) transport: Transport,
    pub(crate) duration: Duration,
    pub(crate) timeout: Duration,
    pub(crate) never_read: bool,
    pub(crate) board: Arc<Board>,
    /// Whoever sets it wants the load to end.
    pub(crate) stop: Arc<AtomicBool>,
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
    pub(crate) transport: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
    pub(crate) bytes_read: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) errors: Errors,
    pub(crate) idle: Held,
    pub(crate) stuck: Held,
    pub(crate) over_time: Vec<Interval>,
    pub(crate) rates: Vec<f64>,
    /// Requests that were due and not sent.
    pub(crate) unsent: u64,
    /// Why nobody could be reached, if nobody could.
    pub(crate) unreachable: Option<String>,
}

/// What the connections of one thread share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) pace: Option<Pace>,
    pub(crate) timeout: Duration,
    client: Client,
    turnstile: Turnstile,
    /// Connections that were made.
    made: Cell<usize>,
    failed: Cell<usize>,
    last_failure: RefCell<Option<ConnectError>>,
}

/// Runs one thread's part of a load.
///
/// # Errors
/// If there is no event loop to be had, or it ends.
pub(crate) fn run(orders: &Orders, part: Part) -> Result<Count, String> {
    let mut event_loop = EventLoop::on(orders.transport).map_err(|error| error.to_string())?;
    let worker = Rc::new(Worker::new(orders, part).map_err(|error| error.to_string())?);
    let count = event_loop.block_on(work(worker, orders, part));
    let count = count.map_err(|error| format!("an event loop of the load has ended: {error}"))?;
    Ok(Count { transport: event_loop.transport(), ..count })
}

impl Worker {
    fn new(orders: &Orders, part: Part) -> Result<Self, BadRequest> {
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
            exchange: Rc::new(Exchange::new(orders.recipe.ask()?, Tally::new(orders.board.clone()))),
            pace: part.rate.map(|rate| Pace::new(rate / f64::from(orders.recipe.depth))),
            timeout: orders.timeout,
            client,
            turnstile: Turnstile::new(CONNECTING_MAX),
            made: Cell::default(),
            failed: Cell::default(),
            last_failure: RefCell::default(),
        })
    }

    /// One connection after the other with the same role, for as long as the load lasts.
    async fn keep(self: Rc<Self>, role: Role) {
        let mut pause = PAUSE_MIN;
        loop {
            let door = Rc::new(Door::default());
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
                let longer = if self.made.get() == 0 { PAUSE_MAX } else { pause };
                task::sleep(longer).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }

    /// Makes `count` connections that do nothing, one after the other.
    async fn hold(self: Rc<Self>, sources: Vec<Option<IpAddr>>) {
        for source in sources {
            let mut client = self.client.clone();
            if let Some(source) = source {
                client = client.local(SocketAddr::new(source, 0));
            }
            let door = Rc::new(Door::default());
            if self.connect(&client, Role::Idle, door.clone()).await {
                door.pass().await;
            }
        }
    }

    async fn connect(self: &Rc<Self>, client: &Client, role: Role, door: Rc<Door>) -> bool {
        let _turn = self.turnstile.enter().await;
        let visitor = Visitor::new(self.clone(), role, door);
        match client.connect_with(Pipeline::new(self.exchange.clone()), visitor).await {
            Ok(_) => {
                self.made.set(self.made.get() + 1);
                true
            }
            Err(error) => {
                self.failed.set(self.failed.get() + 1);
                self.exchange.tally.unconnected();
                self.last_failure.replace(Some(error));
                false
            }
        }
    }

    /// Whether every connection has been tried and none could be made.
    fn unreachable(&self, part: Part) -> Option<String> {
        let is_hopeless = self.made.get() == 0 && self.failed.get() >= part.connections.max(1);
        self.last_failure.borrow().as_ref().filter(|_| is_hopeless).map(ToString::to_string)
    }
}

async fn work(worker: Rc<Worker>, orders: &Orders, part: Part) -> Count {
    let tally = &worker.exchange.tally;
    let sources: Vec<_> =
        (part.idle_before..part.idle_before + part.idle).map(|index| source(&orders.addresses, index)).collect();
    let holding: Vec<_> = sources
        .chunks(part.idle.div_ceil(CONNECTING_MAX).max(1))
        .map(|sources| task::spawn(worker.clone().hold(sources.to_vec())))
        .collect();
    for task in holding {
        // None is cancelled, and one that panicked has held what it has held.
        let _ = task.await;
    }

    let begun = Instant::now();
    let end = begun + orders.duration;
    if worker.pace.is_some() {
        let worker = worker.clone();
        task::spawn(async move {
            if let Some(pace) = &worker.pace {
                pace.keep().await;
            }
        });
    }
    let role = if orders.never_read { Role::NeverRead } else { Role::Ask };
    for _ in 0..part.connections {
        task::spawn(worker.clone().keep(role));
    }

    let ticks_per_interval = (orders.duration.as_millis() / TICK.as_millis()).div_ceil(INTERVALS_MAX).max(1);
    let (mut over_time, mut rates, mut shown) = (Vec::new(), Vec::new(), (0, 0));
    let (mut ticks, mut last, mut last_requests, mut unreachable) = (0, begun, 0, None);
    loop {
        ticks += 1;
        task::sleep_until((begun + TICK * ticks).min(end)).await;
        let now = Instant::now();
        let is_over = now >= end || orders.stop.load(Ordering::Relaxed);
        unreachable = unreachable.or_else(|| worker.unreachable(part));
        let (requests, passed) = (tally.requests(), now - last);
        if passed >= TICK / 2 {
            rates.push((requests - last_requests) as f64 / passed.as_secs_f64());
            (last, last_requests) = (now, requests);
        }
        let is_over = is_over || unreachable.is_some() && worker.made.get() == 0;
        if is_over || u128::from(ticks) % ticks_per_interval == 0 {
            over_time.push(tally.take_interval(now - begun));
        }
        tally.show(&mut shown);
        if is_over {
            let unsent = worker.pace.as_ref().map_or(0, |pace| pace.unsent(now) * u64::from(orders.recipe.depth));
            return Count {
                transport: "",
                elapsed: now - begun,
                requests,
                bytes_read: tally.bytes_read(),
                latency: tally.take_latency(),
                errors: tally.errors(),
                idle: tally.idle(),
                stuck: tally.stuck(),
                over_time,
                rates,
                unsent,
                unreachable,
            };
        }
    }
}

/// The address from which the idle connection of this number comes: on the way to a loopback address there are many, each
/// with ports of its own.
fn source(addresses: &[SocketAddr], index: usize) -> Option<IpAddr> {
    let is_loopback = addresses.iter().all(|address| matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback()));
    let last = u8::try_from(2 + index % SOURCES).unwrap_or(2);
    is_loopback.then(|| Ipv4Addr::new(127, 0, 0, last).into())
}

/// Lets so many pass at a time: a listener has room for so many who wait to be accepted.
#[derive(Debug)]
struct Turnstile {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// Somebody who has passed; who waits may pass when it is dropped.
struct Turn<'a>(&'a Turnstile);

impl Turnstile {
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

/// Addresses from which idle connections come.
const SOURCES: usize = 20;

/// Connections of a thread that are on their way at a time.
const CONNECTING_MAX: usize = 64;

/// How often is counted: as often as wrk does.
const TICK: Duration = Duration::from_millis(100);

/// Points of the lines over time.
const INTERVALS_MAX: u128 = 100;

/// How long is waited after a connection that came to nothing, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Longer than any load.
const FOREVER: Duration = Duration::from_secs(1_000_000);
