//! `Names`: the names of upstreams, each of which is resolved by itself.
//!
//! A resolver that is slow, or never answers, holds up neither checks nor requests, and other names only if
//! as many lookups as may run never end. The upstream keeps the addresses that it has. A name has one lookup at a time, since
//! a lookup of the system's resolver occupies a thread until it has an answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_engine::{Resolve as _, ResolvingServers, task};

use super::server_list::UrlEntry;
use super::upstreams::{Shared, Upstreams};
use super::url::Place;

/// The names of a set of upstreams.
#[derive(Default)]
pub(super) struct Names {
    /// The URLs that the names are of.
    urls: Arc<[Arc<UrlEntry>]>,
    names: Vec<Name>,
}

struct Name {
    entry: Arc<UrlEntry>,
    due: Instant,
    /// When it may be resolved again because an address of it cannot be connected to.
    rests_until: Instant,
    /// Since when a part of each lookup has failed.
    partial_since: Option<Instant>,
    lookup: Option<ResolvingServers>,
}

impl Names {
    /// Every name is due at `due`, and sooner if an address of it cannot be connected to.
    pub(super) fn new(shared: &Shared, due: Instant) -> Self {
        let mut names = Self::default();
        names.follow(shared, due);
        names
    }

    /// Takes the names that the set has now. New ones are due at `due`.
    fn follow(&mut self, shared: &Shared, due: Instant) {
        let urls = shared.servers.urls();
        if Arc::ptr_eq(&urls, &self.urls) {
            return;
        }
        self.names.retain(|name| urls.iter().any(|entry| Arc::ptr_eq(entry, &name.entry)));
        for entry in urls.iter().filter(|entry| entry.url.has_lookup()) {
            if !self.names.iter().any(|name| Arc::ptr_eq(entry, &name.entry)) {
                let rests_until = due.min(task::now() + LOOKUP_PAUSE);
                let (entry, partial_since, lookup) = (entry.clone(), None, None);
                self.names.push(Name { entry, due, rests_until, partial_since, lookup });
            }
        }
        self.urls = urls;
    }

    /// Begins the lookups that are due, and takes the results of those that are done. A name is due again after its TTL, and
    /// after `again` at the latest; never if that is `None`. Returns whether no lookup is in progress.
    pub(super) fn poll(&mut self, shared: &Shared, again: Option<Duration>, cx: &mut Context<'_>) -> bool {
        let now = task::now();
        self.follow(shared, now);
        let lookups_max = if shared.resolver.is_of_system() { SYSTEM_LOOKUPS_MAX } else { LOOKUPS_MAX };
        let mut in_progress = self.names.iter().filter(|name| name.lookup.is_some()).count();
        for name in &mut self.names {
            let wants = &name.entry.wants_lookup;
            if name.rests_until <= now && wants.load(Relaxed) {
                name.due = name.due.min(now);
            }
            if name.lookup.is_none() && name.due <= now && in_progress < lookups_max {
                wants.store(false, Relaxed);
                name.rests_until = now + LOOKUP_PAUSE;
                name.lookup = begin(shared, &name.entry);
                in_progress += 1;
            }
            let Some(lookup) = &mut name.lookup else { continue };
            let Poll::Ready(found) = lookup.as_mut().poll(cx) else { continue };
            name.lookup = None;
            in_progress -= 1;
            let holds = match found {
                Ok(found) => {
                    let mut servers = name.entry.servers(found.servers);
                    let since = found.is_partial.then(|| *name.partial_since.get_or_insert(now));
                    name.partial_since = since;
                    // A part that fails for long says nothing about the servers that are known of it.
                    if since.is_some_and(|since| now < since + PARTIAL_TIME_MAX) {
                        shared.servers.keep_known(&name.entry, &mut servers);
                    }
                    shared.servers.set_servers(shared, &[(name.entry.clone(), servers)]);
                    let ttl = if found.is_partial { Some(RETRY_PAUSE) } else { found.ttl };
                    ttl.map(|ttl| ttl.max(LOOKUP_PAUSE))
                }
                Err(error) => {
                    tracing::warn!(subsystem = "proxy", name = %name.entry.url, %error, "upstream not resolved");
                    Some(RETRY_PAUSE)
                }
            };
            let again = again.map(|again| holds.map_or(again, |holds| holds.min(again)));
            name.due = again.and_then(|again| now.checked_add(again)).unwrap_or(now + NEVER);
            // A place for a lookup is free.
            cx.waker().wake_by_ref();
        }
        in_progress == 0
    }
}

