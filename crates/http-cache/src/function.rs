//! `Cached`: a function of a router whose responses are stored, and the way of a request through it.
//!
//! A fresh response goes out within the dispatch (`answer_at_once`). Any other request becomes a future: it looks once more,
//! waits for another request of the same key, or leads, which is in `fetch.rs`.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tidegate_engine::task;
use tidegate_http::gateway::{self, FunctionBehind, InterimWriter};
use tidegate_http::{BoxResponseFuture, Endpoint, Request, RequestFunction, Response};
use tidegate_http1::{Method, Status};

use crate::answer;
use crate::counts::Counters;
use crate::entry::Entry;
use crate::fetch::Fetch;
use crate::flights::{FlightEnd, Role};
use crate::key;
use crate::outcome::{CacheStatus, STALE_IF_ERROR};
use crate::plain_heads::PlainHeads;
use crate::rules::Millis;
use crate::rules::facts::RequestFacts;
use crate::rules::freshness::Use;
use crate::shared::CacheShared;
use crate::store::Lookup;

/// A function whose responses are stored: see [`Cache::wrap`](crate::Cache::wrap).
#[derive(Clone)]
#[must_use = "it does nothing until it is a function of a router"]
pub struct Cached<F> {
    cache: Arc<CacheShared>,
    function: F,
}

impl<F> Cached<F> {
    pub(crate) fn new(cache: &Arc<CacheShared>, function: F) -> Self {
        Self { cache: cache.clone(), function }
    }
}

impl<F: fmt::Debug> fmt::Debug for Cached<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("function", &self.function).finish_non_exhaustive()
    }
}

/// Marks functions whose responses are stored.
#[derive(Debug)]
pub struct CachedFunction<M>(M);

impl<S, M, F: RequestFunction<S, M>> RequestFunction<S, CachedFunction<M>> for Cached<F> {
    fn into_endpoint(self, state: Rc<S>) -> Endpoint {
        in_front_of(self.function.into_endpoint(state), self.cache)
    }
}

/// A function whose responses are stored. It has no type parameter, so that the way of a request is compiled in this crate
/// alone.
#[inline(never)]
fn in_front_of(endpoint: Endpoint, cache: Arc<CacheShared>) -> Endpoint {
    let front = cache.clone();
    let scratch = RefCell::<Scratch>::default();
    let trust = gateway::trust_of(&endpoint);
    let answer = move |request: &Request| {
        let is_trusted = trust.as_ref().is_some_and(|trusts| trusts(request));
        answer_at_once(&front, request, is_trusted, &scratch)
    };
    gateway::in_front(endpoint, answer, move |request, behind, interims| -> BoxResponseFuture {
        Box::pin(serve(cache.clone(), request, behind, interims))
    })
}

/// Memory of the requests of one loop.
#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    heads: PlainHeads,
    /// The time of the turn.
    now: Option<(Instant, Millis)>,
}

/// The response to a request for which a fresh one is stored. Of a trusted request, the
/// function passes on the scheme and the host that fields name.
fn answer_at_once(
    cache: &CacheShared,
    request: &Request,
    is_trusted: bool,
    scratch: &RefCell<Scratch>,
) -> Option<Response> {
    let (head, target) = (request.head(), request.target_bytes());
    if !matches!(head.method(), Method::Get | Method::Head) || head.has_body() {
        return None;
    }
    let Scratch { key, heads, now } = &mut *scratch.borrow_mut();
    let is_path = target.first() == Some(&b'/');
    if is_path && heads.write_origin((request.is_secure(), is_trusted), head.field_lines(), key) {
        key.extend_from_slice(target);
        let turn = task::now();
        let now = match now {
            Some((known, now)) if *known == turn => *now,
            _ => now.insert((turn, cache.now())).1,
        };
        return cache.plain_hit(key, request, now);
    }
    cache.hit_at_once(key, (request, is_trusted))
}

impl CacheShared {
    /// The response to a request without fields that matter, from a fresh stored one.
    #[inline]
    fn plain_hit(&self, key: &[u8], request: &Request, now: Millis) -> Option<Response> {
        let Lookup::Found(entry) = self.store.get(key, &request.head().headers(), now) else { return None };
        if !entry.freshness.is_fresh(now) {
            return None;
        }
        Counters::add(&self.counters.hits);
        Some(answer::plain_hit(&entry, now, self.name.as_deref()))
    }

    /// The response to any other request, from a stored one that it may have.
    #[inline(never)]
    fn hit_at_once(&self, key: &mut Vec<u8>, (request, is_trusted): (&Request, bool)) -> Option<Response> {
        let head = request.head();
        let facts = RequestFacts::of(head.headers(), self.ignores_client_control);
        if facts.is_for_origin || facts.has_upgrade || !key::write(request, is_trusted, key) {
            return None;
        }
        let now = self.now();
        let Lookup::Found(entry) = self.store.get(key, &head.headers(), now) else { return None };
        match entry.freshness.usable(&facts.control, now) {
            Use::Fresh | Use::Stale => Some(self.hit(&entry, (head.method(), &facts), now, None)),
            Use::WhileRevalidate | Use::Validate { .. } => None,
        }
    }

