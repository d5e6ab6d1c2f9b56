//! `ClientEvents`: changes of a client's connection, and errors of servers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::client::server_error::ServerError;
use crate::client::shared::Shared;

/// A change of the client's connection, or an error of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The client is connected to this server, which has acknowledged all subscriptions.
    Up(String),
    /// The connection is lost, for this reason; the client connects again.
    Down(String),
    /// The server has sent an error.
    ServerError(ServerError),
    /// The server shuts down; the client moves to another one if it knows one.
    LameDuck,
    /// A message to this subject was taken and not sent: the server accepts shorter ones only.
    Dropped(Bytes),
    /// So many events were lost before this point, because the application did not take them.
    Lost(u64),
}

/// The events of a client. Several of them divide the events among each other.
///
/// ```no_run
/// # async fn example(client: tidegate::nats::Client) {
/// let events = client.events();
/// while let Some(event) = events.recv().await {
///     println!("{event:?}");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ClientEvents {
    pub(super) shared: Arc<Shared>,
}

impl ClientEvents {
    /// The next event; `None` once the loop has ended, or the last handle of the client is gone.
    pub async fn recv(&self) -> Option<ClientEvent> {
        poll_fn(|cx| self.shared.poll_event(cx)).await
    }
}

/// The events that wait.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: VecDeque<ClientEvent>,
    lost: u64,
    readers: Vec<Waker>,
    has_ended: bool,
}

impl EventQueue {
    /// Appends an event; the oldest one makes room. Returns the tasks to wake.
    pub(crate) fn push(&mut self, event: ClientEvent) -> Vec<Waker> {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(event);
        std::mem::take(&mut self.readers)
    }

    pub(crate) fn end(&mut self) -> Vec<Waker> {
        self.has_ended = true;
        std::mem::take(&mut self.readers)
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<ClientEvent>> {
        if self.lost > 0 {
            return Poll::Ready(Some(ClientEvent::Lost(std::mem::take(&mut self.lost))));
        }
        if let Some(event) = self.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.readers.retain(|waker| !waker.will_wake(cx.waker()));
        self.readers.push(cx.waker().clone());
        Poll::Pending
    }
}

/// Events that wait for the application.
const EVENTS_MAX: usize = 1024;
