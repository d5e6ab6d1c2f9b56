//! `SharedRateLimit`: a [`RateLimit`] whose counts several processes share through a [`RateStore`].
//!
//! The store counts for all processes. A process borrows tokens there, one at first and more for a client that asks often,
//! so that most requests of a busy client ask nothing. A client that the store has refused is refused here until the time
//! that the store has named. While one request asks for a client, its other requests wait for that answer. Where no answer
//! comes in time, the local counts decide, and the store has a pause.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha1::{Digest, Sha1};
use tidegate_engine::{ConnectionRate, task};
use tidegate_http1::Status;

use super::rate_limit::{RateLimit, RequestClient, nanos, too_many};
use super::wrap::{AsyncMiddleware, Next, Wrapper};
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::Response;

/// Counts that several processes share: the other side of a [`SharedRateLimit`]. With the feature `redis`, the facade has
/// one on Redis.
pub trait RateStore: Send + Sync + 'static {
    /// Takes up to `tokens` of a client, by the generic cell rate algorithm: a client has `rate.burst` of them at most, and
    /// gets one each `rate.interval`. `client` is text of at most 128 letters, digits and `:`, `/`, `+`, `=`, `-`.
    ///
    /// The future is polled on the loop of a request. It is dropped if it takes too long.
    fn take(&self, client: &str, rate: ConnectionRate, tokens: u32) -> TakeTokens;
}

/// The future of [`RateStore::take`].
pub type TakeTokens = Pin<Box<dyn Future<Output = Result<RateGrant, Box<dyn Error + Send + Sync>>>>>;

/// The answer of a [`RateStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateGrant {
    /// The tokens that the store has given, at most as many as were asked for.
    pub tokens: u32,
    /// Without a token: how long until the client has one.
    pub wait: Duration,
}

/// Bounds the requests of each client over several processes: async middleware, for
/// [`Router::wrap`](crate::Router::wrap) and [`WithMiddleware::wrap`](crate::WithMiddleware::wrap), that answers 429 with
/// `Retry-After` to requests beyond the rate. [`RateLimit::shared`] makes one.
#[derive(Clone)]
pub struct SharedRateLimit {
    limit: RateLimit,
    shared: Arc<SharedCounts>,
    deadline: Duration,
    is_closed: bool,
}

struct SharedCounts {
    name: Box<str>,
    store: Box<dyn RateStore>,
    start: OnceLock<Instant>,
    /// Until when the store is not asked, since it has failed.
    paused_until: AtomicU64,
    shards: [Mutex<HashMap<u64, BorrowedTokens>>; SHARDS],
}

/// One client, as this process knows it.
#[derive(Default)]
struct BorrowedTokens {
    tokens: u32,
    /// Then the store has given the same tokens anew.
    tokens_until: u64,
    refused_until: u64,
    /// The tokens of the next question.
    batch: u32,
    is_asking: bool,
    waiters: Vec<Waker>,
}

/// The next step of a request.
enum RateStep {
    Admit,
    Refuse(Duration),
    /// It asks the store for so many tokens.
    Ask(u32),
    /// Another request asks.
    Wait,
    /// The store has failed, or too many clients ask at once.
    Local,
}

impl RateLimit {
    /// Shares the counts with other processes, under a name: those whose limits have the same name, key and rate, and the
    /// same store. This process has no more than the local counts of the limit while the store does not answer.
    ///
    /// A request waits for the store for 20 ms at most. Then the limit *fails open*: the local counts of this process
    /// decide for a second, until the store is asked again. See [`fail_closed`](SharedRateLimit::fail_closed).
    ///
    /// ```
    /// use std::error::Error;
    /// use tidegate::ConnectionRate;
    /// use tidegate::http::{RateGrant, RateLimit, RateStore, Router, TakeTokens};
    ///
    /// /// It gives whatever is asked for.
    /// struct Generous;
    ///
    /// impl RateStore for Generous {
    ///     fn take(&self, _client: &str, _rate: ConnectionRate, tokens: u32) -> TakeTokens {
    ///         Box::pin(async move { Ok(RateGrant { tokens, wait: std::time::Duration::ZERO }) })
    ///     }
    /// }
    ///
    /// let limit = RateLimit::new(ConnectionRate::per_second(100).burst(200)).shared("api", Generous);
    /// let router = Router::new().get("/", || "rising").wrap(limit);
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn shared(self, name: &str, store: impl RateStore) -> SharedRateLimit {
        let shared = SharedCounts {
            name: name_digest(name),
            store: Box::new(store),
            start: OnceLock::new(),
            paused_until: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        };
        SharedRateLimit { limit: self, shared: Arc::new(shared), deadline: DEADLINE, is_closed: false }
    }
}

