//! Pipelined requests that are in progress side by side, as those of a reverse proxy are.
//!
//! The handler awaits the response to the oldest request, which is *in turn*. The requests behind it are begun as well, as
//! long as they and all before them may be: their methods are safe, and their functions allow it. The first one that may not
//! stays here until it is in turn. Responses that are complete early wait in their tasks. Those that are ready when the one
//! before them is sent go with it, in one send.
//!
//! If the response in turn comes in pieces, a task sends it (`task.rs`), and returns the connection with the requests behind.

use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_engine::{Context, Outcome};
use tidegate_http1::{Method, RequestHead};

use crate::codec::HttpCodec;
use crate::connection::{Awaited, HttpHandler, More, peer};
use crate::endpoint::{Call, Interimed};
use crate::middleware::{self, Passed};
use crate::order::{Order, Place};
use crate::request::Request;
use crate::response::Response;

/// The requests behind the one in turn.
pub(crate) struct Behind {
    queue: VecDeque<Queued>,
    order: Rc<Order>,
    /// The request in turn has no deadline, since it has a response, of which others may follow.
    is_untimed: bool,
}

impl Behind {
    fn of<'a, C: HttpCodec>(more: &'a mut More, cx: &Context<'_, C>) -> &'a mut Self {
        more.behind.get_or_insert_with(|| {
            let order = Rc::new(Order::new(cx.id()));
            Box::new(Self { queue: VecDeque::new(), order, is_untimed: false })
        })
    }
}

/// A request that is not in turn.
enum Queued {
    Begun(Awaited),
    /// One that middleware has refused.
    Refused(Box<(Response, Passed, bool)>),
    /// One that is not begun before it is in turn. None is behind it.
    Waits(RequestHead),
}

/// Whether the next request may be begun before the response to this one.
fn may_precede(head: &RequestHead) -> bool {
    let is_safe = matches!(head.method(), Method::Get | Method::Head | Method::Options);
    is_safe && !head.has_body() && head.header("upgrade").is_none()
}

