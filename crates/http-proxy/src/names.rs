//! `Names`: the names of upstreams, each of which is resolved by itself.
//!
//! A resolver that is slow, or never answers, holds up neither checks nor requests, and other names only if
//! [`LOOKUPS_MAX`] lookups never end. The upstream keeps the addresses that it has. A name has one lookup at a time, since a lookup of the system's resolver
//! occupies a thread until it has an answer.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_engine::task;
use tidegate_sys::Address;

use super::upstreams::{Shared, Upstreams};
use super::url::Place;
use tidegate_http_upstream::{Resolve, Resolving, SystemResolver};

/// Resolves the names of upstreams; the system's resolver unless set.
#[derive(Clone, Default)]
pub(super) struct Resolver(Option<Arc<dyn Resolve + Send + Sync>>);

impl Resolver {
    pub(super) fn new(resolver: impl Resolve + Send + Sync) -> Self {
        Self(Some(Arc::new(resolver)))
    }

    pub(super) fn is_of_system(&self) -> bool {
        self.0.is_none()
    }

    fn resolve(&self, host: &str, port: u16) -> Resolving {
        match &self.0 {
            Some(resolver) => resolver.resolve(host, port),
            None => SystemResolver.resolve(host, port),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_of_system() { "SystemResolver" } else { "Resolver" })
    }
}

/// The names of a set of upstreams.
pub(super) struct Names(Vec<Name>);

struct Name {
    /// The place of its URL in the set.
    place: usize,
    due: Instant,
    /// When it may be resolved again because an address of it cannot be connected to.
    rests_until: Instant,
    lookup: Option<Resolving>,
}

impl Names {
    /// Every name is due at `due`, and sooner if an address of it cannot be connected to.
    pub(super) fn new(shared: &Shared, due: Instant) -> Self {
        let rests_until = due.min(task::now() + LOOKUP_PAUSE);
        let is_name = |place: &usize| matches!(shared.urls[*place].0.place, Place::Name(..));
        let places = (0..shared.urls.len()).filter(is_name);
        Self(places.map(|place| Name { place, due, rests_until, lookup: None }).collect())
    }

    /// Begins the lookups that are due, and takes the results of those that are done. A name is due again after `again`,
    /// and never if that is `None`. Returns whether no lookup is in progress.
    pub(super) fn poll(&mut self, shared: &Shared, again: Option<Duration>, cx: &mut Context<'_>) -> bool {
        let now = task::now();
        let mut in_progress = self.0.iter().filter(|name| name.lookup.is_some()).count();
        for name in &mut self.0 {
            let Place::Name(host, port) = &shared.urls[name.place].0.place else { continue };
            let wants = &shared.wants_lookup[name.place];
            if name.rests_until <= now && wants.load(Relaxed) {
                name.due = name.due.min(now);
            }
            if name.lookup.is_none() && name.due <= now && in_progress < LOOKUPS_MAX {
                wants.store(false, Relaxed);
                name.rests_until = now + LOOKUP_PAUSE;
                name.lookup = Some(shared.resolver.resolve(host, *port));
                in_progress += 1;
            }
            let Some(lookup) = &mut name.lookup else { continue };
            let Poll::Ready(found) = lookup.as_mut().poll(cx) else { continue };
            name.lookup = None;
            in_progress -= 1;
            if let Some(addresses) = addresses_of(host, found) {
                shared.set_addresses(&[(name.place, addresses)]);
            }
            match again.and_then(|again| now.checked_add(again)) {
                Some(due) => name.due = due,
                None => name.due = now + NEVER,
            }
            // A place for a lookup is free.
            cx.waker().wake_by_ref();
        }
        in_progress == 0
    }
}

