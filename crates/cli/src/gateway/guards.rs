//! The middleware of a route: its parts that all loops share, and those of each loop.

use std::error::Error;
use std::rc::Rc;

use tidegate::http::auth::{ForwardAuth, Jwt};
use tidegate::http::cache::Cache;
use tidegate::http::proxy::RateLimit;
use tidegate::http::{
    AsyncMiddleware, BasicAuth, ConcurrencyLimit, NetworkRules, Passwords, PasswordsError, SecurityFields,
    SharedRateLimit, TrustedProxies, WithMiddleware, Wrapper,
};
use tidegate::proxy_protocol::Networks;
use tidegate::{ConnectionRate, IpNet};

use super::rate_stores::RateStores;
use crate::config::{Action, CacheRule, JwtRule, Route};

/// The middleware of a route that all loops share.
pub(super) struct Guards {
    networks: Option<NetworkRules>,
    rate: Option<RateLimit>,
    shared_rate: Option<SharedRateLimit>,
    concurrency: Option<ConcurrencyLimit>,
    /// Wrong passwords of each address, on all loops together.
    guesses: RateLimit,
    /// Users whose passwords are hashes.
    passwords: Option<Passwords>,
    jwt: Option<Jwt>,
    forward: Option<ForwardAuth>,
    pub(super) cache: Option<Cache>,
}

impl Guards {
    /// Those of a route. They keep the rates and the stored responses of `before`, as far as its settings are the same, and the
    /// count of requests in progress.
    pub(super) fn new(
        route: &Route,
        before: Option<(&Route, &Self)>,
        stores: &mut RateStores,
    ) -> Result<Self, Box<dyn Error>> {
        let rules = &route.guards;
        let trusted = trusted(route);
        let with_same_proxies = before.filter(|(other, _)| other.proxying.trusted == route.proxying.trusted);
        let (rate, shared_rate) = match with_same_proxies.filter(|(other, _)| counts_the_same(other, route)) {
            Some((_, guards)) => (guards.rate.clone(), guards.shared_rate.clone()),
            None => rates(route, &trusted, stores)?,
        };
        let concurrency =
            rules.concurrency.map(|count| match before.and_then(|(_, guards)| guards.concurrency.as_ref()) {
                Some(limit) => limit.with_requests_max(count),
                None => ConcurrencyLimit::new(count),
            });
        let kept_cache = before.filter(|(other, _)| stores_the_same(other, route));
        let cache = match (kept_cache.and_then(|(_, guards)| guards.cache.clone()), &rules.cache) {
            (Some(cache), _) => Some(cache),
            (None, rule) => rule.as_ref().map(CacheRule::open).transpose()?,
        };
        let limit = |route: &Route| route.basic_auth.as_ref().and_then(|auth| auth.guesses);
        let kept_guesses = with_same_proxies.filter(|(other, _)| limit(other) == limit(route));
        let new_guesses = || {
            let rate = limit(route).unwrap_or_else(|| ConnectionRate::per_second(1).burst(20));
            RateLimit::new(rate).trusted(trusted.clone())
        };
        let guesses = kept_guesses.map_or_else(new_guesses, |(_, guards)| guards.guesses.clone());
        let hashes = |route: &Route| route.basic_auth.as_ref().map(|auth| auth.hashes.clone());
        let passwords = match kept_guesses.filter(|(other, _)| hashes(other) == hashes(route)) {
            Some((_, guards)) => guards.passwords.clone(),
            None => passwords(route, &guesses)?,
        };
        let forward = route.forward_auth.as_ref().map(|rule| rule.build(&trusted)).transpose();
        let forward = forward.map_err(|(_, error)| format!("forward-auth: {error}"))?;
        let jwt = route.jwt.as_ref().map(JwtRule::build).transpose().map_err(|(_, error)| format!("jwt: {error}"))?;
        let networks = network_rules(route, &trusted);
        Ok(Self { networks, rate, shared_rate, concurrency, guesses, passwords, jwt, forward, cache })
    }

    /// The async middleware of one loop, in its order. All paths and hosts of the route share it.
    pub(super) fn of_loop(&self) -> Vec<Wrapper> {
        let jwt = self.jwt.as_ref();
        let jwt = jwt.map(|jwt| AsyncMiddleware::<(), _>::into_wrapper(jwt.require(), Rc::new(())));
        let forward = self.forward.as_ref();
        let forward = forward.map(|forward| AsyncMiddleware::<(), _>::into_wrapper(forward.require(), Rc::new(())));
        jwt.into_iter().chain(forward).collect()
    }

