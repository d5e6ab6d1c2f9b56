//! `[[upstream]]`: servers that can answer the same requests.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::http::proxy::{Balance, UpstreamUrl, WEIGHT_MAX};
use tidegate::l4::ServerAddress;

use super::keys::{Key, Keys, Kind, info};
use super::literal::refuse_variable;
use super::mistakes::{Located, Mistakes, Place};
use super::value::{Data, Value};

/// Servers that can answer the same requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Upstream {
    pub(crate) name: Located<String>,
    pub(crate) servers: Vec<UpstreamServer>,
    /// Servers of `tcp`, `tls-passthrough` or `udp`, each with its weight.
    pub(crate) l4_servers: Vec<(ServerAddress, u32)>,
    pub(crate) balance: Balance,
    pub(crate) send_proxy: bool,
    pub(crate) ca: Option<Located<PathBuf>>,
    pub(crate) health_check: Option<Check>,
    pub(crate) resolve_interval: Option<Duration>,
    pub(crate) ejection: EjectionRules,
    pub(crate) retries: RetryRules,
    pub(crate) limits: UpstreamLimitRules,
}

/// A server, and its share of the requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UpstreamServer {
    pub(crate) url: UpstreamUrl,
    pub(crate) weight: u32,
}

impl Keys for Upstream {
    const TITLE: &'static str = "[[upstream]]";
    const TEXT: &'static str = "Servers that can answer the same requests.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("name", Kind::Text, "The name by which a route chooses it.", |to, value, reader| {
            to.name = reader.located(value);
        })
        .required(),
        Key::<Self>::new(
            "servers",
            Kind::List(&Kind::Either(&[Kind::Text, Kind::Table(info::<WeightedServer>)])),
            "URLs: `http://`, `https://`, `https+h3://` (HTTP/3), `h2c://`, `unix:`, `unix+h2c:`, or `srv://` with the name of SRV records, for routes, `tcp://` or `udp://` with a port, or `srv+tcp://` or `srv+udp://` with the name of SRV records, for listeners that pass on; each alone or as a table with a weight.",
            |to, value, reader| {
                let Data::List(items) = &value.data else { return };
                if items.is_empty() {
                    reader.mistake(value.place, "there are no servers");
                }
                for item in items {
                    let server: WeightedServer = match &item.data {
                        Data::Table(_) => reader.table(item),
                        _ => WeightedServer { url: reader.located(item), weight: 1 },
                    };
                    if L4_SCHEMES.iter().any(|scheme| server.url.value.starts_with(scheme)) {
                        match server.url.value.parse() {
                            Ok(address) => to.l4_servers.push((address, server.weight)),
                            Err(error) => reader.mistake(item.place, format!("the address of a server: {error}")),
                        }
                        continue;
                    }
                    match server.url.value.parse() {
                        Ok(url) => to.servers.push(UpstreamServer { url, weight: server.weight }),
                        Err(error) => {
                            let given = &server.url.value;
                            // Most often the scheme is missing.
                            let with_scheme = format!("http://{given}");
                            let advice = match with_scheme.parse::<UpstreamUrl>() {
                                Ok(_) if !given.contains("://") => format!("; write `{}`", with_scheme.escape_debug()),
                                _ => String::new(),
                            };
                            reader.mistake(item.place, format!("the URL of a server: {error}{advice}"));
                        }
                    }
                }
            },
        )
        .required(),
        Key::<Self>::new(
            "balance",
            Kind::Choice(&["round-robin", "least-connections", "consistent-hash"]),
            "Which server gets a request: each in turn, the one with the fewest requests, or the same one for the same `hash-key`.",
            |to, value, reader| {
                let values = [
                    ("round-robin", Balance::RoundRobin),
                    ("least-connections", Balance::LeastConnections),
                    ("consistent-hash", Balance::ConsistentHash),
                ];
                to.balance = reader.choice(value, &values, Balance::RoundRobin);
            },
        )
        .default("\"round-robin\""),
        Key::<Self>::new("send-proxy", Kind::Boolean, "Begin connections with a PROXY header that names the client.", |to, value, reader| {
            to.send_proxy = reader.boolean(value);
        })
        .default("false"),
        Key::<Self>::new("ca", Kind::Path, "Certificates (PEM) that vouch for `https` servers; those of the system, unless set.", |to, value, reader| {
            to.ca = Some(reader.path(value));
        }),
        Key::<Self>::new("health-check", Kind::Table(info::<Check>), "Requests that check the servers.", |to, value, reader| {
            to.health_check = Some(reader.table(value));
        }),
        Key::<Self>::new("resolve-interval", Kind::Seconds { min: 1, max: 86_400 }, "Until names are resolved again, at the latest; before that when the TTL of their addresses is over.", |to, value, reader| {
            to.resolve_interval = Some(reader.seconds(value));
        })
        .default("30"),
        Key::<Self>::new("ejection", Kind::Table(info::<EjectionRules>), "When a server that fails gets no requests for a while.", |to, value, reader| {
            to.ejection = reader.table(value);
        }),
        Key::<Self>::new("retries", Kind::Table(info::<RetryRules>), "When a request is sent again that may have been processed.", |to, value, reader| {
            to.retries = reader.table(value);
        }),
        Key::<Self>::new("limits", Kind::Table(info::<UpstreamLimitRules>), "Bounds of the requests that servers get, and of the time that they may take.", |to, value, reader| {
            to.limits = reader.table(value);
        }),
    ];

    fn check(&mut self, mistakes: &mut Mistakes) {
        if let Some(ca) = &self.ca
            && let Err(error) = std::fs::metadata(&ca.value)
        {
            mistakes.add(ca.place, format!("`{}`: {error}", ca.value.display()));
        }
    }
}

