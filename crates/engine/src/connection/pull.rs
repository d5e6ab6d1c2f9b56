//! A connection whose application pulls its messages: the engine's end of a [`Channel`](crate::Channel).
//!
//! A dispatch of such a connection decodes nothing. When bytes have come, it wakes the task that waits for a message.
//! The woken tasks run before the next completion, while the bytes are still in the loop's scratch, and this module
//! decodes one message at a time for them. Then the connection is dispatched once more: the tasks' output is flushed,
//! and the rest of the input is compacted.

mod requests;

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use tidegate_buffer::WritePosition;
use tidegate_buffer::injected::{self, Bug};
use tidegate_codec::framing::Raw;
use tidegate_codec::{Output, Pipeline, Step};
use tidegate_sys::Token;

use super::{Application, Connection, Link, MessageReader, SessionHooks};
use crate::channel::ChannelError;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::handler::{Event, Outcome};
use crate::loop_core::Core;
use crate::slot_entry::{Disposition, SlotEvent};
use crate::wheel::DeadlineTick;

/// Which of a channel's halves something is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Reader,
    Writer,
    Both,
}

/// Why there is no message now. Apart from the result that a task gets: places of that type stay within one function, so
/// that the compiler keeps messages in registers, and copies none in pieces that the processor would have to wait for.
enum Absence {
    /// One may come, and the task is woken then.
    Pending,
    /// No further one will come, and all was in order.
    End,
    Failed(ChannelError),
}

impl<M> From<Absence> for Poll<Result<Option<M>, ChannelError>> {
    #[inline]
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::Pending => Poll::Pending,
            Absence::End => Poll::Ready(Ok(None)),
            Absence::Failed(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Why a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many bytes wait already.
    Full,
    /// The connection closes, or its sending side is shut down.
    Closed,
}

/// The waiters of a connection's handles.
pub(crate) struct ChannelState {
    /// The task that waits for a message.
    reader: Option<Waker>,
    writer_state: Option<Box<WriterState>>,
    /// Of a stream: the bytes of the last message, with which the task has not finished while it requests no other.
    last_message_bytes: u32,
    state: u16,
}

/// State that few connections need.
#[derive(Default)]
struct WriterState {
    /// The task that waits to write, or for a flush.
    writer: Option<Waker>,
    /// The task that waits for the end of the connection, or of the peer's side. It may be another one than the writer.
    watcher: Option<Waker>,
    /// The deadline of all operations of the channel.
    deadline: DeadlineTick,
    /// Starts the task that uses the channel, where a handler has given its connection to one.
    start: Option<Start>,
}

type Start = Box<dyn FnOnce(Token)>;

impl ChannelState {
    /// The reading half has a handle.
    const READER: u16 = 1;
    /// The writing half has a handle.
    const WRITER: u16 = 1 << 1;
    /// The halves have a handle each.
    const SPLIT: u16 = 1 << 2;
    /// The server drains, and the reader has not been notified yet.
    const DRAIN_DUE: u16 = 1 << 3;
    /// No task waited for a message when the last dispatch ended.
    const SUSPENDED: u16 = 1 << 4;
    /// The connection is gone; only handles are left.
    const CLOSED: u16 = 1 << 5;
    /// The task that waited for a message was woken, and has not polled since.
    const READER_NOTIFIED: u16 = 1 << 6;
    /// The codec replies more than the peer reads: reading waits for writing until the peer has read.
    const REPLIES_BLOCKED: u16 = 1 << 7;
    /// It was connected from here: a drain concerns it only when no task is left that may need it to serve.
    const OUTBOUND: u16 = 1 << 8;

    /// The peer has ended its side; messages that have come before may be unread.
    const HUNG_UP: u16 = 1 << 10;

    /// The application ignores drains.
    const IGNORES_DRAIN: u16 = 1 << 9;

    /// The connection drains, perhaps alone.
    const DRAINS: u16 = 1 << 11;

    /// The state of a connection that has one handle.
    pub(crate) fn new() -> Self {
        Self { reader: None, writer_state: None, last_message_bytes: 0, state: Self::READER | Self::WRITER }
    }

    /// The state of a connection that a task will have, which `start` starts.
    pub(crate) fn with_start(start: impl FnOnce(Token) + 'static) -> Self {
        let mut state = Self::new();
        state.writer_state().start = Some(Box::new(start));
        state
    }

