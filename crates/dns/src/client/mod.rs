//! `StreamResolver`: lookups on an event loop, over one TCP connection to each server.
//!
//! Queries of all lookups share the connections and are pipelined (RFC 7766 §6.2.1.1). A connection opens with the first
//! query and closes after [`IDLE`] without one. `connection.rs` is its handler.

mod connection;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tidegate_engine::{Client, Remote, task};

use self::connection::ServerConnection;
use crate::hosts::Hosts;
use crate::message_writer::EncodedMessage;
use crate::name::Name;
use crate::numbers::RecordType;
use crate::resolv_conf::ResolvConf;
use crate::resolver::{
    Answer, Lookup, LookupError, LookupId, Resolver, ResolverConfig, ResolverCounts, ResolverServer, SharedCache,
};
use crate::stream_codecs::ClientCodec;

/// How long a connection to a server stays open without a response: 10 s.
pub const IDLE: Duration = Duration::from_secs(10);

/// Lookups over TCP, on one event loop. A clone is the same resolver; the cache may be that of the process.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::dns::server::StreamHandler;
/// use tidegate::dns::{CacheConfig, ResolverConfig, ServerCodec, SharedCache, StreamResolver, Zone};
/// use tidegate::{Backend, Client, EventLoop, Server};
///
/// let zone = Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\nwww.tides.example. A 192.0.2.1\n", None)?;
/// let zone = Arc::new(zone);
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(move || (ServerCodec::default(), StreamHandler::new(zone.clone())))?;
///
/// let upstream = Client::at(server.address().clone());
/// let addresses = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let cache = SharedCache::new(CacheConfig::default());
///     let resolver = StreamResolver::new(vec![upstream], ResolverConfig::default(), cache);
///     resolver.addresses("www.tides.example").await
/// })?;
/// assert_eq!(addresses?, ["192.0.2.1".parse::<std::net::IpAddr>()?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamResolver {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    resolver: RefCell<Resolver>,
    servers: Vec<ServerState>,
    waiters: RefCell<HashMap<LookupId, Vec<Rc<Waiter>>>>,
    conf: ResolvConf,
    hosts: Hosts,
}

/// A server, and the connection to it.
#[derive(Debug)]
struct ServerState {
    client: Client,
    remote: RefCell<Option<Remote<EncodedMessage>>>,
    is_connecting: Cell<bool>,
    /// Queries that wait for the connection: at most one an attempt, so [`ResolverConfig::lookups_max`] bounds them.
    queue: RefCell<Vec<EncodedMessage>>,
}

/// A caller that waits for a lookup.
#[derive(Debug, Default)]
struct Waiter {
    result: RefCell<Option<Result<Arc<Answer>, LookupError>>>,
    waker: RefCell<Option<Waker>>,
}

/// A lookup that has begun.
enum Begun {
    Ready(Result<Arc<Answer>, LookupError>),
    Waiting(Rc<Waiter>),
}

