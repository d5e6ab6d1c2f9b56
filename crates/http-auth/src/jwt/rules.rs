//! `Rules`: which tokens pass (RFC 7519 §4.1), and the fields that their claims become.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};
use tidegate_http::gateway::is_of_connection;
use tidegate_http::{InvalidField, Response};

use super::key::ASYMMETRIC;

/// A claim that a token must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequiredClaim {
    /// With any value but null.
    Present(String),
    /// With this value: as a text, as an item of a list, or, for `scope`, as one of the words of the text (RFC 8693 §4.2).
    Value(String, String),
}

/// A rule that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRule {
    /// No algorithm has this name, or it is `none`.
    Algorithm(String),
    /// There is no algorithm.
    NoAlgorithm,
    /// A claim cannot become a field of this name.
    Field(String, InvalidField),
}

/// Which tokens pass.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    pub(super) any_audience: bool,
    pub(super) leeway: Duration,
    pub(super) may_last_forever: bool,
    pub(super) required: Vec<RequiredClaim>,
    /// Names of fields, and of the claims whose values they have.
    pub(super) fields: Vec<(String, String)>,
}

/// Why a token does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenFault {
    Malformed,
    TooLong,
    Algorithm,
    UnknownKey,
    Signature,
    Expired,
    NotYetValid,
    NoExpiry,
    Issuer,
    Audience,
    MissingClaim,
    /// A required claim has another value: the user may not do this.
    Forbidden,
    /// The value of a claim cannot be that of a field.
    ClaimField,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            algorithms: ASYMMETRIC.into(),
            issuers: Vec::new(),
            audiences: Vec::new(),
            any_audience: false,
            leeway: Duration::from_secs(60),
            may_last_forever: false,
            required: Vec::new(),
            fields: Vec::new(),
        }
    }
}

impl Rules {
    /// Whether the claims pass at a time, in seconds since 1970.
    pub(super) fn check(&self, claims: &Map<String, Value>, now: u64) -> Result<(), TokenFault> {
        let (now, leeway) = (now as f64, self.leeway.as_secs_f64());
        match time(claims, "exp")? {
            Some(expiry) if now >= expiry + leeway => return Err(TokenFault::Expired),
            None if !self.may_last_forever => return Err(TokenFault::NoExpiry),
            _ => {}
        }
        if time(claims, "nbf")?.is_some_and(|start| now < start - leeway) {
            return Err(TokenFault::NotYetValid);
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        if !self.issuers.is_empty() && !self.issuers.iter().any(|known| Some(&**known) == issuer) {
            return Err(TokenFault::Issuer);
        }
        self.check_audience(claims)?;
        self.required.iter().try_for_each(|required| required.check(claims))
    }

    /// A token that names audiences is for these alone (RFC 7519 §4.1.3).
    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let is_ours = |value: &Value| self.audiences.iter().any(|ours| value.as_str() == Some(&**ours));
        let is_right = match claims.get("aud") {
            _ if self.any_audience => true,
            None => self.audiences.is_empty(),
            Some(Value::Array(items)) => items.iter().any(is_ours),
            Some(value) => is_ours(value),
        };
        if is_right { Ok(()) } else { Err(TokenFault::Audience) }
    }

    /// The values of the fields that claims become. A token without such a claim has no such field.
    pub(super) fn fields_of(&self, claims: &Map<String, Value>) -> Result<Vec<(&str, String)>, TokenFault> {
        let mut fields = Vec::with_capacity(self.fields.len());
        for (name, claim) in &self.fields {
            if let Some(value) = claims.get(claim).filter(|value| !value.is_null()) {
                fields.push((&**name, field_value(value).ok_or(TokenFault::ClaimField)?));
            }
        }
        Ok(fields)
    }

