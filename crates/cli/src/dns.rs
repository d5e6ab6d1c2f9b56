//! `tidegate dns`: a forwarder of DNS queries over UDP, TCP, TLS and HTTPS, with a cache.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use signal_hook::consts::SIGHUP;
use tidegate::admin::Admin;
use tidegate::dns::server::{DnsServer, Forwarder, RateLimits, ServerLimits, ServerMetrics};
use tidegate::dns::{CacheConfig, ResolverConfig, SharedCache, StubResolver};
use tidegate::engine::RunningListener;
use tidegate::metrics::{HttpMetrics, Kind};
use tidegate::{Admission, Backend, IpNet, ServerHandle, StartError};

use crate::admin::{AdminOptions, RunningAdmin};
use crate::admission::parse_network;
use crate::dns_listeners::SecureListeners;
use crate::dns_upstream::{self, DnsUpstream};
use crate::log::{self, log_to_stderr};
use crate::server::{CUT_SHORT_STATUS, CurrentServer, signals, supervise};
use crate::tls::Tls;

/// The flags of `dns`.
#[derive(Debug, Args)]
pub(crate) struct DnsOptions {
    /// Address to answer at, over UDP and TCP, may be repeated: IP:PORT, [IPV6]:PORT or localhost:PORT; port 0 picks one
    /// that is free for both
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = parse_listen)]
    listen: Vec<SocketAddr>,
    #[command(flatten)]
    secure: SecureListeners,
    /// Server to ask, may be repeated: IP, IP:PORT or [IPV6]:PORT, at port 53 by default; tls://IP[:PORT][#NAME] for DNS over
    /// TLS, at port 853 by default, https://IP[:PORT]/PATH[#NAME] for DNS over HTTPS, and h3://IP[:PORT]/PATH[#NAME] for that over
    /// HTTP/3 alone. Their certificates have NAME, or else the IP address. The fastest one that answers is asked first
    #[arg(long, value_name = "ADDRESS", required = true)]
    upstream: Vec<DnsUpstream>,
    /// Certificates (PEM) that vouch for tls, https and h3 servers [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Network whose clients get answers, may be repeated: an address or CIDR, as 10.0.0.0/8 or 2001:db8::/32. Others get
    /// REFUSED, and their connections are reset: a resolver that is open to the world amplifies attacks [default: this
    /// machine, private and link-local networks]
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    allow: Vec<IpNet>,
    /// Network whose clients get no answers, may be repeated; takes precedence over --allow
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    deny: Vec<IpNet>,
    /// Responses a second in datagrams to one IPv4 /24 or IPv6 /56, of each kind, with twice as many at once; of those
    /// above it one half is truncated and the other dropped. 0 for no limit. This machine has none
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    responses_per_second: u32,
    /// Memory of the cache, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    cache_memory: usize,
    /// Maximum queries that wait for a server, over UDP and TCP, on each loop; further ones get SERVFAIL. One client, an
    /// IPv4 address or an IPv6 /64, has a quarter of them, and 1024 at least [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_queries: Option<u32>,
    /// Kernel's buffer for received datagrams in bytes, on each loop; at most net.core.rmem_max; datagrams
    /// that do not fit while the loop is busy are lost [default: 1048576]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    receive_buffer: Option<u32>,
    /// Maximum concurrent connections; further ones wait in the kernel [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Maximum concurrent connections of one IPv4 address or one IPv6 /64; further ones are reset [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_address: Option<u32>,
    /// Seconds that a connection may be idle [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_timeout: Option<u32>,
    /// Number of event loops, each on its own thread [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
    /// I/O backend: epoll, uring or auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Backend,
    /// Zero-downtime restart: take over the sockets of the running server that was started with the same PATH and
    /// addresses, if any; that server drains and exits. Then offer our sockets at PATH to the next server
    #[arg(long, value_name = "PATH")]
    takeover: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminOptions,
    /// Log only errors of the server itself, not errors of peers; the start-up lines are always printed
    #[arg(long)]
    quiet: bool,
}

