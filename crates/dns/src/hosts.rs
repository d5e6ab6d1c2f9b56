//! `Hosts`: the names and addresses of `/etc/hosts`, and the names that RFC 6761 keeps from the DNS.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::Name;

/// Names with their addresses.
///
/// ```
/// use tidegate::dns::Hosts;
///
/// let hosts = Hosts::parse(b"192.0.2.1 tides.example tides # a comment\n");
/// assert_eq!(hosts.addresses(&"TIDES".parse()?), Some(vec!["192.0.2.1".parse().unwrap()]));
/// assert!(hosts.addresses(&"localhost".parse()?).is_some());
/// assert!(hosts.addresses(&"gate.example".parse()?).is_none());
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    names: HashMap<Name, Vec<IpAddr>>,
    addresses: HashMap<IpAddr, Name>,
    /// Lines that were ignored because they are malformed.
    pub ignored: usize,
}

impl Hosts {
    /// Reads the content of a file; its first 4 MiB.
    #[must_use]
    pub fn parse(content: &[u8]) -> Self {
        let mut hosts = Self::default();
        let content = &content[..content.len().min(FILE_BYTES_MAX)];
        for line in content.split(|byte| *byte == b'\n') {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let Ok(line) = std::str::from_utf8(line) else {
                hosts.ignored += 1;
                continue;
            };
            let mut words = line.split_ascii_whitespace();
            let Some(address) = words.next() else { continue };
            // The scope of an address is local to a connection.
            let Ok(address) = address.split('%').next().unwrap_or_default().parse::<IpAddr>() else {
                hosts.ignored += 1;
                continue;
            };
            for word in words {
                let Ok(name) = word.parse::<Name>() else {
                    hosts.ignored += 1;
                    continue;
                };
                hosts.addresses.entry(address).or_insert_with(|| name.clone());
                let addresses = hosts.names.entry(name).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        hosts
    }

    /// The addresses of a name. `localhost` and the names below it have those of the loopback interface, unless the file has
    /// them (RFC 6761 §6.3).
    #[must_use]
    pub fn addresses(&self, name: &Name) -> Option<Vec<IpAddr>> {
        if let Some(addresses) = self.names.get(name) {
            return Some(addresses.clone());
        }
        let last = name.labels().last()?;
        last.eq_ignore_ascii_case(b"localhost")
            .then(|| vec![IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }

    /// The first name of an address.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<&Name> {
        self.addresses.get(&address)
    }
}

const FILE_BYTES_MAX: usize = 4 << 20;
