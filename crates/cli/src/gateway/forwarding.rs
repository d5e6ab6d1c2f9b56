//! Listeners below HTTP: from their configuration to forwarders, and to others while they run.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::proxy::Ejection;
use tidegate::l4::{
    ConnectCheck, Maintenance, Routes, TcpForwarder, TcpLimits, UdpForwarder, UdpRules, UpstreamLimits, Upstreams,
};
use tidegate::metrics::{Kind, MetricsText};
use tidegate::sniff::{self, Match};

use crate::config::{Config, FirstBytes, FirstBytesRule, Forwards, Listen, ListenLimits, Located, Upstream};
use crate::server::ProcessOptions;

/// The upstreams below HTTP, and the forwarder of each listener that has one.
pub(super) struct Forwarding {
    sets: HashMap<String, OpenSet>,
    /// By the number of the listener.
    forwarders: Vec<Option<Forwarder>>,
}

/// The forwarder of a listener.
#[derive(Clone)]
pub(super) enum Forwarder {
    Tcp(TcpForwarder),
    Udp(UdpForwarder),
}

/// An upstream with the settings that it was made of.
#[derive(Clone)]
struct OpenSet {
    group: Upstream,
    set: Upstreams,
    maintenance: Option<Arc<Maintenance>>,
}

impl Forwarding {
    /// Makes the upstreams and the forwarders. Upstreams whose settings are those of `before` are kept with their health.
    pub(super) fn open(
        config: &Config,
        process: &ProcessOptions,
        before: Option<&Self>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut sets = HashMap::new();
        for group in config.upstreams.iter().filter(|group| !group.l4_servers.is_empty()) {
            let kept = before.and_then(|before| before.sets.get(&group.name.value));
            let kept = kept.filter(|kept| kept.group == *group).cloned();
            let new = || OpenSet { group: group.clone(), set: build(group), maintenance: None };
            sets.insert(group.name.value.clone(), kept.unwrap_or_else(new));
        }
        let mut forwarding = Self { sets, forwarders: Vec::new() };
        for listen in &config.listen {
            let forwarder =
                listen.forwards.map(|forwards| forwarding.forwarder(listen, forwards, process)).transpose()?;
            forwarding.forwarders.push(forwarder);
        }
        Ok(forwarding)
    }

    /// Checks the upstreams and resolves their names from now on.
    pub(super) fn maintain(mut self) -> std::io::Result<Self> {
        let new: Vec<_> = self.sets.values_mut().filter(|open| open.maintenance.is_none()).collect();
        // All at once: each waits for its names.
        std::thread::scope(|scope| {
            let begin = |open: &mut OpenSet| -> std::io::Result<()> {
                open.maintenance = Some(Arc::new(open.set.maintain_on_thread(RESOLVE_PATIENCE)?));
                Ok(())
            };
            let begun: Vec<_> = new.into_iter().map(|open| scope.spawn(move || begin(open))).collect();
            let panicked = || std::io::Error::other("the check of an upstream panicked");
            begun.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
        })?;
        Ok(self)
    }

    /// The forwarder of a listener, by its number.
    pub(super) fn of(&self, number: usize) -> Option<&Forwarder> {
        self.forwarders.get(number)?.as_ref()
    }

    /// Has the forwarders of `running` pass new connections and flows on as these do, and returns them with the upstreams
    /// here. The listeners of both are the same.
    pub(super) fn continue_with(
        mut self,
        running: &Self,
        config: &Config,
        process: &ProcessOptions,
    ) -> Result<Self, Box<dyn Error>> {
        for (listen, forwarder) in config.listen.iter().zip(&running.forwarders) {
            match forwarder {
                Some(Forwarder::Tcp(tcp)) => tcp.replace(self.routes(listen)?, tcp_limits(listen, process)),
                Some(Forwarder::Udp(udp)) => udp.replace(self.default_of(listen)?, udp_rules(listen, process)),
                None => {}
            }
        }
        self.forwarders.clone_from(&running.forwarders);
        Ok(self)
    }

    /// Each forwarder with the addresses of its listener.
    pub(super) fn named(&self, config: &Config) -> Vec<(String, Forwarder)> {
        let both = config.listen.iter().zip(&self.forwarders);
        both.filter_map(|(listen, forwarder)| Some((listen.name(), forwarder.clone()?))).collect()
    }

