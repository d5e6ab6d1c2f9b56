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
    /// Requests that were refused, for any reason.
    pub refused: u64,
    /// Of them, those of clients that the rules do not permit.
    pub refused_clients: u64,
    /// Those for targets that the rules do not permit.
    pub refused_targets: u64,
    /// Those beyond the bounds of tunnels.
    pub refused_full: u64,
    /// Those for names without an address.
    pub refused_names: u64,
    /// Those for targets without a way, or for which the system has no socket.
    pub refused_sockets: u64,
    /// Tunnels that ended because they were idle.
    pub expired: u64,
    /// Tunnels that ended because the network reported that the target cannot be reached.
    pub unreachable: u64,
    /// Datagrams of clients that were passed on.
    pub sent: u64,
    /// Datagrams of targets that were passed on.
    pub received: u64,
    /// Bytes of UDP payloads of clients that were passed on.
    pub sent_bytes: u64,
    /// Bytes of UDP payloads of targets that were passed on.
    pub received_bytes: u64,
    /// Datagrams that were dropped: of an unknown context, or too long for the way on.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct TunnelCounters {
    pub(super) begun: AtomicU64,
    pub(super) refused_clients: AtomicU64,
    pub(super) refused_targets: AtomicU64,
    pub(super) refused_full: AtomicU64,
    pub(super) refused_names: AtomicU64,
    pub(super) refused_sockets: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
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
    add(counter, 1);
}

pub(super) fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Relaxed);
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
        let [refused_clients, refused_targets, refused_full, refused_names, refused_sockets] = [
            &self.refused_clients,
            &self.refused_targets,
            &self.refused_full,
            &self.refused_names,
            &self.refused_sockets,
        ]
        .map(|counter| counter.load(Relaxed));
        UdpProxyCounts {
            tunnels,
            begun: self.begun.load(Relaxed),
            refused: refused_clients + refused_targets + refused_full + refused_names + refused_sockets,
            refused_clients,
            refused_targets,
            refused_full,
            refused_names,
            refused_sockets,
            expired: self.expired.load(Relaxed),
            unreachable: self.unreachable.load(Relaxed),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
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
