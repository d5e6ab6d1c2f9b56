//! `JwtKeys`: the key set in use, and when it is read again.
//!
//! All loops share a set. A task of one loop reads it at a time; requests that need it wait for that task, on any loop. The
//! task belongs to no request, so a client that leaves stops nothing.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::task;
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use super::key_set::{InvalidKeys, KeySet};
use super::source::{FileStamp, KeySource, ReadKeys, read_file};
use crate::forward::service_uri;

/// The keys that verify tokens: a shared secret, a file or an URL with a key set (JWKS, RFC 7517). Clones share them.
///
/// | | of a file | of an URL |
/// |---|---|---|
/// | first read | by [`file`](Self::file) | by the first request |
/// | looked at again, in the background | after a second, read if it has changed | [`refresh`](Self::refresh): after 10 minutes |
/// | a token names a key that is not there | as above | [`unknown_key_interval`](Self::unknown_key_interval): at most once a minute |
/// | it cannot be read | the keys stay for [`stale_max`](Self::stale_max): a day; then requests get a 503 | the same |
/// | shared secrets in it | count, if their algorithm is accepted | are left out |
///
/// A set has at most 100 keys and 256 KiB, and an URL answers within [`timeout`](Self::timeout): 5 s.
#[derive(Clone)]
pub struct JwtKeys {
    store: Arc<KeyStore>,
}

struct KeyStore {
    source: KeySource,
    times: Times,
    state: Mutex<KeyState>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    refresh: Duration,
    unknown_key_interval: Duration,
    stale_max: Duration,
}

#[derive(Default)]
struct KeyState {
    set: Option<Arc<KeySet>>,
    stamp: Option<FileStamp>,
    /// When the source was read last, with success.
    read_at: Option<Instant>,
    /// When it was tried last.
    tried_at: Option<Instant>,
    is_reading: bool,
    /// How often it was tried.
    tries: u64,
    waiters: Vec<Waker>,
}

/// There are no keys that may be used.
#[derive(Debug)]
pub(super) struct NoKeys;

impl JwtKeys {
    /// A secret that the issuer shares, of 32 bytes or more; for the algorithms HS256, HS384 and HS512, which
    /// [`algorithms`](crate::JwtBuilder::algorithms) has to name.
    ///
    /// # Errors
    /// [`InvalidKeys::ShortSecret`].
    pub fn secret(secret: impl AsRef<[u8]>) -> Result<Self, InvalidKeys> {
        Ok(Self::new(KeySource::Secret, Some(KeySet::of_secret(secret.as_ref())?), None))
    }

