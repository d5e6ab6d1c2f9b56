//! `UdpProxyRules`: which clients have UDP tunnels, to which targets, and bounds.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_engine::{IpNet, contains_address};

use super::nat64::{Nat64Prefix, embedded_v4, is_unknown_nat64};
use super::target::is_special;
use crate::client_address::ClientAddress;

/// Which clients have tunnels, to which targets, and bounds. Each default protects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpProxyRules {
    /// Networks whose clients have tunnels; those of this machine alone, unless set. An open proxy lets anyone send in its name,
    /// so a proxy that all networks may use needs authentication in front of its route.
    pub clients: Vec<IpNet>,
    /// Networks of targets that are permitted although they are not public, or of this machine. None, unless set: loopback
    /// addresses, private networks, link-local and multicast addresses are refused, and all addresses of this machine, as targets
    /// and as addresses of a name. It stops clients that reach services behind the proxy, or beside it past its firewall. Of an
    /// address of NAT64, 6to4, Teredo or ISATAP, the IPv4 addresses inside have to be permitted too.
    pub allow: Vec<IpNet>,
    /// Networks of targets that are refused, also where `allow` has them, such as the public addresses of the proxy's site.
    pub deny: Vec<IpNet>,
    /// Prefixes of NAT64 in the network of the proxy, beside `64:ff9b::/96`. None, unless set. Without its prefix, a translator
    /// takes clients past the rules for IPv4 addresses. Addresses of a prefix of local use (`64:ff9b:1::/48`, RFC 8215) that is not
    /// here are refused, also where `allow` has them.
    pub nat64: Vec<Nat64Prefix>,
    /// Ports of targets that are permitted; all, if there is none.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Tunnels at once, of all loops. 1,024, or an eighth of the descriptors of the process if that is less: each has a socket.
    pub tunnels_max: usize,
    /// Tunnels at once of a client's address, or of its network of 64 bits with IPv6. 64. It stops a client that takes all.
    pub tunnels_per_client_max: usize,
    /// How long a tunnel may be without a datagram in either direction. 2 minutes, the least that RFC 9298 §3.1 recommends.
    pub idle_timeout: Duration,
    /// How long the lookup of a target's name may take. 5 seconds.
    pub resolve_timeout: Duration,
    /// The longest datagram of a target in bytes; a longer one is dropped and counted. 9,216, a jumbo frame. A loop has memory for a
    /// batch of them.
    pub datagram_bytes_max: u16,
}

impl Default for UdpProxyRules {
    fn default() -> Self {
        let loopback = ["127.0.0.0/8", "::1/128"].iter().filter_map(|network| network.parse().ok());
        Self {
            clients: loopback.collect(),
            allow: Vec::new(),
            deny: Vec::new(),
            nat64: Vec::new(),
            ports: Vec::new(),
            tunnels_max: (tidegate_sys::memory::descriptors_max() / 8).clamp(1, 1_024),
            tunnels_per_client_max: 64,
            idle_timeout: Duration::from_secs(120),
            resolve_timeout: Duration::from_secs(5),
            datagram_bytes_max: 9_216,
        }
    }
}

impl UdpProxyRules {
    /// The address that a client counts for, if it may have tunnels. A client at a Unix socket is one of this machine.
    pub(super) fn client(&self, client: ClientAddress) -> Option<IpAddr> {
        let ip = match client {
            ClientAddress::Ip(ip) => ip.to_canonical(),
            ClientAddress::Unix => Ipv4Addr::LOCALHOST.into(),
            ClientAddress::Unknown => return None,
        };
        contains_address(&self.clients, ip).then(|| counted(ip))
    }

    pub(super) fn permits_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|range| range.contains(&port))
    }

    pub(super) fn permits_ip(&self, ip: IpAddr, is_own: &dyn Fn(IpAddr) -> bool) -> bool {
        let ip = ip.to_canonical();
        // A translator, or the router of a tunnel, sends to an address inside.
        let inner = embedded_v4(ip, &self.nat64);
        let is_translated = inner.iter().all(|inner| self.permits_ip(IpAddr::V4(*inner), is_own));
        let reaches_permitted = is_translated && !is_unknown_nat64(ip, &self.nat64);
        let is_public = || !is_special(ip) && !is_own(ip);
        reaches_permitted && !contains_address(&self.deny, ip) && (contains_address(&self.allow, ip) || is_public())
    }
}

