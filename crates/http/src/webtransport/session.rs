//! `WebTransportSession`: the handle of a session, for its tasks.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidegate_codec::framing::Raw;
use tidegate_codec::{Direction, DynOver, StreamNumber};
use tidegate_engine::{Channel, EndpointSession, ReadHalf, SessionError, WriteHalf};
use tidegate_http3::{Capsule, CapsuleCodec};

/// HTTP/3 on QUIC.
pub(super) use crate::extended_client::Http3;

/// The sending half of the stream of a session.
pub(super) type CapsuleWriter = WriteHalf<DynOver<CapsuleCodec>>;

/// A session of WebTransport: streams in both directions, which do not wait for each other, and datagrams, which may be lost.
/// A clone is another handle of it, for another task of its loop.
///
/// Each stream is a [`Channel`], or a half of one, with back-pressure of its own: bytes that a task has not asked for stay in the
/// window of the stream, and the peer stops there. `Channel::reset` resets a stream with a code of the application, of
/// at most 32 bits. A peer's RESET_STREAM is [`CloseReason::StreamReset`](tidegate_engine::CloseReason::StreamReset) with its
/// code, and so is its STOP_SENDING of a stream on which this side alone sends. Its STOP_SENDING of another stream drops the
/// bytes that this side sends there.
///
/// The task that serves a session should await it: when it returns, the session closes.
#[derive(Clone)]
pub struct WebTransportSession(Rc<SessionState>);

/// How a session was closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebTransportClose {
    /// The code of the application.
    pub code: u32,
    /// The reason, of at most 1,024 bytes.
    pub reason: Box<str>,
}

/// The state that the handles of a session share.
struct SessionState {
    connection: EndpointSession<Http3>,
    number: StreamNumber,
    /// Until this side has closed the session.
    writer: RefCell<Option<CapsuleWriter>>,
    is_over: Cell<bool>,
    close: RefCell<Option<WebTransportClose>>,
    is_draining: Cell<bool>,
    /// Tasks that wait for the end, or for a drain.
    wakers: RefCell<Vec<Waker>>,
}

impl WebTransportSession {
    pub(super) fn new(connection: EndpointSession<Http3>, number: StreamNumber, writer: CapsuleWriter) -> Self {
        Self(Rc::new(SessionState {
            connection,
            number,
            writer: RefCell::new(Some(writer)),
            is_over: Cell::default(),
            close: RefCell::default(),
            is_draining: Cell::default(),
            wakers: RefCell::default(),
        }))
    }

    /// The next bidirectional stream that the peer opens. `None` once the session is over.
    pub async fn accept_bidirectional(&self) -> Option<Channel<Raw>> {
        self.accept(Direction::Bidirectional).await
    }

    /// The next unidirectional stream that the peer opens. `None` once the session is over.
    pub async fn accept_unidirectional(&self) -> Option<ReadHalf<Raw>> {
        let (reader, _) = self.accept(Direction::Unidirectional).await?.split();
        Some(reader)
    }

    async fn accept(&self, direction: Direction) -> Option<Channel<Raw>> {
        let SessionState { connection, number, .. } = &*self.0;
        let accepted = poll_fn(|cx| {
            let polled = connection.with(|endpoint, _| endpoint.poll_accept_of_session(*number, direction, cx));
            polled.unwrap_or(Poll::Ready(None))
        });
        connection.adopt(accepted.await?, direction, false, Raw).ok()
    }

    /// Opens a bidirectional stream, as soon as the peer permits one more.
    ///
    /// # Errors
    /// [`SessionError::Open`] or [`SessionError::Closed`] once the session is over.
    pub async fn open_bidirectional(&self) -> Result<Channel<Raw>, SessionError> {
        self.open(Direction::Bidirectional).await
    }

    /// Opens a unidirectional stream, as soon as the peer permits one more.
    ///
    /// # Errors
    /// As [`open_bidirectional`](Self::open_bidirectional).
    pub async fn open_unidirectional(&self) -> Result<WriteHalf<Raw>, SessionError> {
        let (_, writer) = self.open(Direction::Unidirectional).await?.split();
        Ok(writer)
    }

    async fn open(&self, direction: Direction) -> Result<Channel<Raw>, SessionError> {
        let SessionState { connection, number, .. } = &*self.0;
        let opened = poll_fn(|cx| {
            let polled = connection.with(|endpoint, _| endpoint.poll_open_of_session(*number, direction, cx));
            polled.map_or_else(|error| Poll::Ready(Err(error)), |polled| polled.map_err(SessionError::Open))
        });
        let (stream, preamble) = opened.await?;
        let mut channel = connection.adopt(stream, direction, true, Raw)?;
        channel.send(preamble.into()).map_err(|_| SessionError::Closed)?;
        Ok(channel)
    }

