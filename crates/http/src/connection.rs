//! `HttpHandler`: the application of a connection while nothing of it needs a task.
//!
//! It answers requests whose bodies are in memory, of functions that are async or not, with bodies in memory or of files.
//! An async function that is not complete when it is polled for the first time goes on in a task of its own, while the
//! handler waits. So does a reverse proxy, whose interim responses the handler sends meanwhile (decision 98). A request of
//! HTTP/2 whose body comes with its head is held until the body is complete (`held.rs`). Everything else goes to a task
//! (`task.rs`), which takes the connection over and returns it when it is idle again. So a connection has the memory of a
//! task only while a task has something to do. Pipelined requests of a proxy are in progress side by side
//! (`pipelined.rs`).
//!
//! An async function is polled within the dispatch of its connection, where handles of other connections cannot be used.
//! So it is not while the application may have such a handle: then it begins in a task (decision 52).

use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self as future, Poll, Waker};

use tidegate_buffer::Slice;
use tidegate_engine::activity::Label;
use tidegate_engine::task::HandlerTask;
use tidegate_engine::{CloseReason, ConnectionCharge, Context, Event, Handler, Outcome};
use tidegate_http_message::body::{self, Body, BodyCollector, BodyWithTrailers};
use tidegate_http_message::slices::LONG_BODY_BYTES;
use tidegate_http1::{Incoming, Interim, Method, Outgoing, RequestHead, Status, Trailers};
use tidegate_sys::Address;

use crate::app::App;
use crate::codec::HttpCodec;
use crate::endpoint::{Call, Endpoint, InterimWriter, Interimed, Interims, PolledCall, Responding};
use crate::exchange::Late;
use crate::extract::BodyUse;
use crate::held::{self, Held};
use crate::http2;
use crate::middleware::{self, MiddlewareList, Passed};
use crate::order::Place;
use crate::pipelined::Behind;
use crate::refusals::Limit;
use crate::request::{AnyState, Request};
use crate::response::{Message, Response};
use crate::router::MakeState;
use crate::running::Running;
use crate::task::{self, Begun, CaughtResponse, Work, late_response};

/// The application of a connection while nothing of it needs a task; see
/// [`Config::connections`](crate::Config::connections).
pub struct HttpHandler {
    pub(crate) app: Rc<App>,
    pub(crate) more: Option<Box<More>>,
}

/// Optional state, boxed to keep most connections small. Its large parts are boxed as well, since a connection that waits
/// for a function has neither.
#[derive(Default)]
pub(crate) struct More {
    collecting: Option<Box<Collecting>>,
    held: Option<Box<Held>>,
    pub(crate) awaited: Option<Awaited>,
    /// The requests behind the one that is awaited.
    pub(crate) behind: Option<Box<Behind>>,
    state: Option<AnyState>,
}

/// A request whose function has not responded yet.
pub(crate) struct Awaited {
    pub(crate) task: HandlerTask<Progress>,
    pub(crate) passed: Passed,
    pub(crate) is_head: bool,
    /// Counts the body of the request, which the function may keep.
    pub(crate) charge: Option<Box<ConnectionCharge>>,
}

/// What the task of a function has come to.
pub(crate) enum Progress {
    Response(Response),
    /// Interim responses, which go first; the function goes on when they are sent.
    Interims(Box<(Vec<Interim>, CaughtResponse)>),
}

/// Runs a function until it responds, or has sent interim responses.
struct Progressing {
    /// `None` once it is complete.
    caught: Option<CaughtResponse>,
    interims: Rc<Interims>,
}

impl Future for Progressing {
    type Output = Progress;

    fn poll(mut self: Pin<&mut Self>, cx: &mut future::Context<'_>) -> Poll<Progress> {
        let this = &mut *self;
        let Some(caught) = &mut this.caught else { return Poll::Pending };
        let polled = Pin::new(caught).poll(cx);
        let interims = this.interims.take();
        match (polled, this.caught.take()) {
            (Poll::Ready(response), Some(caught)) if !interims.is_empty() => {
                let caught = CaughtResponse { responding: Box::pin(ready(response)), ..caught };
                Poll::Ready(Progress::Interims(Box::new((interims, caught))))
            }
            (Poll::Ready(response), _) => Poll::Ready(Progress::Response(response)),
            (Poll::Pending, Some(caught)) if !interims.is_empty() => {
                Poll::Ready(Progress::Interims(Box::new((interims, caught))))
            }
            (Poll::Pending, caught) => {
                this.caught = caught;
                Poll::Pending
            }
        }
    }
}

