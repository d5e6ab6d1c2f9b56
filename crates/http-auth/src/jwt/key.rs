//! `Key`: one key of a set (RFC 7517), and the algorithms that it verifies.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::aws_lc;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};

/// A key that verifies signatures.
pub(super) struct Key {
    pub(super) kid: Option<String>,
    /// Only algorithms of the key's own kind: so the public key of RSA is never the secret of an HMAC.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

impl Key {
    /// A shared secret.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        Self { kid: None, algorithms: HMAC.into(), decoding: DecodingKey::from_secret(secret) }
    }

    /// A key of a set; `None` for one of another use or kind, which others may need (RFC 7517 §5).
    pub(super) fn of_jwk(jwk: &Jwk) -> Option<Self> {
        let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let operations = jwk.common.key_operations.as_deref();
        if !is_for_signatures || operations.is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
            return None;
        }
        let kind: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &RSA,
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
            AlgorithmParameters::OctetKey(_) => &HMAC,
            _ => return None,
        };
        let algorithms = match &jwk.common.key_algorithm {
            None => kind.to_vec(),
            Some(named) => {
                let named = named.to_string();
                kind.iter().copied().filter(|algorithm| format!("{algorithm:?}") == named).collect()
            }
        };
        let decoding = DecodingKey::from_jwk(jwk).ok()?;
        let is_short = algorithms.first().is_some_and(|first| HMAC.contains(first))
            && decoding.try_get_as_bytes().is_ok_and(|secret| secret.len() < SECRET_BYTES_MIN);
        (!algorithms.is_empty() && !is_short).then(|| Self { kid: jwk.common.key_id.clone(), algorithms, decoding })
    }

    pub(super) fn is_secret(&self) -> bool {
        self.algorithms.iter().any(|algorithm| HMAC.contains(algorithm))
    }

    pub(super) fn verifies(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Whether a signature is that of the text by this key.
    pub(super) fn is_signature(&self, signature: &str, signed: &str, algorithm: Algorithm) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        if !self.verifies(algorithm) {
            return false;
        }
        // That of AWS-LC by name: `jsonwebtoken` panics where another crate of the program has chosen a second one.
        let verifier = (aws_lc::DEFAULT_PROVIDER.verifier_factory)(&algorithm, &self.decoding);
        verifier.is_ok_and(|verifier| verifier.verify(signed.as_bytes(), &signature).is_ok())
    }
}

/// The shortest shared secret: the length of the hash (RFC 7518 §3.2).
pub(super) const SECRET_BYTES_MIN: usize = 32;

pub(super) const HMAC: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
const RSA: [Algorithm; 6] =
    [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

/// All algorithms with a public key.
pub(super) const ASYMMETRIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
