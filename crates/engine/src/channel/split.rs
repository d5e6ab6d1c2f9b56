//! The halves of a channel: one receives, the other sends.

use std::fmt;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::WritePosition;
use tidegate_codec::framing::Raw;
use tidegate_codec::{Broadcast, Pipeline};
use tidegate_sys::Address;

use super::{Channel, ChannelError, Flushed, Handle, Ready, Recv};
use crate::close_reason::CloseReason;
use crate::connection::Half;
use crate::context::SendError;
use crate::group::{Group, Member};
use crate::slots::connection_id;

/// The half of a [`Channel`] that receives. Once it is dropped, the loop receives nothing more.
///
/// A half cannot be switched to another codec, since the other half would still have the old one:
///
/// ```compile_fail
/// use tidegate::framing::{Lines, Raw};
/// use tidegate::Channel;
///
/// fn switch_a_half(channel: Channel<Lines>) {
///     let (reader, writer) = channel.split();
///     reader.switch(|_| Raw);
/// }
/// ```
pub struct ReadHalf<C: Pipeline> {
    handle: Handle<C>,
}

/// The half of a [`Channel`] that sends. Dropping it shuts down the sending side once everything was sent; when the
/// other half is dropped as well, the connection is closed.
pub struct WriteHalf<C: Pipeline> {
    handle: Handle<C>,
}

impl<C: Pipeline> ReadHalf<C> {
    pub(super) fn new(handle: Handle<C>) -> Self {
        Self { handle }
    }

    /// As [`Channel::recv`].
    pub fn recv(&mut self) -> Recv<'_, C> {
        Recv::new(&self.handle)
    }

    /// As [`Channel::poll_recv`].
    ///
    /// # Errors
    /// As [`Channel::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<C::In>, ChannelError>> {
        self.handle.poll_recv(cx)
    }

    /// As [`Channel::pause`].
    pub fn pause(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, true));
    }

    /// As [`Channel::resume`].
    pub fn resume(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.pause(core, token, false));
    }

    /// As [`Channel::abort`]: it resets the connection, so it ends the other half as well, which gets
    /// [`CloseReason::Aborted`](crate::CloseReason::Aborted).
    pub fn abort(self) {
        self.handle.reset(CloseReason::Aborted);
    }

    /// As [`Channel::reset`]: it ends the other half as well.
    pub fn reset(self, code: u64) {
        self.handle.reset(CloseReason::StreamReset { code, by_peer: false });
    }

    /// As [`Channel::is_draining`].
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.handle.with(|connection, core, _| connection.is_draining(core)).unwrap_or(false)
    }

    /// As [`Channel::set_deadline`]; the deadline applies to both halves.
    pub fn set_deadline(&mut self, at: Option<Instant>) {
        self.handle.set_deadline(at);
    }

    /// As [`Channel::set_deadline_after`]; the deadline applies to both halves.
    pub fn set_deadline_after(&mut self, after: Duration) {
        let at = self.handle.deadline_after(after);
        self.set_deadline(at);
    }

    /// As [`Channel::peer`].
    ///
    /// # Errors
    /// As [`Channel::peer`].
    pub fn peer(&self) -> Result<Address, ChannelError> {
        self.handle.with(|connection, core, _| connection.link().peer(&core.sessions))
    }

    /// As [`Channel::id`].
    #[must_use]
    pub fn id(&self) -> u64 {
        connection_id(self.handle.token())
    }

    /// Makes the channel whole again.
    ///
    /// # Errors
    /// Both halves, if they belong to two different channels.
    pub fn reunite(mut self, mut writer: WriteHalf<C>) -> Result<Channel<C>, (Self, WriteHalf<C>)> {
        if !self.handle.is_same_connection(&writer.handle) {
            return Err((self, writer));
        }
        drop(writer.handle.transfer::<C>());
        let channel = Channel::new(self.handle.transfer());
        let _ = channel.handle.with(|connection, _, _| connection.set_split(false));
        Ok(channel)
    }
}

impl<C: Pipeline> WriteHalf<C> {
    pub(super) fn new(handle: Handle<C>) -> Self {
        Self { handle }
    }

    /// As [`Channel::send`].
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn send(&mut self, message: C::Out) -> Result<WritePosition, SendError<C::Out, C::Error>> {
        self.handle.send(message)
    }

