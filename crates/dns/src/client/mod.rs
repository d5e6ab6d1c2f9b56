//! `StubResolver`: lookups on an event loop, over UDP and TCP.
//!
//! A query goes in a datagram from one of several sockets to its server, each at a port of the system's choice, and over
//! TCP where the datagram was too short or in doubt. Queries of all lookups share one TCP connection to each server and are
//! pipelined (RFC 7766 §6.2.1.1). Sockets and connections open with their first query and close after [`IDLE`] without
//! one, so an idle resolver has none.
//!
//! One task has the timers of all lookups; `sockets.rs` has a task for each socket, `connection.rs` the handler of a
//! connection, `name_server.rs` the servers. `host_lookup.rs` looks up hosts and services,
//! `https_lookup.rs` HTTPS records, `host_resolver.rs` has a resolver for
//! each loop of a process, by the files in `system_files.rs`.

mod connection;
mod host_lookup;
mod host_resolver;
mod https_lookup;
mod name_server;
mod sockets;
mod system_files;
mod timer;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::{DatagramChannel, task};

use self::connection::{OpenConnection, SentQueries, ServerConnection};
pub use self::host_resolver::HostResolver;
pub use self::name_server::{Exchanging, NameServer, ResponsePipeline};
use self::name_server::{ServerLink, ServerState};
use self::sockets::Sockets;
use self::timer::Timer;
use crate::hosts::Hosts;
use crate::message_view::MessageView;
use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::numbers::RecordType;
use crate::resolv_conf::ResolvConf;
use crate::resolver::{
    Answer, Lookup, LookupError, LookupId, Resolver, ResolverConfig, ResolverCounts, SharedCache, Transport,
};

/// How long sockets and connections to a server stay open without a query or a response: 10 s.
pub const IDLE: Duration = Duration::from_secs(10);

/// Lookups over UDP and TCP, on one event loop: a stub resolver (RFC 9499 §6). A clone is the same resolver; the cache may
/// be that of the process.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::dns::server::DnsServer;
/// use tidegate::dns::{CacheConfig, NameServer, ResolverConfig, SharedCache, StubResolver, Zone};
/// use tidegate::{Backend, EventLoop};
///
/// let zone = Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\nwww.tides.example. A 192.0.2.1\n", None)?;
/// let zone = Arc::new(zone);
/// let server = DnsServer::bind("127.0.0.1:0")?.loops(1).start(move |_loop| zone.clone())?;
///
/// let upstream = NameServer::at(server.address().ip().ok_or("an IP address")?);
/// let addresses = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let cache = SharedCache::new(CacheConfig::default());
///     let resolver = StubResolver::new(vec![upstream], ResolverConfig::default(), cache);
///     resolver.addresses("www.tides.example").await
/// })?;
/// assert_eq!(addresses?, ["192.0.2.1".parse::<std::net::IpAddr>()?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StubResolver {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    resolver: RefCell<Resolver>,
    servers: Vec<ServerState>,
    sockets: Sockets,
    timer: Timer,
    waiters: RefCell<HashMap<LookupId, Vec<Rc<Waiter>>>>,
    conf: ResolvConf,
    hosts: Hosts,
}

/// A caller that waits for a lookup.
#[derive(Debug, Default)]
struct Waiter {
    result: RefCell<Option<Result<Arc<Answer>, LookupError>>>,
    waker: RefCell<Option<Waker>>,
}

/// A lookup that has begun.
pub(crate) enum BegunLookup {
    Ready(Result<Arc<Answer>, LookupError>),
    Waiting(LookupWait),
}

/// The future of a lookup. Dropping it leaves the lookup to others.
#[derive(Debug)]
pub(crate) struct LookupWait {
    waiter: Rc<Waiter>,
    shared: Weak<Shared>,
    id: LookupId,
}

impl Drop for LookupWait {
    /// A caller that has given up takes no place of another.
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut waiters = shared.waiters.borrow_mut();
        // A lookup that has ended has no waiters any more.
        let Some(all) = waiters.get_mut(&self.id) else { return };
        let Some(at) = all.iter().position(|waiter| Rc::ptr_eq(waiter, &self.waiter)) else { return };
        all.swap_remove(at);
        if all.is_empty() {
            waiters.remove(&self.id);
        }
        drop(waiters);
        shared.resolver.borrow_mut().forget_waiter(self.id);
    }
}

