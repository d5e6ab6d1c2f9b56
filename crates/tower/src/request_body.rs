//! `RequestBody`: the body of a request, which may be sent to other threads, and is read on its own.
//!
//! Tower services want a body that is `Send`. Ours belongs to a connection, and a connection to a loop. So the body
//! that a service gets is a number, and the thread of the loop has a table of bodies by number. On another thread, to
//! which a service may pass the body, a poll asks the task of the connection for the next piece (`RemoteReads`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Frame, SizeHint};
use tidegate_http::Body;

/// The body of a request for a service. It is read piece by piece: while nothing reads, the loop receives nothing. A
/// service may pass it to another thread; then each piece wakes both threads.
pub struct RequestBody {
    place: Place,
    /// How many bytes are left of it, if its length is known.
    length: Option<u64>,
    has_ended: bool,
}

/// Where the body is.
enum Place {
    Nowhere,
    /// It is whole: a service may pass it anywhere.
    Here(Bytes),
    Table(Entry),
}

/// A body in the table of a thread.
struct Entry {
    thread: u64,
    number: u64,
    reads: Arc<RemoteReads>,
}

/// The shared state of a body on another thread and its connection's task: at most one piece at a time.
#[derive(Default)]
struct RemoteReads(Mutex<RemoteRead>);

#[derive(Default)]
struct RemoteRead {
    /// The body waits for a piece.
    is_wanted: bool,
    /// The exchange is over.
    is_over: bool,
    piece: Option<PolledFrame>,
    reader: Option<Waker>,
    /// The task of the connection.
    task: Option<Waker>,
}

type PolledFrame = Option<Result<Frame<Bytes>, BodyError>>;

impl RemoteReads {
    fn lock(&self) -> MutexGuard<'_, RemoteRead> {
        // No code of an application runs within the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On another thread: takes the next piece, or asks for it.
    fn poll(&self, cx: &Context<'_>) -> Poll<PolledFrame> {
        let mut read = self.lock();
        if let Some(piece) = read.piece.take() {
            return Poll::Ready(piece);
        }
        if read.is_over {
            return Poll::Ready(Some(Err(BodyError::Over)));
        }
        match &mut read.reader {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        read.is_wanted = true;
        let task = read.task.clone();
        drop(read);
        task.iter().for_each(Waker::wake_by_ref);
        Poll::Pending
    }

    /// In the task of the connection: reads the piece that is wanted.
    fn serve(&self, number: u64, cx: &mut Context<'_>) {
        let mut read = self.lock();
        match &mut read.task {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        if !read.is_wanted {
            return;
        }
        drop(read);
        let Poll::Ready(piece) = poll_registered(number, cx) else { return };
        let mut read = self.lock();
        read.is_wanted = false;
        read.piece = Some(piece);
        let reader = read.reader.take();
        drop(read);
        reader.into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        let mut read = self.lock();
        read.is_over = true;
        let wakers = [read.reader.take(), read.task.take()];
        drop(read);
        let [reader, _task] = wakers;
        reader.into_iter().for_each(Waker::wake);
    }
}

/// Why a body cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The connection is closed, or the peer sent no valid body.
    Closed,
    /// The body is longer than a limit allows.
    TooLong,
    /// The bytes are not valid in the content coding that the request names.
    Undecodable,
    /// The service has responded, or the connection is gone.
    Over,
}

impl From<tidegate_http::BodyError> for BodyError {
    fn from(error: tidegate_http::BodyError) -> Self {
        match error {
            tidegate_http::BodyError::TooLong => Self::TooLong,
            tidegate_http::BodyError::Undecodable => Self::Undecodable,
            tidegate_http::BodyError::Over => Self::Over,
            _ => Self::Closed,
        }
    }
}

/// Removes a body from the table of its thread, when the exchange is over: a body that a service has passed to another
/// thread cannot do it.
pub(crate) struct BodyRegistration {
    number: u64,
    reads: Arc<RemoteReads>,
}

impl BodyRegistration {
    /// Reads the pieces that the service wants on another thread. The task of the connection calls it whenever it is
    /// polled.
    pub(crate) fn serve(&self, cx: &mut Context<'_>) {
        self.reads.serve(self.number, cx);
    }
}

/// The type that requests of a service have as their body.
pub trait ServiceBody: 'static {
    /// No body.
    #[doc(hidden)]
    fn empty() -> Self;

    /// The body of a request.
    #[doc(hidden)]
    fn new(body: RequestBody) -> Self;
}

impl ServiceBody for RequestBody {
    fn empty() -> Self {
        Self::empty()
    }

    fn new(body: RequestBody) -> Self {
        body
    }
}

#[cfg(feature = "axum")]
impl ServiceBody for ::axum::body::Body {
    fn empty() -> Self {
        Self::empty()
    }

    fn new(body: RequestBody) -> Self {
        Self::new(body)
    }
}

impl RequestBody {
    pub(crate) fn empty() -> Self {
        Self { place: Place::Nowhere, length: Some(0), has_ended: true }
    }

