//! `Body`: of a request or of a response; in memory, in a file, received piece by piece, or produced while it is sent.

mod collected;
mod data;
mod decoding;
mod writer;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tidegate_buffer::{FileRegion, Slice};
use tidegate_engine::Account;
use tidegate_http1::{self as http1, Fields, Trailers};

pub use self::collected::{BodyCollector, charge};
pub use self::data::Data;
pub use self::decoding::{BodyDecoder, Decode, DecodedBytes};
pub use self::writer::BodyWriter;
use crate::error::BodyError;
use crate::exchange::{Exchange, Piece};
use crate::upgrade::Upgrade;

/// The body of a request or of a response.
///
/// A body in memory, or of a file, is sent with its length. One that is [produced](Self::produce) or
/// [streamed](Self::stream) has no length unless it is [given](Self::with_length): over HTTP/1.1 it is chunked. The body
/// of a request may be that of a response: it is passed on piece by piece, as fast as the peer reads.
pub struct Body(BodyKind);

/// No body, for a request that has none.
pub const NO_BODY: &Body = &Body(BodyKind::Whole(http1::Body::Empty));

/// The kinds of bodies.
pub enum BodyKind {
    /// In memory or in a file.
    Whole(http1::Body),
    /// Received from the peer, piece by piece.
    Received(ReceivedBody),
    /// In memory, and fields follow it.
    WithTrailers(BodyWithTrailers),
    /// Produced while it is sent.
    Produced(Box<ProducedBody>),
    /// No body: the response leaves HTTP.
    Upgrade(Box<Upgrade>),
}

/// A body that is received piece by piece.
pub struct ReceivedBody {
    /// The exchange that the pieces come from.
    pub exchange: Rc<dyn Exchange>,
    /// The number of the exchange on its connection.
    pub number: u32,
    /// The length in bytes, if it is known.
    pub length: Option<u64>,
    /// Pieces that came before a task served the request; boxed, since most bodies have none.
    pub first_pieces: Option<Box<VecDeque<Slice>>>,
    /// The end of the body, or an error, has been returned.
    pub has_ended: bool,
    /// The fields after the body.
    pub trailers: Option<Trailers>,
    /// Undoes the content coding.
    pub decoder: Option<Box<BodyDecoder>>,
}

/// A body that is produced while it is sent.
pub struct ProducedBody {
    /// The length in bytes, if it is known.
    pub length: Option<u64>,
    /// Writes the body.
    pub produce: Box<dyn FnOnce(BodyWriter) -> BodyFuture>,
}

/// A body in memory, and the fields after it.
pub struct BodyWithTrailers {
    /// The body.
    pub body: http1::Body,
    /// The fields after it.
    pub trailers: Fields,
}

impl BodyWithTrailers {
    /// Writes the body.
    pub async fn write(self, writer: BodyWriter) -> Result<(), Box<dyn Error>> {
        writer.write(Data::of_whole(self.body)).await?;
        Ok(writer.trailers(self.trailers)?)
    }

    /// The same body as one that is produced.
    pub fn into_produced(self) -> ProducedBody {
        ProducedBody { length: None, produce: Box::new(move |writer| Box::pin(self.write(writer))) }
    }
}

/// Writes a body.
pub type BodyFuture = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>;

// The kinds of bodies, and methods of `Body` and `BodyWriter` that are hidden from the documentation, are for the crates of
// this workspace: an application has no use for them, and the facade does not export the types.
impl From<BodyKind> for Body {
    #[inline]
    fn from(kind: BodyKind) -> Self {
        Self(kind)
    }
}

