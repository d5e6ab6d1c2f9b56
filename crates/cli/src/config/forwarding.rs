//! Rules of listeners below HTTP, `tcp`, `tls-passthrough` and `udp`, and of their upstreams.

use std::collections::HashMap;

use tidegate::l4::{Routes, Upstreams};

use super::mistakes::{Located, Mistakes};
use super::model::Action;
use super::{Config, Forwards, HeaderMode, Listen, Upstream};

/// Checks the listeners and the upstreams of a file.
pub(super) fn check(config: &Config, mistakes: &mut Mistakes) {
    config.listen.iter().for_each(|listen| check_listen(listen, mistakes));
    config.upstreams.iter().for_each(|upstream| check_upstream(upstream, mistakes));
    check_transports(config, mistakes);
}

/// The keys of a listener that its protocol does not have.
fn check_listen(listen: &Listen, mistakes: &mut Mistakes) {
    let Some(forwards) = listen.forwards else {
        if listen.upstream.is_some() || !listen.sni.is_empty() || !listen.first_bytes.is_empty() {
            let text = "`upstream`, `sni` and `first-bytes` need `protocol = \"tcp\"`, `\"udp\"` or \
                        `\"tls-passthrough\"`; of http, a [[route]] names the upstream";
            mistakes.add(listen.place, text);
        }
        refuse(listen, &[("limits.flows", listen.limits.flows.is_some())], "udp", mistakes);
        refuse(listen, &[("limits.datagram-bytes", listen.limits.datagram_bytes.is_some())], "udp", mistakes);
        refuse(listen, &[("limits.hello-bytes", listen.limits.hello_bytes.is_some())], "tls-passthrough", mistakes);
        return;
    };
    let limits = &listen.limits;
    let of_http = [
        ("certificates", !listen.certificates.is_empty()),
        ("acme", listen.acme.is_some()),
        ("self-signed", listen.self_signed.is_some()),
        ("client-ca", listen.client_ca.is_some()),
        ("ticket-keys", !listen.ticket_keys.is_empty()),
        ("versions", !listen.versions.is_empty()),
        ("redirect-https", listen.redirect_https.is_some()),
        ("limits.body-bytes", limits.body_bytes.is_some()),
        ("limits.head-bytes", limits.head_bytes.is_some()),
        ("limits.headers", limits.headers.is_some()),
        ("limits.streams", limits.streams.is_some()),
        ("limits.head-timeout", limits.head_timeout.is_some()),
        ("limits.body-timeout", limits.body_timeout.is_some()),
    ];
    refuse(listen, &of_http, "http` or `https", mistakes);
    if forwards == Forwards::Udp {
        check_udp(listen, mistakes);
    } else {
        let of_udp =
            [("limits.flows", limits.flows.is_some()), ("limits.datagram-bytes", limits.datagram_bytes.is_some())];
        refuse(listen, &of_udp, "udp", mistakes);
    }
    if forwards == Forwards::TlsPassthrough {
        check_names(listen, mistakes);
    } else {
        let of_names = [("sni", !listen.sni.is_empty()), ("limits.hello-bytes", limits.hello_bytes.is_some())];
        refuse(listen, &of_names, "tls-passthrough", mistakes);
        if listen.upstream.is_none() {
            mistakes.add(listen.place, "this listener passes on, and has no `upstream`: name an [[upstream]]");
        }
    }
}

fn check_udp(listen: &Listen, mistakes: &mut Mistakes) {
    let of_connections = [
        ("proxy-protocol", listen.proxy_protocol != HeaderMode::Off),
        ("connections-per-address", listen.connections_per_address.is_some()),
        ("connection-rate-per-address", listen.connection_rate_per_address.is_some()),
        ("first-bytes", !listen.first_bytes.is_empty()),
        ("limits.connections", listen.limits.connections.is_some()),
        ("limits.write-timeout", listen.limits.write_timeout.is_some()),
        ("limits.handshake-timeout", listen.limits.handshake_timeout.is_some()),
    ];
    refuse(listen, &of_connections, "tcp` or `tls-passthrough", mistakes);
    for address in listen.addresses.iter().filter(|address| address.value.ip().is_none()) {
        mistakes.add(address.place, format!("`{}` is no address of UDP: IP:PORT", address.value));
    }
}

