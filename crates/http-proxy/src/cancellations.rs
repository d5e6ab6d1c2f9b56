//! `Cancellations`: how many requests of each client end before their responses do, as one loop sees it.
//!
//! A cancelled request costs an upstream work for nothing: an HTTP/1.1 connection, which closes, or a reset on a
//! connection that others share. So each client has a budget. A client that has used half of it is *watched*: no more
//! of its requests are in progress than the rest of the budget would bear. The others wait, and one that is cancelled
//! while it waits costs nothing. Time and completed requests give the budget back.
//!
//! An address may be that of many: the requests of a connection that has cancelled none go before those of one that has.
//!
//! The budget is counted as the time that gives it back: [`Debt`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tidegate_engine::task;

/// The clients of a loop that have cancelled requests.
pub(super) struct Cancellations {
    clients: RefCell<HashMap<u64, Client, RandomState>>,
    /// How long it takes until a cancelled request is forgiven.
    interval: Duration,
    max: Duration,
    /// The number of the next request that waits.
    next: Cell<u64>,
}

/// When a client has all of its budget back.
#[derive(Debug, Clone, Copy)]
struct Debt(Instant);

impl Debt {
    fn left(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    fn set(&mut self, now: Instant, left: Duration) {
        self.0 = now.checked_add(left).unwrap_or(now);
    }
}

struct Client {
    debt: Debt,
    /// Its requests that were admitted while it was watched, and that are in progress.
    watched: u32,
    /// Its requests that wait, in their order.
    waiting: BTreeMap<Rank, Waker>,
    /// The ports of connections that have cancelled requests.
    cancelling: Vec<u16>,
}

/// The place of a request among those that wait: whether its connection has cancelled requests, and its number.
type Rank = (bool, u64);

/// The connection of a request: its client, by address, and its port there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester {
    pub(super) client: u64,
    pub(super) port: u16,
}

/// A request that may be passed on. Unless it is complete, or its failure was not the client's, it is one that was
/// cancelled when this is dropped.
pub(super) struct Admission {
    cancellations: Rc<Cancellations>,
    requester: Option<Requester>,
    is_watched: bool,
    /// When it was first passed on.
    began: Option<Instant>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Cancelled,
    /// It has no response of an upstream, and that is not for the client to answer for.
    Failed,
    Complete,
}

impl Cancellations {
    /// Budgets of so many requests, of which so many come back each second.
    pub(super) fn new(max: u32, per_second: u32) -> Rc<Self> {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Rc::new(Self {
            clients: RefCell::default(),
            interval,
            max: interval.saturating_mul(max.max(2 * WATCHED_MIN)),
            next: Cell::new(0),
        })
    }

    /// Admits a request of a client, at once or in its turn. `None` if that takes too long.
    pub(super) async fn admit(self: &Rc<Self>, requester: Option<Requester>) -> Option<Admission> {
        let is_watched = match requester {
            Some(requester) => match self.poll_admit(requester, None) {
                Poll::Ready(is_watched) => is_watched,
                Poll::Pending => Box::pin(self.wait(requester)).await?,
            },
            None => false,
        };
        let cancellations = self.clone();
        Some(Admission { cancellations, requester, is_watched, began: None, outcome: Outcome::Cancelled })
    }

    /// Whether a request may be passed on, and whether its client is watched. `rank` is that of a request that waits.
    #[inline]
    fn poll_admit(&self, requester: Requester, rank: Option<Rank>) -> Poll<bool> {
        let mut clients = self.clients.borrow_mut();
        if clients.is_empty() {
            return Poll::Ready(false);
        }
        let Some(known) = clients.get_mut(&requester.client) else { return Poll::Ready(false) };
        let rank = rank.unwrap_or_else(|| (known.cancelling.contains(&requester.port), u64::MAX));
        if known.waiting.first_key_value().is_some_and(|(first, _)| *first < rank) {
            return Poll::Pending;
        }
        let left = known.debt.left(task::now());
        if left < self.max / 2 {
            if left.is_zero() && known.watched == 0 && known.waiting.is_empty() {
                clients.remove(&requester.client);
            }
            return Poll::Ready(false);
        }
        if left + self.interval.saturating_mul(known.watched + 1) <= self.max {
            known.watched += 1;
            return Poll::Ready(true);
        }
        Poll::Pending
    }

