//! The way of one request: to an upstream, perhaps to another one, and its response back.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidegate_engine::{ConnectError, task};
use tidegate_http::gateway::{self, EndCause, ExchangeNote, InterimWriter, PipelineSlot, address_key};
use tidegate_http::{Request, Response};
use tidegate_http_upstream::{Connected, is_idempotent};
use tidegate_http1::Status;

use super::attempts::{Attempts, FailedAttempt};
use super::cancellations::{Admission, Cancellations, Requester};
use super::connection::{ClientAddresses, Connection, connect, may_be_http2};
use super::error::{Failure, SendFailure};
use super::forwarded::Forwarding;
use super::head_wait::{HeadWait, Reuse, Stop};
use super::lease::Lease;
use super::loop_values::LoopValues;
use super::mirror::LoopMirror;
use super::options::{HashKey, Options};
use super::pipeline::Pipelines;
use super::pool::Pool;
use super::request_head::{ForwardPlan, path_without_query};
use super::sticky::StickyCookie;
use super::upload::Upload;
use super::upstream_response::{ClientSide, UpstreamResponse};
use super::upstreams::{Shared, Upstream, UpstreamLimits};
use super::websocket::answer_to;
use tidegate_l4::{Balance, Balancer, Candidate, hash_of};

/// The upstreams as one loop sees them: shared facts, a balancer, idle connections.
pub(super) struct LoopUpstreams {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Rc<Pool>,
    balancer: RefCell<Balancer>,
    members: RefCell<Members>,
    /// The memory in which candidates are listed.
    candidates: RefCell<Vec<Candidate>>,
    pub(super) cancellations: Rc<Cancellations>,
}

struct Members {
    generation: u64,
    list: Arc<[Arc<Upstream>]>,
}

/// The upstream for an attempt.
enum UpstreamChoice {
    /// It, and the present time.
    Upstream(Arc<Upstream>, Instant),
    /// Those that are left have no room.
    Full,
    /// None is left.
    None,
}

/// The connection for a request that has a place among others of its client.
enum ConnectionChoice<'a> {
    /// One that was there.
    Connection(Box<dyn Connection>),
    /// It gets one of its own.
    Own,
    /// It waits until another request is in turn.
    Waits(&'a PipelineSlot),
}

/// The connection that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionNeed {
    /// One of any version.
    Any,
    /// One of HTTP/1.1, which the request leaves for another protocol.
    Http1,
    /// A stream for an extended CONNECT (RFC 8441, RFC 9220).
    ExtendedConnect,
}

impl ConnectionNeed {
    fn of(plan: &ForwardPlan, is_extended: bool) -> Self {
        match is_extended {
            true => Self::ExtendedConnect,
            false if plan.needs_http1 => Self::Http1,
            false => Self::Any,
        }
    }
}

/// A request on its way, whichever upstream gets it.
pub(super) struct RequestContext<'a> {
    pub(super) request: &'a Request,
    pub(super) plan: &'a ForwardPlan,
    pub(super) options: &'a Rc<Options>,
    pub(super) interims: &'a InterimWriter,
    pub(super) preference: Preference<'a>,
    pub(super) note: Option<ExchangeNote>,
}

/// The part of a request that decides which upstream it gets.
#[derive(Clone, Copy)]
pub(super) struct Preference<'a> {
    /// The key of the balance.
    key: u64,
    /// The client address whose share of an upstream it takes.
    address: Option<u64>,
    /// The cookie that names an upstream, and the id in it.
    sticky: Option<(&'a StickyCookie, u64)>,
}

thread_local! {
    static OF_LOOPS: LoopValues<Shared, LoopUpstreams> = const { LoopValues::new() };
}

impl LoopUpstreams {
    /// The upstreams of a set as the loop of this thread sees them, which all its proxies share.
    pub(super) fn of_loop(shared: &Arc<Shared>) -> Rc<Self> {
        OF_LOOPS.with(|values| values.get(shared, || Self::new(shared.clone())))
    }

    fn new(shared: Arc<Shared>) -> Self {
        let pool = Pool::new(shared.limits.idle_connections_max, shared.limits.streams_per_connection_max);
        let balancer = RefCell::new(Balancer::new(shared.balance));
        let members = RefCell::new(Members { generation: shared.generation(), list: shared.members() });
        let limits = &shared.limits;
        let cancellations = Cancellations::new(limits.cancellations_max, limits.cancellations_per_second);
        Self { shared, pool, balancer, members, candidates: RefCell::default(), cancellations }
    }