/// Answers until SIGTERM, Ctrl-C or a takeover by another server, then drains. A second signal closes all connections. SIGUSR1 prints
/// the counts. With TLS, SIGHUP reads its files again.
pub(crate) fn run(options: &DnsOptions) -> Result<(), Box<dyn Error>> {
    log_to_stderr(options.quiet, false);
    // Registered before the server starts, so that no signal is missed once the start-up line is printed.
    let signals = signals()?;
    let tls = options.secure.tls()?;
    if tls.is_some() {
        signals.handle().add_signal(SIGHUP).map_err(StartError::System)?;
    }
    let (metrics, requests) = (ServerMetrics::new(), options.admin.metrics());
    let cache = SharedCache::new(CacheConfig { memory_max: options.cache_memory, ..CacheConfig::default() });
    let server = options.start(&metrics, &cache, tls.as_ref(), requests.as_ref())?;
    let admin = RunningAdmin::default();
    let has_takeover = options.takeover.is_some();
    admin.start(&options.admin, Admin::new(&server), requests.as_ref(), |admin| {
        show_counts(if has_takeover { admin.share_address() } else { admin }, metrics, cache)
    })?;
    options.announce(&server);
    admin.announce();
    let on_hangup = move || tls.iter().for_each(Tls::reload);
    let is_cut_short = supervise(&CurrentServer::new(server), &admin, signals, on_hangup)?;
    if is_cut_short {
        log::exit(CUT_SHORT_STATUS);
    }
    Ok(())
}

impl DnsOptions {
    fn start(
        &self,
        metrics: &ServerMetrics,
        cache: &SharedCache,
        tls: Option<&Tls>,
        requests: Option<&HttpMetrics>,
    ) -> Result<ServerHandle, Box<dyn Error>> {
        let is_secure = self.upstream.iter().any(DnsUpstream::is_secure);
        let upstream_tls = if is_secure { Some(dns_upstream::tls(self.upstream_ca.as_deref())?) } else { None };
        if let Some(tls) = &upstream_tls {
            self.upstream.iter().try_for_each(|server| server.check(tls))?;
        }
        let mut addresses = self.listen.iter().copied();
        let first = addresses.next().ok_or(StartError::NoListener)?;
        let server = addresses.fold(DnsServer::at(first), DnsServer::and_at);
        let (loops, backend, takeover) = (self.loops, self.backend, self.takeover.clone());
        let limits = self.limits();
        let server = server.limits(limits).access(self.access()).metrics(metrics).engine(|server| {
            let server = server.backend(backend).without_tokio_runtime();
            let server = match takeover {
                Some(path) => server.takeover(path),
                None => server,
            };
            match loops {
                Some(loops) => server.loops(loops.into()),
                None => server,
            }
        });
        let (upstreams, cache, metrics) = (self.upstream.clone(), cache.clone(), metrics.clone());
        let config = self.resolver();
        let handlers = server.handlers(move |_loop| {
            let servers = upstreams.iter().map(|server| server.server(upstream_tls.as_ref())).collect();
            Forwarder::new(StubResolver::new(servers, config, cache.clone()), &metrics)
        });
        let server = match tls {
            Some(tls) => self.secure.add_to(server, &handlers, tls, &limits, requests)?,
            None => server,
        };
        Ok(server.start_with(&handlers)?)
    }

    fn limits(&self) -> ServerLimits {
        let mut limits = ServerLimits::default();
        let rate = self.responses_per_second;
        limits.rates = (rate > 0).then(|| RateLimits {
            responses_per_second: rate,
            burst: rate.saturating_mul(2),
            ..RateLimits::default()
        });
        if let Some(queries) = self.max_queries {
            limits.in_flight_max = queries as usize;
            limits.in_flight_per_client_max = limits.in_flight_per_client_max.max(limits.in_flight_max / 4);
        }
        if let Some(bytes) = self.receive_buffer {
            limits.receive_buffer_bytes = Some(bytes as usize);
        }
        if let Some(connections) = self.max_connections {
            limits.connections_max = connections as usize;
        }
        if let Some(connections) = self.max_connections_per_address {
            limits.connections_per_address_max = connections;
        }
        if let Some(seconds) = self.idle_timeout {
            limits.idle_timeout = Duration::from_secs(seconds.into());
        }
        limits
    }

