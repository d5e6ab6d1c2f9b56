//! `Upload`: the body of a request on its way to an upstream, piece by piece.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tidegate_engine::task;
use tidegate_http::gateway::ExchangeNote;
use tidegate_http_message::BodyError;
use tidegate_http_message::{Body, Data};
use tidegate_http1::client::Outgoing;

use super::connection::Connection;
use super::error::{Failure, SendFailure};
use super::fields;
use super::mirror::RequestCopy;
use super::options::Options;

/// The body of a request on its way.
pub(super) struct Upload {
    body: Body,
    /// The first piece or the end, if that was waited for.
    first: Option<FirstPiece>,
    state: UploadState,
    /// Whether something of the body was taken.
    has_begun: bool,
    /// The pieces that were sent, to be sent again. `None` unless they are wanted, and once there are too many.
    kept: Option<Box<SentPieces>>,
    /// How the request is passed on; `None` if it has no body.
    options: Option<Rc<Options>>,
    /// For the access log, and the bytes that the client has sent so far.
    note: Option<ExchangeNote>,
    received: u64,
    /// How many bytes may still come from the client.
    bytes_left: u64,
    /// Gets the same body.
    copy: Option<RequestCopy>,
}

/// The result of [`Body::next`]; boxed, since few requests have it.
type FirstPiece = Box<Option<Result<Data, BodyError>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadState {
    /// The client, and the proxy with it, waits for `100 Continue` of the upstream.
    AwaitsContinue,
    Sending,
    Done,
    /// The upstream takes no more of it.
    Refused,
}

