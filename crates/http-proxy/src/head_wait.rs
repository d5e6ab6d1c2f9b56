//! `HeadWait`: the wait for the head of a response, while the body of the request is sent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::task::{self, Sleep};
use tidegate_http::gateway::InterimWriter;
use tidegate_http::{Edit, IntoResponse, Response};
use tidegate_http_message::BodyError;
use tidegate_http1::client::Incoming;
use tidegate_http1::{Interim, ResponseHead, Status};

use super::connection::Connection;
use super::error::Failure;
use super::fields;
use super::lease::Lease;
use super::options::Options;
use super::upload::{Upload, UploadError};

/// Why an attempt did not yield a head.
pub(super) enum Stop {
    /// The upstream failed.
    Upstream { failure: Failure, reuse: Reuse },
    /// The client's request failed; its response, if the client is still there.
    Client(Response),
    /// The request was sent behind others, and its connection ended, or was left, before it came to this one.
    NotProcessed,
}

/// The history of the connection of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reuse {
    /// It was there before, so it may have been closed in the meantime.
    pub(super) is_pooled: bool,
    /// It has answered other requests before.
    pub(super) has_answered: bool,
}

impl Stop {
    /// The upstream failed; its health may suffer.
    pub(super) fn of_failure(lease: &Lease, failure: Failure, reuse: Reuse) -> Self {
        lease.fail_span(failure.kind());
        // The upstream may have closed an idle connection while the request was on its way: that is no failure of it.
        if matches!(failure, Failure::Connect(_)) {
            lease.fail_to_connect();
        } else if failure.blames_upstream() && !(reuse.is_pooled && matches!(failure, Failure::Closed(_))) {
            lease.fail();
        }
        Self::Upstream { failure, reuse }
    }

    fn upstream(failure: Failure) -> Self {
        Self::Upstream { failure, reuse: Reuse::default() }
    }
}

/// The wait for the head of a response.
pub(super) struct HeadWait<'a> {
    connection: &'a mut dyn Connection,
    upload: &'a mut Upload,
    interims: &'a InterimWriter,
    /// Interim responses have no field that these remove or replace.
    edits: &'a [Edit],
    /// Until the head, once the request is sent.
    response_timeout: Option<Duration>,
    /// Until the body is sent without `100 Continue`.
    awaits_continue: Option<Sleep>,
    /// The timeout begins with the end of the request.
    awaits_end: bool,
    /// The timeout rests while the response cannot be passed on.
    is_held_back: bool,
}

impl<'a> HeadWait<'a> {
    pub(super) fn new(
        connection: &'a mut dyn Connection,
        upload: &'a mut Upload,
        interims: &'a InterimWriter,
        options: &'a Options,
        continue_timeout: Duration,
    ) -> Self {
        let (edits, response_timeout) = (&options.response_edits[..], options.response_timeout);
        let awaits_continue = upload.awaits_continue().then(|| task::sleep(continue_timeout));
        let awaits_end = !upload.is_done();
        let is_held_back = false;
        Self { connection, upload, interims, edits, response_timeout, awaits_continue, awaits_end, is_held_back }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Stop>> {
        if std::mem::take(&mut self.is_held_back) {
            self.connection.set_deadline_after(self.response_timeout);
        }
        if self.awaits_continue.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready()) {
            self.awaits_continue = None;
            self.upload.go_on();
        }
        let polled = self.poll_head(cx);
        if polled.is_ready() || self.response_timeout.is_none() {
            return polled;
        }
        if self.upload.is_done() && std::mem::take(&mut self.awaits_end) {
            self.connection.set_deadline_after(self.response_timeout);
            return self.poll_head(cx);
        }
        if self.interims.is_held_back() {
            // The upstream is not late while nothing asks for its response.
            self.connection.set_deadline_after(None);
            self.is_held_back = true;
        }
        polled
    }

    /// Goes on with the request until the head of its response has come.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Stop>> {
        // The codec bounds interim responses, so the rounds are bounded.
        loop {
            match self.upload.poll(self.connection, cx) {
                Poll::Ready(Err(UploadError::Client(error))) => {
                    return Poll::Ready(Err(Stop::Client(of_client(error))));
                }
                Poll::Ready(Err(UploadError::Upstream(failure))) => {
                    return Poll::Ready(Err(Stop::upstream(failure)));
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            let incoming = match self.connection.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(incoming)) => incoming,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(Stop::upstream(Failure::of_recv(error, |reason| {
                        self.connection.has_refused(reason)
                    }))));
                }
            };
            match incoming {
                Some(Incoming::Head(head)) => return Poll::Ready(Ok(head)),
                Some(Incoming::Interim(head)) if head.status() == Status::CONTINUE => self.upload.go_on(),
                Some(Incoming::Interim(head)) => {
                    let fields = fields::passed_on(head.headers(), self.edits, |_| false);
                    self.interims.send(Interim::new(head.status()).fields(fields));
                }
                _ => return Poll::Ready(Err(Stop::upstream(Failure::Closed(None)))),
            }
        }
    }
}

/// The response to a client whose request cannot be read further.
fn of_client(error: BodyError) -> Response {
    error.into_response()
}
