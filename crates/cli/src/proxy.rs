//! The flags of `proxy`, as a configuration: one group of upstreams, which gets all requests.

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate::http::proxy::{Balance, UpstreamUrl};

use crate::access_log::AccessLogFormat;
use crate::config::{Action, Check, Config, Located, ProxyRules, Route, SlashRule, Upstream, UpstreamServer};
use crate::gateway::{self, Source};
use crate::server::ServerOptions;

/// The flags of `proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyOptions {
    #[command(flatten)]
    server: ServerOptions,
    /// Server to pass requests on to, may be repeated: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT,
    /// https+h3://HOST:PORT (HTTP/3), unix:PATH, unix+h2c:PATH, or srv://SERVICE for the SRV records of a name. Each address of a name is used
    #[arg(long, value_name = "URL", required_unless_present = "config", conflicts_with = "config")]
    upstream: Vec<UpstreamUrl>,
    /// With --upstream: which of them gets a request
    #[arg(long, value_name = "NAME", value_enum, default_value = "round-robin", conflicts_with = "config")]
    balance: BalanceName,
    /// With --upstream: certificates (PEM) that vouch for https upstreams [default: those that the system trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    upstream_ca: Option<PathBuf>,
    /// With --upstream: begin connections to them with a PROXY header that names the client
    #[arg(long, conflicts_with = "config")]
    upstream_proxy_protocol: bool,
    /// With --upstream: check them by a GET for PATH
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    health_path: Option<String>,
    /// With --upstream: log a line for each request: off, common, combined, json, opentelemetry, or a text with fields such as
    /// '{client.ip} {response.status} {upstream.address}'
    #[arg(long, value_name = "FORMAT", default_value = "off", conflicts_with = "config")]
    access_log: AccessLogFormat,
    /// With --upstream: paths with //, %2F, %5C or a backslash, which servers read in different ways: merge and keep pass
    /// them on as they came, refuse answers with 400
    #[arg(long, value_name = "RULE", value_enum, default_value = "merge", conflicts_with = "config")]
    slashes: SlashRule,
    /// With --upstream: protocol that requests may switch to, may be repeated: websocket, connect-udp and connect-ip over all HTTP
    /// versions, others over HTTP/1.1 alone [default: websocket]
    #[arg(long, value_name = "PROTOCOL", conflicts_with = "config")]
    upgrade: Vec<String>,
    /// Run FILE, as `tidegate run` does: a file without [[listen]] gets the listener of the flags
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Which server of several gets a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BalanceName {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest requests in progress.
    LeastConnections,
    /// The same one for the same client.
    ConsistentHash,
}

/// Passes requests on until SIGTERM, Ctrl-C or a takeover by another server, then drains.
pub(crate) fn run(options: ProxyOptions) -> Result<(), Box<dyn Error>> {
    let listen = options.server.as_listen()?;
    if let Some(path) = options.config {
        return gateway::run(Source::File(path, Some(Box::new(listen))), options.server.process);
    }
    let mut config = options.flags_as_config()?;
    config.listen.push(listen);
    let read = move || Ok(config.clone());
    gateway::run(Source::Flags(Box::new(read)), options.server.process)
}

impl ProxyOptions {
    fn flags_as_config(&self) -> Result<Config, String> {
        let name = Located::of_flag("--upstream".to_owned());
        if let Some(path) = &self.health_path {
            tidegate::http1::Request::get(path).map_err(|error| format!("`{path}`: {error}"))?;
        }
        if let Some(ca) = &self.upstream_ca {
            std::fs::metadata(ca).map_err(|error| format!("`{}`: {error}", ca.display()))?;
        }
        let servers = self.upstream.iter().map(|url| UpstreamServer { url: url.clone(), weight: 1 });
        let upstream = Upstream {
            name: name.clone(),
            servers: servers.collect(),
            balance: match self.balance {
                BalanceName::RoundRobin => Balance::RoundRobin,
                BalanceName::LeastConnections => Balance::LeastConnections,
                BalanceName::ConsistentHash => Balance::ConsistentHash,
            },
            send_proxy: self.upstream_proxy_protocol,
            ca: self.upstream_ca.clone().map(Located::of_flag),
            health_check: self.health_path.clone().map(|path| Check { path: Some(path), ..Check::default() }),
            ..Upstream::default()
        };
        let upgrades = (!self.upgrade.is_empty()).then(|| self.upgrade.clone());
        let proxying = ProxyRules { upgrades, ..ProxyRules::default() };
        Ok(Config {
            access_log: self.access_log.clone(),
            slashes: self.slashes,
            upstreams: vec![upstream],
            routes: vec![Route { action: Some(Action::Upstream(name)), proxying, ..Route::default() }],
            ..Config::default()
        })
    }
}
