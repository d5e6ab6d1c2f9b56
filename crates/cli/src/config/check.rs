//! Rules between tables: names, places that two routes have, routes that nothing reaches; and `host_plan`, the paths that
//! routers have for routes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::mistakes::{Mistakes, Place};
use super::model::{Action, Conditions, Route};
use super::reach;
use super::{Config, Forwards, Listen, PathRule, RedirectHttps, forwarding, host_key};

impl Config {
    /// Checks the rules between tables.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        forwarding::check(self, mistakes);
        self.check_names(mistakes);
        self.check_addresses(mistakes);
        let needs_routes = self.listen.is_empty() || self.listen.iter().any(|listen| listen.forwards.is_none());
        if self.routes.is_empty() && needs_routes && !self.redirects_all() && !mistakes.has_errors() {
            mistakes.add(None, "there is no [[route]] and no [[site]]");
        }
        self.check_hosts(mistakes);
        self.check_paths(mistakes);
        self.check_caches(mistakes);
        self.check_udp_proxies(mistakes);
        self.check_folders(mistakes);
        reach::check_listeners(self, mistakes);
    }

    /// A cache is shared, and behind authentication: a response for one user would be that of the next one.
    fn check_caches(&self, mistakes: &mut Mistakes) {
        for route in self.routes.iter().filter(|route| route.guards.cache.is_some() && route.has_users()) {
            mistakes.warn(
                route.place,
                "the users of this route share its `cache`: its upstream has to mark what is for one user as `private`",
            );
        }
    }

    /// An open proxy: any client sends datagrams from the address of this machine.
    fn check_udp_proxies(&self, mistakes: &mut Mistakes) {
        let has_certificates = |listen: &Listen| listen.forwards.is_some() || listen.client_ca.is_some();
        if !self.listen.is_empty() && self.listen.iter().all(has_certificates) {
            return;
        }
        for route in &self.routes {
            let Some(Action::ConnectUdp(rule)) = &route.action else { continue };
            if rule.has_all_clients() && !route.has_users() && !route.is_for_some_networks() {
                mistakes.warn(
                    route.place,
                    "`connect-udp` has clients of all networks, and they need no password: any of them sends datagrams to any \
                     target from the address of this machine. Set `basic-auth`, `jwt`, `forward-auth`, or `client-ca` of the \
                     listeners, or name the networks in `clients`",
                );
            }
        }
    }

    /// Two caches in one folder would remove each other's files.
    fn check_folders(&self, mistakes: &mut Mistakes) {
        let mut folders = HashSet::new();
        let folder = |route: &Route| route.guards.cache.as_ref().and_then(|cache| cache.folder.clone());
        for folder in self.routes.iter().filter_map(folder) {
            // A route of a site may be there several times, each with its own hosts; a folder that is not there has one name.
            let identity = folder.value.canonicalize().unwrap_or_else(|_| folder.value.clone());
            if !folders.insert(identity) {
                let text = format!("another cache keeps its responses in `{}`", folder.value.display());
                mistakes.add(folder.place, text);
            }
        }
    }

    /// Whether each listener redirects to https, so that no route is needed.
    pub(super) fn redirects_all(&self) -> bool {
        !self.listen.is_empty() && self.listen.iter().all(|listen| listen.redirect_https.is_some())
    }

    fn check_names(&self, mistakes: &mut Mistakes) {
        let mut names: HashMap<&str, bool> = HashMap::new();
        for upstream in &self.upstreams {
            let name = &upstream.name;
            if names.insert(&name.value, false).is_some() {
                mistakes.add(name.place, format!("a second upstream with the name `{}`", name.value));
            }
        }
        let of_action = |route: &'_ Route| match &route.action {
            Some(Action::Upstream(wanted)) => Some(wanted.clone()),
            _ => None,
        };
        let of_listeners = self.listen.iter().flat_map(|listen| listen.upstreams().cloned());
        let of_mirror = |route: &Route| route.proxying.mirror.as_ref().map(|mirror| mirror.upstream.clone());
        let of_routes = self.routes.iter().flat_map(|route| of_action(route).into_iter().chain(of_mirror(route)));
        for wanted in of_routes.chain(of_listeners) {
            if wanted.value.is_empty() {
                continue;
            }
            match names.get_mut(&*wanted.value) {
                Some(is_used) => *is_used = true,
                None => {
                    let meant = super::keys::nearest(&wanted.value, names.keys().copied());
                    let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                    mistakes
                        .add(wanted.place, format!("there is no [[upstream]] with the name `{}`{meant}", wanted.value));
                }
            }
        }
        for upstream in &self.upstreams {
            if names.get(&*upstream.name.value) == Some(&false) {
                mistakes.warn(
                    upstream.name.place,
                    format!("no route uses the upstream `{}`, and no listener", upstream.name.value),
                );
            }
        }
    }

    fn check_addresses(&self, mistakes: &mut Mistakes) {
        let mut addresses = HashSet::new();
        let (mut has_https, mut has_http) = (false, false);
        for listen in &self.listen {
            has_https |= listen.is_https;
            has_http |= !listen.is_https && listen.forwards.is_none();
            for address in &listen.addresses {
                let has_port = address.value.ip().is_none_or(|ip| ip.port() > 0);
                let is_udp = listen.forwards == Some(Forwards::Udp);
                if has_port && !addresses.insert((is_udp, address.value.to_string())) {
                    mistakes.add(address.place, format!("a second listener at {}", address.value));
                }
            }
        }
        for acme in self.listen.iter().filter_map(|listen| listen.acme.as_ref()) {
            if acme.has_http01() && !has_http {
                mistakes.add(acme.place, "the challenge `http-01` needs an http listener");
            }
        }
        for listen in self.listen.iter().filter(|listen| listen.redirect_https == Some(RedirectHttps::First)) {
            if !has_https {
                mistakes.add(listen.place, "`redirect-https` needs an https listener, or the number of a port");
            }
        }
    }

    /// Each host as it was written first: two spellings of one are no mistake, and no host is below another by chance.
    fn check_hosts(&self, mistakes: &mut Mistakes) {
        let mut wildcards: HashMap<String, Place> = HashMap::new();
        let hosts = || self.routes.iter().flat_map(|route| &route.hosts);
        for host in hosts() {
            let key = host_key(&host.value);
            if let Some(domain) = key.strip_prefix("*.") {
                wildcards.entry(domain.to_owned()).or_insert(host.place);
            }
        }
        let mut seen = HashSet::new();
        for host in hosts() {
            let key = host_key(&host.value);
            let name = key.strip_prefix("*.").unwrap_or(&key);
            let mut above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
            let wider = above.find(|domain| wildcards.contains_key(*domain));
            if let Some(domain) = wider
                && seen.insert(key.clone())
            {
                let text = format!("requests for `{}` get none of the routes of `*.{domain}`", host.value);
                mistakes.warn(host.place, text);
            }
        }
    }

    /// Two routes for the same requests, patterns that exclude each other, and routes that nothing reaches.
    fn check_paths(&self, mistakes: &mut Mistakes) {
        for (_, routes) in by_host(&self.routes) {
            let mut patterns = matchit::Router::new();
            let mut places: HashMap<&PathRule, ConditionsBefore<'_>> = HashMap::new();
            for &number in &routes {
                let route = &self.routes[number];
                let others = places.entry(&route.path.value).or_default();
                if others.all.contains(&Conditions::default()) {
                    if route.conditions.is_empty() {
                        mistakes.add(route.place, "a second route for the same host and path");
                    }
                } else if others.all.is_empty() {
                    // As a router will have it.
                    let pattern = match &route.path.value {
                        PathRule::Exact(pattern) => pattern.clone(),
                        PathRule::Prefix(prefix) => format!("{prefix}/{{*rest}}"),
                    };
                    if route.path.value != PathRule::ALL
                        && let Err(error) = patterns.insert(pattern.clone(), ())
                    {
                        mistakes.add(route.path.place, format!("`{pattern}`: {error}"));
                    }
                }
                let conditions = &route.conditions;
                let is_covered = !conditions.is_empty()
                    && (others.all.contains(conditions)
                        || others.first.iter().any(|other| reach::covers(other, conditions)));
                if is_covered {
                    let text = "nothing reaches this route: one before it, for the same path, takes all its requests";
                    mistakes.warn(route.place, text);
                }
                others.add(conditions);
            }
        }
    }
}