impl Body {
    /// The kind of the body.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> &BodyKind {
        &self.0
    }

    #[doc(hidden)]
    #[inline]
    pub const fn kind_mut(&mut self) -> &mut BodyKind {
        &mut self.0
    }

    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn into_kind(self) -> BodyKind {
        self.0
    }

    /// No body.
    #[must_use]
    #[inline]
    pub const fn empty() -> Self {
        Self(BodyKind::Whole(http1::Body::Empty))
    }

    /// A body that an async function writes while it is sent. The function runs once the head of the response is queued,
    /// and waits when the peer reads slowly. If it fails, or is dropped because the peer is gone, the peer sees that the
    /// body is not complete.
    ///
    /// ```
    /// use tidegate::http::{Body, Response};
    ///
    /// let rows = Body::produce(async |writer| {
    ///     for row in 0..1000 {
    ///         writer.write(format!("{row}\n")).await?;
    ///     }
    ///     Ok(())
    /// });
    /// let response = Response::new().body(rows);
    /// # drop(response);
    /// // The error of a writer is that of the function; every other one becomes that by `?`.
    /// let line = Body::produce(async |writer| writer.write("high water\n").await);
    /// let line_of_file = Body::produce(async |writer| Ok(writer.write(std::fs::read("tide.txt")?).await?));
    /// # drop((line, line_of_file));
    /// ```
    pub fn produce<F>(produce: impl FnOnce(BodyWriter) -> F + 'static) -> Self
    where
        F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
    {
        let produce = Box::new(move |writer| Box::pin(produce(writer)) as BodyFuture);
        Self(BodyKind::Produced(Box::new(ProducedBody { length: None, produce })))
    }

    /// A body in memory with fields after it. They are omitted where the protocol has no place for them: over HTTP/1.1 a
    /// body that has trailers is chunked.
    ///
    /// ```
    /// use tidegate::http::{Body, Fields, Response};
    ///
    /// let mut trailers = Fields::new();
    /// trailers.push("grpc-status", "0")?;
    /// let response = Response::new().body(Body::with_trailers("a message", trailers));
    /// # drop(response);
    /// # Ok::<_, tidegate::http::InvalidField>(())
    /// ```
    #[must_use]
    pub fn with_trailers(body: impl Into<Data>, trailers: Fields) -> Self {
        Self(BodyKind::WithTrailers(BodyWithTrailers { body: body.into().into_body(), trailers }))
    }

    /// A body of the pieces of a stream. An error of the stream ends the body before its end, which the peer sees.
    pub fn stream<D, E>(stream: impl Stream<Item = Result<D, E>> + 'static) -> Self
    where
        D: Into<Data>,
        E: Into<Box<dyn Error>>,
    {
        Self::produce(async move |writer| {
            let mut stream = pin!(stream);
            while let Some(piece) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
                writer.write(piece.map_err(Into::into)?).await?;
            }
            Ok(())
        })
    }

    /// The same body, if it is produced, with its length in bytes: exactly as many have to be written.
    #[must_use]
    pub fn with_length(self, length: u64) -> Self {
        Self(match self.0 {
            BodyKind::Produced(mut produced) => {
                produced.length = Some(length);
                BodyKind::Produced(produced)
            }
            BodyKind::WithTrailers(ready) => {
                BodyKind::Produced(Box::new(ProducedBody { length: Some(length), ..ready.into_produced() }))
            }
            kind => kind,
        })
    }

    /// The length in bytes, if it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            BodyKind::Whole(body) => Some(body.len()),
            BodyKind::Received(received) => received.length,
            BodyKind::WithTrailers(_) => None,
            BodyKind::Produced(produced) => produced.length,
            BodyKind::Upgrade(_) => Some(0),
        }
    }

    /// The next piece of a body that is received; `None` at its end. A body in memory is one piece.
    ///
    /// While nothing calls this, the loop receives nothing: a slow reader stops the peer.
    ///
    /// # Errors
    /// [`BodyError`]: the connection broke, the peer sent no more, or a limit was exceeded. The response can no longer be
    /// sent then, or the peer gets that of the limit.
    pub async fn next(&mut self) -> Option<Result<Data, BodyError>> {
        poll_fn(|cx| self.poll_next_piece(cx)).await
    }

    /// All of the body, at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`BodyError::TooLong`] beyond `bytes_max`; otherwise as [`next`](Self::next).
    pub async fn collect(&mut self, bytes_max: usize) -> Result<Data, BodyError> {
        if self.length().is_some_and(|length| length > bytes_max as u64) {
            return Err(BodyError::TooLong);
        }
        let Some(first) = self.next().await.transpose()? else { return Ok(Data::default()) };
        if Some(first.len() as u64) == self.length() && first.len() <= bytes_max {
            // The end of the body frees the connection for the next request.
            return Ok(if self.next().await.transpose()?.is_none() { first } else { Data::default() });
        }
        let mut all = BodyCollector::new(bytes_max).charged_to(self.account());
        all.add(&first)?;
        drop(first);
        while let Some(piece) = self.next().await.transpose()? {
            all.add(&piece)?;
        }
        let (bytes, charge) = all.into_parts();
        if let (BodyKind::Received(received), Some(charge)) = (&self.0, charge) {
            received.exchange.keep(received.number, *charge);
        }
        Ok(Data::from(bytes))
    }

    /// The account of the connection that it is received from.
    #[doc(hidden)]
    #[must_use]
    pub fn account(&self) -> Option<Account> {
        match &self.0 {
            BodyKind::Received(received) => received.exchange.account(received.number),
            _ => None,
        }
    }

    /// An application outside of this crate gets a piece of this body, of which it may keep a copy.
    #[doc(hidden)]
    pub fn hand_over(&self, piece: &[u8]) {
        if let BodyKind::Received(received) = &self.0 {
            received.exchange.hand_over(received.number, piece);
        }
    }

    /// The fields after the body, once [`next`](Self::next) has returned `None`.
    #[must_use]
    pub fn trailers(&self) -> Option<&Trailers> {
        match &self.0 {
            BodyKind::Received(received) => received.trailers.as_ref(),
            _ => None,
        }
    }

    fn poll_next_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Data, BodyError>>> {
        match &mut self.0 {
            BodyKind::Whole(body) => {
                let body = std::mem::replace(body, http1::Body::Empty);
                Poll::Ready(if body.is_empty() { None } else { Some(Data::of_body(body)) })
            }
            BodyKind::Received(received) => received.poll_next(cx),
            BodyKind::WithTrailers(_) | BodyKind::Produced(_) | BodyKind::Upgrade(_) => {
                Poll::Ready(Some(Err(BodyError::Unreadable)))
            }
        }
    }

    /// The bytes of a body that is in memory as a whole, to be kept or passed to another thread.
    ///
    /// # Errors
    /// Another body, unchanged.
    pub fn into_bytes(self) -> Result<Bytes, Self> {
        match self.0 {
            BodyKind::Whole(http1::Body::File(region)) => Err(region.into()),
            BodyKind::Whole(body) => Ok(Data::of_whole(body).into_bytes()),
            other => Err(Self(other)),
        }
    }

    /// The bytes of a body that is in memory as a whole; `None` of any other.
    #[doc(hidden)]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            BodyKind::Whole(http1::Body::File(_)) => None,
            BodyKind::Whole(body) => Some(body.memory()),
            _ => None,
        }
    }

    /// The bytes, if they are in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn collected(&self) -> &[u8] {
        match &self.0 {
            BodyKind::Whole(body) => body.memory(),
            _ => &[],
        }
    }

    /// The bytes, if they are in memory, to be kept.
    #[doc(hidden)]
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            BodyKind::Whole(body) => Data::of_whole(body.clone()).into_bytes(),
            _ => Bytes::new(),
        }
    }

    /// The bytes that it has in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            BodyKind::Received(received) => {
                received.first_pieces.iter().flat_map(|pieces| pieces.iter()).map(Slice::len).sum()
            }
            _ => self.collected().len(),
        }
    }

    /// Whether all of it is there, and trailers follow it.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn is_ready(&self) -> bool {
        matches!(self.0, BodyKind::WithTrailers(_))
    }

    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn is_whole(&self) -> bool {
        matches!(self.0, BodyKind::Whole(_))
    }
}