    /// Whether each connection begins with a header that names the client and the address that it has connected to.
    pub(super) fn sends_proxy_header(&self) -> bool {
        self.shared.sends_proxy_header
    }

    /// Answers a request by the response of an upstream, or by that of the failure.
    pub(super) async fn forward(
        &self,
        mut request: Request,
        (options, mirror): (&Rc<Options>, Option<&Rc<LoopMirror>>),
        interims: InterimWriter,
    ) -> Response {
        let note = gateway::note(&request).cloned();
        let shed = || note.iter().for_each(|note| note.set_end(EndCause::Shed));
        let mut plan = match ForwardPlan::of(&request, options) {
            Ok(plan) => plan,
            Err(response) => return response,
        };
        if let Some(rate) = &options.rate
            && let Err(response) = rate.check(&request)
        {
            shed();
            return response;
        }
        if request.content_length().is_some_and(|length| length > options.request_body_bytes_max) {
            return Response::of_error(Status::CONTENT_TOO_LARGE);
        }
        let requester = requester(&request, &options.forwarding);
        let Some(mut admission) = self.cancellations.admit(requester).await else {
            shed();
            return Response::of_error(Status::TOO_MANY_REQUESTS);
        };
        let mut upload = upload_of(&mut request, &plan, options, note.as_ref());
        if plan.may_be_without_body(request.head()) && Box::pin(upload.is_nothing_within(options.end_wait)).await {
            (upload, plan.has_body) = (Upload::nothing(), false);
        }
        if let Some(copy) =
            mirror.and_then(|mirror| mirror.copy(&request, plan.needs_http1 || plan.handshake.is_some()))
        {
            upload.copy_to(copy);
        }
        self.shared.budget.earn();
        let context = RequestContext {
            preference: self.preference(&request, options),
            note,
            request: &request,
            plan: &plan,
            options,
            interims: &interims,
        };
        let mut answer = None;
        if let Err(response) = self.try_upstreams(&context, &mut upload, &mut admission, &mut answer).await {
            return *response;
        }
        let Some(answer) = answer else { return Response::of_error(Status::BAD_GATEWAY) };
        answer.into_response(ClientSide {
            request: &request,
            plan: &plan,
            options,
            place: interims.place(),
            upload,
            admission,
            pool: &self.pool,
            tunnel_idle_timeout: self.shared.limits.tunnel_idle_timeout,
        })
    }

    /// Sends a request to one upstream after the other, until one has answered; otherwise the response is that of the
    /// failure. The answer is not returned, since it is large: each future that returns it would copy it.
    pub(super) async fn try_upstreams(
        &self,
        context: &RequestContext<'_>,
        upload: &mut Upload,
        admission: &mut Admission,
        answer: &mut Option<UpstreamResponse>,
    ) -> Result<(), Box<Response>> {
        let mut attempts = Attempts::default();
        let mut last = None;
        let mut resends = 0;
        let mut place = context.interims.place();
        // Bounded by the upstreams, by the retries of one request, and by the requests before it.
        loop {
            let Some((upstream, chosen_at)) = self.next_upstream(context, &mut attempts, place).await else {
                admission.fail();
                return Err(self.give_up(last, context.note.as_ref()));
            };
            upload.restart(context.plan.expects);
            let client = context.preference.address;
            let mut lease = Lease::new(self.shared.clone(), upstream.clone(), client, context.note.clone(), chosen_at);
            let pooled = match self.connection_for(place, &lease, &attempts) {
                ConnectionChoice::Connection(connection) => Some(connection),
                ConnectionChoice::Own => None,
                ConnectionChoice::Waits(place) => {
                    drop(lease);
                    place.advanced().await;
                    continue;
                }
            };
            admission.begin();
            lease.begin(context.request, || path_without_query(context.request.head(), context.options), resends);
            resends += 1;
            let (failure, reuse) = match self.attempt(context, upload, lease, pooled, answer).await {
                Ok(()) => return Ok(()),
                Err(Stop::Client(response)) => {
                    if !upload.has_begun() {
                        admission.fail();
                    }
                    return Err(Box::new(response));
                }
                Err(Stop::NotProcessed) => {
                    // It is sent again, since its method is safe, and no more behind others (RFC 9112 §9.3.2).
                    in_turn(place.take()).await;
                    continue;
                }
                Err(Stop::Upstream { failure, reuse }) => (failure, reuse),
            };
            tracing::debug!(subsystem = "proxy", upstream = &*upstream.name, error = failure.text(), "attempt failed");
            upstream.counts.on_failure(failure.kind());
            let Reuse { is_pooled, has_answered } = reuse;
            let failed = FailedAttempt { upstream: upstream.id, failure: &failure, is_pooled, has_answered };
            let is_idempotent = is_idempotent(context.request.head().method_text());
            let times = (task::now(), self.shared.limits.response_timeout);
            if !attempts.may_follow(&failed, (is_idempotent, upload.may_restart()), &self.shared.budget, times) {
                admission.fail();
                return Err(self.give_up(Some((upstream, failure)), context.note.as_ref()));
            }
            last = Some((upstream, failure));
        }
    }

