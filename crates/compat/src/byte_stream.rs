//! `ByteStream`: a channel without framing as a stream of bytes.
//!
//! The stream is two halves, one for each direction. The reading half keeps the rest of the bytes that the channel
//! yielded last; the writing half keeps nothing. The traits of futures-io and tokio are thin layers over the poll
//! functions here: `futures_io.rs`, `tokio_io.rs`.
//!
//! Invariant: `rest` is never empty. So a channel is requested for more only when the caller has read everything.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{Channel, ChannelError, CloseReason, ReadHalf, WriteHalf};
use tidegate_sys::Address;

use crate::stream_error::io_error;

/// A connection as a stream of bytes, for crates that take `AsyncRead` and `AsyncWrite` of futures-io or tokio.
///
/// It is made from a [`Channel`] of the codec [`Raw`], alone or over filters: over a TLS filter it is the stream of
/// plain bytes. It lives in a task of the connection's loop; crates that run on it need no other runtime.
///
/// | operation | effect |
/// |---|---|
/// | read | copies bytes out of the loop's receive buffer, once; reading through `AsyncBufRead` copies nothing |
/// | | returns 0 after the peer has ended its side, and the protocol of a filter is over in good order |
/// | | while no task reads, the loop receives nothing, so the kernel stops the peer |
/// | write | copies bytes into the outbound queue, once, up to the high water mark; waits while the queue is above it |
/// | flush | waits until the kernel has all bytes written so far |
/// | shutdown, close | ends our side, and waits until the kernel has all bytes; the end of the stream follows them |
///
/// The two directions do not wait for each other, whether one task uses the stream or two: [`split`](Self::split),
/// `tokio::io::split` and `AsyncReadExt::split` of futures all work, and each direction wakes the task that polled it
/// last. Dropping a future of any operation loses no byte.
///
/// After a failure the error has a fitting [`kind`](io::Error::kind), and [`StreamError`](crate::StreamError) as its
/// inner error. Bytes that had arrived before a failure are read first.
///
/// Dropping the stream closes the connection in good order: pending bytes are still sent. In the task of
/// [`Server::serve`](tidegate_engine::Server::serve), return the error of a transfer that failed in the middle: then
/// the connection is reset, so that the peer does not take a part for the whole. Elsewhere use [`abort`](Self::abort).
///
/// A drain of the server does not end the stream, since a reader would take that for the end of the peer's bytes. The
/// application may check [`is_draining`](Self::is_draining); at the drain's deadline the connection is cut off.
///
/// ```
/// use futures_util::io::{AsyncReadExt, copy};
/// use tidegate::compat::ByteStream;
/// use tidegate::framing::Raw;
/// use tidegate::{Channel, Server};
///
/// /// Echoes, with the functions of another crate.
/// async fn echo(channel: Channel<Raw>) -> std::io::Result<()> {
///     let (reader, mut writer) = AsyncReadExt::split(ByteStream::new(channel));
///     copy(reader, &mut writer).await?;
///     Ok(())
/// }
///
/// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(|| Raw, echo)?;
/// # drop(server);
/// # Ok::<(), tidegate::StartError>(())
/// ```
pub struct ByteStream<P: Pipeline = Raw> {
    reader: ByteReader<P>,
    writer: ByteWriter<P>,
}

/// The half of a [`ByteStream`] that reads. Once it is dropped, the loop receives nothing more.
pub struct ByteReader<P: Pipeline = Raw> {
    half: ReadHalf<P>,
    /// The unread rest of the bytes that the channel yielded last.
    rest: Option<Slice>,
    failure: Option<Rc<CloseReason>>,
}

/// The half of a [`ByteStream`] that writes. Dropping it ends our side once everything was sent.
pub struct ByteWriter<P: Pipeline = Raw> {
    half: WriteHalf<P>,
    failure: Option<Rc<CloseReason>>,
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> ByteStream<P> {
    /// The bytes of a channel. From now on a drain does not end it: [`Channel::ignore_drain`].
    #[must_use]
    pub fn new(mut channel: Channel<P>) -> Self {
        channel.ignore_drain();
        let (reader, writer) = channel.split();
        Self {
            reader: ByteReader { half: reader, rest: None, failure: None },
            writer: ByteWriter { half: writer, failure: None },
        }
    }

    /// The channel, and bytes that it has yielded but the stream's reader has not read.
    ///
    /// # Panics
    /// If the stream was put together from halves of two connections.
    #[must_use]
    pub fn into_channel(self) -> (Channel<P>, Option<Slice>) {
        let Self { reader, writer } = self;
        let Ok(channel) = reader.half.reunite(writer.half) else { panic!("the halves belong to two connections") };
        (channel, reader.rest)
    }

    /// Two halves, for two tasks of the loop, without a lock between them.
    #[must_use]
    pub fn split(self) -> (ByteReader<P>, ByteWriter<P>) {
        (self.reader, self.writer)
    }

    /// Resets the connection at once: as [`Channel::abort`].
    pub fn abort(self) {
        self.reader.half.abort();
    }
}

impl<P: Pipeline> ByteStream<P> {
    /// The address of the peer.
    ///
    /// # Errors
    /// As [`Channel::peer`].
    pub fn peer(&self) -> Result<Address, ChannelError> {
        self.reader.half.peer()
    }

