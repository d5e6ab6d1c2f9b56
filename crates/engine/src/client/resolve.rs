//! The system's resolver, which blocks; and the order of its addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::task::blocking::{Blocking, blocking};

/// The addresses of a name, in the order in which to try them; at least one. A name that is an IP address is not looked
/// up.
///
/// The outer result of the future is that of [`blocking`], the inner one that of the system's resolver.
pub(super) fn resolve(name: &str, port: u16) -> Blocking<io::Result<Vec<SocketAddr>>> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Blocking::done(Ok(Ok(vec![SocketAddr::new(address, port)])));
    }
    let name = name.to_owned();
    blocking(move || {
        let addresses: Vec<_> = (&*name, port).to_socket_addrs()?.collect();
        if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(interleave(addresses)) }
    })
}

/// RFC 8305 §4: the families take turns, beginning with that of the first address, so that a family that does not work
/// here costs one attempt and not all of its addresses. Within a family the order stays: it is the resolver's
/// preference.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let mut ordered = Vec::with_capacity(addresses.len());
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    while first.len() + second.len() > 0 {
        ordered.extend(first.next());
        ordered.extend(second.next());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use super::*;

    /// Each bit of `families` decides whether the address at that place is an IPv6 one. The port is the place.
    fn addresses(length: u16, families: u32) -> Vec<SocketAddr> {
        let family = |at| match families >> at & 1 {
            0 => IpAddr::from(Ipv4Addr::LOCALHOST),
            _ => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        (0..length).map(|at| SocketAddr::new(family(at), at)).collect()
    }

    fn of_family(addresses: &[SocketAddr], v6: bool) -> Vec<SocketAddr> {
        addresses.iter().copied().filter(|address| address.is_ipv6() == v6).collect()
    }

    #[test]
    fn interleaving_alternates_families_and_keeps_the_order_of_each() {
        for length in 0..=12 {
            for families in 0..1 << length {
                let given = addresses(length, families);
                let ordered = interleave(given.clone());
                // Together these assert that the result is a stable permutation.
                assert_eq!(ordered.len(), given.len());
                for v6 in [false, true] {
                    assert_eq!(of_family(&ordered, v6), of_family(&given, v6), "{given:?}");
                }
                assert_eq!(ordered.first(), given.first());
                let both_last = of_family(&given, false).len().min(of_family(&given, true).len());
                for pair in ordered[..2 * both_last].windows(2) {
                    assert_ne!(pair[0].is_ipv6(), pair[1].is_ipv6(), "{given:?}");
                }
            }
        }
    }

    #[test]
    fn a_name_is_looked_up_and_an_address_is_taken_as_it_is() {
        let found = wait(resolve("localhost", 80)).unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
        let cx = &mut Context::from_waker(Waker::noop());
        for literal in ["127.0.0.1", "::1"] {
            let Poll::Ready(Ok(Ok(found))) = Pin::new(&mut resolve(literal, 443)).poll(cx) else { panic!("{literal}") };
            assert_eq!(found, [SocketAddr::new(literal.parse().unwrap(), 443)]);
        }
    }

    #[test]
    fn an_invalid_name_is_an_error() {
        for name in ["", "nul\0", "two words"] {
            assert!(wait(resolve(name, 80)).is_err(), "{name:?}");
        }
    }

    fn wait(mut future: Blocking<io::Result<Vec<SocketAddr>>>) -> io::Result<Vec<SocketAddr>> {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => return result.expect("resolving does not panic"),
                Poll::Pending => assert!(Instant::now() < end, "the resolver does not answer"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
