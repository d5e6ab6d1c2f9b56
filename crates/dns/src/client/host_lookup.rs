//! Lookups of hosts and services: addresses by the hosts file and the search list, SRV records, and their times.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_engine::{Resolve, ResolvedServer, ResolvedServers, Resolving, ResolvingHttps, ResolvingServers, task};

use super::{BegunLookup, StubResolver};
use crate::name::Name;
use crate::numbers::{RecordType, ResponseCode};
use crate::record_data::RecordData;
use crate::resolver::{Answer, LookupError};

/// Addresses of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostAddresses {
    /// IPv6 and IPv4 in turns.
    pub(super) addresses: Vec<IpAddr>,
    /// The shortest time of the records; `None` if they come from no server.
    pub(super) ttl: Option<Duration>,
    /// Whether the lookup of one family failed.
    pub(super) is_partial: bool,
}

/// Whether a lookup waits for the addresses of both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Families {
    /// For both, however long the second takes.
    Both,
    /// For both, of the servers and not of the cache: for a caller that keeps the addresses.
    Fresh,
    /// For the second one only for a short time, if the first has addresses (RFC 8305 §3).
    First,
}

/// The result for one family.
type FamilyResult = Result<Arc<Answer>, LookupError>;

impl StubResolver {
    /// The addresses of a host, IPv6 and IPv4 in turns with IPv6 first (RFC 8305 §4): of an address itself, from the hosts
    /// file, or looked up with the search list, both types at once. Empty if the name has none.
    ///
    /// # Errors
    /// [`LookupError`], if neither type has an answer; [`LookupError::Question`] if the text is no name.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        Ok(self.host(host, Families::Both).await?.addresses)
    }

    pub(super) async fn host(&self, host: &str, families: Families) -> Result<HostAddresses, LookupError> {
        if let Ok(address) = host.parse() {
            return Ok(HostAddresses { addresses: vec![address], ..HostAddresses::default() });
        }
        let mut candidates = self.candidates(host)?;
        let (mut failed, mut last) = (None, HostAddresses::default());
        let literal: Option<Name> = host.parse().ok();
        // The hosts file has the name as it is, before any domain of the search list completes it.
        if let Some(addresses) = literal.as_ref().and_then(|name| self.shared.hosts.addresses(name)) {
            return Ok(HostAddresses { addresses, ..last });
        }
        if literal.as_ref().is_some_and(is_of_no_server) {
            return Ok(last);
        }
        candidates.retain(|name| !is_of_no_server(name));
        for name in candidates {
            match self.host_of_name(&name, families).await {
                Ok(found) if !found.addresses.is_empty() => return Ok(found),
                Ok(none) => last = none,
                // A domain of the search list may have dead servers, and the name itself others.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(last), Err)
    }

    async fn host_of_name(&self, name: &Name, families: Families) -> Result<HostAddresses, LookupError> {
        if let Some(addresses) = self.shared.hosts.addresses(name) {
            return Ok(HostAddresses { addresses, ..HostAddresses::default() });
        }
        let (v6, v4) =
            (self.begin_family(name, RecordType::AAAA, families), self.begin_family(name, RecordType::A, families));
        let (v6, v4) = both(Self::wait(v6), Self::wait(v4), families).await;
        let failed =
            [&v4, &v6].into_iter().find_map(|result| result.as_ref().and_then(|result| result.as_ref().err().copied()));
        let of = |result: Option<FamilyResult>| result.and_then(Result::ok);
        let (v6, v4) = (of(v6), of(v4));
        let ttl = v6.as_deref().into_iter().chain(v4.as_deref()).filter_map(ttl_of).min();
        let addresses = alternate(v6.as_deref(), v4.as_deref());
        match failed {
            // One family without addresses does not mean that there are none.
            Some(error) if addresses.is_empty() => Err(error),
            _ => Ok(HostAddresses { addresses, ttl, is_partial: failed.is_some() }),
        }
    }

    /// Begins the lookup of one family. [`Families::Fresh`] asks the servers.
    fn begin_family(&self, name: &Name, record_type: RecordType, families: Families) -> BegunLookup {
        if self.shared.conf.no_aaaa && record_type == RecordType::AAAA {
            let (response_code, records) = (ResponseCode::NOERROR, Vec::new());
            return BegunLookup::Ready(Ok(Arc::new(Answer { response_code, records, soa: None, is_stale: false })));
        }
        match families {
            Families::Fresh => self.begin_fresh(name, record_type),
            Families::Both | Families::First => self.begin(name, record_type),
        }
    }

    /// The servers of a service (RFC 2782), with the search list: those of its SRV records, each with all addresses of its
    /// host. Empty if there is none. Of the hosts, the first 64 by priority are looked up; those that fail are left out, and the
    /// result is marked as [partial](ResolvedServers::is_partial), unless all do. The servers are asked, not the cache.
    ///
    /// # Errors
    /// [`LookupError`].
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn service(&self, service: &str) -> Result<ResolvedServers, LookupError> {
        let (mut failed, mut last) = (None, ResolvedServers::default());
        for name in self.candidates(service)? {
            match Self::wait(self.begin_fresh(&name, RecordType::SRV)).await {
                Ok(answer) if !targets_of(&answer).is_empty() => return self.servers_of(&answer).await,
                Ok(none) => last.ttl = ttl_of(&none),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(last), Err)
    }

    async fn servers_of(&self, answer: &Answer) -> Result<ResolvedServers, LookupError> {
        let mut targets = targets_of(answer);
        targets.sort();
        targets.truncate(SERVICE_TARGETS_MAX);
        let lookups: Vec<_> = targets
            .into_iter()
            .map(|target| {
                let (this, host) = (self.clone(), target.host.clone());
                (target, task::spawn(async move { this.host_of_name(&host, Families::Fresh).await }))
            })
            .collect();
        let (mut found, mut failed) = (ResolvedServers { ttl: ttl_of(answer), ..ResolvedServers::default() }, None);
        for (target, lookup) in lookups {
            match lookup.await.unwrap_or(Err(LookupError::Failed)) {
                Ok(host) => {
                    found.ttl = found.ttl.into_iter().chain(host.ttl).min();
                    found.is_partial |= host.is_partial;
                    found.servers.extend(host.addresses.into_iter().map(|address| ResolvedServer {
                        address: SocketAddr::new(address, target.port),
                        priority: target.priority,
                        weight: target.weight,
                    }));
                }
                Err(error) => failed = Some(error),
            }
        }
        found.is_partial |= failed.is_some();
        failed.filter(|_| found.servers.is_empty()).map_or(Ok(found), Err)
    }

    /// The names to try for a text.
    fn candidates(&self, text: &str) -> Result<Vec<Name>, LookupError> {
        let candidates = self.shared.conf.candidates(text);
        if candidates.is_empty() { Err(LookupError::Question) } else { Ok(candidates) }
    }
}

/// `resolve` waits for the addresses of the second family for 50 ms at most if the first has some; `resolve_servers`
/// waits for both. `resolve_servers` and `resolve_service` ask the servers also if the cache has an answer: a caller that keeps
/// the servers asks again because they may have changed. The answer of the cache is left for the case that no server answers.
impl Resolve for StubResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move {
            let found = this.host(&host, Families::First).await.map_err(io_error)?;
            if found.addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name does not exist, or has no address"));
            }
            Ok(found.addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    }

    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move {
            let found = this.host(&host, Families::Fresh).await.map_err(io_error)?;
            let servers = found.addresses.into_iter().map(|address| SocketAddr::new(address, port).into());
            Ok(ResolvedServers { servers: servers.collect(), ttl: found.ttl, is_partial: found.is_partial })
        })
    }

    fn resolve_service(&self, service: &str) -> ResolvingServers {
        let (this, service) = (self.clone(), service.to_owned());
        Box::pin(async move { this.service(&service).await.map_err(io_error) })
    }

    fn resolve_https(&self, host: &str, port: u16) -> ResolvingHttps {
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move { this.https_endpoints(&host, port).await.map_err(io_error) })
    }
}

