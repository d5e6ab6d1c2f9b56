//! `ResponseCompression`: the bodies of responses in a content coding that the client accepts.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_compress::{Compression, Compressor};
use tidegate_http1::{self as http1, Fields, Outgoing, Status};

use super::algorithm;
use crate::body::{Body, BodyWriter, Data, Kind, Produced};
use crate::exchange::{BodyError, Exchange, Piece};
use crate::middleware::{Middleware, RequestInfo};
use crate::negotiate::{AcceptedEncodings, Encoding};
use crate::response::Response;

/// Compresses the bodies of responses, with the content coding that the client prefers among brotli, zstd and gzip, as far
/// as they are built in.
///
/// A body is left as it is if it has a coding already or is a part of a range, if it is shorter than
/// [`bytes_min`](Self::bytes_min), if its media type is one that is compressed already, such as an image, or unknown, and
/// if `Cache-Control` has `no-transform`. Compressible responses get `Vary: Accept-Encoding` in any case. A strong `ETag`
/// of a compressed response becomes weak.
///
/// A body of up to 64 KiB is compressed at once. A longer one is compressed in pieces while it is sent, and what a
/// producer has written leaves when the producer waits. The context of a compression exists while its response is sent.
///
/// ```
/// use tidegate::http::{ResponseCompression, Router};
///
/// let router = Router::new().get("/", || "hello ".repeat(1000)).with(ResponseCompression::new());
/// # drop(router);
/// ```
#[derive(Debug)]
pub struct ResponseCompression {
    offered: Vec<Encoding>,
    bytes_min: u64,
    level: Option<u8>,
}

impl ResponseCompression {
    /// With all codings that are built in.
    #[must_use]
    pub fn new() -> Self {
        let all = [Encoding::Brotli, Encoding::Zstd, Encoding::Gzip];
        let mut offered: Vec<_> = all.into_iter().filter(|encoding| algorithm(*encoding).is_some()).collect();
        offered.push(Encoding::Identity);
        Self { offered, bytes_min: 512, level: None }
    }

    /// Only with these codings, the preferred one first among those that a client likes equally well.
    #[must_use]
    pub fn encodings(mut self, encodings: impl IntoIterator<Item = Encoding>) -> Self {
        self.offered = encodings.into_iter().filter(|encoding| algorithm(*encoding).is_some()).collect();
        self.offered.push(Encoding::Identity);
        self
    }

    /// The shortest body that is compressed, in bytes. 512.
    #[must_use]
    pub fn bytes_min(mut self, bytes_min: u64) -> Self {
        self.bytes_min = bytes_min;
        self
    }

    /// How hard each algorithm tries; see [`Compression::level`].
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.level = Some(level);
        self
    }

    fn compressor(&self, encoding: Encoding) -> Option<Compressor> {
        let compression = Compression::new(algorithm(encoding)?);
        Some(Compressor::new(self.level.map_or(compression, |level| compression.level(level))))
    }
}

impl Default for ResponseCompression {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for ResponseCompression {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if !is_compressible(response) || response.body.length().is_some_and(|length| length < self.bytes_min) {
            return;
        }
        if !has_element(response.field("vary"), b"accept-encoding") && !has_element(response.field("vary"), b"*") {
            response.fields.push("Vary", "Accept-Encoding").expect("it is a field");
        }
        if has_element(response.field("cache-control"), b"no-transform") {
            return;
        }
        let mut accepted = AcceptedEncodings::new();
        for (name, value) in info.request().head().headers() {
            if name.eq_ignore_ascii_case(b"accept-encoding") {
                accepted.add(value);
            }
        }
        let Some(encoding) = accepted.preferred(&self.offered) else { return };
        let Some(compressor) = self.compressor(encoding) else { return };
        response.end_events_at_drain();
        let body = std::mem::take(&mut response.body);
        match compressed(body, compressor) {
            Ok(body) => response.body = body,
            Err(error) => {
                tracing::error!("a response could not be compressed: {error}");
                *response = Response::of_error(Status::INTERNAL_SERVER_ERROR);
                return;
            }
        }
        response.fields.push("Content-Encoding", encoding.as_str()).expect("it is a field");
        // A range is one of the representation that was not compressed.
        response.fields.remove("accept-ranges");
        weaken_etag(&mut response.fields);
    }
}

