//! `Multipart`: a form with files, read part by part while it arrives.
//!
//! The parser is that of the crate `multer`. It gets one piece of the body at a time. This module bounds the bytes
//! before the head of a part is complete: the parser has no such bound.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tidegate_codec::work;
use tidegate_http_message::Body;
use tidegate_http_message::BodyError;
use tidegate_http1::Status;

use super::refusal::refuse;
use super::{FromRequest, media_type};
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// The body of a request of the media type `multipart/form-data` (RFC 7578), as browsers send forms with files: an
/// argument of an async function, which reads it part by part while it arrives. The loop receives no more than the
/// function reads.
///
/// A body of another media type is answered with 415, one without a valid boundary with 400. [`MultipartLimits`] has the
/// bounds and their defaults; the whole body has at most [`body_bytes_max`](crate::Limits::body_bytes_max) bytes, and
/// arrives at [`body_rate_min`](crate::Limits::body_rate_min) or faster. A [`MultipartError`] that the function returns is
/// a response.
///
/// ```
/// use tidegate::http::{Multipart, MultipartError, Router};
///
/// let router = Router::new().post("/upload", async |mut form: Multipart| {
///     let mut bytes = 0;
///     while let Some(mut field) = form.next().await? {
///         while let Some(piece) = field.next().await? {
///             bytes += piece.len();
///         }
///     }
///     Ok::<_, MultipartError>(format!("{bytes} bytes\n"))
/// });
/// # drop(router);
/// ```
pub struct Multipart {
    parser: multer::Multipart<'static>,
    pieces: Pieces,
    body: Body,
    /// The part that is being read.
    current: Option<multer::Field<'static>>,
    parts: usize,
    limits: MultipartLimits,
}

/// Limits that protect an application that reads the parts of a form.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MultipartLimits {
    /// How many parts a body may have. 100. It stops a peer that sends very many tiny ones.
    pub parts_max: usize,
    /// Bytes of the head of a part, and of the bytes before the first one. 8 KiB. It bounds the memory of a part that
    /// is read piece by piece.
    pub head_bytes_max: usize,
    /// Bytes of a part that is collected by [`Field::bytes`] or [`Field::text`]. 1 MiB. It bounds the memory of a part.
    pub field_bytes_max: usize,
}

impl Default for MultipartLimits {
    fn default() -> Self {
        Self { parts_max: 100, head_bytes_max: 8 * 1024, field_bytes_max: 1024 * 1024 }
    }
}

/// How long scanning a byte for the boundary takes, in nanoseconds, with copying it.
const SCANNING_NANOS: u64 = 2;

/// The longest boundary (RFC 2046 §5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

impl<S> FromRequest<S> for Multipart {
    const BODY: BodyUse = BodyUse::Streamed;

    fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        if !media_type::of(request).eq_ignore_ascii_case("multipart/form-data") {
            return Err(refuse(Status::UNSUPPORTED_MEDIA_TYPE, "the body has to be multipart/form-data"));
        }
        let boundary = multer::parse_boundary(request.header_str("content-type").unwrap_or_default()).ok();
        match boundary.filter(|boundary| (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())) {
            Some(boundary) => Ok(Self::new(std::mem::take(request.body_mut()), boundary)),
            None => Err(refuse(Status::BAD_REQUEST, "the media type of the body has no valid boundary")),
        }
    }

    fn is_absent(request: &Request) -> bool {
        super::has_no_body(request)
    }
}

impl Multipart {
    fn new(body: Body, boundary: String) -> Self {
        let pieces = Pieces::default();
        let parser = multer::Multipart::new(pieces.clone(), boundary);
        Self { parser, pieces, body, current: None, parts: 0, limits: MultipartLimits::default() }
    }

    /// Replaces the limits.
    #[must_use]
    pub fn limits(mut self, limits: MultipartLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The next part; `None` at the end of the form. The unread rest of the part before is skipped.
    ///
    /// # Errors
    /// [`MultipartError`].
    pub async fn next(&mut self) -> Result<Option<Field<'_>>, MultipartError> {
        while poll_fn(|cx| self.poll_data(cx)).await?.is_some() {}
        self.current = None;
        let Some(field) = poll_fn(|cx| self.poll_field(cx)).await? else { return Ok(None) };
        self.parts += 1;
        if self.parts > self.limits.parts_max {
            return Err(MultipartError::TooManyParts);
        }
        self.current = Some(field);
        Ok(Some(Field { form: self }))
    }

    /// The head of the next part.
    fn poll_field(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<multer::Field<'static>>, MultipartError>> {
        loop {
            if let Poll::Ready(field) = self.parser.poll_next_field(cx) {
                self.pieces.begin_count();
                return Poll::Ready(Ok(field?));
            }
            if self.pieces.count() > self.limits.head_bytes_max {
                return Poll::Ready(Err(MultipartError::HeadTooLong));
            }
            ready!(self.poll_piece(cx))?;
        }
    }

