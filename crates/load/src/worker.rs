//! `Worker`: one thread of a load: its loop, its connections, and the timer that samples its counts. `idle.rs` opens
//! the idle connections before the load begins.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidegate::codec::{DynOver, Filters};
use tidegate::tls::{ClientConfig, Tls};
use tidegate::{Address, Backend, Client, ConnectError, EventLoop, Limits, Over, WaterMarks, http3, task};

use super::budget::RequestBudget;
use super::connection::{Connector, LoadConnection};
use super::counters::WorkerStats;
use super::end_barrier::EndOfThread;
use super::http2::{Http2Codec, StreamsConnection};
use super::http3::{Http3Client, Http3Requests};
use super::idle;
use super::messages::Messages;
use super::permits::Semaphore;
use super::pipeline::{Exchange, Pipeline};
use super::redis::{CommandCodec, RedisCounts};
use super::resend::RefusedRequests;
use super::results::{Errors, HeldConnections, Interval};
use super::role::Role;
use super::schedule::{Schedule, next_iteration};
use super::shared_stats::SharedStats;
use super::sockets::{AddressPair, established};
use super::start_barrier::Runner;
use super::traffic::{Traffic, TrafficPlan};

/// The configuration of all threads of a load.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) traffic: TrafficPlan,
    /// Requests that a connection sends at once.
    pub(crate) depth: u32,
    /// With the name of the server; `None` for plain HTTP.
    pub(crate) tls: Option<(ClientConfig, String)>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) backend: Backend,
    pub(crate) duration: Duration,
    /// The time within which the rate is reached, or the connections are opened.
    pub(crate) ramp: Duration,
    pub(crate) timeout: Duration,
    pub(crate) never_read: bool,
    /// One connection sends messages on WebSockets, and all others receive them.
    pub(crate) broadcast: bool,
    /// Connections that receive messages and send none, over all threads.
    pub(crate) listeners: usize,
    /// Streams that an HTTP/2 or HTTP/3 connection keeps open.
    pub(crate) streams: u32,
    pub(crate) limits_of_http3: http3::Limits,
    /// Connections that send requests, over all threads.
    pub(crate) connections: usize,
    pub(crate) shared: Arc<SharedStats>,
    /// Set to end the load.
    pub(crate) stop: Arc<AtomicBool>,
}

impl WorkerConfig {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The share of one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// The number of the thread.
    pub(crate) index: usize,
    pub(crate) connections: usize,
    /// Such connections of the threads before this one.
    pub(crate) connections_before: usize,
    /// Connections that receive messages and send none.
    pub(crate) listeners: usize,
    pub(crate) idle: usize,
    /// Idle connections of the threads before this one: they determine the next source address.
    pub(crate) idle_before: usize,
    /// Requests per second, if the load has a rate.
    pub(crate) rate: Option<f64>,
}

/// The counts of one thread.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) backend: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
    pub(crate) good: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) redis: RedisCounts,
    pub(crate) bytes_read: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) errors: Errors,
    pub(crate) idle: HeldConnections,
    pub(crate) stuck: HeldConnections,
    pub(crate) goaways: u64,
    pub(crate) refused: u64,
    pub(crate) over_time: Vec<Interval>,
    pub(crate) rates: Vec<f64>,
    /// Requests in flight at the end.
    pub(crate) unanswered: u64,
    /// Connection attempts in progress at the end.
    pub(crate) connecting: u64,
    /// Requests that were due and not sent.
    pub(crate) unsent: u64,
    /// The last error of a connection attempt.
    pub(crate) last_failure: Option<String>,
}

/// Shared state of one thread's connections.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) traffic: Traffic,
    pub(crate) depth: u32,
    pub(crate) budget: RequestBudget,
    /// Requests that the server did not process.
    pub(crate) refused: RefusedRequests,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) timeout: Duration,
    /// Streams that an HTTP/2 or HTTP/3 connection keeps open.
    pub(crate) streams: u32,
    client: Client,
    http3: Option<Rc<Http3Client>>,
    /// The open HTTP/3 connections.
    http3_open: RefCell<BTreeMap<u64, Rc<Http3Requests>>>,
    tls: Option<(ClientConfig, String)>,
    connect_permits: Semaphore,
    /// Connection attempts in progress.
    connecting: Cell<u64>,
    last_failure: RefCell<Option<String>>,
    /// The addresses of connections that never read.
    stuck: RefCell<BTreeSet<AddressPair>>,
    /// When the load ended.
    ended: Cell<Option<Instant>>,
}

