//! `BasicAuth`: names and passwords (RFC 7617).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_engine::ConnectionRate;
use tidegate_http1::Status;

use super::{Middleware, RateLimit};
use crate::request::Request;
use crate::response::Response;

/// Refuses requests without one of these names and its password: 401. The password is sent in the clear, so use it over
/// TLS.
///
/// An address that has guessed wrong 20 times gets a 429 for whatever it sends, and one more guess each second:
/// [`guesses`](Self::guesses).
///
/// ```
/// use tidegate::http::{BasicAuth, Router};
///
/// let router = Router::new().get("/", || "secret").with(BasicAuth::new("Harbour").user("ebb", "flow"));
/// # drop(router);
/// ```
pub struct BasicAuth {
    challenge: Box<str>,
    users: Vec<Box<[u8]>>,
    guesses: RateLimit,
}

impl BasicAuth {
    /// No user. A browser shows the realm.
    ///
    /// # Panics
    /// If the realm has quotes, backslashes or characters that a field cannot have.
    #[must_use]
    pub fn new(realm: &str) -> Self {
        let guesses = RateLimit::new(ConnectionRate::per_second(1).burst(20));
        Self { challenge: challenge(realm), users: Vec::new(), guesses }
    }

    /// How many wrong pairs of a name and a password each client may send: by default 20 at once, and then one a second for
    /// each address. Loops that are to count together have clones of one limit.
    #[must_use]
    pub fn guesses(mut self, limit: RateLimit) -> Self {
        self.guesses = limit;
        self
    }

    /// Adds a user.
    ///
    /// # Panics
    /// If the name has a colon.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        assert!(!name.contains(':'), "the name `{name}` must not have a colon");
        self.users.push(format!("{name}:{password}").into_bytes().into());
        self
    }

    fn is_known(&self, given: &[u8]) -> bool {
        // All users are compared in full, so that the time says nothing about how far one matches.
        self.users.iter().fold(false, |found, user| found | is_equal(user, given))
    }
}

impl Middleware for BasicAuth {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if let Some(given) = authorization(request)?.and_then(credentials) {
            // Before the pair is compared: otherwise a right guess would still be told from a wrong one.
            self.guesses.look(request)?;
            if self.is_known(&given) {
                return Ok(());
            }
            self.guesses.check(request)?;
        }
        let refusal = Response::of_error(Status::UNAUTHORIZED);
        Err(refusal.header("WWW-Authenticate", &*self.challenge).expect("the realm was checked"))
    }
}

/// The field that asks for a name and a password.
///
/// # Panics
/// If the realm has quotes, backslashes or characters that a field cannot have.
pub(super) fn challenge(realm: &str) -> Box<str> {
    let is_plain = realm.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
    assert!(is_plain, "the realm `{realm}` has to be ASCII without quotes and backslashes");
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"").into()
}

/// The value of `Authorization`. A request with several gets a 400: a server behind this one may read another one than this.
pub(super) fn authorization(request: &Request) -> Result<Option<&[u8]>, Response> {
    let mut fields = request.header_bytes().filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization"));
    match (fields.next(), fields.next()) {
        (field, None) => Ok(field.map(|(_, value)| value)),
        _ => Err(Response::of_error(Status::BAD_REQUEST)),
    }
}

/// `NAME:PASSWORD`.
pub(super) fn credentials(field: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = field.split_at_checked(5)?;
    let encoded = rest.strip_prefix(b" ")?.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    STANDARD.decode(encoded).ok()
}

/// Whether both are equal, in a time that depends on the length of `given` alone.
fn is_equal(expected: &[u8], given: &[u8]) -> bool {
    let mut differs = expected.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        differs |= usize::from(byte ^ expected.get(at).copied().unwrap_or(0));
    }
    std::hint::black_box(differs) == 0
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}
