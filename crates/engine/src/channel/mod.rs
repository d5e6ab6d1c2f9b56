//! `Channel`: a connection as an async handle, for protocols that are written as straight-line code.
//!
//! A channel asks for one message at a time. Nothing is received while nobody asks, nor while too much waits to be sent,
//! so back-pressure is what happens if nothing is done about it. It has the same codec, queue, limits and deadlines as a
//! connection with a [`Handler`](crate::Handler), and lives on one loop, as the tasks that use it do.
//!
//! | what | where |
//! |---|---|
//! | the handles | here, and `split.rs` |
//! | what is awaited | `futures.rs` |
//! | how a handle reaches its connection | `handle.rs` |
//! | the engine's end of it | `connection/pull.rs` |

mod error;
mod futures;
mod handle;
mod split;

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::WritePosition;
use tidegate_codec::Codec;
use tidegate_sys::{Address, Side, Token};

pub use self::error::ChannelError;
pub use self::futures::{Close, Flushed, Ready, Recv, Within};
pub(crate) use self::handle::Handle;
pub use self::split::{ReadHalf, WriteHalf};
use crate::connection::Half;
use crate::context::SendError;
use crate::group::{Group, Member};

/// A connection as an async handle; 16 bytes large, and bound to its loop.
///
/// How the connection ends:
///
/// | what happens to the channel | what the peer sees |
/// |---|---|
/// | it is [closed](Channel::close), or dropped | all that waits, then the end of the stream |
/// | it is [aborted](Channel::abort) | a reset |
/// | the task of [`Server::serve`](crate::Server::serve) returns an error | as with [`Outcome::Fail`](crate::Outcome::Fail): what the protocol says of errors; a reset if only the end of the connection ends a message |
/// | a panic drops it | as when a handler panics |
///
/// So a channel that is dropped on an error path ends in good order, unless it is the one that the task serves: the
/// channel of a [`Client`](crate::Client), or one in a task of its own, has no error of a task to learn of. Where the peer
/// could take what has come for the whole, abort the channel instead. Closing in good order waits until everything was
/// sent, and gives the peer a moment to end its side; [`Limits`](crate::Limits) bound how long that may take.
///
/// ```
/// use tidegate_codec::framing::Lines;
/// use tidegate_engine::{Channel, ChannelError, Server};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::new, echo)?;
/// println!("listening on {}", server.address());
/// # Ok::<(), tidegate_engine::StartError>(())
/// ```
pub struct Channel<C: Codec> {
    handle: Handle<C>,
}

impl<C: Codec> Channel<C> {
    pub(crate) fn new(handle: Handle<C>) -> Self {
        Self { handle }
    }

