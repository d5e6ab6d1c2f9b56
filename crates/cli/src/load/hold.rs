//! Idle connections: a thread makes them before its load begins, and they do nothing while it lasts.
//!
//! They are made side by side, and each that could not be had ends what makes it: a server that has no room for one has
//! none for the next, and thousands are not waited for in vain.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use tidegate::task;

use super::connection::{Connector, Role};
use super::worker::{CONNECTING_MAX, Part, TICK, Worker, WorkerConfig};

/// Where the connections come from that are yet to be made.
type Sources = Rc<RefCell<VecDeque<Option<IpAddr>>>>;

/// Makes the idle connections of a thread: until all are there, or the server has none for us, or the user has enough.
pub(crate) async fn hold(worker: &Rc<Worker>, config: &WorkerConfig, part: Part) {
    let indices = part.idle_before..part.idle_before + part.idle;
    let sources = Rc::new(RefCell::new(indices.map(|index| source(&config.addresses, index)).collect()));
    let lanes: Vec<_> =
        (0..part.idle.min(CONNECTING_MAX)).map(|_| task::spawn(lane(worker.clone(), Rc::clone(&sources)))).collect();
    for mut lane in lanes {
        // None is cancelled, and one that panicked has held what it has held.
        while task::timeout(TICK, &mut lane).await.is_err() {
            if config.is_stopped() {
                return;
            }
        }
    }
}

/// Makes one connection after the other, until one comes to nothing.
async fn lane(worker: Rc<Worker>, sources: Sources) {
    loop {
        let next = sources.borrow_mut().pop_front();
        let Some(source) = next else { return };
        let mut client = worker.client.clone();
        if let Some(source) = source {
            client = client.local(SocketAddr::new(source, 0));
        }
        let connector = Rc::new(Connector::default());
        if worker.connect(&client, Role::Idle, connector.clone()).await {
            connector.pass().await;
        }
        if !connector.has_served.get() {
            return;
        }
    }
}

/// The address from which the idle connection of this number comes: on the way to a loopback address there are many, each
/// with ports of its own. It says nothing to addresses of IPv6, as which a name may be known as well.
fn source(addresses: &[SocketAddr], index: usize) -> Option<IpAddr> {
    let mut all = addresses.iter().filter_map(|address| match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let is_loopback = all.next()?.is_loopback() && all.all(|ip| ip.is_loopback());
    let last = u8::try_from(2 + index % SOURCES).unwrap_or(2);
    is_loopback.then(|| Ipv4Addr::new(127, 0, 0, last).into())
}

/// Addresses from which idle connections come.
const SOURCES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_to_a_loopback_address_come_from_many() {
        let of = |texts: &[&str], index| {
            let addresses: Vec<_> = texts.iter().map(|text| text.parse().expect("an address")).collect();
            source(&addresses, index).map(|ip| ip.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(&["127.0.0.1:80"], 0), some("127.0.0.2"));
        assert_eq!(of(&["127.0.0.1:80"], 21), some("127.0.0.3"));
        // As localhost may be known.
        assert_eq!(of(&["[::1]:80", "127.0.0.1:80"], 1), some("127.0.0.3"));
        for elsewhere in [&["[::1]:80"][..], &["10.0.0.1:80"], &["127.0.0.1:80", "10.0.0.1:80"]] {
            assert_eq!(of(elsewhere, 0), None, "{elsewhere:?}");
        }
    }
}
