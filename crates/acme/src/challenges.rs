//! `Challenges`: the answers to validations under way. `Http01`: middleware with those to HTTP-01.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use http::{Method, StatusCode};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tidegate_http::{ContentType, Middleware, Request, Response};
use tidegate_tls::Certificates;

use crate::dns::{DnsProvider, record_name};
use crate::error::IssueError;

/// The answers to HTTP-01 by token.
type Answers = Arc<RwLock<HashMap<Box<str>, Box<str>>>>;

/// Answers HTTP-01 (RFC 8555 §8.3) below `/.well-known/acme-challenge/`: middleware of a router on port 80. Other requests
/// pass, and so does one with a token that is not expected.
///
/// ```
/// use tidegate::acme::Http01;
/// use tidegate::http::Router;
///
/// fn router(http01: Http01) -> Router {
///     Router::new().get("/", || "welcome").with(http01)
/// }
/// ```
#[derive(Clone)]
pub struct Http01(Answers);

impl Middleware for Http01 {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let token = request.path().strip_prefix(HTTP_PATH);
        let Some(token) = token.filter(|_| matches!(request.method(), Method::GET | Method::HEAD)) else {
            return Ok(());
        };
        let answer = self.0.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        match answer {
            Some(answer) => {
                Err(Response::status(StatusCode::OK).content_type(ContentType::BYTES).body(String::from(answer)))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Http01 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http01")
    }
}

/// All answers of one [`Acme`](crate::Acme).
#[derive(Clone)]
pub(crate) struct Challenges {
    http: Answers,
    tls: Certificates,
}

impl Challenges {
    pub(crate) fn new(tls: Certificates) -> Self {
        Self { http: Answers::default(), tls }
    }

    pub(crate) fn http01(&self) -> Http01 {
        Http01(self.http.clone())
    }

    /// Answers HTTP-01 until the result is dropped.
    pub(crate) fn answer_http(&self, token: &str, answer: &str) -> Answering {
        let mut answers = self.http.write().unwrap_or_else(PoisonError::into_inner);
        answers.insert(token.into(), answer.into());
        Answering { challenges: self.clone(), key: AnswerKey::Token(token.into()) }
    }

    /// Answers TLS-ALPN-01 until the result is dropped. It makes a key, which takes long.
    pub(crate) fn answer_tls(&self, name: &str, digest: &[u8]) -> Result<Answering, IssueError> {
        let (chain, key) = challenge_certificate(name, digest).map_err(|_| IssueError::Crypto)?;
        let requested = requested_name(name);
        let set = self.tls.set_challenge(&requested, chain.as_bytes(), key.as_bytes());
        set.map_err(|_| IssueError::Crypto)?;
        Ok(Answering { challenges: self.clone(), key: AnswerKey::Name(requested) })
    }

    /// Sets the record of DNS-01 until the result is dropped. It waits for the name servers.
    pub(crate) fn answer_dns(
        &self,
        provider: Arc<dyn DnsProvider>,
        name: &str,
        value: String,
    ) -> Result<Answering, IssueError> {
        let name = record_name(name);
        let key = AnswerKey::Record { provider: provider.clone(), name: name.clone(), value: value.clone() };
        // A failure may come after the record was set, at a part of the name servers: it is removed then as well.
        let answering = Answering { challenges: self.clone(), key };
        provider.set(&name, &value).map_err(IssueError::Dns)?;
        Ok(answering)
    }
}

/// An answer that ends when it is dropped.
pub(crate) struct Answering {
    challenges: Challenges,
    key: AnswerKey,
}

enum AnswerKey {
    Token(Box<str>),
    Name(String),
    Record { provider: Arc<dyn DnsProvider>, name: String, value: String },
}

impl Drop for Answering {
    fn drop(&mut self) {
        match &self.key {
            AnswerKey::Token(token) => {
                self.challenges.http.write().unwrap_or_else(PoisonError::into_inner).remove(token);
            }
            AnswerKey::Name(name) => self.challenges.tls.clear_challenge(name),
            AnswerKey::Record { provider, name, value } => remove_record(provider.clone(), name.clone(), value.clone()),
        }
    }
}

/// Removes a record on a thread of its own: the loop does not wait, and may be gone.
fn remove_record(provider: Arc<dyn DnsProvider>, name: String, value: String) {
    let remove = move || {
        if let Err(error) = provider.remove(&name, &value) {
            tracing::warn!(subsystem = "acme", name, %error, "the record of DNS-01 is not removed");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("acme-dns".to_owned()).spawn(remove) {
        tracing::warn!(subsystem = "acme", %error, "a record of DNS-01 is not removed: there is no thread");
    }
}

/// The certificate of RFC 8737 §3: for the name alone, with the digest in a critical extension.
fn challenge_certificate(name: &str, digest: &[u8]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// The name that an authority requests (SNI) to validate one: for an IP address that of its reverse zone (RFC 8738 §6).
fn requested_name(name: &str) -> String {
    let mut requested = String::new();
    match name.parse::<IpAddr>() {
        Err(_) => requested.push_str(name),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            let _ = write!(requested, "{d}.{c}.{b}.{a}.in-addr.arpa");
        }
        Ok(IpAddr::V6(address)) => {
            for byte in address.octets().iter().rev() {
                let _ = write!(requested, "{:x}.{:x}.", byte & 0xf, byte >> 4);
            }
            requested.push_str("ip6.arpa");
        }
    }
    requested
}

/// Whether a token has the form of RFC 8555 §8.1. It becomes a part of a path.
pub(crate) fn is_token(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_plain)
}

/// Tokens have 22 bytes and more; none known is longer than 43.
const TOKEN_BYTES_MAX: usize = 256;

const HTTP_PATH: &str = "/.well-known/acme-challenge/";

#[cfg(test)]
mod tests {
    use x509_parser::parse_x509_certificate;

    use super::*;

    #[test]
    fn addresses_are_requested_by_their_reverse_zone() {
        assert_eq!(requested_name("a.test"), "a.test");
        assert_eq!(requested_name("192.0.2.7"), "7.2.0.192.in-addr.arpa");
        let expected = format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa", "0.".repeat(23));
        assert_eq!(requested_name("2001:db8::1"), expected);
    }

    #[test]
    fn the_certificate_of_a_challenge_has_its_digest_in_a_critical_extension() {
        let (chain, _) = challenge_certificate("a.test", &[7; 32]).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(chain.as_bytes()).unwrap();
        let (_, certificate) = parse_x509_certificate(&pem.contents).unwrap();
        let mut extensions = certificate.iter_extensions();
        let found = extensions.find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").unwrap();
        assert!(found.critical);
        assert_eq!(found.value, [&[4, 32][..], &[7; 32]].concat());
    }

    #[test]
    fn a_token_has_letters_of_base64url() {
        assert!(is_token("DGyRejmCefe7v4NfDGDKfA") && is_token("a-_9"));
        for token in ["", "a/b", "a.b", "a b", "ä", &"a".repeat(257)] {
            assert!(!is_token(token), "{token:?}");
        }
    }
}
