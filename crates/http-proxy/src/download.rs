//! `Download`: a response on its way from an upstream to the client, with the rest of the request.

use std::error::Error;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, ready};

use tidegate_http::gateway::EndCause;
use tidegate_http_message::{BodyWriter, Data};
use tidegate_http1::Trailers;
use tidegate_http1::client::Incoming;

use super::cancellations::Admission;
use super::connection::Connection;
use super::fields;
use super::lease::Lease;
use super::options::Options;
use super::upload::{Upload, UploadError};
use crate::error::Failure;
use crate::pool::Pool;

/// A response whose head has come.
pub(super) struct Download {
    pub(super) connection: Box<dyn Connection>,
    pub(super) upload: Upload,
    pub(super) lease: Lease,
    pub(super) pool: Rc<Pool>,
    pub(super) options: Rc<Options>,
    pub(super) admission: Admission,
}

impl Download {
    /// The response is complete: the connection may serve another request, if this one was sent whole.
    pub(super) fn finish(self) {
        let Self { connection, upload, lease, pool, mut admission, .. } = self;
        admission.complete();
        lease.complete();
        if upload.is_done()
            && !lease.is_single()
            && let Some(connection) = connection.finish()
        {
            pool.put(&lease.upstream, connection);
        }
    }

    /// Passes the body on to the client, as fast as the client takes it, behind `ahead` bytes of it. If the upstream fails,
    /// so does the body: the client sees that it is not complete.
    pub(super) async fn pass_on(mut self, writer: BodyWriter, ahead: usize) -> Result<(), Box<dyn Error>> {
        // Bytes that the client may have left in the queue, and a bound for them that grows as it reads: a client that reads
        // nothing has the upstream send no more than the window with which a stream begins.
        let (mut unread, mut unread_max) = (ahead, UNREAD_BYTES_FIRST);
        loop {
            // Another piece is received when those before it have room.
            poll_fn(|cx| {
                self.poll_upload(cx);
                if unread >= unread_max {
                    ready!(writer.poll_flush(cx))?;
                    (unread, unread_max) = (0, unread_max.saturating_mul(2));
                }
                writer.poll_ready(cx)
            })
            .await?;
            match self.next().await {
                Ok(Some(Incoming::Data(data))) => {
                    let mut data = Data::from(data);
                    if unread_max <= UNREAD_BYTES_LAST {
                        unread += data.len();
                        // It may wait for long, and must not keep the memory of a whole receive.
                        data = data.fit();
                    }
                    writer.push(data)?;
                }
                Ok(Some(Incoming::Trailers(trailers))) => return Box::pin(self.end_with(trailers, writer)).await,
                Ok(Some(Incoming::End)) => {
                    self.finish();
                    return Ok(());
                }
                Ok(Some(Incoming::Head(_) | Incoming::Interim(_)) | None) => {
                    let text = "the upstream closed the connection within the response";
                    return Err(self.fail(text, EndCause::UpstreamFailed));
                }
                Err(error) => {
                    let failure = Failure::of_recv(error, |reason| self.connection.has_refused(reason));
                    return Err(self.fail(&failure.text(), failure.kind().end()));
                }
            }
        }
    }

    /// Passes trailers on, which are the last part of the response.
    pub(super) async fn end_with(mut self, trailers: Trailers, writer: BodyWriter) -> Result<(), Box<dyn Error>> {
        let trailers = fields::trailers(trailers.iter(), &self.options.response_edits, |_| false);
        // The end follows at once.
        if let Ok(Some(Incoming::End)) = self.next().await {
            self.finish();
            return Ok(writer.trailers(trailers)?);
        }
        Err(self.fail("the upstream ended the response within its trailers", EndCause::UpstreamFailed))
    }

    /// Receives the rest, up to [`DISCARDED_BYTES_MAX`], and drops it. A longer one costs its connection.
    pub(super) async fn discard(mut self) {
        let mut left = DISCARDED_BYTES_MAX;
        // Bounded by the bytes, since each piece has some.
        loop {
            match self.next().await {
                Ok(Some(Incoming::Data(data))) if data.len() <= left => left -= data.len(),
                Ok(Some(Incoming::Trailers(_))) => {}
                Ok(Some(Incoming::End)) => return self.finish(),
                Ok(_) => return self.admission.complete(),
                Err(error) => {
                    self.admission.complete();
                    let failure = Failure::of_recv(error, |reason| self.connection.has_refused(reason));
                    return self.lease.fail_in_body(&failure.text(), failure.kind().end());
                }
            }
        }
    }

    async fn next(&mut self) -> Result<Option<Incoming>, tidegate_engine::ChannelError> {
        poll_fn(|cx| {
            self.poll_upload(cx);
            self.connection.poll_recv(cx)
        })
        .await
    }

    /// Goes on with the request's body. A failure of it shows in the response: the upstream ends that, or the client's
    /// connection is closed.
    fn poll_upload(&mut self, cx: &mut std::task::Context<'_>) {
        match self.upload.poll(&mut *self.connection, cx) {
            Poll::Ready(Err(UploadError::Client(error))) => tracing::debug!(%error, "the request ended early"),
            Poll::Ready(Err(UploadError::Upstream(failure))) => tracing::debug!(error = failure.text(), "upload ended"),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
    }

    /// The response ends for a fault of its upstream. The error, with which the connection of the client is closed, names that.
    fn fail(mut self, text: &str, end: EndCause) -> Box<dyn Error> {
        self.admission.fail();
        self.lease.fail_in_body(text, end);
        self.lease.upstream.log_failure(text, self.lease.now());
        format!("the response of the upstream {} cannot be passed on: {text}", self.lease.upstream.name).into()
    }
}

/// How many bytes of a response that nobody wants are received for the sake of its connection.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;

/// After so many bytes the client has to have taken them for the first time. With the next piece they are less than
/// half of the window with which an HTTP/2 stream begins, so nothing of it is granted again.
const UNREAD_BYTES_FIRST: usize = 16 * 1024;

/// The last bound. Beyond it the marks of the queue are the bound.
const UNREAD_BYTES_LAST: usize = 64 * 1024;
