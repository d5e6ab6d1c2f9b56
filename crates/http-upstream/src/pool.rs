//! `Pool`: the connections of a client, by origin.
//!
//! Every connection has a place, from before it is made until it is closed: a [`Lease`] owns the place while the
//! connection is made or used. Requests that find no place wait, and places go to them in the order in which they came;
//! a request of an origin that has all its connections is passed over. Invariants:
//! - `open` is the number of leases and of idle connections, and at most `connections_max`; the same for each origin.
//! - A request waits only while no idle connection of its origin is there.
//! - An origin has one HTTP/2 or HTTP/3 connection (`shared.rs`), and its requests wait for streams. While it is not known
//!   whether an origin speaks HTTP/2, one connection is made, and other requests wait for the result.
//!
//! One task of the pool watches the idle connections (`idle_watch.rs`): their peers may close them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use foldhash::fast::RandomState;

use super::connection::{Connection, Lease, LeaseOwner};
use super::error::UpstreamError;
use super::idle_watch::{IdleWatch, WatchedPool};
use super::origin::Origin;
use super::session::UpstreamSession;
use super::shared::{SharedConnection, StreamLease, StreamOwner};

/// The connections of a client.
pub struct Pool {
    state: RefCell<PoolState>,
    limits: PoolLimits,
    idle_watch: IdleWatch,
}

/// The bounds of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Connections to all origins together, in use or idle; at least 1.
    pub connections_max: usize,
    /// Connections to one origin; at least 1.
    pub connections_per_origin_max: usize,
    /// Requests at a time on one HTTP/2 or HTTP/3 connection; at least 1.
    pub streams_per_connection_max: usize,
    /// Requests that wait for a connection.
    pub waiting_max: usize,
}

#[derive(Default)]
struct PoolState {
    origins: HashMap<Rc<Origin>, OriginConnections, RandomState>,
    /// Connections in use, idle, or to be made.
    open: usize,
    waiting: usize,
    /// The number of the next request that waits, or connection that becomes idle.
    next: u64,
}

/// The connections to one origin.
#[derive(Default)]
struct OriginConnections {
    /// The one that was used last is the last one.
    idle: Vec<IdleConnection>,
    /// HTTP/2 connections that take further requests: one, unless the server has changed its mind about versions.
    shared: Vec<Rc<SharedConnection>>,
    open: usize,
    /// A connection is being made that will show which version the origin speaks.
    is_probed: bool,
    /// The origin has chosen HTTP/1.1.
    is_http1: bool,
    /// The one that waits longest is the first one.
    waiting: VecDeque<WaitingRequest>,
}

impl OriginConnections {
    /// Whether one more connection may be made now.
    fn may_connect(&self, per_origin_max: usize) -> bool {
        self.open < per_origin_max && self.shared.is_empty() && !self.is_probed
    }

    /// A connection is about to be made. Returns whether it shows which version the origin speaks.
    fn begin_connecting(&mut self, origin: &Origin) -> bool {
        self.open += 1;
        self.is_probed = origin.may_share() && !self.is_http1;
        self.is_probed
    }
}

struct IdleConnection {
    connection: Box<dyn Connection>,
    /// Greater than that of every connection that became idle before.
    number: u64,
}

/// A connection without an exchange, which is closed when it is dropped.
#[expect(dead_code, reason = "it is taken to be dropped")]
enum UnusedConnection {
    Http1(IdleConnection),
    Session(Rc<SharedConnection>),
}

/// A request that waits for a connection.
struct WaitingRequest {
    number: u64,
    place: Rc<PoolGrant>,
}

/// A waiting request's grant and waker.
#[derive(Default)]
struct PoolGrant {
    granted: Cell<Option<Checkout>>,
    waker: Cell<Option<Waker>>,
}