    pub(super) fn add_field(&mut self, name: String, claim: String) -> Result<(), InvalidRule> {
        let checked = match is_of_connection(name.as_bytes()) {
            true => Err(InvalidField::Reserved),
            false => Response::new().add_header(&name, ""),
        };
        checked.map_err(|error| InvalidRule::Field(name.clone(), error))?;
        self.fields.push((name, claim));
        Ok(())
    }
}

impl RequiredClaim {
    fn check(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let (Self::Present(name) | Self::Value(name, _)) = self;
        let value = claims.get(name).filter(|value| !value.is_null()).ok_or(TokenFault::MissingClaim)?;
        let Self::Value(_, wanted) = self else { return Ok(()) };
        let has = match value {
            Value::String(text) if name == "scope" => text.split(' ').any(|word| word == wanted),
            Value::String(text) => text == wanted,
            Value::Array(items) => items.iter().any(|item| item.as_str() == Some(wanted)),
            Value::Bool(is) => wanted == if *is { "true" } else { "false" },
            Value::Number(number) => *wanted == number.to_string(),
            _ => false,
        };
        if has { Ok(()) } else { Err(TokenFault::Forbidden) }
    }
}

/// A claim that is a time, in seconds since 1970 (RFC 7519 §2).
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, TokenFault> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(TokenFault::Malformed),
    }
}

/// The value of a claim as that of a field: a list is joined by commas, so its items have none.
fn field_value(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let texts: Option<Vec<_>> = items.iter().map(Value::as_str).collect();
            let texts = texts.filter(|texts| !texts.iter().any(|text| text.contains(',')))?;
            texts.join(",")
        }
        other => other.to_string(),
    };
    (!text.chars().any(char::is_control)).then_some(text)
}

/// The algorithm of a name; never `none`.
pub(super) fn algorithm(name: &str) -> Result<Algorithm, InvalidRule> {
    Algorithm::from_str(name).map_err(|_| InvalidRule::Algorithm(name.to_owned()))
}

impl TokenFault {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Forbidden => StatusCode::FORBIDDEN,
            _ => StatusCode::UNAUTHORIZED,
        }
    }

    /// The code of RFC 6750 §3.1.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Forbidden => "insufficient_scope",
            _ => "invalid_token",
        }
    }

    /// For the client's developer. It has no quotes and no backslashes.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Malformed => "the token is malformed",
            Self::TooLong => "the token is too long",
            Self::Algorithm => "the algorithm of the token is not accepted",
            Self::UnknownKey => "no key is known for the token",
            Self::Signature => "the signature is wrong",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::NoExpiry => "the token has no expiry",
            Self::Issuer => "the issuer is another one",
            Self::Audience => "the token is for another audience",
            Self::MissingClaim => "the token lacks a required claim",
            Self::Forbidden => "the token does not grant this",
            Self::ClaimField => "a claim of the token cannot be passed on",
        }
    }
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(name) => write!(
                f,
                "`{}` is no algorithm; they are RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 and \
                 HS512",
                name.escape_debug()
            ),
            Self::NoAlgorithm => f.write_str("no algorithm is accepted, so no token would be"),
            Self::Field(name, error) => write!(f, "a claim cannot become the field `{}`: {error}", name.escape_debug()),
        }
    }
}

impl Error for InvalidRule {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(rules: &Rules, claims: &Value) -> Result<(), TokenFault> {
        rules.check(claims.as_object().expect("an object"), 1_000_000)
    }

