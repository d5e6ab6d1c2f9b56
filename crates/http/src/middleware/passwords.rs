//! `Passwords`: users whose passwords are stored as hashes.
//!
//! A hash takes tens of milliseconds to check, on purpose. A check runs on the threads of
//! [`blocking`], a few at a time, so no loop waits for one. A pair that was right is kept
//! under a keyed hash of its own for some minutes, so a user's further requests cost no check.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier};
use tidegate_engine::{ConnectionRate, blocking, task};
use tidegate_http1::Status;

use super::basic_auth::{authorization, challenge, credentials};
use super::{Next, RateLimit};
use crate::request::Request;
use crate::response::Response;

/// Users, with the hashes of their passwords: argon2 (`$argon2id$…`) or bcrypt (`$2y$…`, as `htpasswd -B` writes it).
///
/// [`require`](Self::require) is async middleware that refuses a request without a user's name and password (RFC 7617):
/// 401. The function finds the name as a [`UserName`]. Use it over TLS: the password is sent in the clear.
///
/// | limit | default | stops |
/// |---|--:|---|
/// | [`checks_max`](Self::checks_max) | 4 | guesses from taking all cores: a further check gets a 503 |
/// | [`guesses`](Self::guesses) | 20 at once, then one a second, for each address | guessing: 429, for a right pair as well |
/// | [`COST_MAX`](Self::COST_MAX), [`MEMORY_BYTES_MAX`](Self::MEMORY_BYTES_MAX) | 2^14, 256 MiB | a hash that no server can check |
///
/// ```
/// use tidegate::http::{Passwords, Router};
///
/// let users = Passwords::parse("# made by `htpasswd -nB ebb`\nebb:$2y$05$h/iP5m/Smf4XsKn8ftFN.eoED.AzFvdIlJ.0XpvOJGt0ciPHH/QXa\n")?;
/// let router = move || Router::new().get("/", || "secret").wrap(users.require("Harbour"));
/// # drop(router);
/// # Ok::<(), tidegate::http::PasswordsError>(())
/// ```
#[derive(Clone)]
pub struct Passwords {
    table: Arc<PasswordTable>,
    guesses: RateLimit,
    checks_max: u32,
}

struct PasswordTable {
    hashes: HashMap<Box<str>, Box<str>>,
    /// Checked for a name that no user has, so that the time does not tell which names there are.
    substitute: Box<str>,
    verified: Mutex<VerifiedPairs>,
    /// Checks that run or wait for a thread.
    in_progress: AtomicU32,
    checks: AtomicU64,
}

/// Pairs of names and passwords that were right.
struct VerifiedPairs {
    /// Two keyed hashes of a pair, and until when they stand for it.
    until: HashMap<(u64, u64), Instant>,
    keys: (RandomState, RandomState),
}

/// The name of the user who sent a request: among its [`extensions`](Request::extensions).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserName(pub Arc<str>);

/// A mistake in a file of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordsError {
    line: usize,
    cause: PasswordsCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PasswordsCause {
    NoColon,
    NoName,
    NameTwice,
    NoHash,
    TooCostly,
    NoUsers,
}

impl Passwords {
    /// The highest cost of a bcrypt hash: 2^14 rounds take more than a second.
    pub const COST_MAX: u32 = 14;

    /// The most memory that a check of an argon2 hash may take.
    pub const MEMORY_BYTES_MAX: u64 = 256 << 20;

    /// The users of a text: a line `NAME:HASH` each, as in the files of htpasswd. Empty lines and those that begin with `#`
    /// are skipped.
    ///
    /// # Errors
    /// [`PasswordsError`] with the line, if a line has no name, a hash of another kind or a password in the clear, or costs
    /// more than a server can afford; and if there is no user.
    pub fn parse(text: &str) -> Result<Self, PasswordsError> {
        let mut hashes = HashMap::new();
        for (index, line) in text.lines().enumerate().map(|(index, line)| (index, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |cause| PasswordsError { line: index + 1, cause };
            let (name, hash) = line.split_once(':').ok_or(error(PasswordsCause::NoColon))?;
            if name.is_empty() {
                return Err(error(PasswordsCause::NoName));
            }
            check_hash(hash).map_err(error)?;
            if hashes.insert(name.into(), hash.into()).is_some() {
                return Err(error(PasswordsCause::NameTwice));
            }
        }
        let substitute: Box<str> =
            hashes.values().next().cloned().ok_or(PasswordsError { line: 0, cause: PasswordsCause::NoUsers })?;
        let keys = (RandomState::new(), RandomState::new());
        let verified = Mutex::new(VerifiedPairs { until: HashMap::new(), keys });
        let (in_progress, checks) = Default::default();
        let table = Arc::new(PasswordTable { hashes, substitute, verified, in_progress, checks });
        let guesses = RateLimit::new(ConnectionRate::per_second(1).burst(20));
        Ok(Self { table, guesses, checks_max: 4 })
    }

    /// How many pairs that are not known to be right each client may try: by default 20 at once, and then one a second for
    /// each address.
    #[must_use]
    pub fn guesses(mut self, limit: RateLimit) -> Self {
        self.guesses = limit;
        self
    }

    /// How many hashes are checked at a time, by all loops together; at least one.
    #[must_use]
    pub fn checks_max(mut self, checks: u32) -> Self {
        self.checks_max = checks.max(1);
        self
    }

    /// The number of hashes that were checked.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.table.checks.load(Ordering::Relaxed)
    }