    /// Whether the loop drains: it waits for its connections to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.reader.half.is_draining()
    }

    /// From that time on every operation that would have to wait fails with [`io::ErrorKind::TimedOut`]; `None` cancels
    /// the deadline. It is precise to a millisecond.
    pub fn set_deadline(&mut self, at: Option<Instant>) {
        self.reader.half.set_deadline(at);
    }

    /// Bytes that wait to be sent, with the cost of their queue entries.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.writer.half.pending_bytes()
    }

    /// The reason why the connection is closed, once an operation has failed with it.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.reader.failure.as_deref().or(self.writer.failure.as_deref())
    }

    #[cfg_attr(
        not(any(feature = "futures-io", feature = "tokio")),
        expect(dead_code, reason = "for the traits of features")
    )]
    pub(crate) fn reader(&mut self) -> &mut ByteReader<P> {
        &mut self.reader
    }

    #[cfg_attr(
        not(any(feature = "futures-io", feature = "tokio")),
        expect(dead_code, reason = "for the traits of features")
    )]
    pub(crate) fn writer(&mut self) -> &mut ByteWriter<P> {
        &mut self.writer
    }
}

impl<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>> From<Channel<P>> for ByteStream<P> {
    fn from(channel: Channel<P>) -> Self {
        Self::new(channel)
    }
}

impl<P: Pipeline<In = Slice>> ByteReader<P> {
    /// Waits for bytes, and returns those that are not [consumed](Self::consume) yet; none at the end of the stream.
    ///
    /// # Errors
    /// Why the connection broke or was closed, after all bytes that had arrived before.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.rest.is_none() {
            match ready!(self.half.poll_recv(cx)) {
                Ok(bytes) => self.rest = bytes,
                Err(error) => return Poll::Ready(Err(failed(&mut self.failure, &error))),
            }
        }
        Poll::Ready(Ok(self.rest.as_deref().unwrap_or_default()))
    }

    /// Counts the first `count` bytes as read.
    ///
    /// # Panics
    /// If [`poll_fill`](Self::poll_fill) has returned fewer.
    pub fn consume(&mut self, count: usize) {
        match &mut self.rest {
            Some(rest) if count < rest.len() => rest.advance(count),
            Some(rest) => {
                assert_eq!(count, rest.len(), "consume more bytes than there are");
                self.rest = None;
            }
            None => assert_eq!(count, 0, "consume more bytes than there are"),
        }
    }
}

impl<P: Pipeline<Codec = Raw>> ByteWriter<P> {
    /// Copies the first of `bytes` into the outbound queue as soon as it is not above the water marks, and returns how
    /// many: at most one more than the high mark has room for.
    ///
    /// # Errors
    /// Why nothing can be sent any more; [`io::ErrorKind::BrokenPipe`] after [`poll_shutdown`](Self::poll_shutdown).
    pub fn poll_write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.half.poll_write(bytes, cx).map_err(|error| failed(&mut self.failure, &error))
    }

    /// The same for the bytes of several buffers, in order.
    #[cfg_attr(
        not(any(feature = "futures-io", feature = "tokio")),
        expect(dead_code, reason = "for the traits of features")
    )]
    pub(crate) fn poll_write_vectored(
        &mut self,
        buffers: &[io::IoSlice<'_>],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for bytes in buffers.iter().filter(|bytes| !bytes.is_empty()) {
            match self.poll_write(bytes, cx) {
                Poll::Ready(Ok(count)) => {
                    written += count;
                    if count < bytes.len() {
                        break;
                    }
                }
                // The next call returns it.
                _ if written > 0 => break,
                otherwise => return otherwise,
            }
        }
        Poll::Ready(Ok(written))
    }

    /// Waits until the kernel has all bytes written so far.
    ///
    /// # Errors
    /// Why the connection is closed, if not all of them were sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll_flush(cx).map_err(|error| failed(&mut self.failure, &error))
    }

    /// Ends our side, and waits until the kernel has all bytes. The closing bytes of filters and the end of the stream
    /// follow without further calls.
    ///
    /// # Errors
    /// As [`poll_flush`](Self::poll_flush).
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.shutdown_write();
        self.poll_flush(cx)
    }
}

impl<P: Pipeline> fmt::Debug for ByteStream<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByteStream").field(&self.reader.half).finish()
    }
}

impl<P: Pipeline> fmt::Debug for ByteReader<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByteReader").field(&self.half).finish()
    }
}

impl<P: Pipeline> fmt::Debug for ByteWriter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByteWriter").field(&self.half).finish()
    }
}

/// Keeps the reason, and returns the error for the caller of the stream.
#[cold]
fn failed(failure: &mut Option<Rc<CloseReason>>, error: &ChannelError) -> io::Error {
    if let ChannelError::Closed(reason) = error {
        *failure = Some(reason.clone());
    }
    io_error(error)
}
