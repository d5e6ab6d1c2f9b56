//! `Names`: the names of upstreams, each of which is resolved by itself.
//!
//! A resolver that is slow, or never answers, holds up neither checks nor requests, and other names only if
//! [`LOOKUPS_MAX`] lookups never end. The upstream keeps the addresses that it has. A name has one lookup at a time, since a lookup of the system's resolver
//! occupies a thread until it has an answer.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_engine::task;
use tidegate_sys::Address;

use super::upstreams::{Shared, Upstreams};
use super::url::Place;
use crate::client::{Resolve, Resolving, SystemResolver};

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
    lookup: Option<Resolving>,
}

impl Names {
    /// Every name is due at `due`.
    pub(super) fn new(shared: &Shared, due: Instant) -> Self {
        let is_name = |place: &usize| matches!(shared.urls[*place].0.place, Place::Name(..));
        let places = (0..shared.urls.len()).filter(is_name);
        Self(places.map(|place| Name { place, due, lookup: None }).collect())
    }

    /// Begins the lookups that are due, and takes the results of those that are done. A name is due again after `again`,
    /// and never if that is `None`. Returns whether no lookup is in progress.
    pub(super) fn poll(&mut self, shared: &Shared, again: Option<Duration>, cx: &mut Context<'_>) -> bool {
        let now = task::now();
        let mut in_progress = self.0.iter().filter(|name| name.lookup.is_some()).count();
        for name in &mut self.0 {
            let Place::Name(host, port) = &shared.urls[name.place].0.place else { continue };
            if name.lookup.is_none() && name.due <= now && in_progress < LOOKUPS_MAX {
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
    /// Resolves all names, and waits for the results. An address that stays keeps its connections and what is known of it.
    /// A name that cannot be resolved keeps the addresses that it has.
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

/// Longer than a program runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
