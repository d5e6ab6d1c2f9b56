//! The value of `rate`: a text, or a table with the Redis server where gateways share the counts.

use tidegate::ConnectionRate;
use tidegate::redis::Client;

use super::keys::{Key, Keys, Kind};
use super::mistakes::Place;
use super::reader::Reader;
use super::value::{Data, Value};
use crate::admission::parse_rate;

/// How often a client may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RateRule {
    pub(crate) rate: Option<ConnectionRate>,
    /// The URL of the Redis server, if gateways share the counts.
    pub(crate) shared: Option<String>,
    /// The name of the counts; that of the route, unless set.
    pub(crate) name: Option<String>,
    /// Requests are refused while Redis does not answer.
    pub(crate) is_closed: bool,
}

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
    reader.mistake(place, "`shared` is not redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE] or unix:PATH");
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
            "The Redis server: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or `unix:PATH`.",
            |to, value, reader| {
                let url = reader.secret(value);
                if Client::url(url.trim()).is_err() {
                    mistake_of_url(value.place, reader);
                }
                to.shared = Some(url.trim().to_owned());
            },
        )
        .required(),
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
}