impl Future for LookupWait {
    type Output = Result<Arc<Answer>, LookupError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.waiter.result.borrow_mut().take() {
            return Poll::Ready(result);
        }
        *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl StubResolver {
    /// A resolver with these servers, no search list and no hosts.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn new(servers: Vec<NameServer>, config: ResolverConfig, cache: SharedCache) -> Self {
        Self::with_files(servers, config, cache, ResolvConf::default(), Hosts::default())
    }

    /// A resolver with these servers, the search list of a `resolv.conf`, and the names of a hosts file.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn with_files(
        servers: Vec<NameServer>,
        config: ResolverConfig,
        cache: SharedCache,
        conf: ResolvConf,
        hosts: Hosts,
    ) -> Self {
        let resolver = Resolver::new(config, servers.iter().map(NameServer::of_resolver).collect(), cache);
        Self::of(resolver, servers, Sockets::default(), (conf, hosts))
    }

    /// A resolver whose numbers follow from a seed, with sockets that `open` opens for a server's address: for a simulated
    /// network, never for another one.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn simulated(
        servers: Vec<NameServer>,
        config: ResolverConfig,
        cache: SharedCache,
        seed: u64,
        open: impl Fn(SocketAddr) -> io::Result<DatagramChannel> + 'static,
    ) -> Self {
        let of_resolver = servers.iter().map(NameServer::of_resolver).collect();
        let resolver = Resolver::seeded(config, of_resolver, cache, seed);
        Self::of(resolver, servers, Sockets::opened_by(Rc::new(open)), (ResolvConf::default(), Hosts::default()))
    }

    fn of(resolver: Resolver, servers: Vec<NameServer>, sockets: Sockets, (conf, hosts): (ResolvConf, Hosts)) -> Self {
        let shared = Shared {
            resolver: RefCell::new(resolver),
            servers: servers.into_iter().map(ServerState::from).collect(),
            sockets,
            timer: Timer::default(),
            waiters: RefCell::default(),
            conf,
            hosts,
        };
        Self { shared: Rc::new(shared) }
    }

    /// Datagram sockets that are open.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.shared.sockets.len()
    }

    /// Lookups in flight.
    #[must_use]
    pub fn lookups_in_flight(&self) -> usize {
        self.shared.resolver.borrow().lookups_in_flight()
    }

    /// Counts since the beginning.
    #[must_use]
    pub fn counts(&self) -> ResolverCounts {
        self.shared.resolver.borrow().counts()
    }

    /// Looks up the records of a name, without search list and hosts. Dropping the future leaves the lookup to others.
    ///
    /// # Errors
    /// [`LookupError`].
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn lookup(&self, name: &Name, record_type: RecordType) -> Result<Arc<Answer>, LookupError> {
        Self::wait(self.begin(name, record_type)).await
    }

    fn begin(&self, name: &Name, record_type: RecordType) -> BegunLookup {
        self.begin_lookup(name, record_type, task::now())
    }

    /// Begins a lookup that the cache does not answer, unless no server does.
    fn begin_fresh(&self, name: &Name, record_type: RecordType) -> BegunLookup {
        let begun = self.shared.resolver.borrow_mut().lookup_fresh(name, record_type, task::now());
        self.begun(begun)
    }

    /// Begins a lookup. A handler may call this: nothing here needs the core of the loop.
    pub(crate) fn begin_lookup(&self, name: &Name, record_type: RecordType, now: Instant) -> BegunLookup {
        let begun = self.shared.resolver.borrow_mut().lookup(name, record_type, now);
        self.begun(begun)
    }

    fn begun(&self, begun: Lookup) -> BegunLookup {
        let begun = match begun {
            Lookup::Ready(result) => BegunLookup::Ready(result),
            Lookup::Pending(id) => {
                let waiter = Rc::new(Waiter::default());
                self.shared.waiters.borrow_mut().entry(id).or_default().push(waiter.clone());
                BegunLookup::Waiting(LookupWait { waiter, shared: Rc::downgrade(&self.shared), id })
            }
        };
        Shared::pump(&self.shared);
        begun
    }

    /// The answer of the cache, or a stale one. It begins no lookup.
    pub(crate) fn cached(
        &self,
        name: &Name,
        record_type: RecordType,
        now: Instant,
    ) -> Option<Result<Arc<Answer>, LookupError>> {
        self.shared.resolver.borrow_mut().cached(name, record_type, now)
    }

    async fn wait(begun: BegunLookup) -> Result<Arc<Answer>, LookupError> {
        match begun {
            BegunLookup::Ready(result) => result,
            BegunLookup::Waiting(wait) => wait.await,
        }
    }
}