    /// The state of the same connection with another codec: no task waits, and everything else stays.
    fn for_next_codec(&mut self) -> Self {
        let handles = Self::READER | Self::WRITER;
        let kept = handles | Self::DRAIN_DUE | Self::DRAINS | Self::CLOSED | Self::OUTBOUND | Self::IGNORES_DRAIN;
        Self { reader: None, writer_state: self.writer_state.take(), last_message_bytes: 0, state: self.state & kept }
    }

    fn intersects(&self, flag: u16) -> bool {
        self.state & flag != 0
    }

    fn set(&mut self, flag: u16, on: bool) {
        self.state = if on { self.state | flag } else { self.state & !flag };
    }

    fn take(&mut self, flag: u16) -> bool {
        let had = self.intersects(flag);
        self.set(flag, false);
        had
    }

    fn forget(&mut self, half: Half) {
        match half {
            Half::Reader => {
                self.set(Self::READER, false);
                self.reader = None;
            }
            Half::Writer => self.set(Self::WRITER, false),
            Half::Both => self.set(Self::READER | Self::WRITER, false),
        }
    }

    fn writer_state(&mut self) -> &mut WriterState {
        self.writer_state.get_or_insert_default()
    }

    /// The next request for a message that has not arrived yet returns `None`, unless the protocol or the application
    /// finds its end by itself.
    fn drain(&mut self, reports_finish: bool) {
        self.set(Self::DRAINS, true);
        if !reports_finish && !self.intersects(Self::IGNORES_DRAIN) {
            self.set(Self::DRAIN_DUE, true);
        }
        // The tasks of a protocol that finds its end by itself may have work of their own to end.
        self.wake_all();
    }

    fn wake_all(&mut self) {
        self.wake_watcher();
        self.wake_writer();
        self.wake_reader();
    }

    fn wake_writer(&mut self) {
        self.wake(|state| state.writer.take());
    }

    fn wake_watcher(&mut self) {
        self.wake(|state| state.watcher.take());
    }

    fn wake(&mut self, take: impl FnOnce(&mut WriterState) -> Option<Waker>) {
        let Some(state) = &mut self.writer_state else { return };
        if let Some(waker) = take(state) {
            waker.wake();
        }
        if !state.deadline.is_set() && state.writer.is_none() && state.watcher.is_none() {
            self.writer_state = None;
        }
    }

    /// Sets the deadline of the connection to the channel's, which is passed for good once it has come.
    fn note_deadline<C: Pipeline>(&mut self, cx: &mut Context<'_, C>) {
        if cx.set_deadline(self.deadline()) {
            self.writer_state().deadline = DeadlineTick::PASSED;
        }
    }

    fn deadline(&self) -> DeadlineTick {
        self.writer_state.as_ref().map_or(DeadlineTick::NEVER, |state| state.deadline)
    }
}

impl<C: Pipeline> Application<C> for ChannelState {
    const PULLS: bool = true;

    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(start) = self.writer_state.as_mut().and_then(|state| state.start.take()) {
            self.writer_state = None;
            self.set(Self::DRAIN_DUE, cx.is_draining() && !cx.codec().status().reports_finish);
            cx.defer(start);
        }
        self.note_deadline(cx);
        Outcome::Continue
    }

    fn message(&mut self, _: C::In, _: &mut Context<'_, C>) -> Outcome<C> {
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Writable | Event::Established => {
                self.set(Self::REPLIES_BLOCKED, false);
                self.wake_writer();
                self.wake_reader();
            }
            Event::Flushed => self.wake_writer(),
            Event::HungUp => {
                self.set(Self::HUNG_UP, true);
                self.wake_watcher();
            }
            Event::Deadline => {
                // A waiting task checks whether the deadline was its own, and sets the next.
                self.note_deadline(cx);
                self.wake_all();
            }
            Event::Drain if self.intersects(Self::OUTBOUND) => {}
            Event::Drain => self.drain(cx.codec().status().reports_finish),
            Event::Posted(()) | Event::TaskFinished | Event::DispatchOver | Event::ReadClosed => {}
        }
        Outcome::Continue
    }

    fn closed(&mut self, _: &CloseReason) {
        self.set(Self::CLOSED, true);
        self.wake_all();
    }

    fn reads_while_unwritable(&self) -> bool {
        self.intersects(Self::SPLIT) && !self.intersects(Self::REPLIES_BLOCKED)
            || injected::is_injected(Bug::NoBackPressure)
    }

    fn observes_drain(&self) -> bool {
        !self.intersects(Self::OUTBOUND)
    }

    fn has_handles(&self) -> bool {
        self.intersects(Self::READER | Self::WRITER)
    }

    fn is_closed(&self) -> bool {
        self.intersects(Self::CLOSED)
    }
}

