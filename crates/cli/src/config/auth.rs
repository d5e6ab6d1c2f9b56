//! The keys `forward-auth` and `jwt` of a `[[route]]` and a `[[site]]`.
//!
//! A rule is made into middleware when it is checked, so that a mistake has its place, and again when the routes are opened.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::http::TrustedProxies;
use tidegate::http::auth::{ForwardAuth, Jwt, JwtKeys, RequiredClaim, TokenSource};
use tidegate::tls::{ClientConfig, Provider};

use super::keys::{Key, Keys, Kind};
use super::literal::is_field_name;
use super::mistakes::{Located, Mistakes, Place};
use super::value::Data;

/// Another service decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForwardAuthRule {
    place: Place,
    url: Located<String>,
    copied: Vec<Located<String>>,
    sent: Option<Vec<Located<String>>>,
    timeout: Option<Duration>,
    fails_open: bool,
    ca: Option<Located<PathBuf>>,
}

/// A JSON Web Token decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct JwtRule {
    place: Place,
    keys_file: Option<Located<PathBuf>>,
    keys_url: Option<Located<String>>,
    secret: Option<Located<String>>,
    ca: Option<Located<PathBuf>>,
    stale_max: Option<Duration>,
    algorithms: Option<Vec<Located<String>>>,
    issuers: Vec<Located<String>>,
    audiences: Vec<Located<String>>,
    leeway: Option<Duration>,
    required: Vec<RequiredClaim>,
    fields: Vec<(Located<String>, String)>,
    token: TokenSource,
    realm: Option<String>,
}

/// A mistake of a rule, and its place.
type Mistake = (Place, String);

impl Keys for ForwardAuthRule {
    const TITLE: &'static str = "forward-auth";
    const TEXT: &'static str = "Another service decides whether a request passes: it gets a GET with the fields of the client and with \
                                `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`. The request passes on 2xx; a 3xx or 4xx goes \
                                to the client; on anything else it gets a 503 or 504.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("url", Kind::Text, "The URL of the service, of `http` or `https`.", |to, value, reader| {
            to.url = reader.located(value);
        })
        .required()
        .known_as(&["address", "uri", "auth-request"]),
        Key::<Self>::new(
            "copy",
            Kind::OneOrMore(&Kind::Text),
            "Names of fields that go from the service's response to the request for the upstream; the client cannot send them.",
            |to, value, reader| to.copied = reader.texts(value),
        )
        .known_as(&["copy-headers", "copy_headers", "auth-response-headers", "authResponseHeaders"]),
        Key::<Self>::new(
            "request-fields",
            Kind::OneOrMore(&Kind::Text),
            "Names of the client's fields that the service gets; all but those about the body, conditions and ranges, unless set.",
            |to, value, reader| to.sent = Some(reader.texts(value)),
        )
        .known_as(&["auth-request-headers", "authRequestHeaders"]),
        Key::<Self>::new("timeout", Kind::Seconds { min: 1, max: 60 }, "Until the service has answered.", |to, value, reader| {
            to.timeout = Some(reader.seconds(value));
        })
        .default("5"),
        Key::<Self>::new(
            "on-failure",
            Kind::Choice(&["refuse", "pass"]),
            "What happens to requests while the service does not answer, or answers with 5xx.",
            |to, value, reader| to.fails_open = reader.choice(value, &[("pass", true)], false),
        )
        .default("\"refuse\""),
        Key::<Self>::new(
            "ca",
            Kind::Path,
            "Certificates (PEM) that vouch for a service of `https`; those of the system, unless set.",
            |to, value, reader| to.ca = Some(reader.path(value)),
        ),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if !self.url.value.is_empty()
            && let Err((place, text)) = self.build(&TrustedProxies::default())
        {
            mistakes.add(place, text);
        }
    }
}

impl ForwardAuthRule {
    /// The middleware. It names the client that a trusted proxy in front has named.
    pub(crate) fn build(&self, trusted: &TrustedProxies) -> Result<ForwardAuth, Mistake> {
        let forward = ForwardAuth::new(&self.url.value).map_err(|error| (self.url.place, error.to_string()))?;
        let mut forward = forward.fails_open(self.fails_open).trusted(trusted.clone());
        for name in self.copied.iter().chain(self.sent.iter().flatten()) {
            // Also names that could be sent, such as `X-*`, and would match no field.
            if !is_field_name(&name.value) {
                return Err((name.place, format!("`{}` is not the name of a field", name.value.escape_debug())));
            }
        }
        let names = |names: &[Located<String>]| names.iter().map(|name| name.value.clone()).collect::<Vec<_>>();
        let mistake = |at: &[Located<String>]| at.first().map_or(self.place, |name| name.place);
        forward = forward
            .copy(names(&self.copied))
            .map_err(|error| (mistake(&self.copied), format!("a field cannot be copied: {error}")))?;
        if let Some(sent) = &self.sent {
            forward = forward
                .request_fields(names(sent))
                .map_err(|error| (mistake(sent), format!("a field cannot be sent: {error}")))?;
        }
        if let Some(timeout) = self.timeout {
            forward = forward.timeout(timeout);
        }
        match tls(&self.url.value, self.ca.as_ref(), self.place)? {
            Some(tls) => Ok(forward.tls(tls)),
            None => Ok(forward),
        }
    }
}

