//! IPv4 addresses within IPv6 addresses: a translator or a tunnel sends packets for such an address to the IPv4 one.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A prefix of NAT64 (RFC 6052 §2.2), of 32, 40, 48, 56, 64 or 96 bits: a translator sends packets for its addresses to the IPv4
/// address that follows the prefix.
///
/// ```
/// use tidegate::http::Nat64Prefix;
///
/// let prefix: Nat64Prefix = "2001:db8:64::/96".parse()?;
/// assert_eq!(prefix.embedded("2001:db8:64::192.0.2.1".parse()?), Some([192, 0, 2, 1].into()));
/// assert_eq!(prefix.embedded("2001:db8:65::192.0.2.1".parse()?), None);
/// assert!("2001:db8:64::/95".parse::<Nat64Prefix>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix {
    prefix: Ipv6Addr,
    bits: u8,
}

/// The text is no prefix of NAT64, such as `2001:db8:64::/96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidNat64Prefix;

impl Nat64Prefix {
    /// `64:ff9b::/96`, of all networks (RFC 6052 §2.1).
    pub const WELL_KNOWN: Self = Self { prefix: Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), bits: 96 };

    /// The IPv4 address within an address that has this prefix. Behind a prefix of less than 96 bits, the bits 64 to 71 are no
    /// part of it.
    #[must_use]
    pub fn embedded(self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        if mask(ip, self.bits) != self.prefix.to_bits() {
            return None;
        }
        let octets = ip.octets();
        let mut inner = [0; 4];
        let behind =
            (usize::from(self.bits / 8)..octets.len()).filter(|&place| place != RESERVED_OCTET || self.bits == 96);
        for (to, place) in inner.iter_mut().zip(behind) {
            *to = octets[place];
        }
        Some(inner.into())
    }
}

impl FromStr for Nat64Prefix {
    type Err = InvalidNat64Prefix;

    /// `ADDRESS/BITS`, where the bits behind the prefix are zero.
    fn from_str(text: &str) -> Result<Self, InvalidNat64Prefix> {
        let (prefix, bits) = text.split_once('/').ok_or(InvalidNat64Prefix)?;
        let prefix: Ipv6Addr = prefix.parse().map_err(|_| InvalidNat64Prefix)?;
        let bits = PREFIX_BITS.into_iter().find(|known| known.to_string() == bits).ok_or(InvalidNat64Prefix)?;
        if mask(prefix, bits) == prefix.to_bits() { Ok(Self { prefix, bits }) } else { Err(InvalidNat64Prefix) }
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.bits)
    }
}

impl fmt::Display for InvalidNat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix of NAT64 is an IPv6 network of 32, 40, 48, 56, 64 or 96 bits")
    }
}

impl Error for InvalidNat64Prefix {}

/// The IPv4 addresses to which packets for an IPv6 address may be sent: by NAT64 with one of these prefixes or the well-known one
/// (RFC 6052), by 6to4 (RFC 3056), by Teredo through the server and to the client (RFC 4380), by ISATAP (RFC 5214), as an
/// IPv4-compatible address (RFC 4291 §2.5.5.1) or a translated one (RFC 2765). Mapped addresses are IPv4 addresses already.
pub(super) fn embedded_v4(ip: IpAddr, nat64: &[Nat64Prefix]) -> Vec<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return Vec::new() };
    let mut inner: Vec<_> =
        nat64.iter().chain(&[Nat64Prefix::WELL_KNOWN]).filter_map(|prefix| prefix.embedded(ip)).collect();
    let bits = ip.to_bits();
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    match ip.segments() {
        [0x2002, ..] => inner.push(at(80)),
        // The bits of the client's address are inverted.
        [0x2001, 0, ..] => inner.extend([at(64), Ipv4Addr::from_bits(!bits as u32)]),
        [0, 0, 0, 0, 0xffff, 0, ..] => inner.push(at(0)),
        // `::` and `::1` are no IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => inner.push(at(0)),
        _ => {}
    }
    if let [_, _, _, _, 0 | 0x200, 0x5efe, ..] = ip.segments() {
        inner.push(at(0));
    }
    inner
}

/// Whether an address has a NAT64 prefix of local use (RFC 8215) that is none of these, so that the length of the prefix, and with
/// it the IPv4 address inside, is unknown.
pub(super) fn is_unknown_nat64(ip: IpAddr, nat64: &[Nat64Prefix]) -> bool {
    let IpAddr::V6(ip) = ip else { return false };
    matches!(ip.segments(), [0x64, 0xff9b, 1, ..]) && nat64.iter().all(|prefix| prefix.embedded(ip).is_none())
}

fn mask(ip: Ipv6Addr, bits: u8) -> u128 {
    ip.to_bits() & (u128::MAX << (128 - u32::from(bits)))
}

/// The lengths of prefixes (RFC 6052 §2.2).
const PREFIX_BITS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// The bits 64 to 71 are zero in addresses whose prefix is shorter than 96 bits.
const RESERVED_OCTET: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Nat64Prefix {
        text.parse().expect(text)
    }

    /// The table of RFC 6052 §2.4.
    #[test]
    fn the_ipv4_address_follows_the_prefix() {
        for (network, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let inner = prefix(network).embedded(address.parse().expect(address));
            assert_eq!(inner, Some([192, 0, 2, 33].into()), "{address}");
            assert_eq!(prefix(network).embedded("2600::1".parse().expect("an address")), None);
            assert_eq!(prefix(network).to_string(), network);
        }
        assert_eq!(prefix("64:ff9b::/96"), Nat64Prefix::WELL_KNOWN);
        for text in ["", "64:ff9b::", "64:ff9b::/97", "64:ff9b::/0", "64:ff9b::1/96", "10.0.0.0/32", "64:ff9b::/+96"] {
            assert_eq!(text.parse::<Nat64Prefix>(), Err(InvalidNat64Prefix), "{text}");
        }
    }

    #[test]
    fn tunnels_and_translators_have_an_ipv4_address_inside() {
        let of = |text: &str| embedded_v4(text.parse().expect(text), &[prefix("2600:64::/96")]);
        for (text, inner) in [
            ("64:ff9b::10.0.0.1", vec![[10, 0, 0, 1]]),
            ("2600:64::10.0.0.1", vec![[10, 0, 0, 1]]),
            ("2002:a00:1::5", vec![[10, 0, 0, 1]]),
            // RFC 4380 §4: the server, and the client.
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", vec![[65, 54, 227, 120], [192, 0, 2, 45]]),
            ("2600::5efe:10.0.0.1", vec![[10, 0, 0, 1]]),
            ("2600::200:5efe:10.0.0.1", vec![[10, 0, 0, 1]]),
            ("::10.0.0.1", vec![[10, 0, 0, 1]]),
            ("::ffff:0:10.0.0.1", vec![[10, 0, 0, 1]]),
            ("::", vec![]),
            ("::1", vec![]),
            ("2600::1", vec![]),
            ("10.0.0.1", vec![]),
        ] {
            let expected: Vec<Ipv4Addr> = inner.into_iter().map(Ipv4Addr::from).collect();
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
