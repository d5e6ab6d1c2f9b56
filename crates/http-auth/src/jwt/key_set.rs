//! `KeySet`: the keys of an issuer (RFC 7517 §5).

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use serde_json::Value;

use super::key::{Key, SECRET_BYTES_MIN};
use super::strict_json;
use crate::forward::InvalidService;

/// Keys that were read together.
pub(super) struct KeySet {
    /// No other set of the process has it.
    pub(super) number: u64,
    keys: Vec<Key>,
}

/// Keys that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidKeys {
    /// The file cannot be read.
    Io(io::Error),
    /// The URL is not one of `http` or `https`.
    Url(InvalidService),
    /// The text is no JSON object with a list `keys`, or has a name twice.
    Json,
    /// None of its keys verifies signatures with an algorithm that is known here.
    NoKey,
    /// It has more than 100 keys or 256 KiB.
    TooLarge,
    /// The secret has fewer than 32 bytes (RFC 7518 §3.2).
    ShortSecret,
}

impl KeySet {
    pub(super) fn of_secret(secret: &[u8]) -> Result<Self, InvalidKeys> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(InvalidKeys::ShortSecret);
        }
        Ok(Self::new(vec![Key::of_secret(secret)]))
    }

    /// The keys of a JWKS document. Keys of other uses and kinds are left out, and so are shared secrets unless the document
    /// may have them: a secret that anybody can fetch is none.
    pub(super) fn parse(text: &[u8], may_have_secrets: bool) -> Result<Self, InvalidKeys> {
        if text.len() > BYTES_MAX {
            return Err(InvalidKeys::TooLarge);
        }
        let mut document = strict_json::object(text).ok_or(InvalidKeys::Json)?;
        let Some(Value::Array(items)) = document.remove("keys") else { return Err(InvalidKeys::Json) };
        if items.len() > KEYS_MAX {
            return Err(InvalidKeys::TooLarge);
        }
        let jwks = items.into_iter().filter_map(|item| serde_json::from_value::<Jwk>(item).ok());
        let keys = jwks.filter_map(|jwk| Key::of_jwk(&jwk)).filter(|key| may_have_secrets || !key.is_secret());
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() { Err(InvalidKeys::NoKey) } else { Ok(Self::new(keys)) }
    }

    fn new(keys: Vec<Key>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self { number: NUMBER.fetch_add(1, Ordering::Relaxed), keys }
    }

    /// The keys that may have signed a token: those of its `kid`, or those without one. A token that names no key has all
    /// keys of its algorithm tried, up to four.
    pub(super) fn candidates<'s>(&'s self, kid: Option<&str>, algorithm: Algorithm) -> Vec<&'s Key> {
        let verifying = || self.keys.iter().filter(|key| key.verifies(algorithm));
        let named: Vec<_> = match kid {
            Some(kid) => verifying().filter(|key| key.kid.as_deref() == Some(kid)).take(TRIED_MAX).collect(),
            None => return verifying().take(TRIED_MAX).collect(),
        };
        if named.is_empty() { verifying().filter(|key| key.kid.is_none()).take(TRIED_MAX).collect() } else { named }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl fmt::Display for InvalidKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Url(error) => error.fmt(f),
            Self::Json => f.write_str("it is no JSON object with a list `keys` (RFC 7517), or a name occurs twice"),
            Self::NoKey => f.write_str(
                "none of its keys verifies signatures: keys are of RSA, of the curves P-256, P-384 and Ed25519, or secrets of 32 \
                 bytes or more in a file",
            ),
            Self::TooLarge => write!(f, "it has more than {KEYS_MAX} keys, or more than 256 KiB"),
            Self::ShortSecret => {
                write!(f, "the secret has fewer than {SECRET_BYTES_MIN} bytes; `openssl rand -hex 32` makes one")
            }
        }
    }
}

impl Error for InvalidKeys {}

const KEYS_MAX: usize = 100;
pub(super) const BYTES_MAX: usize = 256 * 1024;

/// Keys that one token has tried: each costs a verification.
const TRIED_MAX: usize = 4;
