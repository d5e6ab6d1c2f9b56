//! `Jwt`: async middleware that requires a token, and the way of a request through it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::Value;
use tidegate_engine::task;
use tidegate_http::gateway::{cookies, is_same};
use tidegate_http::{IntoResponse, Next, Request, Response};

use super::claims::JwtClaims;
use super::key_set::KeySet;
use super::rules::{InvalidRule, RequiredClaim, Rules, TokenFault, algorithm};
use super::store::{JwtKeys, NoKeys};
use super::token::UnverifiedToken;
use super::verified::VerifiedTokens;

/// Requires a JSON Web Token (RFC 7519).
///
/// A request without a token, or with one that does not pass, gets a 401 whose `WWW-Authenticate` has the code of RFC 6750; a
/// token that lacks a required value gets a 403; a request with two tokens gets a 400.
///
/// | of a token | is checked |
/// |---|---|
/// | algorithm | one of [`algorithms`](JwtBuilder::algorithms), by default all with public keys; never `none`; the key is of the algorithm's own kind |
/// | signature | by a key of [`JwtKeys`], that of its `kid` if it has one |
/// | `exp`, `nbf` | with a [leeway](JwtBuilder::leeway) of 60 s; a token without `exp` does not pass, unless [set](JwtBuilder::without_expiry) |
/// | `iss` | if an [issuer](JwtBuilder::issuer) is set |
/// | `aud` | one of the [audiences](JwtBuilder::audience); a token for others never passes, unless [set](JwtBuilder::any_audience) |
/// | other claims | as [required](JwtBuilder::required) |
/// | JSON | a name that occurs twice, a depth beyond 128, and `crit` are refused |
///
/// | limit | default | stops |
/// |---|--:|---|
/// | [`TOKEN_BYTES_MAX`](Self::TOKEN_BYTES_MAX) | 16 KiB | long tokens |
/// | keys tried for a token without `kid` | 4 | verifications |
/// | [`verified_max`](JwtBuilder::verified_max) | 4,096 | memory for verified tokens, which are kept for a minute |
///
/// [`Claims`](crate::Claims) are an argument of functions. A [field](JwtBuilder::claim_field) has a claim for an upstream.
///
/// ```
/// use tidegate::http::Router;
/// use tidegate::http::auth::{Jwt, JwtKeys};
///
/// let keys = JwtKeys::secret("a secret of at least thirty-two bytes")?;
/// let jwt = Jwt::builder(keys).algorithms(["HS256"]).claim_field("X-User", "sub").build()?;
/// let router = move || Router::new().get("/", || "secret").wrap(jwt.require());
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Jwt {
    shared: Arc<JwtShared>,
}

struct JwtShared {
    keys: JwtKeys,
    rules: Rules,
    source: TokenSource,
    realm: Box<str>,
    verified: VerifiedTokens,
}

/// The part of a request that has the token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
    #[default]
    Bearer,
    /// The cookie of this name.
    Cookie(String),
    /// The parameter of the query of this name. Logs and histories have it too (RFC 6750 §5.3).
    Query(String),
}

/// The settings of a [`Jwt`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct JwtBuilder {
    keys: JwtKeys,
    rules: Rules,
    source: TokenSource,
    realm: String,
    verified_max: usize,
    mistake: Option<InvalidRule>,
}

impl Jwt {
    /// The longest token.
    pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

    /// Begins with keys.
    pub fn builder(keys: JwtKeys) -> JwtBuilder {
        let (rules, source, realm) = (Rules::default(), TokenSource::Bearer, "restricted".to_owned());
        JwtBuilder { keys, rules, source, realm, verified_max: 4096, mistake: None }
    }

    /// Async middleware that requires a token.
    pub fn require(&self) -> impl AsyncFn(Request, Next) -> Response + 'static {
        let jwt = self.shared.clone();
        async move |mut request: Request, next: Next| match jwt.admit(&mut request).await {
            Ok(()) => next.run(request).await,
            Err(refusal) => jwt.response(&refusal),
        }
    }
}

