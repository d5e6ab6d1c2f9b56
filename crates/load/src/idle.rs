//! Idle connections: a thread opens them before its load begins, and they stay idle while it lasts.
//!
//! Several lanes open them concurrently. A lane ends at its first failure: a server without room for one connection has
//! none for the next, and the load must not wait for thousands of timeouts.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use tidegate::task;

use super::connection::Connector;
use super::role::Role;
use super::worker::{CONNECTING_MAX, Part, TICK, Worker, WorkerConfig};

/// Source addresses of the connections that are yet to be opened.
type Sources = Rc<RefCell<VecDeque<Option<IpAddr>>>>;

/// Opens the idle connections of a thread: until all are open, or every lane has failed, or the load is stopped.
pub(crate) async fn open_all(worker: &Rc<Worker>, config: &WorkerConfig, part: Part) {
    let indices = part.idle_before..part.idle_before + part.idle;
    let sources = Rc::new(RefCell::new(indices.map(|index| source(&config.addresses, index)).collect()));
    let lanes: Vec<_> =
        (0..part.idle.min(CONNECTING_MAX)).map(|_| task::spawn(lane(worker.clone(), Rc::clone(&sources)))).collect();
    for mut lane in lanes {
        // No lane is cancelled, and a lane that panicked keeps the connections that it has opened.
        while task::timeout(TICK, &mut lane).await.is_err() {
            if config.is_stopped() {
                return;
            }
        }
    }
}

/// Opens one connection after the other, until one fails.
async fn lane(worker: Rc<Worker>, sources: Sources) {
    loop {
        let next = sources.borrow_mut().pop_front();
        let Some(source) = next else { return };
        let connector = Rc::new(Connector::default());
        if worker.connect(source, Role::Idle, connector.clone()).await {
            connector.pass().await;
        }
        if !connector.has_served.get() {
            return;
        }
    }
}

/// The source address of the idle connection with this index. To a loopback server there are many, each with its own
/// ports. IPv6 addresses of the server are ignored: a name such as `localhost` may have one too.
fn source(addresses: &[SocketAddr], index: usize) -> Option<IpAddr> {
    let mut all = addresses.iter().filter_map(|address| match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let is_loopback = all.next()?.is_loopback() && all.all(|ip| ip.is_loopback());
    let last = u8::try_from(2 + index % SOURCES).unwrap_or(2);
    is_loopback.then(|| Ipv4Addr::new(127, 0, 0, last).into())
}

/// The number of source addresses of idle connections.
const SOURCES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_to_loopback_use_many_source_addresses() {
        let of = |texts: &[&str], index| {
            let addresses: Vec<_> = texts.iter().map(|text| text.parse().expect("an address")).collect();
            source(&addresses, index).map(|ip| ip.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(&["127.0.0.1:80"], 0), some("127.0.0.2"));
        assert_eq!(of(&["127.0.0.1:80"], 21), some("127.0.0.3"));
        // As localhost may resolve.
        assert_eq!(of(&["[::1]:80", "127.0.0.1:80"], 1), some("127.0.0.3"));
        for elsewhere in [&["[::1]:80"][..], &["10.0.0.1:80"], &["127.0.0.1:80", "10.0.0.1:80"]] {
            assert_eq!(of(elsewhere, 0), None, "{elsewhere:?}");
        }
    }
}
