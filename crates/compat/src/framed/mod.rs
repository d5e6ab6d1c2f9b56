//! `Framed`: a codec, with the filters below it, over a tokio stream.
//!
//! It drives a [`Pipeline`] as the engine does, with one difference: there is no loop behind it. Bytes move only while
//! a task polls one of its operations, and so does time. The rules are the engine's: a codec decodes one message at a
//! time, output is bounded by water marks and stops decoding, deadlines rest while no task waits for a message, and a
//! connection closes in the same steps.
//!
//! | part | file |
//! |---|---|
//! | the type, and its state | here |
//! | from the stream to messages | `receiving.rs` |
//! | from messages to the stream | `sending.rs` |
//! | the end | `closing.rs` |
//! | deadlines | `deadlines.rs` |
//! | the state that all connections of a thread share | `memory.rs` |
//! | two tasks on one connection | `wakers.rs` |
//! | `Stream` and `Sink` | `sink.rs` |

mod closing;
mod deadlines;
mod error;
mod limits;
mod memory;
mod receiving;
mod sending;
mod sink;
mod wakers;

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tidegate_buffer::{Pool, Writability};
use tidegate_codec::{Input, Lifecycle, Outbound, Output, Pipeline};
use tidegate_engine::SendError;
use tokio::io::{AsyncRead, AsyncWrite};

use self::closing::WriteSide;
use self::deadlines::Deadlines;
pub use self::error::FramedError;
pub use self::limits::FramedLimits;
use self::memory::ThreadMemory;
use self::receiving::ReadSide;
pub use self::receiving::Recv;
use self::wakers::{Side, Wakers};