/// The result of one thread's measured time.
struct RunResult {
    elapsed: Duration,
    /// Without the responses to the idle connections, which came before the load began.
    bytes_read: u64,
    over_time: Vec<Interval>,
    rates: Vec<f64>,
    connecting: u64,
    unsent: u64,
}

/// Runs one thread's part of a load.
///
/// # Errors
/// If no event loop can be created, or the loop ends early.
pub(crate) fn run(config: &WorkerConfig, part: Part, runner: Runner, end: EndOfThread) -> Result<Count, String> {
    let mut event_loop = EventLoop::on(config.backend).map_err(|error| error.to_string())?;
    let worker = Rc::new(Worker::new(config, part).map_err(|error| error.to_string())?);
    let result = event_loop.block_on(work(worker.clone(), config, part, runner));
    let result = result.map_err(ended_early)?;
    let backend = event_loop.backend();
    end.wait();
    if !worker.http3_open.borrow().is_empty() {
        event_loop.block_on(close_http3(worker.clone())).map_err(ended_early)?;
    }
    // Dropping the loop closes the connections; those with unanswered requests count them in `closed`.
    drop(event_loop);
    Ok(worker.count(backend, result))
}

impl Worker {
    fn new(config: &WorkerConfig, part: Part) -> Result<Self, Box<dyn Error>> {
        // No limits on output: the load generator sends to a trusted server, and it measures slow servers too.
        let limits = Limits {
            water: WaterMarks::new(u64::MAX / 8, u64::MAX / 8),
            write_timeout: FOREVER,
            write_rate_min: 0,
            linger_timeout: Duration::ZERO,
            ..Limits::default()
        };
        let addresses = config.addresses.iter().copied().map(Address::from);
        let client = Client::at_each(addresses).connect_timeout(config.timeout).limits(limits.clone());
        let traffic = config.traffic.encode()?;
        let http3 = match (&traffic, &config.tls) {
            (Traffic::Http3(_), Some(tls)) => Some(Rc::new(Http3Client::new(
                &config.addresses,
                tls,
                (limits, config.timeout),
                &config.limits_of_http3,
            )?)),
            _ => None,
        };
        let mut exchange = Exchange::new(WorkerStats::new(config.shared.clone()), part.index);
        exchange.broadcasts = config.broadcast || config.listeners > 0;
        exchange.redis.replace(traffic.redis_counts());
        Ok(Self {
            exchange: Rc::new(exchange),
            traffic,
            depth: config.depth,
            budget: RequestBudget::new(config.shared.clone()),
            refused: RefusedRequests::default(),
            schedule: part.rate.map(|rate| Schedule::new(rate / f64::from(config.depth), config.ramp)),
            timeout: config.timeout,
            streams: config.streams,
            client,
            http3,
            http3_open: RefCell::default(),
            tls: config.tls.clone(),
            connect_permits: Semaphore::new(CONNECTING_MAX),
            connecting: Cell::default(),
            last_failure: RefCell::default(),
            stuck: RefCell::default(),
            ended: Cell::default(),
        })
    }

