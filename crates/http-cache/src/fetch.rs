//! `Fetch`: a request that goes to the upstream, and its response, which is stored if it may be.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_engine::task;
use tidegate_http::gateway::{self, FunctionBehind, InterimWriter};
use tidegate_http::{Request, Response};
use tidegate_http_message::Body;
use tidegate_http_message::body::{BodyKind, BodyWriter};
use tidegate_http1::{Fields, Method, Status};

use crate::answer;
use crate::counts::Counters;
use crate::entry::Entry;
use crate::fill::{self, EntryHead, Fill, NoClient};
use crate::flights::{FlightEnd, Lead};
use crate::key;
use crate::outcome::{CacheStatus, STALE_IF_ERROR};
use crate::rules::facts::{RequestFacts, ResponseFacts};
use crate::rules::freshness::ExchangeTimes;
use crate::rules::vary::Selector;
use crate::rules::{storing, update, vary};
use crate::shared::CacheShared;

/// A request, and the function that passes it on.
pub(crate) struct Fetch {
    pub(crate) cache: Arc<CacheShared>,
    pub(crate) request: Request,
    pub(crate) key: Vec<u8>,
    pub(crate) behind: FunctionBehind,
    /// Those of the first call.
    pub(crate) interims: Option<InterimWriter>,
    /// No client waits for it.
    pub(crate) is_background: bool,
}