    fn forwarder(
        &self,
        listen: &Listen,
        forwards: Forwards,
        process: &ProcessOptions,
    ) -> Result<Forwarder, Box<dyn Error>> {
        if forwards == Forwards::Udp {
            return Ok(Forwarder::Udp(UdpForwarder::new(self.default_of(listen)?, udp_rules(listen, process))));
        }
        let policy = listen.proxy_protocol.policy(listen.proxy_trusted.as_ref());
        let (routes, limits) = (self.routes(listen)?, tcp_limits(listen, process));
        Ok(Forwarder::Tcp(TcpForwarder::with_policy(routes, limits, policy)))
    }

    fn routes(&self, listen: &Listen) -> Result<Routes, Box<dyn Error>> {
        if listen.forwards != Some(Forwards::TlsPassthrough) {
            return self.with_first_bytes(Routes::to(self.default_of(listen)?), listen);
        }
        let mut routes = self.with_first_bytes(Routes::by_name(), listen)?;
        for (pattern, upstream) in &listen.sni {
            routes = routes.name(&pattern.value, self.set(upstream)?)?;
        }
        if let Some(upstream) = &listen.upstream {
            routes = routes.otherwise(self.set(upstream)?);
        }
        Ok(routes)
    }

    /// The routes with the rules for first bytes.
    fn with_first_bytes(&self, routes: Routes, listen: &Listen) -> Result<Routes, Box<dyn Error>> {
        listen.first_bytes.iter().try_fold(routes, |routes, FirstBytes { rule, upstream, .. }| {
            let set = self.set(upstream)?;
            Ok(match rule.clone() {
                FirstBytesRule::Http1 => routes.when(sniff::http1, set),
                FirstBytesRule::Http2 => routes.when(sniff::http2, set),
                FirstBytesRule::Tls => routes.when(sniff::tls, set),
                FirstBytesRule::StartsWith(prefix) => routes.when(move |first| starts_with(first, &prefix), set),
                FirstBytesRule::None => return Err("a rule for first bytes is empty".into()),
            })
        })
    }

    fn default_of(&self, listen: &Listen) -> Result<&Upstreams, Box<dyn Error>> {
        self.set(listen.upstream.as_ref().ok_or("a listener has no upstream")?)
    }

    fn set(&self, name: &Located<String>) -> Result<&Upstreams, Box<dyn Error>> {
        let open = self.sets.get(&name.value).ok_or_else(|| format!("there is no upstream `{}`", name.value))?;
        Ok(&open.set)
    }
}

/// Writes the numbers of forwarders.
pub(super) fn write_forwarders(forwarders: &[(String, Forwarder)], text: &mut MetricsText) {
    let tcp: Vec<_> = forwarders
        .iter()
        .filter_map(
            |(name, forwarder)| if let Forwarder::Tcp(tcp) = forwarder { Some((name, tcp.counts())) } else { None },
        )
        .collect();
    let udp: Vec<_> = forwarders
        .iter()
        .filter_map(
            |(name, forwarder)| if let Forwarder::Udp(udp) = forwarder { Some((name, udp.counts())) } else { None },
        )
        .collect();
    if !tcp.is_empty() {
        text.family("tidegate_l4_connections", Kind::Counter, "Connections of a listener below HTTP, by result.");
        for (name, counts) in &tcp {
            let results = [
                ("forwarded", counts.forwarded),
                ("unrecognized_name", counts.unrecognized),
                ("unavailable", counts.unavailable),
            ];
            results.iter().for_each(|(result, count)| text.sample(&[("listener", name), ("result", result)], count));
        }
        text.family("tidegate_l4_connects_failed", Kind::Counter, "Attempts to connect to an upstream that failed.");
        tcp.iter().for_each(|(name, counts)| text.sample(&[("listener", name)], counts.failed_attempts));
    }
    if !udp.is_empty() {
        text.family("tidegate_l4_flows", Kind::Gauge, "Flows of datagrams.");
        udp.iter().for_each(|(name, counts)| text.sample(&[("listener", name)], counts.flows));
        text.family("tidegate_l4_flows_ended", Kind::Counter, "Flows of datagrams that ended, by reason.");
        for (name, counts) in &udp {
            let reasons =
                [("idle", counts.expired), ("displaced", counts.displaced), ("unreachable", counts.unreachable)];
            reasons.iter().for_each(|(reason, count)| text.sample(&[("listener", name), ("reason", reason)], count));
        }
        text.family("tidegate_l4_datagrams", Kind::Counter, "Datagrams of a listener below HTTP, by result.");
        for (name, counts) in &udp {
            let results = [("forwarded", counts.forwarded), ("returned", counts.returned), ("dropped", counts.dropped)];
            results.iter().for_each(|(result, count)| text.sample(&[("listener", name), ("result", result)], count));
        }
    }
}

