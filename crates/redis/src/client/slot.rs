//! `ReplySlot`: where a result goes, from the loop to a task of any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::client::error::ClientError;
use crate::owned::OwnedValue;

/// Wakes a connection: commands are waiting, a reader has room, or the last handle is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeUp;

/// The result of a command.
pub(crate) type CommandResult = Result<OwnedValue, ClientError>;

/// The loop's half.
#[derive(Debug)]
pub(crate) struct ReplySlot(Arc<Mutex<SlotState>>);

/// The caller's half: a future of the result.
#[derive(Debug)]
pub(crate) struct ReplyWait(Arc<Mutex<SlotState>>);

#[derive(Debug, Default)]
struct SlotState {
    result: Option<CommandResult>,
    waker: Option<Waker>,
}

pub(crate) fn reply_slot() -> (ReplySlot, ReplyWait) {
    let state = Arc::new(Mutex::new(SlotState::default()));
    (ReplySlot(state.clone()), ReplyWait(state))
}

impl ReplySlot {
    /// Stores the result, and wakes its task.
    pub(crate) fn finish(self, result: CommandResult) {
        let mut state = lock(&self.0);
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether nothing waits for the result any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Future for ReplyWait {
    type Output = CommandResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandResult> {
        let mut state = lock(&self.0);
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A panic of another thread leaves the state as it is between two operations.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
