//! `Pool`: the idle connections of one loop to its upstreams.
//!
//! An HTTP/2 or HTTP/3 connection is here as long as it takes requests, and has a stream for each. While one is being made,
//! further requests to its upstream wait for it. If it fails, so do those requests, which may have another upstream.
//!
//! A connection that has carried pipelined requests has an *owner*, the client's connection whose requests they were, and
//! carries no other's from then on. An upstream that has sent one response too many to a pipeline owes another one, which
//! looks like the response to a later request: it must not be that of another client. It closes with its owner.
//!
//! A connection that waits here is read from: one that its upstream closes, or that receives bytes which answer nothing,
//! leaves the pool within a tenth of a second, and no request gets it meanwhile. One task waits for all of them (`IdleWatch`).

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_engine::ConnectError;
use tidegate_http_upstream::{IdleWatch, OpenFailure, UpstreamSession, WatchedPool};

use super::connection::{Connection, same_error};
use super::loop_counts::CountedList;
use super::upstreams::Upstream;

pub(super) struct Pool {
    /// By the id of the upstream; the one that was used last is at the end.
    idle: RefCell<Idle>,
    /// HTTP/2 and HTTP/3 connections.
    sessions: RefCell<HashMap<u64, CountedList<Rc<UpstreamSession>>>>,
    /// Upstreams to which such a connection may be in the making.
    connecting: RefCell<HashMap<u64, Rc<Attempted>>>,
    /// Upstreams that have chosen HTTP/1.1: their connections are made side by side.
    http1: RefCell<HashSet<u64>>,
    /// The clients' connections that may own connections here.
    owners: RefCell<HashSet<u64>>,
    idle_watch: IdleWatch,
    per_upstream_max: usize,
    /// Streams of one of them.
    streams_max: usize,
}

