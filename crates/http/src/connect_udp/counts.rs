//! The numbers of a UDP proxy, and the places of its tunnels.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::rules::UdpProxyRules;

/// Numbers since the start of a UDP proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UdpProxyCounts {
    /// Tunnels that are open.
    pub tunnels: u64,
    /// Tunnels that were opened.
    pub begun: u64,
    /// Requests that were refused: by the rules, by a bound, or since the target has no address.
    pub refused: u64,
    /// Tunnels that ended because they were idle.
    pub expired: u64,
    /// Tunnels that ended because the network reported that the target cannot be reached.
    pub unreachable: u64,
    /// Datagrams of clients that were passed on.
    pub sent: u64,
    /// Datagrams of targets that were passed on.
    pub received: u64,
    /// Datagrams that were dropped: of an unknown context, or too long for the way on.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct TunnelCounters {
    pub(super) begun: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) dropped: AtomicU64,
    open: Mutex<OpenTunnels>,
}

/// The tunnels that are open.
#[derive(Debug, Default)]
struct OpenTunnels {
    all: usize,
    /// Those of each client.
    clients: HashMap<IpAddr, usize>,
}

/// The place of a tunnel among those that are open. Dropping it releases the place.
#[derive(Debug)]
pub(super) struct TunnelPlace {
    counters: Arc<TunnelCounters>,
    client: IpAddr,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl TunnelCounters {
    /// A place for a tunnel of this client, if there is one.
    pub(super) fn place(self: &Arc<Self>, client: IpAddr, rules: &UdpProxyRules) -> Option<TunnelPlace> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = open.clients.get(&client).copied().unwrap_or(0);
        if open.all >= rules.tunnels_max || of_client >= rules.tunnels_per_client_max {
            return None;
        }
        open.all += 1;
        open.clients.insert(client, of_client + 1);
        Some(TunnelPlace { counters: self.clone(), client })
    }

    pub(super) fn counts(&self) -> UdpProxyCounts {
        let tunnels = self.open.lock().unwrap_or_else(PoisonError::into_inner).all as u64;
        UdpProxyCounts {
            tunnels,
            begun: self.begun.load(Relaxed),
            refused: self.refused.load(Relaxed),
            expired: self.expired.load(Relaxed),
            unreachable: self.unreachable.load(Relaxed),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }
}

impl TunnelPlace {
    pub(super) fn counters(&self) -> &TunnelCounters {
        &self.counters
    }
}

impl Drop for TunnelPlace {
    fn drop(&mut self) {
        let mut open = self.counters.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(of_client) = open.clients.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                open.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_bounds_and_come_back() {
        let counters = Arc::<TunnelCounters>::default();
        let rules = UdpProxyRules { tunnels_max: 3, tunnels_per_client_max: 2, ..UdpProxyRules::default() };
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect("an address"));
        let places = [counters.place(one, &rules), counters.place(one, &rules)];
        assert!(places.iter().all(Option::is_some) && counters.place(one, &rules).is_none());
        let third = counters.place(other, &rules);
        assert!(third.is_some() && counters.place(other, &rules).is_none());
        drop(places);
        assert_eq!((counters.counts().tunnels, counters.open.lock().expect("a lock").clients.len()), (1, 1));
        assert!(counters.place(one, &rules).is_some());
    }
}