/// A codec over a tokio stream: a `TcpStream`, a `UnixStream`, a TLS stream, a `DuplexStream`.
///
/// `P` is a [`Codec`](tidegate_codec::Codec), alone or [`Over`](tidegate_codec::Over) filters: the same value that runs
/// on a loop of Tidegate. The operations are those of a [`Channel`](tidegate_engine::Channel), and each is safe to
/// cancel: dropping its future loses nothing.
///
/// | operation | effect |
/// |---|---|
/// | [`recv`](Self::recv) | waits for the next message; sends waiting bytes meanwhile |
/// | [`send`](Self::send) | queues a message; it leaves when the task waits for something |
/// | [`ready`](Self::ready) | waits until the pending bytes are within the water marks |
/// | [`flush`](Self::flush) | waits until the stream has all bytes, and has flushed them |
/// | [`close`](Self::close) | sends the waiting bytes and the protocol's closing bytes, ends our side, and waits for the peer's end |
///
/// **Back-pressure.** While more bytes wait than the water marks allow, nothing is decoded and nothing is read, so the
/// kernel stops the peer. Where another task waits to send, by `split` of `StreamExt`, reading goes on, as with the
/// halves of a channel. **Memory.** An idle connection has no buffer: all of a thread read into one receive buffer,
/// undecoded bytes move into memory of their size, and sent bytes are released. **Time.** The deadlines of the codec
/// use tokio's timer, while a task waits for a message.
///
/// Dropping a `Framed` drops the bytes that wait to be sent: close it first.
///
/// It is not `Send`, as messages of Tidegate share memory without atomic counts: it runs in a `LocalSet` or in a runtime
/// of one thread.
///
/// ```
/// use tidegate::compat::Framed;
/// use tidegate::framing::Lines;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, far) = tokio::io::duplex(1024);
/// let (mut one, mut other) = (Framed::new(near, Lines::new()), Framed::new(far, Lines::new()));
/// one.send("high water at noon".into())?;
/// one.flush().await?;
/// assert_eq!(other.recv().await?.as_deref(), Some(&b"high water at noon"[..]));
/// let (closed, end) = tokio::join!(one.close(), async {
///     let end = other.recv().await?;
///     other.close().await?;
///     Ok::<_, Box<dyn std::error::Error>>(end)
/// });
/// closed?;
/// assert!(end?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// An operation panics outside of a tokio runtime with a timer when it has to wait and there is a deadline. There is
/// one while bytes wait to be sent, while a connection closes, and where the codec has one.
pub struct Framed<T, P: Pipeline> {
    io: T,
    codec: P,
    input: Input,
    outbound: Outbound,
    memory: Rc<ThreadMemory>,
    limits: FramedLimits,
    level: Writability,
    read_side: ReadSide,
    /// The peer has ended its stream; undecoded bytes may be left.
    has_peer_ended: bool,
    write_side: WriteSide,
    /// The connection closes: the application, the protocol or an error ended it.
    is_closing: bool,
    /// The codec failed to write: it is not called to write again.
    has_write_failed: bool,
    /// The stream took bytes and was not flushed since.
    is_unflushed: bool,
    /// Why the connection closes, until an operation returns it.
    failure: Option<FramedError<P::Error>>,
    deadlines: Deadlines,
    wakers: Wakers,
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Framed<T, P> {
    /// A codec over a stream, with default limits. The codec gets [`Lifecycle::Opened`]; if it fails at that, the first
    /// operation returns its error.
    #[must_use]
    pub fn new(io: T, codec: P) -> Self {
        Self::with_limits(io, codec, FramedLimits::default())
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(io: T, codec: P, limits: FramedLimits) -> Self {
        let memory = ThreadMemory::current();
        let outbound = Outbound::new(memory.pool());
        let mut input = Input::new();
        // The application may keep messages for as long as it likes.
        input.set_escaping(true);
        let mut framed = Self {
            io,
            codec,
            input,
            outbound,
            memory,
            limits,
            level: Writability::default(),
            read_side: ReadSide::Open,
            has_peer_ended: false,
            write_side: WriteSide::Open,
            is_closing: false,
            has_write_failed: false,
            is_unflushed: false,
            failure: None,
            deadlines: Deadlines::default(),
            wakers: Wakers::default(),
        };
        framed.memory.advance();
        framed.notify(Lifecycle::Opened);
        framed
    }

    /// Waits for the next message; `None` when no further one will come: the peer has ended its stream, or the protocol
    /// is over. After the end of the peer's stream messages can still be sent.
    ///
    /// When the protocol is over, or the codec fails, the connection is closed first, as by [`close`](Self::close): the
    /// peer gets the codec's last bytes. That takes up to 30 s, with a peer that does not end its side.
    ///
    /// # Errors
    /// [`FramedError::Protocol`] if the codec fails, [`FramedError::Io`] and [`FramedError::WriteTimeout`] if the
    /// stream does; each once, then `None`. Messages that had arrived before come first.
    pub fn recv(&mut self) -> Recv<'_, T, P> {
        Recv::new(self)
    }

    /// Queues a message. It is sent when the task waits for something, together with all messages queued until then.
    ///
    /// # Errors
    /// [`SendError::Full`] past the hard cap, which a task that awaits [`ready`](Self::ready) or [`recv`](Self::recv)
    /// now and then does not reach; [`SendError::Closed`] once our side ends, both with the message;
    /// [`SendError::Codec`] if the protocol cannot express the message.
    pub fn send(&mut self, message: P::Out) -> Result<(), SendError<P::Out, P::Error>> {
        if self.is_closing || self.write_side != WriteSide::Open {
            return Err(SendError::Closed(message));
        }
        if !self.level.is_writable() && self.pending_bytes() > self.limits.water.cap {
            return Err(SendError::Full(message));
        }
        self.with_codec(|codec, _, out| codec.encode(message, out)).map_err(SendError::Codec)?;
        self.update_level();
        // The codec may have waited for this before it could decode on.
        self.wakers.wake(Side::Reader);
        Ok(())
    }

    /// Waits until the pending bytes are within the water marks. A streaming task awaits it between sends.
    ///
    /// # Errors
    /// [`FramedError::Closed`] once our side ends; the reason, if no operation has returned it yet.
    pub async fn ready(&mut self) -> Result<(), FramedError<P::Error>> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Waits until the stream has all queued bytes, and has flushed them.
    ///
    /// # Errors
    /// Why the connection closes.
    pub async fn flush(&mut self) -> Result<(), FramedError<P::Error>> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Ends our side, once the stream has all queued bytes and the codec's closing bytes: with the next operation that
    /// waits. Receiving goes on.
    pub fn shutdown_write(&mut self) {
        self.end_writing();
    }

    /// Closes in good order: sends the waiting bytes and the codec's closing bytes, shuts our side down, and waits
    /// until the peer has ended its side or [`FramedLimits::linger_timeout`] has passed. Then the stream may be dropped
    /// without destroying bytes that the peer has not read yet.
    ///
    /// # Errors
    /// Why not everything could be sent.
    pub async fn close(&mut self) -> Result<(), FramedError<P::Error>> {
        poll_fn(|cx| self.poll_close(cx)).await
    }

    /// The application failed in the middle of a message: the codec writes the protocol's reply for that case
    /// ([`Lifecycle::Fail`]), and the connection is closed as by [`close`](Self::close).
    ///
    /// # Errors
    /// [`FramedError::ResetRequired`] if only the end of the connection ends the message: then the caller resets the
    /// stream, such as a `TcpStream` by `set_zero_linger`. Otherwise as for [`close`](Self::close).
    pub async fn fail(&mut self) -> Result<(), FramedError<P::Error>> {
        if !self.is_closing && self.codec.status().is_close_delimited {
            self.break_off(FramedError::ResetRequired);
        } else if !self.is_closing {
            self.memory.advance();
            self.notify(Lifecycle::Fail);
        }
        self.close().await
    }

    /// The application shuts down: the codec announces it to the peer, or accepts no further message
    /// ([`Lifecycle::Drain`]).
    pub fn drain(&mut self) {
        if !self.is_closing {
            self.memory.advance();
            self.notify(Lifecycle::Drain);
            self.update_level();
            self.wakers.wake(Side::Reader);
        }
    }

    /// Continues with another codec, which `to` makes of the present one. The bytes that the present one has encoded
    /// are sent first, and bytes that it has not decoded go to the new one, which gets [`Lifecycle::Opened`].
    ///
    /// # Errors
    /// The connection as it is, if it closes already.
    #[expect(clippy::result_large_err, reason = "the error is the connection itself, which the caller closes")]
    pub fn switch<D: Pipeline>(mut self, to: impl FnOnce(P) -> D) -> Result<Framed<T, D>, Self> {
        self.memory.advance();
        self.flush_codec();
        if self.is_closing {
            return Err(self);
        }
        let mut framed = Framed {
            io: self.io,
            codec: to(self.codec),
            input: self.input,
            outbound: self.outbound,
            memory: self.memory,
            limits: self.limits,
            level: self.level,
            read_side: ReadSide::Open,
            has_peer_ended: self.has_peer_ended,
            write_side: self.write_side,
            is_closing: false,
            has_write_failed: self.has_write_failed,
            is_unflushed: self.is_unflushed,
            failure: None,
            deadlines: Deadlines::default(),
            wakers: self.wakers,
        };
        framed.notify(Lifecycle::Opened);
        Ok(framed)
    }

    /// Takes it apart: the stream, the codec, and the bytes that were read and not decoded. Bytes that wait to be sent
    /// are lost: [flush](Self::flush) before.
    #[must_use]
    pub fn into_parts(self) -> (T, P, Input) {
        (self.io, self.codec, self.input)
    }

    /// The stream.
    pub fn io(&self) -> &T {
        &self.io
    }

    /// The codec.
    pub fn codec(&self) -> &P {
        &self.codec
    }

    /// The codec, to change it.
    pub fn codec_mut(&mut self) -> &mut P {
        &mut self.codec
    }

    /// Whether the pending bytes are within the water marks.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.level.is_writable()
    }