impl Shared {
    /// Sends the resolver's queries, and wakes the callers whose lookups have ended.
    fn pump(this: &Rc<Self>) {
        loop {
            let transmit = this.resolver.borrow_mut().poll_transmit();
            let Some(transmit) = transmit else { break };
            match transmit.transport {
                Transport::Datagram(socket) => sockets::send(this, transmit.server, socket, transmit.message),
                Transport::Stream => {
                    this.servers[transmit.server].queue.borrow_mut().push(transmit.message);
                    Self::flush(this, transmit.server);
                }
            }
        }
        loop {
            let finished = this.resolver.borrow_mut().poll_finished();
            let Some((id, result)) = finished else { break };
            let waiters = this.waiters.borrow_mut().remove(&id).unwrap_or_default();
            for waiter in waiters {
                *waiter.result.borrow_mut() = Some(result.clone());
                if let Some(waker) = waiter.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
        }
        timer::arm(this);
    }

    /// Gives back memory, once nothing is looked up.
    fn rest(&self) {
        let mut resolver = self.resolver.borrow_mut();
        if resolver.lookups_in_flight() == 0 {
            resolver.release_memory();
            self.waiters.borrow_mut().shrink_to_fit();
        }
    }

    /// Posts the queue of a server to its connection, or connects.
    fn flush(this: &Rc<Self>, server: usize) {
        let state = &this.servers[server];
        if let ServerLink::Requests(send) = &state.link {
            for message in state.queue.take() {
                drop(task::spawn(Self::exchange(Rc::downgrade(this), (server, id_of(&message)), send(message))));
            }
            return;
        }
        let connection = state.connection.borrow().clone().filter(|connection| !connection.remote.is_closed());
        let Some(OpenConnection { remote, sent }) = connection else {
            if !state.is_connecting.replace(true) {
                drop(task::spawn(Self::connect(this.clone(), server)));
            }
            return;
        };
        let mut lost = HashSet::new();
        for message in state.queue.take() {
            let id = id_of(&message);
            match remote.post(message) {
                Ok(()) => sent.insert(id),
                // The resolver tries again.
                Err(_) => drop(lost.insert(id)),
            }
        }
        if !lost.is_empty() {
            this.resolver.borrow_mut().handle_queries_lost(server, &lost, task::now());
        }
    }

    /// Waits for the response to the query with an ID in a request of its own. A failure concerns that query alone.
    async fn exchange(this: Weak<Self>, (server, id): (usize, u16), exchanging: Exchanging) {
        let response = exchanging.await;
        let Some(this) = this.upgrade() else { return };
        match response {
            Ok(message) => {
                this.resolver.borrow_mut().handle_exchange_response(server, id, &message, task::now());
            }
            Err(error) => {
                tracing::debug!(subsystem = "dns", %error, "a request to a DNS server fails");
                this.resolver.borrow_mut().handle_exchange_failed(server, id, task::now());
            }
        }
        Self::pump(&this);
    }

    async fn connect(this: Rc<Self>, server: usize) {
        let state = &this.servers[server];
        let ServerLink::Connection(connector) = &state.link else { return };
        let sent = Rc::<SentQueries>::default();
        let handler = ServerConnection::new(&this, server, sent.clone());
        let connected = connector.connect(handler).await;
        state.is_connecting.set(false);
        // If it has closed already, its queries are lost: the next attempts connect again.
        match connected.filter(|remote| !remote.is_closed()) {
            Some(remote) => {
                *state.connection.borrow_mut() = Some(OpenConnection { remote, sent });
                Self::flush(&this, server);
            }
            None => {
                let lost = state.queue.take().iter().map(id_of).collect();
                this.resolver.borrow_mut().handle_queries_lost(server, &lost, task::now());
            }
        }
        Self::pump(&this);
    }

    /// A connection has closed. The queries that wait for another one, or went over it, are not lost.
    fn on_closed(this: &Rc<Self>, server: usize, sent: &Rc<SentQueries>) {
        let state = &this.servers[server];
        let is_current = state.connection.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(&current.sent, sent));
        if is_current {
            state.connection.take();
        }
        this.resolver.borrow_mut().handle_queries_lost(server, &sent.take(), task::now());
        Self::pump(this);
        this.rest();
    }
}

/// The ID of a query.
fn id_of(message: &EncodedMessage) -> u16 {
    MessageView::header_of(message).map_or(0, |header| header.id)
}