impl JwtBuilder {
    /// The algorithms that are accepted, by their names (RFC 7518 §3.1): all with public keys, unless set.
    pub fn algorithms<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        match names.into_iter().map(|name| algorithm(name.as_ref())).collect::<Result<Vec<_>, _>>() {
            Ok(algorithms) if algorithms.is_empty() => self.mistake = Some(InvalidRule::NoAlgorithm),
            Ok(algorithms) => self.rules.algorithms = algorithms,
            Err(mistake) => self.mistake = Some(mistake),
        }
        self
    }

    /// Adds an issuer: `iss` is one of them.
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.rules.issuers.push(issuer.into());
        self
    }

    /// Adds an audience: `aud` has one of them.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.rules.audiences.push(audience.into());
        self
    }

    /// Lets tokens for any audience pass. A token that a user gave to another service of the issuer then opens this one.
    pub fn any_audience(mut self) -> Self {
        self.rules.any_audience = true;
        self
    }

    /// By how much the clocks may differ.
    pub fn leeway(mut self, leeway: Duration) -> Self {
        self.rules.leeway = leeway;
        self
    }

    /// Lets tokens without `exp` pass, which nobody can end.
    pub fn without_expiry(mut self) -> Self {
        self.rules.may_last_forever = true;
        self
    }

    /// Adds a claim that a token must have.
    pub fn required(mut self, claim: RequiredClaim) -> Self {
        self.rules.required.push(claim);
        self
    }

    /// Adds a field with the value of a claim to requests, for an upstream or a function. A list becomes items between commas.
    /// Fields of the client with this name, or that a server may read as it, are removed in any case.
    pub fn claim_field(mut self, field: impl Into<String>, claim: impl Into<String>) -> Self {
        if let Err(mistake) = self.rules.add_field(field.into(), claim.into()) {
            self.mistake = Some(mistake);
        }
        self
    }

    /// Where the token is.
    pub fn token(mut self, source: TokenSource) -> Self {
        self.source = source;
        self
    }

    /// The realm in `WWW-Authenticate`. Quotes, backslashes and characters that are not ASCII are left out.
    pub fn realm(mut self, realm: &str) -> Self {
        self.realm = realm.chars().filter(|&char| matches!(char, ' '..='~') && char != '"' && char != '\\').collect();
        self
    }

    /// How many verified tokens are kept for their next request.
    pub fn verified_max(mut self, tokens: usize) -> Self {
        self.verified_max = tokens;
        self
    }

    /// Makes the middleware.
    ///
    /// # Errors
    /// [`InvalidRule`]: an algorithm that is unknown, a field that cannot be sent.
    pub fn build(self) -> Result<Jwt, InvalidRule> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let (keys, rules, source, realm) = (self.keys, self.rules, self.source, self.realm.into());
        let verified = VerifiedTokens::new(self.verified_max);
        Ok(Jwt { shared: Arc::new(JwtShared { keys, rules, source, realm, verified }) })
    }
}

/// Why a request does not pass.
enum Refusal {
    /// It has no token: the response asks for one, without an error (RFC 6750 §3.1).
    NoToken,
    /// It has two, or a field that it adds would be dropped on the way.
    Request,
    Token(TokenFault),
    /// There are no keys.
    NoKeys,
}

impl From<TokenFault> for Refusal {
    fn from(fault: TokenFault) -> Self {
        Self::Token(fault)
    }
}

impl From<NoKeys> for Refusal {
    fn from(_: NoKeys) -> Self {
        Self::NoKeys
    }
}

