//! The key `sticky-cookie`: a cookie that keeps a client at the server that it had first.

use std::time::Duration;

use tidegate::http::InvalidField;
use tidegate::http::proxy::StickyCookie;

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use super::reader::Reader;
use super::value::{Data, Value};

/// A cookie that keeps a client at a server.
#[derive(Clone, Default)]
pub(crate) struct StickyRule {
    place: Place,
    name: String,
    secret: Option<String>,
    path: Option<String>,
    domain: Option<String>,
    max_age: Option<Duration>,
    is_cross_site: bool,
    is_secure: bool,
}

impl Keys for StickyRule {
    const TITLE: &'static str = "sticky-cookie";
    const TEXT: &'static str = "A cookie that keeps a client at the server that it had first. It names no address.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("name", Kind::Text, "Its name.", |to, value, reader| to.name = reader.text(value)).required(),
        Key::<Self>::new(
            "secret",
            Kind::Secret,
            "The key of the hash in it: with it, cookies outlive a restart, and several gateways agree on them. A random one, \
             unless set.",
            |to, value, reader| {
                let secret = reader.secret(value);
                if secret.len() < SECRET_BYTES_MIN {
                    let text = format!("the secret of a cookie has at least {SECRET_BYTES_MIN} bytes");
                    reader.mistake(value.place, text);
                }
                to.secret = Some(secret);
            },
        ),
        Key::<Self>::new("path", Kind::Text, "The paths for which browsers send it.", |to, value, reader| {
            to.path = Some(reader.text(value));
        })
        .default("\"/\""),
        Key::<Self>::new(
            "domain",
            Kind::Text,
            "The domain whose hosts get it; the host of the request alone, unless set.",
            |to, value, reader| to.domain = Some(reader.text(value)),
        ),
        Key::<Self>::new(
            "max-age",
            Kind::Seconds { min: 1, max: 400 * 86_400 },
            "How long a browser keeps it; until the browser ends, unless set.",
            |to, value, reader| to.max_age = Some(reader.seconds(value)),
        ),
        Key::<Self>::new(
            "cross-site",
            Kind::Boolean,
            "Let browsers send it with requests of other sites (`SameSite=None`), which needs https.",
            |to, value, reader| to.is_cross_site = reader.boolean(value),
        )
        .default("false"),
        Key::<Self>::new(
            "secure",
            Kind::Boolean,
            "Set `Secure` on http listeners too: for a gateway behind a proxy that ends TLS.",
            |to, value, reader| to.is_secure = reader.boolean(value),
        )
        .default("false"),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if let Err(error) = self.cookie()
            && !self.name.is_empty()
        {
            mistakes.add(self.place, format!("`{}`: {error}", self.name.escape_debug()));
        }
    }
}

impl StickyRule {
    /// A name alone, or a table.
    pub(super) fn read(value: &Value, reader: &mut Reader<'_>) -> Self {
        if matches!(value.data, Data::Table(_)) {
            return reader.table(value);
        }
        let mut rule = Self { name: reader.text(value), place: value.place, ..Self::default() };
        if rule.name.is_empty() {
            reader.mistake(value.place, "the name of a cookie is not empty");
        }
        rule.check(reader.mistakes);
        rule
    }

    /// The cookie. Its secret is a new one each time, unless the rule has one.
    pub(crate) fn cookie(&self) -> Result<StickyCookie, InvalidField> {
        let mut cookie = StickyCookie::new(&self.name)?;
        if let Some(secret) = &self.secret {
            cookie = cookie.secret(secret);
        }
        if let Some(path) = &self.path {
            cookie = cookie.path(path)?;
        }
        if let Some(domain) = &self.domain {
            cookie = cookie.domain(domain)?;
        }
        if let Some(age) = self.max_age {
            cookie = cookie.max_age(age);
        }
        if self.is_cross_site {
            cookie = cookie.cross_site();
        }
        Ok(if self.is_secure { cookie.secure() } else { cookie })
    }
}

/// The same rule elsewhere in the file is equal.
impl PartialEq for StickyRule {
    fn eq(&self, other: &Self) -> bool {
        let parts = |rule: &Self| (rule.is_cross_site, rule.is_secure, rule.max_age);
        let texts =
            |rule: &Self| [Some(rule.name.clone()), rule.secret.clone(), rule.path.clone(), rule.domain.clone()];
        parts(self) == parts(other) && texts(self) == texts(other)
    }
}

/// Without the secret.
impl std::fmt::Debug for StickyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StickyRule").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A shorter secret can be guessed from a cookie.
const SECRET_BYTES_MIN: usize = 16;
