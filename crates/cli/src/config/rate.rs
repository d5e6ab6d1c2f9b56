//! The value of `rate`: a text, or a table with the Redis server where gateways share the counts.

use std::path::PathBuf;

use tidegate::ConnectionRate;
use tidegate::redis::{Client, ClientBuilder};
use tidegate::tls::rustls::pki_types::ServerName;

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use super::reader::Reader;
use super::value::{Data, Value};
use crate::admission::parse_rate;

/// How often a client may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RateRule {
    pub(crate) rate: Option<ConnectionRate>,
    /// The Redis server, if gateways share the counts.
    pub(crate) shared: Option<RedisServer>,
    /// The name of the counts; that of the route, unless set.
    pub(crate) name: Option<String>,
    /// Requests are refused while Redis does not answer.
    pub(crate) is_closed: bool,
    /// That of `ca`.
    ca_place: Option<Place>,
}

/// A Redis server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RedisServer {
    url: String,
    /// Certificates that vouch for it over TLS; those that the system trusts, unless set.
    pub(crate) ca: Option<PathBuf>,
}

impl RedisServer {
    /// A client of it, and its name for TLS with `rediss`; `None` if the URL is none.
    pub(crate) fn client(&self) -> Option<(ClientBuilder, Option<String>)> {
        let rest = self.url.split_at_checked(SECURE.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SECURE));
        let Some((_, rest)) = rest else { return Some((Client::url(&self.url).ok()?, None)) };
        let builder = Client::url(&format!("redis://{rest}")).ok()?;
        let authority = rest.split('/').next()?;
        let server = authority.rsplit('@').next()?;
        let host = match server.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((inside, _)) => inside,
            None => server.rsplit_once(':').map_or(server, |(host, _)| host),
        };
        ServerName::try_from(host).ok()?;
        Some((builder, Some(host.to_owned())))
    }

    fn is_secure(&self) -> bool {
        self.client().is_some_and(|(_, tls_name)| tls_name.is_some())
    }
}

const SECURE: &str = "rediss://";

impl RateRule {
    /// A rule from either form.
    pub(super) fn read(value: &Value, reader: &mut Reader<'_>) -> Self {
        if let Data::Table(_) = value.data {
            return reader.table(value);
        }
        Self { rate: rate(value, reader), ..Self::default() }
    }
}

fn rate(value: &Value, reader: &mut Reader<'_>) -> Option<ConnectionRate> {
    let text = reader.text(value);
    let rate = parse_rate(&text);
    rate.map_err(|error| reader.mistake(value.place, format!("`{text}` is {error}"))).ok()
}

fn mistake_of_url(place: Place, reader: &mut Reader<'_>) {
    // The URL may have a password.
    reader.mistake(place, "`shared` is not redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], rediss or unix:PATH");
}

impl Keys for RateRule {
    const TITLE: &'static str = "rate";
    const TEXT: &'static str = "A rate whose counts several gateways share. Requests borrow tokens from Redis, and wait 20 ms \
         at most. While Redis does not answer, each gateway has counts of its own.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("limit", Kind::Text, "Requests of one client, as `rate` without a table.", |to, value, reader| {
            to.rate = rate(value, reader);
        })
        .required(),
        Key::<Self>::new(
            "shared",
            Kind::Secret,
            "The Redis server: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss` for TLS, or `unix:PATH`.",
            |to, value, reader| {
                let server = to.shared.get_or_insert_default();
                server.url = reader.secret(value).trim().to_owned();
                if server.client().is_none() {
                    mistake_of_url(value.place, reader);
                }
            },
        )
        .required(),
        Key::<Self>::new(
            "ca",
            Kind::Path,
            "Certificates (PEM) that vouch for a server of `rediss`; those that the system trusts, unless set.",
            |to, value, reader| {
                let path = reader.path(value);
                to.shared.get_or_insert_default().ca = Some(path.value);
                to.ca_place = Some(value.place);
            },
        ),
        Key::<Self>::new(
            "name",
            Kind::Text,
            "The name of the counts: routes and gateways with the same name, `limit` and `rate-by` share them. The hosts and \
             the path of the route, unless set.",
            |to, value, reader| to.name = Some(reader.text(value)),
        ),
        Key::<Self>::new(
            "on-failure",
            Kind::Choice(&["open", "closed"]),
            "While Redis does not answer: requests pass by the counts of this gateway (`open`), or get a 503 (`closed`).",
            |to, value, reader| to.is_closed = reader.text(value) == "closed",
        )
        .default("\"open\""),
    ];

    fn check(&mut self, mistakes: &mut Mistakes) {
        let is_secure = self.shared.as_ref().is_some_and(RedisServer::is_secure);
        // The rules of two readings of a file are equal wherever they stand.
        if let Some(place) = self.ca_place.take()
            && !is_secure
        {
            mistakes.add(place, "`ca` needs a server of `rediss://`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_for_tls_is_the_host_of_the_url() {
        let named = |url: &str| {
            let server = RedisServer { url: url.to_owned(), ca: None };
            server.client().map(|(_, name)| name)
        };
        for (url, expected) in [
            ("redis://sea.example", Some(None)),
            ("unix:/run/redis", Some(None)),
            ("rediss://sea.example", Some(Some("sea.example"))),
            ("REDISS://:secret@sea.example:6380/2", Some(Some("sea.example"))),
            ("rediss://user:p%40ss@[::1]:6380", Some(Some("::1"))),
            ("rediss://::1", None),
            ("rediss://192.0.2.1:1", Some(Some("192.0.2.1"))),
            ("rediss://", None),
            ("rediss://a b", None),
            ("rediss://sea.example/x", None),
            ("rediss", None),
            ("rediés://a", None),
        ] {
            assert_eq!(named(url), expected.map(|name| name.map(str::to_owned)), "{url}");
        }
    }
}
