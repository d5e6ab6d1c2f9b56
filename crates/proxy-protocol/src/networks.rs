//! `Networks`: the networks whose headers are trusted, as prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A set of networks. The empty set trusts no peer.
///
/// ```
/// use tidegate::proxy_protocol::Networks;
///
/// let proxies: Networks = "10.1.0.0/16, 2001:db8::/32, 192.0.2.7, unix".parse()?;
/// assert!(proxies.contains(Some([10, 1, 2, 3].into())));
/// assert!(!proxies.contains(Some([10, 2, 2, 3].into())));
/// // A peer on a Unix socket has no IP address.
/// assert!(proxies.contains(None));
/// # Ok::<(), tidegate::proxy_protocol::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    prefixes: Vec<(u128, u8)>,
    unix: bool,
}

impl Networks {
    /// The machine itself: `127.0.0.0/8`, `::1`, and Unix sockets.
    #[must_use]
    pub fn local() -> Self {
        Self::default().and(Ipv4Addr::LOCALHOST.into(), 8).and(Ipv6Addr::LOCALHOST.into(), 128).and_unix()
    }

    /// One network more: the addresses whose first `prefix_bits` bits are those of `address`. More bits than an address
    /// has are all of them.
    #[must_use]
    pub fn and(mut self, address: IpAddr, prefix_bits: u8) -> Self {
        let bits = match address {
            IpAddr::V4(_) => MAPPED_BITS + prefix_bits.min(32),
            IpAddr::V6(_) => prefix_bits.min(128),
        };
        self.prefixes.push((mask(number(address), bits), bits));
        self
    }

    /// Unix sockets as well: the permissions of the socket's file decide which processes connect.
    #[must_use]
    pub fn and_unix(mut self) -> Self {
        self.unix = true;
        self
    }

    /// All networks of another set as well.
    #[must_use]
    pub fn and_all(mut self, other: &Self) -> Self {
        self.prefixes.extend_from_slice(&other.prefixes);
        self.unix |= other.unix;
        self
    }

    /// Whether a peer is in one of the networks. A peer without an address is on a Unix socket. An IPv6 address that
    /// maps an IPv4 address is that IPv4 address.
    #[must_use]
    pub fn contains(&self, peer: Option<IpAddr>) -> bool {
        let Some(address) = peer else { return self.unix };
        let number = number(address);
        self.prefixes.iter().any(|(prefix, bits)| mask(number, *bits) == *prefix)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && !self.unix
    }
}

/// All addresses as numbers of IPv6, those of IPv4 mapped.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(number: u128, bits: u8) -> u128 {
    number & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

/// The bits before an IPv4 address that is mapped to IPv6.
const MAPPED_BITS: u8 = 96;

impl FromStr for Networks {
    type Err = InvalidNetwork;

    /// Networks with commas between them, each as `ADDRESS`, `ADDRESS/BITS` or `unix`. Bits of an address behind its
    /// prefix have to be zero.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        text.split(',').map(str::trim).try_fold(Self::default(), |networks, part| {
            if part == "unix" {
                return Ok(networks.and_unix());
            }
            let (address, bits) = part.split_once('/').map_or((part, None), |(address, bits)| (address, Some(bits)));
            let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let is_number = |bits: &&str| !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = match bits {
                None => most,
                Some(bits) => Some(bits).filter(is_number).and_then(|bits| bits.parse().ok()).ok_or(InvalidNetwork)?,
            };
            let networks = networks.and(address, bits);
            let is_exact = networks.prefixes.last().is_some_and(|(prefix, _)| *prefix == number(address));
            if bits <= most && is_exact { Ok(networks) } else { Err(InvalidNetwork) }
        })
    }
}

/// A text that names no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidNetwork;

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network is ADDRESS, ADDRESS/BITS with zeros behind the prefix, or unix")
    }
}

impl std::error::Error for InvalidNetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(networks: &str, address: &str) -> bool {
        networks.parse::<Networks>().unwrap().contains(Some(address.parse().unwrap()))
    }

    #[test]
    fn a_prefix_contains_its_first_and_last_address_and_not_their_neighbours() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", ["10.1.0.0", "10.1.255.255"], ["10.0.255.255", "10.2.0.0"]),
            ("192.0.2.7", ["192.0.2.7", "::ffff:192.0.2.7"], ["192.0.2.6", "192.0.2.8"]),
            ("2001:db8::/33", ["2001:db8::", "2001:db8:7fff::ffff"], ["2001:db7:ffff::", "2001:db8:8000::"]),
            ("::1/128", ["::1", "::1"], ["::", "::2"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::1", "2001:db8::1"]),
        ] {
            assert_eq!(inside.map(|address| has(network, address)), [true; 2], "{network}");
            assert_eq!(outside.map(|address| has(network, address)), [false; 2], "{network}");
        }
        assert!(has("::/0", "10.0.0.1") && has("::/0", "2001:db8::1"), "everything");
    }

    #[test]
    fn the_empty_set_trusts_no_peer_and_local_trusts_the_machine() {
        assert!(!Networks::default().contains(None) && !Networks::default().contains(Some([127, 0, 0, 1].into())));
        let local = Networks::local();
        assert!(local.contains(None) && local.contains(Some([127, 9, 9, 9].into())));
        assert!(local.contains(Some(Ipv6Addr::LOCALHOST.into())) && !local.contains(Some([10, 0, 0, 1].into())));
    }

    #[test]
    fn a_text_that_names_no_network_is_refused() {
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "::/129", "10.0.0.0/+8", "10/8", "host", "1.2.3.4,"]
        {
            assert_eq!(text.parse::<Networks>(), Err(InvalidNetwork), "{text}");
        }
    }
}
