//! `BulkStream` and `WireReply`: a reply in pieces, as they arrive.
//!
//! The loop appends pieces to a state that it shares with the reader. A `BulkStream` that is full makes the connection
//! stop reading until the reader has taken some; a `WireReply` that is full fails, and its rest is dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidegate_engine::Remote;

use crate::client::error::{ClientError, Failure, WrongType};
use crate::client::handle::{Call, Client};
use crate::client::queue::WakeUp;
use crate::client::reply_budget::ReplyBudget;
use crate::client::slot::{CommandResult, ReplySlot, lock};
use crate::client_codec::ReplyPiece;
use crate::reply_writer::ReplyWriter;
use crate::token::BulkKind;
use crate::value::{Value, value_of};

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

/// The pieces on their way from the loop to the reader.
#[derive(Debug, Default)]
struct StreamState {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    budget: Option<ReplyBudget>,
    length: Option<u64>,
    is_null: bool,
    /// The reader is gone.
    is_abandoned: bool,
    /// No piece follows; an error comes behind those that are there.
    result: Option<Result<(), ClientError>>,
    waker: Option<Waker>,
    /// The connection that waits for room.
    paused: Option<Remote<WakeUp>>,
}

/// The loop's half.
#[derive(Debug)]
pub(crate) struct StreamSink {
    state: Arc<Mutex<StreamState>>,
    form: StreamForm,
    writer: ReplyWriter,
}

#[derive(Debug, Clone, Copy)]
enum StreamForm {
    /// The bytes of a string; so many bytes of its format are still in front of it.
    Content { skip: usize },
    /// The bytes of the reply.
    Wire,
}

/// Where the result of a command goes.
#[derive(Debug)]
pub(crate) enum ResultSlot {
    Whole(ReplySlot),
    Stream(StreamSink),
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
    /// [`Failure::ReplyTooLong`].
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
    pub const WAITING_BYTES_MAX: usize = 256 << 10;

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

impl StreamState {
    /// Wakes the connection that waits for room. A mailbox that is full is tried again with the next piece.
    fn resume_if_roomy(&mut self) {
        if self.bytes <= BulkStream::WAITING_BYTES_MAX / 2
            && let Some(link) = self.paused.take_if(|link| link.post(WakeUp).is_ok())
        {
            drop(link);
        }
    }

    /// Bytes wait no longer.
    fn taken(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(budget) = &self.budget {
            budget.release(bytes);
        }
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() || self.is_abandoned {
            return;
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.take(bytes.len())) {
            self.result = Some(Err(ClientError::MaybeExecuted(Failure::ReplyTooLong)));
            return;
        }
        self.bytes += bytes.len();
        self.pieces.push_back(bytes);
    }
}

impl StreamSink {
    /// The whole reply has come, which is no error.
    pub(crate) fn whole(&mut self, wire: &[u8]) {
        let mut state = lock(&self.state);
        if matches!(self.form, StreamForm::Wire) {
            return state.push(Bytes::copy_from_slice(wire));
        }
        match value_of(wire) {
            Value::Null => state.is_null = true,
            Value::Streamed(chunks) => chunks.for_each(|chunk| state.push(Bytes::copy_from_slice(chunk))),
            value => match value.bytes() {
                Some(bytes) => {
                    state.length = Some(bytes.len() as u64);
                    state.push(Bytes::copy_from_slice(bytes));
                }
                None => state.result = Some(Err(NO_STRING)),
            },
        }
    }

    /// A piece of the reply has come. Nothing is kept for a reader that is gone, or behind an error.
    pub(crate) fn piece(&mut self, piece: &ReplyPiece) {
        let mut state = lock(&self.state);
        if state.is_abandoned || state.result.is_some() {
            return;
        }
        match &mut self.form {
            StreamForm::Wire => {
                let mut wire = Vec::new();
                self.writer.write(piece, &mut wire);
                state.push(wire.into());
            }
            StreamForm::Content { skip } => match piece {
                ReplyPiece::Bulk(BulkKind::String, length) => state.length = *length,
                ReplyPiece::Bulk(BulkKind::Verbatim, length) => {
                    *skip = FORMAT_BYTES;
                    state.length = length.map(|length| length.saturating_sub(FORMAT_BYTES as u64));
                }
                ReplyPiece::Data(bytes) => {
                    let skipped = (*skip).min(bytes.len());
                    *skip -= skipped;
                    state.push(Bytes::copy_from_slice(&bytes[skipped..]));
                }
                ReplyPiece::BulkEnd | ReplyPiece::End => {}
                _ => state.result = Some(Err(NO_STRING)),
            },
        }
        wake(state);
    }

    /// Whether the connection has to wait until the reader has taken some; `link` wakes it then.
    pub(crate) fn pauses(&self, link: impl FnOnce() -> Remote<WakeUp>) -> bool {
        let (mut state, StreamForm::Content { .. }) = (lock(&self.state), self.form) else { return false };
        let is_full = state.bytes > BulkStream::WAITING_BYTES_MAX;
        if is_full && state.paused.is_none() {
            state.paused = Some(link());
        }
        is_full
    }

    fn finish(self, result: CommandResult) {
        let mut state = lock(&self.state);
        state.paused = None;
        if state.result.is_none() {
            state.result = Some(match (result, self.form) {
                (Err(ClientError::Reply(error)), StreamForm::Wire) => {
                    state.push([b"-", error.text(), b"\r\n"].concat().into());
                    Ok(())
                }
                (result, _) => result.map(drop),
            });
        }
        wake(state);
    }

    fn is_abandoned(&self) -> bool {
        lock(&self.state).is_abandoned
    }
}

fn wake(mut state: std::sync::MutexGuard<'_, StreamState>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl ResultSlot {
    /// Stores the result, and wakes its task.
    pub(crate) fn finish(self, result: CommandResult) {
        match self {
            Self::Whole(slot) => slot.finish(result),
            Self::Stream(sink) => sink.finish(result),
        }
    }

    /// Whether nothing waits for the result any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Whole(slot) => slot.is_abandoned(),
            Self::Stream(sink) => sink.is_abandoned(),
        }
    }

    pub(crate) fn as_stream(&mut self) -> Option<&mut StreamSink> {
        match self {
            Self::Stream(sink) => Some(sink),
            Self::Whole(_) => None,
        }
    }
}

impl From<ReplySlot> for ResultSlot {
    fn from(slot: ReplySlot) -> Self {
        Self::Whole(slot)
    }
}

const NO_STRING: ClientError = ClientError::Type(WrongType { expected: "string" });

/// `txt:` in front of the text of a verbatim string.
const FORMAT_BYTES: usize = 4;
