//! Two futures at once, in one task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Runs two futures until both have succeeded or one has failed; the other one is then dropped. A forwarder runs its
/// two directions this way.
///
/// ```
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// let both = event_loop.block_on(task::try_join(async { Ok::<_, &str>(1) }, async { Ok("two") }))?;
/// assert_eq!(both, Ok((1, "two")));
/// let failed = event_loop.block_on(task::try_join(async { Err::<(), _>("no") }, std::future::pending::<Result<(), _>>()))?;
/// assert_eq!(failed, Err("no"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn try_join<A, B, T, U, E>(first: A, second: B) -> TryJoin<A, B, T, U>
where
    A: Future<Output = Result<T, E>>,
    B: Future<Output = Result<U, E>>,
{
    TryJoin { first, second, done: (None, None) }
}

pin_project! {
    /// The future of [`try_join`].
    #[must_use = "a future does nothing until it is awaited"]
    #[derive(Debug)]
    pub struct TryJoin<A, B, T, U> {
        #[pin]
        first: A,
        #[pin]
        second: B,
        done: (Option<T>, Option<U>),
    }
}

impl<A, B, T, U, E> Future for TryJoin<A, B, T, U>
where
    A: Future<Output = Result<T, E>>,
    B: Future<Output = Result<U, E>>,
{
    type Output = Result<(T, U), E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.done.0.is_none()
            && let Poll::Ready(result) = this.first.poll(cx)
        {
            this.done.0 = Some(result?);
        }
        if this.done.1.is_none()
            && let Poll::Ready(result) = this.second.poll(cx)
        {
            this.done.1 = Some(result?);
        }
        match std::mem::take(this.done) {
            (Some(first), Some(second)) => Poll::Ready(Ok((first, second))),
            unfinished => {
                *this.done = unfinished;
                Poll::Pending
            }
        }
    }
}
