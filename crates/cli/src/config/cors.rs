//! The key `cors`: which other sites may read responses from a browser.

use std::time::Duration;

use tidegate::http::Cors;

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};

/// Which other sites may read responses.
#[derive(Debug, Clone, Default)]
pub(crate) struct CorsRule {
    place: Place,
    origins: Vec<String>,
    methods: Option<Vec<String>>,
    headers: Vec<String>,
    exposed_headers: Vec<String>,
    credentials: bool,
    max_age: Option<Duration>,
    /// The middleware, once the keys were read.
    pub(crate) cors: Option<Cors>,
}

impl Keys for CorsRule {
    const TITLE: &'static str = "cors";
    const TEXT: &'static str = "Which other sites may read responses from a browser. The server answers requests of browsers for \
         permission (OPTIONS) itself, before `basic-auth`, `allow` and `rate`.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "origins",
            Kind::OneOrMore(&Kind::Text),
            "Sites, such as `https://sea.example` or `http://localhost:3000`; `*` for every site.",
            |to, value, reader| to.origins = plain(reader.texts(value)),
        )
        .required()
        .known_as(&["origin", "allow-origin", "allowed-origins"]),
        Key::<Self>::new(
            "methods",
            Kind::OneOrMore(&Kind::Text),
            "Methods that scripts may use.",
            |to, value, reader| to.methods = Some(plain(reader.texts(value))),
        )
        .default("[\"GET\", \"HEAD\", \"POST\"]")
        .known_as(&["allow-methods", "allowed-methods"]),
        Key::<Self>::new(
            "headers",
            Kind::OneOrMore(&Kind::Text),
            "Request fields that scripts may send, beside those that every script may; `Content-Type` is needed for JSON. `*` for \
             those that the browser asks for.",
            |to, value, reader| to.headers = plain(reader.texts(value)),
        )
        .default("[]")
        .known_as(&["allow-headers", "allowed-headers"]),
        Key::<Self>::new(
            "exposed-headers",
            Kind::OneOrMore(&Kind::Text),
            "Response fields that scripts may read, beside those that every script may.",
            |to, value, reader| to.exposed_headers = plain(reader.texts(value)),
        )
        .default("[]")
        .known_as(&["expose-headers"]),
        Key::<Self>::new(
            "credentials",
            Kind::Boolean,
            "Whether requests may carry cookies and other credentials; not with `*`.",
            |to, value, reader| to.credentials = reader.boolean(value),
        )
        .default("false")
        .known_as(&["allow-credentials"]),
        Key::<Self>::new(
            "max-age",
            Kind::Seconds { min: 0, max: 86_400 },
            "How long a browser may remember a permission; 5 seconds in most browsers, unless set.",
            |to, value, reader| to.max_age = Some(reader.seconds(value)),
        ),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        let asks_fields = self.headers.iter().any(|name| name == "*");
        let mut builder = Cors::builder().origins(&self.origins).credentials(self.credentials);
        if let Some(methods) = &self.methods {
            builder = builder.methods(methods);
        }
        builder = if asks_fields { builder.any_request_field() } else { builder.request_fields(&self.headers) };
        if let Some(age) = self.max_age {
            builder = builder.max_age(age);
        }
        match builder.exposed_fields(&self.exposed_headers).build() {
            Ok(cors) => self.cors = Some(cors),
            // One without origins is a mistake already.
            Err(_) if self.origins.is_empty() => {}
            Err(error) => mistakes.add(self.place, format!("`cors`: {error}")),
        }
    }
}

fn plain(texts: Vec<super::mistakes::Located<String>>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}