    /// Each query that waits may have a lookup of its own.
    fn resolver(&self) -> ResolverConfig {
        let config = ResolverConfig::default();
        ResolverConfig { lookups_max: config.lookups_max.max(self.limits().in_flight_max), ..config }
    }

    fn access(&self) -> Admission {
        let mut allow = self.allow.clone();
        if allow.is_empty() {
            allow.extend(NEAR.iter().filter_map(|network| network.parse::<IpNet>().ok()));
        }
        Admission { allow, deny: self.deny.clone(), ..Admission::default() }
    }

    /// Prints a start-up line for each address, and one for the servers that are asked.
    fn announce(&self, running: &ServerHandle) {
        let (backend, loops) = (running.backend(), running.loops());
        let plural = if loops == 1 { "" } else { "s" };
        let mut lines = Vec::new();
        for listener in running.listeners().iter().take(self.listen.len()) {
            for address in RunningListener::addresses(listener) {
                lines.push(format!(
                    "tidegate: listening on {address} over UDP and TCP ({backend}, {loops} loop{plural})"
                ));
            }
        }
        lines.extend(self.secure.lines(running, self.listen.len()));
        let upstreams: Vec<String> = self.upstream.iter().map(ToString::to_string).collect();
        lines.push(format!("tidegate: forwards DNS queries to {}", upstreams.join(", ")));
        log::announce(&lines.join("\n"));
    }
}

/// Shows the counts of the server and of its cache in the metrics.
fn show_counts(admin: Admin, metrics: ServerMetrics, cache: SharedCache) -> Admin {
    admin.metrics(move |text| {
        for (name, help, value) in metrics.counts().named() {
            text.family(name, Kind::Counter, help);
            text.sample(&[], value as f64);
        }
        let (entries, bytes) = cache.with(|cache| (cache.len(), cache.memory_bytes()));
        for (name, help, value) in [
            ("tidegate_dns_cache_entries", "Entries of the cache.", entries),
            ("tidegate_dns_cache_bytes", "Bytes of the entries of the cache.", bytes),
        ] {
            text.family(name, Kind::Gauge, help);
            text.sample(&[], value as f64);
        }
    })
}

pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<tidegate::Address>().ok().and_then(|address| address.ip());
    address.ok_or_else(|| "not IP:PORT, [IPV6]:PORT or localhost:PORT".into())
}

/// This machine, private and link-local networks.
const NEAR: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// Queries in flight of all clients and of one, and lookups.
    fn limits_of(flags: &[&str]) -> (usize, usize, usize) {
        let command = DnsOptions::augment_args(clap::Command::new("dns"));
        let always = ["dns", "--listen", "127.0.0.1:0", "--upstream", "192.0.2.53"];
        let matches = command.try_get_matches_from(always.iter().chain(flags)).unwrap();
        let options = DnsOptions::from_arg_matches(&matches).unwrap();
        let limits = options.limits();
        (limits.in_flight_max, limits.in_flight_per_client_max, options.resolver().lookups_max)
    }

    #[test]
    fn the_limit_of_queries_sets_that_of_one_client_and_that_of_lookups() {
        assert_eq!(limits_of(&[]), (4_096, 1_024, 4_096));
        assert_eq!(limits_of(&["--max-queries", "100"]), (100, 1_024, 4_096));
        assert_eq!(limits_of(&["--max-queries", "40000"]), (40_000, 10_000, 40_000));
    }

    #[test]
    fn each_network_near_by_is_one() {
        assert!(NEAR.iter().all(|network| network.parse::<IpNet>().is_ok()));
    }
}
