//! `RequestHandler`: the handler of one request of a load over HTTP/3.

use std::rc::Rc;
use std::time::Instant;

use tidegate::http3::ErrorCode;
use tidegate::{CloseReason, Context, Event, Handler, Outcome};

use super::codec::{Http3Codec, Http3Response, SendRequest};
use super::connection::Http3Requests;
use crate::role::Role;

/// The handler of one request, on its stream.
pub(super) struct RequestHandler {
    requests: Rc<Http3Requests>,
    /// When it was sent, or was due with a rate.
    begun: Instant,
    is_answered: bool,
}

impl RequestHandler {
    pub(super) fn new(requests: Rc<Http3Requests>, begun: Instant) -> Self {
        Self { requests, begun, is_answered: false }
    }
}

impl Handler<Http3Codec> for RequestHandler {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        if self.requests.role() == Role::NeverRead {
            cx.pause();
        } else {
            cx.deadline_after(self.requests.timeout());
        }
        if let Err(error) = cx.send(SendRequest) {
            return Outcome::fail(error);
        }
        cx.shutdown_write();
        Outcome::Continue
    }

    fn message(&mut self, response: Http3Response, _: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        self.is_answered = true;
        self.requests.on_response(response.is_good, self.begun);
        Outcome::Close
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        match event {
            Event::Deadline => {
                self.requests.on_late();
                Outcome::Reset(ErrorCode::REQUEST_CANCELLED.0)
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        if !self.is_answered {
            self.requests.on_lost(reason, self.begun);
        }
    }
}
