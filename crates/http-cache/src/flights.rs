//! `Flights`: requests for one key are joined. One of them, the leader, goes to the upstream, and the others wait for it.
//!
//! A leader that leaves wakes the others, and the next one leads. A response that is not stored has all of them go on by
//! themselves. One whose leader takes too long, as with a client that reads slowly, is joined by no further request, and the
//! next one leads anew. A purge dooms the responses that are on their way: they are passed on, and not stored.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// The requests on their way to the upstream, by key.
#[derive(Default)]
pub(crate) struct Flights {
    /// The newest last.
    table: Mutex<FlightTable>,
}

type FlightTable = HashMap<Box<[u8]>, Vec<Arc<Flight>>>;

/// The request of a leader, and those that wait for it.
#[derive(Default)]
struct Flight(Mutex<FlightState>);

#[derive(Default)]
struct FlightState {
    end: Option<FlightEnd>,
    waiting: Slab<Option<Waker>>,
    is_doomed: bool,
    /// No further request joins.
    is_closed: bool,
}

/// The end of a leader's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightEnd {
    /// The response is stored.
    Stored,
    /// It may not be.
    Unstorable,
    /// The leader has left, or its response was not complete.
    Abandoned,
}

/// The role of a request.
pub(crate) enum Role {
    Leader(Lead),
    Follower(Follow),
    /// Too many requests wait.
    Full,
}

impl Flights {
    /// Joins the request for a key. At most `waiting_max` requests wait.
    pub(crate) fn join(self: &Arc<Self>, key: &[u8], waiting_max: usize) -> Role {
        let mut table = lock(&self.table);
        if let Some(flight) = table.get(key).and_then(|flights| flights.last()) {
            let mut state = lock(&flight.0);
            if !state.is_closed {
                if state.waiting.len() >= waiting_max {
                    return Role::Full;
                }
                let place = state.waiting.insert(None);
                return Role::Follower(Follow { flight: flight.clone(), place });
            }
        }
        let flight = Arc::<Flight>::default();
        let flights = table.entry(key.into()).or_default();
        if flights.len() >= FLIGHTS_OF_KEY_MAX {
            return Role::Full;
        }
        flights.push(flight.clone());
        Role::Leader(Lead { flights: self.clone(), key: key.into(), flight })
    }

    /// Leads the request for a key, unless another one does.
    pub(crate) fn lead(self: &Arc<Self>, key: &[u8]) -> Option<Lead> {
        match self.join(key, 0) {
            Role::Leader(lead) => Some(lead),
            Role::Follower(_) | Role::Full => None,
        }
    }

    /// The responses on their way for keys that are chosen are not stored.
    pub(crate) fn doom(&self, is_chosen: impl Fn(&[u8]) -> bool) {
        lock(&self.table).retain(|key, flights| {
            let is_doomed = is_chosen(key);
            if is_doomed {
                flights.iter().for_each(|flight| flight.doom());
            }
            !is_doomed
        });
    }

    /// The same for one key.
    pub(crate) fn doom_key(&self, key: &[u8]) {
        lock(&self.table).remove(key).into_iter().flatten().for_each(|flight| flight.doom());
    }
}

impl Flight {
    fn doom(&self) {
        lock(&self.0).is_doomed = true;
    }

