//! `Stage`: the environment of a scenario: event loops, raw peers and addresses, on any test backend.
//!
//! A scenario states the actions and the expected results. The [`TestBackend`] provides a real kernel or a simulated
//! one: a scenario uses no descriptor and no clock, and waits for conditions.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, CloseReason, Context, Counts, Event, EventLoop, Handler, Limits, Outcome};
use tidegate_sys::{Address, Driver, Socket};
use tidegate_testkit::Random;
use tidegate_testkit::network::SimNode;

use crate::journal::Journal;
use crate::raw_peer::RawPeer;
use crate::stack::{MakeTransport, Stack};

/// The drivers, sockets and clock beneath the loops of a scenario.
pub(crate) trait TestBackend {
    /// A loop, over the driver that `wrap` makes of one of this backend.
    fn site(&self, side: Side, wrap: Wrap) -> Site;

    /// A driver without a loop.
    fn driver(&self, side: Side, pool: &Pool) -> Box<dyn Driver>;

    /// A listener at an unused address.
    fn listener(&self, family: Family) -> (Socket, Address);

    /// An address without a listener.
    fn nowhere(&self) -> Address;

    /// A port of a client that has no socket.
    fn free_port(&self) -> u16;

    /// An address from which no answer comes.
    fn unresponsive(&self) -> Address;

    /// A time that is long for this backend.
    fn unit(&self) -> Duration;

    /// How late a deadline may fire.
    fn delay_max(&self) -> Duration;

    /// More bytes than all buffers beneath a connection take together.
    fn bulk(&self) -> usize;

    /// Lets time pass until the condition holds, at most for `patience`; returns whether it holds.
    fn run_until(&self, patience: Duration, is_so: &mut dyn FnMut() -> bool) -> bool;

    /// How long to wait for a condition that must come true.
    fn patience(&self) -> Duration;

    /// The seed of all choices.
    fn seed(&self) -> u64;

    /// Whether time goes by itself, and threads come when they like.
    fn is_real(&self) -> bool;

    /// The number of connections that counts as many on this backend.
    fn many(&self) -> usize;

    /// More bytes than the backend takes for a peer that reads none.
    fn much(&self) -> usize;

    /// Which kinds of addresses there are.
    fn families(&self) -> &'static [Family];

    /// Runs a loop without events for some time, and returns how often it turned.
    fn turns_within(&self, site: &Site, time: Duration) -> u64;

    /// Lets a loop sleep without a timeout, runs `act` on another thread meanwhile, and returns whether the loop has
    /// turned since. Loops of a simulation do not really sleep: the network turns them.
    fn wakes(&self, site: &Site, act: Box<dyn FnOnce() + Send>) -> bool;

    /// Sockets that are still open.
    fn sockets(&self) -> usize;

    /// How many bytes of a connection a driver may deliver after the loop has stopped receiving.
    fn late_bytes_max(&self) -> usize {
        0
    }
}

/// Wraps the driver of a loop.
pub(crate) type Wrap = Box<dyn FnOnce(Box<dyn Driver>) -> Box<dyn Driver>>;

/// The payload of a panic that a scenario asks for.
struct PanicOnRequest;

/// Panics as a handler with a bug does. The scenario calls `Stage::expect_panics` first.
pub(crate) fn panic_on_request() -> ! {
    panic::panic_any(PanicOnRequest)
}

/// The host of a loop or driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// Kinds of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
    Unix,
}

/// An event loop of the stage.
#[derive(Clone)]
pub(crate) enum Site {
    Simulated(Rc<SimNode>),
    /// The loop, its pool, and the bytes of its driver's receive buffer.
    Real(Rc<RefCell<EventLoop>>, Pool, usize),
}

impl Site {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        match self {
            Self::Simulated(node) => node.with(act),
            Self::Real(event_loop, ..) => act(&mut event_loop.borrow_mut()),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.with(|event_loop| event_loop.counts())
    }