impl Fetch {
    /// Passes on a request that the cache does not look at. One with an unsafe method invalidates responses (RFC 9111 §4.4).
    pub(crate) async fn pass(self, has_key: bool) -> Response {
        let Self { cache, request, key, behind, interims, .. } = self;
        Counters::add(&cache.counters.bypassed);
        let method = request.head().method();
        let is_safe = matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace | Method::Connect);
        let mut invalidation = Invalidation { cache: &cache, key: &key, is_due: has_key && !is_safe };
        let response = behind.call(request, interims.unwrap_or_else(gateway::no_interims)).await;
        let code = gateway::status(&response).code();
        invalidation.is_due &= (200..400).contains(&code);
        if invalidation.is_due {
            for name in ["location", "content-location"] {
                if let Some(other) = response.field(name).and_then(|value| key::of_reference(&key, value)) {
                    cache.invalidate(&other);
                }
            }
        }
        drop(invalidation);
        let reason = if matches!(method, Method::Get | Method::Head) { "bypass" } else { "method" };
        cache.with_status(response, &CacheStatus { forward_status: Some(code), ..CacheStatus::forwarded(reason) })
    }

    /// Passes on a request whose response is not stored. `stored` is a response that it cannot have as it is.
    pub(crate) async fn alone(self, reason: &'static str, is_collapsed: bool, stored: Option<Arc<Entry>>) -> Response {
        let Self { cache, request, key, behind, interims, .. } = self;
        Counters::add(&cache.counters.misses);
        let is_head = request.head().method() == Method::Head;
        let response = behind.call(request, interims.unwrap_or_else(gateway::no_interims)).await;
        let status = gateway::status(&response);
        // A response to HEAD shows that the stored one is out of date (RFC 9111 §4.3.5).
        if is_head && stored.is_some_and(|stored| status == Status::OK && !is_same_content(&stored, &response)) {
            cache.forget(&key);
        }
        let status =
            CacheStatus { forward_status: Some(status.code()), is_collapsed, ..CacheStatus::forwarded(reason) };
        cache.with_status(response, &status)
    }

    /// Fetches the response for all requests that wait for it; validates the stored one, if there is one.
    pub(crate) async fn lead(mut self, lead: Lead, stale: Option<Arc<Entry>>, reason: &'static str) -> Response {
        let cache = self.cache.clone();
        let validated = stale.as_ref().filter(|entry| entry.has_validator());
        let sent = cache.now();
        let mut response = self.call(validated).await;
        let mut times = ExchangeTimes { sent, received: cache.now() };
        if gateway::status(&response) == Status::NOT_MODIFIED
            && let Some(entry) = validated
        {
            if update::is_about(entry.etag(), response.field("etag")) {
                return self.freshen(lead, entry, &response, times, reason);
            }
            // It is about a representation that is not stored.
            times.sent = cache.now();
            response = self.call(None).await;
            times.received = cache.now();
        }
        let code = gateway::status(&response).code();
        let facts = RequestFacts::of(self.request.head().headers(), cache.ignores_client_control);
        let is_error = matches!(code, 500 | 502..=504);
        if let Some(entry) = stale.as_ref().filter(|_| is_error) {
            entry.leave_upstream_alone(times.received);
        }
        if let Some(entry) =
            stale.as_ref().filter(|entry| is_error && entry.freshness.may_replace_error(times.received))
        {
            Counters::add(&cache.counters.stale);
            // Those that wait look again, and get it as well.
            lead.finish(FlightEnd::Stored);
            let ttl = Some(entry.freshness.ttl(times.received));
            // It is no hit, since the request has gone to the upstream (RFC 9211 §2.1).
            let (forward_status, detail) = (Some(code), Some(STALE_IF_ERROR));
            let status = CacheStatus { forward_status, ttl, detail, ..CacheStatus::forwarded(reason) };
            let request = (self.request.head().method(), &facts);
            return answer::respond(entry, request, times.received, &status, cache.name.as_deref());
        }
        Counters::add(&cache.counters.misses);
        let mut status = CacheStatus { forward_status: Some(code), ..CacheStatus::forwarded(reason) };
        match self.entry_head(&facts, &response, times) {
            Ok(head) => self.store((lead, stale), head, response, status),
            Err(detail) => {
                self.leave_out(lead, (code, stale.is_some()), facts.is_authorized, detail);
                status.detail = Some(detail);
                cache.with_status(response, &status)
            }
        }
    }

    /// A response with a status is not stored, for a reason. Another one may be stored already.
    fn leave_out(&self, lead: Lead, (code, has_stored): (u16, bool), is_authorized: bool, detail: &'static str) {
        if is_about_resource(code) {
            // It takes the place of the stored one (RFC 9111 §4.3.3).
            if has_stored && !is_authorized {
                self.cache.forget(lead.key());
            }
            // The next client may send no credentials, or get no cookie.
            if !matches!(detail, "authorization" | "set-cookie") {
                self.cache.mark(lead.key());
            }
            return lead.finish(FlightEnd::Unstorable);
        }
        // Such as a 403 or a 429: the next client may get a response that can be stored, so that requests still wait for each
        // other. A stored one shows that there are such responses: then one of those that wait leads.
        let is_error_of_server = code >= 500;
        if is_error_of_server && !has_stored {
            self.cache.mark(lead.key());
        }
        lead.finish(if has_stored && !is_error_of_server { FlightEnd::Abandoned } else { FlightEnd::Unstorable });
    }

    /// Calls the function with the request: without the conditions of the client, and with those of a stored response.
    async fn call(&mut self, validated: Option<&Arc<Entry>>) -> Response {
        let mut conditions: Vec<(&str, &[u8])> = Vec::new();
        if let Some(entry) = validated {
            conditions.extend(entry.etag().map(|etag| ("If-None-Match", etag)));
            conditions.extend(entry.last_modified().map(|modified| ("If-Modified-Since", modified)));
        }
        let keeps = |name: &[u8]| !is_condition(name);
        let request = gateway::with_fields(&self.request, keeps, &conditions, self.is_background);
        // A head that leaves no room for conditions goes without them.
        let request = request.or_else(|| gateway::with_fields(&self.request, keeps, &[], self.is_background));
        let interims = self.interims.take().unwrap_or_else(gateway::no_interims);
        match request {
            Some(request) => self.behind.call(request, interims).await,
            None => Response::of_error(Status::FIELDS_TOO_LARGE),
        }
    }

    /// The upstream has validated a stored response.
    fn freshen(
        self,
        lead: Lead,
        entry: &Arc<Entry>,
        validated: &Response,
        times: ExchangeTimes,
        reason: &'static str,
    ) -> Response {
        let cache = &self.cache;
        let new = facts_of(validated, &cache.targets);
        let stored = ResponseFacts::of(&entry.fields, &cache.targets);
        let mut control = if new.control.is_present { &new.control } else { &stored.control }.clone();
        control.withheld.extend(gateway::has_cookie(validated).then(|| b"set-cookie"[..].into()));
        let control = &control;
        let arrival = new.date.is_none().then_some(times.received);
        let fields = update::updated(&entry.fields, gateway::fields(validated), control, arrival);
        let for_this_client = update::of_one_exchange(gateway::fields(validated), control);
        let request = RequestFacts::of(self.request.head().headers(), cache.ignores_client_control);
        let facts = ResponseFacts::of(&fields, &cache.targets);
        // The date of the validation is that of the 304, or of its arrival.
        let facts = ResponseFacts { date: new.date, age: new.age, ..facts };
        let admitted = storing::admit(&request, entry.status.code(), &facts, times, cache.policy)
            .and_then(|freshness| Ok((freshness, self.selector(&facts)?)));
        let (freshness, selector) = match &admitted {
            Ok((freshness, selector)) => (*freshness, selector.clone()),
            Err(_) => (entry.freshness, entry.selector.clone()),
        };
        let fresh =
            Entry::new(entry.status, fields.clone(), entry.body.clone(), selector, freshness, entry.is_forwarded);
        let fresh = Arc::new(fresh);
        Counters::add(&cache.counters.revalidated);
        let ttl = admitted.is_ok().then(|| freshness.ttl(times.received));
        let (is_stored, detail) = match admitted {
            Ok(_) => (cache.put(lead, &fresh, Some(entry)), None),
            Err(detail) => {
                self.leave_out(lead, (Status::NOT_MODIFIED.code(), true), request.is_authorized, detail);
                (false, Some(detail))
            }
        };
        let forward_status = Some(Status::NOT_MODIFIED.code());
        let status = CacheStatus { forward_status, ttl, is_stored, detail, ..CacheStatus::forwarded(reason) };
        let method = self.request.head().method();
        let mut response = answer::respond(&fresh, (method, &request), times.received, &status, cache.name.as_deref());
        for (name, value) in
            for_this_client.iter().filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
        {
            // The parser has accepted it.
            let _ = response.add_header(name, value);
        }
        response
    }

    /// The selecting fields of the request for a response, or the reason against storing it.
    fn selector(&self, facts: &ResponseFacts<'_>) -> Result<Selector, &'static str> {
        // The upstream has chosen by a value that is not known here, such as the address of the client.
        if vary::names(&facts.vary).any(|name| self.behind.chooses_field(name)) {
            return Err("vary");
        }
        Selector::of(&facts.vary, &self.request.head().headers()).ok_or("vary")
    }

    /// The head of a response that may be stored, or the reason against that.
    fn entry_head(
        &self,
        request: &RequestFacts<'_>,
        response: &Response,
        times: ExchangeTimes,
    ) -> Result<EntryHead, &'static str> {
        let (cache, fields) = (&self.cache, gateway::fields(response));
        let mut facts = facts_of(response, &cache.targets);
        let status = gateway::status(response);
        let freshness = storing::admit(request, status.code(), &facts, times, cache.policy)?;
        let selector = self.selector(&facts)?;
        facts.control.withheld.extend(gateway::has_cookie(response).then(|| b"set-cookie"[..].into()));
        let mut stored = storing::stored_fields(fields, &facts, times);
        if !has(&stored, b"content-type")
            && let Some(content_type) = response.field("content-type")
        {
            stored.push_valid("Content-Type", content_type);
        }
        if stored.bytes().len() > cache.limits.header_bytes_max {
            return Err("fields-too-large");
        }
        if response.content_length().is_some_and(|length| length > cache.limits.entry_max() as u64) {
            return Err("too-large");
        }
        let is_forwarded = gateway::is_forwarded(response);
        Ok(EntryHead { status, fields: stored, selector, freshness, is_forwarded })
    }

    /// Stores a response now, or as its body passes, in the place of a stale one.
    fn store(
        self,
        (lead, stale): (Lead, Option<Arc<Entry>>),
        head: EntryHead,
        mut response: Response,
        mut status: CacheStatus,
    ) -> Response {
        let cache = &self.cache;
        status.ttl = Some(head.freshness.ttl(head.freshness.received));
        match gateway::take_body(&mut response).into_kind() {
            BodyKind::Produced(produced) => {
                status.is_stored = true;
                let filling = fill::through(*produced, Fill::new(cache, lead, head, stale));
                let body = Body::from(BodyKind::Produced(Box::new(filling)));
                cache.with_status(response, &status).body(body)
            }
            kind => match Body::from(kind).into_bytes() {
                Ok(bytes) => {
                    // A copy of its own size, which keeps no memory of a loop.
                    let entry = Arc::new(head.with_body(bytes.clone()));
                    status.is_stored = cache.put(lead, &entry, stale.as_ref());
                    let request = RequestFacts::of(self.request.head().headers(), cache.ignores_client_control);
                    if request.is_conditional() && entry.status == Status::OK {
                        let (method, now) = (self.request.head().method(), cache.now());
                        return answer::respond(&entry, (method, &request), now, &status, cache.name.as_deref());
                    }
                    cache.with_status(response, &status).body(bytes)
                }
                Err(body) => {
                    cache.mark(lead.key());
                    lead.finish(FlightEnd::Unstorable);
                    status.detail = Some("body");
                    cache.with_status(response, &status).body(body)
                }
            },
        }
    }

    /// Validates a stored response in the background, unless that happens already or too many are.
    pub(crate) fn revalidate(&self, entry: &Arc<Entry>) {
        if self.request.head().method() != Method::Get {
            return;
        }
        let Some(permit) = Permit::take(&self.cache) else { return };
        let Some(lead) = self.cache.flights.lead(&self.key) else { return };
        let is_for_client = |name: &[u8]| {
            is_condition(name)
                || name.eq_ignore_ascii_case(b"range")
                || name.eq_ignore_ascii_case(b"cache-control")
                || name.eq_ignore_ascii_case(b"pragma")
        };
        let Some(request) = gateway::with_fields(&self.request, |name| !is_for_client(name), &[], true) else {
            return;
        };
        let (cache, key, behind) = (self.cache.clone(), self.key.clone(), self.behind.clone());
        let fetch = Self { cache, request, key, behind, interims: None, is_background: true };
        let (timeout, entry) = (self.cache.limits.revalidation_timeout, entry.clone());
        drop(task::spawn(async move {
            let _permit = permit;
            let fetching = async move {
                let mut response = fetch.lead(lead, Some(entry), "stale").await;
                if let BodyKind::Produced(produced) = gateway::take_body(&mut response).into_kind() {
                    let written = (produced.produce)(BodyWriter::new(Rc::new(NoClient), 0)).await;
                    if let Err(error) = written {
                        tracing::debug!(subsystem = "cache", %error, "a revalidation ended early");
                    }
                }
            };
            if task::timeout(timeout, fetching).await.is_err() {
                tracing::debug!(subsystem = "cache", "a revalidation took too long");
            }
        }));
    }
}