    /// Waits until a request may be passed on. Returns whether its client is watched.
    async fn wait(&self, requester: Requester) -> Option<bool> {
        let number = self.next.get();
        self.next.set(number + 1);
        let client = requester.client;
        let has_cancelled =
            self.clients.borrow().get(&client).is_some_and(|known| known.cancelling.contains(&requester.port));
        let rank = (has_cancelled, number);
        let waiting = CancellationWait { cancellations: self, client, rank };
        let mut until = pin!(task::sleep(WAIT_MAX));
        let mut turn = pin!(task::sleep(self.turn_of(client, rank)));
        poll_fn(|cx| {
            if let Poll::Ready(is_watched) = self.poll_admit(requester, Some(rank)) {
                return Poll::Ready(Some(is_watched));
            }
            if until.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            // Nothing else tells that time has passed.
            while turn.as_mut().poll(cx).is_ready() {
                turn.set(task::sleep(self.turn_of(client, rank).max(self.interval)));
            }
            waiting.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// How long it takes until a request that waits is in turn, if nothing is completed meanwhile.
    fn turn_of(&self, client: u64, rank: Rank) -> Duration {
        let clients = self.clients.borrow();
        let Some(known) = clients.get(&client) else { return Duration::ZERO };
        let before = known.waiting.range(..rank).count();
        let before = u32::try_from(before).unwrap_or(u32::MAX).saturating_add(known.watched).saturating_add(1);
        let needed = known.debt.left(task::now()) + self.interval.saturating_mul(before);
        needed.saturating_sub(self.max).min(WAIT_MAX)
    }

    /// The next requests that wait may be admitted now.
    fn wake_next(&self, client: u64) {
        if let Some(known) = self.clients.borrow().get(&client) {
            known.waiting.values().take(WOKEN_MAX).for_each(Waker::wake_by_ref);
        }
    }

    fn release(&self, client: u64, is_watched: bool, change: impl FnOnce(&mut Client, Instant)) {
        let mut clients = self.clients.borrow_mut();
        let Some(known) = clients.get_mut(&client) else { return };
        if is_watched {
            known.watched = known.watched.saturating_sub(1);
        }
        change(known, task::now());
        drop(clients);
        self.wake_next(client);
    }

    /// A request was cancelled. One that was admitted before its client was watched leaves a few requests in any case, so
    /// that a client with many at once can go on.
    fn charge(&self, requester: Requester, is_watched: bool) {
        let Requester { client, port } = requester;
        self.make_room(client);
        let now = task::now();
        let known = || Client { debt: Debt(now), watched: 0, waiting: BTreeMap::new(), cancelling: Vec::new() };
        self.clients.borrow_mut().entry(client).or_insert_with(known);
        self.release(client, is_watched, |known, now| {
            let left = known.debt.left(now);
            let max = if is_watched { self.max } else { self.max - self.interval.saturating_mul(WATCHED_MIN) };
            known.debt.set(now, left.max((left + self.interval).min(max)));
            if !known.cancelling.contains(&port) {
                if known.cancelling.len() == CANCELLING_MAX {
                    // The oldest.
                    known.cancelling.remove(0);
                }
                known.cancelling.push(port);
            }
        });
    }

    /// Makes room for one more client.
    fn make_room(&self, client: u64) {
        let mut clients = self.clients.borrow_mut();
        if clients.len() < CLIENTS_MAX || clients.contains_key(&client) {
            return;
        }
        let now = task::now();
        clients.retain(|_, known| !known.debt.left(now).is_zero() || known.watched > 0 || !known.waiting.is_empty());
        if clients.len() >= CLIENTS_MAX
            && let Some(other) = clients.iter().find(|(_, known)| known.waiting.is_empty()).map(|(other, _)| *other)
        {
            clients.remove(&other);
        }
    }
}

/// A request that waits.
struct CancellationWait<'a> {
    cancellations: &'a Cancellations,
    client: u64,
    rank: Rank,
}

impl CancellationWait<'_> {
    fn register(&self, waker: &Waker) {
        if let Some(known) = self.cancellations.clients.borrow_mut().get_mut(&self.client) {
            known.waiting.insert(self.rank, waker.clone());
        }
    }
}

impl Drop for CancellationWait<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.cancellations.clients.borrow_mut().get_mut(&self.client) {
            known.waiting.remove(&self.rank);
        }
        self.cancellations.wake_next(self.client);
    }
}

