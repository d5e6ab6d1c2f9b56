//! `Context`: a handler's view of its connection while it handles an event.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tidegate_buffer::{Credentials, WritePosition};
use tidegate_codec::{Broadcast, Output, Pipeline, Time};
use tidegate_sys::{Address, PassedDescriptors, Side, Token};

use crate::charges::Account;
use crate::connection::{Link, PeerAddress};
use crate::group::{Group, Member};
use crate::loop_core::Core;
use crate::peer_deadlines::Deadlines;
use crate::portable_error::PortableError;
use crate::remote::Remote;
use crate::shaping::Shaping;
use crate::slots::connection_id;
use crate::task::HandlerTask;
use crate::wheel::DeadlineTick;

/// A handler's view of its connection: the codec and the outbound queue, never the handler itself.
///
/// `P` is the type that other threads may post to the handler.
pub struct Context<'a, C: Pipeline, P = ()> {
    codec: &'a mut C,
    link: &'a mut Link,
    core: &'a mut Core,
    token: Token,
    post: PhantomData<fn(P)>,
}

impl<'a, C: Pipeline, P: Send + 'static> Context<'a, C, P> {
    #[inline]
    pub(crate) fn new(codec: &'a mut C, link: &'a mut Link, core: &'a mut Core, token: Token) -> Self {
        // Attached here and not in `send`: after a write in between, the compiler no longer knows how the caller built
        // the message.
        link.outbound().attach(&core.pool);
        Self { codec, link, core, token, post: PhantomData }
    }

    /// Queues a message. It is sent once the handler has returned and the input is used up.
    ///
    /// Returns the message's write position. Once the application [watches](Context::watch) it,
    /// [`Event::Flushed`](crate::Event::Flushed) reports that the kernel has all bytes up to it.
    ///
    /// # Errors
    /// [`SendError::Full`] past the hard cap, [`SendError::Closed`] once the connection closes, both with the message;
    /// [`SendError::Codec`] if the protocol cannot express the message. Nothing is queued then.
    // Always inlined: where the caller builds the message, the compiler may know the outcome of the codec's checks.
    #[inline(always)]
    pub fn send(&mut self, message: C::Out) -> Result<WritePosition, SendError<C::Out, C::Error>> {
        if self.link.is_sending_over() {
            return Err(SendError::Closed(message));
        }
        if self.link.is_full(self.codec) {
            return Err(SendError::Full(message));
        }
        let mut out = Output::attached(self.link.outbound(), &self.core.pool, &self.core.time);
        self.codec.encode(message, &mut out).map_err(SendError::Codec)?;
        self.link.update_level(self.codec);
        Ok(self.codec.write_position(self.link.outbound()))
    }

    /// Queues a message for a channel, which has checked that the link takes it. Not a part of `send`: an error of a small
    /// type that becomes one of a large type would cost handlers a comparison.
    #[inline(always)]
    pub(crate) fn encode(&mut self, message: C::Out) -> Result<WritePosition, C::Error> {
        let mut out = Output::attached(self.link.outbound(), &self.core.pool, &self.core.time);
        self.codec.encode(message, &mut out)?;
        self.link.update_level(self.codec);
        Ok(self.codec.write_position(self.link.outbound()))
    }

    /// Whether the connection is writable: the pending bytes are within the water marks, and the application does not
    /// [block writes](Context::block_writes). A streaming handler stops while the connection is unwritable, and
    /// continues at [`Event::Writable`](crate::Event::Writable).
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.link.is_writable()
    }

    /// Bytes that wait to be sent, including those that filters buffer, and the cost of their queue entries.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.link.cost(self.codec)
    }

    /// Makes the connection unwritable for a reason of the application's own, or withdraws that reason.
    pub fn block_writes(&mut self, block: bool) {
        self.link.block_writes(block);
    }

    /// Requests [`Event::Flushed`](crate::Event::Flushed) once the kernel has all bytes up to `position`. A connection
    /// has one watched position; a new one replaces it.
    pub fn watch(&mut self, position: WritePosition) {
        self.link.watch(position);
    }

    /// Decodes no further message until [`resume`](Context::resume).
    pub fn pause(&mut self) {
        self.link.pause(true);
    }

    /// Resumes decoding, beginning with bytes that were read already.
    pub fn resume(&mut self) {
        if self.link.pause(false) {
            self.link.resume_codec(self.codec, self.core);
        }
    }

    /// Requests [`Event::HungUp`](crate::Event::HungUp) once the peer has shut down its sending side, even if nothing
    /// is received: while messages wait to be decoded, the kernel holds the bytes behind them, [`Event::ReadClosed`]
    /// included. A peer that has ended its side already is reported in the next turn. On a stream it has no effect.
    ///
    /// [`Event::ReadClosed`]: crate::Event::ReadClosed
    #[inline]
    pub fn watch_end(&mut self) {
        if !self.link.is_stream() {
            self.core.driver.watch_end(self.token);
        }
    }

    /// Whether no further message will come: [`Event::ReadClosed`](crate::Event::ReadClosed) was reported.
    #[must_use]
    pub fn is_read_closed(&self) -> bool {
        self.link.is_read_closed()
    }

    /// Shuts down the sending side once the kernel has all queued bytes. The peer sees the end of the stream. Receiving
    /// goes on.
    pub fn shutdown_write(&mut self) {
        self.link.shut_write();
    }

    /// Requests [`Event::Deadline`](crate::Event::Deadline) at a time; `None` cancels it. A connection has one such
    /// deadline. It is precise to a millisecond, and at most twelve days away.
    pub fn deadline(&mut self, at: Option<Instant>) {
        let tick = at.map_or(DeadlineTick::NEVER, |at| self.core.wheel.tick(at));
        self.link.set_deadline(tick);
    }

    /// Sets the deadline of a channel, unless it has passed already: the wheel takes no time in the past. Returns
    /// whether it has passed.
    #[must_use]
    pub(crate) fn set_deadline(&mut self, tick: DeadlineTick) -> bool {
        let has_come = self.core.wheel.has_passed(tick);
        self.link.set_deadline(if has_come { DeadlineTick::NEVER } else { tick });
        has_come
    }

    pub(crate) fn peer_address(&self) -> PeerAddress {
        self.link.peer_address()
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn core(&self) -> &Core {
        self.core
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core {
        self.core
    }

    /// The codec, the link and the core.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut C, &mut Link, &mut Core) {
        (self.codec, self.link, self.core)
    }

    /// Calls `act` with the uppermost codec and its output.
    pub(crate) fn with_mux<T>(&mut self, act: impl FnOnce(&mut C::Codec, &mut Output<'_>) -> T) -> T {
        let out = Output::new(self.link.outbound(), &self.core.pool, &self.core.time);
        let (codec, mut out) = self.codec.uppermost(out);
        act(codec, &mut out)
    }

    /// Runs `act` on this connection as soon as the dispatch is over.
    pub(crate) fn defer(&mut self, act: impl FnOnce(Token) + 'static) {
        let token = self.token;
        self.core.tasks.defer(move || act(token));
    }

    /// Runs a future in a task of this loop, as soon as the handler has returned. The handler stays the application of the
    /// connection, and gets [`Event::TaskFinished`](crate::Event::TaskFinished) when the future is complete. Dropping the
    /// result drops the future: a handler that keeps it has it dropped when the connection is closed.
    ///
    /// A protocol that decodes nothing before the reply, as HTTP/1.1 does, has its back-pressure by that. In another one
    /// the handler [pauses](Context::pause), or has several futures at once.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::task::{self, HandlerTask};
    /// use tidegate::{Context, Event, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Answers every line with its length, for which it waits.
    /// struct Length(Option<HandlerTask<usize>>);
    ///
    /// impl Handler<Lines> for Length {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         let length = line.len();
    ///         cx.pause();
    ///         self.0 = Some(cx.spawn(async move { task::spawn(async move { length }).await.unwrap_or(0) }));
    ///         Outcome::Continue
    ///     }
    ///
    ///     fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match (event, self.0.as_mut().and_then(HandlerTask::take_output)) {
    ///             (Event::TaskFinished, Some(length)) => {
    ///                 cx.resume();
    ///                 cx.send(length.to_string().into()).into()
    ///             }
    ///             (event, _) => event.by_default(cx),
    ///         }
    ///     }
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Length(None));
    /// pipe.receive(b"one\nthree\n");
    /// assert_eq!(pipe.take_written(), b"3\n5\n");
    /// ```
    pub fn spawn<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> HandlerTask<T> {
        self.core.has_spawned = true;
        HandlerTask::new(&self.core.tasks, self.token, future)
    }

    /// Requests [`Event::DispatchOver`](crate::Event::DispatchOver) once, in this turn or the next, when all bytes are
    /// handled that were received together with the message: on a stream of a session those of the session. A handler
    /// that has changed meanwhile gets it as well.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::{Context, Event, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Counts the lines that come together.
    /// struct Count(usize);
    ///
    /// impl Handler<Lines> for Count {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, _: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         if self.0 == 0 {
    ///             cx.notify_after_dispatch();
    ///         }
    ///         self.0 += 1;
    ///         Outcome::Continue
    ///     }
    ///
    ///     fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match event {
    ///             Event::DispatchOver => cx.send(std::mem::take(&mut self.0).to_string().into()).into(),
    ///             event => event.by_default(cx),
    ///         }
    ///     }
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Count(0));
    /// pipe.receive(b"one\ntwo\nthree\n");
    /// pipe.receive(b"four\n");
    /// assert_eq!(pipe.take_written(), b"3\n1\n");
    /// ```
    pub fn notify_after_dispatch(&mut self) {
        self.core.queues.notify_after_dispatch(self.token);
    }

    /// Requests [`Event::Deadline`](crate::Event::Deadline) after a duration.
    pub fn deadline_after(&mut self, after: Duration) {
        let at = self.now().checked_add(after);
        self.deadline(at);
    }

    /// Gives the connection deadlines of its own in the place of its listener's; their times begin now. On a stream they
    /// have no effect. They do not end with the handler: another handler of the connection may change them.
    pub fn set_deadlines(&mut self, deadlines: Deadlines) {
        self.link.set_deadlines(self.core, self.token, deadlines);
    }

    /// Shapes the connection from now on in the place of its listener's [`Shaping`], beginning with a full burst. On a
    /// stream it has no effect: its session is shaped. It does not end with the handler.
    pub fn set_shaping(&mut self, shaping: Shaping) {
        self.link.set_shaping(self.core, self.token, &shaping);
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.core.time.now()
    }

    /// The time of this turn, with the HTTP date.
    #[must_use]
    pub fn time(&self) -> &Time {
        &self.core.time
    }

    /// The connection's number on its loop. No two connections of a loop have the same number at the same time.
    #[must_use]
    pub fn id(&self) -> u64 {
        connection_id(self.token)
    }

    /// The address of the peer.
    #[must_use]
    pub fn peer(&self) -> Address {
        self.link.peer(&self.core.sessions)
    }

    /// The address of the local end.
    ///
    /// # Errors
    /// The system's error, if the connection broke.
    pub fn local(&self) -> std::io::Result<Address> {
        let socket = self.link.stream().and_then(|stream| self.core.sessions.of(stream)).map(|(token, _)| token);
        self.core.driver.address(socket.unwrap_or(self.token), Side::Local)
    }

    /// The process at the other end of a Unix stream, at the time when it connected or began to listen (SO_PEERCRED).
    ///
    /// # Errors
    /// `Unsupported` for another socket, and for a stream of a session.
    pub fn peer_credentials(&self) -> std::io::Result<Credentials> {
        match self.link.stream() {
            Some(_) => Err(std::io::ErrorKind::Unsupported.into()),
            None => self.core.driver.credentials(self.token),
        }
    }

    /// Keeps descriptors that the peer of a Unix stream passes, as [`Channel::keep_descriptors`](crate::Channel::keep_descriptors);
    /// from [`open`](crate::Handler::open) on, so that none is missed.
    ///
    /// # Errors
    /// `Unsupported` for another socket, for a stream of a session, and in a simulated network.
    pub fn keep_descriptors(&mut self, descriptors_max: u8) -> std::io::Result<()> {
        match self.link.stream() {
            Some(_) => Err(std::io::ErrorKind::Unsupported.into()),
            None => self.core.driver.keep_descriptors(self.token, descriptors_max),
        }
    }

    /// Takes the descriptors that have come so far, as [`Channel::take_descriptors`](crate::Channel::take_descriptors).
    pub fn take_descriptors(&mut self) -> PassedDescriptors {
        match self.link.stream() {
            Some(_) => PassedDescriptors::default(),
            None => self.core.driver.take_descriptors(self.token),
        }
    }

    /// Sends bytes with descriptors past the codec, as [`Channel::send_descriptors`](crate::Channel::send_descriptors). After a
    /// message of the same event, they have to wait for the next one.
    ///
    /// # Errors
    /// As that method.
    pub fn send_descriptors(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
        if self.codec.buffered_bytes() > 0 {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        self.link.send_descriptors(self.core, self.token, bytes, descriptors)
    }

    /// A handle to this connection for other threads.
    #[must_use]
    pub fn remote(&mut self) -> Remote<P> {
        self.core.remote(self.token)
    }

    /// Makes the connection a member of a group, until it leaves or is closed. Joining a second time has no effect.
    pub fn join(&mut self, group: &Group<C>)
    where
        C: Broadcast,
    {
        self.core.join(group.shared(), self.token);
    }

    /// Leaves a group. Messages that were sent to the group before, and that this loop has not read yet, do not arrive.
    pub fn leave(&mut self, group: &Group<C>) {
        self.core.groups.leave(group.shared(), self.token);
    }

    /// Identifies this connection on any loop: for [`Group::send_except`].
    #[must_use]
    pub fn member(&self) -> Member {
        Member::new(&self.core.mailbox, self.token)
    }

    /// Whether the loop drains: it accepts no more connections, and waits for those it has to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.core.drain.is_under_way()
    }

    /// How many handles of connections there are on this loop: channels, their halves, and sessions. Within a handler they
    /// cannot be used. If there are none, a handler may poll a future of the application once without a task: the other
    /// futures of this crate are pending then and wake their task.
    #[must_use]
    #[inline]
    pub fn handles(&self) -> usize {
        self.core.tasks.handles()
    }

    /// The codec.
    #[must_use]
    pub fn codec(&self) -> &C {
        self.codec
    }

    /// The codec, mutable: to change its limits, for example.
    pub fn codec_mut(&mut self) -> &mut C {
        self.codec
    }

    /// The account of the connection, for memory that the handler keeps for it.
    #[must_use]
    pub fn account(&self) -> Account {
        self.core.charges.account(self.token)
    }

    /// The pool that the loop's memory comes from.
    #[must_use]
    pub fn pool(&self) -> &tidegate_buffer::Pool {
        &self.core.pool
    }
}

