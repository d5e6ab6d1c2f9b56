//! `Watches`: tasks that wait for a connection of their endpoint.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use tidegate_codec::SessionNumber;

use crate::error::ConnectionError;

/// The connections that a program has a handle of.
#[derive(Debug, Default)]
pub(crate) struct Watches(HashMap<SessionNumber, Watch>);

#[derive(Debug, Default)]
struct Watch {
    is_established: bool,
    is_confirmed: bool,
    end: Option<ConnectionError>,
    wakers: Vec<Waker>,
}

impl Watches {
    pub(crate) fn add(&mut self, session: SessionNumber) {
        self.0.insert(session, Watch::default());
    }

    pub(crate) fn remove(&mut self, session: SessionNumber) {
        self.0.remove(&session);
        if self.0.is_empty() {
            self.0 = HashMap::new();
        }
    }

    pub(crate) fn on_established(&mut self, session: SessionNumber) {
        if let Some(watch) = self.0.get_mut(&session) {
            watch.is_established = true;
        }
        self.wake(session);
    }

    /// The handshake is complete.
    pub(crate) fn on_confirmed(&mut self, session: SessionNumber) {
        if let Some(watch) = self.0.get_mut(&session) {
            watch.is_confirmed = true;
        }
        self.wake(session);
    }

    pub(crate) fn on_ended(&mut self, session: SessionNumber, error: &ConnectionError) {
        if let Some(watch) = self.0.get_mut(&session) {
            watch.end.get_or_insert_with(|| error.clone());
        }
        self.wake(session);
    }

    /// Wakes the tasks that wait for anything of a connection.
    pub(crate) fn wake(&mut self, session: SessionNumber) {
        if let Some(watch) = self.0.get_mut(&session) {
            std::mem::take(&mut watch.wakers).into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes the tasks that wait for anything.
    pub(crate) fn wake_all(&mut self) {
        for watch in self.0.values_mut() {
            std::mem::take(&mut watch.wakers).into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the connection can be used, or why it is over. One with early data can be before it `is_confirmed`: before
    /// its handshake is complete.
    pub(crate) fn poll_established(
        &mut self,
        session: SessionNumber,
        is_confirmed: bool,
        cx: &Context<'_>,
    ) -> Poll<Result<(), ConnectionError>> {
        let Some(watch) = self.0.get_mut(&session) else { return Poll::Ready(Err(ConnectionError::Closed)) };
        match &watch.end {
            Some(error) => Poll::Ready(Err(error.clone())),
            None if watch.is_established && (watch.is_confirmed || !is_confirmed) => Poll::Ready(Ok(())),
            None => {
                watch.register(cx);
                Poll::Pending
            }
        }
    }

    /// Why the connection is over.
    pub(crate) fn poll_ended(&mut self, session: SessionNumber, cx: &Context<'_>) -> Poll<ConnectionError> {
        let Some(watch) = self.0.get_mut(&session) else { return Poll::Ready(ConnectionError::Closed) };
        match &watch.end {
            Some(error) => Poll::Ready(error.clone()),
            None => {
                watch.register(cx);
                Poll::Pending
            }
        }
    }

    /// Wakes a task at the next event of a connection.
    pub(crate) fn register(&mut self, session: SessionNumber, cx: &Context<'_>) {
        if let Some(watch) = self.0.get_mut(&session) {
            watch.register(cx);
        }
    }
}

impl Watch {
    fn register(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }
}
