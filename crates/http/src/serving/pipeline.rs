//! Pipelined requests that are in progress side by side, as those of a reverse proxy are.
//!
//! The handler awaits the response to the oldest request, which is *in turn*. The requests behind it are begun as well, as
//! long as they and all before them may be: their methods are safe, and their functions allow it. The first one that may not
//! stays here until it is in turn. Responses that are complete early wait in their tasks. Those that are ready when the one
//! before them is sent go with it, in one send.
//!
//! If the response in turn comes in pieces, a task sends it (`task.rs`), and returns the connection with the requests behind.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;

use tidegate_engine::{Context, Outcome};
use tidegate_http1::{Method, RequestHead};

use crate::codec::HttpCodec;
use crate::endpoint::{Call, InterimHandler};
use crate::middleware::MiddlewareState;
use crate::request::Request;
use crate::response::Response;
use crate::serving::begin::{RouteMatch, is_head, peer_of};
use crate::serving::handler::{HttpHandler, RareState};
use crate::serving::order::{Order, PipelineSlot};
use crate::serving::pending::PendingResponse;

/// The requests behind the one in turn.
pub(crate) struct RequestPipeline {
    queue: VecDeque<PipelinedRequest>,
    order: Rc<Order>,
    /// The request in turn has no deadline, since it has a response, of which others may follow.
    is_untimed: bool,
}

impl RequestPipeline {
    fn of<'a, C: HttpCodec>(rare: &'a mut RareState, cx: &Context<'_, C>) -> &'a mut Self {
        rare.pipeline.get_or_insert_with(|| {
            let order = Rc::new(Order::new(cx.id()));
            Box::new(Self { queue: VecDeque::new(), order, is_untimed: false })
        })
    }
}

/// A request that is not in turn.
enum PipelinedRequest {
    InProgress(PendingResponse),
    /// One that middleware has refused.
    Refused(Box<(Response, MiddlewareState, bool)>),
    /// One that is not begun before it is in turn. None is behind it.
    NotBegun(RequestHead),
}

/// Whether the next request may be begun before the response to this one.
fn may_precede(head: &RequestHead) -> bool {
    let is_safe = matches!(head.method(), Method::Get | Method::Head | Method::Options);
    is_safe && !head.has_body() && head.header("upgrade").is_none()
}

impl HttpHandler {
    /// The place of a request that is in turn when it comes; none unless others follow it at once. Has the codec decode
    /// them.
    pub(crate) fn slot_of_first<C: HttpCodec>(
        &mut self,
        function: &InterimHandler,
        request: &Request,
        cx: &mut Context<'_, C>,
    ) -> Option<PipelineSlot> {
        let may_follow = function.is_pipelined && self.app.limits.pipelined_requests_max > 1;
        if !may_follow || !may_precede(request.head()) || !cx.codec_mut().read_ahead() {
            return None;
        }
        let pipeline = RequestPipeline::of(self.rare.get_or_insert_default(), cx);
        Some(PipelineSlot { order: pipeline.order.clone(), number: pipeline.order.number(0) })
    }