fn check_names(listen: &Listen, mistakes: &mut Mistakes) {
    if listen.sni.is_empty() && listen.upstream.is_none() {
        mistakes
            .add(listen.place, "a `tls-passthrough` listener has `sni`, with an upstream for each name, or `upstream`");
    }
    let none = Upstreams::builder().build();
    let mut routes = Routes::by_name();
    for (pattern, _) in &listen.sni {
        match routes.clone().name(&pattern.value, &none) {
            Ok(more) => routes = more,
            Err(error) => mistakes.add(pattern.place, format!("`{}`: {error}", pattern.value.escape_debug())),
        }
    }
}

/// Notes each key that is set and belongs to other protocols.
fn refuse(listen: &Listen, keys: &[(&str, bool)], protocols: &str, mistakes: &mut Mistakes) {
    for (key, _) in keys.iter().filter(|(_, is_set)| *is_set) {
        mistakes.add(listen.place, format!("`{key}` is for `{protocols}`: remove it, or change `protocol`"));
    }
}

/// The keys of an upstream whose servers are below HTTP.
fn check_upstream(upstream: &Upstream, mistakes: &mut Mistakes) {
    let place = upstream.name.place;
    let Some((first, _)) = upstream.l4_servers.first() else { return };
    let is_udp = first.is_udp();
    if !upstream.servers.is_empty() || upstream.l4_servers.iter().any(|(server, _)| server.is_udp() != is_udp) {
        mistakes.add(place, "the servers of an upstream are all of HTTP, all `tcp://` or all `udp://`");
        return;
    }
    let limits = &upstream.limits;
    let mut other_limits = limits.clone();
    (other_limits.connect_timeout, other_limits.requests) = (None, None);
    let check = upstream.health_check.as_ref();
    let mut keys = vec![
        ("ca", upstream.ca.is_some()),
        ("health-check.path", check.is_some_and(|check| check.path.is_some())),
        ("health-check.host", check.is_some_and(|check| check.host.is_some())),
        ("retries.percent", upstream.retries.percent.is_some()),
        ("retries.reserve", upstream.retries.reserve.is_some()),
        ("limits` beyond `connect-timeout` and `requests", other_limits != Default::default()),
    ];
    if is_udp {
        keys.push(("health-check", check.is_some()));
        keys.push(("send-proxy", upstream.send_proxy));
        keys.push(("retries", upstream.retries.per_request.is_some()));
        keys.push(("limits.connect-timeout", limits.connect_timeout.is_some()));
    }
    let kind = if is_udp { "udp" } else { "tcp" };
    for (key, _) in keys.iter().filter(|(_, is_set)| *is_set) {
        mistakes.add(place, format!("an upstream of `{kind}://` servers has no `{key}`: remove it"));
    }
}

/// Whether each upstream has servers of the kind that its routes and listeners need.
fn check_transports(config: &Config, mistakes: &mut Mistakes) {
    let kinds: HashMap<&str, &str> =
        config.upstreams.iter().map(|upstream| (&*upstream.name.value, kind(upstream))).collect();
    let mut check = |wanted: &Located<String>, needed: &str, user: &str| match kinds.get(&*wanted.value) {
        Some(kind) if *kind != needed => {
            let text = format!("the servers of `{}` are {kind}, and {user} needs {needed}", wanted.value);
            mistakes.add(wanted.place, text);
        }
        _ => {}
    };
    for route in &config.routes {
        if let Some(Action::Upstream(wanted)) = &route.action {
            check(wanted, HTTP, "a route");
        }
        if let Some(mirror) = &route.proxying.mirror {
            check(&mirror.upstream, HTTP, "a route");
        }
    }
    for listen in &config.listen {
        let (needed, user) = match listen.forwards {
            Some(Forwards::Udp) => (UDP, "a `udp` listener"),
            Some(Forwards::Tcp) => (TCP, "a `tcp` listener"),
            Some(Forwards::TlsPassthrough) => (TCP, "a `tls-passthrough` listener"),
            None => continue,
        };
        listen.upstreams().for_each(|to| check(to, needed, user));
    }
}

fn kind(upstream: &Upstream) -> &'static str {
    match upstream.l4_servers.first() {
        None => HTTP,
        Some((server, _)) if server.is_udp() => UDP,
        Some(_) => TCP,
    }
}

const HTTP: &str = "of HTTP";
const TCP: &str = "`tcp://`";
const UDP: &str = "`udp://`";
