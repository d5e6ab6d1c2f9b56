//! The timers that a task awaits, on the loop's wheel.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tidegate_sys::Token;

use super::NO_LOOP;
use crate::local::Local;
use crate::loop_core::Core;
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent, SocketState};

/// The time of the loop's turn. It stands still while a task runs, and a test can set it.
///
/// # Panics
/// If no event loop runs on this thread.
#[must_use]
pub fn now() -> Instant {
    Local::current().expect(NO_LOOP).now()
}

/// Waits for a duration, precise to a millisecond; for ever if it is [`Duration::MAX`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// event_loop.block_on(async {
///     let begun = task::now();
///     task::sleep(Duration::from_millis(5)).await;
///     assert!(task::now() - begun >= Duration::from_millis(5));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If no event loop runs on this thread.
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    let local = Local::current().expect(NO_LOOP);
    let at = local.now().checked_add(duration);
    Sleep { timer: Timer::new(local), at }
}

/// Waits until a time.
///
/// # Panics
/// If no event loop runs on this thread.
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep { timer: Timer::new(Local::current().expect(NO_LOOP)), at: Some(at) }
}

/// Waits for a future, but no longer than a duration. When the time is up, the future is dropped.
///
/// # Panics
/// If no event loop runs on this thread.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

/// Ticks at a fixed period, the first time at once. A missed tick is skipped: the next one comes when it would have
/// come anyway.
///
/// # Panics
/// If no event loop runs on this thread, or the period is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval needs a period above zero");
    let local = Local::current().expect(NO_LOOP);
    let next = Some(local.now());
    Interval { timer: Timer::new(local), next, period }
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    timer: Timer,
    /// `None` means never: the time is too far away to represent.
    at: Option<Instant>,
}

impl Future for Sleep {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.at {
            Some(at) => self.timer.poll_in_turn(at, cx.waker()),
            None => Poll::Pending,
        }
    }
}

pin_project! {
    /// The future of [`timeout`].
    #[must_use = "a future does nothing until it is awaited"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}

/// The time was up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up")
    }
}

impl std::error::Error for Elapsed {}

/// Lets entries of a table expire, whose next deadline changes with the table: for a future that is polled after each change.
///
/// ```
/// use std::future::poll_fn;
/// use std::task::Poll;
/// use std::time::Duration;
/// use tidegate::{Backend, EventLoop, task};
///
/// let mut event_loop = EventLoop::on(Backend::Auto)?;
/// event_loop.block_on(async {
///     let begun = task::now();
///     let mut deadlines = vec![begun + Duration::from_millis(1), begun + Duration::from_millis(3)];
///     let mut timer = task::ExpiryTimer::default();
///     poll_fn(|cx| {
///         timer.poll(cx, |now| {
///             deadlines.retain(|deadline| *deadline > now);
///             deadlines.first().copied()
///         });
///         if deadlines.is_empty() { Poll::Ready(()) } else { Poll::Pending }
///     })
///     .await;
///     assert!(task::now() - begun >= Duration::from_millis(3));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ExpiryTimer(Option<Sleep>);

impl ExpiryTimer {
    /// Calls `expire` with the present time, and has `cx` woken at the deadline that it returns. A deadline that has come
    /// already calls it once more.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub fn poll(&mut self, cx: &mut Context<'_>, mut expire: impl FnMut(Instant) -> Option<Instant>) {
        while let Some(next) = expire(now()) {
            let sleep = match &mut self.0 {
                Some(sleep) if sleep.at == Some(next) => sleep,
                timer => timer.insert(sleep_until(next)),
            };
            if Pin::new(sleep).poll(cx).is_pending() {
                return;
            }
            self.0 = None;
        }
    }
}

/// Ticks at a fixed period, made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    timer: Timer,
    /// `None` means never: the time is too far away to represent.
    next: Option<Instant>,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick. Dropping the future loses no tick.
    pub fn tick(&mut self) -> Tick<'_> {
        Tick(self)
    }
}

/// The future of [`Interval::tick`]; yields the time at which the tick was due.
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug)]
pub struct Tick<'a>(&'a mut Interval);

impl Future for Tick<'_> {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        let Interval { timer, next, period } = &mut *self.0;
        let Some(due) = *next else { return Poll::Pending };
        if timer.poll_in_turn(due, cx.waker()).is_pending() {
            return Poll::Pending;
        }
        let missed = timer.local.now().saturating_duration_since(due).as_nanos() / period.as_nanos();
        let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        *next = due.checked_add(period.saturating_mul(steps));
        Poll::Ready(due)
    }
}

/// A slot on the loop's wheel, reserved when the timer is first polled.
pub(crate) struct Timer {
    local: Rc<Local>,
    slot: Option<Token>,
}

impl Timer {
    pub(crate) fn new(local: Rc<Local>) -> Self {
        Self { local, slot: None }
    }

    pub(crate) fn poll(&mut self, at: Instant, waker: &Waker) -> Poll<()> {
        if self.local.now() >= at {
            self.release();
            return Poll::Ready(());
        }
        let Ok(mut core) = self.local.core.try_borrow_mut() else {
            // A handler polls it during a dispatch: poll it again later.
            waker.wake_by_ref();
            return Poll::Pending;
        };
        let core = &mut *core;
        let token = *self.slot.get_or_insert_with(|| {
            let token = core.slots.reserve();
            core.slots.put(token, Box::new(TimerEntry(None)));
            token
        });
        let tick = core.wheel.tick(at);
        core.set_timer(token, tick);
        core.with(token, |TimerEntry(registered), _| {
            match registered {
                Some(registered) => registered.clone_from(waker),
                None => *registered = Some(waker.clone()),
            }
            ((), Disposition::Keep)
        });
        Poll::Pending
    }

    /// As [`poll`](Self::poll), but a task that has waited again and again for times that had passed already is woken
    /// after the others. Otherwise it would block the loop for ever: the loop's time stands still while it runs.
    fn poll_in_turn(&mut self, at: Instant, waker: &Waker) -> Poll<()> {
        let polled = self.poll(at, waker);
        if polled.is_ready() && !self.local.tasks.take_message_permit() {
            waker.wake_by_ref();
            return Poll::Pending;
        }
        polled
    }

    fn release(&mut self) {
        if let Some(token) = self.slot.take() {
            self.local.with_core(move |core| core.release(token));
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The entry of a timer's slot: wakes a task when the slot's timer fires.
struct TimerEntry(Option<Waker>);

impl SlotEntry for TimerEntry {
    fn dispatch(&mut self, _: &mut Core, _: Token, event: SlotEvent) -> Disposition {
        if matches!(event, SlotEvent::Timer)
            && let Some(waker) = self.0.take()
        {
            waker.wake();
        }
        Disposition::Keep
    }

    fn socket_state(&self) -> SocketState {
        SocketState::NoSocket
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
