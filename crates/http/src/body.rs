//! `Body`: of a request or of a response; in memory, in a file, received piece by piece, or produced while it is sent.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tidegate_buffer::{FileRegion, Slice};
use tidegate_engine::{Account, ConnectionCharge};
use tidegate_http1::{self as http1, Fields, Trailers};

use crate::exchange::{BodyError, Exchange, Piece};
use crate::slices::Slices;
use crate::upgrade::Upgrade;

/// The body of a request or of a response.
///
/// A body in memory, or of a file, is sent with its length. One that is [produced](Self::produce) or
/// [streamed](Self::stream) has no length unless it is [given](Self::with_length): over HTTP/1.1 it is chunked. The body
/// of a request may be that of a response: it is passed on piece by piece, as fast as the peer reads.
pub struct Body(pub(crate) Kind);

pub(crate) enum Kind {
    /// In memory or in a file.
    Whole(http1::Body),
    /// Received from the peer, piece by piece.
    Received(Received),
    /// In memory, and fields follow it.
    Ready(Ready),
    /// Produced while it is sent.
    Produced(Box<Produced>),
    /// No body: the response leaves HTTP.
    Upgrade(Box<Upgrade>),
}

/// A body that is received piece by piece.
pub(crate) struct Received {
    pub(crate) exchange: Rc<dyn Exchange>,
    /// The number of the exchange on its connection.
    pub(crate) number: u32,
    pub(crate) length: Option<u64>,
    /// Pieces that came before a task served the request.
    #[expect(
        clippy::box_collection,
        reason = "most bodies have no such pieces, and a result with a response stays small"
    )]
    pub(crate) begun: Option<Box<VecDeque<Slice>>>,
    pub(crate) has_ended: bool,
    pub(crate) trailers: Option<Trailers>,
    pub(crate) decoding: Option<Box<DecodedPieces>>,
}

/// Undoes a content coding.
pub(crate) trait Decode {
    /// Decodes until there are `bytes_max` bytes or a few more.
    fn decode(&mut self, input: &[u8], bytes_max: usize) -> Result<Decoded, BodyError>;

    /// The input has ended.
    fn finish(&mut self) -> Result<(), BodyError>;
}

/// What a step of decoding yields.
pub(crate) struct Decoded {
    pub(crate) bytes: Vec<u8>,
    /// Bytes taken from the beginning of the input.
    pub(crate) read: usize,
    /// All input is taken, and nothing more comes of it.
    pub(crate) is_complete: bool,
}

/// A body that is decoded piece by piece.
pub(crate) struct DecodedPieces {
    decode: Box<dyn Decode>,
    /// A piece of which not everything is decoded.
    piece: Option<Slice>,
    slices: Slices,
}

impl DecodedPieces {
    #[cfg(feature = "compress")]
    pub(crate) fn new(decode: Box<dyn Decode>) -> Self {
        Self { decode, piece: None, slices: Slices::new(DECODED_SLICE_BYTES) }
    }