    /// Async middleware that requires a user. A browser shows the realm.
    ///
    /// # Panics
    /// If the realm has quotes, backslashes or characters that a field cannot have.
    pub fn require(&self, realm: &str) -> impl AsyncFn(Request, Next) -> Response + 'static {
        let (passwords, challenge) = (self.clone(), challenge(realm));
        async move |mut request: Request, next: Next| match passwords.user_of(&request).await {
            Ok(Some(name)) => {
                request.extensions_mut().insert(UserName(name));
                next.run(request).await
            }
            Ok(None) => {
                let refusal = Response::of_error(Status::UNAUTHORIZED);
                refusal.header("WWW-Authenticate", &*challenge).expect("the realm was checked")
            }
            Err(response) => response,
        }
    }

    /// The user of a request, or the response where that cannot be found out now.
    async fn user_of(&self, request: &Request) -> Result<Option<Arc<str>>, Response> {
        let Some(pair) = authorization(request)?.and_then(credentials) else { return Ok(None) };
        let pair = String::from_utf8(pair).ok();
        let Some((name, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) else { return Ok(None) };
        // Before the pair is compared: otherwise a right guess would still be told from a wrong one.
        self.guesses.look(request)?;
        let now = task::now();
        if self.table.is_verified(name, password, now) {
            return Ok(Some(name.into()));
        }
        self.guesses.check(request)?;
        let Some(check) = Check::begin(&self.table, self.checks_max) else { return Err(busy()) };
        let (name, password) = (Arc::<str>::from(name), password.to_owned());
        let checked_name = name.clone();
        let is_right = blocking(move || check.run(&checked_name, &password)).await.map_err(|_| busy())?;
        Ok(is_right.then_some(name))
    }
}

/// A check that runs or waits for a thread.
struct Check(Arc<PasswordTable>);

impl Check {
    fn begin(table: &Arc<PasswordTable>, checks_max: u32) -> Option<Self> {
        let check = Self(table.clone());
        (table.in_progress.fetch_add(1, Ordering::Relaxed) < checks_max).then_some(check)
    }