fn begin(shared: &Shared, entry: &UrlEntry) -> Option<ResolvingServers> {
    match &entry.url.place {
        Place::Name(host, port) => Some(shared.resolver.resolve_servers(host, *port)),
        Place::Service(service) => Some(shared.resolver.resolve_service(service)),
        Place::Address(_) => None,
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
            let is_left = names.names.iter().any(|name| name.lookup.is_none() && name.due <= task::now());
            if is_idle && !is_left { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(super) fn has_names(&self) -> bool {
        self.0.servers.urls().iter().any(|entry| entry.url.has_lookup())
    }
}

/// How many names are resolved at the same time.
const LOOKUPS_MAX: usize = 64;

/// The same by the system's resolver: half of the process's threads for blocking work.
const SYSTEM_LOOKUPS_MAX: usize = 8;

/// How long a name rests at least between two lookups.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// How long a name rests that could not be resolved.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// How long servers stay that only a part of a lookup would find, while that part fails: a target of a service that has left
/// DNS without its record would otherwise keep servers that are gone.
const PARTIAL_TIME_MAX: Duration = Duration::from_secs(300);

/// Longer than a program runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidegate_engine::{EventLoop, Resolve, ResolvedServers, Resolving};

    use super::*;

    /// Has two servers at first, and then one of them, since a part of each lookup fails.
    #[derive(Debug, Clone, Default)]
    struct Partial(Arc<AtomicUsize>);

    impl Resolve for Partial {
        fn resolve(&self, _: &str, _: u16) -> Resolving {
            unreachable!("only services are resolved")
        }

        fn resolve_service(&self, _: &str) -> ResolvingServers {
            let is_partial = self.0.fetch_add(1, Ordering::SeqCst) > 0;
            let all = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 80)).into());
            let servers = if is_partial { all[..1].to_vec() } else { all.to_vec() };
            Box::pin(std::future::ready(Ok(ResolvedServers { servers, ttl: None, is_partial })))
        }
    }

    #[test]
    fn servers_of_a_part_that_fails_stay_for_a_bounded_time() {
        let network = tidegate_testkit::network::Network::new(1);
        let node = network.host("10.0.0.9").node();
        let test = node.spawn(async {
            let upstreams = Upstreams::builder().server("srv://_http._tcp.app.test".parse().expect("a URL"));
            let upstreams = upstreams.resolver(Partial::default()).build().expect("all is set");
            let mut names = Names::new(&upstreams.0, task::now());
            let (mut counts, begun) = (Vec::new(), task::now());
            while task::now() < begun + PARTIAL_TIME_MAX + 3 * RETRY_PAUSE {
                poll_fn(|cx| Poll::Ready(names.poll(&upstreams.0, Some(RETRY_PAUSE), cx))).await;
                counts.push((task::now() - begun, upstreams.len()));
                task::sleep(RETRY_PAUSE).await;
            }
            counts
        });
        let counts = network.run_task(Duration::from_secs(3_600), test);
        for (time, count) in counts {
            // The first lookup that is partial is that after one pause.
            let is_kept = time < PARTIAL_TIME_MAX + RETRY_PAUSE;
            assert_eq!(count, if is_kept { 2 } else { 1 }, "{time:?}");
        }
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
            shared.servers.urls()[0].wants_lookup.store(true, Relaxed);
            poll_fn(|cx| Poll::Ready(names.poll(shared, None, cx))).await;
        };
        EventLoop::readiness().expect("a loop").block_on(polls).expect("it runs");
        assert_eq!(counting.0.load(Ordering::SeqCst), 1);
    }
}