impl SharedRateLimit {
    /// While the store does not answer, requests get a 503 with `Retry-After` instead of passing by the local counts.
    #[must_use]
    pub fn fail_closed(mut self) -> Self {
        self.is_closed = true;
        self
    }

    /// How long a request waits for the store; 20 ms unless set.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The response to a request that may not pass.
    #[doc(hidden)]
    pub async fn check(&self, request: &Request) -> Result<(), Response> {
        let Some(client) = self.limit.client_of(request) else { return Ok(()) };
        let number = self.limit.number_of_client(&client);
        loop {
            let step = poll_fn(|cx| match self.shared.step(number, self.limit.rate(), cx.waker()) {
                RateStep::Wait => Poll::Pending,
                step => Poll::Ready(step),
            });
            match step.await {
                RateStep::Admit => return Ok(()),
                RateStep::Refuse(wait) => return Err(too_many(wait)),
                RateStep::Ask(tokens) => self.ask(number, &client, tokens).await,
                RateStep::Local | RateStep::Wait if self.is_closed => return Err(unavailable()),
                RateStep::Local | RateStep::Wait => return self.limit.admit(number, task::now()).map_err(too_many),
            }
        }
    }

    /// Borrows tokens, or begins a pause of the store.
    async fn ask(&self, number: u64, client: &RequestClient<'_>, tokens: u32) {
        let asking = QuestionGuard { shared: &self.shared, number };
        let rate = self.limit.rate();
        let taking = self.shared.store.take(&self.client_text(client), rate, tokens);
        match task::timeout(self.deadline, taking).await {
            Ok(Ok(grant)) => self.shared.settle(number, grant, rate),
            Ok(Err(error)) => self.shared.pause(&error.to_string()),
            Err(_) => self.shared.pause("no answer came in time"),
        }
        drop(asking);
    }

    /// The client as the store knows it: no value that a request has is readable there.
    fn client_text(&self, client: &RequestClient<'_>) -> String {
        let (name, ConnectionRate { interval, burst }) = (&self.shared.name, self.limit.rate());
        let client = match client {
            RequestClient::Address(number) => format!("{number:x}"),
            RequestClient::Value(value) => digest(&[format!("{:?}\n", self.limit.rate_key()).as_bytes(), value]),
        };
        format!("{name}:{}-{burst}:{client}", interval.as_nanos())
    }
}

