//! Answers within a dispatch: the handler calls the function of a request, or polls it once, and sends the response.
//!
//! An async function is polled within the dispatch of its connection, where handles of other connections cannot be used.
//! So it is not while the application may have such a handle: then it begins in a task (decision 52).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{self as future, Waker};

use tidegate_engine::{Context, Outcome};
use tidegate_http_message::body::{self, Body, BodyWithTrailers};
use tidegate_http1::Outgoing;

use crate::codec::HttpCodec;
use crate::endpoint::{AsyncCall, BoxResponseFuture, Call, Endpoint, InterimHandler, InterimWriter, PolledCall};
use crate::extract::BodyUse;
use crate::middleware::MiddlewareState;
use crate::request::Request;
use crate::response::{Message, Response};
use crate::serving::begin::is_head;
use crate::serving::buffered::{self, BufferedRequest};
use crate::serving::handler::HttpHandler;
use crate::serving::order::PipelineSlot;
use crate::serving::pending::{CaughtResponse, PendingResponse, ResponseFuture, call_caught};
use crate::serving::refusals::{NOT_A_TUNNEL, panicked};
use crate::serving::stall_label::StallLabel;
use crate::serving::task::{self, TaskInput};

impl HttpHandler {
    /// Calls the function of a request, now or when its body is there, or has a task call it.
    #[inline(always)]
    pub(crate) fn call<C: HttpCodec>(
        &mut self,
        request: Request,
        endpoint: &Rc<Endpoint>,
        middleware: MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        match &endpoint.call {
            Call::Sync(call) if !request.head().has_body() || endpoint.body == BodyUse::Unused => {
                self.call_sync(endpoint, call, request, &middleware, cx)
            }
            Call::Async(call) if !request.head().has_body() && self.may_poll(cx) => {
                let is_head = is_head(&request);
                // A function that may keep its request must not keep the loop's memory with it.
                let request = if endpoint.body == BodyUse::Unused { request } else { request.detach() };
                self.poll(endpoint, call, request, middleware, is_head, cx)
            }
            Call::Polled(call) if !request.head().has_body() && self.may_poll(cx) => {
                self.poll_at_once(endpoint, call, (request, Body::empty()), middleware, cx)
            }
            Call::Async(_) if buffered::may_collect_early(&request, endpoint) && self.may_poll(cx) => {
                let endpoint = endpoint.clone();
                self.collect(request, endpoint, middleware, cx)
            }
            Call::Async(_) | Call::Polled(_)
                if C::HOLDS_REQUESTS && buffered::may_buffer(&request, endpoint) && self.may_poll(cx) =>
            {
                let buffered = BufferedRequest::new(request, endpoint.clone(), middleware);
                self.rare.get_or_insert_default().buffered = Some(Box::new(buffered));
                cx.notify_after_dispatch();
                Outcome::Continue
            }
            Call::Interim(function) if !request.head().has_body() && !function.needs_destination => {
                self.begin_interim_first(function, endpoint, request, middleware, cx)
            }
            Call::Async(_) | Call::Polled(_) | Call::Interim(_)
                if endpoint.body != BodyUse::Collected || !self.may_poll(cx) =>
            {
                let input = TaskInput::request(request.detach(), endpoint.clone(), middleware);
                self.take_over(input)
            }
            _ => {
                let endpoint = endpoint.clone();
                self.collect(request, endpoint, middleware, cx)
            }
        }
    }

    /// Calls a function that is not async, which has a label of its own, and responds.
    #[inline(always)]
    pub(crate) fn call_sync<C: HttpCodec>(
        &mut self,
        endpoint: &Endpoint,
        call: &dyn Fn(Request) -> Response,
        request: Request,
        middleware: &MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let is_head = is_head(&request);
        self.app.activity.begin(endpoint.label.get());
        let response = call_caught(call, request);
        self.app.activity.end();
        self.respond(response, middleware, is_head, cx)
    }

    /// Whether an async function may be polled within this dispatch: the application has no handle of a connection that
    /// the function could find to be busy.
    #[inline]
    pub(crate) fn may_poll<C: HttpCodec>(&self, cx: &Context<'_, C>) -> bool {
        cx.handles() <= self.app.served.get()
    }

    /// Polls an async function for the first time. If it is not complete, a task goes on with it.
    #[inline]
    pub(crate) fn poll<C: HttpCodec>(
        &mut self,
        endpoint: &Endpoint,
        call: &AsyncCall,
        request: Request,
        middleware: MiddlewareState,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        StallLabel::begin(&self.app.activity, endpoint, request.head());
        let body_bytes = request.body().memory_bytes();
        let polled = catch_unwind(AssertUnwindSafe(|| call(request, &mut no_waker())));
        self.app.activity.end();
        let polled = polled.unwrap_or_else(|_| Ok(panicked()));
        self.on_polled(polled, middleware, (is_head, endpoint, body_bytes), cx)
    }

