//! The task that serves a channel, and how its end becomes the end of the connection.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tidegate_codec::Pipeline;
use tidegate_sys::Token;

use super::{Channel, ChannelError, Handle};
use crate::close_reason::CloseReason;
use crate::connection::{ChannelState, Switch};
use crate::handler::Outcome;
use crate::local::Local;
use crate::loop_core::Core;
use crate::task::{NO_LOOP, ServingGuard};

/// Starts the task of a connection that has just been opened, as soon as no dispatch is under way.
pub(crate) fn start_later<C, F, E>(core: &Core, token: Token, serve: impl FnOnce(Channel<C>) -> F + 'static)
where
    C: Pipeline,
    F: Future<Output = Result<(), E>> + 'static,
    E: Into<Box<dyn Error>> + 'static,
{
    core.tasks.defer(move || start(token, serve));
}

fn start<C, F, E>(token: Token, serve: impl FnOnce(Channel<C>) -> F)
where
    C: Pipeline,
    F: Future<Output = Result<(), E>> + 'static,
    E: Into<Box<dyn Error>> + 'static,
{
    let local = Local::current().expect(NO_LOOP);
    let channel = Channel::new(Handle::new(local.clone(), token));
    let serving = ServingGuard::of(&local.tasks);
    local.tasks.spawn(Box::pin(ServedTask { future: serve(channel), token, serving }));
}

pin_project! {
    /// The task of one connection: reports how it ended.
    struct ServedTask<F> {
        #[pin]
        future: F,
        token: Token,
        serving: ServingGuard,
    }
}

impl<F, E> Future for ServedTask<F>
where
    F: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error>>,
{
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        match this.future.poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(error)) => {
                report(*this.token, error.into());
                Poll::Ready(())
            }
        }
    }
}

/// Makes the error the reason why the connection is closed. If the connection is gone already, the error is logged all
/// the same.
#[cold]
fn report(token: Token, error: Box<dyn Error>) {
    let (reason, is_logged) = match error.downcast_ref() {
        Some(ChannelError::Closed(reason)) if matches!(**reason, CloseReason::Done) => return,
        // Such a close is logged when it happens. It may concern another connection than the served one.
        Some(ChannelError::Closed(_)) => (CloseReason::Failed(error), true),
        Some(ChannelError::Deadline) => (CloseReason::Deadline, false),
        _ => (CloseReason::Failed(error), false),
    };
    let Some(local) = Local::current() else { return };
    let mut core = local.core.borrow_mut();
    let mut reason = Some(reason);
    core.fail(token, &mut reason);
    if let Some(reason) = reason
        && !is_logged
    {
        let now = core.time.now();
        core.log.closed(now, &"unknown (already closed)", &reason);
    }
}

impl<C: 'static> Switch<C> {
    /// Goes on with the codec that `to` makes of the present codec, and a task that runs `serve`: see
    /// [`Outcome::channel`].
    pub fn channel<D, F, E>(to: impl FnOnce(C) -> D + 'static, serve: impl FnOnce(Channel<D>) -> F + 'static) -> Self
    where
        D: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::to_application(|codec| (to(codec), ChannelState::with_start(|token| start(token, serve))))
    }
}

impl<C: Pipeline> Outcome<C> {
    /// Continues as a channel: with the codec that `to` makes of the present codec, and a task that runs `serve`.
    /// Everything else is as for [`switch`](Outcome::switch), and the task behaves as one of
    /// [`Server::serve`](crate::Server::serve).
    ///
    /// ```
    /// use tidegate::framing::{LengthField, Lines};
    /// use tidegate::{Channel, Context, Handler, Outcome, Slice};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Reads lines until one of them says `BINARY`.
    /// struct Text;
    ///
    /// impl Handler<Lines> for Text {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match &*line {
    ///             b"BINARY" => Outcome::channel(|_| LengthField::new(2), binary),
    ///             _ => Outcome::Continue,
    ///         }
    ///     }
    /// }
    ///
    /// /// Sends frames back.
    /// async fn binary(mut channel: Channel<LengthField>) -> Result<(), Box<dyn std::error::Error>> {
    ///     while let Some(frame) = channel.recv().await? {
    ///         channel.send(frame.into())?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut pipe = Embedded::new(Lines::new(), Text);
    /// pipe.receive(b"hello\nBINARY\n\x00\x03ebb");
    /// assert_eq!(pipe.take_written(), b"\x00\x03ebb");
    /// ```
    pub fn channel<D, F, E>(to: impl FnOnce(C) -> D + 'static, serve: impl FnOnce(Channel<D>) -> F + 'static) -> Self
    where
        D: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::Switch(Switch::channel(to, serve))
    }

    /// Continues as a channel with the same codec, in the middle of a message too, and a task that runs `serve`. The
    /// output until now is sent first. [`Channel::into_handler`] is the way back, and has an example.
    pub fn into_channel<F, E>(serve: impl FnOnce(Channel<C>) -> F + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        let state = ChannelState::with_start(|token| start(token, serve));
        Self::Switch(Switch::to_application(|codec| (codec, state)).keeping_codec())
    }
}
