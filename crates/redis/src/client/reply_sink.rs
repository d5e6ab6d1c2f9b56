//! `StreamSink`: the loop's half of a reply that is read in pieces; `ResultSlot`: where the result of a command goes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::Bytes;
use tidegate_engine::Remote;

use crate::client::error::{ClientError, Failure, WrongType};
use crate::client::reply_budget::ReplyBudget;
use crate::client::slot::{CommandResult, ReplySlot, WakeUp, lock};
use crate::client_codec::ReplyPiece;
use crate::reply_writer::ReplyWriter;
use crate::token::BulkKind;
use crate::value::{Value, value_of};

/// The pieces on their way from the loop to the reader.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) bytes: usize,
    pub(super) budget: Option<ReplyBudget>,
    pub(super) length: Option<u64>,
    pub(super) is_null: bool,
    /// The reader is gone.
    pub(super) is_abandoned: bool,
    /// No piece follows; an error comes behind those that are there.
    pub(super) result: Option<Result<(), ClientError>>,
    pub(super) waker: Option<Waker>,
    /// The connection that waits for room.
    pub(super) paused: Option<Remote<WakeUp>>,
}

/// The loop's half.
#[derive(Debug)]
pub(crate) struct StreamSink {
    pub(super) state: Arc<Mutex<StreamState>>,
    pub(super) form: StreamForm,
    pub(super) writer: ReplyWriter,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StreamForm {
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

impl StreamState {
    /// Wakes the connection that waits for room. If the mailbox is full, the connection finds the room by itself after a while.
    pub(super) fn resume_if_roomy(&mut self) {
        if self.bytes > WAITING_BYTES_MAX / 2 {
            return;
        }
        let is_woken = self.paused.as_ref().is_some_and(|link| link.post(WakeUp).is_ok());
        if is_woken {
            self.paused = None;
        }
    }

    /// Bytes wait no longer.
    pub(super) fn taken(&mut self, bytes: usize) {
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
        let is_full = state.bytes > WAITING_BYTES_MAX;
        if is_full && state.paused.is_none() {
            state.paused = Some(link());
        }
        is_full
    }

    fn finish(self, result: CommandResult) {
        let mut state = lock(&self.state);
        state.paused = None;
        if state.result.is_none() {
            let result = match (result, self.form) {
                (Err(ClientError::Reply(error)), StreamForm::Wire) => {
                    state.push([b"-", error.text(), b"\r\n"].concat().into());
                    Ok(())
                }
                (result, _) => result.map(drop),
            };
            // A push beyond the budget has set its own.
            state.result.get_or_insert(result);
        }
        wake(state);
    }

    fn is_abandoned(&self) -> bool {
        lock(&self.state).is_abandoned
    }
}

fn wake(mut state: MutexGuard<'_, StreamState>) {
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

/// The bytes that wait for a reader before its connection stops reading.
pub(super) const WAITING_BYTES_MAX: usize = 256 << 10;