fn io_error(error: LookupError) -> io::Error {
    let kind = match error {
        LookupError::Timeout => io::ErrorKind::TimedOut,
        LookupError::Question => io::ErrorKind::InvalidInput,
        // It says nothing about the name.
        LookupError::Overloaded => io::ErrorKind::ResourceBusy,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Waits for the lookups of both families. `None` for one that takes too long.
async fn both(
    v6: impl Future<Output = FamilyResult>,
    v4: impl Future<Output = FamilyResult>,
    families: Families,
) -> (Option<FamilyResult>, Option<FamilyResult>) {
    let (mut v6, mut v4) = (pin!(v6), pin!(v4));
    let (mut found, mut delay) = ((None, None), None);
    poll_fn(|cx| {
        if found.0.is_none()
            && let Poll::Ready(result) = v6.as_mut().poll(cx)
        {
            found.0 = Some(result);
        }
        if found.1.is_none()
            && let Poll::Ready(result) = v4.as_mut().poll(cx)
        {
            found.1 = Some(result);
        }
        let first = match &found {
            (Some(_), Some(_)) => return Poll::Ready(()),
            (Some(Ok(first)), None) | (None, Some(Ok(first))) => first,
            _ => return Poll::Pending,
        };
        if families != Families::First || first.addresses().next().is_none() {
            return Poll::Pending;
        }
        let delay = delay.get_or_insert_with(|| Box::pin(task::sleep(RESOLUTION_DELAY)));
        delay.as_mut().poll(cx)
    })
    .await;
    found
}

/// The target of an SRV record. The order is that in which they are used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceTarget {
    priority: u16,
    host: Name,
    port: u16,
    weight: u16,
}

/// The targets of an answer. The root as the only one means that there is no such service.
fn targets_of(answer: &Answer) -> Vec<ServiceTarget> {
    let targets = answer.records.iter().filter_map(|record| match record.data.view() {
        RecordData::Srv { priority, weight, port, target } => {
            Some(ServiceTarget { priority, host: target.to_name(), port, weight })
        }
        _ => None,
    });
    targets.filter(|target| !target.host.is_root() && target.port > 0).collect()
}

/// How long an answer holds, also one without records.
pub(super) fn ttl_of(answer: &Answer) -> Option<Duration> {
    let of_records = answer.records.iter().map(|record| record.ttl).min();
    let of_soa = answer.soa.as_ref().map(|soa| match soa.data.view() {
        RecordData::Soa(fields) => soa.ttl.min(fields.minimum),
        _ => soa.ttl,
    });
    of_records.into_iter().chain(of_soa).min().map(|seconds| Duration::from_secs(u64::from(seconds)))
}

/// Whether no server is asked for a name: none exists (`invalid`, RFC 6761 §6.4), or only Tor knows it (`onion`, RFC 7686 §2).
pub(super) fn is_of_no_server(name: &Name) -> bool {
    let is_reserved = |label: &[u8]| [&b"invalid"[..], b"onion"].iter().any(|other| label.eq_ignore_ascii_case(other));
    name.labels().last().is_some_and(is_reserved)
}

/// The addresses of two answers in turns.
fn alternate(first: Option<&Answer>, second: Option<&Answer>) -> Vec<IpAddr> {
    let mut first = first.into_iter().flat_map(Answer::addresses);
    let mut second = second.into_iter().flat_map(Answer::addresses);
    let mut addresses = Vec::new();
    loop {
        let pair = (first.next(), second.next());
        if pair == (None, None) {
            return addresses;
        }
        addresses.extend(pair.0.into_iter().chain(pair.1));
    }
}

/// RFC 8305 §3 and §8: the Resolution Delay.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Hosts of one service that are looked up. It stops a service with thousands of targets.
const SERVICE_TARGETS_MAX: usize = 64;