impl CacheShared {
    /// The response with `Cache-Status`, if this cache sends it.
    pub(crate) fn with_status(&self, mut response: Response, status: &CacheStatus) -> Response {
        if let Some(name) = &self.name {
            response.add_header("Cache-Status", status.text(name)).expect("the text is the value of a field");
        }
        response
    }
}

/// Invalidates the responses for a key when it is dropped: also if the client leaves before the response, since the upstream
/// may have done what the request asks for.
struct Invalidation<'a> {
    cache: &'a CacheShared,
    key: &'a [u8],
    is_due: bool,
}

impl Drop for Invalidation<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.cache.invalidate(self.key);
        }
    }
}

/// A place among the revalidations in the background.
struct Permit(Arc<CacheShared>);

impl Permit {
    fn take(cache: &Arc<CacheShared>) -> Option<Self> {
        let before = cache.revalidations.fetch_add(1, Relaxed);
        let permit = Self(cache.clone());
        (before < cache.limits.revalidations_max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.revalidations.fetch_sub(1, Relaxed);
    }
}

/// The facts of a response, of whose fields the gateway's cookie for one client is no part.
fn facts_of<'a>(response: &'a Response, targets: &[Box<str>]) -> ResponseFacts<'a> {
    let fields = gateway::fields(response);
    let mut facts = ResponseFacts::of(fields, targets);
    if gateway::has_cookie(response) {
        let cookies = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie")).count();
        facts.sets_cookie = cookies > 1;
    }
    facts
}

/// Whether a status is about the resource, for all its clients. Any other error may be about one request or its client.
fn is_about_resource(code: u16) -> bool {
    // The client errors that a cache may keep without being permitted to (RFC 9110 §15.1).
    code < 400 || matches!(code, 404 | 405 | 410 | 414)
}

fn is_condition(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match name.len() {
        13 => is("if-none-match"),
        17 => is("if-modified-since"),
        _ => false,
    }
}

/// Whether a response to HEAD has the validators and the length of a stored one, as far as it has them.
fn is_same_content(stored: &Entry, response: &Response) -> bool {
    let is_same = |name: &str| {
        let value = response.field(name);
        value.is_none() || value == stored.field(name)
    };
    let length = response.content_length().filter(|_| response.field("content-encoding").is_none());
    is_same("etag") && is_same("last-modified") && length.is_none_or(|length| length == stored.body.len() as u64)
}

fn has(fields: &Fields, name: &[u8]) -> bool {
    fields.iter().any(|(found, _)| found.eq_ignore_ascii_case(name))
}