/// The same body, compressed.
fn compressed(body: Body, mut compressor: Compressor) -> Result<Body, Box<dyn std::error::Error>> {
    match body.0 {
        Kind::Whole(http1::Body::File(region)) if region.length > AT_ONCE_BYTES_MAX => {
            Ok(Body::produce(async move |mut writer| {
                let (mut at, end) = (region.offset, region.offset + region.length);
                while at < end {
                    let piece = read(&region.file, at, (end - at).min(AT_ONCE_BYTES_MAX))?;
                    at += piece.len() as u64;
                    write_compressed(&mut compressor, &piece, &mut writer).await?;
                }
                write_end(compressor, writer).await
            }))
        }
        Kind::Whole(http1::Body::File(region)) => {
            let bytes = read(&region.file, region.offset, region.length)?;
            at_once(&bytes, compressor)
        }
        Kind::Whole(body) if body.len() > AT_ONCE_BYTES_MAX => Ok(Body::produce(async move |mut writer| {
            for piece in body.memory().chunks(AT_ONCE_BYTES_MAX as usize) {
                write_compressed(&mut compressor, piece, &mut writer).await?;
            }
            write_end(compressor, writer).await
        })),
        Kind::Whole(body) => at_once(body.memory(), compressor),
        Kind::Received(received) => {
            let mut body = Body(Kind::Received(received));
            Ok(Body::produce(async move |mut writer| {
                while let Some(piece) = body.next().await.transpose()? {
                    write_compressed(&mut compressor, &piece, &mut writer).await?;
                }
                write_end(compressor, writer).await
            }))
        }
        Kind::Upgrade(upgrade) => Ok(Body(Kind::Upgrade(upgrade))),
        Kind::Ready(ready) => Ok(Body(Kind::Produced(Box::new(compress_producer(ready.into_produced(), compressor))))),
        Kind::Produced(produced) => Ok(Body(Kind::Produced(Box::new(compress_producer(*produced, compressor))))),
    }
}

fn at_once(bytes: &[u8], mut compressor: Compressor) -> Result<Body, Box<dyn std::error::Error>> {
    let mut compressed = Vec::with_capacity(bytes.len() / 2);
    compressor.finish_with(bytes, &mut compressed)?;
    Ok(compressed.into())
}

/// Exactly `length` bytes of a file.
fn read(file: &File, at: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

async fn write_compressed(
    compressor: &mut Compressor,
    piece: &[u8],
    writer: &mut BodyWriter,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut compressed = Vec::new();
    compressor.write(piece, &mut compressed)?;
    writer.write(compressed).await?;
    let_others_run().await;
    Ok(())
}

/// Lets the other tasks and connections of the loop run. A body that compresses well yields so few bytes that room for them
/// does not stop its task.
async fn let_others_run() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn write_end(mut compressor: Compressor, mut writer: BodyWriter) -> Result<(), Box<dyn std::error::Error>> {
    let mut compressed = Vec::new();
    compressor.finish(&mut compressed)?;
    writer.write(compressed).await?;
    Ok(())
}

/// The same producer, whose writer compresses. When the producer waits, what it has written leaves.
fn compress_producer(produced: Produced, compressor: Compressor) -> Produced {
    let produce = produced.produce;
    let produce = move |writer: BodyWriter| {
        let number = writer.number;
        let compressing = Rc::new(Compressing {
            inner: writer.exchange,
            number,
            written: Cell::new(0),
            lets_others_run: Cell::new(false),
            compressor: RefCell::new(Some(compressor)),
        });
        let mut producing = produce(BodyWriter { exchange: compressing.clone(), number });
        let future = async move {
            poll_fn(|cx| match producing.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(result),
                // It goes on at once.
                Poll::Pending if compressing.lets_others_run.take() => Poll::Pending,
                Poll::Pending => match compressing.flush() {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error.into())),
                },
            })
            .await?;
            Ok(compressing.finish()?)
        };
        Box::pin(future) as crate::body::Producing
    };
    Produced { length: None, produce: Box::new(produce) }
}

/// An exchange whose body is compressed on its way.
struct Compressing {
    inner: Rc<dyn Exchange>,
    number: u32,
    /// What was written since the other tasks of the loop could run.
    written: Cell<u64>,
    /// The producer waits for that alone.
    lets_others_run: Cell<bool>,
    /// Until the end of the body.
    compressor: RefCell<Option<Compressor>>,
}