    /// A request has come while another one is in turn.
    #[inline(never)]
    pub(crate) fn on_head_ahead<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        let queued = self.begin_ahead(head, cx);
        let pipeline = RequestPipeline::of(self.rare.get_or_insert_default(), cx);
        pipeline.queue.push_back(queued);
        self.read_ahead(cx);
        Outcome::Continue
    }

    fn begin_ahead<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> PipelinedRequest {
        let table = self.app.table();
        let route = RouteMatch::of(&table, &head, || peer_of(cx).0);
        let Some((endpoint, function)) = route.endpoint().and_then(|endpoint| match &endpoint.call {
            Call::Interim(function) if function.is_pipelined && may_precede(&head) => Some((endpoint, function)),
            _ => None,
        }) else {
            return PipelinedRequest::NotBegun(head.detach());
        };
        if route.keeps_half_closed() {
            cx.codec_mut().keep_half_closed();
        }
        let peer = peer_of(cx);
        let state = table.connection_state.as_ref().map(|make| self.state(make, &peer.0));
        let pipeline = RequestPipeline::of(self.rare.get_or_insert_default(), cx);
        let number = pipeline.order.number(pipeline.queue.len() + 1);
        let slot = PipelineSlot { order: pipeline.order.clone(), number };
        let (mut request, routed) = route.into_request(head, peer);
        let mut middleware = MiddlewareState::default();
        let begun = (&mut request, &mut middleware);
        match routed.begin(&self.app, begun, state, cx.now(), || cx.codec().tls_info()) {
            Ok(_) => {
                let pending = self.begin_interim(function, endpoint, request, middleware, Some(slot), cx);
                PipelinedRequest::InProgress(pending)
            }
            Err(refusal) => match refusal.into_function(&mut request) {
                Ok(_) => {
                    let pending = self.begin_interim(function, endpoint, request, middleware, Some(slot), cx);
                    PipelinedRequest::InProgress(pending)
                }
                Err(response) => {
                    PipelinedRequest::Refused(Box::new((response, middleware.detach(), is_head(&request))))
                }
            },
        }
    }

    /// Has the codec decode another request, if there is room for it and the last one does not have to wait.
    fn read_ahead<C: HttpCodec>(&self, cx: &mut Context<'_, C>) {
        let Some(pipeline) = self.rare.as_ref().and_then(|rare| rare.pipeline.as_ref()) else { return };
        let may_follow = !matches!(pipeline.queue.back(), Some(PipelinedRequest::NotBegun(_)));
        if may_follow && pipeline.queue.len() + 1 < self.app.limits.pipelined_requests_max as usize {
            cx.codec_mut().read_ahead();
        }
    }

    /// Begins the deadline of the request in turn, unless it runs.
    fn begin_deadline<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) {
        let Some(RareState { pipeline: Some(pipeline), pending: Some(pending), .. }) = self.rare.as_deref_mut() else {
            return;
        };
        if std::mem::take(&mut pipeline.is_untimed) {
            cx.deadline_after(pending.timeout);
        }
    }

    /// Sends the responses that are ready and in turn, and begins the request in turn if that is not begun.
    #[inline(never)]
    pub(crate) fn on_responses<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        // Each round takes a request.
        loop {
            if cx.codec().status().is_finished {
                // The last response has closed the connection.
                self.rare = None;
                return Outcome::Continue;
            }
            if self.has_pending() {
                match self.send_in_turn(cx) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(outcome) => return outcome,
                }
            }
            if let ControlFlow::Break(outcome) = self.advance(cx) {
                return outcome;
            }
        }
    }

    /// Sends the pending response, if it is ready and has room.
    #[inline(always)]
    fn send_in_turn<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> ControlFlow<Outcome<C>> {
        let is_finished = |pending: &PendingResponse| pending.task.is_finished();
        if !self.rare.as_ref().and_then(|rare| rare.pending.as_ref()).is_some_and(is_finished) {
            return ControlFlow::Break(Outcome::Continue);
        }
        if !cx.is_writable() {
            // Its function is not late: the client is.
            cx.deadline(None);
            RequestPipeline::of(self.rare.get_or_insert_default(), cx).is_untimed = true;
            return ControlFlow::Break(Outcome::Continue);
        }
        let Some(pending) = self.take_pending() else { return ControlFlow::Break(Outcome::Continue) };
        let outcome = self.on_task_output(pending, cx);
        if self.has_pending() {
            // That was an interim response.
            self.begin_deadline(cx);
            return ControlFlow::Break(outcome);
        }
        if matches!(outcome, Outcome::Continue) { ControlFlow::Continue(()) } else { ControlFlow::Break(outcome) }
    }

    /// Takes the next request of the pipeline: it is in turn.
    #[inline(always)]
    fn advance<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> ControlFlow<Outcome<C>> {
        let Some(pipeline) = self.rare.as_mut().and_then(|rare| rare.pipeline.as_mut()) else {
            return ControlFlow::Break(Outcome::Continue);
        };
        let is_begun = matches!(pipeline.queue.front(), Some(PipelinedRequest::InProgress(_)) | None);
        if !is_begun && !cx.is_writable() {
            // Its response would be there at once: it waits until the client has read those before.
            return ControlFlow::Break(Outcome::Continue);
        }
        pipeline.order.advance();
        match pipeline.queue.pop_front() {
            Some(PipelinedRequest::InProgress(pending)) => {
                pipeline.is_untimed = true;
                let is_finished = pending.task.is_finished();
                self.rare.get_or_insert_default().pending = Some(pending);
                if !is_finished {
                    self.begin_deadline(cx);
                }
                self.read_ahead(cx);
                ControlFlow::Continue(())
            }
            Some(PipelinedRequest::Refused(refused)) => {
                let (response, middleware, is_head) = *refused;
                let outcome = self.respond_in_turn(response, &middleware, is_head, cx);
                if matches!(outcome, Outcome::Continue) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(outcome)
                }
            }
            Some(PipelinedRequest::NotBegun(head)) => {
                drop(self.take_of_rare(|rare| rare.pipeline.take()));
                ControlFlow::Break(self.on_head_in_turn(head, cx))
            }
            None => {
                if !pipeline.order.is_shared() {
                    drop(self.take_of_rare(|rare| rare.pipeline.take()));
                }
                ControlFlow::Break(Outcome::Continue)
            }
        }
    }

    /// A request that has waited is in turn. Apart, so that the code for one that has just come stays within its caller.
    #[inline(never)]
    fn on_head_in_turn<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        self.on_head(head, cx)
    }

    /// Responds to a request in turn that middleware has refused.
    #[cold]
    fn respond_in_turn<C: HttpCodec>(
        &mut self,
        response: Response,
        middleware: &MiddlewareState,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        self.respond(response, middleware, is_head, cx)
    }
}
