//! `Maintenance`: a thread that checks servers and resolves their names.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_codec::framing::Raw;
use tidegate_codec::later;
use tidegate_engine::{Backend, Backoff, Client, EventLoop, ResolvedServer, ResolvedServers, task};

use super::upstreams::{ConnectCheck, ListedServer, ServerSet, Upstreams};

/// A thread that checks servers and resolves their names. Dropping it has the thread end within a second.
#[derive(Debug)]
#[must_use = "the thread ends when this is dropped"]
pub struct Maintenance {
    has_ended: Arc<AtomicBool>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

impl Upstreams {
    /// Checks the servers and resolves their names on a thread of its own, which a set without checks and names does not
    /// need. Waits until the names were resolved once, for `patience` at most.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn maintain_on_thread(&self, patience: Duration) -> io::Result<Maintenance> {
        let maintenance = Maintenance { has_ended: Arc::default() };
        if self.0.check.is_none() && !self.has_names() {
            return Ok(maintenance);
        }
        let (shared, has_ended) = (Arc::downgrade(&self.0), maintenance.has_ended.clone());
        let (resolved, is_resolved) = mpsc::channel();
        std::thread::Builder::new().name("tidegate-l4".into()).spawn(move || {
            let mut event_loop = match EventLoop::on(Backend::Epoll) {
                Ok(event_loop) => event_loop,
                Err(error) => {
                    tracing::error!(subsystem = "l4", %error, "upstreams are not checked");
                    return;
                }
            };
            let _ = event_loop.block_on(maintain(shared, has_ended, resolved));
        })?;
        // It ends with the last sender. A name that takes longer has no address at first.
        let _ = is_resolved.recv_timeout(patience);
        Ok(maintenance)
    }
}

/// Maintains a set until it ends. `resolved` is dropped once the first lookups have ended.
async fn maintain(shared: Weak<ServerSet>, has_ended: Arc<AtomicBool>, resolved: Sender<()>) {
    let mut rows: HashMap<u64, (u32, u32)> = HashMap::new();
    let mut check_at = task::now();
    let (lookups, mut resolved) = (LookupStates::default(), Some(resolved));
    while let Some(shared) = shared.upgrade().filter(|_| !has_ended.load(Relaxed)) {
        let (upstreams, now) = (Upstreams(shared), task::now());
        resolve_due(&upstreams, &lookups, resolved.take().as_ref());
        if let Some(check) = upstreams.0.check
            && check_at <= now
        {
            check_at = later(now, check.interval);
            check_all(&upstreams, check, &mut rows).await;
        }
        drop(upstreams);
        task::sleep(TICK).await;
    }
}

/// The state of the lookups of each server by its number.
type LookupStates = Rc<RefCell<HashMap<u64, LookupState>>>;

/// When a name is resolved again.
#[derive(Debug, Clone, Copy)]
struct LookupState {
    due: Instant,
    is_in_progress: bool,
    /// Lookups in a row that have failed, as a whole or in part.
    failures: u32,
    /// Since when a part of each lookup has failed.
    partial_since: Option<Instant>,
}

impl LookupState {
    const fn new(due: Instant) -> Self {
        Self { due, is_in_progress: false, failures: 0, partial_since: None }
    }
}

/// Begins to resolve the names that are due, each in a task of its own, so that one that is slow delays nothing. Each task has
/// a clone of `resolved`.
fn resolve_due(upstreams: &Upstreams, states: &LookupStates, resolved: Option<&Sender<()>>) {
    let (servers, now) = (upstreams.servers(), task::now());
    let names = || servers.iter().filter(|server| server.address.ip().is_none());
    let numbers: HashSet<_> = names().map(|server| server.number).collect();
    let mut known = states.borrow_mut();
    known.retain(|number, _| numbers.contains(number));
    for server in names() {
        let state = known.entry(server.number).or_insert(LookupState::new(now));
        if state.is_in_progress || state.due > now {
            continue;
        }
        state.is_in_progress = true;
        let lookup = server.address.look_up(&upstreams.0.resolver);
        let (set, server, states) = (Arc::downgrade(&upstreams.0), server.clone(), states.clone());
        let resolved = resolved.cloned();
        drop(task::spawn(async move {
            let found = task::spawn(lookup).await.unwrap_or_else(|error| Err(io::Error::other(error)));
            if let Some(set) = set.upgrade() {
                on_resolved(&Upstreams(set), &server, &states, found);
            }
            drop(resolved);
        }));
    }
}

