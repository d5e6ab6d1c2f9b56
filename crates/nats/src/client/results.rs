//! `Results`: the requests and flushes without a result, and when they expire.
//!
//! Only the loop knows the time: a deadline is set when the loop sees its request first.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::client::error::{ClientError, Failure};
use crate::client::message::Message;

/// The result of a request, or of a flush, which has no message.
pub(crate) type RequestResult = Result<Option<Message>, ClientError>;

/// The place of a result, from the loop to a task of any runtime.
#[derive(Debug, Default)]
pub(crate) struct ResultSlot {
    pub(crate) result: Option<RequestResult>,
    pub(crate) waker: Option<Waker>,
}

pub(crate) type SharedSlot = Arc<Mutex<ResultSlot>>;

/// Stores a result, and wakes its task.
pub(crate) fn finish(slot: &SharedSlot, result: RequestResult) {
    let mut slot = lock(slot);
    slot.result.get_or_insert(result);
    let waker = slot.waker.take();
    drop(slot);
    waker.into_iter().for_each(Waker::wake);
}

#[derive(Debug)]
struct PendingResult {
    slot: SharedSlot,
    timeout: Duration,
    deadline: Option<Instant>,
    is_sent: bool,
}

/// The requests and flushes without a result, by their tokens.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pending: HashMap<u64, PendingResult>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Those that the loop has not seen.
    unstamped: Vec<u64>,
    next_token: u64,
}

impl Results {
    pub(crate) fn add(&mut self, slot: SharedSlot, timeout: Duration) -> u64 {
        self.next_token += 1;
        let token = self.next_token;
        self.pending.insert(token, PendingResult { slot, timeout, deadline: None, is_sent: false });
        self.unstamped.push(token);
        token
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn contains(&self, token: u64) -> bool {
        self.pending.contains_key(&token)
    }

    /// Whether a request or a flush was sent and has no result.
    pub(crate) fn has_sent(&self) -> bool {
        self.pending.values().any(|pending| pending.is_sent)
    }

    pub(crate) fn set_sent(&mut self, token: u64, is_sent: bool) {
        if let Some(pending) = self.pending.get_mut(&token) {
            pending.is_sent = is_sent;
        }
    }

    pub(crate) fn take(&mut self, token: u64) -> Option<SharedSlot> {
        let pending = self.pending.remove(&token)?;
        if let Some(at) = pending.deadline {
            self.deadlines.remove(&(at, token));
        }
        Some(pending.slot)
    }

    /// Removes those whose time has come. Returns them with their errors, and the time of the next one.
    pub(crate) fn expire(&mut self, now: Instant) -> (Vec<(SharedSlot, ClientError)>, Option<Instant>) {
        for token in std::mem::take(&mut self.unstamped) {
            let Some(pending) = self.pending.get_mut(&token) else { continue };
            pending.deadline = now.checked_add(pending.timeout);
            if let Some(at) = pending.deadline {
                self.deadlines.insert((at, token));
            }
        }
        let mut expired = Vec::new();
        while let Some(&(at, token)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, token));
            let Some(pending) = self.pending.remove(&token) else { continue };
            expired.push((pending.slot, error_of(pending.is_sent, Failure::Deadline)));
        }
        (expired, self.deadlines.first().map(|(at, _)| *at))
    }

    /// Removes those that were sent, or all.
    pub(crate) fn fail(&mut self, failure: Failure, only_sent: bool) -> Vec<(SharedSlot, ClientError)> {
        let tokens: Vec<u64> =
            self.pending.iter().filter(|(_, one)| one.is_sent || !only_sent).map(|(token, _)| *token).collect();
        let mut failed = Vec::with_capacity(tokens.len());
        for token in tokens {
            let is_sent = self.pending.get(&token).is_some_and(|pending| pending.is_sent);
            failed.extend(self.take(token).map(|slot| (slot, error_of(is_sent, failure))));
        }
        failed
    }
}

const fn error_of(is_sent: bool, failure: Failure) -> ClientError {
    if is_sent { ClientError::MaybeProcessed(failure) } else { ClientError::NotSent(failure) }
}

/// A panic of another thread leaves the state as it is between two operations.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