/// The network of 64 bits of an IPv6 address: a client has all addresses of one.
fn counted(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn clients_of_this_machine_alone_have_tunnels_unless_networks_are_named() {
        let mut rules = UdpProxyRules::default();
        assert_eq!(rules.client(ClientAddress::Ip(ip("127.0.0.9"))), Some(ip("127.0.0.9")));
        assert_eq!(rules.client(ClientAddress::Unix), Some(ip("127.0.0.1")));
        assert_eq!(rules.client(ClientAddress::Ip(ip("192.0.2.1"))), None);
        rules.clients = vec!["::/0".parse().unwrap(), "0.0.0.0/0".parse().unwrap()];
        assert_eq!(rules.client(ClientAddress::Ip(ip("2001:db8::1:2:3:4"))), Some(ip("2001:db8::")));
        assert_eq!(rules.client(ClientAddress::Ip(ip("::ffff:192.0.2.1"))), Some(ip("192.0.2.1")));
        assert_eq!(rules.client(ClientAddress::Unknown), None);
    }

    #[test]
    fn a_denied_network_stays_denied_within_an_allowed_one() {
        let mut rules = UdpProxyRules::default();
        let permits = |rules: &UdpProxyRules, text: &str| rules.permits_ip(ip(text), &|_| false);
        assert!(!permits(&rules, "10.0.0.1") && permits(&rules, "1.1.1.1"));
        rules.allow = vec!["10.0.0.0/8".parse().unwrap()];
        rules.deny = vec!["10.1.0.0/16".parse().unwrap(), "1.1.1.1/32".parse().unwrap()];
        assert!(permits(&rules, "10.0.0.1") && permits(&rules, "::ffff:10.0.0.1"));
        assert!(!permits(&rules, "10.1.0.1") && !permits(&rules, "1.1.1.1"));
        assert!(rules.permits_port(53));
        rules.ports = vec![443..=443, 8000..=8100];
        assert!(rules.permits_port(8050) && !rules.permits_port(53));
    }

    #[test]
    fn an_address_of_this_machine_is_refused_unless_it_is_allowed() {
        let mut rules = UdpProxyRules::default();
        let is_own = |address: IpAddr| address == ip("1.1.1.1");
        assert!(!rules.permits_ip(ip("1.1.1.1"), &is_own) && rules.permits_ip(ip("1.0.0.1"), &is_own));
        assert!(!rules.permits_ip(ip("::ffff:1.1.1.1"), &is_own));
        rules.allow = vec!["1.1.1.1/32".parse().unwrap()];
        assert!(rules.permits_ip(ip("1.1.1.1"), &is_own));
    }

    #[test]
    fn a_gateway_reaches_no_ipv4_address_that_is_refused() {
        let networks = ["64:ff9b::/96", "2002::/16"].map(|network| network.parse().unwrap());
        let deny = vec!["1.1.1.1/32".parse().unwrap()];
        let rules = UdpProxyRules { allow: networks.to_vec(), deny, ..UdpProxyRules::default() };
        for (text, is_permitted) in [
            ("64:ff9b::1.0.0.1", true),
            ("64:ff9b::1.1.1.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b::169.254.169.254", false),
            ("2002:100:1::", true),
            ("2002:101:101::", false),
            ("2002:7f00:1::5", false),
        ] {
            assert_eq!(rules.permits_ip(ip(text), &|_| false), is_permitted, "{text}");
        }
    }

    #[test]
    fn translators_and_tunnels_reach_no_ipv4_address_that_is_refused() {
        let allow = ["64:ff9b:1::/48", "2001::/32", "::/96"].map(|network| network.parse().unwrap());
        let deny = vec!["1.1.1.1/32".parse().unwrap(), "::ffff:8.0.0.0/104".parse().unwrap()];
        let nat64 = ["64:ff9b:1:fffe::/96", "2600:64::/48"].map(|prefix| prefix.parse().unwrap());
        let rules = UdpProxyRules { allow: allow.to_vec(), deny, nat64: nat64.to_vec(), ..UdpProxyRules::default() };
        for (text, is_permitted) in [
            ("64:ff9b:1:fffe::1.0.0.1", true),
            ("64:ff9b:1:fffe::1.1.1.1", false),
            ("64:ff9b:1:fffe::8.8.8.8", false),
            ("64:ff9b:1:fffe::10.0.0.1", false),
            // The length of this prefix is unknown.
            ("64:ff9b:1::1.0.0.1", false),
            ("2600:64:0:100:0:100::", true),
            ("2600:64:0:a00:0:100::", false),
            ("2001:0:4136:e378:8000:63bf:fefe:fefe", false),
            ("2001:0:4136:e378:8000:63bf:fefe:fefd", true),
            ("2001:0:a00:1:8000:63bf:fefe:fefd", false),
            ("::1.0.0.1", true),
            ("::1.1.1.1", false),
            ("2600::5efe:1.1.1.1", false),
            ("2600::5efe:1.0.0.1", true),
            ("8.8.8.8", false),
        ] {
            assert_eq!(rules.permits_ip(ip(text), &|_| false), is_permitted, "{text}");
        }
    }
}