    /// Sends a datagram: it may be lost, and may come before earlier ones. If too many wait to be sent, the oldest is dropped.
    ///
    /// # Errors
    /// [`SessionError::Datagram`] if it is too long, or the peer does not accept datagrams; [`SessionError::Closed`].
    pub fn send_datagram(&self, payload: &[u8]) -> Result<(), SessionError> {
        if self.0.is_over.get() {
            return Err(SessionError::Closed);
        }
        let SessionState { connection, number, .. } = &*self.0;
        let sent = connection.with(|endpoint, _| endpoint.send_datagram_of_session(*number, payload))?;
        sent.map_err(SessionError::Datagram)
    }

    /// The next datagram of the peer. `None` once the session is over.
    pub async fn recv_datagram(&self) -> Option<Bytes> {
        let SessionState { connection, number, .. } = &*self.0;
        poll_fn(|cx| {
            let polled = connection.with(|endpoint, _| endpoint.poll_datagram_of_session(*number, cx));
            polled.unwrap_or(Poll::Ready(None))
        })
        .await
    }

    /// How many bytes a datagram may have now. It changes with the path. `None` if the peer does not accept datagrams, or
    /// the connection is over.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        let SessionState { connection, number, .. } = &*self.0;
        connection.with(|endpoint, _| endpoint.datagram_bytes_max_of_session(*number)).ok().flatten()
    }

    /// Closes the session with a code of the application and a reason, of which 1,024 bytes are sent. Its streams are reset:
    /// a task that needs their bytes delivered closes them first, and awaits that.
    pub fn close(&self, code: u32, reason: &str) {
        if self.0.is_over.get() {
            return;
        }
        let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
        let reason = reason[..end.unwrap_or(0)].into();
        self.send(Capsule::CloseSession { code, reason });
        self.end(None);
    }

    /// Waits for the end of the session. `None` if this side has closed it, or the stream or the connection broke.
    pub async fn closed(&self) -> Option<WebTransportClose> {
        poll_fn(|cx| self.poll_over(cx)).await;
        self.0.close.borrow().clone()
    }

    /// Waits until the session should end soon: the server drains, or the peer has asked for it. It also ends with the session.
    pub async fn draining(&self) {
        poll_fn(|cx| self.poll_until(cx, |state| state.is_draining.get() || state.is_over.get())).await;
    }

    pub(super) fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_until(cx, |state| state.is_over.get())
    }

    fn poll_until(&self, cx: &Context<'_>, is_so: impl Fn(&SessionState) -> bool) -> Poll<()> {
        if is_so(&self.0) {
            return Poll::Ready(());
        }
        let mut wakers = self.0.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The session is over. Its streams are reset, and its tasks learn of it.
    pub(super) fn end(&self, close: Option<WebTransportClose>) {
        if self.0.is_over.replace(true) {
            return;
        }
        *self.0.close.borrow_mut() = close;
        // The end of this side's bytes follows the capsules.
        drop(self.0.writer.take());
        let number = self.0.number;
        // A connection that is over has no session.
        let _closed = self.0.connection.with(|endpoint, _| endpoint.end_webtransport(number));
        self.wake();
    }

    /// The session ends soon. The peer learns of it if this side `announces` it.
    pub(super) fn drain(&self, announces: bool) {
        if !self.0.is_draining.replace(true) {
            if announces {
                self.send(Capsule::DrainSession);
            }
            self.wake();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.get()
    }

    pub(super) fn add_datagram(&self, payload: &[u8]) {
        let number = self.0.number;
        let _closed = self.0.connection.with(|endpoint, _| endpoint.add_datagram_of_session(number, payload));
    }

    fn send(&self, capsule: Capsule) {
        if let Some(writer) = &mut *self.0.writer.borrow_mut() {
            // A stream that is closed takes none, and neither does one whose peer does not read: the session ends anyway.
            let _closed = writer.send(capsule);
        }
    }

    fn wake(&self) {
        self.0.wakers.take().into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for WebTransportSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransportSession").field("number", &self.0.number.stream).finish_non_exhaustive()
    }
}

/// The longest reason of a close.
const REASON_BYTES_MAX: usize = 1024;
