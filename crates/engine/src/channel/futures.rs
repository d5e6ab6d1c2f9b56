//! The futures of a channel: named types, a few machine words each. Dropping one loses no message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::WritePosition;
use tidegate_codec::Pipeline;

use super::handle::Handle;
use super::{Channel, ChannelError};
use crate::connection::{ChannelState, Connection};
use crate::loop_core::Core;

/// The future of `recv`: the next message, or `None` when no further one will come.
#[must_use = "a future does nothing until it is awaited"]
pub struct Recv<'a, C: Pipeline> {
    handle: &'a Handle<C>,
    /// The connection has its waker.
    waits: bool,
}

impl<'a, C: Pipeline> Recv<'a, C> {
    pub(super) fn new(handle: &'a Handle<C>) -> Self {
        Self { handle, waits: false }
    }
}

impl<C: Pipeline> Recv<'_, C> {
    /// No reader waits in `recv` any more: the loop receives nothing, and the protocol's deadlines are suspended.
    #[cold]
    fn cancel(&self) {
        let _ = self.handle.with(|connection, core, token| connection.cancel_recv(core, token));
    }
}

impl<C: Pipeline> Future for Recv<'_, C> {
    type Output = Result<Option<C::In>, ChannelError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.handle.poll_recv(cx);
        self.waits = polled.is_pending();
        polled
    }
}

impl<C: Pipeline> Drop for Recv<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.cancel();
        }
    }
}

/// The future of `ready`: more may be sent without exceeding the water marks.
#[must_use = "a future does nothing until it is awaited"]
pub struct Ready<'a, C: Pipeline>(pub(super) &'a Handle<C>);

impl<C: Pipeline> Future for Ready<'_, C> {
    type Output = Result<(), ChannelError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let tasks = &self.0.local().tasks;
        if tasks.has_done_long_work() {
            // A codec that compresses leaves so few bytes that they always have room.
            tasks.wake_for_long_work(cx.waker());
            return Poll::Pending;
        }
        self.0.with_or(|connection, core, _| connection.ready(core, cx.waker()), failed)
    }
}

/// The future of `flushed`: the kernel has all bytes up to the position.
#[must_use = "a future does nothing until it is awaited"]
pub struct Flushed<'a, C: Pipeline> {
    pub(super) handle: &'a Handle<C>,
    /// Set until the first poll, which watches it.
    pub(super) position: Option<WritePosition>,
}

impl<C: Pipeline> Future for Flushed<'_, C> {
    type Output = Result<(), ChannelError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let position = self.position.take();
        let act = |connection: &mut Connection<C, ChannelState>, core: &mut Core, token| {
            if position.is_some() {
                connection.schedule_unless_pending(core, token);
            }
            connection.flushed(core, position, cx.waker())
        };
        self.handle.with_or(act, failed)
    }
}

/// The future of [`Channel::close`]: the connection is closed. It fails if not everything could be sent.
#[must_use = "the connection is closed in any case; the future returns whether everything was sent"]
pub struct Close<C: Pipeline>(pub(super) Channel<C>);

impl<C: Pipeline> Future for Close<C> {
    type Output = Result<(), ChannelError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.handle.with_or(|connection, _, _| connection.poll_closed(cx.waker()), failed)
    }
}

impl<C: Pipeline> Close<C> {
    pub(super) fn begin(channel: Channel<C>) -> Self {
        // A connection that cannot be reached now is closed when the handle is dropped.
        let _ = channel.handle.with(|connection, core, token| connection.close(core, token));
        Self(channel)
    }
}

fn failed<T>(error: ChannelError) -> Poll<Result<T, ChannelError>> {
    Poll::Ready(Err(error))
}

/// A future of a channel with a time limit: the future of `within`. When the time is up it yields
/// [`ChannelError::Deadline`], and no message is lost.
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug)]
pub struct Within<F> {
    future: F,
    by: Option<Instant>,
}

impl<F> Within<F> {
    fn new<C: Pipeline>(handle: &Handle<C>, future: F, duration: Duration) -> Self {
        Self { by: handle.deadline_after(duration), future }
    }
}

impl<T, F> Future for Within<F>
where
    F: Future<Output = Result<T, ChannelError>> + ChannelFuture + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.future).poll(cx) {
            return Poll::Ready(output);
        }
        match self.by {
            Some(by) if self.future.now() >= by => Poll::Ready(Err(ChannelError::Deadline)),
            Some(by) => {
                self.future.wake_by(by);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

/// A future that the timer of its connection can wake.
pub(crate) trait ChannelFuture {
    fn now(&self) -> Instant;
    fn wake_by(&self, at: Instant);
}

macro_rules! channel_future {
    ($future:ident, $self:ident => $handle:expr) => {
        impl<'a, C: Pipeline> $future<'a, C> {
            /// Limits the wait to a duration, precise to a millisecond.
            pub fn within(self, duration: Duration) -> Within<Self> {
                let $self = &self;
                Within::new($handle, self, duration)
            }
        }

        impl<C: Pipeline> ChannelFuture for $future<'_, C> {
            fn now(&self) -> Instant {
                let $self = self;
                $handle.local().now()
            }

            fn wake_by(&self, at: Instant) {
                let $self = self;
                $handle.wake_by(at);
            }
        }

        impl<C: Pipeline> std::fmt::Debug for $future<'_, C> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($future))
            }
        }
    };
}

channel_future!(Recv, future => future.handle);
channel_future!(Ready, future => future.0);
channel_future!(Flushed, future => future.handle);

impl<C: Pipeline> std::fmt::Debug for Close<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Close")
    }
}
