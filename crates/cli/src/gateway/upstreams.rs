//! From an `[[upstream]]` of the configuration to its servers.

use std::error::Error;
use std::time::Duration;

use tidegate::http::proxy::{Ejection, HealthCheck, Http3Config, Retries, UpstreamLimits, Upstreams};
use tidegate::http3::HttpDatagramLimits;
use tidegate::tls::{ClientConfig, Provider};

use crate::config::{Check, Upstream, UpstreamLimitRules};

/// The servers of a group. Keys that the file does not have keep their defaults.
///
/// # Errors
/// If the certificates of its authorities cannot be used.
pub(super) fn build(group: &Upstream) -> Result<Upstreams, Box<dyn Error>> {
    // Routes may pass tunnels of datagrams on.
    let http3 = Http3Config { datagrams: Some(HttpDatagramLimits::default()), ..Http3Config::default() };
    let mut builder = Upstreams::builder().balance(group.balance).http3(http3);
    for server in &group.servers {
        builder = builder.weighted(server.url.clone(), server.weight);
    }
    if group.send_proxy {
        builder = builder.send_proxy_header();
    }
    if group.is_secure() {
        let provider = Provider::aws_lc_rs();
        let tls = match &group.ca {
            Some(ca) => ClientConfig::builder_with_root_file(&provider, &ca.value)?,
            None => ClientConfig::builder_with_platform_roots(&provider)?,
        };
        builder = builder.tls(tls.alpn(["http/1.1"]).build()?);
    }
    if let Some(given) = &group.health_check {
        builder = builder.health_check(health_check(given));
    }
    if let Some(interval) = group.resolve_interval {
        builder = builder.resolve_interval(interval);
    }
    let (given, mut ejection) = (&group.ejection, Ejection::default());
    ejection.failures = given.failures.unwrap_or(ejection.failures);
    ejection.time = seconds(given.time, ejection.time);
    ejection.time_max = seconds(given.time_max, ejection.time_max);
    ejection.percent_max = given.percent_max.unwrap_or(ejection.percent_max);
    ejection.slow_start = seconds(given.slow_start, ejection.slow_start);
    let (given, mut retries) = (&group.retries, Retries::default());
    retries.per_request = given.per_request.unwrap_or(retries.per_request);
    retries.percent = given.percent.unwrap_or(retries.percent);
    retries.reserve = given.reserve.unwrap_or(retries.reserve);
    let built = builder.ejection(ejection).retries(retries).limits(limits(&group.limits)).build();
    built.map_err(|error| format!("the upstream `{}`: {error}", group.name.value).into())
}

/// The content of the file of `ca`; `None` if there is none, or it cannot be read.
pub(super) fn authorities(group: &Upstream) -> Option<Vec<u8>> {
    std::fs::read(&group.ca.as_ref()?.value).ok()
}

fn health_check(given: &Check) -> HealthCheck {
    let mut check = HealthCheck::default();
    check.path = given.path.clone().unwrap_or(check.path);
    check.host.clone_from(&given.host);
    check.interval = seconds(given.interval, check.interval);
    check.timeout = seconds(given.timeout, check.timeout);
    check.failures = given.failures.unwrap_or(check.failures);
    check.successes = given.successes.unwrap_or(check.successes);
    check
}

fn limits(given: &UpstreamLimitRules) -> UpstreamLimits {
    let mut limits = UpstreamLimits::default();
    limits.requests_max = given.requests.unwrap_or(limits.requests_max);
    let per_address_max = given.requests_per_address.unwrap_or(limits.requests_per_address_max);
    limits.requests_per_address_max = per_address_max;
    limits.queued_requests_max = given.queued_requests.map_or(limits.queued_requests_max, |count| count as usize);
    limits.queue_timeout = seconds(given.queue_timeout, limits.queue_timeout);
    limits.idle_connections_max = given.idle_connections.map_or(limits.idle_connections_max, |count| count as usize);
    let pipelined = given.pipelined_requests.and_then(|count| u8::try_from(count).ok());
    limits.pipelined_requests_max = pipelined.unwrap_or(limits.pipelined_requests_max);
    limits.cancellations_max = given.cancellations.unwrap_or(limits.cancellations_max);
    limits.cancellations_per_second = given.cancellations_per_second.unwrap_or(limits.cancellations_per_second);
    limits.resets_max = given.resets.unwrap_or(limits.resets_max);
    limits.resets_per_second = given.resets_per_second.unwrap_or(limits.resets_per_second);
    limits.idle_timeout = seconds(given.idle_timeout, limits.idle_timeout);
    limits.connect_timeout = seconds(given.connect_timeout, limits.connect_timeout);
    limits.response_timeout = seconds(given.response_timeout, limits.response_timeout);
    limits.body_timeout = seconds(given.body_timeout, limits.body_timeout);
    limits.tunnel_idle_timeout = seconds(given.tunnel_idle_timeout, limits.tunnel_idle_timeout);
    limits
}

fn seconds(set: Option<u32>, default: Duration) -> Duration {
    set.map_or(default, |set| Duration::from_secs(set.into()))
}