    fn run(&self, name: &str, password: &str) -> bool {
        let table = &*self.0;
        table.checks.fetch_add(1, Ordering::Relaxed);
        let hash = table.hashes.get(name);
        let is_right = is_hash_of(hash.unwrap_or(&table.substitute), password) && hash.is_some();
        if is_right {
            table.verify(name, password, Instant::now());
        }
        is_right
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PasswordTable {
    fn is_verified(&self, name: &str, password: &str, now: Instant) -> bool {
        let pairs = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.until.get(&pairs.key(name, password)).is_some_and(|until| now < *until)
    }

    fn verify(&self, name: &str, password: &str, now: Instant) {
        let mut pairs = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if pairs.until.len() >= VERIFIED_MAX {
            pairs.until.retain(|_, until| now < *until);
        }
        if pairs.until.len() < VERIFIED_MAX {
            let key = pairs.key(name, password);
            pairs.until.insert(key, now + VERIFIED_FOR);
        }
    }
}

impl VerifiedPairs {
    /// 128 bits under random keys, so that a client can neither find an equal pair nor compute one.
    fn key(&self, name: &str, password: &str) -> (u64, u64) {
        (self.keys.0.hash_one((name, password)), self.keys.1.hash_one((name, password)))
    }
}

fn check_hash(hash: &str) -> Result<(), PasswordsCause> {
    if let Some(rest) = BCRYPT.iter().find_map(|prefix| hash.strip_prefix(prefix)) {
        let cost = rest.split_once('$').and_then(|(cost, _)| cost.parse::<u32>().ok());
        let cost = cost.filter(|_| hash.len() == BCRYPT_BYTES).ok_or(PasswordsCause::NoHash)?;
        return if cost <= Passwords::COST_MAX { Ok(()) } else { Err(PasswordsCause::TooCostly) };
    }
    let parsed = PasswordHash::new(hash).map_err(|_| PasswordsCause::NoHash)?;
    if !parsed.algorithm.as_str().starts_with("argon2") || parsed.hash.is_none() || parsed.salt.is_none() {
        return Err(PasswordsCause::NoHash);
    }
    let params = Params::try_from(&parsed).map_err(|_| PasswordsCause::NoHash)?;
    let memory = u64::from(params.m_cost()) << 10;
    let is_affordable =
        memory <= Passwords::MEMORY_BYTES_MAX && params.t_cost() <= PASSES_MAX && params.p_cost() <= LANES_MAX;
    if is_affordable { Ok(()) } else { Err(PasswordsCause::TooCostly) }
}

/// Whether a hash is that of a password. Both crates compare in constant time.
fn is_hash_of(hash: &str, password: &str) -> bool {
    if BCRYPT.iter().any(|prefix| hash.starts_with(prefix)) {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    let parsed = PasswordHash::new(hash);
    parsed.is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// The response while all checks are taken.
fn busy() -> Response {
    let mut response = Response::of_error(Status::SERVICE_UNAVAILABLE);
    let _ = response.add_header("Retry-After", "1");
    response
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("users", &self.table.hashes.len()).finish_non_exhaustive()
    }
}

impl PasswordsError {
    /// The line of the mistake, from 1 on; 0 if the whole text is meant.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for PasswordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line;
        match self.cause {
            PasswordsCause::NoColon => write!(f, "line {line} is not NAME:HASH"),
            PasswordsCause::NoName => write!(f, "line {line} has no name before its colon"),
            PasswordsCause::NameTwice => write!(f, "the name of line {line} stands in a line before"),
            PasswordsCause::NoHash => write!(
                f,
                "line {line} has no hash of argon2 or bcrypt behind its name: `htpasswd -nB NAME` makes such a line"
            ),
            PasswordsCause::TooCostly => write!(
                f,
                "a check of the hash of line {line} costs too much: bcrypt may have a cost of {}, argon2 256 MiB, {PASSES_MAX} \
                 passes and {LANES_MAX} lanes",
                Passwords::COST_MAX
            ),
            PasswordsCause::NoUsers => write!(f, "there is no user: a line is NAME:HASH"),
        }
    }
}

impl std::error::Error for PasswordsError {}

/// The beginnings of bcrypt hashes; `$2a$` of old programs may be that of a password cut off wrongly, and passes as well.
const BCRYPT: [&str; 3] = ["$2y$", "$2b$", "$2a$"];

/// The length of a bcrypt hash.
const BCRYPT_BYTES: usize = 60;

const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

/// Pairs that are known to be right at a time.
const VERIFIED_MAX: usize = 10_000;

/// How long a pair is known to be right.
const VERIFIED_FOR: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT_OF_FLOW: &str = "$2b$04$hFqqjJtkBGZQKeSiSyjQ3etF8dY3otUfeC.D.zA.DTbaUzKcEb3HG";

    fn failure(text: &str) -> String {
        Passwords::parse(text).expect_err("a mistake").to_string()
    }

    #[test]
    fn each_mistake_names_its_line() {
        assert_eq!(failure("# none\n\n"), "there is no user: a line is NAME:HASH");
        assert_eq!(failure("\nebb"), "line 2 is not NAME:HASH");
        assert_eq!(failure(":x"), "line 1 has no name before its colon");
        for hash in [
            "flow",
            "{SHA}x",
            "$apr1$x$y",
            "$2y$05$short",
            "$argon2id$v=19$m=16,t=1,p=1$c2FsdHNhbHQ",
            "$scrypt$x$y",
            "",
        ] {
            assert!(failure(&format!("ebb:{hash}")).starts_with("line 1 has no hash of argon2 or bcrypt"), "{hash}");
        }
    }

    #[test]
    fn a_hash_that_costs_too_much_is_refused() {
        let costly = BCRYPT_OF_FLOW.replacen("$04$", "$15$", 1);
        assert!(failure(&format!("ebb:{costly}")).contains("costs too much"));
        let argon2 =
            |m: u32, t: u32, p: u32| format!("ebb:$argon2id$v=19$m={m},t={t},p={p}$c2FsdHNhbHQ$WmBqZ2J6T2tQV3B4M0FnTg");
        for text in [argon2(262_145, 1, 1), argon2(64, 17, 1), argon2(1_024, 1, 17)] {
            assert!(failure(&text).contains("costs too much"), "{text}");
        }
        assert!(Passwords::parse(&argon2(262_144, 16, 16)).is_ok());
    }

    #[test]
    fn a_pair_is_known_for_five_minutes_alone() {
        let users = Passwords::parse(&format!("ebb:{BCRYPT_OF_FLOW}")).expect("a user");
        let now = Instant::now();
        users.table.verify("ebb", "flow", now);
        assert!(users.table.is_verified("ebb", "flow", now + VERIFIED_FOR - Duration::from_secs(1)));
        assert!(!users.table.is_verified("ebb", "flow", now + VERIFIED_FOR));
        assert!(!users.table.is_verified("ebb", "flo", now) && !users.table.is_verified("ebbflow", "", now));
    }

    #[test]
    fn known_pairs_are_bounded() {
        let users = Passwords::parse(&format!("ebb:{BCRYPT_OF_FLOW}")).expect("a user");
        let now = Instant::now();
        for number in 0..VERIFIED_MAX + 100 {
            users.table.verify("ebb", &number.to_string(), now);
        }
        let known = || users.table.verified.lock().expect("a lock").until.len();
        assert_eq!(known(), VERIFIED_MAX);
        users.table.verify("ebb", "flow", now + VERIFIED_FOR);
        assert_eq!(known(), 1, "those whose time is over make room");
    }
}