    /// The key set of a file.
    ///
    /// # Errors
    /// [`InvalidKeys`] if the file cannot be read, or has no key.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, InvalidKeys> {
        let path = path.as_ref();
        match read_file(path, None)? {
            ReadKeys::Changed(set, stamp) => Ok(Self::new(KeySource::File(path.to_owned()), Some(set), stamp)),
            ReadKeys::Unchanged => Err(InvalidKeys::NoKey),
        }
    }

    /// The key set behind an URL, such as that which the `jwks_uri` of an issuer names. Use `https`: a network that
    /// changes the keys on the way makes tokens.
    ///
    /// # Errors
    /// [`InvalidKeys::Url`].
    pub fn url(url: &str) -> Result<Self, InvalidKeys> {
        let source = KeySource::Url {
            uri: service_uri(url).map_err(InvalidKeys::Url)?,
            timeout: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        };
        Ok(Self::new(source, None, None))
    }

    fn new(source: KeySource, set: Option<KeySet>, stamp: Option<FileStamp>) -> Self {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let (refresh, unknown_key_interval) = match source {
            KeySource::Url { .. } => (10 * minute, minute),
            KeySource::File(_) | KeySource::Secret => (second, second),
        };
        let times = Times { refresh, unknown_key_interval, stale_max: 24 * 60 * minute };
        let set = set.map(Arc::new);
        let read_at = set.as_ref().map(|_| Instant::now());
        let state = KeyState { set, stamp, read_at, tried_at: read_at, ..KeyState::default() };
        Self { store: Arc::new(KeyStore { source, times, state: Mutex::new(state) }) }
    }

    /// After which time the source is looked at again, in the background.
    #[must_use]
    pub fn refresh(self, after: Duration) -> Self {
        self.with(|_, times| times.refresh = after)
    }

    /// How much time is between two reads for tokens that name unknown keys: anybody can invent those.
    #[must_use]
    pub fn unknown_key_interval(self, interval: Duration) -> Self {
        self.with(|_, times| times.unknown_key_interval = interval)
    }

    /// How long keys are used whose source cannot be read. Beyond it requests get a 503: an issuer withdraws keys by leaving
    /// them out.
    #[must_use]
    pub fn stale_max(self, age: Duration) -> Self {
        self.with(|_, times| times.stale_max = age)
    }

    /// How long an URL may take to answer.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|source, _| {
            if let KeySource::Url { timeout, .. } = source {
                *timeout = limit;
            }
        })
    }

    /// How the certificate of an URL of `https` is verified.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, config: ClientConfig) -> Self {
        self.with(|source, _| {
            if let KeySource::Url { tls, .. } = source {
                *tls = Some(config);
            }
        })
    }

    /// Changes the settings, as long as there is one handle; clones have settings in common.
    fn with(mut self, change: impl FnOnce(&mut KeySource, &mut Times)) -> Self {
        match Arc::get_mut(&mut self.store) {
            Some(store) => change(&mut store.source, &mut store.times),
            None => tracing::error!(subsystem = "http", "settings of JWT keys come before their first clone"),
        }
        self
    }

    /// The keys in use. Waits for them if there are none that may be used.
    pub(super) async fn current(&self, now: Instant) -> Result<Arc<KeySet>, NoKeys> {
        let read = {
            let mut state = self.lock();
            let usable = self.usable(&state, now);
            let age = state.read_at.map(|read| now.saturating_duration_since(read));
            let is_due = self.store.is_refreshed() && age.is_none_or(|age| age >= self.store.times.refresh);
            // A source that fails is not asked for each request.
            let pause = RETRY_AFTER.min(self.store.times.refresh);
            if is_due && state.may_try(now, pause) {
                self.begin(&mut state, now);
            }
            if let Some(set) = usable {
                return Ok(set);
            }
            state.read_in_progress()
        };
        match read {
            Some(number) => self.end_of(number).await?,
            None => return Err(NoKeys),
        }
        self.usable(&self.lock(), task::now()).ok_or(NoKeys)
    }

    /// Other keys than these, for a token whose key is not among them; `None` if there are no others.
    pub(super) async fn others(&self, known: &Arc<KeySet>, now: Instant) -> Option<Arc<KeySet>> {
        let read = {
            let mut state = self.lock();
            if let Some(set) = self.usable(&state, now).filter(|set| set.number != known.number) {
                return Some(set);
            }
            if self.store.is_refreshed() && state.may_try(now, self.store.times.unknown_key_interval) {
                self.begin(&mut state, now);
            }
            state.read_in_progress()?
        };
        self.end_of(read).await.ok()?;
        self.usable(&self.lock(), task::now()).filter(|set| set.number != known.number)
    }

    /// The keys, unless they are too old.
    fn usable(&self, state: &KeyState, now: Instant) -> Option<Arc<KeySet>> {
        let is_young = |read: Instant| now.saturating_duration_since(read) <= self.store.times.stale_max;
        let is_usable = !self.store.is_refreshed() || state.read_at.is_some_and(is_young);
        state.set.clone().filter(|_| is_usable)
    }

    /// Begins to read, in a task of its own.
    fn begin(&self, state: &mut KeyState, now: Instant) {
        (state.is_reading, state.tried_at) = (true, Some(now));
        let (reading, stamp) = (Reading(self.clone()), state.stamp);
        drop(task::spawn(async move {
            let keys = &reading.0;
            match keys.store.source.read(stamp).await {
                Ok(read) => keys.succeed(read),
                Err(fault) => {
                    tracing::warn!(subsystem = "http", source = %keys.store.source, "JWT keys cannot be read: {fault}");
                }
            }
            drop(reading);
        }));
    }

    fn succeed(&self, read: ReadKeys) {
        let mut state = self.lock();
        state.read_at = Some(task::now());
        if let ReadKeys::Changed(set, stamp) = read {
            (state.set, state.stamp) = (Some(Arc::new(set)), stamp);
        }
    }

    /// Waits until the read of this number has ended.
    async fn end_of(&self, number: u64) -> Result<(), NoKeys> {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.tries != number {
                return Poll::Ready(Ok(()));
            }
            if !state.waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                if state.waiters.len() >= WAITING_MAX {
                    return Poll::Ready(Err(NoKeys));
                }
                state.waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, KeyState> {
        self.store.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyStore {
    fn is_refreshed(&self) -> bool {
        !matches!(self.source, KeySource::Secret)
    }
}

impl KeyState {
    fn may_try(&self, now: Instant, interval: Duration) -> bool {
        let since = self.tried_at.map(|tried| now.saturating_duration_since(tried));
        !self.is_reading && since.is_none_or(|since| since >= interval)
    }

    fn read_in_progress(&self) -> Option<u64> {
        self.is_reading.then_some(self.tries)
    }
}

/// A read in progress, which ends also where its loop does.
struct Reading(JwtKeys);

impl Drop for Reading {
    fn drop(&mut self) {
        let waiters = {
            let mut state = self.0.lock();
            state.is_reading = false;
            state.tries += 1;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKeys").field("source", &format_args!("{}", self.store.source)).finish_non_exhaustive()
    }
}

/// How long a source that has failed is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Requests that wait for keys; further ones get a 503.
const WAITING_MAX: usize = 4096;