    /// Keeps one connection with this role open for as long as the load lasts: reconnects after each close.
    async fn keep(self: Rc<Self>, role: Role) {
        let mut pause = PAUSE_MIN;
        loop {
            let connector = Rc::new(Connector::default());
            let is_made = self.connect(None, role, connector.clone()).await;
            if is_made {
                connector.pass().await;
            }
            if is_made && role == Role::NeverRead || self.budget.is_used_up() || self.has_ended() {
                return;
            }
            if connector.has_served.get() {
                pause = PAUSE_MIN;
            } else {
                // As long as no attempt has succeeded, the server may be unreachable: pause for long, so that every
                // connection fails once before any retries (see `is_hopeless`).
                let longer = if self.exchange.stats.has_connected() { pause } else { PAUSE_MAX };
                task::sleep(longer).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }

    /// Keeps the connection that sends broadcasts open, from when all others can receive them.
    async fn keep_author(self: Rc<Self>, shared: Arc<SharedStats>, listeners: usize) {
        while shared.opened() < listeners as u64 {
            task::sleep(LISTENERS_GRAIN).await;
        }
        self.keep(Role::Active).await;
    }

    /// Opens the connections that receive broadcasts, before the measured time begins. A server that opens no more of
    /// them for the time limit of a request does not hold the load up for longer.
    async fn open_listeners(self: &Rc<Self>, config: &WorkerConfig, part: Part) {
        for _ in 0..part.listeners {
            task::spawn(self.clone().keep(Role::Listener));
        }
        let (mut opened, mut since) = (0, Instant::now());
        while !config.is_stopped() && !config.shared.is_hopeless(config.connections) {
            let count = config.shared.opened();
            if count > opened {
                (opened, since) = (count, Instant::now());
            }
            if count >= config.listeners as u64 || since.elapsed() >= self.timeout {
                return;
            }
            task::sleep(LISTENERS_GRAIN).await;
        }
    }

    /// Makes a connection, from this address if there is one. Returns whether there is a connection.
    pub(crate) async fn connect(self: &Rc<Self>, source: Option<IpAddr>, role: Role, connector: Rc<Connector>) -> bool {
        let _turn = self.connect_permits.enter().await;
        self.connecting.set(self.connecting.get() + 1);
        let connected = match (&self.traffic, &self.http3) {
            (Traffic::Http3(requests), Some(client)) => {
                Http3Requests::connect(self, (client, requests), source, (role, connector)).await
            }
            _ => self.connect_stream(source, role, connector).await.map_err(|error| error.to_string()),
        };
        self.connecting.set(self.connecting.get() - 1);
        match connected {
            Ok(()) => {
                self.exchange.stats.connected();
                true
            }
            Err(error) => {
                self.exchange.stats.unconnected();
                self.last_failure.replace(Some(error));
                false
            }
        }
    }

    /// Makes a connection over TCP.
    async fn connect_stream(
        self: &Rc<Self>,
        source: Option<IpAddr>,
        role: Role,
        connector: Rc<Connector>,
    ) -> Result<(), ConnectError> {
        let from_source = source.map(|source| self.client.clone().local(SocketAddr::new(source, 0)));
        let client = from_source.as_ref().unwrap_or(&self.client);
        let tls = self.tls.as_ref().map(|(config, name)| config.connect(name).expect("the name was checked"));
        let exchange = self.exchange.clone();
        let connection = LoadConnection::new(self.clone(), role, connector.clone());
        match &self.traffic {
            Traffic::Requests(requests) => {
                let pipeline = Pipeline::new(exchange, requests.clone());
                match tls {
                    None => client.connect_with(pipeline, connection).await.map(drop),
                    Some(tls) => client.connect_with(Over::new(tls, pipeline), connection).await.map(drop),
                }
            }
            Traffic::Messages(message) => {
                let messages = Messages::new(exchange, message.clone());
                client.connect_with(stack(tls, messages), connection).await.map(drop)
            }
            Traffic::Commands(plan) => {
                let commands = CommandCodec::new(exchange, plan.clone(), role);
                client.connect_with(stack(tls, commands), connection).await.map(drop)
            }
            Traffic::Streams(requests) => {
                let requests = Http2Codec::new(exchange, requests.clone());
                let connection = StreamsConnection::new(self.clone(), role, connector);
                client.connect_with(stack(tls, requests), connection).await.map(drop)
            }
            // It has a client of its own.
            Traffic::Http3(_) => Ok(()),
        }
    }

    /// Adds an open HTTP/3 connection. Returns its number.
    pub(crate) fn add_http3(&self, requests: Rc<Http3Requests>) -> u64 {
        let mut open = self.http3_open.borrow_mut();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        open.insert(number, requests);
        number
    }

    pub(crate) fn remove_http3(&self, number: u64) {
        self.http3_open.borrow_mut().remove(&number);
    }

    /// Whether the load is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Registers a connection that will never read.
    pub(crate) fn never_reads(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        self.stuck.borrow_mut().extend(local.zip(remote));
    }

    /// A connection closes with `count` requests unanswered since `since`. Once the load has ended, they count as
    /// unanswered.
    pub(crate) fn left_waiting(&self, count: u32, since: Instant) {
        let Some(ended) = self.ended.get() else { return };
        self.exchange.stats.left(count);
        // Without a rate there are no scheduled send times, and only responses have a latency.
        if self.schedule.is_some() && !self.exchange.broadcasts {
            self.exchange.stats.count_unanswered(count.into(), ended.saturating_duration_since(since));
        }
    }

    /// Ends the load while its connections are still open. Returns the number of requests that were due and not sent.
    fn end(&self, now: Instant) -> u64 {
        self.ended.set(Some(now));
        let (stats, stuck) = (&self.exchange.stats, self.stuck.borrow());
        if !stuck.is_empty()
            && let Ok(all) = established()
        {
            stats.still_stuck(stuck.intersection(&all).count() as u64);
        }
        // With a number of requests, those that are due after the last one are none of the load.
        let Some(schedule) = self.schedule.as_ref().filter(|_| !self.budget.is_used_up()) else { return 0 };
        let depth = u64::from(self.depth);
        // The latency of a broadcast is that of a delivery.
        for (batches, so_far) in schedule.waits(now).filter(|_| !self.exchange.broadcasts) {
            stats.count_unanswered(batches * depth, so_far);
        }
        schedule.unsent(now) * depth
    }

    /// All counts, after the loop was dropped.
    fn count(&self, backend: &'static str, result: RunResult) -> Count {
        let RunResult { elapsed, bytes_read, mut over_time, rates, connecting, unsent } = result;
        let stats = &self.exchange.stats;
        // Those that no connection has sent again.
        while let Some(begun) = self.refused.pop().and_then(|request| request.begun) {
            self.left_waiting(1, begun);
        }
        over_time.push(stats.take_interval(elapsed));
        Count {
            backend,
            elapsed,
            requests: stats.requests(),
            good: stats.good(),
            statuses: stats.statuses(),
            redis: self.exchange.redis.take(),
            bytes_read,
            latency: stats.take_latency(),
            errors: stats.errors(),
            idle: stats.idle(),
            stuck: stats.stuck(),
            goaways: stats.goaways(),
            refused: stats.refusals(),
            over_time,
            rates,
            unanswered: stats.unanswered(),
            connecting,
            unsent,
            last_failure: self.last_failure.borrow().clone(),
        }
    }
}

/// An event loop has ended before the load has.
fn ended_early(error: impl Display) -> String {
    format!("an event loop of the load has ended: {error}")
}

/// Closes the HTTP/3 connections. The kernel closes TCP connections alone.
async fn close_http3(worker: Rc<Worker>) {
    worker.http3_open.borrow().values().for_each(|requests| requests.wake());
    while !worker.http3_open.borrow().is_empty() {
        next_iteration().await;
    }
    // The last packets leave at the end of a pass.
    next_iteration().await;
}

async fn work(worker: Rc<Worker>, config: &WorkerConfig, part: Part, runner: Runner) -> RunResult {
    let stats = &worker.exchange.stats;
    idle::open_all(&worker, config, part).await;
    if (config.broadcast || config.listeners > 0) && !config.is_stopped() {
        worker.open_listeners(config, part).await;
    }
    let begun = runner.ready().await;
    let bytes_before = stats.bytes_read();
    // A signal before the start: the load lasts no time and opens no connections.
    let (duration, connections) =
        if config.is_stopped() { (Duration::ZERO, 0) } else { (config.duration, part.connections) };
    let end = begun + duration;
    if let Some(schedule) = &worker.schedule {
        schedule.begin(begun);
        let worker = worker.clone();
        task::spawn(async move {
            if let Some(schedule) = &worker.schedule {
                schedule.keep().await;
            }
        });
    }
    start_connections(&worker, config, part, connections, begun);

    let ticks_per_interval = (config.duration.as_millis() / TICK.as_millis()).div_ceil(INTERVALS_MAX).max(1);
    let (mut over_time, mut rates, mut shown) = (Vec::new(), Vec::new(), (0, 0));
    let (mut ticks, mut last, mut last_requests) = (0, begun, 0);
    loop {
        ticks += 1;
        let tick = (begun + TICK * ticks).min(end).saturating_duration_since(Instant::now());
        let used_up = task::timeout(tick, worker.budget.used_up()).await;
        let (is_used_up, over_at) = (used_up.is_ok(), used_up.ok().flatten());
        let now = over_at.map_or_else(Instant::now, |at| at.max(begun));
        let is_over = is_used_up || now >= end || config.is_stopped() || config.shared.is_hopeless(config.connections);
        let (requests, passed) = (stats.requests(), now.saturating_duration_since(last));
        // A thread with idle connections only has no rate.
        if passed >= TICK / 2 && part.connections > 0 {
            rates.push((requests - last_requests) as f64 / passed.as_secs_f64());
            (last, last_requests) = (now, requests);
        }
        stats.show(&mut shown);
        if ticks % LIVE_TICKS == 0 {
            stats.show_live(part.index);
        }
        if is_over {
            let (elapsed, bytes_read) = (now.saturating_duration_since(begun), stats.bytes_read() - bytes_before);
            let (connecting, unsent) = (worker.connecting.get(), worker.end(now));
            return RunResult { elapsed, bytes_read, over_time, rates, connecting, unsent };
        }
        if u128::from(ticks) % ticks_per_interval == 0 {
            over_time.push(stats.take_interval(now - begun));
        }
    }
}

/// Opens the connections that send requests: at once, or evenly over the ramp if no rate has it.
fn start_connections(worker: &Rc<Worker>, config: &WorkerConfig, part: Part, connections: usize, begun: Instant) {
    let ramp = if part.rate.is_some() { Duration::ZERO } else { config.ramp };
    for index in 0..connections {
        let worker = worker.clone();
        if config.broadcast {
            if index == 0 && part.index == 0 {
                task::spawn(worker.keep_author(config.shared.clone(), config.listeners));
            }
            continue;
        }
        let role = if config.never_read { Role::NeverRead } else { Role::Active };
        if ramp.is_zero() {
            task::spawn(worker.keep(role));
            continue;
        }
        let after = opening_time(ramp, part.connections_before + index, config.connections);
        task::spawn(async move {
            task::sleep_until(begun + after).await;
            worker.keep(role).await;
        });
    }
}

/// How long after the begin of a load a connection is opened, of so many: evenly within the ramp.
fn opening_time(ramp: Duration, number: usize, connections: usize) -> Duration {
    ramp.mul_f64(number as f64 / connections as f64)
}

/// The maximum number of concurrent connection attempts of a thread.
pub(crate) const CONNECTING_MAX: usize = 64;

/// The sampling interval, which is wrk's.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The live table is updated after so many ticks.
const LIVE_TICKS: u32 = 5;

/// The maximum number of intervals in the charts over time.
const INTERVALS_MAX: u128 = 100;

/// The first and the longest pause after a connection that got no response.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often the author of broadcasts looks whether all others are there.
const LISTENERS_GRAIN: Duration = Duration::from_millis(10);

/// Longer than any load.
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// A codec over TLS or without it. The type is the same for both, since each pipeline is code of its own.
fn stack<C: tidegate::codec::Pipeline>(tls: Option<Tls>, codec: C) -> DynOver<C> {
    tls.into_iter().fold(Filters::default(), Filters::with).stack(codec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_open_evenly_within_the_ramp() {
        let times = [0, 1, 10, 19].map(|number| opening_time(Duration::from_secs(2), number, 20).as_millis());
        assert_eq!(times, [0, 100, 1_000, 1_900]);
    }
}