/// `sniff::starts_with` for a text of the configuration, which another one replaces.
fn starts_with(first: &[u8], prefix: &str) -> Match {
    let length = first.len().min(prefix.len());
    match first[..length] == prefix.as_bytes()[..length] {
        false => Match::NotMatched,
        true if length < prefix.len() => Match::NeedMore,
        true => Match::Matched,
    }
}

fn build(group: &Upstream) -> Upstreams {
    let servers = group.l4_servers.iter().cloned();
    let mut builder = servers.fold(Upstreams::builder(), |builder, (server, weight)| builder.server(server, weight));
    builder = builder.balance(group.balance);
    if group.send_proxy {
        builder = builder.send_proxy_header();
    }
    if let Some(given) = &group.health_check {
        let mut check = ConnectCheck::default();
        check.interval = seconds(given.interval, check.interval);
        check.timeout = seconds(given.timeout, check.timeout);
        check.failures = given.failures.unwrap_or(check.failures);
        check.successes = given.successes.unwrap_or(check.successes);
        builder = builder.check(check);
    }
    if let Some(interval) = group.resolve_interval {
        builder = builder.resolve_interval(interval);
    }
    let is_udp = group.l4_servers.first().is_some_and(|(server, _)| server.is_udp());
    let (given, mut ejection) = (&group.ejection, Ejection::default_for(is_udp));
    ejection.failures = given.failures.unwrap_or(ejection.failures);
    ejection.time = seconds(given.time, ejection.time);
    ejection.time_max = seconds(given.time_max, ejection.time_max);
    ejection.percent_max = given.percent_max.unwrap_or(ejection.percent_max);
    ejection.slow_start = seconds(given.slow_start, ejection.slow_start);
    let mut limits = UpstreamLimits::default();
    limits.connect_timeout = seconds(group.limits.connect_timeout, limits.connect_timeout);
    limits.retries = group.retries.per_request.unwrap_or(limits.retries);
    limits.connections_max = group.limits.requests.unwrap_or(limits.connections_max);
    builder.ejection(ejection).limits(limits).build()
}

fn tcp_limits(listen: &Listen, process: &ProcessOptions) -> TcpLimits {
    let mut limits = TcpLimits::default();
    let opening = ListenLimits::seconds(listen.limits.handshake_timeout).or(process.handshake_timeout());
    limits.opening_timeout = opening.unwrap_or(limits.opening_timeout);
    limits.idle_timeout = seconds(listen.limits.idle_timeout, limits.idle_timeout);
    limits.hello_bytes_max = listen.limits.hello_bytes.unwrap_or(limits.hello_bytes_max);
    limits
}

fn udp_rules(listen: &Listen, process: &ProcessOptions) -> UdpRules {
    let (mut rules, flags) = (UdpRules::default(), process.admission());
    let or = |own: &Vec<_>, flags: Vec<_>| if own.is_empty() { flags } else { own.clone() };
    (rules.allow, rules.deny) = (or(&listen.allow, flags.allow), or(&listen.deny, flags.deny));
    rules.flows_max = listen.limits.flows.map_or(rules.flows_max, |count| count as usize);
    rules.idle_timeout = seconds(listen.limits.idle_timeout, rules.idle_timeout);
    let bytes = listen.limits.datagram_bytes.and_then(|bytes| u16::try_from(bytes).ok());
    rules.datagram_bytes_max = bytes.unwrap_or(rules.datagram_bytes_max);
    rules
}

fn seconds(set: Option<u32>, default: Duration) -> Duration {
    ListenLimits::seconds(set).unwrap_or(default)
}

/// How long a start or a reload waits for the addresses of names.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(5);
