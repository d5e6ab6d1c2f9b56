//! The flags of `proxy`.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use tidegate::http::LineLog;
use toml::Spanned;

use super::config::{BalanceName, Config, Route, SlashRule, UpstreamGroup, UpstreamServer};
use super::routes::{Routes, Source};
use crate::access_log::AccessLogFormat;
use crate::server::ServerOptions;

/// The flags of `proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyOptions {
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// Server to pass requests on to, may be repeated: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, unix:PATH or
    /// unix+h2c:PATH. Each address of a name is used
    #[arg(long, value_name = "URL", required_unless_present = "config", conflicts_with = "config")]
    upstream: Vec<tidegate::http::proxy::UpstreamUrl>,
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
    /// With --upstream: log a line for each request: off, common, combined, json, or a text with fields such as
    /// '{client.ip} {response.status} {upstream.address}'
    #[arg(long, value_name = "FORMAT", default_value = "off", conflicts_with = "config")]
    access_log: AccessLogFormat,
    /// With --upstream: paths with //, %2F, %5C or a backslash, which servers read in different ways: merge and keep pass
    /// them on as they came, refuse answers with 400
    #[arg(long, value_name = "RULE", value_enum, default_value = "merge", conflicts_with = "config")]
    slashes: SlashRule,
    /// Upstreams and routes of FILE (TOML): an [[upstream]] has a name and servers, a [[route]] an upstream, hosts and a
    /// path. SIGHUP reads it again; a file with a mistake changes nothing
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ProxyOptions {
    pub(super) fn routes(&self, access_log: &LineLog) -> Result<Routes, Box<dyn Error>> {
        if let Some(path) = self.config.clone() {
            return Routes::new(Source::File(path), access_log);
        }
        Routes::new(Source::Flags(self.flags_as_config()), access_log)
    }

    fn flags_as_config(&self) -> Config {
        let server = |url: &tidegate::http::proxy::UpstreamUrl| unspanned(UpstreamServer::Url(url.to_string()));
        let upstream = UpstreamGroup {
            balance: self.balance,
            send_proxy: self.upstream_proxy_protocol,
            ca: self.upstream_ca.clone().map(unspanned),
            health_check: self.health_path.clone().map(|path| unspanned(super::config::Check::of_path(path))),
            ..UpstreamGroup::new(unspanned(FLAGS.into()), self.upstream.iter().map(server).collect())
        };
        Config {
            access_log: self.access_log.clone(),
            slashes: self.slashes,
            upstream: vec![unspanned(upstream)],
            route: vec![unspanned(Route::to(unspanned(FLAGS.into())))],
        }
    }
}

/// The name of the upstreams of flags.
const FLAGS: &str = "--upstream";

/// A value that comes from no file.
fn unspanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