    /// As [`Channel::join`].
    ///
    /// # Errors
    /// As [`Channel::join`].
    pub fn join(&mut self, group: &Group<C>) -> Result<(), ChannelError>
    where
        C: Broadcast,
    {
        self.handle.join(group)
    }

    /// As [`Channel::leave`].
    ///
    /// # Errors
    /// As [`Channel::leave`].
    pub fn leave(&mut self, group: &Group<C>) -> Result<(), ChannelError> {
        self.handle.leave(group)
    }

    /// As [`Channel::member`].
    ///
    /// # Errors
    /// As [`Channel::member`].
    pub fn member(&self) -> Result<Member, ChannelError> {
        self.handle.member()
    }

    /// As [`Channel::ready`].
    pub fn ready(&mut self) -> Ready<'_, C> {
        Ready(&self.handle)
    }

    /// As [`Channel::flushed`].
    pub fn flushed(&mut self, position: WritePosition) -> Flushed<'_, C> {
        Flushed { handle: &self.handle, position: Some(position) }
    }

    /// Waits until the kernel has all bytes that were queued so far, for an adapter that is polled itself.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the connection is closed and not all of them were sent.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.handle.with_or(|connection, core, token| connection.poll_flush(core, token, cx.waker()), failed)
    }

    /// As [`Channel::shutdown_write`].
    pub fn shutdown_write(&mut self) {
        let _ = self.handle.with(|connection, core, token| connection.shutdown_write(core, token));
    }

    /// As [`Channel::abort`]: it resets the connection, so it ends the other half as well, which gets
    /// [`CloseReason::Aborted`](crate::CloseReason::Aborted).
    pub fn abort(self) {
        self.handle.reset(CloseReason::Aborted);
    }

    /// As [`Channel::reset`]: it ends the other half as well.
    pub fn reset(self, code: u64) {
        self.handle.reset(CloseReason::StreamReset { code, by_peer: false });
    }

    /// As [`Channel::is_writable`].
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.handle.with(|connection, _, _| connection.link().is_writable()).unwrap_or(false)
    }

    /// As [`Channel::pending_bytes`].
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.handle.with(|connection, _, _| connection.pending_bytes()).unwrap_or(0)
    }

    /// As [`Channel::poll_closed`]: for a task that only sends, and now and then.
    ///
    /// It yields [`ChannelError::Closed`] with the reason, or [`ChannelError::Busy`] from within a handler.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        self.handle.poll_closed(cx)
    }

    /// As [`Channel::is_draining`].
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.handle.with(|connection, core, _| connection.is_draining(core)).unwrap_or(false)
    }

    /// As [`Channel::peer`].
    ///
    /// # Errors
    /// As [`Channel::peer`].
    pub fn peer(&self) -> Result<Address, ChannelError> {
        self.handle.with(|connection, core, _| connection.link().peer(&core.sessions))
    }

    /// As [`Channel::id`].
    #[must_use]
    pub fn id(&self) -> u64 {
        connection_id(self.handle.token())
    }
}

impl<C: Pipeline<Codec = Raw>> WriteHalf<C> {
    /// Queues a copy of the first of `bytes`, as soon as the pending bytes are within the water marks, and returns how
    /// many it took: at most one more than the high mark has room for. For an adapter that is polled itself.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when nothing can be sent any more.
    pub fn poll_write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<Result<usize, ChannelError>> {
        self.handle.with_or(|connection, core, token| connection.poll_write(core, token, bytes, cx.waker()), failed)
    }
}

fn failed<T>(error: ChannelError) -> Poll<Result<T, ChannelError>> {
    Poll::Ready(Err(error))
}

impl<C: Pipeline> Drop for ReadHalf<C> {
    fn drop(&mut self) {
        self.handle.release(Half::Reader);
    }
}

impl<C: Pipeline> Drop for WriteHalf<C> {
    fn drop(&mut self) {
        self.handle.release(Half::Writer);
    }
}

impl<C: Pipeline> fmt::Debug for ReadHalf<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadHalf({})", connection_id(self.handle.token()))
    }
}

impl<C: Pipeline> fmt::Debug for WriteHalf<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteHalf({})", connection_id(self.handle.token()))
    }
}