impl Upstreams {
    /// Resolves all names, and waits for the results. An address that stays keeps its connections and its health. A
    /// name that cannot be resolved keeps the addresses that it has.
    ///
    /// It is for a task of a loop. [`maintain`](Self::maintain) does the same at intervals.
    pub async fn resolve(&self) {
        let mut names = Names::new(&self.0, task::now());
        poll_fn(|cx| {
            let is_idle = names.poll(&self.0, None, cx);
            let is_left = names.0.iter().any(|name| name.lookup.is_none() && name.due <= task::now());
            if is_idle && !is_left { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(super) fn has_names(&self) -> bool {
        self.0.urls.iter().any(|(url, _)| matches!(url.place, Place::Name(..)))
    }
}

/// A host and a port to resolve for a URL of a set, by its place.
pub(super) type Wanted = (usize, String, u16);

/// Resolves names beside each other by a function that blocks, on threads of their own, and returns the results that
/// there are after `timeout`. The thread of a lookup that takes longer ends with it, and its result is dropped.
pub(super) fn first_addresses(
    names: Vec<Wanted>,
    timeout: Duration,
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Clone + Send + 'static,
) -> Vec<(usize, Vec<Address>)> {
    let deadline = Instant::now() + timeout;
    let (sender, results) = mpsc::channel();
    let mut missing: Vec<_> = names.iter().map(|(place, host, _)| (*place, host.clone())).collect();
    let threads = names.len().min(FIRST_LOOKUPS_MAX);
    let left = Arc::new(Mutex::new(names.into_iter()));
    for _ in 0..threads {
        let (left, sender, resolve) = (left.clone(), sender.clone(), resolve.clone());
        let work = move || {
            // It ends with the names, or when the results are no longer read.
            while let Some((place, host, port)) = next_of(&left)
                && sender.send((place, resolve(&host, port))).is_ok()
            {}
        };
        if let Err(error) = thread::Builder::new().name("tidegate-names".into()).spawn(work) {
            tracing::warn!(subsystem = "proxy", %error, "no thread to resolve upstreams");
        }
    }
    drop(sender);
    let mut found = Vec::new();
    while !missing.is_empty() {
        let (place, result) = match results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        };
        let Some(position) = missing.iter().position(|(other, _)| *other == place) else { continue };
        let (_, host) = missing.swap_remove(position);
        found.extend(addresses_of(&host, result).map(|addresses| (place, addresses)));
    }
    // Those that have not begun never do.
    left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
    for (_, name) in missing {
        tracing::warn!(subsystem = "proxy", %name, error = "no answer in time", "upstream not resolved");
    }
    found
}

fn next_of(left: &Mutex<impl Iterator<Item = Wanted>>) -> Option<Wanted> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// The addresses of a name in a fixed order, at most [`ADDRESSES_MAX`]; `None` if it could not be resolved.
pub(super) fn addresses_of(name: &str, found: io::Result<Vec<SocketAddr>>) -> Option<Vec<Address>> {
    let mut found = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(subsystem = "proxy", %name, %error, "upstream not resolved");
            return None;
        }
    };
    found.sort_unstable();
    found.dedup();
    found.truncate(ADDRESSES_MAX);
    Some(found.into_iter().map(Address::from).collect())
}

/// How many addresses of one name are used.
pub(super) const ADDRESSES_MAX: usize = 64;

/// How many names are resolved at the same time: half of the process's threads for blocking work.
const LOOKUPS_MAX: usize = 8;

/// How many names are resolved at the same time when a set is made.
const FIRST_LOOKUPS_MAX: usize = 32;

/// How long a name rests at least between two lookups.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Longer than a program runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidegate_engine::EventLoop;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn wanted(count: usize) -> Vec<Wanted> {
        (0..count).map(|place| (place, format!("host-{place}.test"), 80)).collect()
    }

    fn places(found: Vec<(usize, Vec<Address>)>) -> Vec<usize> {
        let mut places: Vec<_> = found.into_iter().map(|(place, _)| place).collect();
        places.sort_unstable();
        places
    }

    /// Counts its lookups.
    #[derive(Debug, Clone, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Resolve for Counting {
        fn resolve(&self, _: &str, port: u16) -> Resolving {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::ready(Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))])))
        }
    }

    #[test]
    fn a_name_that_is_not_due_is_resolved_once_an_address_of_it_refuses() {
        let counting = Counting::default();
        let upstreams = Upstreams::builder().server("http://app.test".parse().expect("a URL"));
        let upstreams = upstreams.resolver(counting.clone()).build().expect("all is set");
        let polls = async move {
            let shared = &upstreams.0;
            let mut names = Names::new(shared, task::now() + Duration::from_secs(3_600));
            task::sleep(LOOKUP_PAUSE).await;
            poll_fn(|cx| Poll::Ready(names.poll(shared, None, cx))).await;
            shared.wants_lookup[0].store(true, Relaxed);
            poll_fn(|cx| Poll::Ready(names.poll(shared, None, cx))).await;
        };
        EventLoop::readiness().expect("a loop").block_on(polls).expect("it runs");
        assert_eq!(counting.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn names_are_resolved_beside_each_other() {
        // No lookup ends before the last has begun.
        let barrier = Arc::new(Barrier::new(FIRST_LOOKUPS_MAX));
        let found = first_addresses(wanted(FIRST_LOOKUPS_MAX), PATIENCE, move |_, port| {
            barrier.wait();
            Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))])
        });
        assert_eq!(places(found), (0..FIRST_LOOKUPS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_thousand_names_take_turns() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let peak = most.clone();
        let found = first_addresses(wanted(1_000), PATIENCE, move |_, port| {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))])
        });
        assert_eq!(found.len(), 1_000);
        assert!(most.load(Ordering::SeqCst) <= FIRST_LOOKUPS_MAX);
    }

    #[test]
    fn a_name_that_has_no_answer_or_an_error_holds_up_no_other() {
        let (keep, never) = mpsc::channel::<()>();
        let never = Arc::new(Mutex::new(never));
        // Under load the thread of the third may start late.
        for seconds in [1, 4, 16] {
            let never = never.clone();
            let found = first_addresses(wanted(3), Duration::from_secs(seconds), move |host, port| match host {
                "host-0.test" => {
                    // Until the test is over.
                    let _ = never.lock().map(|never| never.recv());
                    Err(io::ErrorKind::TimedOut.into())
                }
                "host-1.test" => Err(io::ErrorKind::NotFound.into()),
                _ => Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]),
            });
            if places(found) == [2] {
                drop(keep);
                return;
            }
        }
        panic!("the third name is not resolved");
    }

    #[test]
    fn no_names_need_no_thread() {
        assert!(first_addresses(Vec::new(), Duration::ZERO, |_, _| unreachable!("there is no name")).is_empty());
    }
}