    fn end(&self, end: FlightEnd) {
        let waiting = {
            let mut state = lock(&self.0);
            if state.end.is_some() {
                return;
            }
            state.end = Some(end);
            state.waiting.iter_mut().filter_map(|(_, waker)| waker.take()).collect::<Vec<_>>()
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The leader of a request. Dropping it wakes those that wait.
pub(crate) struct Lead {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    flight: Arc<Flight>,
}

impl Lead {
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Stores the response by `put`, unless it is doomed. Returns whether it is stored.
    pub(crate) fn store(self, put: impl FnOnce(&[u8]) -> bool) -> bool {
        // A purge comes before or after this as a whole.
        let state = lock(&self.flight.0);
        let is_stored = !state.is_doomed && put(&self.key);
        drop(state);
        self.finish(if is_stored { FlightEnd::Stored } else { FlightEnd::Unstorable });
        is_stored
    }

    pub(crate) fn finish(self, end: FlightEnd) {
        self.leave();
        self.flight.end(end);
    }

    /// No further request joins.
    fn leave(&self) {
        let mut table = lock(&self.flights.table);
        if let Some(flights) = table.get_mut(&self.key) {
            flights.retain(|flight| !Arc::ptr_eq(flight, &self.flight));
            if flights.is_empty() {
                table.remove(&self.key);
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.leave();
        self.flight.end(FlightEnd::Abandoned);
    }
}

/// A request that waits for its leader.
pub(crate) struct Follow {
    flight: Arc<Flight>,
    place: usize,
}

impl Follow {
    /// It has waited long enough: no further request joins its leader.
    pub(crate) fn give_up(self) {
        lock(&self.flight.0).is_closed = true;
    }
}

impl Future for Follow {
    type Output = FlightEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FlightEnd> {
        let mut state = lock(&self.flight.0);
        match state.end {
            Some(end) => Poll::Ready(end),
            None => {
                state.waiting[self.place] = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        lock(&self.flight.0).waiting.remove(self.place);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaders of one key at once, of which all but the newest take long.
const FLIGHTS_OF_KEY_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(flights: &Arc<Flights>) -> Follow {
        match flights.join(b"key", 8) {
            Role::Follower(follow) => follow,
            _ => panic!("another request leads"),
        }
    }

    fn poll(follow: &mut Follow) -> Poll<FlightEnd> {
        Pin::new(follow).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn followers_learn_the_end_of_their_leader() {
        for (end, expected) in [
            (None, FlightEnd::Abandoned),
            (Some(FlightEnd::Stored), FlightEnd::Stored),
            (Some(FlightEnd::Unstorable), FlightEnd::Unstorable),
        ] {
            let flights = Arc::<Flights>::default();
            let lead = flights.lead(b"key").unwrap();
            let mut followers = [follower(&flights), follower(&flights)];
            assert!(followers.iter_mut().all(|follow| poll(follow).is_pending()));
            match end {
                None => drop(lead),
                Some(end) => lead.finish(end),
            }
            assert!(followers.iter_mut().all(|follow| poll(follow) == Poll::Ready(expected)));
            assert!(flights.lead(b"key").is_some());
        }
    }

    #[test]
    fn a_leader_that_takes_too_long_is_joined_no_more_and_a_purge_dooms_it_still() {
        let flights = Arc::<Flights>::default();
        let slow = flights.lead(b"key").unwrap();
        follower(&flights).give_up();
        let next = flights.lead(b"key").unwrap();
        assert!(next.store(|_| true));
        flights.doom_key(b"key");
        assert!(!slow.store(|_| unreachable!()));
        // Leaders of one key are bounded.
        let leaders: Vec<_> = (0..FLIGHTS_OF_KEY_MAX)
            .map(|_| {
                let lead = flights.lead(b"key").unwrap();
                follower(&flights).give_up();
                lead
            })
            .collect();
        assert!(matches!(flights.join(b"key", 8), Role::Full));
        drop(leaders);
        assert!(lock(&flights.table).is_empty());
    }

    #[test]
    fn waiting_requests_are_bounded_and_a_follower_that_leaves_makes_room() {
        let flights = Arc::<Flights>::default();
        let _lead = flights.lead(b"key").unwrap();
        let followers: Vec<_> = (0..8).map(|_| follower(&flights)).collect();
        assert!(matches!(flights.join(b"key", 8), Role::Full));
        drop(followers);
        follower(&flights);
    }

    #[test]
    fn a_doomed_response_is_not_stored_and_others_lead_anew() {
        let flights = Arc::<Flights>::default();
        let doomed = flights.lead(b"key").unwrap();
        flights.doom(|key| key.starts_with(b"k"));
        let next = flights.lead(b"key").unwrap();
        assert!(!doomed.store(|_| unreachable!()));
        // The end of the first one does not remove the second one.
        assert!(flights.lead(b"key").is_none());
        assert!(next.store(|_| true));
    }
}
