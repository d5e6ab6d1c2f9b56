//! `Networks`: a list of networks in which addresses are looked up.
//!
//! Sorted ranges that do not touch, one list for each family: a lookup is a binary search, so that a list of thousands
//! costs a few comparisons.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks, with the overlapping ones merged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks {
    /// First and last address of each range.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match (network.network().to_canonical(), network.broadcast().to_canonical()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((u32::from(first), u32::from(last))),
                // A network of IPv6 that contains all IPv4-mapped addresses is one of IPv6.
                _ => v6.push(bounds_v6(network)),
            }
        }
        Self { v4: merged(v4, |last| last.checked_add(1)), v6: merged(v6, |last| last.checked_add(1)) }
    }

    /// Whether one of the networks contains an address, which is not an IPv4-mapped one.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => is_in(&self.v4, u32::from(address)),
            IpAddr::V6(address) => is_in(&self.v6, u128::from(address)),
        }
    }
}

/// Whether one of the networks contains an address. An IPv6 address that maps an IPv4 one is that IPv4 address, and so is a network
/// of such addresses; a wider IPv6 network, as `::/0`, contains no IPv4 address.
///
/// ```
/// use tidegate::engine::{IpNet, contains_address};
///
/// let networks: [IpNet; 2] = ["10.0.0.0/8".parse()?, "::ffff:192.0.2.0/120".parse()?];
/// assert!(contains_address(&networks, "::ffff:10.0.0.1".parse()?));
/// assert!(contains_address(&networks, "192.0.2.7".parse()?));
/// assert!(!contains_address(&networks, "11.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn contains_address(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| match (network, address) {
        (IpNet::V6(network), IpAddr::V4(address)) => {
            network.prefix_len() >= MAPPED_BITS && network.contains(&address.to_ipv6_mapped())
        }
        _ => network.contains(&address),
    })
}

/// The bits before an IPv4 address that is mapped to IPv6.
const MAPPED_BITS: u8 = 96;

fn bounds_v6(network: &IpNet) -> (u128, u128) {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    };
    (number(network.network()), number(network.broadcast()))
}

/// The same ranges sorted, with those that overlap or touch as one.
fn merged<N: Ord + Copy>(mut ranges: Vec<(N, N)>, after: impl Fn(N) -> Option<N>) -> Vec<(N, N)> {
    ranges.sort_unstable();
    let mut merged: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if after(before.1).is_none_or(|next| first <= next) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn is_in<N: Ord + Copy>(ranges: &[(N, N)], address: N) -> bool {
    let behind = ranges.partition_point(|range| range.0 <= address);
    behind > 0 && address <= ranges[behind - 1].1
}

#[cfg(test)]
mod tests {
    use super::{Networks, contains_address};

    fn networks(list: &[&str]) -> Networks {
        Networks::new(&list.iter().map(|network| network.parse().expect("a network")).collect::<Vec<_>>())
    }

    fn contains(networks: &Networks, address: &str) -> bool {
        networks.contains(address.parse::<std::net::IpAddr>().expect("an address").to_canonical())
    }

    #[test]
    fn a_list_contains_the_addresses_of_its_networks_and_no_others() {
        let list = networks(&["10.1.0.0/16", "10.0.0.0/15", "192.0.2.7/32", "2001:db8::/32", "0.0.0.0/32"]);
        for address in ["10.0.0.0", "10.1.255.255", "192.0.2.7", "2001:db8::1", "2001:db8:ffff::", "0.0.0.0"] {
            assert!(contains(&list, address), "{address}");
        }
        for address in ["9.255.255.255", "10.2.0.0", "192.0.2.6", "192.0.2.8", "2001:db7::", "2001:db9::", "0.0.0.1"] {
            assert!(!contains(&list, address), "{address}");
        }
        assert_eq!(list.v4.len(), 3, "networks that overlap are one range");
        assert!(!contains(&Networks::default(), "10.0.0.1"));
    }

    #[test]
    fn networks_that_touch_are_one_range_up_to_the_last_address() {
        let list = networks(&["128.0.0.0/1", "0.0.0.0/1", "255.255.255.255/32"]);
        assert_eq!(list.v4, [(0, u32::MAX)]);
        assert!(contains(&list, "255.255.255.255"));
        assert!(!contains(&list, "::1"), "a network of IPv4 contains no address of IPv6");
    }

    #[test]
    fn a_mapped_network_is_one_of_ipv4_and_every_ipv6_address_is_none() {
        let mapped = networks(&["::ffff:10.0.0.0/104"]);
        assert!(contains(&mapped, "10.255.0.1") && contains(&mapped, "::ffff:10.0.0.1"));
        assert!(!contains(&mapped, "11.0.0.0"));
        let all = networks(&["::/0"]);
        assert!(contains(&all, "2001:db8::1"));
        assert!(!contains(&all, "::ffff:10.0.0.1"), "an IPv4-mapped address is an IPv4 address");
        for (network, address, expected) in [
            ("::ffff:10.0.0.0/104", "10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::/0", "10.0.0.1", false),
            ("::/0", "2001:db8::1", true),
            ("0.0.0.0/0", "::1", false),
        ] {
            let list = [network.parse().expect(network)];
            assert_eq!(contains_address(&list, address.parse().expect(address)), expected, "{network} {address}");
        }
    }
}