impl More {
    fn is_empty(&self) -> bool {
        let Self { collecting, held, awaited, behind, state } = self;
        collecting.is_none() && held.is_none() && awaited.is_none() && behind.is_none() && state.is_none()
    }
}

/// A request whose body is collected.
struct Collecting {
    request: Request,
    endpoint: Rc<Endpoint>,
    passed: Passed,
    body: BodyCollector,
    /// The body, if it came in one piece.
    whole: Body,
    length: Option<u64>,
}

impl HttpHandler {
    pub(crate) fn new(app: Rc<App>) -> Self {
        Self { app, more: None }
    }

    /// The handler of a connection that has served requests, and perhaps has others in progress.
    pub(crate) fn with_state(app: Rc<App>, state: Option<AnyState>, behind: Option<Box<Behind>>) -> Self {
        let more = More { state, behind, ..More::default() };
        Self { app, more: if more.is_empty() { None } else { Some(Box::new(more)) } }
    }

    fn collecting(&mut self) -> Option<&mut Collecting> {
        self.more.as_mut()?.collecting.as_deref_mut()
    }

    fn held(&mut self) -> Option<&mut Held> {
        self.more.as_mut()?.held.as_deref_mut()
    }

    fn take_collecting(&mut self) -> Option<Box<Collecting>> {
        self.take_of_more(|more| more.collecting.take())
    }

    fn take_held(&mut self) -> Option<Box<Held>> {
        self.take_of_more(|more| more.held.take())
    }

    pub(crate) fn take_awaited(&mut self) -> Option<Awaited> {
        self.take_of_more(|more| more.awaited.take())
    }

    /// Takes what the connection has no longer.
    pub(crate) fn take_of_more<T>(&mut self, take: impl FnOnce(&mut More) -> Option<T>) -> Option<T> {
        let more = self.more.as_mut()?;
        let taken = take(more);
        if more.is_empty() {
            self.more = None;
        }
        taken
    }

    /// The state of the connection, which the first request makes.
    #[inline(never)]
    pub(crate) fn state(&mut self, make: &MakeState, client: &Address) -> AnyState {
        self.more.get_or_insert_default().state.get_or_insert_with(|| make(client)).clone()
    }

