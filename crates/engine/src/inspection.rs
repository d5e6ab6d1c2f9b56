//! Descriptions of the connections of a loop, and their ends, for an operator: [`ServerHandle::connections`].
//!
//! Only the loop's own thread can look at them, so another thread sends a request, which the loop answers between other
//! messages. One request concerns at most [`SLOTS_PER_REQUEST`] slots, which takes the loop a fraction of a
//! millisecond: a list of all connections is made of many pages, and other work comes between them.
//!
//! [`ServerHandle::connections`]: crate::ServerHandle::connections

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_sys::{Address, Token};

use crate::pages::PAGE_PLACES;

/// A connection, as an operator sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The number of its loop.
    pub event_loop: usize,
    /// Its number on that loop, which no later connection gets.
    pub id: u64,
    /// The address of the peer.
    pub peer: Address,
    /// Whether a listener has accepted it; otherwise it was connected from here.
    pub is_accepted: bool,
    /// How long it has been open: to a second, or to an eighth of it.
    pub age: Duration,
    /// Its protocols.
    pub protocols: ProtocolNames,
    /// Its activity, or the reason of its wait.
    pub state: ConnectionState,
    /// Received bytes that the application has not taken.
    pub inbound_bytes: u64,
    /// Written bytes that the kernel has not taken.
    pub outbound_bytes: u64,
}

/// A connection's activity, or the reason of its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ConnectionState {
    /// A filter, such as TLS, is in its handshake.
    Handshake,
    /// It is open, and nothing waits.
    Open,
    /// Bytes wait because the peer does not read them fast enough.
    WaitsForPeer,
    /// The application does not take the peer's messages.
    WaitsForApplication,
    /// Our side has ended, or ends when the queue is sent.
    Closing,
}

impl ConnectionState {
    /// The state in a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Open => "open",
            Self::WaitsForPeer => "waits for peer",
            Self::WaitsForApplication => "waits for application",
            Self::Closing => "closing",
        }
    }
}

/// The names of the protocols of a connection, the uppermost first; printed as `HTTP/1.1 over TLS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ProtocolNames([&'static str; PROTOCOLS_MAX]);

impl ProtocolNames {
    /// Adds a name below the others. Those beyond four are left out.
    pub(crate) fn add(&mut self, name: &'static str) {
        if let Some(free) = self.0.iter_mut().find(|name| name.is_empty()) {
            *free = name;
        }
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.iter().copied().filter(|name| !name.is_empty())
    }
}

impl fmt::Display for ProtocolNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, name) in self.iter().enumerate() {
            let between = if number == 0 { "" } else { " over " };
            write!(f, "{between}{name}")?;
        }
        Ok(())
    }
}

/// An entry's description of itself.
pub(crate) struct Description {
    pub(crate) peer: Address,
    pub(crate) is_accepted: bool,
    pub(crate) protocols: ProtocolNames,
    pub(crate) state: ConnectionState,
    pub(crate) inbound_bytes: u64,
    pub(crate) outbound_bytes: u64,
}

/// A description of an endpoint's session.
pub(crate) struct SessionInfo {
    pub(crate) id: u64,
    pub(crate) age: Duration,
    pub(crate) about: Description,
}

/// The number by which an operator knows a session of an endpoint: that of no connection with a slot of its own.
/// `number` is its number in the endpoint, of which the upper half is not used again, and `link` the one on its loop.
pub(crate) const fn session_id(number: u64, link: u32) -> u64 {
    SESSION_BIT | number >> 32 << 32 | link as u64
}

/// Whether a number is that of a session.
pub(crate) const fn is_session_id(id: u64) -> bool {
    id & SESSION_BIT != 0
}

/// No slot is used so often that the generation of its connection has this bit.
const SESSION_BIT: u64 = 1 << 63;

/// Where the next page of a loop's connections begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionCursor {
    pub(crate) slot: u32,
    /// The slots are done, and sessions of endpoints among them follow, from this number on.
    pub(crate) session: Option<u32>,
}