impl Keys for JwtRule {
    const TITLE: &'static str = "jwt";
    const TEXT: &'static str = "Requests need a JSON Web Token (RFC 7519). Exactly one of `keys-file`, `keys-url` and `secret` has the \
                                keys. A token has `exp`; one that names audiences needs `audience`.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("keys-file", Kind::Path, "A key set (JWKS, RFC 7517); read again when it changes.", |to, value, reader| {
            to.keys_file = Some(reader.path(value));
        })
        .known_as(&["jwks", "jwks-file"]),
        Key::<Self>::new("keys-url", Kind::Text, "The URL of a key set, of `http` or `https`; fetched again after 10 minutes, and at most once a minute for an unknown key.", |to, value, reader| {
            to.keys_url = Some(reader.located(value));
        })
        .known_as(&["jwks-url", "jwks-uri"]),
        Key::<Self>::new("secret", Kind::Secret, "A secret of 32 bytes or more that the issuer shares. `algorithms` has to name the algorithm.", |to, value, reader| {
            to.secret = Some(Located::new(reader.secret(value), value.place));
        }),
        Key::<Self>::new("ca", Kind::Path, "Certificates (PEM) that vouch for the server of `keys-url`; those of the system, unless set.", |to, value, reader| {
            to.ca = Some(reader.path(value));
        }),
        Key::<Self>::new("stale-max", Kind::Seconds { min: 1, max: 31_536_000 }, "How long keys are used that cannot be read again; then requests get a 503.", |to, value, reader| {
            to.stale_max = Some(reader.seconds(value));
        })
        .default("86400"),
        Key::<Self>::new("algorithms", Kind::OneOrMore(&Kind::Text), "Algorithms that are accepted, such as `RS256`; all with public keys, unless set. `none` never is.", |to, value, reader| {
            to.algorithms = Some(reader.texts(value));
        })
        .known_as(&["alg"]),
        Key::<Self>::new("issuer", Kind::OneOrMore(&Kind::Text), "`iss` is one of these; any, unless set.", |to, value, reader| {
            to.issuers = reader.texts(value);
        })
        .known_as(&["issuers", "iss"]),
        Key::<Self>::new("audience", Kind::OneOrMore(&Kind::Text), "`aud` has one of these; `\"*\"` alone accepts tokens for anybody. Without it, a token that names an audience does not pass.", |to, value, reader| {
            to.audiences = reader.texts(value);
        })
        .known_as(&["audiences", "aud"]),
        Key::<Self>::new("leeway", Kind::Seconds { min: 0, max: 600 }, "By how much the clocks may differ.", |to, value, reader| {
            to.leeway = Some(reader.seconds(value));
        })
        .default("60"),
        Key::<Self>::new("required-claims", Kind::Map(&Kind::Either(&[Kind::Text, Kind::Boolean])), "Claims that a token has: a value, which a list or `scope` has among others, or `true` for any.", |to, value, reader| {
            for (name, value) in reader.entries(value) {
                let claim = match &value.data {
                    Data::Boolean(false) => {
                        reader.mistake(value.place, format!("`{}` is a value, or `true`", name.text.escape_debug()));
                        continue;
                    }
                    Data::Boolean(true) => RequiredClaim::Present(name.text.clone()),
                    _ => RequiredClaim::Value(name.text.clone(), reader.text(value)),
                };
                to.required.push(claim);
            }
        })
        .known_as(&["required", "claims"]),
        Key::<Self>::new("claim-fields", Kind::Map(&Kind::Text), "Fields for the upstream, and the claims whose values they have: `{ X-User = \"sub\" }`. The client cannot send them. `{request.header.X-User}` has the value in other keys.", |to, value, reader| {
            for (name, claim) in reader.entries(value) {
                to.fields.push((Located::new(name.text.clone(), name.place), reader.text(claim)));
            }
        }),
        Key::<Self>::new("token", Kind::Text, "Where the token is: `bearer` (the field `Authorization`), `cookie:NAME` or `query:NAME`.", |to, value, reader| {
            let text = reader.text(value);
            to.token = match text.split_once(':') {
                None if text == "bearer" => TokenSource::Bearer,
                Some(("cookie", name)) if is_field_name(name) => TokenSource::Cookie(name.to_owned()),
                Some(("query", name)) if is_field_name(name) => TokenSource::Query(name.to_owned()),
                _ => {
                    let text = format!("`{}` is not bearer, cookie:NAME or query:NAME", text.escape_debug());
                    return reader.mistake(value.place, text);
                }
            };
        })
        .default("\"bearer\""),
        Key::<Self>::new("realm", Kind::Text, "The realm in `WWW-Authenticate`.", |to, value, reader| {
            to.realm = Some(reader.text(value));
        })
        .default("\"restricted\""),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if let Err((place, text)) = self.build() {
            mistakes.add(place, text);
        }
    }
}