impl Compressing {
    fn send_compressed(
        &self,
        compress: impl FnOnce(&mut Compressor, &mut Vec<u8>) -> Result<usize, tidegate_compress::Error>,
    ) -> Result<(), BodyError> {
        let mut compressed = Vec::new();
        if let Some(compressor) = &mut *self.compressor.borrow_mut() {
            compress(compressor, &mut compressed).map_err(|_| BodyError::Misuse("the body could not be compressed"))?;
        }
        if compressed.is_empty() {
            return Ok(());
        }
        self.inner.send(self.number, Outgoing::Data(Data::from(compressed).into_body()))
    }

    fn flush(&self) -> Result<(), BodyError> {
        self.send_compressed(Compressor::flush)
    }

    fn finish(&self) -> Result<(), BodyError> {
        self.send_compressed(Compressor::finish)?;
        *self.compressor.borrow_mut() = None;
        Ok(())
    }
}

impl Exchange for Compressing {
    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.inner.poll_body(number, cx)
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.written.get() >= AT_ONCE_BYTES_MAX {
            // As in the function `let_others_run`.
            self.written.set(0);
            self.lets_others_run.set(true);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.inner.poll_ready(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        match message {
            Outgoing::Data(piece) => {
                self.written.set(self.written.get() + piece.len());
                self.send_compressed(|compressor, out| compressor.write(piece.memory(), out))
            }
            Outgoing::End | Outgoing::Trailers(_) => {
                self.finish()?;
                self.inner.send(number, message)
            }
            other => self.inner.send(number, other),
        }
    }
}

/// Whether the response has a body that is worth it.
fn is_compressible(response: &Response) -> bool {
    response.status.allows_body()
        && response.status != Status::PARTIAL_CONTENT
        && response.field("content-encoding").is_none()
        && response.field("content-range").is_none()
        && response.body.length() != Some(0)
        && response.field("content-type").is_some_and(is_compressible_type)
}

/// Media types whose content is not compressed in itself.
fn is_compressible_type(content_type: &[u8]) -> bool {
    let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let Some(slash) = essence.iter().position(|&byte| byte == b'/') else { return false };
    let (kind, name) = (&essence[..slash], &essence[slash + 1..]);
    let is = |one: &str| name.eq_ignore_ascii_case(one.as_bytes());
    let ends =
        |end: &str| name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes());
    kind.eq_ignore_ascii_case(b"text")
        || ends("+json")
        || ends("+xml")
        || ends("+text")
        || kind.eq_ignore_ascii_case(b"application") && COMPRESSIBLE_APPLICATIONS.iter().any(|one| is(one))
        || kind.eq_ignore_ascii_case(b"font") && ["ttf", "otf", "collection"].iter().any(|one| is(one))
        || kind.eq_ignore_ascii_case(b"image") && ["bmp", "x-icon", "vnd.microsoft.icon"].iter().any(|one| is(one))
}

/// Whether a list of a field has an element, parameters aside.
fn has_element(field: Option<&[u8]>, name: &[u8]) -> bool {
    field.is_some_and(|field| {
        field.split(|&byte| byte == b',').any(|element| element.trim_ascii().eq_ignore_ascii_case(name))
    })
}

/// A compressed representation has other bytes than the one that a strong `ETag` is for (RFC 9110 §8.8.3.3).
fn weaken_etag(fields: &mut Fields) {
    let Some(etag) = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"etag")).map(|(_, value)| value) else {
        return;
    };
    if etag.starts_with(b"W/") {
        return;
    }
    let weak = [b"W/", etag].concat();
    fields.remove("etag");
    fields.push("ETag", weak).expect("it was a field before");
}

/// A body of this length is compressed at once; it holds the loop for about a millisecond.
const AT_ONCE_BYTES_MAX: u64 = 64 * 1024;

const COMPRESSIBLE_APPLICATIONS: [&str; 14] = [
    "json",
    "javascript",
    "x-javascript",
    "xml",
    "xhtml+xml",
    "wasm",
    "graphql",
    "x-www-form-urlencoded",
    "manifest+json",
    "ld+json",
    "x-ndjson",
    "yaml",
    "toml",
    "vnd.ms-fontobject",
];