    #[test]
    fn a_token_is_valid_from_its_start_to_its_end_with_leeway() {
        let rules = Rules::default();
        for (claims, expected) in [
            (json!({"exp": 1_000_001}), Ok(())),
            (json!({"exp": 999_941}), Ok(())),
            (json!({"exp": 999_940}), Err(TokenFault::Expired)),
            (json!({"exp": 999_940.5}), Ok(())),
            (json!({"exp": -1}), Err(TokenFault::Expired)),
            (json!({"exp": "1000001"}), Err(TokenFault::Malformed)),
            (json!({"exp": null}), Err(TokenFault::Malformed)),
            (json!({}), Err(TokenFault::NoExpiry)),
            (json!({"exp": 2_000_000, "nbf": 1_000_060}), Ok(())),
            (json!({"exp": 2_000_000, "nbf": 1_000_061}), Err(TokenFault::NotYetValid)),
            (json!({"exp": 2_000_000, "nbf": []}), Err(TokenFault::Malformed)),
        ] {
            assert_eq!(check(&rules, &claims), expected, "{claims}");
        }
        let forever = Rules { may_last_forever: true, ..Rules::default() };
        assert_eq!(check(&forever, &json!({})), Ok(()));
    }

    #[test]
    fn the_issuer_and_the_audience_are_compared_as_they_are() {
        let rules = Rules { issuers: vec!["https://sea".into()], audiences: vec!["tides".into()], ..Rules::default() };
        let claims = |iss: Value, aud: Value| json!({"exp": 2_000_000, "iss": iss, "aud": aud});
        assert_eq!(check(&rules, &claims("https://sea".into(), "tides".into())), Ok(()));
        assert_eq!(check(&rules, &claims("https://sea".into(), json!(["x", "tides"]))), Ok(()));
        for issuer in [json!("https://sea/"), json!(["https://sea"]), json!(null)] {
            assert_eq!(check(&rules, &claims(issuer, "tides".into())), Err(TokenFault::Issuer));
        }
        for audience in [json!("tide"), json!([]), json!(["TIDES"]), json!(7), json!(null)] {
            assert_eq!(check(&rules, &claims("https://sea".into(), audience)), Err(TokenFault::Audience));
        }
        assert_eq!(check(&rules, &json!({"exp": 2_000_000, "iss": "https://sea"})), Err(TokenFault::Audience));
        let of_others = json!({"exp": 2_000_000, "aud": "others"});
        assert_eq!(check(&Rules::default(), &of_others), Err(TokenFault::Audience), "RFC 7519 section 4.1.3");
        assert_eq!(check(&Rules { any_audience: true, ..Rules::default() }, &of_others), Ok(()));
    }

    #[test]
    fn required_claims_are_there_and_have_their_values() {
        let with = |required: RequiredClaim| Rules { required: vec![required], ..Rules::default() };
        let value = |name: &str, value: &str| with(RequiredClaim::Value(name.into(), value.into()));
        let check = |rules: &Rules, claim: Value| {
            check(rules, &json!({"exp": 2_000_000, "role": claim, "scope": "read write"}))
        };
        assert_eq!(check(&with(RequiredClaim::Present("role".into())), json!(false)), Ok(()));
        assert_eq!(check(&with(RequiredClaim::Present("role".into())), json!(null)), Err(TokenFault::MissingClaim));
        assert_eq!(check(&value("role", "pilot"), json!(["crew", "pilot"])), Ok(()));
        assert_eq!(check(&value("role", "pilot"), json!("crew pilot")), Err(TokenFault::Forbidden));
        assert_eq!(check(&value("scope", "write"), json!(1)), Ok(()));
        assert_eq!(check(&value("scope", "rit"), json!(1)), Err(TokenFault::Forbidden));
        assert_eq!(check(&value("role", "true"), json!(true)), Ok(()));
        assert_eq!(check(&value("role", "pilot"), json!({"pilot": true})), Err(TokenFault::Forbidden));
    }

    #[test]
    fn a_claim_becomes_one_field_or_none() {
        for (claim, expected) in [
            (json!("ebb"), Some("ebb")),
            (json!(7), Some("7")),
            (json!(["a", "b"]), Some("a,b")),
            (json!(["a", "b,admin"]), None),
            (json!(["a", 7]), None),
            (json!("ebb\r\nX-Admin: yes"), None),
            (json!("ebb\u{85}"), None),
        ] {
            assert_eq!(field_value(&claim).as_deref(), expected, "{claim}");
        }
    }
}
