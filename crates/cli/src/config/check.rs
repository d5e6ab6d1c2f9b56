//! Rules between tables: names, places that two routes have, routes that nothing reaches; and `host_plan`, the paths that
//! routers have for routes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::mistakes::{Mistakes, Place};
use super::model::{Action, Conditions, Route};
use super::{Config, PathRule, RedirectHttps, host_key};

impl Config {
    /// Checks the rules between tables.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        self.check_names(mistakes);
        self.check_addresses(mistakes);
        if self.routes.is_empty() && !self.redirects_all() && !mistakes.has_errors() {
            mistakes.add(None, "there is no [[route]] and no [[site]]");
        }
        self.check_hosts(mistakes);
        self.check_paths(mistakes);
        self.check_caches(mistakes);
    }

    /// A cache is shared, and behind authentication: a response for one user would be that of the next one.
    fn check_caches(&self, mistakes: &mut Mistakes) {
        let has_users =
            |route: &&Route| route.jwt.is_some() || route.forward_auth.is_some() || route.basic_auth.is_some();
        for route in self.routes.iter().filter(|route| route.guards.cache).filter(has_users) {
            mistakes.warn(
                route.place,
                "the users of this route share its `cache`: its upstream has to mark what is for one user as `private`",
            );
        }
    }

    /// Whether each listener redirects to https, so that no route is needed.
    fn redirects_all(&self) -> bool {
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
        for route in &self.routes {
            let Some(Action::Upstream(wanted)) = &route.action else { continue };
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
                mistakes.warn(upstream.name.place, format!("no route uses the upstream `{}`", upstream.name.value));
            }
        }
    }

    fn check_addresses(&self, mistakes: &mut Mistakes) {
        let mut addresses = HashSet::new();
        let mut has_https = false;
        for listen in &self.listen {
            has_https |= listen.is_https;
            for address in &listen.addresses {
                let has_port = address.value.ip().is_none_or(|ip| ip.port() > 0);
                if has_port && !addresses.insert(address.value.to_string()) {
                    mistakes.add(address.place, format!("a second listener at {}", address.value));
                }
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
            // The conditions of the routes before, without a search: a path may have thousands.
            let mut places: HashMap<&PathRule, HashSet<&Conditions>> = HashMap::new();
            for &number in &routes {
                let route = &self.routes[number];
                let others = places.entry(&route.path.value).or_default();
                if others.contains(&Conditions::default()) {
                    if route.conditions.is_empty() {
                        mistakes.add(route.place, "a second route for the same host and path");
                    }
                } else if others.is_empty() {
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
                if !others.insert(&route.conditions) && !route.conditions.is_empty() {
                    mistakes
                        .warn(route.place, "nothing reaches this route: another one before it has the same conditions");
                }
            }
        }
    }
}

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
