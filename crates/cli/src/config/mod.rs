//! The configuration file of the program: one format for `run`, `serve --config`, `proxy --config` and `check-config`.
//!
//! `source.rs` reads the files and their includes, `value.rs` and `environment.rs` make values of them. `keys.rs` says
//! how a table describes its keys; `reader.rs` reads by these descriptions, and `schema.rs` and `reference.rs` write the
//! JSON schema and the table for readers from them. The tables: `listen.rs`, `upstream.rs`, `route.rs` with
//! `proxying.rs`, `mirror.rs`, `rewriting.rs`, `guards.rs`, `rate.rs`, `cors.rs`, `caching.rs`, `sticky.rs`, `auth.rs`,
//! `connect_udp.rs` and `files.rs`, with `forwarding.rs` for listeners below HTTP, and here the file itself with `request_ids.rs` and `telemetry.rs`; `model.rs` and `path_rule.rs` have the types of a route.
//! `check.rs` has the rules between tables, `reach.rs` warnings about parts that nothing reaches. `mistakes.rs` collects all
//! mistakes. `gateway/` runs a configuration.
//!
//! A new key is one entry in the `KEYS` of its table.

mod acme;
mod auth;
mod caching;
mod check;
mod connect_udp;
mod cors;
mod environment;
mod files;
mod forwarding;
mod globs;
mod guards;
mod keys;
mod listen;
mod literal;
mod mirror;
mod mistakes;
mod model;
mod path_rule;
mod proxying;
mod rate;
mod reach;
mod reader;
#[cfg(test)]
mod reference;
mod request_ids;
mod rewriting;
mod route;
mod schema;
mod source;
mod sticky;
mod telemetry;
mod upstream;
mod value;

use std::path::Path;

use tidegate::IpNet;
use tidegate::http::Slashes;

use crate::access_log::AccessLogFormat;
use crate::telemetry::TelemetrySettings;

pub(crate) use self::auth::JwtRule;
pub(crate) use self::caching::CacheRule;
pub(crate) use self::check::{PathPlan, host_plan};
pub(crate) use self::connect_udp::UdpProxyRule;
use self::keys::{Key, Keys, Kind, info};
pub(crate) use self::listen::{
    CertificateFiles, FirstBytes, FirstBytesRule, Forwards, HeaderMode, Listen, ListenLimits, QPACK_TABLE_BYTES_MAX,
    RedirectHttps,
};
pub(crate) use self::literal::{host_key, refuse_variable};
pub(crate) use self::mistakes::{Located, Mistakes, Place};
pub(crate) use self::model::{
    Action, BasicAuthRule, Conditions, ErrorPage, ErrorStatuses, FileRules, FixedResponse, HostRule, ProxyRules,
    Redirect, Route, Wanted,
};
pub(crate) use self::path_rule::PathRule;
pub(crate) use self::proxying::RESPONSE_TIMEOUT_MAX;
pub(crate) use self::rate::{RateRule, RedisServer};
use self::reader::Reader;
pub(crate) use self::request_ids::RequestIdRule;
use self::route::Site;
pub(crate) use self::schema::schema;
use self::source::read_all;
pub(crate) use self::sticky::StickyRule;
pub(crate) use self::upstream::{Check, Upstream, UpstreamLimitRules, UpstreamServer};
use self::value::Data;

/// A configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    pub(crate) access_log: AccessLogFormat,
    pub(crate) telemetry: Option<TelemetrySettings>,
    pub(crate) request_ids: Option<RequestIdRule>,
    pub(crate) slashes: SlashRule,
    /// Proxies in front.
    pub(crate) trusted: Vec<IpNet>,
    pub(crate) listen: Vec<Listen>,
    pub(crate) upstreams: Vec<Upstream>,
    /// Those of sites too.
    pub(crate) routes: Vec<Route>,
}

/// How `//`, `%2F` and `\\` are matched; paths are passed on as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum SlashRule {
    /// As one slash, since upstreams may read them so.
    #[default]
    Merge,
    /// As they were sent.
    Keep,
    /// Answered with 400.
    Refuse,
}

