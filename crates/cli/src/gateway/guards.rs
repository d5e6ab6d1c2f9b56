//! The middleware of a route: its parts that all loops share, and those of each loop.

use std::collections::HashMap;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::auth::{ForwardAuth, Jwt};
use tidegate::http::cache::Cache;
use tidegate::http::proxy::RateLimit;
use tidegate::http::{
    AsyncMiddleware, BasicAuth, ConcurrencyLimit, NetworkRules, RedisRateStore, SecurityFields, SharedRateLimit,
    TrustedProxies, WithMiddleware, Wrapper,
};
use tidegate::proxy_protocol::Networks;
use tidegate::{ConnectionRate, IpNet, redis};

use crate::config::{JwtRule, RateRule, Route};

/// The middleware of a route that all loops share.
pub(super) struct Guards {
    networks: Option<NetworkRules>,
    rate: Option<RateLimit>,
    shared_rate: Option<SharedRateLimit>,
    concurrency: Option<ConcurrencyLimit>,
    /// Wrong passwords of each address, on all loops together.
    guesses: RateLimit,
    jwt: Option<Jwt>,
    forward: Option<ForwardAuth>,
    pub(super) cache: Option<Cache>,
}

impl Guards {
    pub(super) fn new(route: &Route, stores: &mut RateStores) -> Result<Self, Box<dyn Error>> {
        let rules = &route.guards;
        let trusted = TrustedProxies::new(networks(&route.proxying.trusted));
        let has_networks = rules.allow.is_some() || !rules.deny.is_empty();
        let networks = has_networks.then(|| {
            let denied = NetworkRules::new().trusted(trusted.clone()).deny(networks(&rules.deny));
            match &rules.allow {
                Some(allow) => denied.allow(networks(allow)).deny_others(),
                None => denied,
            }
        });
        let (mut rate, mut shared_rate) = (None, None);
        if let Some(rule) = &rules.rate
            && let Some(given) = rule.rate
        {
            let limit = RateLimit::new(given).key(rules.rate_by.clone()).trusted(trusted.clone());
            match &rule.shared {
                Some(url) => shared_rate = Some(stores.share(url, limit, rule, route)?),
                None => rate = Some(limit),
            }
        }
        let cache = if rules.cache { Some(Cache::builder().build()?) } else { None };
        let concurrency = rules.concurrency.map(ConcurrencyLimit::new);
        let guesses = RateLimit::new(ConnectionRate::per_second(1).burst(20)).trusted(trusted.clone());
        let forward = route.forward_auth.as_ref().map(|rule| rule.build(&trusted)).transpose();
        let forward = forward.map_err(|(_, error)| format!("forward-auth: {error}"))?;
        let jwt = route.jwt.as_ref().map(JwtRule::build).transpose().map_err(|(_, error)| format!("jwt: {error}"))?;
        Ok(Self { networks, rate, shared_rate, concurrency, guesses, jwt, forward, cache })
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
        if let Some(networks) = &self.networks {
            function = function.with(networks.clone());
        }
        if let Some(rate) = &self.rate {
            function = function.with(rate.clone());
        }
        if let Some(concurrency) = &self.concurrency {
            function = function.with(concurrency.clone());
        }
        if let Some(auth) = &route.basic_auth {
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

/// The clients of Redis servers where gateways share counts, by their URLs.
#[derive(Default)]
pub(super) struct RateStores(HashMap<String, redis::Client>);

impl RateStores {
    /// A limit whose counts are in Redis, under the name of the rule or the route.
    fn share(
        &mut self,
        url: &str,
        limit: RateLimit,
        rule: &RateRule,
        route: &Route,
    ) -> Result<SharedRateLimit, Box<dyn Error>> {
        let client = match self.0.get(url) {
            Some(client) => client.clone(),
            None => {
                let client = redis::Client::url(url)?.name("tidegate").timeout(REDIS_TIMEOUT).spawn()?;
                self.0.insert(url.to_owned(), client.clone());
                client
            }
        };
        let hosts = || route.hosts.iter().map(|host| &*host.value).collect::<Vec<_>>().join(" ");
        let of_route = || format!("{} {}", hosts(), route.path.value.patterns().join(" "));
        let name = rule.name.clone().unwrap_or_else(of_route);
        let limit = limit.shared(&name, RedisRateStore::new(client));
        Ok(if rule.is_closed { limit.fail_closed() } else { limit })
    }
}

/// Networks as a set.
pub(super) fn networks(networks: &[IpNet]) -> Networks {
    networks.iter().fold(Networks::default(), |all, one| all.and(one.addr(), one.prefix_len()))
}

/// A command of a request that has given up long before is not sent any more.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);