impl ReceivedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Data, BodyError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some(decoder) = &mut self.decoder {
                match ready!(decoder.poll_next(cx)) {
                    Ok(None) => {}
                    Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                    Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
                }
            }
            let piece = match self.first_pieces.as_mut().and_then(|pieces| pieces.pop_front()) {
                Some(piece) => Ok(Some(Piece::Data(piece))),
                None => ready!(self.exchange.poll_body(self.number, cx)),
            };
            match piece {
                Ok(Some(Piece::Data(slice))) => match &mut self.decoder {
                    Some(decoder) => decoder.add(slice),
                    None => return Poll::Ready(Some(Ok(slice.into()))),
                },
                Ok(Some(Piece::Trailers(trailers))) => self.trailers = Some(trailers),
                Ok(None) => {
                    self.has_ended = true;
                    let end = self.decoder.take().map_or(Ok(()), |mut decoder| decoder.finish());
                    return Poll::Ready(end.err().map(Err));
                }
                Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
            }
        }
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.has_ended = true;
        error
    }
}

impl Stream for Body {
    type Item = Result<Data, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_piece(cx)
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("length", &self.length()).finish_non_exhaustive()
    }
}

macro_rules! body_from {
    ($($source:ty),*) => {
        $(impl From<$source> for Body {
            #[inline]
            fn from(source: $source) -> Self {
                Self(BodyKind::Whole(source.into()))
            }
        })*
    };
}

body_from!(&'static str, &'static [u8], String, Vec<u8>, Bytes, Slice, FileRegion);

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Data> for Body {
    fn from(data: Data) -> Self {
        Self(BodyKind::Whole(data.into_body()))
    }
}
