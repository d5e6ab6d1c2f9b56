//! The key `connect-udp`: a proxy of UDP over HTTP (RFC 9298).

use std::ops::RangeInclusive;

use tidegate::IpNet;
use tidegate::http::{Nat64Prefix, UdpProxyRules};

use super::keys::{Key, Keys, Kind};

/// A UDP proxy: its clients, its targets, its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UdpProxyRule {
    pub(crate) rules: UdpProxyRules,
}

impl Keys for UdpProxyRule {
    const TITLE: &'static str = "connect-udp";
    const TEXT: &'static str = "A UDP proxy (CONNECT-UDP, RFC 9298). Unless keys permit more, its clients are those of this machine, and its \
         targets public addresses of other machines.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "clients",
            Kind::OneOrMore(&Kind::Text),
            "Networks whose clients have tunnels; others get a 403. A proxy for all networks needs authentication, such as `basic-auth`.",
            |to, value, reader| to.rules.clients = reader.networks(value),
        )
        .default("[\"127.0.0.0/8\", \"::1\"]"),
        Key::<Self>::new(
            "allow",
            Kind::OneOrMore(&Kind::Text),
            "Networks of targets that are permitted although they are private, or of this machine.",
            |to, value, reader| to.rules.allow = reader.networks(value),
        )
        .default("[]"),
        Key::<Self>::new(
            "deny",
            Kind::OneOrMore(&Kind::Text),
            "Networks of targets that are refused, also where `allow` has them.",
            |to, value, reader| to.rules.deny = reader.networks(value),
        )
        .default("[]"),
        Key::<Self>::new(
            "nat64",
            Kind::OneOrMore(&Kind::Text),
            "Prefixes of NAT64 in this network, such as `2001:db8:64::/96`, beside `64:ff9b::/96`: the IPv4 address in a target has to be permitted too.",
            |to, value, reader| {
                let prefixes = reader.parsed(value, "a prefix of NAT64, such as 2001:db8:64::/96", |text| text.parse().ok());
                to.rules.nat64 = prefixes.into_iter().map(|prefix| prefix.value).collect();
            },
        )
        .default("[]"),
        Key::<Self>::new(
            "ports",
            Kind::OneOrMore(&Kind::Text),
            "Ports of targets, such as `443` or `8000-8100`; all, unless set.",
            |to, value, reader| {
                for text in reader.texts(value) {
                    match parse_ports(&text.value) {
                        Some(ports) => to.rules.ports.push(ports),
                        None => reader.mistake(
                            text.place,
                            format!("`{}` is no port and no range of ports, such as 8000-8100", text.value.escape_debug()),
                        ),
                    }
                }
            },
        ),
        Key::<Self>::new(
            "tunnels",
            Kind::Integer { min: 1, max: 1_000_000 },
            "Tunnels at once; further ones get a 503. 1,024 unless set, or an eighth of the descriptors if that is less.",
            |to, value, reader| to.rules.tunnels_max = reader.count(value) as usize,
        ),
        Key::<Self>::new(
            "tunnels-per-client",
            Kind::Integer { min: 1, max: 1_000_000 },
            "Tunnels at once of one client address, or of its network of 64 bits with IPv6.",
            |to, value, reader| to.rules.tunnels_per_client_max = reader.count(value) as usize,
        )
        .default("64"),
        Key::<Self>::new(
            "idle-timeout",
            Kind::Seconds { min: 1, max: 86_400 },
            "Time without a datagram in either direction after which a tunnel ends.",
            |to, value, reader| to.rules.idle_timeout = reader.seconds(value),
        )
        .default("120"),
        Key::<Self>::new(
            "resolve-timeout",
            Kind::Seconds { min: 1, max: 60 },
            "Time that the lookup of a target's name may take; then the request gets a 504.",
            |to, value, reader| to.rules.resolve_timeout = reader.seconds(value),
        )
        .default("5"),
        Key::<Self>::new(
            "datagram-bytes",
            Kind::Integer { min: 512, max: 65_527 },
            "The longest datagram of a target; longer ones are dropped.",
            |to, value, reader| to.rules.datagram_bytes_max = reader.count(value) as u16,
        )
        .default("9216"),
    ];
}

impl UdpProxyRule {
    /// The rules of flags: networks beside the defaults.
    pub(crate) fn of_flags(clients: &[IpNet], allow: &[IpNet], deny: &[IpNet], nat64: &[Nat64Prefix]) -> Self {
        let mut rules = UdpProxyRules::default();
        rules.nat64 = nat64.to_vec();
        if !clients.is_empty() {
            rules.clients = clients.to_vec();
        }
        (rules.allow, rules.deny) = (allow.to_vec(), deny.to_vec());
        Self { rules }
    }

    /// Whether clients of all IPv4 or all IPv6 networks have tunnels.
    pub(crate) fn has_all_clients(&self) -> bool {
        has_all(&self.rules.clients)
    }
}

/// Whether networks together have all addresses of a family.
pub(super) fn has_all(networks: &[IpNet]) -> bool {
    IpNet::aggregate(&networks.to_vec()).iter().any(|network| network.prefix_len() == 0)
}

/// `443` or `8000-8100`.
fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::{has_all, parse_ports};

    #[test]
    fn networks_together_have_all_addresses_of_a_family() {
        for (networks, expected) in [
            (&["0.0.0.0/0"][..], true),
            (&["::/0", "10.0.0.0/8"], true),
            (&["0.0.0.0/1", "128.0.0.0/1"], true),
            (&["0.0.0.0/1", "10.0.0.0/8"], false),
            (&[], false),
        ] {
            let list: Vec<_> = networks.iter().map(|network| network.parse().expect(network)).collect();
            assert_eq!(has_all(&list), expected, "{networks:?}");
        }
    }

    #[test]
    fn ports_are_one_or_a_range() {
        for (text, expected) in [
            ("443", Some(443..=443)),
            ("8000-8100", Some(8000..=8100)),
            ("0", None),
            ("2-1", None),
            ("70000", None),
            ("1-", None),
            ("http", None),
        ] {
            assert_eq!(parse_ports(text), expected, "{text}");
        }
    }
}