    /// A request that has waited is in turn. Apart, so that the code for one that has just come stays within its caller.
    #[inline(never)]
    pub(crate) fn on_head_in_turn<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        self.on_head(head, cx)
    }

    /// The same for one that middleware has refused.
    #[cold]
    pub(crate) fn respond_in_turn<C: HttpCodec>(
        &mut self,
        response: Response,
        passed: &Passed,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        self.respond(response, passed, is_head, cx)
    }

    /// Gives the connection to a task.
    #[inline(never)]
    fn take_over<C: HttpCodec>(&mut self, work: Work) -> Outcome<C> {
        let (state, behind) = match &mut self.more {
            Some(more) => (more.state.clone(), more.behind.take()),
            None => (None, None),
        };
        task::take_over(self.app.clone(), state, behind, work)
    }

    #[inline(always)]
    fn on_head<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        if self.awaits() {
            return self.on_head_ahead(head, cx);
        }
        let (peer, is_secure) = (peer(cx), cx.codec().is_secure());
        let outer = self.app.table();
        let state = outer.connection_state.as_ref().map(|make| match cx.codec().shared_state() {
            Some(shared) => shared.get_or_init(|| make(&peer)).clone(),
            None => self.state(make, &peer),
        });
        let table = outer.of_host(&head);
        let (endpoint, route) = match table.find(&head) {
            Ok(found) => found,
            Err(response) => {
                let mut request = Request::new(head, peer, is_secure, None);
                state.into_iter().for_each(|state| request.set_connection_state(state));
                return self.refuse(&table.middleware, request, *response, cx);
            }
        };
        let mut request = Request::new(head, peer, is_secure, route);
        if let Some(state) = state {
            request.set_connection_state(state);
        }
        let mut passed = Passed::default();
        if !table.middleware.is_empty() {
            let result;
            (passed, result) = middleware::before(&table.middleware, &mut request, cx.now());
            if let Err(response) = result {
                passed.count(self.app.counting.as_ref(), Some(endpoint), request.head().method(), cx.now());
                return self.respond(response, &passed, is_head(&request), cx);
            }
        }
        passed.count(self.app.counting.as_ref(), Some(endpoint), request.head().method(), cx.now());
        if endpoint.keeps_half_closed() {
            cx.codec_mut().keep_half_closed();
        }
        match &endpoint.call {
            Call::Sync(call) if !request.head().has_body() || endpoint.body == BodyUse::Unused => {
                let is_head = is_head(&request);
                // A function that is not async has a label of its own.
                self.app.activity.begin(endpoint.label.get());
                let response = call_caught(call, request);
                self.app.activity.end();
                self.respond(response, &passed, is_head, cx)
            }
            Call::Async(call) if !request.head().has_body() && self.may_poll(cx) => {
                let is_head = is_head(&request);
                // A function that may keep its request must not keep the loop's memory with it.
                let request = if endpoint.body == BodyUse::Unused { request } else { request.detach() };
                self.poll(endpoint, call, request, passed, is_head, cx)
            }
            Call::Polled(call) if !request.head().has_body() && self.may_poll(cx) => {
                self.poll_at_once(endpoint, call, (request, Body::empty()), passed, cx)
            }
            Call::Async(_) | Call::Polled(_)
                if C::HOLDS_REQUESTS && held::may_hold(&request, endpoint) && self.may_poll(cx) =>
            {
                let held = Held::new(request, endpoint.clone(), passed);
                self.more.get_or_insert_default().held = Some(Box::new(held));
                cx.notify_after_dispatch();
                Outcome::Continue
            }
            Call::Interim(function) if !request.head().has_body() && !function.needs_destination => {
                self.begin_first(function, endpoint, request, passed, cx)
            }
            Call::Async(_) | Call::Polled(_) | Call::Interim(_)
                if endpoint.body != BodyUse::Collected || !self.may_poll(cx) =>
            {
                let work = Work::request(request.detach(), endpoint.clone(), passed);
                self.take_over(work)
            }
            _ => {
                let endpoint = endpoint.clone();
                self.collect(request, endpoint, passed, cx)
            }
        }
    }

    /// Whether an async function may be polled within this dispatch: the application has no handle of a connection that
    /// the function could find to be busy.
    #[inline]
    fn may_poll<C: HttpCodec>(&self, cx: &Context<'_, C>) -> bool {
        cx.handles() <= self.app.served.get()
    }

    /// Polls an async function for the first time. If it is not complete, a task goes on with it.
    #[inline]
    fn poll<C: HttpCodec>(
        &mut self,
        endpoint: &Endpoint,
        call: &dyn Fn(Request) -> Responding,
        request: Request,
        passed: Passed,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        Running::begin(&self.app.activity, endpoint, request.head());
        let body_bytes = request.body().memory_bytes();
        let polled = poll_caught(call, request);
        self.app.activity.end();
        self.on_polled(polled, passed, (is_head, endpoint.label.get(), body_bytes), cx)
    }

    /// The same for a function that is polled when it is called.
    #[inline]
    fn poll_at_once<C: HttpCodec>(
        &mut self,
        endpoint: &Endpoint,
        call: &PolledCall,
        (request, body): (Request, Body),
        passed: Passed,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (is_head, body_bytes) = (is_head(&request), body.memory_bytes());
        Running::begin(&self.app.activity, endpoint, request.head());
        let polled = catch_unwind(AssertUnwindSafe(|| call(request, body, &mut no_waker())));
        self.app.activity.end();
        let polled = polled.unwrap_or_else(|_| Ok(panicked()));
        self.on_polled(polled, passed, (is_head, endpoint.label.get(), body_bytes), cx)
    }

    #[inline(always)]
    fn on_polled<C: HttpCodec>(
        &mut self,
        polled: Result<Response, Responding>,
        passed: Passed,
        (is_head, label, body_bytes): (bool, Label, usize),
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        match polled {
            Ok(response) => self.respond(response, &passed, is_head, cx),
            Err(responding) => {
                let running = Running::of_last(&self.app.activity, label);
                self.await_response(responding, running, passed, (is_head, body_bytes), cx);
                Outcome::Continue
            }
        }
    }

    /// Waits for the response of a function. The codec decodes no other request before it.
    #[inline(never)]
    fn await_response<C: HttpCodec>(
        &mut self,
        responding: Responding,
        running: Running,
        passed: Passed,
        (is_head, body_bytes): (bool, usize),
        cx: &mut Context<'_, C>,
    ) {
        let caught = CaughtResponse { responding, running, activity: self.app.activity.clone() };
        let task = cx.spawn(Progressing { caught: Some(caught), interims: self.app.interims.clone() });
        cx.deadline_after(self.app.limits.request_timeout);
        let charge = body::charge(&cx.account(), body_bytes);
        cx.watch_end();
        let awaited = Awaited { task, passed: passed.detach(), is_head, charge };
        self.more.get_or_insert_default().awaited = Some(awaited);
    }

    /// Begins a function that may send interim responses. Its request is in turn.
    #[inline(never)]
    fn begin_first<C: HttpCodec>(
        &mut self,
        function: &Interimed,
        endpoint: &Endpoint,
        request: Request,
        passed: Passed,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let place = self.place_of_first(function, &request, cx);
        let awaited = self.begin_interim(function, endpoint, request, passed, place, cx);
        cx.deadline_after(self.app.limits.request_timeout);
        cx.watch_end();
        self.more.get_or_insert_default().awaited = Some(awaited);
        Outcome::Continue
    }

    /// Begins a function that may send interim responses.
    pub(crate) fn begin_interim<C: HttpCodec>(
        &self,
        function: &Interimed,
        endpoint: &Endpoint,
        request: Request,
        passed: Passed,
        place: Option<Place>,
        cx: &mut Context<'_, C>,
    ) -> Awaited {
        let is_head = is_head(&request);
        let running = Running::new(endpoint, request.head());
        let interims = InterimWriter::Handler { interims: self.app.interims.clone(), place };
        let responding = (function.call)(request.detach(), interims);
        let caught = CaughtResponse { responding, running, activity: self.app.activity.clone() };
        let task = cx.spawn(Progressing { caught: Some(caught), interims: self.app.interims.clone() });
        Awaited { task, passed: passed.detach(), is_head, charge: None }
    }

    /// The function has responded.
    fn on_response<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if self.has_behind() {
            return self.on_responses(cx);
        }
        match self.take_awaited() {
            Some(awaited) => self.on_progress(awaited, cx),
            None => Outcome::Continue,
        }
    }

    /// The task of the request in turn is complete.
    #[inline(always)]
    pub(crate) fn on_progress<C: HttpCodec>(&mut self, awaited: Awaited, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Awaited { mut task, passed, is_head, charge } = awaited;
        let response = match task.take_output() {
            Some(Progress::Response(response)) => response,
            Some(Progress::Interims(progress)) => {
                let (interims, caught) = *progress;
                return self.on_interims(interims, caught, Awaited { task, passed, is_head, charge }, cx);
            }
            None => panicked(),
        };
        cx.deadline(None);
        self.respond(response, &passed, is_head, cx)
    }

    /// Ends the connection if the client has ended its side while a function works for it, and the functions with it. A
    /// response that is complete goes first.
    #[inline]
    fn unless_left<C: HttpCodec>(&mut self, outcome: Outcome<C>, cx: &mut Context<'_, C>) -> Outcome<C> {
        if !self.awaits() || !matches!(outcome, Outcome::Continue) {
            return outcome;
        }
        // Another request is in turn.
        cx.watch_end();
        if cx.is_read_closed() { self.end_unless_answered() } else { outcome }
    }

    #[cold]
    fn end_unless_answered<C: HttpCodec>(&mut self) -> Outcome<C> {
        let awaited = self.more.as_ref().and_then(|more| more.awaited.as_ref());
        if awaited.is_none_or(|awaited| awaited.task.is_finished()) {
            return Outcome::Continue;
        }
        self.more = None;
        Outcome::Close
    }

    /// The function has sent interim responses, and goes on. Its deadline stays.
    #[cold]
    fn on_interims<C: HttpCodec>(
        &mut self,
        interims: Vec<Interim>,
        caught: CaughtResponse,
        awaited: Awaited,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        for interim in interims {
            // One that the protocol cannot express is dropped.
            let _ = cx.send(Outgoing::Interim(interim));
        }
        let task = cx.spawn(Progressing { caught: Some(caught), interims: self.app.interims.clone() });
        self.more.get_or_insert_default().awaited = Some(Awaited { task, ..awaited });
        Outcome::Continue
    }

    /// The body of the request, or the response of its function, is late.
    #[cold]
    fn on_deadline<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(Awaited { task, passed, is_head, .. }) = self.take_awaited() {
            drop(task);
            // The connection ends behind the response.
            drop(self.take_of_more(|more| more.behind.take()));
            return self.respond(late_response(Late::Function), &passed, is_head, cx);
        }
        self.abandon(late_response(Late::Peer), cx)
    }

    /// Responds to a request that has no function.
    #[cold]
    fn refuse<C: HttpCodec>(
        &mut self,
        middleware: &MiddlewareList,
        mut request: Request,
        response: Response,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (mut passed, result) = middleware::before(middleware, &mut request, cx.now());
        passed.count(self.app.counting.as_ref(), None, request.head().method(), cx.now());
        self.respond(result.err().unwrap_or(response), &passed, false, cx)
    }

    /// Begins to collect the body of a request.
    #[inline(never)]
    fn collect<C: HttpCodec>(
        &mut self,
        request: Request,
        endpoint: Rc<Endpoint>,
        passed: Passed,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (length, bytes_max) = (request.content_length(), self.app.limits.collected_body_bytes_max);
        if length.is_some_and(|length| length > bytes_max as u64) {
            return self.respond(too_long(), &passed, is_head(&request), cx);
        }
        if request.has_decoding() {
            // A few bytes may become many: a task decodes them in slices.
            return self.take_over(Work::request(request.detach(), endpoint, passed));
        }
        if request.head().expects_continue()
            && let Err(error) = cx.send(Outgoing::Continue)
        {
            return Outcome::fail(error);
        }
        cx.deadline_after(self.app.limits.receive_timeout);
        self.more.get_or_insert_default().collecting = Some(Box::new(Collecting {
            request: request.detach(),
            endpoint,
            passed,
            body: BodyCollector::new(bytes_max).charged_to(Some(cx.account())),
            whole: Body::empty(),
            length,
        }));
        Outcome::Continue
    }

    /// A piece of the body of a request that is held.
    #[inline(never)]
    fn on_held_data<C: HttpCodec>(&mut self, data: Slice) -> Outcome<C> {
        let Some(held) = self.held() else { return Outcome::Continue };
        if held.push(data) { Outcome::Continue } else { self.begin_held() }
    }

    /// Calls the function of a request whose body is complete.
    #[inline(never)]
    fn on_held_end<C: HttpCodec>(&mut self, held: Held, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Held { mut request, endpoint, passed, body, .. } = held;
        match &endpoint.call {
            Call::Polled(call) if self.may_poll(cx) => {
                return self.poll_at_once(&endpoint, call, (request, body.into_view()), passed, cx);
            }
            _ => request.set_body(body.into_body()),
        }
        match &endpoint.call {
            Call::Async(call) if self.may_poll(cx) => {
                let is_head = is_head(&request);
                self.poll(&endpoint, call, request.detach(), passed, is_head, cx)
            }
            _ => self.take_over(Work::complete(request.detach(), endpoint, passed)),
        }
    }

    /// Gives a request whose body is not complete to a task, with what has come of it.
    #[inline(never)]
    fn begin_held<C: HttpCodec>(&mut self) -> Outcome<C> {
        let Some(held) = self.take_held() else { return Outcome::Continue };
        let Held { request, endpoint, passed, body, .. } = *held;
        let begun = Begun { pieces: body.into_pieces(), trailers: None };
        self.take_over(Work::begun(request.detach(), endpoint, passed, begun))
    }

    /// Only a task keeps the trailers of a request.
    #[cold]
    fn on_trailers<C: HttpCodec>(&mut self, trailers: Trailers) -> Outcome<C> {
        let Some(held) = self.take_held() else { return Outcome::Continue };
        let Held { request, endpoint, passed, body, .. } = *held;
        let begun = Begun { pieces: body.into_pieces(), trailers: Some(trailers.detach()) };
        self.take_over(Work::begun(request.detach(), endpoint, passed, begun))
    }

    #[inline(never)]
    fn on_data<C: HttpCodec>(&mut self, data: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collecting) = self.collecting() else { return self.on_held_data(data) };
        let is_async = !matches!(collecting.endpoint.call, Call::Sync(_));
        if collecting.length == Some(data.len() as u64) && !is_async {
            // The end follows at once, and the function does not outlive it.
            collecting.whole = data.into();
            return Outcome::Continue;
        }
        match collecting.body.add(&data) {
            Ok(()) => Outcome::Continue,
            Err(_) => self.abandon(too_long(), cx),
        }
    }

    #[inline(never)]
    fn on_end<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(held) = self.take_held() {
            return self.on_held_end(*held, cx);
        }
        let Some(collecting) = self.take_collecting() else { return Outcome::Continue };
        cx.deadline(None);
        let Collecting { mut request, endpoint, passed, body, whole, .. } = *collecting;
        request.set_body(match body.into_bytes() {
            bytes if bytes.is_empty() => whole,
            bytes => bytes.into(),
        });
        if request.body().collected().len() > LONG_BODY_BYTES {
            return self.take_over(Work::complete(request, endpoint, passed));
        }
        let is_head = is_head(&request);
        match &endpoint.call {
            Call::Sync(call) => {
                self.app.activity.begin(endpoint.label.get());
                let response = call_caught(call, request);
                self.app.activity.end();
                self.respond(response, &passed, is_head, cx)
            }
            Call::Async(call) if self.may_poll(cx) => self.poll(&endpoint, call, request, passed, is_head, cx),
            Call::Async(_) | Call::Polled(_) | Call::Interim(_) => {
                self.take_over(Work::complete(request, endpoint, passed))
            }
        }
    }

    /// Answers a request whose body is not complete.
    #[cold]
    fn abandon<C: HttpCodec>(&mut self, response: Response, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collecting) = self.take_collecting() else { return Outcome::Continue };
        cx.deadline(None);
        self.respond(response, &collecting.passed, is_head(&collecting.request), cx)
    }

    #[inline]
    fn respond<C: HttpCodec>(
        &mut self,
        mut response: Response,
        passed: &Passed,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        passed.after(&mut response);
        response.drop_forbidden_body();
        if response.body.is_ready() {
            return self.respond_with_trailers(response, is_head, cx);
        }
        if !response.body.is_whole() {
            return self.respond_in_pieces(response.into_message(), is_head, cx);
        }
        // A message that is built here and sent at once is not moved.
        match response.into_whole() {
            Some(message) => match cx.send(Outgoing::Response(message)) {
                Ok(_) => Outcome::Continue,
                Err(error) => Outcome::fail(error),
            },
            None => Outcome::Continue,
        }
    }
}