/// A lookup has ended. A name that cannot be resolved keeps its addresses.
fn on_resolved(
    upstreams: &Upstreams,
    server: &ListedServer,
    states: &LookupStates,
    found: io::Result<ResolvedServers>,
) {
    let now = task::now();
    let mut state = states.borrow().get(&server.number).copied().unwrap_or(LookupState::new(now));
    state.is_in_progress = false;
    let interval = upstreams.0.resolve_interval;
    let (mut has_failed, mut ttl) = (true, None);
    match found {
        Ok(found) => {
            (has_failed, ttl) = (found.is_partial, found.ttl);
            state.partial_since = found.is_partial.then(|| state.partial_since.unwrap_or(now));
            let mut servers = found.servers;
            // A part that fails for long says nothing about the addresses that are known of it.
            if state.partial_since.is_some_and(|since| now < since + PARTIAL_TIME_MAX) {
                keep_known(upstreams, server, &mut servers);
            }
            servers.sort_unstable_by_key(|one| (one.priority, one.address));
            servers.dedup_by_key(|one| one.address);
            servers.truncate(ADDRESSES_MAX);
            upstreams.set_addresses(server.number, &servers);
        }
        Err(error) => tracing::warn!(subsystem = "l4", name = %server.address, %error, "upstream not resolved"),
    }
    // The part of a lookup that has succeeded has a TTL.
    let mut pause = ttl.map_or(interval, |ttl| ttl.max(LOOKUP_PAUSE_MIN).min(interval));
    if has_failed {
        pause = pause.min(Backoff::new(LOOKUP_PAUSE_MIN, interval).delay(state.failures));
        state.failures = state.failures.saturating_add(1);
    } else {
        state.failures = 0;
    }
    state.due = later(now, pause);
    states.borrow_mut().insert(server.number, state);
}

/// Adds the known addresses of the part of a lookup that failed: those of a family that has none now, or, of a service, all.
fn keep_known(upstreams: &Upstreams, server: &ListedServer, servers: &mut Vec<ResolvedServer>) {
    let families: Vec<bool> = servers.iter().map(|one| one.address.is_ipv6()).collect();
    for known in upstreams.known_of(server.number) {
        let is_left = server.address.is_service() || !families.contains(&known.address.is_ipv6());
        if is_left && !servers.iter().any(|one| one.address == known.address) {
            servers.push(known);
        }
    }
}

/// Connects to all servers at the same time.
async fn check_all(upstreams: &Upstreams, check: ConnectCheck, rows: &mut HashMap<u64, (u32, u32)>) {
    let members = upstreams.members();
    rows.retain(|id, _| members.iter().any(|member| member.id == *id));
    let checks: Vec<_> = members.iter().map(|member| task::spawn(accepts(member.address, check.timeout))).collect();
    for (member, checking) in members.iter().zip(checks) {
        let (successes, failures) = rows.entry(member.id).or_default();
        let result = checking.await.unwrap_or_else(|error| Err(error.to_string()));
        if result.is_ok() {
            (*successes, *failures) = (successes.saturating_add(1), 0);
        } else {
            (*successes, *failures) = (0, failures.saturating_add(1));
        }
        let is_down = match (*failures >= check.failures, *successes >= check.successes) {
            (true, _) => true,
            (false, true) => false,
            _ => continue,
        };
        if member.health.set_down(is_down, upstreams.millis(task::now())) {
            let (state, reason) = (if is_down { "down" } else { "up" }, result.err());
            tracing::warn!(subsystem = "l4", upstream = %member.address, state, reason, "upstream checked");
        }
    }
}

/// Whether a server accepts a connection, which is reset then: a server that waits for bytes sees no empty stream.
///
/// # Errors
/// It does not: the reason, for the log.
async fn accepts(address: SocketAddr, timeout: Duration) -> Result<(), String> {
    let channel = Client::at(address).connect_timeout(timeout).connect(Raw).await.map_err(|error| error.to_string())?;
    channel.abort();
    Ok(())
}

const TICK: Duration = Duration::from_millis(500);

/// A name with a shorter TTL is not resolved more often than that. After a failed lookup the first pause is as long, and
/// doubles with each further one, up to the interval.
const LOOKUP_PAUSE_MIN: Duration = Duration::from_secs(1);

/// How long addresses stay that only a part of a lookup would find, while that part fails.
const PARTIAL_TIME_MAX: Duration = Duration::from_secs(300);