impl Keys for Config {
    const TITLE: &'static str = "the file";
    const TEXT: &'static str = "The file itself. `listen`, `site`, `route` and `upstream` of included files are added.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("include", Kind::OneOrMore(&Kind::Text), "Further files, relative to this one; `*` and `?` in the last part stand for names.", |_, _, _| {}),
        Key::<Self>::new("access-log", Kind::Text, "Log a line for each request: `off`, `common`, `combined`, `json`, `opentelemetry`, or a text with fields, such as `{client.ip} {response.status}` ([all fields](access-log.md)).", |to, value, reader| {
            match reader.text(value).parse() {
                Ok(format) => to.access_log = format,
                Err(error) => reader.mistake(value.place, error),
            }
        })
        .default("\"off\""),
        Key::<Self>::new("request-id", Kind::Either(&[Kind::Boolean, Kind::Table(info::<RequestIdRule>)]), "Give each request a number, in a field of its response and for the upstream.", |to, value, reader| {
            to.request_ids = RequestIdRule::read(value, reader);
        })
        .default("false"),
        Key::<Self>::new("telemetry", Kind::Table(info::<TelemetrySettings>), "Export spans to a collector of OpenTelemetry.", |to, value, reader| {
            to.telemetry = Some(reader.table(value));
        })
        .known_as(&["otlp", "opentelemetry", "tracing"]),
        Key::<Self>::new("slashes", Kind::Choice(&["merge", "keep", "refuse"]), "How routes to upstreams match `//`, `%2F`, `%5C` and a backslash, which servers read in different ways: as one slash, as they were sent, or with a 400. Paths are passed on as they came.", |to, value, reader| {
            let values = [("keep", SlashRule::Keep), ("refuse", SlashRule::Refuse)];
            to.slashes = reader.choice(value, &values, SlashRule::Merge);
        })
        .default("\"merge\""),
        Key::<Self>::new("trusted", Kind::OneOrMore(&Kind::Text), "Networks of proxies in front, whose `X-Forwarded-For` names the client: for `client`, `allow`, `deny`, `rate`, `hash-key`, `{client.ip}`, the access log and the fields about the client.", |to, value, reader| {
            to.trusted = reader.networks(value);
        })
        .known_as(&["trusted-proxies"]),
        Key::<Self>::new("listen", Kind::List(&Kind::Table(info::<Listen>)), "Where the server listens.", |to, value, reader| {
            let listen = reader.tables(value);
            to.listen.extend(listen);
        }),
        Key::<Self>::new("upstream", Kind::List(&Kind::Table(info::<Upstream>)), "Servers that can answer the same requests.", |to, value, reader| {
            let upstreams = reader.tables(value);
            to.upstreams.extend(upstreams);
        }),
        Key::<Self>::new("route", Kind::List(&Kind::Table(info::<Route>)), "Which requests, and what they get.", |to, value, reader| {
            let routes = reader.tables(value);
            to.routes.extend(routes);
        }),
        Key::<Self>::new("site", Kind::List(&Kind::Table(info::<Site>)), "Routes that share hosts.", |to, value, reader| {
            for site in reader.tables::<Site>(value) {
                to.routes.extend(site.into_routes());
            }
        }),
    ];
}

impl Config {
    /// Reads a file with all that it includes, and checks it. The mistakes have warnings alone if there is a
    /// configuration.
    pub(crate) fn read(path: &Path) -> (Option<Self>, Mistakes) {
        let mut mistakes = Mistakes::default();
        let mut config = Self::default();
        let mut scalars: Vec<(String, Place)> = Vec::new();
        for table in read_all(path, &mut mistakes) {
            let Data::Table(entries) = &table.data else { continue };
            for (name, value) in entries {
                if matches!(&*name.text, "access-log" | "request-id" | "slashes" | "telemetry" | "trusted") {
                    if scalars.iter().any(|(other, _)| *other == name.text) {
                        mistakes.add(name.place, format!("another file has `{}` already", name.text));
                    }
                    scalars.push((name.text.clone(), value.place));
                }
            }
            Reader { mistakes: &mut mistakes }.take_all(&mut config, entries);
        }
        for route in &mut config.routes {
            route.proxying.trusted.get_or_insert_with(|| config.trusted.clone());
        }
        if let Some(telemetry) = &mut config.telemetry {
            telemetry.trusted.get_or_insert_with(|| config.trusted.clone());
        }
        config.check(&mut mistakes);
        (if mistakes.has_errors() { None } else { Some(config) }, mistakes)
    }

    /// The same, for a server that starts or reads it again.
    pub(crate) fn load(path: &Path) -> Result<Self, Mistakes> {
        match Self::read(path) {
            (Some(config), mistakes) => {
                for line in mistakes.warning_lines() {
                    tracing::warn!(subsystem = "config", "{line}");
                }
                Ok(config)
            }
            (None, mistakes) => Err(mistakes),
        }
    }
}

impl SlashRule {
    pub(crate) fn slashes(self) -> Slashes {
        match self {
            Self::Merge => Slashes::Merge,
            Self::Keep => Slashes::Keep,
            Self::Refuse => Slashes::Refuse,
        }
    }
}