impl Upstream {
    /// Whether one of the servers speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.servers.iter().any(|server| server.url.is_secure())
    }
}

/// A server as a table.
#[derive(Debug, Default)]
struct WeightedServer {
    url: Located<String>,
    weight: u32,
}

impl Keys for WeightedServer {
    const TITLE: &'static str = "a server";
    const TEXT: &'static str = "A server of an `[[upstream]]` with its weight.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("url", Kind::Text, "Its URL.", |to, value, reader| to.url = reader.located(value)).required(),
        Key::<Self>::new(
            "weight",
            Kind::Integer { min: 1, max: WEIGHT_MAX as i64 },
            "Its share of the requests, compared with the other servers.",
            |to, value, reader| to.weight = reader.count(value),
        )
        .default("1"),
    ];

    fn at(&mut self, _: Place) {
        self.weight = 1;
    }
}

/// A table of numbers that may all be left out: its type, its keys. A number is one of 32 bits, unless its key says otherwise.
macro_rules! numbers {
    (@type) => { u32 };
    (@type $number:ty) => { $number };
    ($(#[$doc:meta])* $type:ident, $title:literal, $text:literal: $($field:ident $(as $number:ty)?, $name:literal $kind:expr, $default:literal, $key_text:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $type {
            $(pub(crate) $field: Option<numbers!(@type $($number)?)>,)*
        }

        impl Keys for $type {
            const TITLE: &'static str = $title;
            const TEXT: &'static str = $text;
            const KEYS: &'static [Key<Self>] = &[$(
                Key::<Self>::new($name, $kind, $key_text, |to, value, reader| to.$field = reader.number(value)).default($default),
            )*];
        }
    };
}

pub(super) use numbers;

const COUNT: Kind = Kind::Integer { min: 0, max: u32::MAX as i64 };
const SECONDS: Kind = Kind::Seconds { min: 0, max: u32::MAX as i64 };
const PERCENT: Kind = Kind::Integer { min: 0, max: 100 };

numbers! {
    /// When a server that fails gets no requests for a while.
    EjectionRules, "ejection", "When a server that fails gets no requests for a while.":
    failures, "failures" COUNT, "5", "Failures in a row that eject a server.";
    time, "time" SECONDS, "10", "For how long it is ejected at first.";
    time_max, "time-max" SECONDS, "300", "For how long at most, after several times.";
    percent_max, "percent-max" PERCENT, "50", "How many of the servers may be ejected at once; of `tcp://` servers 100, unless set.";
    slow_start, "slow-start" SECONDS, "10", "For how long a server that comes back gets fewer requests.";
}