impl HttpHandler {
    /// Responds with a body in memory, and trailers.
    #[inline(never)]
    fn respond_with_trailers<C: HttpCodec>(
        &mut self,
        response: Response,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let Some((head, BodyWithTrailers { body, trailers, .. })) = response.into_ready() else {
            return Outcome::Continue;
        };
        let sent = match cx.send(head) {
            Ok(_) if is_head => return cx.send(Outgoing::End).into(),
            Ok(_) => cx.send(Outgoing::Data(body)),
            failed => failed,
        };
        match sent {
            Ok(_) if cx.is_writable() => cx.send(Outgoing::Trailers(trailers)).into(),
            // Behind much that waits there may be no room for the end.
            Ok(_) => self.take_over(Work::Finish(Outgoing::Trailers(trailers))),
            Err(error) => Outcome::fail(error),
        }
    }

    /// Responds with a body that is not in memory, or leaves HTTP.
    #[cold]
    fn respond_in_pieces<C: HttpCodec>(
        &mut self,
        message: Message,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (head, upgrade) = match message {
            Message::Upgrade(head, upgrade) => (head, upgrade),
            message => return self.take_over(Work::Respond(message, is_head)),
        };
        match cx.send(head) {
            Ok(_) if cx.codec().has_left_http() => Outcome::Switch(upgrade.into_switch().after(C::into_filters)),
            Ok(_) => Outcome::fail(NOT_A_TUNNEL),
            Err(error) => Outcome::fail(error),
        }
    }
}

