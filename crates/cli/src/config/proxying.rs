//! The keys of a `[[route]]` with `upstream`: changes on the way.

use tidegate::http::proxy::{Edit, HashKey};
use tidegate::http::{EditValue, InvalidField};

use super::keys::{Key, Keys, Kind, info};
use super::literal::{is_field_name, placeholders};
use super::mirror::MirrorRule;
use super::mistakes::Place;
use super::model::{HostRule, Owner, Route};
use super::reader::Reader;
use super::rewriting::RewriteRule;
use super::upstream::literal;
use super::value::Value;

/// A key that only a proxy has.
macro_rules! proxy_key {
    ($const:ident, $name:literal, $kind:expr, $default:literal, $text:literal, $known:expr, |$to:ident, $value:ident, $reader:ident| $take:expr) => {
        pub(super) const $const: Key<Route> = {
            let key = Key::<Route>::new(
                $name,
                $kind,
                $text,
                |route: &mut Route, $value: &Value, $reader: &mut Reader<'_>| {
                    route.used.push(($name, $value.place, Owner::Upstream));
                    let $to = &mut route.proxying;
                    $take;
                },
            )
            .known_as($known);
            if $default.is_empty() { key } else { key.default($default) }
        };
    };
}

proxy_key!(
    STRIP_PATH,
    "strip-path",
    Kind::Boolean,
    "false",
    "Remove the prefix of `path`.",
    &["strip-prefix"],
    |to, value, reader| {
        to.strip_path = reader.boolean(value);
    }
);
proxy_key!(
    REWRITE,
    "rewrite",
    Kind::OneOrMore(&Kind::Table(info::<RewriteRule>)),
    "",
    "Another path for the upstream: one change, or several.",
    &["replace-path", "uri"],
    |to, value, reader| to.rewrites = reader.tables(value)
);
proxy_key!(
    MIRROR,
    "mirror",
    Kind::Table(info::<MirrorRule>),
    "",
    "Copies of a share of the requests for another upstream.",
    &["shadow"],
    |to, value, reader| to.mirror = Some(reader.table(value))
);
proxy_key!(
    HOST,
    "host",
    Kind::Text,
    "\"keep\"",
    "The host that the upstream gets: `keep`, `upstream`, or a name.",
    &[],
    |to, value, reader| {
        let name = literal(value, reader);
        to.host = match &*name {
            "keep" => HostRule::Keep,
            "upstream" => HostRule::OfUpstream,
            _ => {
                if let Err(error) = tidegate::http1::Request::get("/").and_then(|request| request.host(&name)) {
                    reader.mistake(value.place, format!("`{}`: {error}", name.escape_debug()));
                }
                HostRule::Name(name)
            }
        };
    }
);
proxy_key!(
    RESPONSE_TIMEOUT,
    "response-timeout",
    Kind::Seconds { min: 1, max: RESPONSE_TIMEOUT_MAX as i64 },
    "",
    "Until the head of the response; as the upstream has it, unless set. Then a 504.",
    &["proxy-read-timeout"],
    |to, value, reader| to.response_timeout = Some(reader.seconds(value))
);
proxy_key!(
    REQUEST_HEADERS,
    "request-headers",
    Kind::Table(info::<Edits>),
    "",
    "Fields that are set, added and removed on the way to the upstream.",
    &[],
    |to, value, reader| {
        to.request_edits = reader.table::<Edits>(value).edits;
        if let Some(edit) = to.request_edits.iter().find(|edit| edit.needs_response()) {
            let text =
                format!("`{}` has a placeholder that only responses have a value for", edit.name().escape_debug());
            reader.mistake(value.place, text);
        }
    }
);
proxy_key!(
    RESPONSE_HEADERS,
    "response-headers",
    Kind::Table(info::<Edits>),
    "",
    "Fields that are set, added and removed on the way back.",
    &[],
    |to, value, reader| {
        to.response_edits = reader.table::<Edits>(value).edits;
    }
);
proxy_key!(
    RATE_PER_ADDRESS,
    "rate-per-address",
    Kind::Text,
    "",
    "Requests of one client address, such as `100/s:200`: a rate for each second (`s`) or minute (`m`), and a burst.",
    &["rate-limit"],
    |to, value, reader| {
        to.rate_per_address = reader.rate(value);
    }
);
proxy_key!(
    HASH_KEY,
    "hash-key",
    Kind::Text,
    "\"client\"",
    "What `consistent-hash` goes by: `client`, `target`, `header:NAME` or `cookie:NAME`.",
    &[],
    |to, value, reader| {
        let text = reader.text(value);
        match &*text {
            "client" => to.hash_key = HashKey::Client,
            "target" => to.hash_key = HashKey::Target,
            other => match other.split_once(':') {
                Some(("header", name)) if is_field_name(name) => to.hash_key = HashKey::Header(name.to_owned()),
                Some(("cookie", name)) if is_field_name(name) => to.hash_key = HashKey::Cookie(name.to_owned()),
                _ => {
                    let text = format!("`{other}` is not client, target, header:NAME or cookie:NAME");
                    reader.mistake(value.place, text);
                }
            },
        }
    }
);
proxy_key!(
    X_FORWARDED,
    "x-forwarded",
    Kind::Boolean,
    "true",
    "Add `X-Forwarded-For`, `-Proto` and `-Host`.",
    &[],
    |to, value, reader| {
        to.x_forwarded = reader.boolean(value);
    }
);
proxy_key!(FORWARDED, "forwarded", Kind::Boolean, "false", "Add `Forwarded` (RFC 7239).", &[], |to, value, reader| {
    to.forwarded = reader.boolean(value);
});
pub(super) const TRUSTED: Key<Route> = Key::<Route>::new(
    "trusted",
    Kind::OneOrMore(&Kind::Text),
    "Networks of proxies in front, in place of those of the file.",
    |to, value, reader| to.proxying.trusted = Some(reader.networks(value)),
)
.known_as(&["trusted-proxies"]);
proxy_key!(
    UPGRADES,
    "upgrades",
    Kind::List(&Kind::Text),
    "[\"websocket\"]",
    "Protocols that requests may switch to: `websocket`, `connect-udp` and `connect-ip` over all HTTP versions, others over HTTP/1.1 alone.",
    &[],
    |to, value, reader| {
        to.upgrades = Some(reader.texts(value).into_iter().map(|text| text.value).collect());
    }
);
proxy_key!(CONNECT, "connect", Kind::Boolean, "false", "Pass CONNECT on.", &[], |to, value, reader| {
    to.connect = reader.boolean(value);
});
proxy_key!(
    HALF_CLOSE,
    "half-close",
    Kind::Boolean,
    "",
    "Keep requests whose client has ended its side of the connection; as the flag `--half-close` has it, unless set.",
    &[],
    |to, value, reader| to.half_close = Some(reader.boolean(value))
);

