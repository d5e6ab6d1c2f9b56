//! `Channel`: a connection as an async handle, for protocols that are written as straight-line code.
//!
//! An async task pulls one message at a time from a channel. The loop receives nothing while no task waits for a
//! message, nor while too many bytes wait to be sent, so back-pressure is the default. A channel has the same codec,
//! queue, limits and deadlines as a connection with a [`Handler`](crate::Handler), and lives on one loop, as the tasks
//! that use it do.
//!
//! | part | file |
//! |---|---|
//! | the channel and its halves | here, and `split.rs` |
//! | the futures that a task awaits | `futures.rs` |
//! | how a handle reaches its connection | `handle.rs` |
//! | the task that serves a channel | `serve.rs` |
//! | the engine's side | `connection/pull.rs` |

mod error;
mod futures;
mod handle;
mod serve;
mod split;

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::{Credentials, WritePosition};
use tidegate_codec::{Broadcast, Pipeline};
use tidegate_sys::{Address, PassedDescriptors, Side, Token};

pub use self::error::ChannelError;
pub use self::futures::{Close, Flushed, Ready, Recv, Within};
pub(crate) use self::handle::Handle;
pub(crate) use self::serve::start_later;
pub use self::split::{ReadHalf, WriteHalf};
use crate::charges::Account;
use crate::close_reason::CloseReason;
use crate::connection::{Half, Switch};
use crate::context::SendError;
use crate::group::{Group, Member};
use crate::handler::Handler;
use crate::peer_deadlines::Deadlines;
use crate::shaping::Shaping;
use crate::slots::connection_id;

/// A connection as an async handle; 16 bytes large, and bound to its loop.
///
/// How the connection ends:
///
/// | event of the channel | effect on the peer |
/// |---|---|
/// | it is [closed](Channel::close), or dropped | all pending bytes, then the end of the stream |
/// | it is [aborted](Channel::abort) | a reset |
/// | the task of [`Server::serve`](crate::Server::serve) returns an error | as with [`Outcome::Fail`](crate::Outcome::Fail): the protocol's error message; a reset if only the end of the connection ends a message |
/// | a panic drops it | as when a handler panics |
///
/// A channel that is dropped on an error path closes in good order, unless it is the channel that the task serves: the
/// engine knows no error for the channel of a [`Client`](crate::Client), or for one in a task of its own. Where the
/// peer could take a truncated message for a complete one, abort the channel instead. Closing in good order waits
/// until everything was sent, and gives the peer a moment to end its side; [`Limits`](crate::Limits) bound how long
/// that may take.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, ChannelError, Server};
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
/// # Ok::<(), tidegate::StartError>(())
/// ```
pub struct Channel<C: Pipeline> {
    /// Not `Send`, as the rest: the compiler names the first part that is not.
    stays: PhantomData<*const SpawnWithTaskSpawn>,
    handle: Handle<C>,
}

/// A connection stays on the thread of its loop. A future that has it is spawned there, by
/// [`task::spawn`](crate::task::spawn): `tokio::spawn` and threads need futures that are `Send`. The compiler names this type
/// in its error about such a future.
#[derive(Debug)]
pub(crate) enum SpawnWithTaskSpawn {}

impl<C: Pipeline> Channel<C> {
    pub(crate) fn new(handle: Handle<C>) -> Self {
        Self { stays: PhantomData, handle }
    }