impl SharedCounts {
    fn now(&self) -> u64 {
        let now = task::now();
        nanos(now.saturating_duration_since(*self.start.get_or_init(|| now)))
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, BorrowedTokens>> {
        let shard = &self.shards[(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, number: u64, rate: ConnectionRate, waker: &Waker) -> RateStep {
        let now = self.now();
        let mut shard = self.shard(number);
        if !shard.contains_key(&number) && !has_room(&mut shard, now) {
            return RateStep::Local;
        }
        let client = shard.entry(number).or_default();
        if client.tokens > 0 && now < client.tokens_until {
            client.tokens -= 1;
            return RateStep::Admit;
        }
        if now < client.refused_until {
            return RateStep::Refuse(Duration::from_nanos(client.refused_until - now));
        }
        if now < self.paused_until.load(Ordering::Relaxed) {
            return RateStep::Local;
        }
        if client.is_asking {
            client.waiters.push(waker.clone());
            return RateStep::Wait;
        }
        // A client that used up its tokens before they would have come anew gets more at a time.
        let is_busy = now < client.tokens_until;
        let most = (rate.burst / BATCHES_PER_BURST).clamp(1, BATCH_MAX);
        client.batch = if is_busy { client.batch.saturating_mul(2).clamp(1, most) } else { 1 };
        client.is_asking = true;
        RateStep::Ask(client.batch)
    }

    fn settle(&self, number: u64, grant: RateGrant, rate: ConnectionRate) {
        let now = self.now();
        if let Some(client) = self.shard(number).get_mut(&number) {
            client.tokens = grant.tokens.min(client.batch);
            client.tokens_until = now.saturating_add(nanos(rate.interval).max(1).saturating_mul(client.tokens.into()));
            if client.tokens == 0 {
                client.refused_until = now.saturating_add(nanos(grant.wait).max(REFUSED_NANOS_MIN));
            }
        }
    }

    fn pause(&self, reason: &str) {
        let now = self.now();
        let until = now.saturating_add(nanos(PAUSE));
        // One of those that fail together logs it.
        if self.paused_until.fetch_max(until, Ordering::Relaxed) <= now {
            tracing::warn!(reason, "the store of a shared rate limit does not answer; the local limit decides");
        }
    }
}

/// Makes room for another client. Those that are known and neither ask nor hold anything go first.
fn has_room(shard: &mut HashMap<u64, BorrowedTokens>, now: u64) -> bool {
    if shard.len() < CLIENTS_PER_SHARD_MAX {
        return true;
    }
    shard.retain(|_, client| client.is_asking || now < client.tokens_until || now < client.refused_until);
    if shard.len() >= CLIENTS_PER_SHARD_MAX
        && let Some(other) = shard.iter().find(|(_, client)| !client.is_asking).map(|(number, _)| *number)
    {
        shard.remove(&other);
    }
    shard.len() < CLIENTS_PER_SHARD_MAX
}

/// A request asks for a client. Its end wakes the others, also if the request ends before the answer.
struct QuestionGuard<'a> {
    shared: &'a SharedCounts,
    number: u64,
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let waiters = match self.shared.shard(self.number).entry(self.number) {
            Entry::Occupied(mut client) => {
                client.get_mut().is_asking = false;
                std::mem::take(&mut client.get_mut().waiters)
            }
            Entry::Vacant(_) => Vec::new(),
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

/// Marks the async middleware that is a [`SharedRateLimit`].
#[derive(Debug)]
pub struct OfRateLimit;

impl<S> AsyncMiddleware<S, OfRateLimit> for SharedRateLimit {
    fn into_wrapper(self, _: Rc<S>) -> Wrapper {
        Wrapper::new(BodyUse::Streamed, move |request: Request, next: Next| {
            let limit = self.clone();
            Box::pin(async move {
                match limit.check(&request).await {
                    Ok(()) => next.run(request).await,
                    Err(response) => response,
                }
            })
        })
    }
}

fn unavailable() -> Response {
    let mut response = Response::of_error(Status::SERVICE_UNAVAILABLE);
    let _ = response.add_header("Retry-After", "1");
    response
}

/// A name that is short, and has nothing that a store could take for something else.
fn name_digest(name: &str) -> Box<str> {
    let is_plain =
        name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain { name.into() } else { digest(&[name.as_bytes()]).into() }
}

fn digest(parts: &[&[u8]]) -> String {
    let digest = parts.iter().fold(Sha1::new(), |digest, part| digest.chain_update(part));
    STANDARD_NO_PAD.encode(digest.finalize())
}

impl fmt::Debug for SharedRateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, shared, deadline, is_closed } = self;
        let mut text = f.debug_struct("SharedRateLimit");
        text.field("name", &shared.name)
            .field("limit", limit)
            .field("deadline", deadline)
            .field("is_closed", is_closed);
        text.finish_non_exhaustive()
    }
}

/// How long a request waits for the store.
const DEADLINE: Duration = Duration::from_millis(20);
/// A store that has failed is not asked so long.
const PAUSE: Duration = Duration::from_secs(1);
/// A client borrows this part of its burst at most, so that the other processes have tokens for it.
const BATCHES_PER_BURST: u32 = 8;
const BATCH_MAX: u32 = 64;
/// A refused client is not asked for again before.
const REFUSED_NANOS_MIN: u64 = 1_000_000;
const NAME_BYTES_MAX: usize = 64;
/// How many locks the table is spread over.
const SHARDS: usize = 64;
const CLIENTS_PER_SHARD_MAX: usize = 1_024;
