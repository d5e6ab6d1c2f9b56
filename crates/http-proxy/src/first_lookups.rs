//! The first addresses of a set, before a loop runs.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_codec::later;
use tidegate_engine::{Backend, EventLoop, ResolvedServer, task};

use super::server_list::UrlEntry;
use super::upstreams::Upstreams;
use super::url::Place;

impl Upstreams {
    /// Resolves names before a loop runs: by the process's default resolver, for `timeout` at most.
    pub(super) fn set_first_servers(&self, timeout: Duration) {
        let shared = &self.0;
        if !shared.resolver.is_default() || !self.has_names() {
            return;
        }
        if !shared.resolver.is_of_system() {
            return self.resolve_on_thread(timeout);
        }
        let urls = shared.servers.urls();
        let lookup = |(place, entry): (usize, &Arc<UrlEntry>)| match &entry.url.place {
            Place::Name(name, port) => Some((place, name.clone(), *port)),
            Place::Address(_) | Place::Service(_) => None,
        };
        let names = urls.iter().enumerate().filter_map(lookup).collect();
        let resolve = |name: &str, port: u16| (name, port).to_socket_addrs().map(Iterator::collect);
        let servers = |(place, found): (usize, Vec<SocketAddr>)| {
            let found = found.into_iter().map(ResolvedServer::from).collect();
            (urls[place].clone(), urls[place].servers(found))
        };
        let found: Vec<_> = first_addresses(names, timeout, resolve).into_iter().map(servers).collect();
        shared.servers.set_servers(shared, &found);
    }

    /// Resolves all names on a loop of its own, and waits for it: this thread may have one, which must not be blocked by itself.
    fn resolve_on_thread(&self, timeout: Duration) {
        let upstreams = self.clone();
        let resolving = thread::Builder::new().name("tidegate-names".into()).spawn(move || {
            let resolving = async move { task::timeout(timeout, upstreams.resolve()).await.is_ok() };
            EventLoop::on(Backend::Epoll)
                .map_err(io::Error::other)
                .and_then(|mut event_loop| event_loop.block_on(resolving))
        });
        let error = match resolving.map(thread::JoinHandle::join) {
            Ok(Ok(Ok(true))) => return,
            Ok(Ok(Ok(false))) => "no answer in time".to_owned(),
            Ok(Ok(Err(error))) | Err(error) => error.to_string(),
            Ok(Err(_)) => "its thread panicked".to_owned(),
        };
        tracing::warn!(subsystem = "proxy", %error, "upstreams not resolved");
    }
}

/// A host and a port to resolve for a URL of a set, by its place.
pub(super) type NameLookup = (usize, String, u16);

/// Resolves names beside each other by a function that blocks, on threads of their own, and returns the results that
/// there are after `timeout`. The thread of a lookup that takes longer ends with it, and its result is dropped.
pub(super) fn first_addresses(
    names: Vec<NameLookup>,
    timeout: Duration,
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Clone + Send + 'static,
) -> Vec<(usize, Vec<SocketAddr>)> {
    let deadline = later(Instant::now(), timeout);
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
        match result {
            Ok(addresses) => found.push((place, addresses)),
            Err(error) => tracing::warn!(subsystem = "proxy", name = host, %error, "upstream not resolved"),
        }
    }
    // Those that have not begun never do.
    left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
    for (_, name) in missing {
        tracing::warn!(subsystem = "proxy", %name, error = "no answer in time", "upstream not resolved");
    }
    found
}

fn next_of(left: &Mutex<impl Iterator<Item = NameLookup>>) -> Option<NameLookup> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// How many names are resolved at the same time when a set is made.
const FIRST_LOOKUPS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn wanted(count: usize) -> Vec<NameLookup> {
        (0..count).map(|place| (place, format!("host-{place}.test"), 80)).collect()
    }

    fn places(found: Vec<(usize, Vec<SocketAddr>)>) -> Vec<usize> {
        let mut places: Vec<_> = found.into_iter().map(|(place, _)| place).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn names_are_resolved_beside_each_other() {
        // No lookup ends before the last has begun.
        let barrier = Arc::new(Barrier::new(FIRST_LOOKUPS_MAX));
        let found = first_addresses(wanted(FIRST_LOOKUPS_MAX), Duration::MAX, move |_, port| {
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
