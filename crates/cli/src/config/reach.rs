//! Warnings about parts of the file that no request reaches: routes behind others, listeners that only redirect, certificates
//! for no host, hosts without a certificate.

use tidegate::IpNet;
use tidegate::tls::CertificateNames;

use super::mistakes::{Mistakes, Place};
use super::model::{Conditions, Wanted};
use super::{Config, Listen, host_key};

/// Whether each request that meets `other` meets `one`. Behind trusted proxies the clients of both are those that the same
/// request names.
pub(super) fn covers(one: &Conditions, other: &Conditions) -> bool {
    let has_method = |method: &String| one.methods.contains(method) || (method == "HEAD" && has(&one.methods, "GET"));
    let methods = one.methods.is_empty() || (!other.methods.is_empty() && other.methods.iter().all(has_method));
    let same_name = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    let headers = one.headers.iter().all(|wanted| is_implied(wanted, &other.headers, same_name));
    let query = one.query.iter().all(|wanted| is_implied(wanted, &other.query, |one, other| one == other));
    let is_within = |network: &IpNet| one.client.iter().any(|wider| wider.contains(network));
    let client = one.client.is_empty() || (!other.client.is_empty() && other.client.iter().all(is_within));
    methods && headers && query && client
}

fn has(methods: &[String], name: &str) -> bool {
    methods.iter().any(|method| method == name)
}

/// Whether conditions of a kind have one that is as strict as this.
fn is_implied(wanted: &(String, Wanted), others: &[(String, Wanted)], is_same: fn(&str, &str) -> bool) -> bool {
    let is_as_strict = |other: &Wanted| match (&wanted.1, other) {
        (Wanted::Present, Wanted::Present | Wanted::Value(_)) => true,
        (one, other) => one == other,
    };
    others.iter().any(|(name, other)| is_same(&wanted.0, name) && is_as_strict(other))
}

/// Warns about routes behind listeners that all redirect, and about names of certificates.
pub(super) fn check_listeners(config: &Config, mistakes: &mut Mistakes) {
    if config.redirects_all()
        && let Some(route) = config.routes.first()
    {
        mistakes.warn(route.place, "nothing reaches the routes: each listener redirects to https");
    }
    for listen in config.listen.iter().filter(|listen| listen.is_https && !listen.certificates.is_empty()) {
        check_certificates(config, listen, mistakes);
    }
}

/// Compares the names of certificates with the hosts of routes.
fn check_certificates(config: &Config, listen: &Listen, mistakes: &mut Mistakes) {
    let mut all = Vec::new();
    for files in &listen.certificates {
        match CertificateNames::of_file(&files.cert) {
            Ok(names) => all.push((names, files.place)),
            Err(error) => mistakes.add(files.place, error.to_string()),
        }
    }
    // Without one of its own, a route is for all hosts.
    let has_any = config.routes.iter().any(|route| route.hosts.is_empty());
    let hosts = || config.routes.iter().flat_map(|route| &route.hosts);
    for (names, place) in &all {
        let serves = |name: &String| hosts().any(|host| may_meet(name, &host_key(&host.value)));
        if !has_any && !names.dns().is_empty() && !names.dns().iter().any(serves) {
            let text = format!("the certificate is for no host of a route, but for {}", names.dns().join(", "));
            mistakes.warn(*place, text);
        }
    }
    if all.len() < listen.certificates.len() {
        return;
    }
    let mut seen: Vec<String> = Vec::new();
    for host in hosts() {
        let key = host_key(&host.value);
        let is_covered = match key.strip_prefix("*.") {
            Some(_) => all.iter().any(|(names, _)| names.dns().iter().any(|name| may_meet(name, &key))),
            None => key.parse::<std::net::IpAddr>().is_ok() || all.iter().any(|(names, _)| names.covers(&key)),
        };
        if !is_covered && !seen.contains(&key) {
            warn_of_host(&host.value, host.place, mistakes);
            seen.push(key);
        }
    }
}

fn warn_of_host(host: &str, place: Place, mistakes: &mut Mistakes) {
    mistakes.warn(place, format!("no certificate has the name `{host}`: its clients get another one, and refuse it"));
}

/// Whether a name of a certificate and a host of a route have a name in common. Both may begin with `*.`: one label in a
/// certificate, any number in a route.
fn may_meet(name: &str, host: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match (name.strip_prefix("*."), host.strip_prefix("*.")) {
        (None, None) => name == host,
        (None, Some(domain)) => is_below(&name, domain),
        (Some(parent), None) => host.split_once('.').is_some_and(|(_, rest)| rest == parent),
        (Some(parent), Some(domain)) => parent == domain || is_below(parent, domain),
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_meet_hosts_of_routes() {
        for (name, host, expected) in [
            ("sea.example", "sea.example", true),
            ("a.sea.example", "*.sea.example", true),
            ("a.b.sea.example", "*.sea.example", true),
            ("sea.example", "*.sea.example", false),
            ("*.sea.example", "a.sea.example", true),
            ("*.sea.example", "a.b.sea.example", false),
            ("*.sea.example", "sea.example", false),
            ("*.sea.example", "*.sea.example", true),
            ("*.a.sea.example", "*.sea.example", true),
            ("*.sea.example", "*.a.sea.example", false),
            ("xsea.example", "*.sea.example", false),
        ] {
            assert_eq!(may_meet(name, host), expected, "{name} {host}");
        }
    }

    #[test]
    fn conditions_cover_stricter_ones() {
        let conditions = |methods: &[&str], headers: &[(&str, Wanted)], client: &[&str]| Conditions {
            methods: methods.iter().map(|name| (*name).to_owned()).collect(),
            headers: headers.iter().map(|(name, wanted)| ((*name).to_owned(), wanted.clone())).collect(),
            query: Vec::new(),
            client: client.iter().map(|network| network.parse().unwrap()).collect(),
        };
        let value = || Wanted::Value("1".into());
        let cases = [
            (conditions(&["GET", "POST"], &[], &[]), conditions(&["HEAD"], &[], &[]), true),
            (conditions(&["GET"], &[], &[]), conditions(&[], &[], &[]), false),
            (conditions(&[], &[("x-a", Wanted::Present)], &[]), conditions(&["GET"], &[("X-A", value())], &[]), true),
            (conditions(&[], &[("X-A", value())], &[]), conditions(&[], &[("X-A", Wanted::Present)], &[]), false),
            (conditions(&[], &[("X-A", Wanted::Absent)], &[]), conditions(&[], &[("X-A", value())], &[]), false),
            (conditions(&[], &[], &["10.0.0.0/8"]), conditions(&["PUT"], &[], &["10.1.0.0/16"]), true),
            (conditions(&[], &[], &["10.1.0.0/16"]), conditions(&[], &[], &["10.0.0.0/8"]), false),
        ];
        for (one, other, expected) in cases {
            assert_eq!(covers(&one, &other), expected, "{one:?} {other:?}");
        }
    }
}