/// The conditions of the routes before one, for the same path. A path may have thousands.
#[derive(Default)]
struct ConditionsBefore<'a> {
    all: HashSet<&'a Conditions>,
    /// The first ones that are not empty, which are compared one by one.
    first: Vec<&'a Conditions>,
}

impl<'a> ConditionsBefore<'a> {
    fn add(&mut self, conditions: &'a Conditions) {
        if self.all.insert(conditions) && !conditions.is_empty() && self.first.len() < COMPARED_MAX {
            self.first.push(conditions);
        }
    }
}

/// Conditions of one path that are compared with those of each route behind them.
const COMPARED_MAX: usize = 100;

/// The routes of each host, by its key; that of the routes without hosts is empty.
fn by_host(routes: &[Route]) -> BTreeMap<String, Vec<usize>> {
    let mut hosts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, route) in routes.iter().enumerate() {
        let keys: HashSet<_> = route.hosts.iter().map(|host| host_key(&host.value)).collect();
        if keys.is_empty() {
            hosts.entry(String::new()).or_default().push(number);
        }
        for key in keys {
            hosts.entry(key).or_default().push(number);
        }
    }
    hosts
}

/// The paths of a host as a router takes them, sorted, each with its routes; the path of the fallback is empty.
pub(crate) type PathPlan = Vec<(String, Vec<usize>)>;

/// For each host, by its key, its paths.
pub(crate) fn host_plan(routes: &[Route]) -> Vec<(String, PathPlan)> {
    let plan = |numbers: &[usize]| {
        let mut plan: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for &number in numbers {
            for path in routes[number].path.value.patterns() {
                plan.entry(path).or_default().push(number);
            }
        }
        plan.into_iter().map(|(path, numbers)| (path, in_turn(routes, numbers))).collect()
    };
    by_host(routes).into_iter().map(|(host, numbers)| (host, plan(&numbers))).collect()
}

/// The routes of one path: one without conditions has the requests that the others leave. That of an exact path comes
/// before that of a prefix.
fn in_turn(routes: &[Route], numbers: Vec<usize>) -> Vec<usize> {
    let (mut last, mut others): (Vec<_>, Vec<_>) =
        numbers.into_iter().partition(|number| routes[*number].conditions.is_empty());
    let is_prefix = |number: &usize| routes[*number].path.value.prefix().is_some();
    last.sort_by_key(is_prefix);
    others.sort_by_key(is_prefix);
    if last.first().is_some_and(|number| !is_prefix(number)) {
        others.retain(|number| !is_prefix(number));
    }
    others.extend(last.into_iter().take(1));
    others
}
