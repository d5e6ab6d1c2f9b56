//! The parts of a token: a header, claims and a signature (RFC 7515 §7.1).

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::rules::TokenFault;
use super::strict_json;

/// A token whose signature is not verified.
pub(super) struct UnverifiedToken<'t> {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    /// The header and the claims, which the signature covers.
    pub(super) signed: &'t str,
    pub(super) signature: &'t str,
    claims: &'t str,
}

impl<'t> UnverifiedToken<'t> {
    /// Reads the header. `none` is no algorithm here, and a token with `crit` has extensions that nobody here knows (RFC
    /// 7515 §4.1.11).
    pub(super) fn parse(token: &'t str) -> Result<Self, TokenFault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        if claims.contains('.') {
            return Err(TokenFault::Malformed);
        }
        let header = decoded(header).ok_or(TokenFault::Malformed)?;
        if header.contains_key("crit") {
            return Err(TokenFault::Malformed);
        }
        let algorithm = header.get("alg").and_then(Value::as_str).ok_or(TokenFault::Malformed)?;
        let algorithm = Algorithm::from_str(algorithm).map_err(|_| TokenFault::Algorithm)?;
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.clone()),
            Some(_) => return Err(TokenFault::Malformed),
        };
        Ok(Self { algorithm, kid, signed, signature, claims })
    }

    /// The claims, once the signature is verified.
    pub(super) fn into_claims(self) -> Result<Map<String, Value>, TokenFault> {
        decoded(self.claims).ok_or(TokenFault::Malformed)
    }
}

fn decoded(part: &str) -> Option<Map<String, Value>> {
    strict_json::object(&URL_SAFE_NO_PAD.decode(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(token: &str) -> Option<TokenFault> {
        UnverifiedToken::parse(token).err()
    }

    fn with_header(header: &str) -> String {
        format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(header))
    }

    #[test]
    fn a_header_names_an_algorithm_and_a_key() {
        let token = with_header(r#"{"alg":"ES256","kid":"7","typ":"JWT"}"#);
        let Ok(parsed) = UnverifiedToken::parse(&token) else { panic!("a token") };
        assert_eq!((parsed.algorithm, parsed.kid.as_deref(), parsed.signature), (Algorithm::ES256, Some("7"), "c2ln"));
        assert!(parsed.into_claims().is_ok_and(|claims| claims.is_empty()));
    }

    #[test]
    fn no_token_is_read_two_ways() {
        for header in [
            r#"{"alg":"ES256","alg":"HS256"}"#,
            r#"{"alg":"ES256","crit":["b64"],"b64":false}"#,
            r#"{"alg":"ES256","kid":7}"#,
            r#"{"alg":256}"#,
            "{}",
            "[]",
        ] {
            assert_eq!(fault(&with_header(header)), Some(TokenFault::Malformed), "{header}");
        }
        for algorithm in ["none", "None", "NONE", "", "es256", "ES257"] {
            let header = format!(r#"{{"alg":"{algorithm}"}}"#);
            assert_eq!(fault(&with_header(&header)), Some(TokenFault::Algorithm), "{header}");
        }
        for token in
            ["", ".", "..", "a.b", "e30.e30.e30.e30", "e30.e30.e30.e30.e30", "e30=.e30.", "e3 0.e30.x", "ü.e30.x"]
        {
            assert_eq!(fault(token), Some(TokenFault::Malformed), "{token}");
        }
    }
}
