//! `RateStores`: the clients of Redis servers where gateways share the counts of rates.

use std::error::Error;
use std::time::Duration;

use tidegate::codec::Over;
use tidegate::http::proxy::RateLimit;
use tidegate::http::{RedisRateStore, SharedRateLimit};
use tidegate::redis::{Client, ClientCodec};
use tidegate::tls::{ClientConfig, Provider};

use crate::config::{RateRule, RedisServer, Route};

/// The clients of a configuration, one for each server.
#[derive(Default)]
pub(super) struct RateStores(Vec<(RedisServer, Client)>);

impl RateStores {
    /// A limit whose counts are in Redis, under the name of the rule or the route.
    pub(super) fn share(
        &mut self,
        server: &RedisServer,
        limit: RateLimit,
        rule: &RateRule,
        route: &Route,
    ) -> Result<SharedRateLimit, Box<dyn Error>> {
        let client = match self.0.iter().find(|(known, _)| known == server) {
            Some((_, client)) => client.clone(),
            None => {
                let client = start(server)?;
                self.0.push((server.clone(), client.clone()));
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

/// A client on a loop of its own, which connects when a command needs it.
fn start(server: &RedisServer) -> Result<Client, Box<dyn Error>> {
    let (builder, tls_name) = server.client().ok_or("`shared` is no URL of Redis")?;
    let builder = builder.name("tidegate").timeout(COMMAND_TIMEOUT);
    let Some(name) = tls_name else { return Ok(builder.spawn()?) };
    let provider = Provider::aws_lc_rs();
    let tls = match &server.ca {
        Some(path) => ClientConfig::builder_with_root_file(&provider, path)?,
        None => ClientConfig::builder_with_platform_roots(&provider)?,
    };
    let tls = tls.build()?;
    tls.connect(&name)?;
    let pipeline = move || Over::new(tls.connect(&name).expect("the name was accepted above"), ClientCodec::default());
    Ok(builder.spawn_with(pipeline)?)
}

/// A command of a request that has given up long before is not sent any more.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
