//! `ResponseCompression`: the bodies of responses in a content coding that the client accepts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tidegate_compress::{Compression, Compressor};
use tidegate_engine::{Account, ConnectionCharge, task};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyFuture, BodyKind, BodyWriter, Data, ProducedBody};
use tidegate_http_message::coding::algorithm;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http_message::negotiate::{AcceptedEncodings, Encoding};
use tidegate_http_message::slices::Slices;
use tidegate_http1::{self as http1, Fields, Outgoing, Status};

use crate::middleware::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::Response;

/// Compresses the bodies of responses, with the content coding that the client prefers among brotli, zstd and gzip, as far
/// as they are built in.
///
/// A body is left as it is if it has a coding already or is a part of a range, if it is shorter than
/// [`bytes_min`](Self::bytes_min), if its media type is one that is compressed already, such as an image, or unknown, and
/// if `Cache-Control` of the response or the request has `no-transform`. A body whose digest a field has (`Content-Digest`,
/// `Repr-Digest`, `Digest`, `Content-MD5`) stays as well: the digest is that of its bytes. Compressible responses get `Vary: Accept-Encoding` in any case, and so do a 304 and the parts of one. A strong `ETag`
/// of a compressed response becomes weak, and so does that of a 304 to a client that has the weak one alone.
///
/// A body of up to 64 KiB is compressed at once, or one of up to 4 KiB while the loop is busy with others. A longer one
/// is compressed in slices while it is sent, each of which takes about a millisecond: the bodies of a loop take turns,
/// and other connections are served in between. A producer's output leaves when the producer waits. The context of a
/// compression exists while its response is sent.
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

    /// How hard each algorithm tries; see [`Compression::level`]. A high level makes slices shorter, and so responses slower.
    /// Levels from 10 on are for files that are compressed once: a block of brotli, which cannot be divided, takes a tenth of
    /// a second, for which all connections of the loop wait.
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.level = Some(level);
        self
    }

    /// Whether the representation of which a response has a part would be compressed.
    fn may_compress_whole_of(&self, response: &Response) -> bool {
        let length = response.field("content-range").and_then(|range| range.rsplit(|&byte| byte == b'/').next());
        let length = length.and_then(|length| std::str::from_utf8(length).ok()?.parse::<u64>().ok());
        let is_of_text = |media: &[u8]| is_compressible_type(media) || media.starts_with(b"multipart/byteranges");
        response.field("content-encoding").is_none()
            && length.is_none_or(|length| length >= self.bytes_min)
            && response.field("content-type").is_some_and(is_of_text)
    }

    fn compression(&self, encoding: Encoding) -> Option<Compression> {
        let compression = Compression::new(algorithm(encoding)?);
        Some(self.level.map_or(compression, |level| compression.level(level)))
    }
}