    /// The rest of the piece; `None` if another one is needed. It waits for a turn of the loop after each slice: a few
    /// bytes may become many.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Data>, BodyError>> {
        while let Some(piece) = &mut self.piece {
            ready!(self.slices.poll_left(cx));
            let decoded = self.decode.decode(piece, DECODED_BYTES)?;
            self.slices.take(decoded.read + decoded.bytes.len());
            piece.advance(decoded.read);
            if decoded.is_complete {
                self.piece = None;
            }
            if !decoded.bytes.is_empty() {
                return Poll::Ready(Ok(Some(decoded.bytes.into())));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// All of a whole body.
    #[cfg(feature = "compress")]
    pub(crate) fn decode_all(mut self, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut collected = Collected::new(bytes_max);
        let mut rest = body;
        loop {
            let decoded = self.decode.decode(rest, DECODED_BYTES)?;
            collected.add(&decoded.bytes)?;
            rest = &rest[decoded.read..];
            if decoded.is_complete {
                self.decode.finish()?;
                return Ok(collected.into_bytes());
            }
        }
    }
}

/// How much is decoded at a time: a bomb yields no more than this before the function asks for more.
const DECODED_BYTES: usize = 16 * 1024;

/// How many bytes are read and decoded in one turn of the loop. That takes about half a millisecond.
#[cfg(feature = "compress")]
const DECODED_SLICE_BYTES: usize = 128 * 1024;

/// A body that is produced while it is sent.
pub(crate) struct Produced {
    pub(crate) length: Option<u64>,
    /// Writes the body.
    pub(crate) produce: Box<dyn FnOnce(BodyWriter) -> Producing>,
}

/// A body of which all is there, and fields follow it.
pub(crate) struct Ready {
    pub(crate) body: http1::Body,
    pub(crate) trailers: Fields,
}

impl Ready {
    /// Writes the body.
    pub(crate) async fn write(self, writer: BodyWriter) -> Result<(), Box<dyn Error>> {
        writer.write(Data(self.body)).await?;
        Ok(writer.trailers(self.trailers)?)
    }

    /// The same body as one that is produced.
    pub(crate) fn into_produced(self) -> Produced {
        Produced { length: None, produce: Box::new(move |writer| Box::pin(self.write(writer))) }
    }
}

pub(crate) type Producing = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>;

impl Body {
    /// No body.
    #[must_use]
    #[inline]
    pub const fn empty() -> Self {
        Self(Kind::Whole(http1::Body::Empty))
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
        let produce = Box::new(move |writer| Box::pin(produce(writer)) as Producing);
        Self(Kind::Produced(Box::new(Produced { length: None, produce })))
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
        Self(Kind::Ready(Ready { body: body.into().into_body(), trailers }))
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
            Kind::Produced(mut produced) => {
                produced.length = Some(length);
                Kind::Produced(produced)
            }
            Kind::Ready(ready) => Kind::Produced(Box::new(Produced { length: Some(length), ..ready.into_produced() })),
            kind => kind,
        })
    }

    /// The length in bytes, if it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Whole(body) => Some(body.len()),
            Kind::Received(received) => received.length,
            Kind::Ready(_) => None,
            Kind::Produced(produced) => produced.length,
            Kind::Upgrade(_) => Some(0),
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
        let mut all = Collected::new(bytes_max).charged_to(self.account());
        all.add(&first)?;
        drop(first);
        while let Some(piece) = self.next().await.transpose()? {
            all.add(&piece)?;
        }
        let (bytes, charge) = all.into_parts();
        if let (Kind::Received(received), Some(charge)) = (&self.0, charge) {
            received.exchange.keep(received.number, *charge);
        }
        Ok(Data::from(bytes))
    }

    /// The account of the connection that it is received from.
    pub(crate) fn account(&self) -> Option<Account> {
        match &self.0 {
            Kind::Received(received) => received.exchange.account(received.number),
            _ => None,
        }
    }

    /// An application outside of this crate gets a piece of this body, of which it may keep a copy.
    #[doc(hidden)]
    pub fn hand_over(&self, piece: &[u8]) {
        if let Kind::Received(received) = &self.0 {
            received.exchange.hand_over(received.number, piece);
        }
    }

    /// The fields after the body, once [`next`](Self::next) has returned `None`.
    #[must_use]
    pub fn trailers(&self) -> Option<&Trailers> {
        match &self.0 {
            Kind::Received(received) => received.trailers.as_ref(),
            _ => None,
        }
    }

    fn poll_next_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Data, BodyError>>> {
        match &mut self.0 {
            Kind::Whole(body) => {
                let body = std::mem::replace(body, http1::Body::Empty);
                Poll::Ready(if body.is_empty() { None } else { Some(Data::of_body(body)) })
            }
            Kind::Received(received) => received.poll_next(cx),
            Kind::Ready(_) | Kind::Produced(_) | Kind::Upgrade(_) => Poll::Ready(Some(Err(BodyError::Unreadable))),
        }
    }

    /// The bytes of a body that is in memory as a whole, to be kept or passed to another thread.
    ///
    /// # Errors
    /// Another body, unchanged.
    pub fn into_bytes(self) -> Result<Bytes, Self> {
        match self.0 {
            Kind::Whole(http1::Body::File(region)) => Err(region.into()),
            Kind::Whole(body) => Ok(Data(body).into_bytes()),
            other => Err(Self(other)),
        }
    }

    /// The bytes of a body that is in memory as a whole; `None` of any other.
    #[doc(hidden)]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Whole(http1::Body::File(_)) => None,
            Kind::Whole(body) => Some(body.memory()),
            _ => None,
        }
    }

    /// The bytes, if they are in memory.
    pub(crate) fn collected(&self) -> &[u8] {
        match &self.0 {
            Kind::Whole(body) => body.memory(),
            _ => &[],
        }
    }

    /// The bytes, if they are in memory, to be kept.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Kind::Whole(body) => Data(body.clone()).into_bytes(),
            _ => Bytes::new(),
        }
    }

    /// The bytes that it has in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.0 {
            Kind::Received(received) => received.begun.iter().flat_map(|begun| begun.iter()).map(Slice::len).sum(),
            _ => self.collected().len(),
        }
    }

    /// Whether all of it is there, and trailers follow it.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.0, Kind::Ready(_))
    }

    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.0, Kind::Whole(_))
    }
}