impl StreamResolver {
    /// A resolver with these servers, no search list and no hosts.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn new(servers: Vec<Client>, config: ResolverConfig, cache: SharedCache) -> Self {
        Self::with_files(servers, config, cache, ResolvConf::default(), Hosts::default())
    }

    /// A resolver with these servers, the search list of a `resolv.conf`, and the names of a hosts file.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn with_files(
        servers: Vec<Client>,
        config: ResolverConfig,
        cache: SharedCache,
        conf: ResolvConf,
        hosts: Hosts,
    ) -> Self {
        let config = ResolverConfig { use_streams: true, ..config };
        let upstreams = servers.iter().map(|_| ResolverServer::default()).collect();
        let resolver = RefCell::new(Resolver::new(config, upstreams, cache));
        let servers = servers.into_iter().map(|client| ServerState {
            client,
            remote: RefCell::default(),
            is_connecting: Cell::new(false),
            queue: RefCell::default(),
        });
        let servers = servers.collect();
        Self { shared: Rc::new(Shared { resolver, servers, waiters: RefCell::default(), conf, hosts }) }
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
        let begun = self.begin(name, record_type);
        self.wait(begun).await
    }

    /// The addresses of a host, IPv6 and IPv4 in turns with IPv6 first (RFC 8305 §4): of an address itself, from the hosts
    /// file, or looked up with the search list, both types at once. Empty if the name has none.
    ///
    /// # Errors
    /// [`LookupError`], if neither type has an answer; [`LookupError::Question`] if the text is no name.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let candidates = self.shared.conf.candidates(host);
        if candidates.is_empty() {
            return Err(LookupError::Question);
        }
        for name in candidates {
            if let Some(addresses) = self.shared.hosts.addresses(&name) {
                return Ok(addresses);
            }
            let (v6, v4) = (self.begin(&name, RecordType::AAAA), self.begin(&name, RecordType::A));
            let (v6, v4) = (self.wait(v6).await, self.wait(v4).await);
            let addresses = match (v6, v4) {
                (Err(_), Err(error)) => return Err(error),
                (v6, v4) => alternate(v6.as_deref().ok(), v4.as_deref().ok()),
            };
            if !addresses.is_empty() {
                return Ok(addresses);
            }
        }
        Ok(Vec::new())
    }

    fn begin(&self, name: &Name, record_type: RecordType) -> Begun {
        let now = task::now();
        let begun = {
            let mut resolver = self.shared.resolver.borrow_mut();
            // Lookups for which no caller waits, such as those that refresh the cache, have no timer of their own.
            resolver.handle_timeout(now);
            resolver.lookup(name, record_type, now)
        };
        let begun = match begun {
            Lookup::Ready(result) => Begun::Ready(result),
            Lookup::Pending(id) => {
                let waiter = Rc::new(Waiter::default());
                self.shared.waiters.borrow_mut().entry(id).or_default().push(waiter.clone());
                Begun::Waiting(waiter)
            }
        };
        Shared::pump(&self.shared);
        begun
    }

    async fn wait(&self, begun: Begun) -> Result<Arc<Answer>, LookupError> {
        let waiter = match begun {
            Begun::Ready(result) => return result,
            Begun::Waiting(waiter) => waiter,
        };
        loop {
            let timeout = self.shared.resolver.borrow().poll_timeout();
            let mut sleep = timeout.map(|at| Box::pin(task::sleep_until(at)));
            let result = poll_fn(|cx| {
                if let Some(result) = waiter.result.borrow_mut().take() {
                    return Poll::Ready(Some(result));
                }
                *waiter.waker.borrow_mut() = Some(cx.waker().clone());
                match &mut sleep {
                    Some(sleep) => sleep.as_mut().poll(cx).map(|()| None),
                    None => Poll::Pending,
                }
            });
            if let Some(result) = result.await {
                return result;
            }
            self.shared.resolver.borrow_mut().handle_timeout(task::now());
            Shared::pump(&self.shared);
        }
    }
}

/// The addresses of two answers in turns.
fn alternate(first: Option<&Answer>, second: Option<&Answer>) -> Vec<IpAddr> {
    let mut first = first.into_iter().flat_map(Answer::addresses);
    let mut second = second.into_iter().flat_map(Answer::addresses);
    let mut addresses = Vec::new();
    loop {
        let pair = (first.next(), second.next());
        if pair == (None, None) {
            return addresses;
        }
        addresses.extend(pair.0.into_iter().chain(pair.1));
    }
}

impl Shared {
    /// Sends the resolver's queries, and wakes the callers whose lookups have ended.
    fn pump(this: &Rc<Self>) {
        loop {
            let transmit = this.resolver.borrow_mut().poll_transmit();
            let Some(transmit) = transmit else { break };
            this.servers[transmit.server].queue.borrow_mut().push(transmit.message);
            Self::flush(this, transmit.server);
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
    }

    /// Posts the queue of a server to its connection, or connects.
    fn flush(this: &Rc<Self>, server: usize) {
        let state = &this.servers[server];
        let remote = state.remote.borrow().clone().filter(|remote| !remote.is_closed());
        let Some(remote) = remote else {
            if !state.is_connecting.replace(true) {
                drop(task::spawn(Self::connect(this.clone(), server)));
            }
            return;
        };
        for message in state.queue.take() {
            if remote.post(message).is_err() {
                // The queries are lost with the connection, and the resolver tries again.
                state.remote.take();
                this.resolver.borrow_mut().handle_stream_closed(server, task::now());
                break;
            }
        }
    }

    async fn connect(this: Rc<Self>, server: usize) {
        let state = &this.servers[server];
        let handler = ServerConnection::new(&this, server);
        let connected = state.client.connect_with(ClientCodec::default(), handler).await;
        state.is_connecting.set(false);
        match connected {
            Ok(remote) => {
                *state.remote.borrow_mut() = Some(remote);
                Self::flush(&this, server);
            }
            Err(_) => Self::on_closed(&this, server),
        }
        Self::pump(&this);
    }

    fn on_closed(this: &Rc<Self>, server: usize) {
        this.servers[server].remote.take();
        this.servers[server].queue.take();
        this.resolver.borrow_mut().handle_stream_closed(server, task::now());
        Self::pump(this);
    }
}