impl JwtRule {
    /// The middleware. The keys of a file are read.
    pub(crate) fn build(&self) -> Result<Jwt, Mistake> {
        let mut builder = Jwt::builder(self.keys()?).token(self.token.clone());
        if let Some(algorithms) = &self.algorithms {
            builder = builder.algorithms(algorithms.iter().map(|name| &*name.value));
        }
        builder = self.issuers.iter().fold(builder, |builder, issuer| builder.issuer(&*issuer.value));
        let is_any = self.audiences.len() == 1 && self.audiences[0].value == "*";
        builder = match is_any {
            true => builder.any_audience(),
            false => self.audiences.iter().fold(builder, |builder, audience| builder.audience(&*audience.value)),
        };
        builder = self.required.iter().cloned().fold(builder, |builder, claim| builder.required(claim));
        for (name, claim) in &self.fields {
            if !is_field_name(&name.value) {
                return Err((name.place, format!("`{}` is not the name of a field", name.value.escape_debug())));
            }
            builder = builder.claim_field(&*name.value, claim);
        }
        if let Some(leeway) = self.leeway {
            builder = builder.leeway(leeway);
        }
        if let Some(realm) = &self.realm {
            builder = builder.realm(realm);
        }
        let place = self.algorithms.as_ref().and_then(|names| names.first()).map_or(self.place, |name| name.place);
        builder.build().map_err(|error| (place, error.to_string()))
    }

    fn keys(&self) -> Result<JwtKeys, Mistake> {
        let keys = match (&self.keys_file, &self.keys_url, &self.secret) {
            (Some(path), None, None) => JwtKeys::file(&path.value)
                .map_err(|error| (path.place, format!("`{}`: {error}", path.value.display())))?,
            (None, Some(url), None) => {
                let keys = JwtKeys::url(&url.value).map_err(|error| (url.place, error.to_string()))?;
                match tls(&url.value, self.ca.as_ref(), self.place)? {
                    Some(tls) => keys.tls(tls),
                    None => keys,
                }
            }
            (None, None, Some(secret)) => {
                if self.algorithms.is_none() {
                    return Err((secret.place, "`secret` needs `algorithms`, such as `[\"HS256\"]`".into()));
                }
                JwtKeys::secret(&secret.value).map_err(|error| (secret.place, error.to_string()))?
            }
            _ => return Err((self.place, "jwt has exactly one of `keys-file`, `keys-url` and `secret`".into())),
        };
        Ok(match self.stale_max {
            Some(age) => keys.stale_max(age),
            None => keys,
        })
    }

    /// Whether two rules are the same, so that the keys of one serve the other.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        // Places differ where a line was added above.
        let content = |rule: &Self| {
            let file = rule.keys_file.as_ref().map(|path| path.value.clone());
            let texts = |list: &[Located<String>]| list.iter().map(|text| text.value.clone()).collect::<Vec<_>>();
            let one = |text: &Option<Located<String>>| text.as_ref().map(|text| text.value.clone());
            let ca = rule.ca.as_ref().map(|path| path.value.clone());
            let fields: Vec<_> = rule.fields.iter().map(|(name, claim)| (name.value.clone(), claim.clone())).collect();
            let keys = (file, one(&rule.keys_url), one(&rule.secret), ca, rule.stale_max);
            let algorithms = rule.algorithms.as_deref().map(texts);
            let claims = (algorithms, texts(&rule.issuers), texts(&rule.audiences), rule.leeway, rule.required.clone());
            (keys, claims, fields, rule.token.clone(), rule.realm.clone())
        };
        content(self) == content(other)
    }
}

/// How the server of a URL is verified; `None` for one of `http`.
fn tls(url: &str, ca: Option<&Located<PathBuf>>, place: Place) -> Result<Option<ClientConfig>, Mistake> {
    if !url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:")) {
        return match ca {
            Some(ca) => Err((ca.place, "`ca` is for a URL of https".into())),
            None => Ok(None),
        };
    }
    let (provider, place) = (Provider::aws_lc_rs(), ca.map_or(place, |ca| ca.place));
    let builder = match ca {
        Some(ca) => ClientConfig::builder_with_root_file(&provider, &ca.value),
        None => ClientConfig::builder_with_platform_roots(&provider),
    };
    let built = builder
        .map_err(|error| error.to_string())
        .and_then(|builder| builder.alpn(["http/1.1"]).build().map_err(|error| error.to_string()));
    built.map(Some).map_err(|error| (place, error))
}