    pub(crate) fn pool(&self) -> Pool {
        match self {
            Self::Simulated(node) => node.pool().clone(),
            Self::Real(_, pool, _) => pool.clone(),
        }
    }

    /// Bytes in the ledger, without those that were in it before the first connection.
    pub(crate) fn used(&self) -> usize {
        let at_rest = if let Self::Real(_, _, at_rest) = self { *at_rest } else { 0 };
        self.pool().ledger().used().saturating_sub(at_rest)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.with(|event_loop| event_loop.is_drained())
    }

    /// Whether the loop sleeps when it has no events. A simulated one does: otherwise the network would not come to
    /// rest.
    pub(crate) fn comes_to_rest(&self) -> bool {
        let Self::Real(event_loop, ..) = self else { return true };
        (0..TURNS_AWAKE_MAX).any(|_| {
            let begun = Instant::now();
            event_loop.borrow_mut().turn(Some(SLEEP)).expect("waiting does not fail");
            begun.elapsed() >= SLEEP
        })
    }
}

/// The environment of a scenario, with everything that it has set up.
pub(crate) struct Stage {
    backend: Box<dyn TestBackend>,
    make_transport: Option<MakeTransport>,
    sites: RefCell<Vec<Site>>,
    raw_peers: RefCell<Vec<RawPeer>>,
    life: Rc<Life>,
    /// The scenario panics on purpose.
    panics: Cell<bool>,
}

/// The handlers that were made, opened and closed.
#[derive(Debug, Default)]
pub(crate) struct Life {
    made: Cell<usize>,
    opened: Cell<usize>,
    gone: Cell<usize>,
    /// The number and the close reason of each handler, in the order of their `closed` calls.
    reasons: RefCell<Vec<(usize, String)>>,
    /// Calls of handlers after `closed`.
    late_calls: Cell<usize>,
}

impl Life {
    /// The number of handlers made so far, which is the number of the next one.
    pub(crate) fn made(&self) -> usize {
        self.made.get()
    }

    /// The close reason of a handler, if it was closed.
    pub(crate) fn reason_of(&self, number: usize) -> Option<String> {
        let reasons = self.reasons.borrow();
        reasons.iter().find(|(which, _)| *which == number).map(|(_, reason)| reason.clone())
    }
}

impl Stage {
    /// `make_transport` is the transport of the scenario's pipeline for raw peers.
    pub(crate) fn new(backend: impl TestBackend + 'static, make_transport: Option<MakeTransport>) -> Self {
        Self {
            backend: Box::new(backend),
            make_transport,
            sites: RefCell::default(),
            raw_peers: RefCell::default(),
            life: Rc::default(),
            panics: Cell::new(false),
        }
    }

    pub(crate) fn server(&self) -> Site {
        self.site_over(Side::Server, Box::new(|driver| driver))
    }

    pub(crate) fn client(&self) -> Site {
        self.site_over(Side::Client, Box::new(|driver| driver))
    }

    /// A loop over a driver that `wrap` makes of the backend's.
    pub(crate) fn site_over(&self, side: Side, wrap: Wrap) -> Site {
        let site = self.backend.site(side, wrap);
        self.sites.borrow_mut().push(site.clone());
        site
    }

    /// A peer without a loop, on the clients' host.
    pub(crate) fn raw_peer(&self) -> RawPeer {
        let pool = Pool::new();
        let raw_peer = RawPeer::new(self.backend.driver(Side::Client, &pool), pool, self.make_transport);
        self.raw_peers.borrow_mut().push(raw_peer.clone());
        raw_peer
    }

    /// A listener on the servers' host.
    pub(crate) fn listener(&self, family: Family) -> (Socket, Address) {
        self.backend.listener(family)
    }

    pub(crate) fn nowhere(&self) -> Address {
        self.backend.nowhere()
    }

