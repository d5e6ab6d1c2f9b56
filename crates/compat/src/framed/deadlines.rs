//! The deadlines of a connection: the codec's, that of a stream that takes no byte, and that of a peer that does not end
//! its side.
//!
//! They share one tokio timer, which exists while one of them does. A codec's deadline is looked at only after a read
//! has found nothing, so a peer whose bytes lie in the kernel is not late; and only while a task waits for a message
//! and the peer reads, as in the engine.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_codec::Pipeline;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

use super::limits::{LINGER_MAX, SUSPENSION_MIN, TIMEOUT_RETRY_INTERVAL};
use super::{Framed, FramedError};

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    timer: Option<Pin<Box<Sleep>>>,
    /// The time since which no task waits for a message.
    suspended: Option<Instant>,
    /// When a deadline of the codec was handled last.
    handled: Option<Instant>,
    /// By when the stream has to take a byte.
    write: Option<Instant>,
    linger: Linger,
}

/// The wait for the peer's end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Linger {
    #[default]
    NotYet,
    /// Until `soon` if the peer is silent, until `last` in any case.
    Until {
        soon: Instant,
        last: Instant,
    },
    Over,
}

impl Deadlines {
    /// No task waits for a message from now on.
    pub(super) fn suspend(&mut self, now: Instant) {
        self.suspended = Some(now);
    }

    /// A task waits for a message. Returns whether none did for some time.
    pub(super) fn resume(&mut self, now: Instant) -> bool {
        self.suspended.take().is_some_and(|at| now.saturating_duration_since(at) >= SUSPENSION_MIN)
    }

    /// The stream took bytes, or none wait.
    pub(super) fn note_progress(&mut self) {
        self.write = None;
    }

    /// Bytes wait that the stream does not take.
    pub(super) fn note_blocked(&mut self, now: Instant, timeout: Duration) {
        self.write = self.write.or_else(|| now.checked_add(timeout));
    }

    /// Our side is shut down: the wait for the peer's end begins, unless it has.
    pub(super) fn linger(&mut self, now: Instant, timeout: Duration) {
        if self.linger == Linger::NotYet {
            let last = now + LINGER_MAX;
            self.linger = Linger::Until { soon: now.checked_add(timeout).map_or(last, |soon| soon.min(last)), last };
        }
    }

    /// The peer has sent more meanwhile.
    pub(super) fn note_lingering(&mut self, now: Instant, timeout: Duration) {
        if let Linger::Until { soon, last } = &mut self.linger {
            *soon = now.checked_add(timeout).map_or(*last, |soon| soon.min(*last));
        }
    }

    pub(super) fn has_lingered(&self) -> bool {
        self.linger == Linger::Over
    }

    /// The connection is over.
    pub(super) fn release(&mut self) {
        *self = Self { linger: Linger::Over, ..Self::default() };
    }

    /// The soonest deadline.
    fn next(&self, codec: Option<Instant>) -> Option<Instant> {
        let linger = match self.linger {
            Linger::Until { soon, .. } => Some(soon),
            Linger::NotYet | Linger::Over => None,
        };
        [codec, self.write, linger].into_iter().flatten().min()
    }

    /// Whether the timer has come to `at`.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let at = tokio::time::Instant::from_std(at);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        // A timer that was set for an earlier deadline is set again when it fires: most deadlines move on before.
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Framed<T, P> {
    /// Handles the deadlines that have come, or has the timer wake the task at the next. `is_receiving`: a task waits
    /// for a message.
    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>, is_receiving: bool) -> Poll<()> {
        let now = self.memory.time().now();
        let codec = self.codec_deadline(is_receiving);
        let Some(at) = self.deadlines.next(codec) else {
            self.deadlines.timer = None;
            return Poll::Pending;
        };
        if at > now && self.deadlines.poll_timer(at, cx).is_pending() {
            return Poll::Pending;
        }
        let now = self.memory.advance();
        if codec.is_some_and(|at| at <= now) {
            self.deadlines.handled = Some(now);
            if let Err(error) = self.with_codec(|codec, input, reply| codec.handle_timeout(input, reply)) {
                self.fail_reading(error);
            }
            self.update_level();
        }
        if self.deadlines.write.is_some_and(|at| at <= now) {
            self.break_off(FramedError::WriteTimeout);
        }
        if matches!(self.deadlines.linger, Linger::Until { soon, .. } if soon <= now) {
            self.deadlines.linger = Linger::Over;
        }
        Poll::Ready(())
    }

    /// The codec's deadline, if it counts now: the peer is awaited, and reads.
    fn codec_deadline(&self, is_receiving: bool) -> Option<Instant> {
        let is_awaited = is_receiving && self.may_decode() || self.wants_handshake_input();
        if self.is_closing || !is_awaited {
            return None;
        }
        let at = self.codec.poll_timeout()?;
        // A deadline that stays in place although it was handled must not occupy the thread.
        let retry = self.deadlines.handled.map(|handled| handled + TIMEOUT_RETRY_INTERVAL);
        Some(retry.filter(|_| self.deadlines.handled >= Some(at)).unwrap_or(at))
    }
}