    /// The upstream for the next attempt, and the time of the choice; `None` if there is none, or none has room in time. A
    /// request that is not in turn waits for its turn instead.
    async fn next_upstream(
        &self,
        context: &RequestContext<'_>,
        attempts: &mut Attempts,
        place: Option<&PipelineSlot>,
    ) -> Option<(Arc<Upstream>, Instant)> {
        loop {
            match self.pick(context.preference, attempts) {
                UpstreamChoice::Upstream(upstream, now) => return Some((upstream, now)),
                _ if place.is_some_and(|place| !place.is_in_turn()) => {
                    if let Some(place) = place {
                        place.advanced().await;
                    }
                }
                UpstreamChoice::Full => {
                    return Box::pin(self.wait_for_room(context.preference, attempts)).await;
                }
                UpstreamChoice::None if attempts.readmit() => {}
                UpstreamChoice::None => return None,
            }
        }
    }

    /// The response to a request that no upstream has answered.
    #[cold]
    fn give_up(&self, last: Option<(Arc<Upstream>, Failure)>, note: Option<&ExchangeNote>) -> Box<Response> {
        let now = self.shared.millis(task::now());
        let Some((upstream, failure)) = last else {
            let failure = Failure::NoUpstream;
            if let Some(unlogged) = self.shared.counts.may_log(now) {
                let upstreams = self.shared.names();
                tracing::warn!(subsystem = "proxy", upstreams, error = failure.text(), unlogged, "request failed");
            }
            if let Some(note) = note {
                note.fail(failure.text(), EndCause::Shed);
            }
            return Box::new(failure.response());
        };
        let text = failure.text();
        upstream.log_failure(&text, now);
        if let Some(note) = note {
            note.fail(text, failure.kind().end());
        }
        Box::new(failure.response())
    }

