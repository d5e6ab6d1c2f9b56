//! The target of a UDP tunnel, and the addresses that are none of the public network.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The host and the port that a client wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UdpTarget {
    pub(super) host: TargetHost,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetHost {
    Ip(IpAddr),
    Name(Box<str>),
}

impl UdpTarget {
    /// The values of the template (RFC 9298 §2), percent-decoded: an address without brackets and without a zone, or a name;
    /// a port from 1 to 65,535. `None` for others.
    pub(super) fn parse(host: &str, port: &str) -> Option<Self> {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|&port| is_number && port > 0)?;
        let host = match host.parse() {
            Ok(ip) => TargetHost::Ip(ip),
            Err(_) if is_name(host) => TargetHost::Name(host.into()),
            Err(_) => return None,
        };
        Some(Self { host, port })
    }
}

fn is_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A last label of digits alone is a mistyped address, which some resolvers read as one.
    let last = labels.rsplit('.').next().unwrap_or_default();
    labels.len() <= 253 && labels.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an address is none of a host in the public network: of this machine, of a private network, of several hosts, or
/// with an IPv4 address inside that a gateway would send to (RFC 6890).
pub(super) fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => SPECIAL_V4.iter().any(|(network, bits)| is_within(ip, *network, *bits)),
        IpAddr::V6(ip) => is_special_v6(ip),
    }
}

/// Whether this machine has the address: the kernel binds sockets to its own addresses alone. Packets to a public one stay inside,
/// and reach services that a firewall hides.
pub(super) fn is_own(ip: IpAddr) -> bool {
    let (any, elsewhere): (IpAddr, IpAddr) = match ip {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    };
    let binds = |ip: IpAddr| match UdpSocket::bind((ip, 0)) {
        Ok(_) => true,
        // Without a descriptor, for example, the address counts as an own one.
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    };
    if !binds(ip) {
        return false;
    }
    // With `ip_nonlocal_bind` the kernel binds to any address; the way to an own one begins at itself.
    let begins_there = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, DISCARD_PORT))?;
        Ok::<_, std::io::Error>(socket.local_addr()?.ip() == ip)
    };
    !binds(elsewhere) || begins_there().unwrap_or(false)
}

fn is_within(ip: Ipv4Addr, network: [u8; 4], bits: u32) -> bool {
    (ip.to_bits() ^ Ipv4Addr::from(network).to_bits()) >> (32 - bits) == 0
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    let [first, second, third, ..] = ip.segments();
    let is_global = first & 0xe000 == 0x2000;
    // IETF protocols with Teredo, documentation, 6to4.
    let is_reserved =
        first == 0x2001 && (second < 0x200 || second == 0xdb8) || first == 0x3fff && second < 0x1000 || first == 0x2002;
    // AS112, which answers queries for private networks.
    let is_as112 = first == 0x2620 && second == 0x4f && third == 0x8000;
    !is_global || is_reserved || is_as112
}

/// Networks of IANA's registry of special-purpose addresses, multicast, and reserved ones.
const SPECIAL_V4: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// No datagram is sent to it.
const DISCARD_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        for (ip, expected) in [("127.0.0.1", true), ("127.9.9.9", true), ("192.0.2.1", false), ("1.1.1.1", false)] {
            assert_eq!(is_own(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn a_target_is_an_address_or_a_name_and_a_port() {
        for (host, port, expected) in [
            ("192.0.2.6", "443", Some(TargetHost::Ip("192.0.2.6".parse().unwrap()))),
            ("2001:db8::42", "1", Some(TargetHost::Ip("2001:db8::42".parse().unwrap()))),
            ("target.example.org", "65535", Some(TargetHost::Name("target.example.org".into()))),
            ("a_b.example.", "53", Some(TargetHost::Name("a_b.example.".into()))),
            ("[2001:db8::42]", "443", None),
            ("fe80::1%eth0", "443", None),
            ("", "443", None),
            (".", "443", None),
            ("a..b", "443", None),
            ("*", "443", None),
            ("127.1", "443", None),
            ("2130706433", "443", None),
            ("a/b", "443", None),
            ("a b", "443", None),
            ("sea.example", "0", None),
            ("sea.example", "65536", None),
            ("sea.example", "+1", None),
            ("sea.example", "", None),
            ("sea.example", "4a", None),
        ] {
            assert_eq!(UdpTarget::parse(host, port).map(|target| target.host), expected, "{host} {port}");
        }
        let long = ["a".repeat(63).as_str(); 5].join(".");
        assert_eq!(UdpTarget::parse(&long, "1"), None);
    }

    #[test]
    fn addresses_outside_of_the_public_network_are_special() {
        for ip in [
            "0.0.0.0",
            "10.255.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.251",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::fb",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "3fff::1",
            "2620:4f:8000::1",
        ] {
            assert!(is_special(ip.parse().expect(ip)), "{ip}");
        }
        for ip in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2001:4860::8888",
            "::ffff:1.1.1.1",
            "3ffe::1",
        ] {
            assert!(!is_special(ip.parse().expect(ip)), "{ip}");
        }
    }
}