impl MessageReader for ChannelState {
    fn wants_message(&self) -> bool {
        self.reader.is_some()
    }

    fn wake_reader(&mut self) -> bool {
        let Some(waker) = self.reader.take() else { return false };
        waker.wake();
        self.set(Self::READER_NOTIFIED, true);
        true
    }

    fn suspended(&mut self) -> bool {
        // A task that was woken only to check a deadline of its own has not stopped waiting for the peer.
        let notified = self.take(Self::READER_NOTIFIED);
        self.set(Self::SUSPENDED, !notified);
        notified
    }

    fn is_reader_notified(&self) -> bool {
        self.intersects(Self::READER_NOTIFIED)
    }

    fn unfinished_bytes(&self) -> u32 {
        self.last_message_bytes
    }

    fn on_serving_done(&mut self, reports_finish: bool) {
        if self.intersects(Self::OUTBOUND) {
            self.drain(reports_finish);
        }
    }

    fn on_closing(&mut self) {
        self.wake_all();
    }
}

impl<C: Pipeline> SessionHooks<C> for ChannelState {}

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    pub(super) fn is_closed(&self) -> bool {
        (A::PULLS || A::IS_SESSION) && self.application.is_closed()
    }

    /// A dispatch of a closed connection: it has only the input that was received before.
    pub(super) fn on_event_after_close(&mut self, event: &SlotEvent) -> Disposition {
        match event {
            SlotEvent::Scheduled => self.link.set(Link::SCHEDULED, false),
            SlotEvent::Shed => self.link.input = Default::default(),
            _ => {}
        }
        Disposition::Keep
    }

    /// The task that had the channel has failed: that is why the connection is closed, unless there is another
    /// reason.
    pub(super) fn on_task_failed(
        &mut self,
        core: &mut Core,
        token: Token,
        reason: &mut Option<CloseReason>,
    ) -> Disposition {
        let done = self.link.closing.as_ref().is_none_or(|closing| matches!(**closing, CloseReason::Done));
        if self.is_closed() || !done || self.link.is_shut() {
            return Disposition::Keep;
        }
        reason.take().map_or(Disposition::Keep, |reason| self.close_with(core, token, reason))
    }

    /// Closes because of a failure on our side; as with a handler, the peer must not take truncated bytes for complete
    /// ones.
    fn close_with(&mut self, core: &mut Core, token: Token, reason: CloseReason) -> Disposition {
        let reason = Rc::new(reason);
        if self.codec.status().is_close_delimited {
            return Disposition::Close { reason, reset: true };
        }
        self.fail_codec(core, reason);
        self.schedule_unless_pending(core, token);
        Disposition::Keep
    }

    /// Requests a dispatch at the end of the pass, unless one follows anyway when the tasks that were woken have run.
    pub(crate) fn schedule_unless_pending(&mut self, core: &mut Core, token: Token) {
        if !self.link.intersects(Link::SCHEDULED) && !self.is_closed() {
            self.schedule(core, token);
        }
    }
}

impl<C: Pipeline> Connection<C, ChannelState> {
    pub(crate) fn with_channel(mut link: Link, codec: C) -> Self {
        link.input.set_escaping(true);
        Self { link, codec, application: ChannelState::new() }
    }

    /// A connection that was made from here.
    pub(crate) fn with_outbound_channel(link: Link, codec: C) -> Self {
        let mut connection = Self::with_channel(link, codec);
        connection.application.set(ChannelState::OUTBOUND, true);
        connection
    }