/// How many addresses of one name are used.
const ADDRESSES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Mutex;

    use tidegate_engine::{Resolve, Resolving, ResolvingServers};
    use tidegate_testkit::network::Network;

    use super::*;
    use crate::UpstreamsBuilder;

    /// Knows each host but `slow.example`, whose lookup does not end.
    struct Slow;

    impl Resolve for Slow {
        fn resolve(&self, host: &str, port: u16) -> Resolving {
            match host {
                "slow.example" => Box::pin(pending()),
                _ => Box::pin(ready(Ok(vec![([10, 0, 0, 1], port).into()]))),
            }
        }
    }

    #[test]
    fn a_name_that_is_slow_delays_no_other_one() {
        let address = |text: &str| text.parse().expect("an address");
        let builder = Upstreams::builder().server(address("tcp://slow.example:1"), 1).resolver(Slow);
        let upstreams = builder.server(address("tcp://fast.example:2"), 1).build();
        let handle = upstreams.handle();
        let maintenance = upstreams.maintain_on_thread(Duration::ZERO).expect("a thread");
        let begun = Instant::now();
        let wait_for = |count: usize| {
            while upstreams.addresses().len() < count {
                assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", upstreams.addresses());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for(1);
        handle.add(address("tcp://new.example:3"), 1).expect("room");
        wait_for(2);
        drop(maintenance);
    }

    /// Notes when each lookup begins, and fails so many of them.
    #[derive(Clone)]
    struct Failing(Arc<Mutex<Vec<Instant>>>, usize);

    impl Resolve for Failing {
        fn resolve(&self, _: &str, port: u16) -> Resolving {
            let mut begun = self.0.lock().expect("no panic");
            begun.push(task::now());
            let found = if begun.len() > self.1 {
                Ok(vec![([10, 0, 0, 1], port).into()])
            } else {
                Err(io::Error::other("no answer"))
            };
            Box::pin(ready(found))
        }
    }

    #[test]
    fn a_name_whose_lookups_fail_is_resolved_again_after_growing_pauses() {
        let resolver = Failing(Arc::default(), 7);
        assert_eq!(addresses_after_150_seconds(resolver.clone()), 1);
        assert_eq!(pauses(&resolver.0), [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    /// Notes when each lookup begins, and finds an address with a TTL of six seconds in a part of it.
    #[derive(Clone)]
    struct Partial(Arc<Mutex<Vec<Instant>>>);

    impl Resolve for Partial {
        fn resolve(&self, _: &str, _: u16) -> Resolving {
            Box::pin(pending())
        }

        fn resolve_servers(&self, _: &str, port: u16) -> ResolvingServers {
            self.0.lock().expect("no panic").push(task::now());
            let servers = vec![ResolvedServer::from(SocketAddr::from(([10, 0, 0, 1], port)))];
            let ttl = Some(Duration::from_secs(6));
            Box::pin(ready(Ok(ResolvedServers { servers, ttl, is_partial: true })))
        }
    }

    #[test]
    fn a_name_of_which_a_part_fails_is_resolved_again_when_the_ttl_of_the_other_part_is_over() {
        let resolver = Partial(Arc::default());
        assert_eq!(addresses_after_150_seconds(resolver.clone()), 1);
        let pauses = pauses(&resolver.0);
        assert_eq!(pauses[..3], [1, 2, 4]);
        assert!(pauses.len() > 20 && pauses[3..].iter().all(|pause| *pause == 6), "{pauses:?}");
    }

    #[test]
    fn servers_with_the_longest_intervals_are_resolved_and_checked_once() {
        let resolver = Partial(Arc::default());
        let check = ConnectCheck { interval: Duration::MAX, ..ConnectCheck::default() };
        let upstreams = Upstreams::builder().resolve_interval(Duration::MAX).check(check);
        assert_eq!(addresses_of(upstreams, Whole(resolver.clone())), 1);
        assert_eq!(pauses(&resolver.0), []);
    }

    /// The same lookups, without a TTL.
    #[derive(Clone)]
    struct Whole(Partial);

    impl Resolve for Whole {
        fn resolve(&self, host: &str, port: u16) -> Resolving {
            self.0.resolve(host, port)
        }

        fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
            let found = self.0.resolve_servers(host, port);
            Box::pin(async move { Ok(ResolvedServers { ttl: None, is_partial: false, ..found.await? }) })
        }
    }

    /// The seconds between lookups.
    fn pauses(begun: &Mutex<Vec<Instant>>) -> Vec<u64> {
        let begun = begun.lock().expect("no panic");
        begun.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    /// How many addresses a name has that is maintained for so long.
    fn addresses_after_150_seconds(resolver: impl Resolve + Send + Sync) -> usize {
        addresses_of(Upstreams::builder(), resolver)
    }

    fn addresses_of(builder: UpstreamsBuilder, resolver: impl Resolve + Send + Sync) -> usize {
        let network = Network::new(1);
        let node = network.host("10.0.0.9").node();
        let server = "tcp://app.example:1".parse().expect("an address");
        let upstreams = builder.server(server, 1).resolver(resolver).build();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (resolved, _first) = mpsc::channel();
        let maintained = maintain(Arc::downgrade(&upstreams.0), has_ended.clone(), resolved);
        let test = node.spawn(async move {
            drop(task::spawn(maintained));
            task::sleep(Duration::from_secs(150)).await;
            has_ended.store(true, Relaxed);
            upstreams.addresses().len()
        });
        network.run_task(Duration::from_secs(3_600), test)
    }
}
