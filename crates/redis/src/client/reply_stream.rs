//! `BulkStream` and `WireReply`: a reply in pieces, as they arrive.
//!
//! The loop appends pieces to a state that it shares with the reader. A `BulkStream` that is full makes the connection
//! stop reading until the reader has taken some; a `WireReply` that is full fails, and its rest is dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::handle::{Call, Client};
use crate::client::reply_budget::ReplyBudget;
use crate::client::reply_sink::{self, ResultSlot, StreamForm, StreamSink, StreamState};
use crate::client::slot::lock;
use crate::reply_writer::ReplyWriter;

/// The string that a command returns, piece by piece: [`Call::stream`].
///
/// At most [`WAITING_BYTES_MAX`](Self::WAITING_BYTES_MAX) wait for the reader. Then the connection reads nothing until
/// the reader has taken half of them, so replies to other commands wait as well: a reader that may be slow has a
/// [connection of its own](Client::dedicated). Dropping the stream drops the rest of the string.
#[derive(Debug)]
pub struct BulkStream(StreamReader);

/// The bytes of a reply as the server has sent them, for a proxy: [`Call::wire`].
#[derive(Debug)]
pub struct WireReply(StreamReader);

#[derive(Debug)]
struct StreamReader {
    state: Arc<Mutex<StreamState>>,
    /// The connection lasts until the reply is over.
    _client: Client,
}

impl Call {
    /// Sends the command, and reads the string that it returns piece by piece, in little memory.
    ///
    /// ```no_run
    /// # async fn example(client: tidegate::redis::Client) -> Result<(), tidegate::redis::ClientError> {
    /// let connection = client.dedicated();
    /// let mut chart = connection.cmd("GET").arg("chart").stream();
    /// let mut bytes = 0;
    /// while let Some(piece) = chart.next().await {
    ///     bytes += piece?.len();
    /// }
    /// assert!(bytes > 0 || chart.is_null());
    /// connection.release();
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(self) -> BulkStream {
        BulkStream(self.read_by(StreamForm::Content { skip: 0 }, None))
    }

    /// Sends the command, and yields the bytes of the reply unchanged, an error of the server included. The connection
    /// does not wait for the reader: if more bytes wait than the budget has, the reply ends with
    /// [`Failure::ReplyTooLong`](crate::Failure::ReplyTooLong).
    pub fn wire(self, budget: &ReplyBudget) -> WireReply {
        WireReply(self.read_by(StreamForm::Wire, Some(budget.clone())))
    }

    fn read_by(self, form: StreamForm, budget: Option<ReplyBudget>) -> StreamReader {
        let state = Arc::new(Mutex::new(StreamState { budget, ..StreamState::default() }));
        let sink = StreamSink { state: state.clone(), form, writer: ReplyWriter::default() };
        StreamReader { state, _client: self.push(ResultSlot::Stream(sink), false) }
    }
}

impl BulkStream {
    /// The bytes that wait for the reader before the connection stops reading; one piece may exceed it.
    pub const WAITING_BYTES_MAX: usize = reply_sink::WAITING_BYTES_MAX;

    /// The next bytes; `None` behind the last ones.
    ///
    /// # Errors
    /// [`ClientError::Type`] if the reply is no string; an error is the last item. After bytes, it means that the string
    /// is incomplete.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for a future that is polled itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientError>>> {
        self.0.poll_next(cx)
    }

    /// The length of the whole string, once its first piece has arrived; `None` before, or if the server streams it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        lock(&self.0.state).length
    }

    /// After the end: there is no value.
    #[must_use]
    pub fn is_null(&self) -> bool {
        lock(&self.0.state).is_null
    }
}

impl WireReply {
    /// The next bytes; `None` behind the last ones of the reply.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] or [`ClientError::MaybeExecuted`], as the last item. After bytes, it means that the reply is
    /// incomplete.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for a future that is polled itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientError>>> {
        self.0.poll_next(cx)
    }
}

impl StreamReader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientError>>> {
        let mut state = lock(&self.state);
        let piece = state.pieces.pop_front();
        state.taken(piece.as_ref().map_or(0, Bytes::len));
        state.resume_if_roomy();
        if let Some(piece) = piece {
            return Poll::Ready(Some(Ok(piece)));
        }
        match &mut state.result {
            Some(result) => Poll::Ready(std::mem::replace(result, Ok(())).err().map(Err)),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The rest of the reply is dropped, which needs the connection to read.
impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        (state.pieces, state.is_abandoned) = (VecDeque::new(), true);
        let bytes = state.bytes;
        state.taken(bytes);
        state.resume_if_roomy();
    }
}