    /// A port of a client that has no socket.
    pub(crate) fn free_port(&self) -> u16 {
        self.backend.free_port()
    }

    pub(crate) fn unresponsive(&self) -> Address {
        self.backend.unresponsive()
    }

    /// A multiple of a time that is long for the backend: for deadlines.
    pub(crate) fn units(&self, count: u32) -> Duration {
        self.backend.unit() * count
    }

    /// How long to wait for a condition that must come true.
    pub(crate) fn patience(&self) -> Duration {
        self.backend.patience()
    }

    /// How late a deadline may fire.
    pub(crate) fn delay_max(&self) -> Duration {
        self.backend.delay_max()
    }

    /// More bytes than the buffers beneath a connection hold together, and than a raw peer receives with the end of its
    /// handshake.
    pub(crate) fn late_bytes_max(&self) -> usize {
        self.backend.late_bytes_max()
    }

    pub(crate) fn bulk(&self) -> usize {
        self.backend.bulk() * if self.make_transport.is_some() { 2 } else { 1 }
    }

    /// Randomness that is the same with the same seed.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.backend.seed())
    }

    /// These limits with timeouts of days in the place of the default ones, where time goes by itself: a machine that runs
    /// other programs delays a peer by minutes. A scenario about a timeout sets its own.
    pub(crate) fn limits(&self, mut limits: Limits) -> Limits {
        let default = Limits::default();
        if self.is_real() && limits.write_timeout == default.write_timeout {
            limits.write_timeout = NEVER_IN_A_TEST;
        }
        if self.is_real() && limits.deadlines.handshake_timeout == default.deadlines.handshake_timeout {
            limits.deadlines.handshake_timeout = Some(NEVER_IN_A_TEST);
        }
        limits
    }

    /// Listens with a handler for each connection, made of a closure.
    pub(crate) fn listen<C, A>(
        &self,
        site: &Site,
        limits: Limits,
        codec: impl Fn() -> C + 'static,
        act: impl Fn() -> A + 'static,
    ) -> Address
    where
        C: Pipeline<In = Slice>,
        A: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
    {
        self.listen_at(Family::V4, site, limits, codec, act)
    }

    pub(crate) fn listen_at<C, A>(
        &self,
        family: Family,
        site: &Site,
        limits: Limits,
        codec: impl Fn() -> C + 'static,
        act: impl Fn() -> A + 'static,
    ) -> Address
    where
        C: Pipeline<In = Slice>,
        A: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
    {
        let (socket, address) = self.listener(family);
        let (life, limits) = (self.life.clone(), self.limits(limits));
        let make: MakeAt<C> = Box::new(move |_| (codec(), Probe::new(&life, act())));
        site.with(|event_loop| event_loop.listen(socket, limits, live(), make)).expect("the listener is taken");
        address
    }

    /// Listens with handlers that note their calls in a journal, and all act alike.
    pub(crate) fn listen_noting<S: Stack>(
        &self,
        site: &Site,
        limits: Limits,
        journal: &Journal,
        act: impl Fn(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + 'static,
    ) -> Address {
        let (journal, act) = (journal.clone(), Rc::new(act));
        self.listen(site, limits, S::server, move || {
            let (journal, act) = (journal.clone(), act.clone());
            move |call: Call, cx: &mut Cx<'_, S::Codec>| {
                journal.note_call(&call);
                act(call, cx)
            }
        })
    }

    /// Listens with a task for each connection.
    pub(crate) fn serve<C, F>(
        &self,
        site: &Site,
        limits: Limits,
        codec: impl Fn() -> C + 'static,
        serve: impl Fn(Channel<C>) -> F + 'static,
    ) -> Address
    where
        C: Pipeline,
        F: Future<Output = Served> + 'static,
    {
        let ((socket, address), limits) = (self.listener(Family::V4), self.limits(limits));
        let codec: Make<C> = Box::new(codec);
        let serve: Box<dyn Fn(Channel<C>) -> Serving> = Box::new(move |channel| Box::pin(serve(channel)));
        site.with(|event_loop| event_loop.serve(socket, limits, live(), codec, serve)).expect("the listener is taken");
        address
    }

    /// Listens with sessions, and a handler for each stream, made of a closure.
    pub(crate) fn listen_streams<P, C, A>(
        &self,
        site: &Site,
        limits: Limits,
        mux: impl Fn() -> P + 'static,
        codec: impl Fn() -> C + 'static,
        act: impl Fn() -> A + 'static,
    ) -> Address
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline<In = Slice>,
        A: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
    {
        let (socket, address) = self.listener(Family::V4);
        let (life, limits) = (self.life.clone(), self.limits(limits));
        let make: Make<(C, Probe<C>)> = Box::new(move || (codec(), Probe::new(&life, act())));
        let mux: Make<P> = Box::new(mux);
        let listening = site.with(|event_loop| event_loop.listen_streams(socket, limits, live(), mux, make));
        listening.expect("the listener is taken");
        address
    }

    /// Listens with sessions, and a task for each stream.
    pub(crate) fn serve_streams<P, C, F>(
        &self,
        site: &Site,
        limits: Limits,
        mux: impl Fn() -> P + 'static,
        codec: impl Fn() -> C + 'static,
        serve: impl Fn(Channel<C>) -> F + 'static,
    ) -> Address
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline,
        F: Future<Output = Served> + 'static,
    {
        let ((socket, address), limits) = (self.listener(Family::V4), self.limits(limits));
        let (mux, codec): (Make<P>, Make<C>) = (Box::new(mux), Box::new(codec));
        let serve: Box<dyn Fn(Channel<C>) -> Serving> = Box::new(move |channel| Box::pin(serve(channel)));
        let serving = site.with(|event_loop| event_loop.serve_streams(socket, limits, live(), mux, codec, serve));
        serving.expect("the listener is taken");
        address
    }

    /// Connects a raw peer, which receives all bytes, and sends its hello.
    pub(crate) fn connect<S: Stack>(&self, raw_peer: &RawPeer, to: &Address) -> usize {
        let end = raw_peer.connect(to);
        // The server may have accepted the connection and cut it off meanwhile.
        self.until("a raw peer is connected", || raw_peer.inspect(end, |seen| seen.connected.is_some()));
        raw_peer.receive(end, true);
        raw_peer.send(end, &S::hello());
        end
    }

    /// A raw peer sends its goodbye, and shuts down its side.
    pub(crate) fn send_goodbye<S: Stack>(&self, raw_peer: &RawPeer, end: usize) {
        raw_peer.send(end, &S::goodbye());
        raw_peer.end_plain(end);
        if raw_peer.pending(end) > 0 {
            self.until("a raw peer has sent everything", || raw_peer.pending(end) == 0);
        }
        raw_peer.shutdown_write(end);
    }

    /// Whether time goes by itself, and threads come when they like.
    pub(crate) fn is_real(&self) -> bool {
        self.backend.is_real()
    }

    /// The number of connections that counts as many on this backend.
    pub(crate) fn many(&self) -> usize {
        self.backend.many()
    }

    /// More bytes than the backend takes for a peer that reads none.
    pub(crate) fn much(&self) -> usize {
        self.backend.much()
    }

    /// Which kinds of addresses there are.
    pub(crate) fn families(&self) -> &'static [Family] {
        self.backend.families()
    }

    /// How often a loop turns while nothing happens.
    pub(crate) fn turns_within(&self, site: &Site, time: Duration) -> u64 {
        self.backend.turns_within(site, time)
    }

    /// Whether an action of another thread ends a loop's sleep, which has no timeout.
    pub(crate) fn wakes(&self, site: &Site, act: impl FnOnce() + Send + 'static) -> bool {
        self.backend.wakes(site, Box::new(act))
    }

    /// The close reasons of the handlers, in the order of their `closed` calls.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.life.reasons.borrow().iter().map(|(_, reason)| reason.clone()).collect()
    }

    /// Allows panics, which fail a scenario otherwise. Those of `panic_on_request` print nothing: their backtraces would
    /// take longer than the scenarios.
    pub(crate) fn expect_panics(&self) {
        self.panics.set(true);
        static SILENCED: Once = Once::new();
        SILENCED.call_once(|| {
            let print = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !info.payload().is::<PanicOnRequest>() {
                    print(info);
                }
            }));
        });
    }

    /// The record of the handlers.
    pub(crate) fn life(&self) -> Rc<Life> {
        self.life.clone()
    }

    /// The seed of all choices.
    pub(crate) fn seed(&self) -> u64 {
        self.backend.seed()
    }

    /// Waits until `count` handlers are closed in all, and returns the last close reason.
    #[track_caller]
    pub(crate) fn reason(&self, count: usize) -> String {
        self.until("handlers are closed", || self.life.gone.get() >= count);
        self.reasons().pop().unwrap_or_default()
    }

    /// A handler made of a closure, with its calls recorded.
    pub(crate) fn probe<C: Pipeline>(&self, act: impl FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static) -> Probe<C> {
        Probe::new(&self.life, act)
    }

    /// Starts a task on a loop; [`outcome`](Self::outcome) waits for its result.
    pub(crate) fn start<T: 'static>(&self, site: &Site, future: impl Future<Output = T> + 'static) -> Started<T> {
        let started = Started::default();
        let place = started.0.clone();
        let future: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(async move { *place.borrow_mut() = Some(future.await) });
        let task: Task<()> = site.with(|event_loop| event_loop.spawn(future));
        // A task whose handle is dropped goes on.
        drop(task);
        started
    }

    /// The result of a task.
    pub(crate) fn outcome<T>(&self, started: &Started<T>) -> T {
        self.until("a task ends", || started.0.borrow().is_some());
        started.0.take().expect("it has ended")
    }

    /// Waits for a condition that must come true.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        let happened = self.happens(self.backend.patience(), is_so);
        assert!(happened, "it never happened that {what}; {}", self.describe());
    }

    /// Lets time pass.
    pub(crate) fn rest(&self, time: Duration) {
        self.happens(time, || false);
    }

    /// Whether a condition comes true within some time.
    pub(crate) fn happens(&self, within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let raw_peers = self.raw_peers.borrow().clone();
        self.backend.run_until(within, &mut || {
            raw_peers.iter().for_each(RawPeer::turn);
            is_so()
        })
    }

    /// Asserts that a scenario leaves nothing behind: no connection, no socket, no byte, no handler without a `closed`
    /// call.
    pub(crate) fn finish(self) {
        self.raw_peers.borrow().iter().for_each(RawPeer::close_all);
        let sites = self.sites.borrow().clone();
        self.until("all connections are gone", || sites.iter().all(|site| site.counts().connections == 0));
        sites.iter().for_each(|site| site.with(|event_loop| event_loop.drain(Duration::ZERO)));
        self.until("all loops are drained", || sites.iter().all(Site::is_drained));
        if !self.panics.get() {
            let panicked = |counts: Counts| counts.closed_panicked + counts.tasks_panicked;
            assert!(sites.iter().all(|site| panicked(site.counts()) == 0), "unexpected panic; {}", self.describe());
        }
        // A simulated driver may still have completions for closed sockets.
        self.until("all sockets are closed", || self.backend.sockets() == 0);
        assert_eq!(self.life.opened.get(), self.life.gone.get(), "handlers that were opened, and closed");
        let streams: u64 = sites.iter().map(|site| site.counts().streams).sum();
        assert_eq!(streams, 0, "streams that are counted as open");
        assert_eq!(self.life.late_calls.get(), 0, "calls of handlers after `closed`");
        let raw_peers = self.raw_peers.take();
        let pools: Vec<_> = sites.iter().map(Site::pool).chain(raw_peers.iter().map(RawPeer::pool)).collect();
        drop((sites, raw_peers, self));
        for pool in pools {
            assert_eq!(pool.ledger().used(), 0, "bytes are left in the ledger");
        }
    }

    fn describe(&self) -> String {
        let counts: Vec<_> = self.sites.borrow().iter().map(Site::counts).collect();
        format!("{} sockets are open, {:?}, {counts:#?}", self.backend.sockets(), self.life)
    }
}