/// The part of a body that was sent.
#[derive(Default)]
struct SentPieces {
    pieces: Vec<Data>,
    bytes: usize,
    /// How many pieces this attempt has sent.
    sent: usize,
    /// Nothing follows.
    has_ended: bool,
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
        Self {
            body: Body::empty(),
            first: None,
            state: UploadState::Done,
            has_begun: false,
            kept: None,
            options: None,
            bytes_left: 0,
            copy: None,
            note: None,
            received: 0,
        }
    }

    pub(super) fn new(body: Body, options: Rc<Options>, note: Option<ExchangeNote>) -> Self {
        let mut upload = Self::nothing();
        upload.bytes_left = options.request_body_bytes_max;
        (upload.body, upload.state, upload.options, upload.note) = (body, UploadState::Sending, Some(options), note);
        upload
    }

    /// Waits for the first piece of the body or its end. Returns whether that is the end, without trailers; `false` as well
    /// if neither comes in time.
    pub(super) async fn is_nothing_within(&mut self, patience: Duration) -> bool {
        let Ok(first) = task::timeout(patience, self.body.next()).await else { return false };
        let is_nothing = first.is_none() && self.body.trailers().is_none();
        // It waits for an upstream, beyond the memory of this turn.
        self.first = Some(Box::new(first.map(|first| first.map(|data| data.kept()))));
        is_nothing
    }

    /// Gives a copy of the request the same body. It is sent when that is there.
    pub(super) fn copy_to(&mut self, copy: RequestCopy) {
        match self.options {
            None => copy.send(),
            Some(_) => self.copy = Some(copy),
        }
    }

    /// Begins again, on another connection.
    pub(super) fn restart(&mut self, awaits_continue: bool) {
        if self.options.is_none() {
            return;
        }
        if let Some(kept) = &mut self.kept {
            kept.sent = 0;
        }
        // A client that has begun waits no more.
        self.state =
            if awaits_continue && !self.has_begun { UploadState::AwaitsContinue } else { UploadState::Sending };
    }

    /// Keeps all pieces sent from now on, up to [`KEPT_BYTES_MAX`], until the head of the response has come.
    pub(super) fn keep(&mut self) {
        if self.options.is_some() && !self.has_begun && self.kept.is_none() {
            self.kept = Some(Box::default());
        }
    }

    /// The body is not sent again.
    pub(super) fn release(&mut self) {
        self.kept = None;
    }

    /// Whether the body can be sent from its beginning.
    pub(super) fn may_restart(&self) -> bool {
        !self.has_begun || self.kept.is_some()
    }

    /// Whether something of the body was taken.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether everything was sent.
    pub(super) fn is_done(&self) -> bool {
        self.state == UploadState::Done
    }

    pub(super) fn awaits_continue(&self) -> bool {
        self.state == UploadState::AwaitsContinue
    }

    /// The body is not wanted. Nothing of it stays, so that nothing asks the client for it.
    pub(super) fn give_up(&mut self) {
        (self.body, self.first, self.state) = (Body::empty(), None, UploadState::Refused);
    }

    /// The upstream wants the body.
    pub(super) fn go_on(&mut self) {
        if self.state == UploadState::AwaitsContinue {
            self.state = UploadState::Sending;
        }
    }

    /// Sends the received pieces, as far as there is room. Ready when no more are to be sent.
    pub(super) fn poll(
        &mut self,
        connection: &mut dyn Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        if self.state != UploadState::Sending {
            return if self.state == UploadState::AwaitsContinue { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        loop {
            match connection.poll_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(self.refuse(&SendFailure::Closed)),
            }
            let next = match self.next_kept() {
                Some(data) => Poll::Ready(data.map(Ok)),
                None => self.poll_next(cx),
            };
            let message = match next {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => Outgoing::Data(data.into_body()),
                Poll::Ready(Some(Err(error))) => {
                    self.state = UploadState::Refused;
                    return Poll::Ready(Err(UploadError::Client(error)));
                }
                Poll::Ready(None) => {
                    self.state = UploadState::Done;
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
            if self.state == UploadState::Done {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The next kept piece that this attempt still has to send, or the end.
    fn next_kept(&mut self) -> Option<Option<Data>> {
        let kept = self.kept.as_mut()?;
        match kept.pieces.get(kept.sent) {
            Some(data) => {
                kept.sent += 1;
                Some(Some(data.clone()))
            }
            None => kept.has_ended.then_some(None),
        }
    }

    /// The next piece of the body.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Data, BodyError>>> {
        let next = match self.first.take() {
            Some(first) => *first,
            None => ready!(Pin::new(&mut self.body).poll_next(cx)),
        };
        if matches!(next, Some(Err(_))) {
            return Poll::Ready(next);
        }
        self.has_begun = true;
        if let Some(Ok(data)) = &next {
            self.received += data.len() as u64;
            match self.bytes_left.checked_sub(data.len() as u64) {
                Some(left) => self.bytes_left = left,
                None => return Poll::Ready(Some(Err(BodyError::TooLong))),
            }
        }
        self.copy_piece(&next);
        match (&mut self.kept, &next) {
            (Some(kept), Some(Ok(data))) => {
                kept.bytes += data.len();
                if kept.bytes > KEPT_BYTES_MAX || kept.pieces.len() >= KEPT_PIECES_MAX {
                    self.kept = None;
                } else {
                    kept.pieces.push(data.kept());
                    kept.sent += 1;
                }
            }
            (Some(kept), _) => kept.has_ended = true,
            (None, _) => {}
        }
        Poll::Ready(next)
    }

    #[inline]
    fn copy_piece(&mut self, next: &Option<Result<Data, BodyError>>) {
        if let Some(mut copy) = self.copy.take() {
            match next {
                Some(Ok(data)) if copy.add(data) => self.copy = Some(copy),
                None => copy.send(),
                Some(_) => {}
            }
        }
    }

    /// The upstream takes no more. If it has closed, a response may have come before.
    fn refuse(&mut self, unsent: &SendFailure) -> Result<(), UploadError> {
        self.state = UploadState::Refused;
        match unsent {
            SendFailure::Closed => Ok(()),
            SendFailure::Misuse(_) => Err(UploadError::Upstream(Failure::of_send(unsent))),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(note) = &self.note {
            note.set_received(self.received);
        }
    }
}

/// How many bytes of a body are kept until the head of the response has come.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// In how many pieces: each has an entry of its own.
const KEPT_PIECES_MAX: usize = 256;