impl Default for ResponseCompression {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for ResponseCompression {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if response.status == Status::NOT_MODIFIED {
            // It has the `Vary` of the 200 (RFC 9110 §15.4.5), whose body is not known here.
            if response.field("content-type").is_none_or(is_compressible_type) {
                add_vary(response);
            }
            if response.field("etag").is_some_and(|etag| knows_weak_alone(info.request(), etag)) {
                // A cache updates the response that it has only if the tags agree (RFC 9111 §4.3.4).
                weaken_etag(&mut response.fields);
            }
            return;
        }
        if response.status == Status::PARTIAL_CONTENT && self.may_compress_whole_of(response) {
            // It has the `Vary` of the 200 (RFC 9110 §15.3.7).
            add_vary(response);
        }
        if !is_compressible(response) || response.body.length().is_some_and(|length| length < self.bytes_min) {
            return;
        }
        add_vary(response);
        let request = info.request().head();
        if forbids_transform(response.fields.iter()) || forbids_transform(request.headers()) {
            return;
        }
        let mut accepted = AcceptedEncodings::new();
        for (name, value) in request.headers() {
            if name.eq_ignore_ascii_case(b"accept-encoding") {
                accepted.add(value);
            }
        }
        let Some(encoding) = accepted.preferred(&self.offered) else { return };
        let Some(compression) = self.compression(encoding) else { return };
        response.end_events_at_drain();
        let body = std::mem::take(&mut response.body);
        match compressed(body, compression) {
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
fn compressed(body: Body, compression: Compression) -> Result<Body, Box<dyn std::error::Error>> {
    // While other bodies are compressed, this one waits for its turn as they do.
    let at_once_max = if task::may_work_long() { AT_ONCE_BYTES_MAX } else { SHORT_BYTES_MAX };
    match body.into_kind() {
        BodyKind::Whole(body) if body.len() > at_once_max => {
            Ok(Body::produce(async move |writer| Piecewise::new(compression).write_whole(body, writer).await))
        }
        BodyKind::Whole(http1::Body::File(region)) => {
            at_once(&read(&region.file, region.offset, region.length as usize)?, compression)
        }
        BodyKind::Whole(body) => at_once(body.memory(), compression),
        BodyKind::Received(received) => {
            let body = Body::from(BodyKind::Received(received));
            Ok(Body::produce(async move |writer| Piecewise::new(compression).write_received(body, writer).await))
        }
        BodyKind::Upgrade(upgrade) => Ok(Body::from(BodyKind::Upgrade(upgrade))),
        BodyKind::WithTrailers(ready) => {
            Ok(Body::from(BodyKind::Produced(Box::new(compress_producer(ready.into_produced(), compression)))))
        }
        BodyKind::Produced(produced) => {
            Ok(Body::from(BodyKind::Produced(Box::new(compress_producer(*produced, compression)))))
        }
    }
}

fn at_once(bytes: &[u8], compression: Compression) -> Result<Body, Box<dyn std::error::Error>> {
    let mut compressed = Vec::with_capacity(bytes.len() / 2);
    Compressor::new(compression).finish_with(bytes, &mut compressed)?;
    Ok(compressed.into())
}

/// Exactly `length` bytes of a file.
fn read(file: &File, at: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Takes up to `bytes_max` bytes from the beginning of a body, and calls `act` with them.
fn take_slice<T>(body: &mut http1::Body, bytes_max: usize, act: impl FnOnce(&[u8]) -> T) -> std::io::Result<T> {
    let length = body.len().min(bytes_max as u64) as usize;
    if let http1::Body::File(region) = body {
        let bytes = read(&region.file, region.offset, length)?;
        region.offset += length as u64;
        region.length -= length as u64;
        return Ok(act(&bytes));
    }
    let result = act(&body.memory()[..length]);
    match body {
        http1::Body::Static(bytes) => *bytes = &bytes[length..],
        http1::Body::Bytes(bytes) => drop(bytes.split_to(length)),
        http1::Body::Slice(slice) => slice.advance(length),
        http1::Body::Empty | http1::Body::File(_) => {}
    }
    Ok(result)
}

/// Slices of a body that take about a millisecond each.
fn slices(compression: Compression) -> Slices {
    Slices::new(compression.bytes_within(SLICE_TIME))
}

/// Compresses a body in slices, each in a turn of its own, and writes each as soon as it is compressed.
struct Piecewise {
    compressor: Compressor,
    slices: Slices,
}

impl Piecewise {
    fn new(compression: Compression) -> Self {
        Self { compressor: Compressor::new(compression), slices: slices(compression) }
    }

    async fn write_whole(
        mut self,
        mut body: http1::Body,
        writer: BodyWriter,
    ) -> Result<(), Box<dyn std::error::Error>> {
        while !body.is_empty() {
            let compressed = self.compress_slice(&mut body, true).await?;
            writer.write(compressed).await?;
        }
        Ok(())
    }

    async fn write_received(mut self, mut body: Body, writer: BodyWriter) -> Result<(), Box<dyn std::error::Error>> {
        let mut total = 0;
        while let Some(piece) = body.next().await.transpose()? {
            let mut piece = piece.into_body();
            total += piece.len();
            while !piece.is_empty() {
                let compressed = self.compress_slice(&mut piece, false).await?;
                writer.write(compressed).await?;
            }
        }
        if total > SHORT_BYTES_MAX {
            self.slices.end();
        }
        poll_fn(|cx| self.slices.poll_left(cx)).await;
        let mut compressed = Vec::new();
        self.compressor.finish(&mut compressed)?;
        writer.write(compressed).await?;
        Ok(())
    }

    /// Compresses the next slice of a body; the end of the body may be that of the message.
    async fn compress_slice(
        &mut self,
        body: &mut http1::Body,
        is_last: bool,
    ) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let left = poll_fn(|cx| self.slices.poll_left(cx)).await;
        let (before, compressor, mut compressed) = (body.len(), &mut self.compressor, Vec::new());
        let ends = is_last && before <= left as u64;
        take_slice(body, left, |slice| match ends {
            true => compressor.finish_with(slice, &mut compressed),
            false => compressor.write(slice, &mut compressed),
        })??;
        self.slices.take((before - body.len()) as usize);
        Ok(compressed)
    }
}

/// The same producer, whose writer compresses. When the producer waits, its output leaves.
fn compress_producer(produced: ProducedBody, compression: Compression) -> ProducedBody {
    let produce = produced.produce;
    let produce = move |writer: BodyWriter| {
        let (inner, number) = writer.into_parts();
        let compressing = Rc::new(CompressionExchange {
            inner,
            number,
            is_polled: Cell::new(false),
            state: RefCell::new(CompressionState {
                compressor: Compressor::new(compression),
                slices: slices(compression),
                waiting: VecDeque::new(),
                unflushed: 0,
                last: None,
                task: None,
                writer: None,
            }),
        });
        let mut producing = produce(BodyWriter::new(compressing.clone(), number));
        let future = async move {
            poll_fn(|cx| compressing.poll_producing(producing.as_mut(), cx)).await?;
            poll_fn(|cx| compressing.poll_finish(cx)).await?;
            Ok(())
        };
        Box::pin(future) as BodyFuture
    };
    ProducedBody { length: None, produce: Box::new(produce) }
}

type ProducingResult = Result<(), Box<dyn std::error::Error>>;
type ProducingFuture = dyn Future<Output = ProducingResult>;

/// An exchange whose body is compressed on its way. A piece waits here until there is a turn to compress it, a slice at a
/// time.
struct CompressionExchange {
    inner: Rc<dyn Exchange>,
    number: u32,
    /// The task of the response polls the producer now.
    is_polled: Cell<bool>,
    state: RefCell<CompressionState>,
}

struct CompressionState {
    compressor: Compressor,
    slices: Slices,
    /// Pieces that were written and are not compressed.
    waiting: VecDeque<http1::Body>,
    /// Bytes that were compressed since the last flush.
    unflushed: u64,
    /// The end of the body, once it is written.
    last: Option<Outgoing>,
    /// The task of the response, which compresses.
    task: Option<Waker>,
    /// The task that waits until the pieces are compressed, if it is another one.
    writer: Option<Waker>,
}

impl CompressionExchange {
    /// Runs the producer. While it waits, its output is compressed, and leaves.
    fn poll_producing(&self, producing: Pin<&mut ProducingFuture>, cx: &mut Context<'_>) -> Poll<ProducingResult> {
        self.state.borrow_mut().task = Some(cx.waker().clone());
        self.is_polled.set(true);
        let polled = producing.poll(cx);
        self.is_polled.set(false);
        if polled.is_ready() {
            return polled;
        }
        ready!(self.poll_compressed(cx))?;
        let writer = self.state.borrow_mut().writer.take();
        if let Some(writer) = writer {
            writer.wake();
        }
        ready!(self.poll_flush(cx))?;
        Poll::Pending
    }

    /// Compresses the pieces that wait.
    fn poll_compressed(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            if self.state.borrow().waiting.is_empty() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.inner.poll_ready(self.number, cx))?;
            let compressed = ready!(self.state.borrow_mut().poll_slice(cx))?;
            self.pass_on(compressed)?;
        }
    }

