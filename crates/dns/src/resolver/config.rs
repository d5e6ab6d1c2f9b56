//! `ResolverConfig`, and the servers of a resolver.

use std::time::Duration;

use crate::name::Name;
use crate::resolv_conf::ResolvConf;

/// Limits and times of a [`Resolver`](crate::Resolver).
///
/// ```
/// use tidegate::dns::ResolverConfig;
///
/// assert_eq!(ResolverConfig::default().aliases_max, 16);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolverConfig {
    /// The time of a lookup in all; 10 s.
    pub lookup_timeout: Duration,
    /// The most time that a server has to answer before the next is tried; 5 s. It is less where the measured times allow.
    pub server_timeout: Duration,
    /// Rounds over the servers before a lookup fails whose servers cannot be reached; 2. Servers that do not answer are
    /// asked until [`lookup_timeout`](Self::lookup_timeout), each round after twice the time, at most `server_timeout`.
    pub rounds: u32,
    /// Aliases on the way from a name to its records, over all responses; 16.
    pub aliases_max: usize,
    /// Lookups in flight; 4,096.
    pub lookups_max: usize,
    /// Callers that wait for one lookup; 1,024. A flood of equal questions is not let loose together beyond that.
    pub waiters_max: usize,
    /// Sockets for each server, each with a random port; 8.
    pub sockets: u16,
    /// Datagrams with a wrong ID or name that one lookup takes before it goes on over a stream; 0.
    pub mismatches_max: u32,
    /// How long a caller waits before it gets a stale answer; 1.8 s (RFC 8767 §5).
    pub stale_after: Duration,
    /// Whether letters of names in datagrams have random cases (0x20); true. A server that does not keep them, and has no
    /// stream, is asked without.
    pub randomizes_case: bool,
    /// Whether all queries go over streams; false.
    pub use_streams: bool,
    /// Whether each lookup begins with another server, as `options rotate` has it, in the place of the fastest one; false. A
    /// server that is down comes last in either case.
    pub rotates: bool,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            lookup_timeout: Duration::from_secs(10),
            server_timeout: Duration::from_secs(5),
            rounds: 2,
            aliases_max: 16,
            lookups_max: 4_096,
            waiters_max: 1_024,
            sockets: 8,
            mismatches_max: 0,
            stale_after: Duration::from_millis(1_800),
            randomizes_case: true,
            use_streams: false,
            rotates: false,
        }
    }
}

impl ResolverConfig {
    /// The usual limits with the times of a `resolv.conf`.
    #[must_use]
    pub fn of_system(conf: &ResolvConf) -> Self {
        let rounds = u32::from(conf.attempts);
        let lookup_timeout = conf.timeout.saturating_mul(rounds).saturating_mul(conf.servers.len().max(1) as u32);
        let (server_timeout, use_streams, rotates) = (conf.timeout, conf.use_tcp, conf.rotate);
        Self { lookup_timeout, server_timeout, rounds, use_streams, rotates, ..Self::default() }
    }
}

/// A server of a [`Resolver`](crate::Resolver). Its address is known to the one that sends, by the server's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolverServer {
    /// Records of names outside it are dropped. The root for a server that resolves all names; the zone for one that is
    /// asked for one zone.
    pub bailiwick: Name,
    /// Whether it gets queries over a stream only, such as one behind TLS; false.
    pub use_streams: bool,
    /// Whether queries over its stream have padding (RFC 8467), which hides the lengths of names within encryption, and asks the
    /// server for it; false.
    pub pads_queries: bool,
}

impl Default for ResolverServer {
    fn default() -> Self {
        Self { bailiwick: Name::root(), use_streams: false, pads_queries: false }
    }
}
