//! `Upload`: the body of a request on its way to an upstream, piece by piece.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_core::Stream;
use tidegate_http1::client::Outgoing;

use super::connection::{Connection, Unsent};
use super::error::Failure;
use super::fields;
use super::options::Options;
use crate::body::Body;
use crate::exchange::BodyError;

/// The body of a request on its way.
pub(super) struct Upload {
    body: Body,
    state: State,
    /// Whether something of the body was taken, so that it cannot be sent to another upstream.
    has_begun: bool,
    /// How the request is passed on; `None` if it has no body.
    options: Option<Rc<Options>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client, and the proxy with it, waits for `100 Continue` of the upstream.
    AwaitsContinue,
    Sending,
    Done,
    /// The upstream takes no more of it.
    Refused,
}

/// Why an upload cannot go on.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The client's side has failed.
    Client(BodyError),
    /// The upstream's side.
    Upstream(Failure),
}

impl Upload {
    /// The upload of a request that has no body.
    pub(super) fn nothing() -> Self {
        Self { body: Body::empty(), state: State::Done, has_begun: false, options: None }
    }

    pub(super) fn new(body: Body, options: Rc<Options>) -> Self {
        Self { body, state: State::Sending, has_begun: false, options: Some(options) }
    }

    /// Begins again, on another connection.
    pub(super) fn restart(&mut self, awaits_continue: bool) {
        if self.state != State::Done {
            self.state = if awaits_continue { State::AwaitsContinue } else { State::Sending };
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether everything was sent.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(super) fn awaits_continue(&self) -> bool {
        self.state == State::AwaitsContinue
    }

    /// The body is not wanted. Nothing of it stays, so that nothing asks the client for it.
    pub(super) fn give_up(&mut self) {
        (self.body, self.state) = (Body::empty(), State::Refused);
    }

    /// The upstream wants the body.
    pub(super) fn go_on(&mut self) {
        if self.state == State::AwaitsContinue {
            self.state = State::Sending;
        }
    }

    /// Sends what has come, as far as there is room. Ready when nothing more is to be sent.
    pub(super) fn poll(
        &mut self,
        connection: &mut dyn Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        if self.state != State::Sending {
            return if self.state == State::AwaitsContinue { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        loop {
            match connection.poll_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(self.refuse(&Unsent::Closed)),
            }
            let message = match Pin::new(&mut self.body).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => {
                    self.has_begun = true;
                    Outgoing::Data(data.into_body())
                }
                Poll::Ready(Some(Err(error))) => {
                    self.state = State::Refused;
                    return Poll::Ready(Err(UploadError::Client(error)));
                }
                Poll::Ready(None) => {
                    self.has_begun = true;
                    self.state = State::Done;
                    match (self.body.trailers(), &self.options) {
                        (Some(trailers), Some(options)) => {
                            // Not even a proxy in front claims anything about its client there.
                            let is_dropped = |name: &[u8]| options.forwarding.drops(name, false);
                            Outgoing::Trailers(fields::trailers(trailers.iter(), &options.request_edits, is_dropped))
                        }
                        _ => Outgoing::End,
                    }
                }
            };
            if let Err(unsent) = connection.send(message) {
                return Poll::Ready(self.refuse(&unsent));
            }
            if self.state == State::Done {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The upstream takes no more. If it has closed, a response may have come before.
    fn refuse(&mut self, unsent: &Unsent) -> Result<(), UploadError> {
        self.state = State::Refused;
        match unsent {
            Unsent::Closed => Ok(()),
            Unsent::Misuse(_) => Err(UploadError::Upstream(Failure::of_send(unsent))),
        }
    }
}
