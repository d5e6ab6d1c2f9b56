//! The keys of a `[[route]]` that every action has beside its own: which clients may ask, how often, and fields of the
//! responses.

use tidegate::http::RateKey;

use super::caching::CacheRule;
use super::cors::CorsRule;
use super::keys::{Key, Kind, info};
use super::literal::is_field_name;
use super::model::{Owner, Route};
use super::rate::RateRule;
use super::sticky::StickyRule;
use super::value::Data;

pub(super) const ALLOW: Key<Route> = Key::<Route>::new(
    "allow",
    Kind::OneOrMore(&Kind::Text),
    "Networks of clients that may ask, such as `10.0.0.0/8`; all others get a 403. All may, unless set. Behind proxies of \
     `trusted`, the client is the one that these name.",
    |to, value, reader| to.guards.allow = Some(reader.networks(value)),
);

pub(super) const DENY: Key<Route> = Key::<Route>::new(
    "deny",
    Kind::OneOrMore(&Kind::Text),
    "Networks of clients that may not ask, and get a 403. It comes before `allow`.",
    |to, value, reader| to.guards.deny = reader.networks(value),
);

pub(super) const RATE: Key<Route> = Key::<Route>::new(
    "rate",
    Kind::Either(&[Kind::Text, Kind::Table(info::<RateRule>)]),
    "Requests of one client, such as `100/s:200`: a rate for each second (`s`) or minute (`m`), and a burst. Further ones get a \
     429. With a table, gateways share the counts.",
    |to, value, reader| to.guards.rate = Some(RateRule::read(value, reader)),
);

pub(super) const RATE_BY: Key<Route> = Key::<Route>::new(
    "rate-by",
    Kind::Text,
    "What tells the clients of `rate` apart: `client`, `header:NAME`, `cookie:NAME` or `bearer`; requests without that count \
     for their client's address.",
    |to, value, reader| {
        let text = reader.text(value);
        to.guards.rate_by = match text.split_once(':') {
            None if text == "client" => RateKey::Client,
            None if text == "bearer" => RateKey::Bearer,
            Some(("header", name)) if is_field_name(name) => RateKey::Header(name.to_owned()),
            Some(("cookie", name)) if is_field_name(name) => RateKey::Cookie(name.to_owned()),
            _ => {
                return reader.mistake(
                    value.place,
                    format!("`{}` is not client, header:NAME, cookie:NAME or bearer", text.escape_debug()),
                );
            }
        };
    },
)
.default("\"client\"");

pub(super) const CONCURRENCY: Key<Route> = Key::<Route>::new(
    "concurrency",
    Kind::Integer { min: 1, max: 1_000_000 },
    "Requests of the route in progress at a time, on all loops together; further ones get a 503.",
    |to, value, reader| to.guards.concurrency = Some(reader.count(value)),
);

pub(super) const SECURITY_HEADERS: Key<Route> = Key::<Route>::new(
    "security-headers",
    Kind::Boolean,
    "Add fields that protect the users of browsers to each response that does not have them.",
    |to, value, reader| to.guards.security_headers = reader.boolean(value),
)
.default("false");

pub(super) const CORS: Key<Route> = Key::<Route>::new(
    "cors",
    Kind::Table(info::<CorsRule>),
    "Let scripts of other sites read responses.",
    |to, value, reader| to.cors = Some(reader.table(value)),
)
.known_as(&["access-control"]);

pub(super) const TIMEOUT: Key<Route> = Key::<Route>::new(
    "timeout",
    Kind::Seconds { min: 1, max: 86_400 },
    "From the whole request to the head of the response, `basic-auth` and waiting for a server included; then a 503. None, unless \
     set; `response-timeout` is that of a server.",
    |to, value, reader| to.guards.timeout = Some(reader.seconds(value)),
)
.known_as(&["request-timeout"]);

pub(super) const BODY_BYTES: Key<Route> = Key::<Route>::new(
    "body-bytes",
    Kind::Integer { min: 0, max: i64::MAX },
    "Bytes of a request's body; a longer one gets a 413. The limit of the listener counts as well.",
    |to, value, reader| to.guards.body_bytes = reader.number(value),
)
.known_as(&["client-max-body-size", "max-body", "max-body-size", "body-limit", "request-body"]);

pub(super) const CACHE: Key<Route> = Key::<Route>::new(
    "cache",
    Kind::Either(&[Kind::Boolean, Kind::Table(info::<CacheRule>)]),
    "Keep responses (RFC 9111), in memory with `true`, and answer from there. A reload keeps them if it changes nothing between \
     cache and upstream. Each response says so in `Cache-Status`.",
    |to, value, reader| {
        to.used.push(("cache", value.place, Owner::Upstream));
        to.guards.cache = match &value.data {
            Data::Table(_) => Some(reader.table(value)),
            _ => reader.boolean(value).then(CacheRule::default),
        };
    },
)
.default("false");

pub(super) const COMPRESS: Key<Route> = Key::<Route>::new(
    "compress",
    Kind::Boolean,
    "Compress responses of the upstream that are not compressed, as the client accepts it.",
    |to, value, reader| {
        to.used.push(("compress", value.place, Owner::Upstream));
        to.guards.compress = reader.boolean(value);
    },
)
.default("false")
.known_as(&["gzip", "encode"]);

pub(super) const STICKY_COOKIE: Key<Route> = Key::<Route>::new(
    "sticky-cookie",
    Kind::Either(&[Kind::Text, Kind::Table(info::<StickyRule>)]),
    "A cookie that keeps a client at the server that it had first: its name, or a table. `hash-key` with a cookie of the \
     application does without one.",
    |to, value, reader| {
        to.used.push(("sticky-cookie", value.place, Owner::Upstream));
        to.guards.sticky = Some(StickyRule::read(value, reader));
    },
)
.known_as(&["sticky"]);
