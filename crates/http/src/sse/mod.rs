//! Server-Sent Events: a response that is a stream of events (the HTML standard, section 9.2).

mod event;

pub use event::{Event, InvalidEvent};

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use tidegate_engine::task;
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyFuture, BodyWriter, Data};
use tidegate_http1::{ContentType, Fields, Outgoing};

use crate::extract::FromRequest;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// A response that is a stream of events, which an async function writes.
///
/// The function waits when the client reads slowly, and is dropped where it waits when the client is gone. While it writes
/// nothing, a comment is sent every 15 seconds ([`keep_alive`](Self::keep_alive)), so that proxies do not close the
/// connection, and a client that is gone is noticed.
///
/// The response has `Cache-Control: no-store`, and `X-Accel-Buffering: no`, so that nginx passes events on at once.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::http::{Event, LastEventId, Router, Sse};
/// use tidegate::task;
///
/// let router = Router::new().get("/ticks", |last: LastEventId| {
///     let first = last.as_deref().and_then(|id| id.parse().ok()).map_or(0, |id: u64| id.saturating_add(1));
///     Sse::new(async move |mut events| {
///         for tick in first.. {
///             events.send(Event::new().id(&tick.to_string())?.data("tick")).await?;
///             task::sleep(Duration::from_secs(1)).await;
///         }
///         Ok(())
///     })
/// });
/// # drop(router);
/// ```
pub struct Sse {
    produce: Box<dyn FnOnce(EventWriter) -> BodyFuture>,
    keep_alive: Duration,
}

/// How often a comment is sent where nothing else is: 15 seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A comment, which clients skip.
const COMMENT: &str = ":\n\n";

const FIELDS: Fields = Fields::from_static("Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n");

impl Sse {
    /// Events that an async function writes. When it returns, the stream ends, and the client reconnects; a response with
    /// the status 204 stops that. If the function fails, the client sees that the stream is not complete.
    #[must_use]
    pub fn new<F>(produce: impl FnOnce(EventWriter) -> F + 'static) -> Self
    where
        F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
    {
        Self { produce: Box::new(move |events| Box::pin(produce(events))), keep_alive: KEEP_ALIVE }
    }

    /// The events of a stream. An error of the stream ends the response before its end, which the client sees.
    #[must_use]
    pub fn stream<E: Into<Box<dyn Error>>>(stream: impl Stream<Item = Result<Event, E>> + 'static) -> Self {
        Self::new(async move |mut events| {
            let mut stream = pin!(stream);
            while let Some(event) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
                events.send(event.map_err(Into::into)?).await?;
            }
            Ok(())
        })
    }

    /// How often a comment is sent where nothing else is; 15 seconds unless set.
    ///
    /// # Panics
    /// If `interval` is zero.
    #[must_use]
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "the interval of comments has to be above zero");
        self.keep_alive = interval;
        self
    }
}

impl IntoResponse for Sse {
    fn into_response(self) -> Response {
        let Self { produce, keep_alive } = self;
        let body = Body::produce(async move |writer| {
            let last_sent = Rc::new(Cell::new(task::now()));
            let comments = writer.duplicate();
            let mut producing = produce(EventWriter { writer, last_sent: last_sent.clone() });
            let mut due = task::sleep(keep_alive);
            poll_fn(|cx| {
                if let Poll::Ready(result) = producing.as_mut().poll(cx) {
                    return Poll::Ready(result);
                }
                while Pin::new(&mut due).poll(cx).is_ready() {
                    let silence = task::now().saturating_duration_since(last_sent.get());
                    if silence >= keep_alive {
                        send_comment(&comments, cx)?;
                        last_sent.set(task::now());
                        due = task::sleep(keep_alive);
                    } else {
                        due = task::sleep(keep_alive - silence);
                    }
                }
                Poll::Pending
            })
            .await
        });
        Response::new().content_type(EVENT_STREAM).fields(FIELDS).body(body)
    }
}

/// Sends a comment if it has room: to a client that reads slowly, enough is on the way.
fn send_comment(comments: &BodyWriter, cx: &mut Context<'_>) -> Result<(), BodyError> {
    match comments.poll_ready(cx) {
        Poll::Ready(Ok(())) => comments.push(COMMENT.into()),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(()),
    }
}

const EVENT_STREAM: ContentType = ContentType::from_static("text/event-stream");

/// Writes the events of a response: see [`Sse`].
pub struct EventWriter {
    writer: BodyWriter,
    /// When something was sent.
    last_sent: Rc<Cell<Instant>>,
}

impl EventWriter {
    /// Sends an event, after those before it have room: while the client reads slowly, this waits.
    ///
    /// # Errors
    /// [`BodyError`]: the connection is closed, or the response is over.
    pub async fn send(&mut self, event: Event) -> Result<(), BodyError> {
        self.writer.send(Outgoing::Data(Data::from(event.into_text()).into_body())).await?;
        self.last_sent.set(task::now());
        Ok(())
    }
}

/// The id of the last event that a client has received before it reconnected: `Last-Event-ID`, as an argument of a
/// function. `None` if the client connects for the first time, or the id is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastEventId(pub Option<String>);

impl<S> FromRequest<S> for LastEventId {
    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        Ok(Self(request.header_str("last-event-id").map(str::to_owned)))
    }
}

impl Deref for LastEventId {
    type Target = Option<String>;

    fn deref(&self) -> &Option<String> {
        &self.0
    }
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sse").field("keep_alive", &self.keep_alive).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventWriter")
    }
}