/// The calls of a handler, as one type.
#[derive(Debug)]
pub(crate) enum Call {
    Open,
    Message(Slice),
    Event(Event<Post>),
}

impl Call {
    /// The default outcome.
    pub(crate) fn by_default<C: Pipeline>(self, cx: &Cx<'_, C>) -> Outcome<C> {
        match self {
            Self::Event(event) => event.by_default(cx),
            _ => Outcome::Continue,
        }
    }
}

/// The type that is posted to handlers.
pub(crate) type Post = u32;

pub(crate) type Cx<'a, C> = Context<'a, C, Post>;

pub(crate) type Served = Result<(), Box<dyn std::error::Error>>;

/// A task of a connection. As a boxed future, and as a [`Probe`], all scenarios over a pipeline have the same types: the
/// engine is compiled once for each pipeline, and not once more for each closure of each scenario.
type Serving = Pin<Box<dyn Future<Output = Served>>>;

/// Makes a codec, a session, or a codec with its handler.
type Make<T> = Box<dyn Fn() -> T>;

/// The same for a connection from an address.
type MakeAt<C> = Box<dyn Fn(&Address) -> (C, Probe<C>)>;

/// A handler made of a closure.
pub(crate) struct Probe<C: Pipeline> {
    life: Rc<Life>,
    act: Box<Act<C>>,
    number: usize,
    is_gone: bool,
}