    /// Waits for the next message; `None` when no further one will come, because the peer has ended its stream or the
    /// protocol is over. Dropping the future loses nothing.
    ///
    /// When the server begins to drain, and the protocol does not know its own end as HTTP does, the next message that has
    /// not arrived yet is answered with one `None`, so that a loop over messages ends. Whoever wants to go on asks again;
    /// [`is_draining`](Channel::is_draining) tells the one from the other. Where the end of the stream means something to
    /// the protocol, that is what to do. A connection that a [`Client`](crate::Client) made is left alone until no task of
    /// [`Server::serve`](crate::Server::serve) is left on the loop that may need it.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection broke or was closed, after all messages that had arrived before.
    pub fn recv(&mut self) -> Recv<'_, C> {
        Recv::new(&self.handle)
    }

    /// As [`recv`](Channel::recv), for an adapter that is polled itself. Whoever was promised a wake-up counts as waiting
    /// until it comes; a future of `recv` that is dropped does not.
    ///
    /// # Errors
    /// As [`recv`](Channel::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<C::In>, ChannelError>> {
        self.handle.poll_recv(cx)
    }

    /// Queues a message. It leaves when the task waits for something, together with what else was sent until then.
    ///
    /// The mark is a promise: [`flushed`](Channel::flushed) waits until everything up to it is with the kernel.
    ///
    /// # Errors
    /// [`SendError::Full`] past the hard cap, which a task does not reach that waits for [`ready`](Channel::ready) or
    /// [`recv`](Channel::recv) now and then; [`SendError::Closed`] once the connection closes, both with the message;
    /// [`SendError::Codec`] if the protocol cannot say it.
    pub fn send(&mut self, message: C::Out) -> Result<WritePosition, SendError<C::Out, C::Error>> {
        self.handle.send(message)
    }

    /// Makes the connection a member of a group, until it leaves or is gone. Joining twice is joining once.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] once nothing can be sent any more, [`ChannelError::Busy`] from within a handler.
    pub fn join(&mut self, group: &Group<C>) -> Result<(), ChannelError> {
        self.handle.join(group)
    }

    /// Leaves a group. Messages that were sent to it before and have not come to this loop yet do not arrive.
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn leave(&mut self, group: &Group<C>) -> Result<(), ChannelError> {
        self.handle.leave(group)
    }

    /// What names this connection on any loop: for [`Group::send_except`].
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn member(&self) -> Result<Member, ChannelError> {
        self.handle.member()
    }

    /// Waits until less is pending than the water marks allow: what a task that streams does between sends.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when nothing can be sent any more.
    pub fn ready(&mut self) -> Ready<'_, C> {
        Ready(&self.handle)
    }

    /// Waits until everything up to `mark` is with the kernel.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection is gone and not all of it was sent.
    pub fn flushed(&mut self, mark: WritePosition) -> Flushed<'_, C> {
        Flushed { handle: &self.handle, mark: Some(mark) }
    }

    /// Tells the peer that nothing more will be sent, once what was is with the kernel. Receiving goes on.
    pub fn shutdown_write(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.shutdown_write(core, token));
    }

    /// Closes the connection in good order, and waits until that is done. It is done as well if the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] if the connection broke before everything was sent.
    pub fn close(self) -> Close<C> {
        Close::begin(self)
    }

    /// Resets the connection at once. What waits to be sent is dropped, what the kernel has of it may be lost, and the peer
    /// sees that the stream was cut off, and not its end. A filter such as TLS does not say goodbye. The reason is
    /// [`CloseReason::Aborted`](crate::CloseReason::Aborted).
    ///
    /// A Unix socket has no reset of its own: there the peer sees one only if it has sent bytes that were not received, and
    /// otherwise the end of the stream.
    ///
    /// ```
    /// use tidegate_codec::framing::Raw;
    /// use tidegate_engine::{Channel, ChannelError};
    ///
    /// /// Passes a stream on, and its reset as a reset.
    /// async fn pass(mut from: Channel<Raw>, mut to: Channel<Raw>) -> Result<(), ChannelError> {
    ///     loop {
    ///         match from.recv().await {
    ///             Ok(Some(bytes)) => drop(to.send(bytes.into())?),
    ///             Ok(None) => return to.close().await,
    ///             Err(error) => {
    ///                 to.abort();
    ///                 return Err(error);
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    pub fn abort(self) {
        self.handle.abort();
    }

    /// Takes no further message until [`resume`](Channel::resume); who waits for one goes on waiting.
    pub fn pause(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, true));
    }

    /// Goes on, with bytes that were read already.
    pub fn resume(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, false));
    }

    /// From then on everything that would have to wait fails with [`ChannelError::Deadline`]; `None` takes that back. It
    /// is precise to a millisecond. For one call there is `within`: `channel.recv().within(duration)`.
    pub fn set_deadline(&mut self, at: Option<Instant>) {
        self.handle.set_deadline(at);
    }

    /// Sets the deadline so far from now.
    pub fn set_deadline_after(&mut self, after: Duration) {
        let at = self.handle.after(after);
        self.set_deadline(at);
    }

    /// From now on a drain does not end the messages: for protocols that have no good moment to stop, such as a
    /// forwarder's. [`is_draining`](Channel::is_draining) still tells, and what is not over by the drain's deadline is cut
    /// off.
    pub fn ignore_drain(&mut self) {
        let _ = self.handle.with(|connection, _, _| connection.ignore_drain());
    }

    /// Two halves, for two tasks: one that receives, one that sends. While they are apart, reading goes on however much
    /// waits to be sent.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate_codec::framing::Lines;
    /// use tidegate_engine::{Channel, ChannelError, task};
    ///
    /// /// Says every second that it is there, and listens meanwhile.
    /// async fn session(channel: Channel<Lines>) -> Result<(), ChannelError> {
    ///     let (mut reader, mut writer) = channel.split();
    ///     let ticking = task::spawn(async move {
    ///         let mut second = task::interval(Duration::from_secs(1));
    ///         while writer.ready().await.is_ok() && writer.send("here".into()).is_ok() {
    ///             second.tick().await;
    ///         }
    ///     });
    ///     while let Some(line) = reader.recv().await? {
    ///         println!("{line:?}");
    ///     }
    ///     // Otherwise the task would keep its half, and so the connection.
    ///     ticking.cancel();
    ///     Ok(())
    /// }
    /// ```
    #[must_use = "dropping both halves closes the connection"]
    pub fn split(mut self) -> (ReadHalf<C>, WriteHalf<C>) {
        let _ = self.handle.with(|connection, _, _| connection.set_split(true));
        let reader = self.handle.pass_on();
        let writer = reader.twin();
        (ReadHalf::new(reader), WriteHalf::new(writer))
    }

    /// Goes on with another codec, which `to` makes of the present one. What the old codec has said leaves first, and
    /// bytes that it has not decoded are the new one's. Marks of the old codec mean nothing to the new one, so wait for
    /// them before.
    ///
    /// Only a whole channel can be switched; halves have to be united first.
    ///
    /// ```
    /// use tidegate_codec::framing::{LengthField, Lines};
    /// use tidegate_engine::{Channel, ChannelError};
    ///
    /// async fn session(mut text: Channel<Lines>) -> Result<(), ChannelError> {
    ///     while let Some(line) = text.recv().await? {
    ///         if &*line == b"BINARY" {
    ///             let mut binary = text.switch(|_| LengthField::new(2))?;
    ///             let frame = binary.recv().await?;
    ///             println!("{frame:?}");
    ///             return Ok(());
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler; and if `to` panics, the reason. The connection is closed then.
    pub fn switch<D: Codec>(mut self, to: impl FnOnce(C) -> D + 'static) -> Result<Channel<D>, ChannelError> {
        self.handle.switch(to)?;
        Ok(Channel::new(self.handle.pass_on()))
    }

    /// Whether less waits to be sent than the water marks allow.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.handle.with(|connection, _, _| connection.link().is_writable()).unwrap_or(false)
    }

    /// Bytes that wait to be sent, those that filters hold back and what their entries cost included.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.handle.with(|connection, _, _| connection.pending_bytes()).unwrap_or(0)
    }

    /// Whether the loop drains: it accepts no more, and waits for its connections to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.handle.with(|_, core, _| core.is_draining()).unwrap_or(false)
    }

    /// Looks at the codec, or changes it.
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn with_codec<T>(&mut self, act: impl FnOnce(&mut C) -> T) -> Result<T, ChannelError> {
        self.handle.with(|connection, core, token| {
            let value = act(connection.codec());
            connection.schedule_unless_pending(core, token);
            value
        })
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn peer(&self) -> Result<Address, ChannelError> {
        self.handle.with(|connection, _, _| connection.link().peer())
    }

    /// The address of our own end.
    ///
    /// # Errors
    /// The system's, if the connection broke; [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a handler.
    pub fn local(&self) -> std::io::Result<Address> {
        self.handle.address(Side::Local)
    }

    /// The connection's number on its loop; no two connections have the same at the same time.
    #[must_use]
    pub fn id(&self) -> u64 {
        id(self.handle.token())
    }
}

impl<C: Codec> Drop for Channel<C> {
    fn drop(&mut self) {
        self.handle.release(Half::Both);
    }
}

impl<C: Codec> fmt::Debug for Channel<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.id())
    }
}

pub(crate) fn id(token: Token) -> u64 {
    u64::from(token.generation) << 32 | u64::from(token.slot)
}
