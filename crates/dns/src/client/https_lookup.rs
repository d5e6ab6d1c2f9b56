//! HTTPS records (RFC 9460): the endpoints of an `https` origin.

use std::net::IpAddr;
use std::time::Duration;

use tidegate_engine::{HttpsEndpoint, HttpsEndpoints};

use super::StubResolver;
use super::host_lookup::{is_of_no_server, ttl_of};
use crate::name::Name;
use crate::numbers::RecordType;
use crate::record_data::{RecordData, Svcb};
use crate::resolver::{Answer, LookupError};

impl StubResolver {
    /// The endpoints of an `https` origin by its HTTPS records, in the order of preference: those of aliases too, eight at most in
    /// a row. None for an address, for a name of the hosts file, and if the aliases are too many. Records that need a parameter
    /// that this crate does not know are passed over (RFC 9460 §8). The name is taken without the search list.
    ///
    /// # Errors
    /// [`LookupError`].
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn https_endpoints(&self, host: &str, port: u16) -> Result<HttpsEndpoints, LookupError> {
        let mut found = HttpsEndpoints::default();
        let origin: Name = host.parse()?;
        let is_elsewhere = self.shared.hosts.addresses(&origin).is_some() || is_of_no_server(&origin);
        if is_elsewhere || host.parse::<IpAddr>().is_ok() {
            return Ok(found);
        }
        let mut name =
            if port == HTTPS_PORT { origin } else { format!("_{port}._https").parse::<Name>()?.join(&origin)? };
        let mut is_alias = false;
        for _ in 0..=ALIASES_MAX {
            let answer = self.lookup(&name, RecordType::HTTPS).await?;
            found.ttl = found.ttl.into_iter().chain(ttl_of(&answer)).min();
            let owner = answer.canonical_name(&name);
            // An alias among the records comes before all others (RFC 9460 §2.4.1).
            let alias = records(&answer).find(|record| record.priority == 0).map(|record| record.target.to_name());
            match alias {
                // There is no such service.
                Some(target) if target.is_root() => return Ok(found),
                Some(target) => (name, is_alias) = (target, true),
                None => {
                    found.endpoints = services(&answer, &owner, port);
                    if is_alias && records(&answer).next().is_none() {
                        // The host at the end of the aliases, with the usual parameters (RFC 9460 §2.4.2).
                        found.endpoints.push(HttpsEndpoint { host: host_of(&owner), port, alpn: Vec::new() });
                    }
                    return Ok(found);
                }
            }
        }
        Ok(HttpsEndpoints { ttl: found.ttl.or(Some(Duration::ZERO)), ..HttpsEndpoints::default() })
    }
}

fn records(answer: &Answer) -> impl Iterator<Item = Svcb<'_>> {
    answer.records.iter().filter_map(|record| match record.data.view() {
        RecordData::Svcb(service) => Some(service),
        _ => None,
    })
}

/// The endpoints of the records that this crate understands.
fn services(answer: &Answer, owner: &Name, port: u16) -> Vec<HttpsEndpoint> {
    let mut services: Vec<_> = records(answer).filter(is_usable).collect();
    services.sort_by_key(|service| service.priority);
    services.truncate(ENDPOINTS_MAX);
    let endpoint = |service: &Svcb<'_>| {
        let default = (!service.has_no_default_alpn()).then_some(&b"http/1.1"[..]);
        let mut alpn: Vec<Box<[u8]>> = service.alpn().map(Box::from).collect();
        if let Some(default) = default.filter(|default| !alpn.iter().any(|known| **known == **default)) {
            alpn.push(default.into());
        }
        let target = if service.target.is_root() { owner.clone() } else { service.target.to_name() };
        HttpsEndpoint { host: host_of(&target), port: service.port().unwrap_or(port), alpn }
    };
    services.iter().map(endpoint).collect()
}

/// Whether a record says nothing that this crate does not know, and does not contradict itself (RFC 9460 §2.4.3, §7.1.1, §8).
fn is_usable(service: &Svcb<'_>) -> bool {
    let has = |key: &[u8]| service.params().any(|(found, _)| found.to_be_bytes() == key);
    let is_known =
        |key: &[u8]| matches!(*key, [0, low] if (ALPN..=IPV6_HINT).contains(&low.into()) && low != ECH as u8);
    let mandatory = service.params().find_map(|(key, value)| (key == MANDATORY).then_some(value)).unwrap_or_default();
    service.port() != Some(0)
        && (!service.has_no_default_alpn() || service.alpn().next().is_some())
        && mandatory.chunks(2).all(|key| is_known(key) && has(key))
}

/// A host for a resolver: with the dot at its end, so that no search list completes it, and without the random cases of a
/// query.
fn host_of(name: &Name) -> Box<str> {
    name.to_string().to_ascii_lowercase().into()
}

const HTTPS_PORT: u16 = 443;

/// Aliases in a row (RFC 9460 §2.4.2 asks for a limit).
const ALIASES_MAX: usize = 8;
/// Records of one name that count.
const ENDPOINTS_MAX: usize = 16;

/// Service parameters (RFC 9460 §14.3.2).
const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const ECH: u16 = 5;
const IPV6_HINT: u16 = 6;