/// Changes of fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edits {
    place: Place,
    pub(crate) edits: Vec<Edit>,
}

impl Keys for Edits {
    const TITLE: &'static str = "a change of fields";
    const TEXT: &'static str =
        "Changes of fields. Values may have placeholders ([all of them](placeholders.md)), such as `{client.ip}`.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "set",
            Kind::Map(&Kind::Text),
            "Fields that replace those of the same name.",
            |to, value, reader| {
                to.values(value, reader, |name, value| Edit::set(name, value));
            },
        ),
        Key::<Self>::new(
            "add",
            Kind::Map(&Kind::Text),
            "Fields beside those of the same name.",
            |to, value, reader| {
                to.values(value, reader, |name, value| Edit::add(name, value));
            },
        ),
        Key::<Self>::new("remove", Kind::OneOrMore(&Kind::Text), "Names of fields.", |to, value, reader| {
            let names = reader.texts(value);
            for name in &names {
                if !is_field_name(&name.value) {
                    let text =
                        format!("`{}` is not the name of a field; there are no patterns", name.value.escape_debug());
                    reader.mistake(name.place, text);
                }
            }
            // First, so that a field can be removed and set.
            to.edits.splice(0..0, names.iter().map(|name| Edit::remove(&*name.value)));
        }),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }
}

impl Edits {
    fn values(
        &mut self,
        value: &Value,
        reader: &mut Reader<'_>,
        edit: impl Fn(&str, EditValue) -> Result<Edit, InvalidField>,
    ) {
        for (name, value) in reader.entries(value) {
            let text = reader.text(value);
            let text = match placeholders(&text) {
                Ok(None) => EditValue::from(text),
                Ok(Some(template)) => EditValue::from(template),
                Err(mistake) => {
                    reader.mistake(value.place, format!("`{}`: {mistake}", name.text.escape_debug()));
                    continue;
                }
            };
            match edit(&name.text, text) {
                Ok(edit) => self.edits.push(edit),
                Err(error) => reader.mistake(name.place, format!("`{}`: {error}", name.text.escape_debug())),
            }
        }
    }
}

/// The longest `response-timeout`, in seconds.
pub(crate) const RESPONSE_TIMEOUT_MAX: u32 = 86_400;