impl JwtShared {
    async fn admit(&self, request: &mut Request) -> Result<(), Refusal> {
        let claims = self.claims_of(request).await?;
        let Some(object) = claims.as_object() else { return Err(TokenFault::Malformed.into()) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.rules.check(object, now)?;
        if !self.rules.fields.is_empty() {
            let fields = self.rules.fields_of(object)?;
            let further: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let is_ours =
                |name: &str| self.rules.fields.iter().any(|(field, _)| is_same(field.as_bytes(), name.as_bytes()));
            request.edit_headers(|name| !is_ours(name), &further).map_err(|_| Refusal::Request)?;
        }
        request.extensions_mut().insert(JwtClaims(claims));
        Ok(())
    }

    /// The claims of the request's token, whose signature is right.
    async fn claims_of(&self, request: &Request) -> Result<Arc<Value>, Refusal> {
        let token = self.source.token_of(request)?.ok_or(Refusal::NoToken)?;
        if token.len() > Jwt::TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong.into());
        }
        let now = task::now();
        let keys = self.keys.current(now).await?;
        if let Some(claims) = self.verified.claims(&token, keys.number, now) {
            return Ok(claims);
        }
        let unverified = UnverifiedToken::parse(&token)?;
        if !self.rules.algorithms.contains(&unverified.algorithm) {
            return Err(TokenFault::Algorithm.into());
        }
        let keys = self.keys_of(&unverified, keys).await?;
        let candidates = keys.candidates(unverified.kid.as_deref(), unverified.algorithm);
        let is_right = candidates
            .iter()
            .any(|key| key.is_signature(unverified.signature, unverified.signed, unverified.algorithm));
        if !is_right {
            return Err(TokenFault::Signature.into());
        }
        let claims = Arc::new(Value::Object(unverified.into_claims()?));
        self.verified.insert(&token, keys.number, &claims, now);
        Ok(claims)
    }

    /// The set that has a key for a token: the known one, or the present one of its source.
    async fn keys_of(&self, token: &UnverifiedToken<'_>, known: Arc<KeySet>) -> Result<Arc<KeySet>, TokenFault> {
        let has_key = |keys: &KeySet| !keys.candidates(token.kid.as_deref(), token.algorithm).is_empty();
        if has_key(&known) {
            return Ok(known);
        }
        let others = self.keys.others(&known, task::now()).await;
        others.filter(|keys| has_key(keys)).ok_or(TokenFault::UnknownKey)
    }

    fn response(&self, refusal: &Refusal) -> Response {
        let realm = &self.realm;
        let (status, challenge) = match refusal {
            Refusal::NoToken => (StatusCode::UNAUTHORIZED, format!("Bearer realm=\"{realm}\"")),
            Refusal::Request => {
                (StatusCode::BAD_REQUEST, format!("Bearer realm=\"{realm}\", error=\"invalid_request\""))
            }
            Refusal::Token(fault) => {
                let (code, description) = (fault.code(), fault.description());
                let challenge =
                    format!("Bearer realm=\"{realm}\", error=\"{code}\", error_description=\"{description}\"");
                (fault.status(), challenge)
            }
            Refusal::NoKeys => {
                let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
                let _ = response.add_header("Retry-After", "5");
                return response;
            }
        };
        let mut response = status.into_response();
        // The realm was filtered, so it cannot fail.
        let _ = response.add_header("WWW-Authenticate", challenge);
        response
    }
}

impl TokenSource {
    /// The token of a request; two of them are a mistake of the client (RFC 6750 §2).
    fn token_of(&self, request: &Request) -> Result<Option<String>, Refusal> {
        let found: Vec<&[u8]> = match self {
            Self::Bearer => {
                let fields = request.header_bytes().filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
                let fields: Vec<_> = fields.map(|(_, value)| value).take(2).collect();
                if fields.len() > 1 {
                    return Err(Refusal::Request);
                }
                fields.into_iter().filter_map(bearer).collect()
            }
            Self::Cookie(name) => cookies(request, name).take(2).collect(),
            Self::Query(name) => {
                let pairs = request.head().query_bytes().unwrap_or_default().split(|&byte| byte == b'&');
                let values = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
                values.take(2).collect()
            }
        };
        match found[..] {
            [] => Ok(None),
            [token] => match std::str::from_utf8(token) {
                Ok(token) => Ok(Some(token.to_owned())),
                Err(_) => Err(TokenFault::Malformed.into()),
            },
            _ => Err(Refusal::Request),
        }
    }
}

/// The token of a field `Authorization`.
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return None;
    }
    Some(rest.strip_prefix(b" ")?.trim_ascii())
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Jwt").field("keys", &shared.keys).field("rules", &shared.rules).finish_non_exhaustive()
    }
}