impl Admission {
    /// The request is passed on to an upstream.
    pub(super) fn begin(&mut self) {
        if self.began.is_none() {
            self.began = Some(task::now());
        }
    }

    /// The request has failed, and not by its client.
    pub(super) fn fail(&mut self) {
        self.outcome = Outcome::Failed;
    }

    /// The response is complete.
    pub(super) fn complete(&mut self) {
        self.outcome = Outcome::Complete;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let (Some(requester), true) = (self.requester, task::can_spawn()) else { return };
        let client = requester.client;
        let is_early = || self.began.is_some_and(|began| task::now().saturating_duration_since(began) < AGE_MAX);
        match self.outcome {
            Outcome::Cancelled if is_early() => self.cancellations.charge(requester, self.is_watched),
            _ if self.cancellations.clients.borrow().is_empty() => {}
            Outcome::Complete => {
                let interval = self.cancellations.interval;
                self.cancellations.release(client, self.is_watched, |known, now| {
                    let left = known.debt.left(now);
                    known.debt.set(now, left.saturating_sub(interval / COMPLETE_PER_CANCELLED));
                });
            }
            Outcome::Cancelled | Outcome::Failed => {
                self.cancellations.release(client, self.is_watched, |_, _| {});
            }
        }
    }
}

/// How many completed requests forgive a cancelled one.
const COMPLETE_PER_CANCELLED: u32 = 8;

/// A request that was in progress for longer is no cancelled one: how many of those a client can order is bounded by how
/// many it may have in progress.
const AGE_MAX: Duration = Duration::from_secs(1);

/// How many requests a client may have in progress after it has cancelled many at once.
const WATCHED_MIN: u32 = 8;

/// How long a request waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// How many requests may be admitted when one is over.
const WOKEN_MAX: usize = 2;

/// How many connections of a client are known to have cancelled requests.
const CANCELLING_MAX: usize = 32;