    /// A body that is there as a whole, and is not empty.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { length: Some(bytes.len() as u64), place: Place::Here(bytes), has_ended: false }
    }

    pub(crate) fn register(body: Body, length: Option<u64>) -> (Self, BodyRegistration) {
        let number = NEXT.with(|next| next.replace(next.get() + 1));
        BODIES.with_borrow_mut(|bodies| bodies.insert(number, Some(body)));
        let reads = Arc::new(RemoteReads::default());
        let place = Place::Table(Entry { thread: THREAD.with(|thread| *thread), number, reads: reads.clone() });
        (Self { place, length, has_ended: false }, BodyRegistration { number, reads })
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        match &mut self.place {
            Place::Nowhere => Poll::Ready(None),
            Place::Here(bytes) => {
                self.has_ended = true;
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Place::Table(entry) if entry.is_here() => poll_registered(entry.number, cx),
            Place::Table(entry) => entry.reads.poll(cx),
        }
    }
}

/// Calls `act` with a body of the table, which is out of its place meanwhile: polling a body may run code of the
/// application. If that code removes the body, it is dropped behind the call.
fn with_body<T>(number: u64, act: impl FnOnce(&mut Body) -> T) -> Option<T> {
    let mut body = BODIES.with_borrow_mut(|bodies| bodies.get_mut(&number).and_then(Option::take))?;
    let result = act(&mut body);
    let removed = BODIES.with_borrow_mut(|bodies| match bodies.get_mut(&number) {
        Some(place) => place.replace(body),
        None => Some(body),
    });
    drop(removed);
    Some(result)
}

impl Entry {
    /// Whether this is the thread of the connection.
    fn is_here(&self) -> bool {
        THREAD.with(|thread| *thread) == self.thread
    }
}

/// Polls a body of the table of this thread.
fn poll_registered(number: u64, cx: &mut Context<'_>) -> Poll<PolledFrame> {
    let polled = with_body(number, |body| {
        let polled = Pin::new(&mut *body).poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            body.hand_over(piece);
        }
        let trailers = match &polled {
            Poll::Ready(None) => body.trailers().map(header_map),
            _ => None,
        };
        polled.map(|piece| match piece {
            Some(Ok(data)) => Some(Ok(Frame::data(data.into_bytes()))),
            Some(Err(error)) => Some(Err(error.into())),
            None => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
        })
    });
    polled.unwrap_or(Poll::Ready(Some(Err(BodyError::Over))))
}

fn header_map(trailers: &tidegate_http::Trailers) -> http::HeaderMap {
    let mut map = http::HeaderMap::new();
    for (name, value) in trailers {
        if let (Ok(name), Ok(value)) = (http::HeaderName::from_bytes(name), http::HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_body(cx);
        match &polled {
            Poll::Ready(None | Some(Err(_))) => self.has_ended = true,
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => self.length = self.length.map(|length| length.saturating_sub(data.len() as u64)),
                None => self.has_ended = true,
            },
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) if !self.has_ended => SizeHint::with_exact(length),
            _ => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Place::Table(entry) = &self.place
            && entry.is_here()
        {
            remove(entry.number);
        }
    }
}

impl Drop for BodyRegistration {
    fn drop(&mut self) {
        self.reads.end();
        remove(self.number);
    }
}

/// Dropped outside of the table, since a body may have more to drop.
fn remove(number: u64) {
    let body = BODIES.with_borrow_mut(|bodies| bodies.remove(&number));
    drop(body);
}

impl fmt::Debug for BodyRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BodyRegistration").field(&self.number).finish()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("length", &self.length).finish_non_exhaustive()
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is closed",
            Self::TooLong => "the body is too long",
            Self::Undecodable => "the body is not valid in its content coding",
            Self::Over => "the exchange that the body belongs to is over",
        })
    }
}

impl std::error::Error for BodyError {}

static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static NEXT: Cell<u64> = const { Cell::new(0) };
    /// A body is `None` while it is polled.
    static BODIES: RefCell<HashMap<u64, Option<Body>>> = RefCell::default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_removed_while_it_is_polled_is_dropped() {
        let (body, registered) = RequestBody::register(Body::empty(), None);
        let number = registered.number;
        let called = with_body(number, |_| {
            drop(registered);
            with_body(number, |_| ()).is_none()
        });
        assert_eq!(called, Some(true), "it is not polled within itself");
        assert!(BODIES.with_borrow(HashMap::is_empty));
        drop(body);
        assert!(BODIES.with_borrow(HashMap::is_empty));
    }

    #[test]
    fn a_body_whose_poll_panics_is_removed_with_its_exchange() {
        let (_body, registered) = RequestBody::register(Body::empty(), None);
        let number = registered.number;
        let panicked = std::panic::catch_unwind(|| with_body(number, |_| panic!("as a service may")));
        assert!(panicked.is_err() && with_body(number, |_| ()).is_none());
        drop(registered);
        assert!(BODIES.with_borrow(HashMap::is_empty));
    }
}