impl Received {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Data, BodyError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some(decoding) = &mut self.decoding {
                match ready!(decoding.poll_next(cx)) {
                    Ok(None) => {}
                    Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                    Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
                }
            }
            let piece = match self.begun.as_mut().and_then(|begun| begun.pop_front()) {
                Some(piece) => Ok(Some(Piece::Data(piece))),
                None => ready!(self.exchange.poll_body(self.number, cx)),
            };
            match piece {
                Ok(Some(Piece::Data(slice))) => match &mut self.decoding {
                    Some(decoding) => decoding.piece = Some(slice),
                    None => return Poll::Ready(Some(Ok(slice.into()))),
                },
                Ok(Some(Piece::Trailers(trailers))) => self.trailers = Some(trailers),
                Ok(None) => {
                    self.has_ended = true;
                    let end = self.decoding.take().map_or(Ok(()), |mut decoding| decoding.decode.finish());
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
                Self(Kind::Whole(source.into()))
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
        Self(Kind::Whole(data.0))
    }
}

/// A piece of a body, in memory: a view of the loop's, shared, or static bytes.
#[derive(Debug, Clone)]
pub struct Data(http1::Body);

impl Data {
    /// The bytes, to be kept or passed to another thread: copied if they lie in the loop's memory.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            http1::Body::Static(bytes) => Bytes::from_static(bytes),
            http1::Body::Bytes(bytes) => bytes,
            http1::Body::Slice(slice) => slice.to_bytes(),
            http1::Body::Empty | http1::Body::File(_) => Bytes::new(),
        }
    }

    /// A whole body that is no file.
    fn of_body(body: http1::Body) -> Result<Self, BodyError> {
        if matches!(body, http1::Body::File(_)) { Err(BodyError::Unreadable) } else { Ok(Self(body)) }
    }

    pub(crate) fn into_body(self) -> http1::Body {
        self.0
    }

    /// The same bytes in memory of about their size.
    pub(crate) fn fit(self) -> Self {
        match self.0 {
            http1::Body::Slice(slice) => Self(http1::Body::Slice(slice.fit())),
            other => Self(other),
        }
    }

    /// The same bytes, which may be kept: a short view of the loop's memory is copied.
    pub(crate) fn kept(&self) -> Self {
        match &self.0 {
            http1::Body::Slice(slice) => Self(http1::Body::Slice(slice.clone().detach())),
            other => Self(other.clone()),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self(http1::Body::Empty)
    }
}