impl<C: Pipeline, P> fmt::Debug for Context<'_, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Why a message was not queued.
#[non_exhaustive]
pub enum SendError<M, E> {
    /// Too many bytes wait already; this is the message.
    Full(M),
    /// The connection closes; this is the message.
    Closed(M),
    /// A channel was used from within a handler; this is the message.
    Busy(M),
    /// The codec panicked. The message is lost, and the connection is being closed.
    Panicked,
    /// The protocol cannot express the message.
    Codec(E),
}

impl<M, E: std::error::Error + 'static> SendError<M, E> {
    /// The same error with its text and the texts of its sources, as one that is `Send` and `Sync`, whatever the message
    /// is: for `anyhow`, and for other threads. The message is dropped.
    #[must_use]
    pub fn into_send(self) -> PortableError {
        PortableError::new(&self, None)
    }
}

impl<M, E: fmt::Display> fmt::Display for SendError<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("too much waits to be sent; stop while the connection is not writable"),
            Self::Closed(_) => f.write_str("the connection closes, nothing more can be sent"),
            Self::Busy(_) => f.write_str("a channel was used from within a handler; spawn a task that uses it"),
            Self::Panicked => f.write_str("the codec panicked"),
            Self::Codec(error) => error.fmt(f),
        }
    }
}

impl<M, E: fmt::Debug> fmt::Debug for SendError<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::Busy(_) => f.write_str("Busy(..)"),
            Self::Panicked => f.write_str("Panicked"),
            Self::Codec(error) => f.debug_tuple("Codec").field(error).finish(),
        }
    }
}

impl<M, E: std::error::Error + 'static> std::error::Error for SendError<M, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Codec(error) => error.source(),
            Self::Full(_) | Self::Closed(_) | Self::Busy(_) | Self::Panicked => None,
        }
    }
}
