//! Servers that end with their test, a plain client, and an issuer of tokens.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use jsonwebtoken::crypto::aws_lc;
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use tidegate::ServerHandle;
use tidegate::http::{Router, Server};

/// A server that drains when it is dropped.
pub(crate) struct Running(pub(crate) ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

pub(crate) fn start(router: impl Fn() -> Router + Send + Sync + 'static) -> Running {
    let server = Server::bind("127.0.0.1:0").expect("a port").half_close(true).loops(1);
    Running(server.start(router).expect("the server starts"))
}

impl Running {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address())
    }

    /// The whole response to a GET with these lines of fields.
    pub(crate) fn get(&self, target: &str, lines: &str) -> String {
        self.exchange(&format!("GET {target} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{lines}\r\n"))
    }

    pub(crate) fn exchange(&self, wire: &str) -> String {
        let mut stream = TcpStream::connect(self.0.address().ip().expect("TCP")).expect("a connection");
        stream.write_all(wire.as_bytes()).expect("the server reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8_lossy(&response).into_owned()
    }
}

/// The status of a response.
pub(crate) fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}

/// The value of a field of a response.
pub(crate) fn field<'r>(response: &'r str, name: &str) -> Option<&'r str> {
    let lines = response.split("\r\n\r\n").next()?.lines();
    let mut fields = lines.filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

pub(crate) fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// An issuer with one key.
pub(crate) struct Issuer {
    key: KeyPair,
    algorithm: Algorithm,
    kid: &'static str,
}

impl Issuer {
    pub(crate) fn new(kid: &'static str) -> Self {
        Self::of(&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256, kid)
    }

    pub(crate) fn of(kind: &'static SignatureAlgorithm, algorithm: Algorithm, kid: &'static str) -> Self {
        Self { key: KeyPair::generate_for(kind).expect("a key"), algorithm, kid }
    }

    /// The public key, as a JWK.
    pub(crate) fn jwk(&self) -> Value {
        let public = self.key.der_bytes();
        let common = |kind: Value| {
            let mut jwk = kind;
            jwk["kid"] = self.kid.into();
            jwk["use"] = "sig".into();
            jwk
        };
        match self.algorithm {
            Algorithm::ES256 | Algorithm::ES384 => {
                let (x, y) = public[1..].split_at(public.len() / 2);
                let curve = if self.algorithm == Algorithm::ES256 { "P-256" } else { "P-384" };
                common(json!({"kty": "EC", "crv": curve, "x": base64(x), "y": base64(y)}))
            }
            Algorithm::EdDSA => common(json!({"kty": "OKP", "crv": "Ed25519", "x": base64(public)})),
            _ => {
                let (modulus, exponent) = rsa_parts(public);
                common(json!({"kty": "RSA", "n": base64(modulus), "e": base64(exponent)}))
            }
        }
    }

    pub(crate) fn public_bytes(&self) -> &[u8] {
        self.key.der_bytes()
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": format!("{:?}", self.algorithm), "kid": self.kid}).to_string(), &claims.to_string())
    }

    /// A token with this header and these claims, signed by the issuer whatever they say.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        let der = self.key.serialize_der();
        let key = match self.algorithm {
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_der(&der),
            Algorithm::EdDSA => EncodingKey::from_ed_der(&der),
            _ => EncodingKey::from_rsa_der(&rsa_private(&der)),
        };
        signed(header, claims, &key, self.algorithm)
    }
}

/// A token that a key has signed.
pub(crate) fn signed(header: &str, claims: &str, key: &EncodingKey, algorithm: Algorithm) -> String {
    let text = format!("{}.{}", base64(header), base64(claims));
    let signer = (aws_lc::DEFAULT_PROVIDER.signer_factory)(&algorithm, key).expect("a key of the algorithm");
    let signature: Vec<u8> = signer.try_sign(text.as_bytes()).expect("a signature");
    format!("{text}.{}", base64(signature))
}

/// The claims of a token that is valid for an hour.
pub(crate) fn claims(subject: &str) -> Value {
    json!({"sub": subject, "exp": now() + 3600})
}

pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

pub(crate) fn jwks(issuers: &[&Issuer]) -> String {
    json!({"keys": issuers.iter().map(|issuer| issuer.jwk()).collect::<Vec<_>>()}).to_string()
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Modulus and exponent of a public key in the form of RFC 8017 §A.1.1.
fn rsa_parts(der: &[u8]) -> (&[u8], &[u8]) {
    let (sequence, _) = element(der);
    let (modulus, rest) = element(sequence);
    let (exponent, _) = element(rest);
    (modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent)
}

/// The key within PKCS #8, in the form of RFC 8017 §A.1.2.
fn rsa_private(der: &[u8]) -> Vec<u8> {
    let (sequence, _) = element(der);
    let (_, rest) = element(sequence);
    let (_, rest) = element(rest);
    element(rest).0.to_vec()
}

/// The content of the first DER element, and the bytes behind it.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (start, length) = match der[1] {
        short if short < 0x80 => (2, usize::from(short)),
        long => {
            let count = usize::from(long & 0x7f);
            (2 + count, der[2..2 + count].iter().fold(0, |all, byte| all << 8 | usize::from(*byte)))
        }
    };
    (&der[start..start + length], &der[start + length..])
}