    /// Takes over the keys and verified tokens of the same rule in a configuration before this one, so that a reload while
    /// an issuer does not answer refuses nobody.
    pub(super) fn adopt(&mut self, route: &Route, before: &Self, route_before: &Route) -> bool {
        let is_like = match (&route.jwt, &route_before.jwt) {
            (Some(rule), Some(rule_before)) => rule.is_like(rule_before),
            _ => false,
        };
        if is_like {
            self.jwt.clone_from(&before.jwt);
        }
        is_like
    }

    /// Puts the middleware around a function of the route, the async ones closest to it.
    pub(super) fn around<F>(
        &self,
        mut function: WithMiddleware<F>,
        route: &Route,
        wrappers: &[Wrapper],
    ) -> WithMiddleware<F> {
        if route.guards.security_headers {
            function = function.with(SecurityFields::new());
        }
        if let Some(cors) = route.cors.as_ref().and_then(|rule| rule.cors.clone()) {
            function = function.with(cors);
        }
        if let Some(networks) = &self.networks {
            function = function.with(networks.clone());
        }
        if let Some(rate) = &self.rate {
            function = function.with(rate.clone());
        }
        if let Some(concurrency) = &self.concurrency {
            function = function.with(concurrency.clone());
        }
        if let (Some(passwords), Some(auth)) = (&self.passwords, &route.basic_auth) {
            function = function.wrap(passwords.require(&auth.realm));
        } else if let Some(auth) = &route.basic_auth {
            let users = auth.users.iter();
            let none = BasicAuth::new(&auth.realm).guesses(self.guesses.clone());
            let auth = users.fold(none, |all, (name, password)| all.user(name, password));
            function = function.with(auth);
        }
        if let Some(rate) = &self.shared_rate {
            function = function.wrap(rate.clone());
        }
        wrappers.iter().cloned().fold(function, WithMiddleware::wrap)
    }
}

/// The networks that may use a route.
fn network_rules(route: &Route, trusted: &TrustedProxies) -> Option<NetworkRules> {
    let rules = &route.guards;
    let has_rules = rules.allow.is_some() || !rules.deny.is_empty();
    has_rules.then(|| {
        let denied = NetworkRules::new().trusted(trusted.clone()).deny(networks(&rules.deny));
        match &rules.allow {
            Some(allow) => denied.allow(networks(allow)).deny_others(),
            None => denied,
        }
    })
}

/// How often a client may ask: counted here, or by several gateways together.
fn rates(
    route: &Route,
    trusted: &TrustedProxies,
    stores: &mut RateStores,
) -> Result<(Option<RateLimit>, Option<SharedRateLimit>), Box<dyn Error>> {
    let Some(rule) = &route.guards.rate else { return Ok((None, None)) };
    let Some(given) = rule.rate else { return Ok((None, None)) };
    let limit = RateLimit::new(given).key(route.guards.rate_by.clone()).trusted(trusted.clone());
    Ok(match &rule.shared {
        Some(server) => (None, Some(stores.share(server, limit, rule, route)?)),
        None => (Some(limit), None),
    })
}

/// Whether the rates of both routes count the same requests.
fn counts_the_same(one: &Route, other: &Route) -> bool {
    one.guards.rate == other.guards.rate && one.guards.rate_by == other.guards.rate_by
}

/// Users whose passwords are hashes, if the route has some.
fn passwords(route: &Route, guesses: &RateLimit) -> Result<Option<Passwords>, PasswordsError> {
    let Some(auth) = route.basic_auth.as_ref().filter(|auth| !auth.hashes.is_empty()) else { return Ok(None) };
    Ok(Some(Passwords::parse(&auth.hashes)?.guesses(guesses.clone())))
}

/// Whether a cache has the same responses for both routes, as far as their settings go.
fn stores_the_same(one: &Route, other: &Route) -> bool {
    let upstream = |route: &Route| match &route.action {
        Some(Action::Upstream(name)) => Some(name.value.clone()),
        _ => None,
    };
    one.guards.cache == other.guards.cache && upstream(one) == upstream(other) && one.proxying == other.proxying
}

/// The proxies in front of a route.
pub(super) fn trusted(route: &Route) -> TrustedProxies {
    TrustedProxies::new(networks(route.proxying.trusted.as_deref().unwrap_or_default()))
}

/// Networks as a set.
pub(super) fn networks(networks: &[IpNet]) -> Networks {
    networks.iter().fold(Networks::default(), |all, one| all.and(one.addr(), one.prefix_len()))
}