/// Some connections of a loop.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ConnectionPage {
    /// The connections, in no particular order. A page may be empty although others follow.
    pub connections: Vec<ConnectionInfo>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<ConnectionCursor>,
}

/// A request to a loop for descriptions. Dropping it without an answer answers with nothing.
pub(crate) struct InspectRequest {
    event_loop: usize,
    cursor: ConnectionCursor,
    answer: AnswerSender<ConnectionPage>,
}

impl InspectRequest {
    pub(crate) fn new(event_loop: usize, cursor: ConnectionCursor) -> (Self, Inspect) {
        let (answer, awaited) = asked();
        (Self { event_loop, cursor, answer }, Inspect { answer: awaited })
    }

    pub(crate) fn answer(self, page: impl FnOnce(usize, ConnectionCursor) -> ConnectionPage) {
        self.answer.give(Some(page(self.event_loop, self.cursor)));
    }
}

/// A request to a loop to reset a connection. Dropping it without an answer answers with nothing.
pub(crate) struct CloseRequest {
    token: Token,
    answer: AnswerSender<bool>,
}

impl CloseRequest {
    pub(crate) fn new(token: Token) -> (Self, CloseConnection) {
        let (answer, awaited) = asked();
        (Self { token, answer }, CloseConnection { answer: awaited })
    }

    pub(crate) fn answer(self, close: impl FnOnce(Token) -> bool) {
        self.answer.give(Some(close(self.token)));
    }
}

/// The loop's side of an answer. Dropping it without an answer answers with nothing.
struct AnswerSender<T>(Arc<Mutex<Answer<T>>>);

enum Answer<T> {
    Awaited(Option<Waker>),
    Given(Option<T>),
}

fn asked<T>() -> (AnswerSender<T>, Arc<Mutex<Answer<T>>>) {
    let answer = Arc::new(Mutex::new(Answer::Awaited(None)));
    (AnswerSender(answer.clone()), answer)
}

impl<T> AnswerSender<T> {
    fn give(&self, given: Option<T>) {
        let mut answer = lock(&self.0);
        if let Answer::Awaited(waker) = &mut *answer {
            let waker = waker.take();
            *answer = Answer::Given(given);
            drop(answer);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for AnswerSender<T> {
    fn drop(&mut self) {
        self.give(None);
    }
}

fn poll_answer<T>(answer: &Mutex<Answer<T>>, cx: &mut Context<'_>) -> Poll<Option<T>> {
    match &mut *lock(answer) {
        Answer::Given(given) => Poll::Ready(mem::take(given)),
        Answer::Awaited(waker) => {
            *waker = Some(cx.waker().clone());
            Poll::Pending
        }
    }
}

/// A page of connections that a loop has been asked for: a future, for any executor. It yields `None` if the loop has
/// ended, or too many messages wait for it.
#[must_use = "a future does nothing until it is awaited"]
pub struct Inspect {
    answer: Arc<Mutex<Answer<ConnectionPage>>>,
}

impl Future for Inspect {
    type Output = Option<ConnectionPage>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_answer(&self.answer, cx)
    }
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspect")
    }
}

/// A connection that a loop has been asked to reset: a future, for any executor. It yields whether the loop had the
/// connection; the request stands without it. A loop that has ended has none.
pub struct CloseConnection {
    answer: Arc<Mutex<Answer<bool>>>,
}

impl Future for CloseConnection {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        poll_answer(&self.answer, cx).map(|answer| answer.unwrap_or(false))
    }
}

impl fmt::Debug for CloseConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloseConnection")
    }
}

fn lock<T>(answer: &Mutex<Answer<T>>) -> MutexGuard<'_, Answer<T>> {
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Slots that one request concerns: eight pages of the table.
pub(crate) const SLOTS_PER_REQUEST: u32 = 8 * PAGE_PLACES as u32;

/// Names of protocols that a list shows of one connection.
const PROTOCOLS_MAX: usize = 4;
