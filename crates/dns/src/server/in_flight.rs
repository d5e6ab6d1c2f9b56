//! `InFlight`: the queries of one loop that wait for their responses, over datagrams and streams.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use super::limits::ServerLimits;

/// The places of the queries of a loop.
#[derive(Debug)]
pub(super) struct InFlight {
    max: usize,
    per_client_max: usize,
    taken: RefCell<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

impl InFlight {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        let (max, per_client_max) = (limits.in_flight_max, limits.in_flight_per_client_max);
        Self { max, per_client_max, taken: RefCell::default() }
    }

    /// Places that are taken.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.taken.borrow().all
    }

    /// Whether a query of this client may wait. A client of a Unix socket has no address, and its queries count with those
    /// of all clients alone.
    pub(super) fn has_room(&self, client: Option<IpAddr>) -> bool {
        let taken = self.taken.borrow();
        let of_client = client.and_then(|client| taken.by_client.get(&network(client)).copied()).unwrap_or(0);
        taken.all < self.max && of_client < self.per_client_max
    }
}

/// The client of an address: an IPv6 client has all addresses of its /64.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The place of a query in flight, given back when its task ends, whichever way it does.
#[derive(Debug)]
pub(super) struct Place {
    in_flight: Rc<InFlight>,
    client: Option<IpAddr>,
}

impl Place {
    pub(super) fn take(in_flight: &Rc<InFlight>, client: Option<IpAddr>) -> Self {
        let client = client.map(network);
        let mut taken = in_flight.taken.borrow_mut();
        taken.all += 1;
        if let Some(client) = client {
            *taken.by_client.entry(client).or_default() += 1;
        }
        drop(taken);
        Self { in_flight: in_flight.clone(), client }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.in_flight.taken.borrow_mut();
        taken.all -= 1;
        let Some(client) = self.client else { return };
        if let Some(count) = taken.by_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                taken.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_client() {
        let limits = ServerLimits { in_flight_per_client_max: 2, ..ServerLimits::default() };
        let in_flight = Rc::new(InFlight::new(&limits));
        let first = Place::take(&in_flight, client("2001:db8:0:1::1"));
        let second = Place::take(&in_flight, client("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert!(!in_flight.has_room(client("2001:db8:0:1::7")));
        assert!(in_flight.has_room(client("2001:db8:0:2::7")) && in_flight.has_room(client("192.0.2.1")));
        drop((first, second));
        assert!(in_flight.has_room(client("2001:db8:0:1::7")) && in_flight.taken.borrow().by_client.is_empty());
    }

    #[test]
    fn the_addresses_of_one_ipv4_network_are_clients_of_their_own() {
        let limits = ServerLimits { in_flight_max: 2, in_flight_per_client_max: 1, ..ServerLimits::default() };
        let in_flight = Rc::new(InFlight::new(&limits));
        let first = Place::take(&in_flight, client("192.0.2.1"));
        assert!(!in_flight.has_room(client("192.0.2.1")) && !in_flight.has_room(client("::ffff:192.0.2.1")));
        assert!(in_flight.has_room(client("192.0.2.2")) && in_flight.has_room(None));
        let local = Place::take(&in_flight, None);
        assert!(!in_flight.has_room(client("192.0.2.2")) && !in_flight.has_room(None));
        drop((first, local));
        assert_eq!(in_flight.taken.borrow().all, 0);
    }
}
