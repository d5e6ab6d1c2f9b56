//! `Names`: the names of upstreams, each of which is resolved by itself.
//!
//! A resolver that is slow, or never answers, holds up neither checks nor requests, and other names only if
//! [`LOOKUPS_MAX`] lookups never end. The upstream keeps the addresses that it has. A name has one lookup at a time, since
//! a lookup of the system's resolver occupies a thread until it has an answer.

use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_engine::task;
use tidegate_http_upstream::Resolving;

use super::resolver::addresses_of;
use super::upstreams::{Shared, Upstreams};
use super::url::Place;

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

/// How many names are resolved at the same time: half of the process's threads for blocking work.
const LOOKUPS_MAX: usize = 8;

/// How long a name rests at least between two lookups.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Longer than a program runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidegate_engine::EventLoop;
    use tidegate_http_upstream::Resolve;

    use super::*;

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
}