    /// Bytes that wait to be sent, including those that filters buffer, and the cost of their queue entries.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.outbound.cost() + self.codec.buffered_bytes() as u64
    }

    /// The memory of all connections of this thread: its ledger counts their bytes, and a caller copies borrowed bytes
    /// with it into a message.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.memory.pool()
    }
}

impl<T, P: Pipeline> Framed<T, P> {
    /// Calls the codec with the input and the queue.
    fn with_codec<R>(&mut self, act: impl FnOnce(&mut P, &mut Input, &mut Output<'_>) -> R) -> R {
        let time = self.memory.time();
        let mut out = Output::new(&mut self.outbound, self.memory.pool(), &time);
        act(&mut self.codec, &mut self.input, &mut out)
    }

    /// The codec gets an event; if it fails, the connection closes.
    fn notify(&mut self, event: Lifecycle) {
        if let Err(error) = self.with_codec(|codec, _, out| codec.on(event, out)) {
            self.fail_reading(error);
        }
    }

    /// Compares the pending bytes with the water marks. Returns whether the connection has become writable.
    fn update_level(&mut self) -> bool {
        let was_writable = self.level.is_writable();
        self.level.update(self.outbound.cost() + self.codec.buffered_bytes() as u64, &self.limits.water);
        !was_writable && self.level.is_writable()
    }

    /// Runs one operation of the task that waits on `side`: advances the time, and has the stream wake the task of the
    /// other side as well.
    fn poll_side<R>(
        &mut self,
        side: Side,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        self.memory.advance();
        self.wakers.forget(side);
        let polled = match self.wakers.joined(side, cx.waker()) {
            Some(both) => poll(self, &mut Context::from_waker(&both)),
            None => poll(self, cx),
        };
        if polled.is_pending() {
            self.wakers.register(side, cx.waker());
        }
        polled
    }
}

/// Nothing in it is pinned where it lies: the stream is `Unpin`, and the codec is only ever borrowed.
impl<T: Unpin, P: Pipeline> Unpin for Framed<T, P> {}

impl<T: fmt::Debug, P: Pipeline> fmt::Debug for Framed<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Framed");
        debug.field("io", &self.io).field("read_side", &self.read_side).field("write_side", &self.write_side);
        debug.field("unread_bytes", &self.input.len()).field("pending_bytes", &self.outbound.pending());
        debug.finish_non_exhaustive()
    }
}