    /// The connection for an attempt.
    fn connection_for<'a>(
        &self,
        place: Option<&'a PipelineSlot>,
        lease: &Lease,
        attempts: &Attempts,
    ) -> ConnectionChoice<'a> {
        if self.shared.sends_proxy_header || !attempts.may_be_pooled(lease.id()) {
            return ConnectionChoice::Own;
        }
        match place {
            Some(place) => self.placed(place, lease),
            None => self.pool.take(lease.id(), None).map_or(ConnectionChoice::Own, ConnectionChoice::Connection),
        }
    }

    /// The connection for a request that has a place among others of its client. Ahead of its turn it makes none, and
    /// leaves half of an upstream's requests in progress to others: clients that pipeline take no other's place.
    fn placed<'a>(&self, place: &'a PipelineSlot, lease: &Lease) -> ConnectionChoice<'a> {
        let upstream = lease.id();
        let limits = &self.shared.limits;
        let may_pipeline = limits.pipelined_requests_max > 1 && lease.upstream.may_pipeline(|| lease.now());
        let pipelines = place.shared::<Pipelines>().filter(|_| may_pipeline);
        if let Some(connection) = pipelines.as_ref().and_then(|pipelines| pipelines.join(lease, place)) {
            return ConnectionChoice::Connection(connection);
        }
        let is_busy = lease.upstream.active.load(Relaxed) > limits.requests_max / 2;
        if is_busy && !place.is_in_turn() {
            return ConnectionChoice::Waits(place);
        }
        match (self.pool.take(upstream, Some(place.client())), pipelines) {
            // It has answered a request and stayed open, so it is likely to answer several.
            (Some(connection), Some(pipelines)) => {
                let patience = PATIENCE.min(limits.response_timeout / 4);
                ConnectionChoice::Connection(pipelines.begin(lease, place, (&self.pool, connection), patience))
            }
            (Some(connection), None) => ConnectionChoice::Connection(connection),
            (None, _) if place.is_in_turn() || self.pool.has_session(upstream) => ConnectionChoice::Own,
            (None, _) => ConnectionChoice::Waits(place),
        }
    }

    /// Sends a request to an upstream, and waits for the head of its response.
    async fn attempt(
        &self,
        context: &RequestContext<'_>,
        upload: &mut Upload,
        lease: Lease,
        pooled: Option<Box<dyn Connection>>,
        answer: &mut Option<UpstreamResponse>,
    ) -> Result<(), Stop> {
        let RequestContext { request, plan, options, interims, .. } = *context;
        let failed = Stop::of_failure;
        let is_new = Reuse::default();
        let has_streams = lease.upstream.has_streams();
        let may_translate = has_streams && plan.is_websocket_of_http1();
        let handshake_answer = may_translate.then(|| answer_to(request.head())).flatten();
        let mut outgoing = plan.outgoing(request, lease.addressee(), options, has_streams).map_err(Stop::Client)?;
        let is_asked = plan.handshake.is_some() || plan.is_capsules_of_http1(request.head());
        let is_extended = has_streams && (is_asked || handshake_answer.is_some());
        let need = ConnectionNeed::of(plan, is_extended);
        let (mut connection, is_pooled) = match pooled {
            Some(connection) => (connection, true),
            None if need == ConnectionNeed::Http1 && has_streams => {
                return Err(failed(&lease, Failure::NoTunnel, is_new));
            }
            None => match Box::pin(self.connect(&lease.upstream, context, need)).await {
                Ok(made) => made,
                Err(error) => return Err(failed(&lease, Failure::Connect(error), is_new)),
            },
        };
        if need == ConnectionNeed::ExtendedConnect && !self.extends_connect(&mut *connection).await {
            return Err(failed(&lease, Failure::NoExtendedConnect, is_new));
        }
        if !has_streams && connection.is_stream() && plan.differs_on_streams(request, options) {
            outgoing = plan.outgoing(request, lease.addressee(), options, true).map_err(Stop::Client)?;
        }
        let reuse = Reuse { is_pooled, has_answered: is_pooled && connection.has_answered() };
        begin_upload(&mut *connection, upload, request, options);
        if let Err(unsent) = connection.send(outgoing) {
            if connection.is_not_processed() && matches!(unsent, SendFailure::Closed) {
                return Err(Stop::NotProcessed);
            }
            return Err(failed(&lease, Failure::of_send(&unsent), reuse));
        }
        let continue_timeout = self.shared.limits.continue_timeout;
        let mut wait = HeadWait::new(&mut *connection, upload, interims, options, continue_timeout);
        let head = poll_fn(|cx| wait.poll(cx)).await;
        match head {
            Ok(head) => {
                lease.on_head(head.status());
                upload.release();
                if options.response_timeout.is_some() {
                    connection.set_deadline_after(None);
                }
                *answer = Some(UpstreamResponse { head, connection, lease, handshake_answer });
                Ok(())
            }
            Err(stop) => Err(self.stop_after_send(stop, &*connection, &lease, reuse)),
        }
    }

    /// Whether the upstream allows extended CONNECT, once its settings have arrived.
    async fn extends_connect(&self, connection: &mut dyn Connection) -> bool {
        let allows = poll_fn(|cx| connection.poll_extends_connect(cx));
        matches!(task::timeout(self.shared.limits.connect_timeout, allows).await, Ok(true))
    }

    /// Why an attempt whose request was sent yields no head.
    #[cold]
    fn stop_after_send(&self, stop: Stop, connection: &dyn Connection, lease: &Lease, reuse: Reuse) -> Stop {
        match stop {
            Stop::Upstream { failure, .. } if connection.is_not_processed() => {
                if matches!(failure, Failure::Late) {
                    lease.upstream.pause_pipelining(self.shared.millis(task::now()));
                }
                Stop::NotProcessed
            }
            Stop::Upstream { failure, .. } => Stop::of_failure(lease, failure, reuse),
            stop => stop,
        }
    }

    /// A new connection to an upstream, or a stream of an HTTP/2 connection; and whether that was there before.
    async fn connect(
        &self,
        upstream: &Upstream,
        context: &RequestContext<'_>,
        need: ConnectionNeed,
    ) -> Result<(Box<dyn Connection>, bool), ConnectError> {
        let RequestContext { request, options, interims, .. } = *context;
        // Finding the destination is a system call.
        let client = self.shared.sends_proxy_header.then(|| ClientAddresses {
            source: options.forwarding.source(request),
            destination: interims.destination().and_then(|address| address.ip()),
        });
        let needs_http1 = need == ConnectionNeed::Http1;
        let may_share = !needs_http1 && may_be_http2(&self.shared, upstream);
        let mut is_first = true;
        // The requests that wait for a connection of another one wait no longer than that one may.
        let (begun, waiting_max) = (task::now(), self.shared.limits.connect_timeout);
        for _ in 0..CONNECTS_MAX {
            if may_share {
                let left = waiting_max.saturating_sub(task::now().saturating_duration_since(begun));
                let found = task::timeout(left, self.pool.stream(upstream.id)).await;
                if let Some(stream) = found.unwrap_or_else(|_| Err(ConnectError::Timeout(upstream.address.ip())))? {
                    return Ok((stream, is_first));
                }
            }
            is_first = false;
            let is_alone = may_share && !self.pool.is_http1(upstream.id);
            let connecting = is_alone.then(|| self.pool.begin_connecting(upstream.id));
            let connected = match connect(&self.shared, upstream, client, needs_http1).await {
                Ok(connected) => connected,
                Err(error) => {
                    connecting.into_iter().for_each(|connecting| connecting.fail(&error));
                    return Err(error);
                }
            };
            upstream.counts.on_connect();
            match connected {
                Connected::Http1(connection) => {
                    if may_share {
                        self.pool.chose_http1(upstream.id);
                    }
                    return Ok((connection, false));
                }
                Connected::Session(session) => self.pool.add(upstream, session),
            }
            drop(connecting);
        }
        let error = io::Error::other("the upstream takes no stream");
        Err(ConnectError::Failed(upstream.address.clone(), error))
    }

    #[inline]
    pub(super) fn preference<'a>(&self, request: &Request, options: &'a Options) -> Preference<'a> {
        Preference {
            key: self.key(request, options),
            address: self.client(request, &options.forwarding),
            sticky: options.sticky.as_ref().and_then(|cookie| Some((cookie, cookie.id_in(request)?))),
        }
    }

    fn key(&self, request: &Request, options: &Options) -> u64 {
        if self.shared.balance != Balance::ConsistentHash {
            return 0;
        }
        let of_client = || hash_of(options.forwarding.counted_ip(request));
        match &options.hash_key {
            HashKey::Client => of_client(),
            HashKey::Target => hash_of(request.target()),
            HashKey::Header(name) => request.header(name).map_or_else(of_client, hash_of),
            HashKey::Cookie(name) => gateway::cookie(request, name).map_or_else(of_client, hash_of),
        }
    }

    /// Whose share of an upstream a request takes, if that is bounded.
    fn client(&self, request: &Request, forwarding: &Forwarding) -> Option<u64> {
        let limits = &self.shared.limits;
        let is_bounded = limits.requests_per_address_max < limits.requests_max;
        if is_bounded { forwarding.counted_ip(request).map(address_key) } else { None }
    }

    /// The upstream for an attempt: one that is available and has not failed this request; otherwise, if all of these are
    /// away, one that is.
    fn pick(&self, preference: Preference<'_>, attempts: &Attempts) -> UpstreamChoice {
        let mut candidates = self.candidates.take();
        candidates.clear();
        let picked = self.pick_from(&mut candidates, preference, attempts);
        self.candidates.replace(candidates);
        picked
    }

    /// Waits until an upstream has room.
    #[cold]
    async fn wait_for_room(&self, preference: Preference<'_>, attempts: &Attempts) -> Option<(Arc<Upstream>, Instant)> {
        let UpstreamLimits { queued_requests_max, queue_timeout, .. } = self.shared.limits;
        let find = || match self.pick(preference, attempts) {
            UpstreamChoice::Upstream(upstream, now) => Some(Some((upstream, now))),
            UpstreamChoice::Full => None,
            UpstreamChoice::None => Some(None),
        };
        self.shared.waiting.room(queued_requests_max, queue_timeout, find).await.flatten()
    }

    fn pick_from(
        &self,
        candidates: &mut Vec<Candidate>,
        preference: Preference<'_>,
        attempts: &Attempts,
    ) -> UpstreamChoice {
        let Preference { key, address: client, sticky } = preference;
        let members = self.members();
        let at = task::now();
        let now = self.shared.millis(at);
        let limits = &self.shared.limits;
        let slow_start = self.shared.ejection.slow_start;
        let pick = |candidates: &[Candidate]| self.balancer.borrow_mut().pick(candidates, key);
        candidates.extend(members.iter().map(|member| Candidate {
            hash: member.hash,
            weight: (member.weight() * member.health.share(slow_start, now)).max(1),
            active: member.active.load(Relaxed),
            is_eligible: member.health.is_available(now)
                && (attempts.are_none() || !attempts.leaves_out(member.id))
                && member.has_room(client, limits),
        }));
        prefer_first(candidates, &members);
        if let Some((cookie, id)) = sticky {
            let mut own = members.iter().zip(&*candidates).filter(|(_, candidate)| candidate.is_eligible);
            if let Some((member, _)) = own.find(|(member, _)| cookie.id_of(member.hash) == id) {
                return UpstreamChoice::Upstream(member.clone(), at);
            }
        }
        if let Some(place) = pick(candidates) {
            return UpstreamChoice::Upstream(members[place].clone(), at);
        }
        // Another attempt at one that has failed is of little use, one at an upstream that is away may succeed.
        let mut is_full = false;
        for (candidate, member) in candidates.iter_mut().zip(&*members) {
            let may_serve = member.health.is_last_resort() && !attempts.leaves_out(member.id);
            candidate.is_eligible = may_serve && member.has_room(client, limits);
            is_full |= may_serve;
        }
        prefer_first(candidates, &members);
        match pick(candidates) {
            Some(place) => UpstreamChoice::Upstream(members[place].clone(), at),
            None if is_full => UpstreamChoice::Full,
            None => UpstreamChoice::None,
        }
    }

    fn members(&self) -> Arc<[Arc<Upstream>]> {
        let generation = self.shared.generation();
        let mut members = self.members.borrow_mut();
        if members.generation != generation {
            *members = Members { generation, list: self.shared.members() };
            let list = members.list.clone();
            self.pool.retain(|id| list.iter().any(|member| member.id == id));
        }
        members.list.clone()
    }
}