    /// The next message, or a promise to wake `waker` when there may be one.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        core: &mut Core,
        token: Token,
        waker: &Waker,
    ) -> Poll<Result<Option<C::In>, ChannelError>> {
        if !self.is_mid_batch()
            && let Some(absence) = self.begin_recv(core, token, waker)
        {
            return absence.into();
        }
        let ended = self.link.intersects(Link::PEER_ENDED);
        let unread = self.link.input.len();
        let (outbound, input) = self.link.queues();
        let before = (outbound.written(), self.codec.buffered_bytes());
        let mut reply = Output::new(outbound, &core.pool, &core.time);
        let step = if ended { self.codec.decode_eof(input, &mut reply) } else { self.codec.decode(input, &mut reply) };
        if outbound.written() != before.0 || self.codec.buffered_bytes() != before.1 {
            self.on_reply(core, token);
        }
        // The other cases are distinguished later: the test for a message is one comparison then.
        let Ok(Step::Message(message)) = step else {
            return match step {
                Err(fault) => self.on_fault(core, token, fault),
                Ok(Step::End) => self.on_end(core, token),
                Ok(_) => self.on_need_more(core, token, waker, unread),
            }
            .into();
        };
        core.counters.messages += 1;
        if self.link.is_stream() {
            self.note_message_of_stream(core, token, unread);
        }
        Poll::Ready(Ok(Some(message)))
    }

    /// Whether nothing has happened since the last message, so that the next one can be decoded at once.
    #[inline(always)]
    fn is_mid_batch(&self) -> bool {
        const EVENTS: u16 = ChannelState::READER_NOTIFIED | ChannelState::SUSPENDED | ChannelState::CLOSED;
        !self.application.intersects(EVENTS)
            // So there is no deadline.
            && self.application.writer_state.is_none()
            && self.application.last_message_bytes == 0
            && !self.link.intersects(Link::READ_CLOSED | Link::READ_FAILED | Link::PAUSED)
            && !self.link.is_closing()
            && self.link.is_writable()
    }

    /// The steps before decoding: a task begins to receive, or the connection has changed since its last message.
    /// Returns the result if nothing may be decoded.
    #[inline(never)]
    fn begin_recv(&mut self, core: &mut Core, token: Token, waker: &Waker) -> Option<Absence> {
        self.application.set(ChannelState::READER_NOTIFIED, false);
        if std::mem::take(&mut self.application.last_message_bytes) > 0 {
            self.link.set(Link::CONSUMED, true);
        }
        if self.link.intersects(Link::READ_CLOSED) {
            return Some(Absence::End);
        }
        let gone = self.application.intersects(ChannelState::CLOSED);
        if self.application.intersects(ChannelState::SUSPENDED) {
            // Before anything is decoded: bytes that lay here while no task waited were not late.
            self.link.resume_codec(&mut self.codec, core);
        }
        if self.link.intersects(Link::READ_FAILED) || (self.link.is_closing() && !gone) {
            return Some(self.absence_for_good());
        }
        // After the loop was delayed, bytes that came meanwhile are not late.
        let deadline = self.application.deadline();
        let is_late = deadline == DeadlineTick::PASSED || self.is_overdue(core) && !core.lag.was_delayed();
        if !gone && (is_late || !self.may_decode()) {
            return Some(self.register_reader(core, token, waker));
        }
        None
    }

    /// The codec has replied by itself, or sent something.
    #[cold]
    fn on_reply(&mut self, core: &mut Core, token: Token) {
        if !self.application.intersects(ChannelState::CLOSED) {
            self.link.update_level(&self.codec);
            let is_unread = self.link.cost(&self.codec) > self.link.settings().limits.water.replies_cap;
            self.application.set(ChannelState::REPLIES_BLOCKED, is_unread);
            self.schedule_unless_pending(core, token);
        }
    }

    #[inline(never)]
    fn note_message_of_stream(&mut self, core: &mut Core, token: Token, unread: usize) {
        self.application.last_message_bytes = (unread - self.link.input.len()) as u32;
        self.link.set(Link::CONSUMED, true);
        self.schedule_unless_pending(core, token);
    }

    #[inline(never)]
    fn on_need_more(&mut self, core: &mut Core, token: Token, waker: &Waker, unread: usize) -> Absence {
        if self.application.intersects(ChannelState::CLOSED) {
            return self.absence_for_good();
        }
        if self.application.take(ChannelState::DRAIN_DUE) {
            return Absence::End;
        }
        if self.link.is_stream() && unread > 0 {
            // The session counted these bytes as unread while no task received. The codec may have consumed all of them.
            self.link.set(Link::CONSUMED, true);
        }
        self.register_reader(core, token, waker)
    }

    #[cold]
    fn on_end(&mut self, core: &mut Core, token: Token) -> Absence {
        self.link.set(Link::READ_CLOSED, true);
        self.schedule_unless_pending(core, token);
        Absence::End
    }

    #[cold]
    fn on_fault(&mut self, core: &mut Core, token: Token, fault: C::Error) -> Absence {
        self.link.close_on_error(Err(fault));
        self.schedule_unless_pending(core, token);
        self.absence_for_good()
    }

    fn register_reader(&mut self, core: &mut Core, token: Token, waker: &Waker) -> Absence {
        if self.is_overdue(core) {
            return Absence::Failed(ChannelError::Deadline);
        }
        register(&mut self.application.reader, waker);
        if self.link.intersects(Link::CONSUMED) {
            // The task has finished with the last message.
            self.schedule_unless_pending(core, token);
        }
        if self.application.take(ChannelState::SUSPENDED) {
            self.schedule_unless_pending(core, token);
        }
        Absence::Pending
    }

    /// No further message will come.
    fn absence_for_good(&self) -> Absence {
        self.end_of_messages().map_or_else(Absence::Failed, |()| Absence::End)
    }

    /// The task that waited for a message no longer does.
    pub(crate) fn cancel_recv(&mut self, core: &mut Core, token: Token) {
        self.application.reader = None;
        self.application.set(ChannelState::READER_NOTIFIED, false);
        self.schedule_unless_pending(core, token);
    }

    /// The result when no further message will come: an error, unless all was in order.
    fn end_of_messages(&self) -> Result<(), ChannelError> {
        match &self.link.closing {
            Some(reason) if !matches!(**reason, CloseReason::Done) => Err(ChannelError::Closed(reason.clone())),
            _ => Ok(()),
        }
    }

    /// Why nothing can be written any more.
    fn write_error(&self) -> ChannelError {
        let reason = self.link.closing.clone();
        ChannelError::Closed(reason.unwrap_or_else(|| Rc::new(CloseReason::Done)))
    }

    /// Whether something can still be sent on the connection.
    pub(crate) fn check_writable(&self) -> Result<(), ChannelError> {
        if self.link.is_closing() || self.link.is_write_shut() { Err(self.write_error()) } else { Ok(()) }
    }

    /// Sends bytes with descriptors past the codec, if no message waits to be sent.
    pub(crate) fn send_descriptors(
        &mut self,
        core: &mut Core,
        token: Token,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<usize> {
        if self.codec.buffered_bytes() > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.link.send_descriptors(core, token, bytes, descriptors)
    }

    /// Why a message cannot be sent now, if that is so.
    #[inline(always)]
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if self.link.is_sending_over() {
            return Some(Refusal::Closed);
        }
        self.link.is_full(&self.codec).then_some(Refusal::Full)
    }

    /// Queues a message that is not refused.
    #[inline(always)]
    pub(crate) fn send(&mut self, core: &mut Core, token: Token, message: C::Out) -> Result<WritePosition, C::Error> {
        let before = self.link.outbound().written();
        let sent = Context::<C>::new(&mut self.codec, &mut self.link, core, token).encode(message);
        core.unflushed += self.link.outbound().written().0 - before.0;
        if self.application.reader.is_some() && sent.is_ok() {
            // The codec may have waited for this before it could decode on.
            self.application.wake_reader();
        }
        self.schedule_unless_pending(core, token);
        sent
    }

    /// Whether more may be sent, or a promise to wake `waker` when it may.
    pub(crate) fn ready(&mut self, core: &mut Core, waker: &Waker) -> Poll<Result<(), ChannelError>> {
        if self.link.is_closing() || self.link.is_write_shut() {
            return Poll::Ready(Err(self.write_error()));
        }
        if self.is_overdue(core) {
            return Poll::Ready(Err(ChannelError::Deadline));
        }
        if self.link.is_writable() {
            return Poll::Ready(Ok(()));
        }
        register(&mut self.application.writer_state().writer, waker);
        Poll::Pending
    }

    /// Whether everything up to the watched write position is with the kernel; `position`, if there is one, is
    /// watched from now on.
    pub(crate) fn flushed(
        &mut self,
        core: &mut Core,
        position: Option<WritePosition>,
        waker: &Waker,
    ) -> Poll<Result<(), ChannelError>> {
        if let Some(position) = position {
            self.link.watch(position);
        }
        // A dispatch stops watching the sent position.
        if !self.link.is_watching() || self.watched_is_sent() {
            self.link.stop_watching();
            return Poll::Ready(Ok(()));
        }
        if self.application.intersects(ChannelState::CLOSED) {
            return Poll::Ready(Err(self.write_error()));
        }
        if self.is_overdue(core) {
            return Poll::Ready(Err(ChannelError::Deadline));
        }
        register(&mut self.application.writer_state().writer, waker);
        Poll::Pending
    }

    /// Whether everything that was written so far is with the kernel, or a promise to wake `waker` when it is.
    pub(crate) fn poll_flush(
        &mut self,
        core: &mut Core,
        token: Token,
        waker: &Waker,
    ) -> Poll<Result<(), ChannelError>> {
        if self.application.intersects(ChannelState::CLOSED) {
            // The queue is cleared. It was empty if the reason is `Done`.
            return Poll::Ready(self.end_of_messages());
        }
        let position = self.codec.write_position(self.link.outbound());
        let flushed = self.flushed(core, Some(position), waker);
        if flushed.is_pending() {
            self.schedule_unless_pending(core, token);
        }
        flushed
    }

    /// Whether the handshakes of filters are over, or a promise to wake `waker` when they are.
    pub(crate) fn poll_established(&mut self, core: &Core, waker: &Waker) -> Poll<Result<(), ChannelError>> {
        if self.link.is_closing() || self.application.intersects(ChannelState::CLOSED) {
            return Poll::Ready(Err(self.write_error()));
        }
        if self.codec.is_established() {
            return Poll::Ready(Ok(()));
        }
        if self.is_overdue(core) {
            return Poll::Ready(Err(ChannelError::Deadline));
        }
        register(&mut self.application.writer_state().writer, waker);
        Poll::Pending
    }

    /// Whether the connection is gone.
    pub(crate) fn poll_closed(&mut self, waker: &Waker) -> Poll<Result<(), ChannelError>> {
        if !self.application.intersects(ChannelState::CLOSED) {
            register(&mut self.application.writer_state().watcher, waker);
            return Poll::Pending;
        }
        Poll::Ready(self.end_of_messages())
    }

    /// Whether the peer has ended its side, whatever of it is unread.
    pub(crate) fn poll_hung_up(&mut self, core: &mut Core, token: Token, waker: &Waker) -> Poll<()> {
        if self.application.intersects(ChannelState::HUNG_UP) {
            return Poll::Ready(());
        }
        if !self.link.is_stream() && !self.application.intersects(ChannelState::CLOSED) {
            core.driver.watch_end(token);
        }
        register(&mut self.application.writer_state().watcher, waker);
        Poll::Pending
    }

    pub(crate) fn codec(&mut self) -> &mut C {
        &mut self.codec
    }

    pub(crate) fn pending_bytes(&self) -> u64 {
        self.link.cost(&self.codec)
    }
}

impl<C: Pipeline<Codec = Raw>> Connection<C, ChannelState> {
    /// Writes the first of `bytes`, as many as the water marks admit, or promises to wake `waker` when they admit some.
    pub(crate) fn poll_write(
        &mut self,
        core: &mut Core,
        token: Token,
        bytes: &[u8],
        waker: &Waker,
    ) -> Poll<Result<usize, ChannelError>> {
        if self.ready(core, waker)?.is_pending() {
            return Poll::Pending;
        }
        // One byte more than there is room for makes the connection unwritable.
        let room = self.link.settings().limits.water.high.saturating_sub(self.pending_bytes()).saturating_add(1);
        let count = usize::try_from(room).map_or(bytes.len(), |room| bytes.len().min(room));
        let (_, mut out) = self.codec.uppermost(Output::new(self.link.outbound(), &core.pool, &core.time));
        out.write(&bytes[..count]);
        core.unflushed += count as u64;
        self.link.update_level(&self.codec);
        self.schedule_unless_pending(core, token);
        Poll::Ready(Ok(count))
    }
}

/// Stores the waker of a task.
fn register(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(old) => old.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

const _: () = assert!(size_of::<ChannelState>() == 32);
