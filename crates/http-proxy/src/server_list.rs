//! `ServerList`: the URLs of a set of upstreams, and their addresses, both of which change while requests go on.
//!
//! An upstream that stays keeps its connections, its health and its counts. One that leaves gets no further request: its idle
//! connections close, and the requests that it has go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_engine::ResolvedServer;
use tidegate_sys::Address;

use super::upstreams::{Shared, Upstream, WEIGHT_MAX};
use super::url::{Place, UpstreamUrl};

/// A URL of a set.
#[derive(Debug)]
pub(super) struct UrlEntry {
    pub(super) url: UpstreamUrl,
    pub(super) weight: u32,
    /// Whether an address of the name could not be connected to since it was resolved.
    pub(super) wants_lookup: AtomicBool,
}

/// An address of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundServer {
    pub(super) address: Address,
    pub(super) priority: u16,
    pub(super) weight: u32,
}

#[derive(Debug, Default)]
pub(super) struct ServerList {
    state: Mutex<ListState>,
    /// Changes with the members.
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct ListState {
    urls: Arc<[Arc<UrlEntry>]>,
    members: Arc<[Arc<Upstream>]>,
}

/// The servers that were found for a URL.
pub(super) type Found = (Arc<UrlEntry>, Vec<FoundServer>);

impl UrlEntry {
    pub(super) fn new(url: UpstreamUrl, weight: u32) -> Arc<Self> {
        Arc::new(Self { url, weight, wants_lookup: AtomicBool::new(false) })
    }

    /// The servers of a name, or of a service, in a fixed order; at most [`ADDRESSES_MAX`].
    pub(super) fn servers(&self, mut found: Vec<ResolvedServer>) -> Vec<FoundServer> {
        found.sort_unstable_by_key(|server| (server.priority, server.address));
        let mut servers: Vec<FoundServer> = Vec::new();
        let weight_max = found.iter().map(|server| u32::from(server.weight)).max().unwrap_or_default();
        for server in found {
            let address = Address::from(server.address);
            if servers.len() >= ADDRESSES_MAX {
                break;
            }
            // A service may have the same address twice, for two priorities: the first one counts.
            if servers.iter().any(|known| known.address == address) {
                continue;
            }
            let weight = match self.url.place {
                Place::Service(_) if weight_max > WEIGHT_MAX => u32::from(server.weight) * WEIGHT_MAX / weight_max,
                Place::Service(_) => u32::from(server.weight),
                Place::Name(..) | Place::Address(_) => self.weight,
            };
            servers.push(FoundServer { address, priority: server.priority, weight: weight.max(1) });
        }
        servers
    }
}

impl ServerList {
    pub(super) fn urls(&self) -> Arc<[Arc<UrlEntry>]> {
        self.state().urls.clone()
    }

    pub(super) fn members(&self) -> Arc<[Arc<Upstream>]> {
        self.state().members.clone()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Changes the URLs, with the addresses that need no lookup. Names that stay keep their addresses.
    pub(super) fn change<T>(&self, set: &Shared, change: impl FnOnce(&mut Vec<Arc<UrlEntry>>) -> T) -> T {
        let mut state = self.state();
        let mut urls = state.urls.to_vec();
        let result = change(&mut urls);
        state.urls = urls.into();
        self.update(&mut state, set, &[]);
        result
    }

    /// Replaces the servers of some URLs. The others keep those that they have, and one that has left the set gets none.
    pub(super) fn set_servers(&self, set: &Shared, found: &[Found]) {
        self.update(&mut self.state(), set, found);
    }

    /// Adds the known servers of the part of a lookup that failed: the addresses of a family that has none now, or, of a
    /// service, all. At most [`ADDRESSES_MAX`] are left.
    pub(super) fn keep_known(&self, entry: &UrlEntry, servers: &mut Vec<FoundServer>) {
        let is_ipv6 = |address: &Address| address.ip().map(|address| address.is_ipv6());
        let families: Vec<_> = servers.iter().map(|server| is_ipv6(&server.address)).collect();
        for member in self.members().iter().filter(|member| member.is_of(&entry.url)) {
            let is_left = matches!(entry.url.place, Place::Service(_)) || !families.contains(&is_ipv6(&member.address));
            let is_known = servers.iter().any(|server| server.address == member.address);
            if is_left && !is_known && servers.len() < ADDRESSES_MAX {
                let (priority, weight) = (member.priority(), member.weight());
                servers.push(FoundServer { address: member.address.clone(), priority, weight });
            }
        }
    }

    /// Lists the members in the order of the URLs, so that those of a URL are next to each other.
    fn update(&self, state: &mut ListState, set: &Shared, found: &[Found]) {
        let (mut after, mut has_changed): (Vec<Arc<Upstream>>, bool) = (Vec::new(), false);
        for entry in &*state.urls {
            let of_url = state.members.iter().filter(|member| member.is_of(&entry.url));
            let fixed = entry.fixed();
            // A set may have the same URL twice, in two spellings: addresses found for one hold for both.
            let found = found.iter().find(|(of, _)| of.url.is_same(&entry.url)).map(|(_, servers)| servers);
            let Some(servers) = found.or(fixed.as_ref()) else {
                for member in of_url {
                    push_new(&mut after, member.clone());
                }
                continue;
            };
            for server in servers {
                let known = of_url.clone().find(|member| member.address == server.address);
                let member = known.cloned().unwrap_or_else(|| Arc::new(Upstream::new(&entry.url, server, set)));
                has_changed |= push_new(&mut after, member.clone()) && member.set_share(server);
            }
        }
        let members = &state.members;
        let is_same =
            after.len() == members.len() && after.iter().zip(&**members).all(|(one, other)| one.id == other.id);
        if !is_same || has_changed {
            state.members = after.into();
            self.generation.fetch_add(1, Ordering::Release);
            set.waiting.on_servers();
        }
    }

    fn state(&self) -> MutexGuard<'_, ListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UrlEntry {
    /// The server of an address, which needs no lookup.
    fn fixed(&self) -> Option<Vec<FoundServer>> {
        match &self.url.place {
            Place::Address(address) => {
                Some(vec![FoundServer { address: address.clone(), priority: 0, weight: self.weight }])
            }
            Place::Name(..) | Place::Service(_) => None,
        }
    }
}

/// Adds an upstream, unless it is there. A URL that a set has twice is one. Returns whether it was added.
fn push_new(members: &mut Vec<Arc<Upstream>>, member: Arc<Upstream>) -> bool {
    let is_new = !members.iter().any(|other| other.is_same(&member));
    if is_new {
        members.push(member);
    }
    is_new
}

/// How many addresses of one name are used.
pub(super) const ADDRESSES_MAX: usize = 64;

#[cfg(test)]
impl ServerList {
    /// Sets the addresses of URLs by their places.
    pub(super) fn set_addresses(&self, set: &Shared, found: &[(usize, Vec<Address>)]) {
        let urls = self.urls();
        let server = |address: &Address| FoundServer { address: address.clone(), priority: 0, weight: 1 };
        let servers =
            |(place, addresses): &(usize, Vec<Address>)| (urls[*place].clone(), addresses.iter().map(server).collect());
        self.set_servers(set, &found.iter().map(servers).collect::<Vec<_>>());
    }
}