    /// The same for a function that is polled when it is called.
    #[inline]
    pub(crate) fn poll_at_once<C: HttpCodec>(
        &mut self,
        endpoint: &Endpoint,
        call: &PolledCall,
        (request, body): (Request, Body),
        middleware: MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (is_head, body_bytes) = (is_head(&request), body.memory_bytes());
        StallLabel::begin(&self.app.activity, endpoint, request.head());
        let polled = catch_unwind(AssertUnwindSafe(|| call(request, body, &mut no_waker())));
        self.app.activity.end();
        let polled = polled.unwrap_or_else(|_| Ok(panicked()));
        self.on_polled(polled, middleware, (is_head, endpoint, body_bytes), cx)
    }

    #[inline(always)]
    fn on_polled<C: HttpCodec>(
        &mut self,
        polled: Result<Response, BoxResponseFuture>,
        middleware: MiddlewareState,
        (is_head, endpoint, body_bytes): (bool, &Endpoint, usize),
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        match polled {
            Ok(response) => self.respond(response, &middleware, is_head, cx),
            Err(responding) => {
                self.await_response(responding, endpoint, middleware, (is_head, body_bytes), cx);
                Outcome::Continue
            }
        }
    }

    /// Waits for the response of a function. The codec decodes no other request before it.
    #[inline(never)]
    fn await_response<C: HttpCodec>(
        &mut self,
        responding: BoxResponseFuture,
        endpoint: &Endpoint,
        middleware: MiddlewareState,
        (is_head, body_bytes): (bool, usize),
        cx: &mut Context<'_, C>,
    ) {
        let label = StallLabel::of_last(&self.app.activity, endpoint.label.get());
        let timeout = endpoint.timeout(&self.app.limits);
        let caught = CaughtResponse { responding, label, activity: self.app.activity.clone() };
        let task = cx.spawn(ResponseFuture::new(caught, self.app.interims.clone()));
        cx.deadline_after(timeout);
        let charge = body::charge(&cx.account(), body_bytes);
        cx.watch_end();
        let pending = PendingResponse { task, middleware: middleware.detach(), is_head, charge, timeout };
        self.rare.get_or_insert_default().pending = Some(pending);
    }

    /// Begins a function that may send interim responses. Its request is in turn.
    #[inline(never)]
    fn begin_interim_first<C: HttpCodec>(
        &mut self,
        function: &InterimHandler,
        endpoint: &Endpoint,
        request: Request,
        middleware: MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        if let Some(answer) = &function.at_once
            && let Some(response) =
                catch_unwind(AssertUnwindSafe(|| answer(&request))).unwrap_or_else(|_| Some(panicked()))
        {
            return self.respond(response, &middleware, is_head(&request), cx);
        }
        let slot = self.slot_of_first(function, &request, cx);
        let pending = self.begin_interim(function, endpoint, request, middleware, slot, cx);
        cx.deadline_after(pending.timeout);
        cx.watch_end();
        self.rare.get_or_insert_default().pending = Some(pending);
        Outcome::Continue
    }

    /// Begins a function that may send interim responses.
    pub(crate) fn begin_interim<C: HttpCodec>(
        &self,
        function: &InterimHandler,
        endpoint: &Endpoint,
        request: Request,
        middleware: MiddlewareState,
        slot: Option<PipelineSlot>,
        cx: &mut Context<'_, C>,
    ) -> PendingResponse {
        let is_head = is_head(&request);
        let label = StallLabel::new(endpoint, request.head());
        let interims = InterimWriter::Handler { interims: self.app.interims.clone(), slot };
        let (request, middleware) = middleware.detach_with(request);
        let responding = (function.call)(request, interims);
        let caught = CaughtResponse { responding, label, activity: self.app.activity.clone() };
        let task = cx.spawn(ResponseFuture::new(caught, self.app.interims.clone()));
        let timeout = endpoint.timeout(&self.app.limits);
        PendingResponse { task, middleware, is_head, charge: None, timeout }
    }

    /// Gives the connection to a task.
    #[inline(never)]
    pub(crate) fn take_over<C: HttpCodec>(&mut self, work: TaskInput) -> Outcome<C> {
        let (state, pipeline) = match &mut self.rare {
            Some(rare) => rare.for_task(),
            None => (None, None),
        };
        task::take_over(self.app.clone(), state, pipeline, work)
    }

    #[inline]
    pub(crate) fn respond<C: HttpCodec>(
        &mut self,
        mut response: Response,
        middleware: &MiddlewareState,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        middleware.after(&mut response);
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
            Ok(_) => self.take_over(TaskInput::Finish(Outgoing::Trailers(trailers))),
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
            message => return self.take_over(TaskInput::Respond(message, is_head)),
        };
        match cx.send(head) {
            Ok(_) if cx.codec().has_left_http() => Outcome::Switch(upgrade.into_switch().after(C::into_filters)),
            Ok(_) => Outcome::fail(NOT_A_TUNNEL),
            Err(error) => Outcome::fail(error),
        }
    }
}

/// For the first poll of a future. A task polls it again at once if it is not complete, so nothing has to be woken.
fn no_waker() -> future::Context<'static> {
    future::Context::from_waker(Waker::noop())
}