/// How many clients a loop knows that have cancelled requests.
const CLIENTS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::task::Context;

    use tidegate_engine::{Backend, EventLoop};

    use super::*;

    /// Runs a test on a loop, whose time stands still meanwhile.
    fn on_a_loop(test: impl FnOnce() + 'static) {
        EventLoop::on(Backend::Epoll).expect("a loop").block_on(async { test() }).expect("it runs");
    }

    type Admitting<'a> = std::pin::Pin<Box<dyn Future<Output = Option<Admission>> + 'a>>;

    fn poll(admitting: &mut Admitting<'_>) -> Option<Admission> {
        match admitting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admission) => Some(admission.expect("it does not take long")),
            Poll::Pending => None,
        }
    }

    fn admitting(cancellations: &Rc<Cancellations>, client: u64, port: u16) -> Admitting<'_> {
        Box::pin(cancellations.admit(Some(Requester { client, port })))
    }

    fn admit(cancellations: &Rc<Cancellations>, client: u64) -> Option<Admission> {
        let mut admission = poll(&mut admitting(cancellations, client, 1))?;
        admission.begin();
        Some(admission)
    }

    /// A client that has cancelled a hundred requests at once.
    fn cancelled(client: u64) -> Rc<Cancellations> {
        let cancellations = Cancellations::new(20, 1);
        let all: Vec<_> = (0..100).map(|_| admit(&cancellations, client).expect("it is not watched")).collect();
        drop(all);
        cancellations
    }

    #[test]
    fn a_client_that_has_cancelled_many_requests_goes_on_with_a_few_and_others_with_all() {
        on_a_loop(|| {
            let cancellations = cancelled(1);
            let few: Vec<_> = std::iter::from_fn(|| admit(&cancellations, 1)).collect();
            assert_eq!(few.len(), 8);
            let all: Vec<_> = (0..50).filter_map(|_| admit(&cancellations, 2)).collect();
            assert_eq!(all.len(), 50);
        });
    }

    #[test]
    fn a_client_that_cancels_those_as_well_waits_and_its_cancellations_meanwhile_cost_nothing() {
        on_a_loop(|| {
            let cancellations = cancelled(1);
            while let Some(admission) = admit(&cancellations, 1) {
                drop(admission);
            }
            let debt = |cancellations: &Cancellations| cancellations.clients.borrow()[&1].debt.left(task::now());
            assert_eq!(debt(&cancellations), Duration::from_secs(20));
            let mut waiting: Vec<Admitting<'_>> = (0..50).map(|_| admitting(&cancellations, 1, 1)).collect();
            assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_none()));
            drop(waiting);
            assert_eq!(debt(&cancellations), Duration::from_secs(20));
            assert!(cancellations.clients.borrow()[&1].waiting.is_empty());
        });
    }

    #[test]
    fn requests_that_wait_are_admitted_in_their_order_when_others_are_complete() {
        on_a_loop(|| {
            let cancellations = cancelled(1);
            let mut few: Vec<_> = std::iter::from_fn(|| admit(&cancellations, 1)).collect();
            let [mut first, mut second] = [(); 2].map(|()| admitting(&cancellations, 1, 1));
            assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
            let mut complete = few.pop().expect("a request");
            complete.complete();
            drop(complete);
            assert!(poll(&mut second).is_none(), "it is behind another one");
            assert!(poll(&mut first).is_some());
        });
    }

    #[test]
    fn a_connection_that_has_cancelled_nothing_goes_before_others_of_its_address() {
        on_a_loop(|| {
            let cancellations = cancelled(1);
            let mut few: Vec<_> = std::iter::from_fn(|| admit(&cancellations, 1)).collect();
            let [mut cancelling, mut other] = [1, 2].map(|port| admitting(&cancellations, 1, port));
            assert!(poll(&mut cancelling).is_none() && poll(&mut other).is_none());
            let mut complete = few.pop().expect("a request");
            complete.complete();
            drop(complete);
            assert!(poll(&mut cancelling).is_none(), "it is behind the other one");
            assert!(poll(&mut other).is_some());
        });
    }

    #[test]
    fn completed_requests_give_the_budget_back_and_failed_ones_take_nothing() {
        on_a_loop(|| {
            let cancellations = cancelled(1);
            for _ in 0..16 {
                let mut admission = admit(&cancellations, 1).expect("a few are admitted");
                admission.complete();
            }
            let mut failed = admit(&cancellations, 1).expect("a few are admitted");
            failed.fail();
            drop(failed);
            // 12 seconds, less an eighth for each.
            assert_eq!(cancellations.clients.borrow()[&1].debt.left(task::now()), Duration::from_secs(10));
        });
    }

    #[test]
    fn the_table_is_bounded() {
        on_a_loop(|| {
            let cancellations = Cancellations::new(20, 1);
            (0..10_000).for_each(|client| drop(admit(&cancellations, client)));
            assert_eq!(cancellations.clients.borrow().len(), CLIENTS_MAX);
        });
    }
}