    /// Compresses the bytes that the compressor still keeps, so that they leave.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let compressed = ready!(self.state.borrow_mut().poll_rest(cx, Compressor::flush))?;
        Poll::Ready(self.pass_on(compressed))
    }

    /// Ends the message, after all that was written.
    fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        ready!(self.poll_compressed(cx))?;
        let compressed = ready!(self.state.borrow_mut().poll_rest(cx, Compressor::finish))?;
        self.pass_on(compressed)?;
        let last = self.state.borrow_mut().last.take();
        Poll::Ready(last.map_or(Ok(()), |last| self.inner.send(self.number, last)))
    }

    fn pass_on(&self, compressed: Vec<u8>) -> Result<(), BodyError> {
        if compressed.is_empty() {
            return Ok(());
        }
        self.inner.send(self.number, Outgoing::Data(Data::from(compressed).into_body()))
    }

    /// The task of the response goes on, if another one has written.
    fn wake_task(&self) {
        if !self.is_polled.get()
            && let Some(task) = &self.state.borrow().task
        {
            task.wake_by_ref();
        }
    }
}

impl CompressionState {
    /// Compresses a slice of the first piece.
    fn poll_slice(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, BodyError>> {
        let Some(piece) = self.waiting.front_mut() else { return Poll::Ready(Ok(Vec::new())) };
        let left = ready!(self.slices.poll_left(cx));
        let (before, compressor, mut compressed) = (piece.len(), &mut self.compressor, Vec::new());
        let written = take_slice(piece, left, |slice| compressor.write(slice, &mut compressed));
        let read = before - piece.len();
        if piece.is_empty() {
            self.waiting.pop_front();
        }
        if !matches!(written, Ok(Ok(_))) {
            return Poll::Ready(Err(NOT_COMPRESSED));
        }
        self.slices.take(read as usize);
        self.unflushed += read;
        Poll::Ready(Ok(compressed))
    }

    /// Compresses the bytes that the compressor keeps: in a turn of its own, unless they are few.
    fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        compress: impl FnOnce(&mut Compressor, &mut Vec<u8>) -> Result<usize, tidegate_compress::Error>,
    ) -> Poll<Result<Vec<u8>, BodyError>> {
        if self.unflushed > SHORT_BYTES_MAX {
            // It is not counted again while it waits.
            self.slices.end();
            self.unflushed = 1;
        }
        if self.unflushed > 0 {
            ready!(self.slices.poll_left(cx));
        }
        self.unflushed = 0;
        let mut compressed = Vec::new();
        let result = compress(&mut self.compressor, &mut compressed);
        Poll::Ready(result.map(|_| compressed).map_err(|_| NOT_COMPRESSED))
    }
}