impl Deref for Data {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.memory()
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

macro_rules! data_from {
    ($($source:ty),*) => {
        $(impl From<$source> for Data {
            #[inline]
            fn from(source: $source) -> Self {
                Self(source.into())
            }
        })*
    };
}

data_from!(&'static str, &'static [u8], String, Vec<u8>, Bytes, Slice);

/// Bytes that are collected, up to a limit.
pub(crate) struct Collected {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The connection whose memory they are.
    account: Option<Account>,
    charge: Option<Box<ConnectionCharge>>,
}

impl Collected {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, account: None, charge: None }
    }

    /// The bytes count as memory of the connection with this account.
    pub(crate) fn charged_to(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            return Err(BodyError::TooLong);
        }
        self.bytes.extend_from_slice(piece);
        match &mut self.charge {
            Some(charge) => charge.resize(self.bytes.capacity()),
            None => self.charge = self.account.as_ref().and_then(|account| charge(account, self.bytes.capacity())),
        }
        Ok(())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes, and what counts them.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Box<ConnectionCharge>>) {
        (self.bytes, self.charge)
    }
}

/// Counts the bytes of a body as memory of its connection, if they are worth it.
pub(crate) fn charge(account: &Account, bytes: usize) -> Option<Box<ConnectionCharge>> {
    (bytes >= CHARGED_BYTES_MIN).then(|| Box::new(account.charge(bytes)))
}

/// A shorter body does not count: its request takes as much memory, which does not count either.
const CHARGED_BYTES_MIN: usize = 1024;

/// Writes the body of a response while it is sent: see [`Body::produce`].
pub struct BodyWriter {
    pub(crate) exchange: Rc<dyn Exchange>,
    pub(crate) number: u32,
}

impl BodyWriter {
    /// Sends a piece, after those before it have room: while the peer reads slowly, this waits. An empty piece sends
    /// nothing.
    ///
    /// # Errors
    /// A [`BodyError`], boxed as the function's own errors: the connection is closed, or the body is longer than its length.
    pub async fn write(&self, piece: impl Into<Data>) -> Result<(), Box<dyn Error>> {
        let piece = http1::Outgoing::Data(piece.into().into_body());
        Ok(self.send(piece).await?)
    }

    /// Sends a part of a file as a piece, as [`write`](Self::write) sends one in memory. The kernel reads the file while it
    /// sends: one that turns out to be shorter ends the connection.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_file(&self, region: FileRegion) -> Result<(), Box<dyn Error>> {
        Ok(self.send(http1::Outgoing::Data(region.into())).await?)
    }

    pub(crate) async fn send(&self, piece: http1::Outgoing) -> Result<(), BodyError> {
        poll_fn(|cx| self.exchange.poll_ready(self.number, cx)).await?;
        self.exchange.send(self.number, piece)
    }

    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_ready(self.number, cx)
    }

    /// Waits until the pieces that were sent have left their queue.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.exchange.poll_flush(self.number, cx)
    }

    /// Sends a piece for which there is room.
    pub(crate) fn push(&self, piece: Data) -> Result<(), BodyError> {
        self.exchange.send(self.number, http1::Outgoing::Data(piece.into_body()))
    }

    /// Waits until another piece has room, without sending one.
    ///
    /// # Errors
    /// [`BodyError::Closed`] if the connection is closed.
    pub async fn ready(&self) -> Result<(), BodyError> {
        poll_fn(|cx| self.exchange.poll_ready(self.number, cx)).await
    }

    /// Ends the body with fields after it. They are omitted where the body is not chunked. The next request of the
    /// connection is handled when the function that writes the body has returned.
    ///
    /// # Errors
    /// [`BodyError`]: the connection is closed, or a field may not be a trailer.
    pub fn trailers(self, fields: Fields) -> Result<(), BodyError> {
        self.exchange.send(self.number, http1::Outgoing::Trailers(fields))
    }
}

impl fmt::Debug for BodyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyWriter")
    }
}