impl<C: HttpCodec> Handler<C> for HttpHandler {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        // The requests that a task has left here.
        if self.has_behind() { self.on_responses(cx) } else { Outcome::Continue }
    }

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => self.on_head(head, cx),
            Incoming::Data(data) => self.on_data(data, cx),
            Incoming::End => self.on_end(cx),
            Incoming::Trailers(trailers) => self.on_trailers(trailers),
            Incoming::Preface => http2::go_on(&self.app, cx, Self::new),
        }
    }

    #[cold]
    fn faulted(&mut self, reason: &CloseReason, cx: &mut Context<'_, C>) {
        middleware::refused(&self.app.table().middleware, reason, || peer(cx));
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::TaskFinished => {
                let outcome = self.on_response(cx);
                self.unless_left(outcome, cx)
            }
            Event::ReadClosed => self.unless_left(Outcome::Continue, cx),
            Event::HungUp if !cx.codec().keeps_half_closed() => self.end_unless_answered(),
            Event::Deadline => self.on_deadline(cx),
            Event::DispatchOver => self.begin_held(),
            Event::Writable if self.has_behind() => {
                let outcome = self.on_responses(cx);
                self.unless_left(outcome, cx)
            }
            _ => Outcome::Continue,
        }
    }
}

/// Calls a function that is not async. If it panics, the response is a 500.
#[inline]
pub(crate) fn call_caught(call: &dyn Fn(Request) -> Response, request: Request) -> Response {
    catch_unwind(AssertUnwindSafe(|| call(request))).unwrap_or_else(|_| panicked())
}