    /// Waits for the next message; `None` when no further one will come, because the peer has ended its stream or the
    /// protocol is over. Dropping the future loses no message.
    ///
    /// When the server begins to drain, and the protocol does not know its own end as HTTP does, the next wait for a
    /// message that has not arrived yet yields one `None`, so that a loop over messages ends. A task that wants to
    /// continue calls `recv` again; [`is_draining`](Channel::is_draining) distinguishes a drain from the end of the
    /// stream. A protocol in which the end of the stream has a meaning has to make this distinction. The drain does
    /// not affect a connection of a [`Client`](crate::Client) while tasks of [`Server::serve`](crate::Server::serve),
    /// which may need it, are left on the loop.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection broke or was closed, after all messages that had arrived before.
    pub fn recv(&mut self) -> Recv<'_, C> {
        Recv::new(&self.handle)
    }

    /// As [`recv`](Channel::recv), for an adapter that is polled itself. After `Pending` the caller counts as a waiting
    /// reader until its waker is woken; a future of `recv` that is dropped does not.
    ///
    /// # Errors
    /// As [`recv`](Channel::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<C::In>, ChannelError>> {
        self.handle.poll_recv(cx)
    }

    /// Queues a message. It is sent when the task waits for something, together with all messages queued until then.
    ///
    /// Returns the message's write position: [`flushed`](Channel::flushed) waits until the kernel has all bytes up to
    /// it.
    ///
    /// # Errors
    /// [`SendError::Full`] past the hard cap, which a task that waits for [`ready`](Channel::ready) or
    /// [`recv`](Channel::recv) now and then does not reach; [`SendError::Closed`] once the connection closes, both
    /// with the message; [`SendError::Codec`] if the protocol cannot express the message.
    pub fn send(&mut self, message: C::Out) -> Result<WritePosition, SendError<C::Out, C::Error>> {
        self.handle.send(message)
    }

    /// Makes the connection a member of a group, until it leaves or is closed. Joining a second time has no effect.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] once nothing can be sent any more, [`ChannelError::Busy`] from within a handler.
    pub fn join(&mut self, group: &Group<C>) -> Result<(), ChannelError>
    where
        C: Broadcast,
    {
        self.handle.join(group)
    }

    /// Leaves a group. Messages that were sent to the group before, and that this loop has not read yet, do not arrive.
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn leave(&mut self, group: &Group<C>) -> Result<(), ChannelError> {
        self.handle.leave(group)
    }

    /// Identifies this connection on any loop: for [`Group::send_except`].
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn member(&self) -> Result<Member, ChannelError> {
        self.handle.member()
    }

    /// Waits until the pending bytes are within the water marks. A streaming task awaits it between sends.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when nothing can be sent any more.
    pub fn ready(&mut self) -> Ready<'_, C> {
        Ready(&self.handle)
    }

    /// Waits until the kernel has all bytes up to `position`.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection is closed and not all of them were sent.
    pub fn flushed(&mut self, position: WritePosition) -> Flushed<'_, C> {
        Flushed { handle: &self.handle, position: Some(position) }
    }

    /// Waits until the kernel has all bytes that were queued so far, for an adapter that is polled itself. The bytes of a
    /// stream are with the queue of its session then.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection is closed and not all of them were sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.handle.with_or(
            |connection, core, token| connection.poll_flush(core, token, cx.waker()),
            |error| Poll::Ready(Err(error)),
        )
    }

    /// Shuts down the sending side once the kernel has all queued bytes. The peer sees the end of the stream. Receiving
    /// goes on.
    pub fn shutdown_write(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.shutdown_write(core, token));
    }

    /// Closes the connection in good order, and waits until it is closed. Dropping the future does not stop the close.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] if the connection broke before everything was sent.
    pub fn close(self) -> Close<C> {
        Close::begin(self)
    }

    /// Whether the handshakes of filters such as TLS are over, or a promise to wake the task when they are: for a task
    /// that chooses the protocol by the handshake's result, and so must not [receive](Channel::recv) before. The loop
    /// drives the handshake meanwhile. A channel wakes one task for this, [`ready`](Channel::ready) and
    /// [`flushed`](Channel::flushed).
    ///
    /// # Errors
    /// [`ChannelError::Closed`] with the reason if the handshake has failed, [`ChannelError::Busy`] from within a handler.
    pub fn poll_established(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        let waker = cx.waker();
        self.handle
            .with_or(|connection, core, _| connection.poll_established(core, waker), |error| Poll::Ready(Err(error)))
    }

    /// Whether the connection is gone, or a promise to wake the task when it is: for a task that neither receives nor sends
    /// meanwhile. A peer that only ends its sending side is not gone. A channel wakes one task for this and
    /// [`poll_hung_up`](Channel::poll_hung_up); another one may wait to send.
    ///
    /// It yields [`ChannelError::Closed`] with the reason, or [`ChannelError::Busy`] from within a handler.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        self.handle.poll_closed(cx)
    }

    /// Waits until the peer has shut down its sending side, even if no task receives: earlier bytes of the peer may be
    /// unread. On a stream it waits for ever. It wakes the task as [`poll_closed`](Channel::poll_closed) does, so one
    /// waker is kept for the two.
    pub fn poll_hung_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker();
        self.handle.with_or(|connection, core, token| connection.poll_hung_up(core, token, waker), |_| Poll::Pending)
    }

    /// Resets the connection at once. Pending bytes are dropped, and those in the kernel's buffer may be lost. The peer
    /// sees a reset and not the end of the stream. A filter such as TLS sends no closing message. The reason is
    /// [`CloseReason::Aborted`](crate::CloseReason::Aborted).
    ///
    /// A Unix socket has no reset of its own: its peer sees a reset only if it has sent bytes that were not received,
    /// and otherwise the end of the stream.
    ///
    /// ```
    /// use tidegate::framing::Raw;
    /// use tidegate::{Channel, ChannelError};
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
        self.handle.reset(CloseReason::Aborted);
    }

    /// Resets a stream of a session with a number of its protocol. On a connection of its own this is
    /// [`abort`](Channel::abort). The reason is [`CloseReason::StreamReset`](crate::CloseReason::StreamReset).
    pub fn reset(self, code: u64) {
        self.handle.reset(CloseReason::StreamReset { code, by_peer: false });
    }

    /// Takes no further message until [`resume`](Channel::resume). A task that waits for a message goes on waiting.
    pub fn pause(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, true));
    }

    /// Resumes, beginning with bytes that were read already.
    pub fn resume(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, false));
    }

    /// From that time on every operation that would have to wait fails with [`ChannelError::Deadline`]; `None` cancels
    /// the deadline. It is precise to a millisecond, and at most twelve days away. To limit one call use `within`: `channel.recv().within(duration)`.
    pub fn set_deadline(&mut self, at: Option<Instant>) {
        self.handle.set_deadline(at);
    }

    /// Sets the deadline to a duration from now.
    pub fn set_deadline_after(&mut self, after: Duration) {
        let at = self.handle.deadline_after(after);
        self.set_deadline(at);
    }

    /// Gives the connection deadlines of its own in the place of its listener's; their times begin now. On a stream they
    /// have no effect.
    pub fn set_deadlines(&mut self, deadlines: Deadlines) {
        let _ = self.handle.with(|connection, core, token| connection.set_deadlines(core, token, deadlines));
    }

    /// Shapes the connection from now on in the place of its listener's [`Shaping`], beginning with a full burst. On a
    /// stream it has no effect: its session is shaped.
    pub fn set_shaping(&mut self, shaping: Shaping) {
        let _ = self.handle.with(|connection, core, token| connection.set_shaping(core, token, &shaping));
    }

    /// From now on a drain does not end the messages: for protocols that have no good moment to stop, such as a
    /// forwarder's. [`is_draining`](Channel::is_draining) still reports the drain, and a connection that is not closed
    /// by the drain's deadline is cut off.
    pub fn ignore_drain(&mut self) {
        let _ = self.handle.with(|connection, _, _| connection.ignore_drain());
    }

    /// Two halves, for two tasks: one that receives, one that sends. While the channel is split, reading goes on
    /// regardless of how many bytes wait to be sent.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::framing::Lines;
    /// use tidegate::{Channel, ChannelError, task};
    ///
    /// /// Sends a line every second, and receives lines meanwhile.
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
        let reader = self.handle.transfer();
        let writer = reader.other_half();
        (ReadHalf::new(reader), WriteHalf::new(writer))
    }

    /// Continues with another codec, which `to` makes of the present one. The old codec's output is sent first, and
    /// bytes that it has not decoded go to the new one. Write positions of the old codec mean nothing to the new one,
    /// so wait for them before.
    ///
    /// Only a whole channel can be switched; halves have to be reunited first.
    ///
    /// ```
    /// use tidegate::framing::{LengthField, Lines};
    /// use tidegate::{Channel, ChannelError};
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
    /// [`ChannelError::Busy`] from within a handler. If `to` panics, [`ChannelError::Closed`] with the reason; the
    /// connection is closed then.
    pub fn switch<D: Pipeline>(mut self, to: impl FnOnce(C) -> D + 'static) -> Result<Channel<D>, ChannelError> {
        self.handle.switch(to)?;
        Ok(Channel::new(self.handle.transfer()))
    }

    /// Continues with a handler in place of the task, and with the same codec, in the middle of a message too. The
    /// channel's queue is sent first, and the handler gets the messages that have arrived.
    /// [`Outcome::into_channel`](crate::Outcome::into_channel) is the way back: a protocol whose requests need a task
    /// only at times has the memory of one only then.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::{Channel, ChannelError, Context, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Counts lines. A task responds to `COUNT`.
    /// struct Counting(u32);
    ///
    /// impl Handler<Lines> for Counting {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         self.0 += 1;
    ///         let count = self.0;
    ///         if &*line == b"COUNT" { Outcome::into_channel(move |channel| report(channel, count)) } else { Outcome::Continue }
    ///     }
    /// }
    ///
    /// async fn report(mut channel: Channel<Lines>, count: u32) -> Result<(), Box<dyn std::error::Error>> {
    ///     channel.send(count.to_string().into())?;
    ///     Ok(channel.into_handler(Counting(count))?)
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Counting(0));
    /// pipe.receive(b"a\nCOUNT\nb\nCOUNT\n");
    /// assert_eq!(pipe.take_written(), b"2\n4\n");
    /// ```
    ///
    /// # Errors
    /// [`ChannelError::Closed`] if the connection is closed, [`ChannelError::Busy`] from within a handler. The handler is
    /// dropped then.
    pub fn into_handler<H: Handler<C>>(mut self, handler: H) -> Result<(), ChannelError> {
        self.handle.become_handler(handler)
    }

    /// Continues as a [`Switch`] says: with another codec, and a handler or another task in place of this one. The
    /// channel's queue is sent first, and bytes that its codec has not decoded go to the new one.
    ///
    /// # Errors
    /// As [`into_handler`](Self::into_handler). The switch is dropped then.
    pub fn switch_by(mut self, switch: Switch<C>) -> Result<(), ChannelError> {
        self.handle.switch_by(switch)
    }

    pub(crate) fn handle_mut(&mut self) -> &mut Handle<C> {
        &mut self.handle
    }

    /// Whether the pending bytes are within the water marks.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.handle.with(|connection, _, _| connection.link().is_writable()).unwrap_or(false)
    }

    /// Bytes that wait to be sent, including those that filters buffer, and the cost of their queue entries.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.handle.with(|connection, _, _| connection.pending_bytes()).unwrap_or(0)
    }

    /// Whether the connection drains: with its loop, which accepts no more connections and waits for those it has to end, or
    /// alone, as it has reached its [`age_max`](Deadlines::age_max).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.handle.with(|connection, core, _| connection.is_draining(core)).unwrap_or(false)
    }

    /// Reads or changes the codec.
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

    /// The address of the peer.
    ///
    /// # Errors
    /// [`ChannelError::Busy`] from within a handler.
    pub fn peer(&self) -> Result<Address, ChannelError> {
        self.handle.with(|connection, core, _| connection.link().peer(&core.sessions))
    }

    /// The process at the other end of a Unix stream, at the time when it connected or began to listen (SO_PEERCRED).
    ///
    /// # Errors
    /// `Unsupported` for another socket; [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a handler.
    pub fn peer_credentials(&self) -> std::io::Result<Credentials> {
        self.handle.peer_credentials()
    }

    /// Keeps up to `descriptors_max` of the descriptors that the peer of a Unix stream passes (SCM_RIGHTS), until
    /// [`take_descriptors`](Self::take_descriptors) returns them. The kernel closes others: any process that reaches the
    /// socket can pass descriptors, and would use up those of this process. By default, and with zero, none is kept. Call it
    /// before the first message is awaited: descriptors that came with bytes received before are closed.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use std::os::unix::net::UnixStream;
    ///
    /// use tidegate::codec::framing::Raw;
    /// use tidegate::sys::Socket;
    /// use tidegate::{Backend, EventLoop, Limits};
    ///
    /// let (ours, theirs) = UnixStream::pair()?;
    /// let mut event_loop = EventLoop::on(Backend::Auto)?;
    /// let unnamed = tidegate::Address::Unix(std::path::PathBuf::new());
    /// let mut open = |stream| event_loop.open(Socket::from_stream(stream)?, &unnamed, Limits::default(), Raw);
    /// let (mut ours, mut theirs) = (open(ours)?, open(theirs)?);
    /// let passed = event_loop.block_on(async move {
    ///     ours.keep_descriptors(1)?;
    ///     let file = std::fs::File::open("/dev/null")?;
    ///     theirs.send_descriptors(b"a file", &[file.as_fd()])?;
    ///     let bytes = ours.recv().await?;
    ///     Ok::<_, Box<dyn std::error::Error>>((bytes.map(|bytes| bytes.to_vec()), ours.take_descriptors()))
    /// })??;
    /// assert_eq!((passed.0.as_deref(), passed.1.descriptors.len()), (Some(&b"a file"[..]), 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` for another socket, and in a simulated network;
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a handler.
    pub fn keep_descriptors(&mut self, descriptors_max: u8) -> std::io::Result<()> {
        self.handle.keep_descriptors(descriptors_max)
    }

    /// Takes the descriptors that have come so far, in their order. A descriptor comes with the first of the bytes that the
    /// peer sent it with, or earlier: the protocol says which message has how many.
    pub fn take_descriptors(&mut self) -> PassedDescriptors {
        self.handle.take_descriptors()
    }

    /// Sends bytes over a Unix stream at once, and descriptors with the first of them: the peer gets descriptors of its own
    /// for the same files. The bytes go past the codec, as they are. Returns the number of bytes that the kernel took, at least
    /// one; the caller sends the others.
    ///
    /// # Errors
    /// `WouldBlock` if messages wait to be sent ([`flushed`](Self::flushed) waits for them), or if the kernel has no room, of
    /// which nothing wakes the caller: it waits for a reply of the peer, or for a while ([`sleep`](crate::task::sleep));
    /// `InvalidInput` without bytes or without descriptors, and for more than 253; `Unsupported` for another socket, and in a
    /// simulated network; `NotConnected` once the connection closes;
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a handler.
    pub fn send_descriptors(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
        self.handle.send_descriptors(bytes, descriptors)
    }

    /// The address of the local end.
    ///
    /// # Errors
    /// The system's error, if the connection broke; [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a
    /// handler.
    pub fn local(&self) -> std::io::Result<Address> {
        self.handle.address(Side::Local)
    }

    /// The connection's number on its loop. No two connections of a loop have the same number at the same time.
    #[must_use]
    pub fn id(&self) -> u64 {
        connection_id(self.handle.token())
    }

    pub(crate) fn token(&self) -> Token {
        self.handle.token()
    }

    /// The account of the connection, for memory that the task keeps for it.
    #[must_use]
    pub fn account(&self) -> Account {
        self.handle.local().charges.account(self.handle.token())
    }
}

impl<C: Pipeline> Drop for Channel<C> {
    fn drop(&mut self) {
        self.handle.release(Half::Both);
    }
}

impl<C: Pipeline> fmt::Debug for Channel<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.id())
    }
}