/// A connection, or a place for one.
pub enum Checkout {
    /// A connection that has carried a request before.
    Reused(Box<dyn Connection>, Lease),
    /// A connection may be made.
    Connect(Lease),
    /// A stream of a connection may be opened.
    Stream(StreamLease),
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Rc<Self> {
        Rc::new(Self { state: RefCell::default(), limits, idle_watch: IdleWatch::new() })
    }

    /// A connection to an origin, or a place for one. Waits in the order of the calls while there is none.
    ///
    /// # Errors
    /// [`UpstreamError::PoolFull`].
    pub async fn check_out(self: &Rc<Self>, origin: &Rc<Origin>) -> Result<Checkout, UpstreamError> {
        if let Some(checkout) = self.try_check_out(origin) {
            return Ok(checkout);
        }
        let place = {
            let mut state = self.state.borrow_mut();
            if state.waiting >= self.limits.waiting_max {
                return Err(UpstreamError::PoolFull);
            }
            let place = Rc::new(PoolGrant::default());
            let number = state.next;
            state.next += 1;
            state.waiting += 1;
            let waiting = WaitingRequest { number, place: place.clone() };
            state.origins.entry(origin.clone()).or_default().waiting.push_back(waiting);
            place
        };
        let guard = PoolWait { pool: self, origin, place };
        Ok(poll_fn(|cx| match guard.place.granted.take() {
            Some(checkout) => Poll::Ready(checkout),
            None => {
                guard.place.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await)
    }

    /// A free connection or stream, if any. A request never overtakes one of its own origin that waits.
    fn try_check_out(self: &Rc<Self>, origin: &Rc<Origin>) -> Option<Checkout> {
        if let Some(connection) = self.take_idle(origin)? {
            return Some(Checkout::Reused(connection, self.lease(origin)));
        }
        let mut state = self.state.borrow_mut();
        if let Some(connections) = state.origins.get(origin) {
            let owner = self.stream_owner();
            if let Some(lease) = connections.shared.iter().find_map(|shared| shared.lease(&owner)) {
                return Some(Checkout::Stream(lease));
            }
            if !connections.may_connect(self.limits.connections_per_origin_max) {
                return None;
            }
        }
        if state.open >= self.limits.connections_max {
            // The place of an idle connection to another origin is taken, unless a request waits for that place.
            let oldest = state.take_oldest_idle()?;
            drop(state);
            drop(oldest);
            state = self.state.borrow_mut();
        }
        state.open += 1;
        let is_probe = state.origins.entry(origin.clone()).or_default().begin_connecting(origin);
        Some(Checkout::Connect(self.lease_to_connect(origin, is_probe)))
    }

    /// An idle connection, if there is one that has not ended. `None` if others wait for one.
    fn take_idle(self: &Rc<Self>, origin: &Rc<Origin>) -> Option<Option<Box<dyn Connection>>> {
        let mut ended = Vec::new();
        let taken = {
            let mut state = self.state.borrow_mut();
            let Some(connections) = state.origins.get_mut(origin) else { return Some(None) };
            if !connections.waiting.is_empty() {
                return None;
            }
            loop {
                let Some(mut idle) = connections.idle.pop() else { break None };
                if idle.connection.poll_ended(&mut Context::from_waker(Waker::noop())).is_pending() {
                    break Some(idle.connection);
                }
                ended.push(idle);
            }
        };
        self.close_ended(origin, ended);
        Some(taken)
    }

    fn lease(self: &Rc<Self>, origin: &Rc<Origin>) -> Lease {
        self.lease_to_connect(origin, false)
    }

    fn lease_to_connect(self: &Rc<Self>, origin: &Rc<Origin>, is_probe: bool) -> Lease {
        Lease::new(self.clone(), origin.clone(), is_probe)
    }

    fn stream_owner(self: &Rc<Self>) -> Rc<dyn StreamOwner> {
        self.clone()
    }

    /// Frees the places of connections that have ended.
    fn close_ended(self: &Rc<Self>, origin: &Rc<Origin>, ended: Vec<IdleConnection>) {
        for idle in ended {
            drop(idle.connection);
            drop(self.lease(origin));
        }
    }

    /// A place is free: the request that waits longest gets it, if it may.
    fn grant(self: &Rc<Self>) {
        loop {
            let mut state = self.state.borrow_mut();
            if state.waiting == 0 || state.open >= self.limits.connections_max {
                return;
            }
            let per_origin_max = self.limits.connections_per_origin_max;
            let next = state.origins.iter().filter(|(_, connections)| connections.may_connect(per_origin_max));
            let next = next.filter_map(|(origin, connections)| Some((connections.waiting.front()?.number, origin)));
            let Some((_, origin)) = next.min_by_key(|(number, _)| *number) else { return };
            let origin = origin.clone();
            let Some(place) = state.pop_waiting(&origin) else { return };
            state.open += 1;
            let connections = state.origins.get_mut(&origin);
            let is_probe = connections.is_some_and(|connections| connections.begin_connecting(&origin));
            drop(state);
            place.give(Checkout::Connect(self.lease_to_connect(&origin, is_probe)));
        }
    }

    /// A connection takes no further stream: it leaves the pool, and its place is free once its last exchange is over.
    fn unlist(self: &Rc<Self>, shared: &Rc<SharedConnection>) {
        if !shared.is_listed.replace(false) {
            return;
        }
        if let Some(connections) = self.state.borrow_mut().origins.get_mut(&shared.origin) {
            connections.shared.retain(|one| !Rc::ptr_eq(one, shared));
        }
        if shared.is_idle() {
            drop(self.lease(&shared.origin));
        } else {
            // Requests that waited for a stream may have another connection.
            self.grant();
        }
    }

    /// Gives streams to the requests that wait for them, as many as the connection takes.
    fn grant_streams(self: &Rc<Self>, shared: &Rc<SharedConnection>) {
        while shared.is_listed.get() {
            let mut state = self.state.borrow_mut();
            if state.origins.get(&shared.origin).is_none_or(|connections| connections.waiting.is_empty()) {
                return;
            }
            let lease = shared.lease(&self.stream_owner());
            let Some(lease) = lease else { return };
            let place = state.pop_waiting(&shared.origin);
            drop(state);
            match place {
                Some(place) => place.give(Checkout::Stream(lease)),
                None => drop(lease),
            }
        }
    }

    /// Whether a connection to an origin is idle, or takes further streams.
    #[must_use]
    pub fn has_connection(&self, origin: &Origin) -> bool {
        let state = self.state.borrow();
        let connections = state.origins.get(origin);
        connections.is_some_and(|connections| !connections.idle.is_empty() || !connections.shared.is_empty())
    }

    /// How many connections are idle, and how many are there in all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.borrow();
        let shared =
            |connections: &OriginConnections| connections.shared.iter().filter(|shared| shared.is_idle()).count();
        let idle = state.origins.values().map(|connections| connections.idle.len() + shared(connections)).sum();
        (idle, state.open)
    }

    /// Closes all idle connections.
    pub fn close_idle(self: &Rc<Self>) {
        let origins: Vec<_> = self.state.borrow().origins.keys().cloned().collect();
        for origin in origins {
            let mut state = self.state.borrow_mut();
            let Some(connections) = state.origins.get_mut(&origin) else { continue };
            let idle = std::mem::take(&mut connections.idle);
            let shared: Vec<_> = connections.shared.iter().filter(|shared| shared.is_idle()).cloned().collect();
            drop(state);
            shared.iter().for_each(|shared| self.unlist(shared));
            self.close_ended(&origin, idle);
        }
    }
}

impl WatchedPool for Pool {
    fn idle_watch(&self) -> &IdleWatch {
        &self.idle_watch
    }

    fn sweep(self: &Rc<Self>, cx: &mut Context<'_>) {
        let origins: Vec<_> = self.state.borrow().origins.keys().cloned().collect();
        for origin in origins {
            let mut ended = Vec::new();
            if let Some(connections) = self.state.borrow_mut().origins.get_mut(&origin) {
                let mut at = 0;
                while at < connections.idle.len() {
                    match connections.idle[at].connection.poll_ended(cx) {
                        Poll::Ready(()) => ended.push(connections.idle.remove(at)),
                        Poll::Pending => at += 1,
                    }
                }
            }
            self.close_ended(&origin, ended);
        }
    }
}

impl PoolState {
    fn pop_waiting(&mut self, origin: &Origin) -> Option<Rc<PoolGrant>> {
        if self.waiting == 0 {
            return None;
        }
        let waiting = self.origins.get_mut(origin)?.waiting.pop_front()?;
        self.waiting -= 1;
        Some(waiting.place)
    }

    /// Whether a request of another origin, which may have one more connection, waits longer than all of this one.
    fn waits_longer_elsewhere(&self, origin: &Origin, per_origin_max: usize) -> bool {
        if self.waiting == 0 {
            return false;
        }
        let Some(own) = self.origins.get(origin) else { return false };
        let Some(first) = own.waiting.front() else { return false };
        own.waiting.len() < self.waiting
            && self.origins.values().any(|other| {
                other.may_connect(per_origin_max) && other.waiting.front().is_some_and(|one| one.number < first.number)
            })
    }

    /// Takes the connection that is idle longest, with its place.
    fn take_oldest_idle(&mut self) -> Option<UnusedConnection> {
        let shared = |one: &OriginConnections| {
            let idle = one.shared.iter().filter(|shared| shared.is_idle());
            idle.map(|shared| shared.idle_since.get()).min()
        };
        let idle = |one: &OriginConnections| one.idle.first().map(|idle| idle.number);
        let oldest = self.origins.iter().filter_map(|(origin, one)| {
            let number = [idle(one), shared(one)].into_iter().flatten().min()?;
            Some((number, origin.clone()))
        });
        let (number, origin) = oldest.min_by_key(|(number, _)| *number)?;
        let connections = self.origins.get_mut(&origin)?;
        let unused = if connections.idle.first().is_some_and(|idle| idle.number == number) {
            UnusedConnection::Http1(connections.idle.remove(0))
        } else {
            let is_it = |shared: &Rc<SharedConnection>| shared.is_idle() && shared.idle_since.get() == number;
            let at = connections.shared.iter().position(is_it)?;
            let shared = connections.shared.remove(at);
            shared.is_listed.set(false);
            UnusedConnection::Session(shared)
        };
        connections.open -= 1;
        self.open -= 1;
        self.remove_if_unused(&origin);
        Some(unused)
    }

    fn remove_if_unused(&mut self, origin: &Origin) {
        if self.origins.get(origin).is_some_and(|one| one.open == 0 && one.waiting.is_empty()) {
            self.origins.remove(origin);
        }
    }
}

impl PoolGrant {
    fn give(&self, checkout: Checkout) {
        self.granted.set(Some(checkout));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A waiting request. Its drop gives up the place in the queue, or the grant.
struct PoolWait<'a> {
    pool: &'a Rc<Pool>,
    origin: &'a Rc<Origin>,
    place: Rc<PoolGrant>,
}

impl Drop for PoolWait<'_> {
    fn drop(&mut self) {
        match self.place.granted.take() {
            Some(Checkout::Reused(connection, lease)) => lease.put_back(connection),
            Some(Checkout::Connect(lease)) => drop(lease),
            Some(Checkout::Stream(lease)) => drop(lease),
            None => {
                let mut state = self.pool.state.borrow_mut();
                let Some(connections) = state.origins.get_mut(self.origin) else { return };
                let before = connections.waiting.len();
                connections.waiting.retain(|waiting| !Rc::ptr_eq(&waiting.place, &self.place));
                let left = before - connections.waiting.len();
                state.waiting -= left;
                state.remove_if_unused(self.origin);
            }
        }
    }
}

impl Pool {
    /// The connection of a lease speaks HTTP/1.1.
    pub fn chose_http1(self: &Rc<Self>, lease: &mut Lease) {
        if !lease.end_probe() {
            return;
        }
        if let Some(connections) = self.state.borrow_mut().origins.get_mut(lease.origin()) {
            (connections.is_probed, connections.is_http1) = (false, true);
        }
        self.grant();
    }

    /// The connection of a lease speaks HTTP/2 or HTTP/3: all requests of its origin share it.
    pub fn share(self: &Rc<Self>, mut lease: Lease, session: Rc<UpstreamSession>) -> StreamLease {
        let origin = lease.origin().clone();
        let shared = SharedConnection::new(session, origin.clone(), self.limits.streams_per_connection_max);
        if let Some(connections) = self.state.borrow_mut().origins.get_mut(&origin) {
            connections.shared.push(shared.clone());
            if lease.end_probe() {
                connections.is_probed = false;
            }
        }
        lease.forget();
        let owner = self.stream_owner();
        let stream = shared.first_lease(&owner);
        shared.watch(Rc::downgrade(&owner));
        self.grant_streams(&shared);
        stream
    }
}

impl StreamOwner for Pool {
    fn on_permits(self: Rc<Self>, shared: &Rc<SharedConnection>) {
        if shared.is_ending() {
            self.unlist(shared);
        } else {
            self.grant_streams(shared);
        }
    }

    fn on_stream_over(self: Rc<Self>, shared: &Rc<SharedConnection>) {
        if shared.is_listed.get() {
            self.grant_streams(shared);
        }
        if !shared.is_idle() {
            return;
        }
        if !shared.is_listed.get() {
            drop(self.lease(&shared.origin));
            return;
        }
        let mut state = self.state.borrow_mut();
        shared.idle_since.set(state.next);
        state.next += 1;
        let is_wanted = state.waiting > 0 && state.open >= self.limits.connections_max;
        let oldest = if is_wanted { state.take_oldest_idle() } else { None };
        drop(state);
        if oldest.is_some() {
            drop(oldest);
            self.grant();
        }
    }
}

impl LeaseOwner for Pool {
    /// Returns a connection that takes another request: to the request of its origin that waits longest, or to the idle
    /// ones. If a request of another origin has waited longer for the place, the connection is closed.
    fn put_back(self: Rc<Self>, lease: Lease, mut connection: Box<dyn Connection>) {
        if self.state.borrow().waits_longer_elsewhere(lease.origin(), self.limits.connections_per_origin_max) {
            drop(connection);
            return;
        }
        let waiting = self.state.borrow_mut().pop_waiting(lease.origin());
        if let Some(place) = waiting {
            place.give(Checkout::Reused(connection, lease));
            return;
        }
        if IdleWatch::poll(&self, |cx| connection.poll_ended(cx)).is_ready() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        if let Some(connections) = state.origins.get_mut(lease.origin()) {
            connections.idle.push(IdleConnection { connection, number });
            lease.forget();
        }
        let is_wanted = state.waiting > 0 && state.open >= self.limits.connections_max;
        let oldest = if is_wanted { state.take_oldest_idle() } else { None };
        drop(state);
        if oldest.is_some() {
            drop(oldest);
            self.grant();
        }
    }

    fn free(self: Rc<Self>, origin: &Rc<Origin>, is_probe: bool) {
        let mut state = self.state.borrow_mut();
        state.open -= 1;
        if let Some(connections) = state.origins.get_mut(origin) {
            connections.open -= 1;
            if is_probe {
                connections.is_probed = false;
            }
        }
        state.remove_if_unused(origin);
        drop(state);
        self.grant();
    }
}