    /// The next bytes of the current part.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, MultipartError>> {
        loop {
            let Some(field) = &mut self.current else { return Poll::Ready(Ok(None)) };
            match Pin::new(field).poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) if piece.is_empty() => {}
                Poll::Ready(piece) => {
                    self.pieces.begin_count();
                    return Poll::Ready(Ok(piece.transpose()?));
                }
                Poll::Pending => ready!(self.poll_piece(cx))?,
            }
        }
    }

    /// Gives the parser the next piece of the body, or its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), MultipartError>> {
        if self.pieces.with(|waiting| waiting.has_ended) {
            return Poll::Ready(Err(MultipartError::Malformed));
        }
        let piece = ready!(Pin::new(&mut self.body).poll_next(cx)).transpose().map_err(MultipartError::Body)?;
        let piece = piece.map(crate::Data::into_bytes);
        if let Some(piece) = &piece {
            self.body.hand_over(piece);
        }
        // Each part of the engine's turn that reads such bodies ends when this has come to its time.
        work::add(piece.as_ref().map_or(0, Bytes::len) as u64 * SCANNING_NANOS);
        self.pieces.give(piece);
        Poll::Ready(Ok(()))
    }

    fn field(&self) -> Option<&multer::Field<'static>> {
        self.current.as_ref()
    }
}

/// One part of a form: see [`Multipart::next`].
pub struct Field<'a> {
    form: &'a mut Multipart,
}

impl Field<'_> {
    /// The name of the field in the form.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.form.field()?.name()
    }

    /// The name of the file, if it is one, as the peer sent it: it may have any characters, such as `../`.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.form.field()?.file_name()
    }

    /// The media type that the peer has given.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.header("content-type")
    }

    /// The value of a field of the part's head, if it is text. Case does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.form.field()?.headers().get(name)?.to_str().ok()
    }

    /// The next piece of the part; `None` at its end.
    ///
    /// # Errors
    /// [`MultipartError`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, MultipartError> {
        poll_fn(|cx| self.form.poll_data(cx)).await
    }

    /// All of the part, at most [`field_bytes_max`](MultipartLimits::field_bytes_max) bytes.
    ///
    /// # Errors
    /// [`MultipartError::FieldTooLong`] beyond the limit; otherwise as [`next`](Self::next).
    pub async fn bytes(mut self) -> Result<Vec<u8>, MultipartError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            if piece.len() > self.form.limits.field_bytes_max.saturating_sub(all.len()) {
                return Err(MultipartError::FieldTooLong);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// All of the part as text in UTF-8, with the limit of [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// [`MultipartError::NotText`] if it is not UTF-8; otherwise as [`bytes`](Self::bytes).
    pub async fn text(self) -> Result<String, MultipartError> {
        String::from_utf8(self.bytes().await?).map_err(|_| MultipartError::NotText)
    }
}

/// Why a form cannot be read further. As a response: 400, 413 for a limit, and that of the [`BodyError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum MultipartError {
    /// The body is not a form of parts, or ends before its last boundary.
    Malformed,
    /// A collected part is not UTF-8.
    NotText,
    /// The form has more parts than [`parts_max`](MultipartLimits::parts_max).
    TooManyParts,
    /// The head of a part is longer than [`head_bytes_max`](MultipartLimits::head_bytes_max).
    HeadTooLong,
    /// A collected part is longer than [`field_bytes_max`](MultipartLimits::field_bytes_max).
    FieldTooLong,
    /// The body cannot be read.
    Body(BodyError),
}

impl From<multer::Error> for MultipartError {
    fn from(_: multer::Error) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the body is not a form of parts, or ends before its last boundary",
            Self::NotText => "a field of the form is not UTF-8",
            Self::TooManyParts => "the form has too many parts",
            Self::HeadTooLong => "the head of a part of the form is too long",
            Self::FieldTooLong => "a field of the form is too long",
            Self::Body(error) => return error.fmt(f),
        })
    }
}

impl Error for MultipartError {}

impl IntoResponse for MultipartError {
    fn into_response(self) -> Response {
        match self {
            Self::Malformed | Self::NotText => refuse(Status::BAD_REQUEST, self),
            Self::TooManyParts | Self::HeadTooLong | Self::FieldTooLong => {
                // The rest of the body is not worth receiving.
                refuse(Status::CONTENT_TOO_LARGE, self).close()
            }
            Self::Body(error) => error.into_response(),
        }
    }
}

/// The pieces of the body on their way to the parser, which demands a stream that is `Send`.
#[derive(Debug, Clone, Default)]
struct Pieces(Arc<Mutex<PieceSlot>>);

#[derive(Debug, Default)]
struct PieceSlot {
    piece: Option<Bytes>,
    has_ended: bool,
    /// Bytes since the parser had a result.
    count: usize,
}

impl Pieces {
    fn with<T>(&self, act: impl FnOnce(&mut PieceSlot) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(&self, piece: Option<Bytes>) {
        self.with(|waiting| {
            waiting.has_ended = piece.is_none();
            waiting.count += piece.as_ref().map_or(0, Bytes::len);
            waiting.piece = piece;
        });
    }

    fn begin_count(&self) {
        self.with(|waiting| waiting.count = 0);
    }

    fn count(&self) -> usize {
        self.with(|waiting| waiting.count)
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.with(|waiting| match waiting.piece.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None if waiting.has_ended => Poll::Ready(None),
            // `poll_piece` gives one and polls again.
            None => Poll::Pending,
        })
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart").field("parts", &self.parts).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field")
            .field("name", &self.name())
            .field("file_name", &self.file_name())
            .finish_non_exhaustive()
    }
}
