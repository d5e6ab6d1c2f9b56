//! The connection state machine: the events of a connection while nothing of it needs a task.
//!
//! The handler answers requests whose bodies are in memory, of functions that are async or not, with bodies in memory
//! or of files (`inline.rs`). An async function that is not complete when it is polled for the first time goes on in a
//! task of its own, while the handler waits. So does a reverse proxy, whose interim responses the handler sends
//! meanwhile (decision 98). An HTTP/2 request whose body comes with its head is buffered until the body is complete
//! (`buffered.rs`). Everything else goes to a task (`task.rs`), which takes the connection over and returns it when it
//! is idle again. So a connection has the memory of a task only while a task has something to do. Pipelined requests of
//! a proxy are in progress side by side (`pipeline.rs`).

use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome};
use tidegate_http1::{Incoming, Interim, Outgoing, RequestHead};

use crate::codec::HttpCodec;
use crate::endpoint::Call;
use crate::middleware::{self, MiddlewareState, respond_in_place};
use crate::request::Request;
use crate::serving::begin::{RouteMatch, RouteRefusal, is_head, peer, peer_of};
use crate::serving::exchanges::TimeoutKind;
use crate::serving::handler::HttpHandler;
use crate::serving::http2;
use crate::serving::pending::{CaughtResponse, PendingResponse, ResponseFuture, TaskOutput};
use crate::serving::refusals::{late_response, panicked};
use crate::serving::task::TaskInput;

impl<C: HttpCodec> Handler<C> for HttpHandler {
    type Post = ();

    const OBSERVES_CLOSE: bool = false;

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        // The requests that a task has left here.
        if self.has_pipeline() { self.on_responses(cx) } else { Outcome::Continue }
    }

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => self.on_head(head, cx),
            Incoming::Data(data) => self.on_data(data, cx),
            Incoming::End => self.on_end(cx),
            Incoming::Trailers(trailers) => self.on_trailers(trailers),
            Incoming::Preface => http2::upgrade_to_http2(&self.app, cx, Self::new),
        }
    }

    #[cold]
    fn faulted(&mut self, reason: &CloseReason, cx: &mut Context<'_, C>) {
        let Some(refusal) = middleware::refusal_of(reason) else { return };
        if let Some(middleware) = self.inbound_middleware() {
            return middleware.after_refusal(&refusal);
        }
        middleware::refused(&self.app.table().middleware, refusal, peer(cx));
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
            Event::DispatchOver => self.hand_on_buffered(),
            Event::Writable if self.has_pipeline() => {
                let outcome = self.on_responses(cx);
                self.unless_left(outcome, cx)
            }
            _ => Outcome::Continue,
        }
    }
}

impl HttpHandler {
    #[inline(always)]
    pub(crate) fn on_head<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        if self.has_pending() {
            return self.on_head_ahead(head, cx);
        }
        let table = self.app.table();
        let route = RouteMatch::of(&table, &head, || peer_of(cx).0);
        if route.keeps_half_closed() {
            cx.codec_mut().keep_half_closed();
        }
        let peer = peer_of(cx);
        let state = table.connection_state.as_ref().map(|make| match cx.codec().shared_state() {
            Some(shared) => shared.get_or_init(|| make(&peer.0)).clone(),
            None => self.state(make, &peer.0),
        });
        let (mut request, routed) = route.into_request(head, peer);
        let mut middleware = MiddlewareState::default();
        let begun = (&mut request, &mut middleware);
        match routed.begin(&self.app, begun, state, cx.now(), || cx.codec().tls_info()) {
            Ok(endpoint) => self.call(request, endpoint, middleware, cx),
            Err(refusal) => self.respond_instead(*refusal, request, middleware, cx),
        }
    }

    /// Responds in place of the function, through the middleware of its route.
    #[cold]
    pub(crate) fn respond_instead<C: HttpCodec>(
        &mut self,
        refusal: RouteRefusal,
        mut request: Request,
        middleware: MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let endpoint = match refusal.into_function(&mut request) {
            Ok(endpoint) => endpoint,
            Err(response) => return self.respond(response, &middleware, is_head(&request), cx),
        };
        match &endpoint.call {
            Call::Sync(call) => self.call_sync(&endpoint, call, request, &middleware, cx),
            _ => self.take_over(TaskInput::request(request.detach(), endpoint, middleware)),
        }
    }

    /// The function has responded.
    fn on_response<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if self.has_pipeline() {
            return self.on_responses(cx);
        }
        match self.take_pending() {
            Some(pending) => self.on_task_output(pending, cx),
            None => Outcome::Continue,
        }
    }

    /// The task of the request in turn is complete.
    #[inline(always)]
    pub(crate) fn on_task_output<C: HttpCodec>(
        &mut self,
        pending: PendingResponse,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let PendingResponse { mut task, middleware, is_head, charge, timeout } = pending;
        let response = match task.take_output() {
            Some(TaskOutput::Response(response)) => response,
            Some(TaskOutput::Interims(progress)) => {
                let (interims, caught) = *progress;
                return self.on_interims(
                    interims,
                    caught,
                    PendingResponse { task, middleware, is_head, charge, timeout },
                    cx,
                );
            }
            None => panicked(),
        };
        cx.deadline(None);
        self.respond(response, &middleware, is_head, cx)
    }

    /// Ends the connection if the client has ended its side while a function works for it, and the functions with it. A
    /// response that is complete goes first.
    #[inline]
    fn unless_left<C: HttpCodec>(&mut self, outcome: Outcome<C>, cx: &mut Context<'_, C>) -> Outcome<C> {
        if !self.has_pending() || !matches!(outcome, Outcome::Continue) {
            return outcome;
        }
        // Another request is in turn.
        cx.watch_end();
        if cx.is_read_closed() { self.end_unless_answered() } else { outcome }
    }

    #[cold]
    fn end_unless_answered<C: HttpCodec>(&mut self) -> Outcome<C> {
        let pending = self.rare.as_ref().and_then(|rare| rare.pending.as_ref());
        if pending.is_none_or(|pending| pending.task.is_finished()) {
            return Outcome::Continue;
        }
        self.rare = None;
        Outcome::Close
    }

    /// The function has sent interim responses, and goes on. Its deadline stays.
    #[cold]
    fn on_interims<C: HttpCodec>(
        &mut self,
        interims: Vec<Interim>,
        caught: CaughtResponse,
        pending: PendingResponse,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        for interim in interims {
            // One that the protocol cannot express is dropped.
            let _ = cx.send(Outgoing::Interim(interim));
        }
        let task = cx.spawn(ResponseFuture::new(caught, self.app.interims.clone()));
        self.rare.get_or_insert_default().pending = Some(PendingResponse { task, ..pending });
        Outcome::Continue
    }

    /// The body of the request, or the response of its function, is late.
    #[cold]
    fn on_deadline<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(pending) = self.take_pending() {
            // The connection ends behind the response.
            drop(self.take_of_rare(|rare| rare.pipeline.take()));
            let PendingResponse { task, middleware, is_head, charge, timeout } = pending;
            if task.is_finished() {
                return self.on_task_output(PendingResponse { task, middleware, is_head, charge, timeout }, cx);
            }
            // Within this dispatch the function cannot be dropped.
            let late = move || respond_in_place(late_response(TimeoutKind::Function), || task.cancel());
            let task = cx.spawn(async move { TaskOutput::Response(late()) });
            let pending = PendingResponse { task, middleware, is_head, charge, timeout };
            self.rare.get_or_insert_default().pending = Some(pending);
            return Outcome::Continue;
        }
        self.abandon(late_response(TimeoutKind::Peer), cx)
    }
}