numbers! {
    /// When a request is sent again that may have been processed.
    RetryRules, "retries", "When a request is sent again that may have been processed.":
    per_request, "per-request" COUNT, "2", "Further attempts of one request.";
    percent, "percent" PERCENT, "20", "Further attempts, compared with the requests.";
    reserve, "reserve" COUNT, "10", "Further attempts that are always possible.";
}

numbers! {
    /// Limits of the servers, and their times.
    UpstreamLimitRules, "limits of an upstream", "Bounds of the requests that servers get, and of the time that they may take.":
    requests, "requests" COUNT, "1024", "Requests in progress of one server.";
    requests_per_address, "requests-per-address" COUNT, "512", "Requests in progress of one server and one client address.";
    queued_requests, "queued-requests" COUNT, "1024", "Requests that wait for room.";
    queue_timeout, "queue-timeout" SECONDS, "5", "How long they wait.";
    idle_connections, "idle-connections" COUNT, "64", "Idle connections to one server, on each loop.";
    pipelined_requests, "pipelined-requests" Kind::Integer { min: 1, max: 255 }, "16", "Requests of a pipeline; 1 never pipelines.";
    cancellations, "cancellations" COUNT, "200", "Requests that one client may cancel.";
    cancellations_per_second, "cancellations-per-second" COUNT, "33", "How many of them come back each second.";
    resets, "resets" COUNT, "100", "Streams of an HTTP/2 connection that may be reset.";
    resets_per_second, "resets-per-second" COUNT, "20", "How many of them come back each second.";
    idle_timeout, "idle-timeout" SECONDS, "55", "How long a connection may be idle.";
    connect_timeout, "connect-timeout" SECONDS, "5", "Until a connection is established, its TLS handshake included.";
    response_timeout, "response-timeout" SECONDS, "30", "Until the head of a response.";
    body_timeout, "body-timeout" SECONDS, "60", "Between two pieces of a body.";
    tunnel_idle_timeout, "tunnel-idle-timeout" SECONDS, "3600", "Without a byte in a tunnel or WebSocket.";
}

/// Requests that check the servers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Check {
    pub(crate) path: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) interval: Option<u32>,
    pub(crate) timeout: Option<u32>,
    pub(crate) failures: Option<u32>,
    pub(crate) successes: Option<u32>,
}

const ONE_OR_MORE: Kind = Kind::Integer { min: 1, max: u32::MAX as i64 };
const SOME_SECONDS: Kind = Kind::Seconds { min: 1, max: u32::MAX as i64 };

impl Keys for Check {
    const TITLE: &'static str = "health-check";
    const TEXT: &'static str = "Requests that check the servers.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("path", Kind::Text, "The target of the requests.", |to, value, reader| {
            let path = literal(value, reader);
            if let Err(error) = tidegate::http1::Request::get(&path) {
                reader.mistake(value.place, format!("`{path}`: {error}"));
            }
            to.path = Some(path);
        })
        .default("\"/\""),
        Key::<Self>::new("host", Kind::Text, "Their host; that of the server, unless set.", |to, value, reader| {
            to.host = Some(literal(value, reader));
        }),
        Key::<Self>::new("interval", SOME_SECONDS, "Between two checks.", |to, value, reader| {
            to.interval = Some(reader.count(value));
        })
        .default("5"),
        Key::<Self>::new("timeout", SOME_SECONDS, "Until a check has failed.", |to, value, reader| {
            to.timeout = Some(reader.count(value));
        })
        .default("2"),
        Key::<Self>::new(
            "failures",
            ONE_OR_MORE,
            "Failures in a row after which a server is down.",
            |to, value, reader| {
                to.failures = Some(reader.count(value));
            },
        )
        .default("3"),
        Key::<Self>::new("successes", ONE_OR_MORE, "Successes in a row after which it is up.", |to, value, reader| {
            to.successes = Some(reader.count(value));
        })
        .default("2"),
    ];
}

/// A text that is sent as it is.
pub(super) fn literal(value: &Value, reader: &mut super::reader::Reader<'_>) -> String {
    let text = reader.text(value);
    if let Some(mistake) = refuse_variable(&text) {
        reader.mistake(value.place, mistake);
    }
    text
}

/// The schemes of servers below HTTP.
const L4_SCHEMES: [&str; 4] = ["tcp://", "udp://", "srv+tcp://", "srv+udp://"];