impl Pool {
    pub(super) fn new(per_upstream_max: usize, streams_max: usize) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            sessions: RefCell::default(),
            connecting: RefCell::default(),
            http1: RefCell::default(),
            owners: RefCell::default(),
            idle_watch: IdleWatch::new(),
            per_upstream_max,
            streams_max: streams_max.max(1),
        })
    }

    /// A connection that the upstream has not closed, as far as the loop knows; for a pipeline, rather one that its client
    /// owns already.
    pub(super) fn take(&self, upstream: u64, client: Option<u64>) -> Option<Box<dyn Connection>> {
        // Every round takes one out.
        loop {
            let mut connection = {
                let mut idle = self.idle.borrow_mut();
                idle.get_mut(&upstream)?.edit(|connections| {
                    let of = |owner| connections.iter().rposition(|connection| connection.owner() == owner);
                    let at = client.and_then(|client| of(Some(client))).or_else(|| of(None))?;
                    Some(connections.remove(at))
                })?
            };
            let is_idle = connection.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending();
            if is_idle && connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// A stream of a connection that is shared, unless none has room. Waits while such a connection is being made.
    ///
    /// # Errors
    /// The failure of that connection.
    pub(super) async fn stream(&self, upstream: u64) -> Result<Option<Box<dyn Connection>>, ConnectError> {
        let mut awaited: Option<Rc<Attempted>> = None;
        poll_fn(|cx| {
            let mut is_busy = false;
            let mut stream = None;
            if let Some(sessions) = self.sessions.borrow_mut().get_mut(&upstream) {
                let is_kept = |session: &Rc<UpstreamSession>| {
                    if stream.is_some() {
                        return true;
                    }
                    match session.open(self.streams_max) {
                        Ok(opened) => stream = Some(opened),
                        Err(OpenFailure::Full) => {}
                        Err(OpenFailure::Busy) => is_busy = true,
                        Err(OpenFailure::Ended) => return false,
                    }
                    true
                };
                sessions.edit(|sessions| sessions.retain(is_kept));
            }
            if stream.is_some() {
                return Poll::Ready(Ok(stream));
            }
            if is_busy {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(error) = awaited.as_ref().and_then(|awaited| awaited.failure.get()) {
                return Poll::Ready(Err(same_error(error)));
            }
            match self.connecting.borrow().get(&upstream) {
                Some(attempted) => {
                    attempted.waiting.borrow_mut().push(cx.waker().clone());
                    awaited = Some(attempted.clone());
                    Poll::Pending
                }
                None => Poll::Ready(Ok(None)),
            }
        })
        .await
    }

    /// Whether connections to an upstream are made side by side, since it has chosen HTTP/1.1.
    pub(super) fn is_http1(&self, upstream: u64) -> bool {
        self.http1.borrow().contains(&upstream)
    }

    /// A connection to an upstream is about to be made: others wait until the result is dropped.
    pub(super) fn begin_connecting(self: &Rc<Self>, upstream: u64) -> Connecting {
        let attempted = Rc::new(Attempted::default());
        self.connecting.borrow_mut().insert(upstream, attempted.clone());
        Connecting { pool: self.clone(), upstream, attempted }
    }

    /// Keeps an HTTP/2 or HTTP/3 connection.
    pub(super) fn add(self: &Rc<Self>, upstream: &Upstream, session: Rc<UpstreamSession>) {
        self.http1.borrow_mut().remove(&upstream.id);
        if IdleWatch::poll(self, |cx| session.poll_ended(cx.waker())).is_ready() {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        let of_upstream = sessions.entry(upstream.id).or_insert_with(|| CountedList::new(&upstream.shared_connections));
        of_upstream.edit(|sessions| sessions.push(session));
    }

    /// Whether a request may have a stream of a connection that is there.
    pub(super) fn has_session(&self, upstream: u64) -> bool {
        self.sessions.borrow().get(&upstream).is_some_and(|sessions| !sessions.is_empty())
    }

    /// A client's connection may own connections from now on.
    pub(super) fn add_owner(&self, client: u64) {
        self.owners.borrow_mut().insert(client);
    }

    /// A client's connection is gone: the connections that it owns are of no use.
    pub(super) fn remove_owner(&self, client: u64) {
        if self.owners.borrow_mut().remove(&client) {
            let mut left = Vec::new();
            for connections in self.idle.borrow_mut().values_mut() {
                let is_owned = |connection: &mut Box<dyn Connection>| connection.owner() == Some(client);
                connections.edit(|connections| left.extend(connections.extract_if(.., is_owned)));
            }
        }
    }

    /// The upstream has chosen HTTP/1.1.
    pub(super) fn chose_http1(&self, upstream: u64) {
        self.http1.borrow_mut().insert(upstream);
    }

    /// Keeps a connection whose exchange is complete, if it takes another request.
    pub(super) fn put(self: &Rc<Self>, upstream: &Upstream, mut connection: Box<dyn Connection>) {
        let is_orphan = connection.owner().is_some_and(|client| !self.owners.borrow().contains(&client));
        if self.per_upstream_max == 0 || is_orphan || !connection.is_reusable() {
            return;
        }
        connection.set_deadline_after(None);
        if IdleWatch::poll(self, |cx| connection.poll_recv(cx)).is_ready() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let connections = idle.entry(upstream.id).or_insert_with(|| CountedList::new(&upstream.idle_connections));
        connections.edit(|connections| {
            if connections.len() >= self.per_upstream_max {
                // The one that was idle for longest.
                drop(connections.remove(0));
            }
            connections.push(connection);
        });
    }

    /// Drops the connections to upstreams that are no longer in use.
    pub(super) fn retain(&self, is_in_use: impl Fn(u64) -> bool) {
        self.idle.borrow_mut().retain(|upstream, _| is_in_use(*upstream));
        self.sessions.borrow_mut().retain(|upstream, _| is_in_use(*upstream));
        self.http1.borrow_mut().retain(|upstream| is_in_use(*upstream));
    }
}

impl WatchedPool for Pool {
    fn idle_watch(&self) -> &IdleWatch {
        &self.idle_watch
    }

    fn sweep(self: &Rc<Self>, cx: &mut Context<'_>) {
        for connections in self.idle.borrow_mut().values_mut() {
            connections.edit(|connections| connections.retain_mut(|connection| connection.poll_recv(cx).is_pending()));
        }
        for sessions in self.sessions.borrow_mut().values_mut() {
            sessions.edit(|sessions| sessions.retain(|session| session.poll_ended(cx.waker()).is_pending()));
        }
    }
}

/// A connection that is being made, and the requests that wait for it.
#[derive(Default)]
struct Attempted {
    waiting: RefCell<Vec<Waker>>,
    failure: OnceCell<ConnectError>,
}

/// An HTTP/2 or HTTP/3 connection may be in the making.
pub(super) struct Connecting {
    pool: Rc<Pool>,
    upstream: u64,
    attempted: Rc<Attempted>,
}

impl Connecting {
    /// There is no connection: the requests that wait for it fail with the same error.
    pub(super) fn fail(self, error: &ConnectError) {
        let _is_first = self.attempted.failure.set(same_error(error));
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut connecting = self.pool.connecting.borrow_mut();
        // A request that found no room on the connection of another one may have begun after it.
        if connecting.get(&self.upstream).is_some_and(|last| Rc::ptr_eq(last, &self.attempted)) {
            connecting.remove(&self.upstream);
        }
        drop(connecting);
        self.attempted.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// Idle connections by the id of their upstream.
type Idle = HashMap<u64, CountedList<Box<dyn Connection>>, BuildHasherDefault<IdHasher>>;

/// Hashes ids of upstreams, which are numbers of this process in their order: no peer chooses them.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The golden ratio spreads neighbours over all bits.
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::pin::pin;

    use tidegate_sys::Address;

    use super::*;

    #[test]
    fn a_connection_that_fails_fails_all_requests_that_wait_for_it() {
        let pool = Pool::new(1, 1);
        let cx = &mut Context::from_waker(Waker::noop());
        let connecting = pool.begin_connecting(7);
        let mut waiting: Vec<_> = (0..200).map(|_| Box::pin(pool.stream(7))).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().poll(cx).is_pending()));
        let address = Address::Ip(([127, 0, 0, 1], 9).into());
        connecting.fail(&ConnectError::Failed(address, Error::new(ErrorKind::ConnectionRefused, "refused")));
        for one in &mut waiting {
            let Poll::Ready(Err(error)) = one.as_mut().poll(cx) else { panic!("it goes on waiting") };
            assert!(error.to_string().contains("refused"), "{error}");
        }
        // A later request tries again, and one whose connection was given up is the next one to try.
        assert!(matches!(pin!(pool.stream(7)).poll(cx), Poll::Ready(Ok(None))));
        let given_up = pool.begin_connecting(7);
        let mut next = pin!(pool.stream(7));
        assert!(next.as_mut().poll(cx).is_pending());
        drop(given_up);
        assert!(matches!(next.as_mut().poll(cx), Poll::Ready(Ok(None))));
    }
}