type Act<C> = dyn FnMut(Call, &mut Cx<'_, C>) -> Outcome<C>;

impl<C: Pipeline> Probe<C> {
    fn new(life: &Rc<Life>, act: impl FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static) -> Self {
        let number = life.made.get();
        life.made.set(number + 1);
        Self { life: life.clone(), act: Box::new(act), number, is_gone: false }
    }

    /// Counts calls after `closed`, for an assertion at the end: a panic here would be caught, and end one connection
    /// only.
    fn count_late_calls(&self) {
        self.life.late_calls.set(self.life.late_calls.get() + usize::from(self.is_gone));
    }
}

impl<C: Pipeline<In = Slice>> Handler<C> for Probe<C> {
    type Post = Post;

    fn open(&mut self, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.count_late_calls();
        self.life.opened.set(self.life.opened.get() + 1);
        (self.act)(Call::Open, cx)
    }

    fn message(&mut self, message: Slice, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.count_late_calls();
        (self.act)(Call::Message(message), cx)
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.count_late_calls();
        (self.act)(Call::Event(event), cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.count_late_calls();
        self.is_gone = true;
        self.life.reasons.borrow_mut().push((self.number, reason.to_string()));
        self.life.gone.set(self.life.gone.get() + 1);
    }
}

/// The place where a task stores its result.
pub(crate) struct Started<T>(Rc<RefCell<Option<T>>>);

impl<T> Started<T> {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl<T> Clone for Started<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Started<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

fn live() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// Turns in which a loop may still have work.
const TURNS_AWAKE_MAX: usize = 100;

/// Longer than any test runs.
const NEVER_IN_A_TEST: Duration = Duration::from_secs(10 * 86_400);

const SLEEP: Duration = Duration::from_millis(5);

/// Later than a scenario waits for anything.
pub(crate) const LATE: Duration = Duration::from_secs(86_400);