/// Calls an async function, and polls its future once: the response, or the future.
#[inline]
fn poll_caught(call: &dyn Fn(Request) -> Responding, request: Request) -> Result<Response, Responding> {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut responding = call(request);
        match responding.as_mut().poll(&mut no_waker()) {
            Poll::Ready(response) => Ok(response),
            Poll::Pending => Err(responding),
        }
    }));
    polled.unwrap_or_else(|_| Ok(panicked()))
}

/// For the first poll of a future. A task polls it again at once if it is not complete, so nothing has to be woken.
fn no_waker() -> future::Context<'static> {
    future::Context::from_waker(Waker::noop())
}

/// The response of a function that has panicked. The panic hook has printed the panic itself.
#[cold]
pub(crate) fn panicked() -> Response {
    tracing::error!("a function panicked while it handled a request; the response is a 500");
    Response::of_error(Status::INTERNAL_SERVER_ERROR).close()
}

/// The response leaves HTTP, and the protocol does not: it was no 101, and no 2xx to a CONNECT.
pub(crate) const NOT_A_TUNNEL: &str = "a response that makes the connection a tunnel answers a CONNECT";

/// The address of the client.
pub(crate) fn peer<C: HttpCodec>(cx: &Context<'_, C>) -> Address {
    cx.codec().reported_peer().unwrap_or_else(|| cx.peer())
}

pub(crate) fn is_head(request: &Request) -> bool {
    request.head().method() == Method::Head
}

pub(crate) fn too_long() -> Response {
    Limit::CollectedBody.log();
    Response::of_error(Status::CONTENT_TOO_LARGE).close()
}

impl std::fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpHandler").field("has_more", &self.more.is_some()).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<HttpHandler>() <= 16);