impl HttpHandler {
    /// Whether a request is awaited, so that the next one is behind it.
    #[inline]
    pub(crate) fn awaits(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.awaited.is_some())
    }

    #[inline]
    pub(crate) fn has_behind(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.behind.is_some())
    }

    /// The place of a request that is in turn when it comes; none unless others follow it at once. Has the codec decode
    /// them.
    pub(crate) fn place_of_first<C: HttpCodec>(
        &mut self,
        function: &Interimed,
        request: &Request,
        cx: &mut Context<'_, C>,
    ) -> Option<Place> {
        let may_follow = function.is_pipelined && self.app.limits.pipelined_requests_max > 1;
        if !may_follow || !may_precede(request.head()) || !cx.codec_mut().read_ahead() {
            return None;
        }
        let behind = Behind::of(self.more.get_or_insert_default(), cx);
        Some(Place { order: behind.order.clone(), number: behind.order.number(0) })
    }

    /// A request has come while another one is in turn.
    #[inline(never)]
    pub(crate) fn on_head_ahead<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        let queued = self.begin_ahead(head, cx);
        let behind = Behind::of(self.more.get_or_insert_default(), cx);
        behind.queue.push_back(queued);
        self.read_ahead(cx);
        Outcome::Continue
    }

    fn begin_ahead<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Queued {
        let outer = self.app.table();
        let table = outer.of_host(&head);
        let Ok((endpoint, route)) = table.find(&head) else { return Queued::Waits(head.detach()) };
        let function = match &endpoint.call {
            Call::Interim(function) if function.is_pipelined && may_precede(&head) => function,
            _ => return Queued::Waits(head.detach()),
        };
        let (peer, is_secure) = (peer(cx), cx.codec().is_secure());
        let mut request = Request::new(head, peer.clone(), is_secure, route);
        if let Some(make) = &outer.connection_state {
            let state = self.state(make, &peer);
            request.set_connection_state(state);
        }
        let behind = Behind::of(self.more.get_or_insert_default(), cx);
        let number = behind.order.number(behind.queue.len() + 1);
        let place = Place { order: behind.order.clone(), number };
        let is_head = request.head().method() == Method::Head;
        let (mut passed, result) = middleware::before(&table.middleware, &mut request, cx.now());
        passed.count(self.app.counting.as_ref(), Some(endpoint), request.head().method(), cx.now());
        if endpoint.keeps_half_closed() {
            cx.codec_mut().keep_half_closed();
        }
        match result {
            Ok(()) => Queued::Begun(self.begin_interim(function, endpoint, request, passed, Some(place), cx)),
            Err(response) => Queued::Refused(Box::new((response, passed.detach(), is_head))),
        }
    }

    /// Has the codec decode another request, if there is room for it and the last one does not have to wait.
    fn read_ahead<C: HttpCodec>(&self, cx: &mut Context<'_, C>) {
        let Some(behind) = self.more.as_ref().and_then(|more| more.behind.as_ref()) else { return };
        let may_follow = !matches!(behind.queue.back(), Some(Queued::Waits(_)));
        if may_follow && behind.queue.len() + 1 < self.app.limits.pipelined_requests_max as usize {
            cx.codec_mut().read_ahead();
        }
    }

    /// Begins the deadline of the request in turn, unless it runs.
    fn begin_deadline<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) {
        let Some(behind) = self.more.as_mut().and_then(|more| more.behind.as_mut()) else { return };
        if std::mem::take(&mut behind.is_untimed) {
            cx.deadline_after(self.app.limits.request_timeout);
        }
    }

    /// Sends the responses that are ready and in turn, and begins the request in turn if that is not begun.
    #[inline(never)]
    pub(crate) fn on_responses<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        // Each round takes a request.
        loop {
            if cx.codec().status().is_finished {
                // The last response has closed the connection.
                self.more = None;
                return Outcome::Continue;
            }
            if let Some(awaited) = self.more.as_ref().and_then(|more| more.awaited.as_ref()) {
                if !awaited.task.is_finished() {
                    return Outcome::Continue;
                }
                if !cx.is_writable() {
                    // Its function is not late: the client is.
                    cx.deadline(None);
                    Behind::of(self.more.get_or_insert_default(), cx).is_untimed = true;
                    return Outcome::Continue;
                }
                let Some(awaited) = self.take_awaited() else { return Outcome::Continue };
                let outcome = self.on_progress(awaited, cx);
                if self.awaits() {
                    // That was an interim response.
                    self.begin_deadline(cx);
                    return outcome;
                }
                if !matches!(outcome, Outcome::Continue) {
                    return outcome;
                }
            }
            let Some(behind) = self.more.as_mut().and_then(|more| more.behind.as_mut()) else {
                return Outcome::Continue;
            };
            let is_begun = matches!(behind.queue.front(), Some(Queued::Begun(_)) | None);
            if !is_begun && !cx.is_writable() {
                // Its response would be there at once: it waits until the client has read those before.
                return Outcome::Continue;
            }
            behind.order.advance();
            match behind.queue.pop_front() {
                Some(Queued::Begun(awaited)) => {
                    behind.is_untimed = true;
                    if !awaited.task.is_finished() {
                        self.begin_deadline(cx);
                    }
                    self.more.get_or_insert_default().awaited = Some(awaited);
                    self.read_ahead(cx);
                }
                Some(Queued::Refused(refused)) => {
                    let (response, passed, is_head) = *refused;
                    let outcome = self.respond_in_turn(response, &passed, is_head, cx);
                    if !matches!(outcome, Outcome::Continue) {
                        return outcome;
                    }
                }
                Some(Queued::Waits(head)) => {
                    drop(self.take_of_more(|more| more.behind.take()));
                    return self.on_head_in_turn(head, cx);
                }
                None => {
                    if !behind.order.is_shared() {
                        drop(self.take_of_more(|more| more.behind.take()));
                    }
                    return Outcome::Continue;
                }
            }
        }
    }
}