impl Exchange for CompressionExchange {
    fn is_draining(&self) -> bool {
        self.inner.is_draining()
    }

    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.inner.poll_body(number, cx)
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let compressed = if self.is_polled.get() {
            self.poll_compressed(cx)?
        } else if self.state.borrow().waiting.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        };
        if compressed.is_pending() {
            self.state.borrow_mut().writer = Some(cx.waker().clone());
            self.wake_task();
            return Poll::Pending;
        }
        self.inner.poll_ready(number, cx)
    }

    fn account(&self, number: u32) -> Option<Account> {
        self.inner.account(number)
    }

    fn hand_over(&self, number: u32, piece: &[u8]) {
        self.inner.hand_over(number, piece);
    }

    fn keep(&self, number: u32, charge: ConnectionCharge) {
        self.inner.keep(number, charge);
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.inner.poll_flush(number, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        match message {
            Outgoing::Data(piece) => self.state.borrow_mut().waiting.push_back(piece),
            Outgoing::End | Outgoing::Trailers(_) => self.state.borrow_mut().last = Some(message),
            other => return self.inner.send(number, other),
        }
        self.wake_task();
        Ok(())
    }
}

fn add_vary(response: &mut Response) {
    let varies_by = |name: &[u8]| has_element(response.fields.iter(), b"vary", name);
    if !varies_by(b"accept-encoding") && !varies_by(b"*") {
        response.fields.push("Vary", "Accept-Encoding").expect("it is a field");
    }
}

/// Whether the response has a body that is worth it.
fn is_compressible(response: &Response) -> bool {
    response.status.allows_body()
        && response.status != Status::PARTIAL_CONTENT
        && response.field("content-encoding").is_none()
        && response.field("content-range").is_none()
        && response.body.length() != Some(0)
        && DIGESTS.iter().all(|digest| response.field(digest).is_none())
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

/// Whether a message asks that its content, or that of its response, stays as it is (RFC 9111 §5.2.1.6, §5.2.2.6).
fn forbids_transform<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    has_element(fields, b"cache-control", b"no-transform")
}

/// Whether the list that all lines of a field make together has an element.
fn has_element<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>, field: &[u8], element: &[u8]) -> bool {
    fields
        .filter(|(name, _)| name.eq_ignore_ascii_case(field))
        .any(|(_, list)| list.split(|&byte| byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(element)))
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

/// Whether the client names the weak form of a tag, and not the tag: it has the compressed response.
fn knows_weak_alone(request: &Request, tag: &[u8]) -> bool {
    if tag.is_empty() || tag.starts_with(b"W/") {
        return false;
    }
    let (mut weak, mut strong) = (false, false);
    for (_, value) in request.head().headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"if-none-match")) {
        for (place, _) in value.windows(tag.len()).enumerate().filter(|(_, window)| *window == tag) {
            let is_weak = value.get(..place).is_some_and(|before| before.ends_with(b"W/"));
            (weak, strong) = (weak || is_weak, strong || !is_weak);
        }
    }
    weak && !strong
}

/// A body of this length is compressed at once; it holds the loop for about a millisecond.
const AT_ONCE_BYTES_MAX: u64 = 64 * 1024;

/// A body of this length is compressed at once also when others wait for their turn.
const SHORT_BYTES_MAX: u64 = 4 * 1024;

/// The time of one slice of a body.
const SLICE_TIME: Duration = Duration::from_millis(1);

const NOT_COMPRESSED: BodyError = BodyError::Misuse("the body could not be compressed");

/// Fields with a digest of the body (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

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