/// Leaves, of each URL, the candidates of the lowest priority number that has eligible ones. Only services have several
/// numbers, and those of different URLs say nothing about each other. The members of a URL are next to each other.
#[inline]
fn prefer_first(candidates: &mut [Candidate], members: &[Arc<Upstream>]) {
    let one = members.first().map_or(0, |member| member.priority());
    if members.iter().all(|member| member.priority() == one) {
        return;
    }
    let mut rest = candidates;
    for members in members.chunk_by(|one, other| one.is_of_same_url(other)) {
        let (candidates, others) = rest.split_at_mut(members.len());
        rest = others;
        let eligible = candidates.iter().zip(members).filter(|(candidate, _)| candidate.is_eligible);
        let Some(first) = eligible.map(|(_, member)| member.priority()).min() else { continue };
        for (candidate, member) in candidates.iter_mut().zip(members) {
            candidate.is_eligible &= member.priority() == first;
        }
    }
}

/// The body of a request, to be sent.
fn upload_of(request: &mut Request, plan: &ForwardPlan, options: &Rc<Options>, note: Option<&ExchangeNote>) -> Upload {
    match plan.has_body {
        true => Upload::new(std::mem::take(request.body_mut()), options.clone(), note.cloned()),
        false => Upload::nothing(),
    }
}

/// Prepares a connection for the rest of a request, or for the wait for its response.
fn begin_upload(connection: &mut dyn Connection, upload: &mut Upload, request: &Request, options: &Options) {
    if !upload.is_done() {
        if connection.is_stream() || is_idempotent(request.head().method_text()) {
            upload.keep();
        }
        connection.split();
    } else if let Some(timeout) = options.response_timeout {
        connection.set_deadline_after(Some(timeout));
    }
}

/// The client of a request, with its connection unless that is one of a proxy in front.
fn requester(request: &Request, forwarding: &Forwarding) -> Option<Requester> {
    let client = address_key(forwarding.single_ip(request)?);
    let port = request.peer().ip().filter(|_| !forwarding.trusts(request)).map_or(0, |address| address.port());
    Some(Requester { client, port })
}

/// Waits until a request is in turn that has a place among others of its client.
async fn in_turn(place: Option<&PipelineSlot>) {
    let Some(place) = place else { return };
    while !place.is_in_turn() {
        place.advanced().await;
    }
}

/// How long the upstream of a pipeline may be silent when the next response is due; a quarter of
/// [`UpstreamLimits::response_timeout`] at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many connections in a row may take no stream.
const CONNECTS_MAX: u32 = 4;