    /// The response to a request from a stored one that the upstream was not asked about.
    fn hit(
        &self,
        entry: &Entry,
        request: (Method, &RequestFacts<'_>),
        now: Millis,
        detail: Option<&'static str>,
    ) -> Response {
        let ttl = entry.freshness.ttl(now);
        Counters::add(if ttl < 0 { &self.counters.stale } else { &self.counters.hits });
        let status = CacheStatus { is_hit: true, ttl: Some(ttl), detail, ..CacheStatus::default() };
        answer::respond(entry, request, now, &status, self.name.as_deref())
    }
}

/// The response to a request that is not answered at once.
async fn serve(cache: Arc<CacheShared>, request: Request, behind: FunctionBehind, interims: InterimWriter) -> Response {
    let mut key = Vec::new();
    let has_key = key::write(&request, behind.trusts(&request), &mut key) && key.len() <= cache.limits.key_bytes_max;
    let ignores_control = cache.ignores_client_control;
    let facts = RequestFacts::of(request.head().headers(), ignores_control);
    let method = request.head().method();
    let is_candidate = has_key
        && matches!(method, Method::Get | Method::Head)
        && !request.head().has_body()
        && !(facts.is_for_origin || request.asks_for_any_upgrade());
    let only_if_cached = facts.control.only_if_cached;
    let may_lead = method == Method::Get && facts.range.is_none() && !facts.control.no_store;
    drop(facts);
    let fetch = Fetch { cache: cache.clone(), request, key, behind, interims: Some(interims), is_background: false };
    if !is_candidate {
        return fetch.pass(has_key).await;
    }
    let arrived = cache.now();
    let mut is_collapsed = false;
    // A request waits for few others in a row: for those of other variants, and for leaders that leave.
    for _ in 0..ROUNDS_MAX {
        let (stale, reason, is_unstorable) = match find(&fetch, is_collapsed.then_some(arrived)).await {
            Found::Response(response) => return response,
            Found::Nothing { stale, reason, is_unstorable } => (stale, reason, is_unstorable),
        };
        if only_if_cached {
            let status = CacheStatus { detail: Some("only-if-cached"), ..CacheStatus::default() };
            return cache.with_status(Response::of_error(Status::GATEWAY_TIMEOUT), &status);
        }
        if !may_lead || is_unstorable {
            return fetch.alone(reason, is_collapsed, stale).await;
        }
        match cache.flights.join(&fetch.key, cache.limits.waiting_max) {
            Role::Leader(lead) => return fetch.lead(lead, stale, reason).await,
            Role::Full => return fetch.alone(reason, false, None).await,
            Role::Follower(follow) => {
                let mut follow = follow;
                let end = task::timeout(cache.limits.waiting_timeout, &mut follow).await;
                match end {
                    Ok(FlightEnd::Stored) => is_collapsed = true,
                    Ok(FlightEnd::Abandoned) => {}
                    Ok(FlightEnd::Unstorable) => return fetch.alone(reason, false, None).await,
                    Err(_) => {
                        follow.give_up();
                        return match cache.flights.lead(&fetch.key) {
                            Some(lead) => fetch.lead(lead, stale, reason).await,
                            None => fetch.alone(reason, false, None).await,
                        };
                    }
                }
            }
        }
    }
    fetch.alone("uri-miss", false, None).await
}

/// The result of a search for a response.
enum Found {
    Response(Response),
    /// The request has to go to the upstream, for a reason of `Cache-Status`.
    Nothing {
        stale: Option<Arc<Entry>>,
        reason: &'static str,
        is_unstorable: bool,
    },
}

/// Searches for a response. One that was received since a request `waited` is used whatever its freshness is.
async fn find(fetch: &Fetch, waited: Option<Millis>) -> Found {
    let Fetch { cache, request, key, .. } = fetch;
    let facts = RequestFacts::of(request.head().headers(), cache.ignores_client_control);
    let method = request.head().method();
    let mut lookup = cache.store.get(key, &request.head().headers(), cache.now());
    if let (Lookup::None | Lookup::NoVariant, Some(disk)) = (&lookup, &cache.disk)
        && let Some(entry) = disk.get(key, request.head().headers(), &cache.store, cache.now()).await
    {
        Counters::add(&cache.counters.disk_hits);
        lookup = Lookup::Found(entry);
    }
    let now = cache.now();
    let nothing = |reason, is_unstorable| Found::Nothing { stale: None, reason, is_unstorable };
    let entry = match lookup {
        Lookup::Found(entry) => entry,
        Lookup::NoVariant => return nothing("vary-miss", false),
        Lookup::Unstorable => return nothing("uri-miss", true),
        Lookup::None => return nothing("uri-miss", false),
    };
    // A response that needs validation, or is stale as it arrives, may be of the leader's user alone.
    let is_of_all = || entry.freshness.is_fresh(entry.freshness.received);
    if waited.is_some_and(|waited| entry.freshness.received >= waited) && is_of_all() {
        Counters::add(&cache.counters.joined);
        let status = CacheStatus { is_collapsed: true, ..CacheStatus::forwarded("uri-miss") };
        return Found::Response(answer::respond(&entry, (method, &facts), now, &status, cache.name.as_deref()));
    }
    let hit = |detail| Found::Response(cache.hit(&entry, (method, &facts), now, detail));
    match entry.freshness.usable(&facts.control, now) {
        Use::Fresh | Use::Stale => hit(None),
        Use::WhileRevalidate => {
            if !entry.leaves_upstream_alone(now) {
                fetch.revalidate(&entry);
            }
            hit(Some("stale-while-revalidate"))
        }
        Use::Validate { is_asked: false } if entry.replaces_errors(now) => hit(Some(STALE_IF_ERROR)),
        Use::Validate { is_asked } => Found::Nothing {
            stale: Some(entry),
            reason: if is_asked { "request" } else { "stale" },
            is_unstorable: false,
        },
    }
}

/// How often a request looks for a response.
const ROUNDS_MAX: usize = 4;
