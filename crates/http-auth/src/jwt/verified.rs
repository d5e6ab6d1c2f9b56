//! `VerifiedTokens`: tokens whose signatures were right, for a minute.
//!
//! A token is kept under a keyed hash of 128 bits, so that a client can neither find an equal one nor compute one. Its claims
//! are checked again for each request: an expiry counts at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Verified tokens of all loops.
pub(super) struct VerifiedTokens {
    tokens: Mutex<HashMap<(u64, u64), VerifiedToken>>,
    keys: (RandomState, RandomState),
    tokens_max: usize,
}

struct VerifiedToken {
    claims: Arc<Value>,
    until: Instant,
    /// The number of the key set.
    key_set: u64,
}

impl VerifiedTokens {
    pub(super) fn new(tokens_max: usize) -> Self {
        Self { tokens: Mutex::default(), keys: (RandomState::new(), RandomState::new()), tokens_max }
    }

    /// The claims of a token that a key of this set has verified.
    pub(super) fn claims(&self, token: &str, key_set: u64, now: Instant) -> Option<Arc<Value>> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.get(&self.key(token))?;
        (found.key_set == key_set && now < found.until).then(|| found.claims.clone())
    }

    pub(super) fn insert(&self, token: &str, key_set: u64, claims: &Arc<Value>, now: Instant) {
        if token.len() > KEPT_BYTES_MAX {
            return;
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= self.tokens_max {
            tokens.retain(|_, token| now < token.until && token.key_set == key_set);
        }
        if tokens.len() < self.tokens_max {
            let verified = VerifiedToken { claims: claims.clone(), until: now + KEPT_FOR, key_set };
            tokens.insert(self.key(token), verified);
        }
    }

    fn key(&self, token: &str) -> (u64, u64) {
        (self.keys.0.hash_one(token), self.keys.1.hash_one(token))
    }
}

const KEPT_FOR: Duration = Duration::from_secs(60);

/// Longer tokens are verified each time.
const KEPT_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_for_a_minute_and_for_its_key_set_alone() {
        let (tokens, now) = (VerifiedTokens::new(10), Instant::now());
        let claims = Arc::new(Value::from(7));
        tokens.insert("a.b.c", 1, &claims, now);
        assert_eq!(tokens.claims("a.b.c", 1, now + KEPT_FOR - Duration::from_nanos(1)), Some(claims));
        assert_eq!(tokens.claims("a.b.c", 1, now + KEPT_FOR), None);
        assert_eq!(tokens.claims("a.b.c", 2, now), None, "the key may be withdrawn");
        assert_eq!(tokens.claims("a.b.d", 1, now), None);
    }

    #[test]
    fn known_tokens_are_bounded() {
        let (tokens, now) = (VerifiedTokens::new(10), Instant::now());
        let claims = Arc::new(Value::Null);
        for number in 0..100 {
            tokens.insert(&number.to_string(), 1, &claims, now);
        }
        tokens.insert(&"x".repeat(KEPT_BYTES_MAX + 1), 1, &claims, now + KEPT_FOR);
        assert_eq!(tokens.tokens.lock().expect("a lock").len(), 10);
        tokens.insert("later", 1, &claims, now + KEPT_FOR);
        assert_eq!(tokens.tokens.lock().expect("a lock").len(), 1, "those whose time is over make room");
    }
}
