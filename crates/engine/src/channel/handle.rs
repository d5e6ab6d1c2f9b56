//! `Handle`: how a channel and its halves reach their connection.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::{Credentials, WritePosition};
use tidegate_codec::{Broadcast, Pipeline};
use tidegate_sys::{Address, PassedDescriptors, Side, Token};

use super::ChannelError;
use crate::close_reason::CloseReason;
use crate::connection::{ChannelState, Connection, Half, Refusal, Switch};
use crate::context::SendError;
use crate::group::{Group, Member};
use crate::handler::Handler;
use crate::local::{HandleLocal, Local};
use crate::loop_core::Core;
use crate::slot_entry::{Disposition, SlotEntry};
use crate::wheel::DeadlineTick;

/// A loop, and the number of a connection there.
pub(crate) struct Handle<C> {
    /// `None` once it has passed its connection on to another handle.
    local: Option<HandleLocal>,
    token: Token,
    codec: PhantomData<fn() -> C>,
}

impl<C: Pipeline> Handle<C> {
    pub(crate) fn new(local: Rc<Local>, token: Token) -> Self {
        Self { local: Some(HandleLocal::new(local)), token, codec: PhantomData }
    }

    pub(crate) fn local(&self) -> &Rc<Local> {
        self.local.as_ref().expect("a handle is not used after it has passed its connection on")
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Passes the connection on: dropping this handle has no effect then.
    pub(crate) fn transfer<D: Pipeline>(&mut self) -> Handle<D> {
        Handle { local: self.local.take(), token: self.token, codec: PhantomData }
    }

    /// A handle of the same connection, for its other half.
    pub(crate) fn other_half(&self) -> Self {
        Self { local: self.local.clone(), token: self.token, codec: PhantomData }
    }

    pub(crate) fn is_same_connection(&self, other: &Self) -> bool {
        self.token == other.token && Rc::ptr_eq(self.local(), other.local())
    }

    /// Runs `act` on the connection. If its codec panics meanwhile, the connection ends as if a dispatch had panicked.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut Connection<C, ChannelState>, &mut Core, Token) -> T,
    ) -> Result<T, ChannelError> {
        self.with_or(|connection, core, token| Ok(act(connection, core, token)), Err)
    }

    /// As [`with`](Self::with), without a further layer around the return value.
    #[inline]
    pub(crate) fn with_or<T>(
        &self,
        act: impl FnOnce(&mut Connection<C, ChannelState>, &mut Core, Token) -> T,
        or: impl FnOnce(ChannelError) -> T,
    ) -> T {
        let Ok(mut core) = self.local().core.try_borrow_mut() else { return or(ChannelError::Busy) };
        let core = &mut *core;
        let Some(mut entry) = core.slots.take(self.token) else { return or(connection_lost()) };
        let Some(connection) = Self::downcast(&mut entry) else {
            core.slots.put(self.token, entry);
            return or(connection_lost());
        };
        match catch_unwind(AssertUnwindSafe(|| act(connection, core, self.token))) {
            Ok(value) => {
                core.slots.put_at_hand(self.token, entry);
                value
            }
            Err(panic) => {
                core.end_panicked(self.token, entry, panic);
                or(connection_lost())
            }
        }
    }

    /// The connection that an entry is, or that lies within it while it closes.
    #[inline]
    fn downcast(entry: &mut Box<dyn SlotEntry>) -> Option<&mut Connection<C, ChannelState>> {
        entry.as_any().downcast_mut()
    }

    /// Replaces the connection's codec by the one that `to` makes of it.
    pub(crate) fn switch<D: Pipeline>(&self, to: impl FnOnce(C) -> D + 'static) -> Result<(), ChannelError> {
        let token = self.token;
        let mut core = self.local().core.try_borrow_mut().map_err(|_| ChannelError::Busy)?;
        let switched = core
            .with(token, |connection: &mut Connection<C, ChannelState>, core| ((), connection.switch(core, token, to)));
        drop(core);
        let next = Handle::<D> { local: self.local.clone(), token, codec: PhantomData };
        let has_switched = switched.is_some() && next.with(|_, _, _| ()).is_ok();
        if has_switched { Ok(()) } else { Err(connection_lost()) }
    }

    /// Gives the connection to a handler. No handle is left then.
    pub(crate) fn become_handler<H: Handler<C>>(&mut self, handler: H) -> Result<(), ChannelError> {
        self.replace(|connection, core, token| connection.become_handler(core, token, handler))
    }

    /// Hands the connection over to the target of the switch. No handle is left then.
    pub(crate) fn switch_by(&mut self, switch: Switch<C>) -> Result<(), ChannelError> {
        self.replace(|connection, core, token| connection.switch_by(core, token, switch))
    }

    fn replace(
        &mut self,
        by: impl FnOnce(&mut Connection<C, ChannelState>, &mut Core, Token) -> (bool, Disposition),
    ) -> Result<(), ChannelError> {
        let local = self.local.take().expect("a handle is not used after it has passed its connection on");
        let Ok(mut core) = local.core.try_borrow_mut() else {
            self.local = Some(local.clone());
            return Err(ChannelError::Busy);
        };
        let token = self.token;
        let is_replaced =
            core.with(token, |connection: &mut Connection<C, ChannelState>, core| by(connection, core, token));
        drop(core);
        if is_replaced != Some(true) {
            // The entry of a closed connection goes with its last handle, and that is still this one.
            self.local = Some(local);
            return Err(connection_lost());
        }
        Ok(())
    }

    /// As [`with_or`](Self::with_or), with a message that is returned if it cannot be queued. Only the codec's work
    /// runs where panics are caught: values that pass through there are copied.
    #[inline(always)]
    pub(crate) fn send(&self, message: C::Out) -> Result<WritePosition, SendError<C::Out, C::Error>> {
        let Ok(mut core) = self.local().core.try_borrow_mut() else { return Err(SendError::Busy(message)) };
        let core = &mut *core;
        let Some(mut entry) = core.slots.take(self.token) else { return Err(SendError::Closed(message)) };
        let Some(connection) = Self::downcast(&mut entry) else {
            core.slots.put(self.token, entry);
            return Err(SendError::Closed(message));
        };
        if let Some(refusal) = connection.refusal() {
            core.slots.put_at_hand(self.token, entry);
            return Err(match refusal {
                Refusal::Closed => SendError::Closed(message),
                Refusal::Full => SendError::Full(message),
            });
        }
        match catch_unwind(AssertUnwindSafe(|| connection.send(core, self.token, message))) {
            Ok(Ok(position)) => {
                core.slots.put_at_hand(self.token, entry);
                Ok(position)
            }
            Ok(Err(error)) => {
                core.slots.put_at_hand(self.token, entry);
                Err(SendError::Codec(error))
            }
            Err(panic) => {
                core.end_panicked(self.token, entry, panic);
                Err(SendError::Panicked)
            }
        }
    }

    pub(crate) fn join(&self, group: &Group<C>) -> Result<(), ChannelError>
    where
        C: Broadcast,
    {
        self.with(|connection, core, token| {
            connection.check_writable()?;
            core.join(group.shared(), token);
            Ok(())
        })?
    }

    pub(crate) fn leave(&self, group: &Group<C>) -> Result<(), ChannelError> {
        let mut core = self.local().core.try_borrow_mut().map_err(|_| ChannelError::Busy)?;
        core.groups.leave(group.shared(), self.token);
        Ok(())
    }

    pub(crate) fn member(&self) -> Result<Member, ChannelError> {
        let core = self.local().core.try_borrow().map_err(|_| ChannelError::Busy)?;
        Ok(Member::new(&core.mailbox, self.token))
    }

    #[inline]
    pub(crate) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<C::In>, ChannelError>> {
        let tasks = &self.local().tasks;
        if !tasks.take_message_permit() {
            // A peer that has sent much at once does not delay the others.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if tasks.has_done_long_work() {
            return self.poll_recv_in_turn(cx);
        }
        self.with_or(
            |connection, core, token| connection.poll_recv(core, token, cx.waker()),
            |error| Poll::Ready(Err(error)),
        )
    }

    /// The messages before were much work: the next one waits for its turn, and the next bytes for those of light
    /// connections. A stream has no socket.
    #[cold]
    fn poll_recv_in_turn<T>(&self, cx: &Context<'_>) -> Poll<T> {
        let local = self.local();
        local.tasks.wake_for_long_work(cx.waker());
        if let Ok(mut core) = local.core.try_borrow_mut() {
            core.driver.note_work(self.token);
        }
        Poll::Pending
    }

    pub(crate) fn poll_closed(&self, cx: &Context<'_>) -> Poll<ChannelError> {
        let polled =
            self.with_or(|connection, _, _| connection.poll_closed(cx.waker()), |error| Poll::Ready(Err(error)));
        polled.map(|ended| ended.err().unwrap_or_else(|| ChannelError::Closed(Rc::new(CloseReason::Done))))
    }

    pub(crate) fn wake_by(&self, at: Instant) {
        // If the connection cannot be reached, there is nothing to wait for either.
        let _ = self.with(|connection, core, token| {
            let tick = core.wheel.tick(at);
            connection.wake_by(core, token, tick);
        });
    }

    pub(crate) fn set_deadline(&self, at: Option<Instant>) {
        let _ = self.with(|connection, core, token| {
            let tick = at.map_or(DeadlineTick::NEVER, |at| core.wheel.tick(at));
            connection.set_deadline(core, token, tick);
        });
    }

    pub(crate) fn deadline_after(&self, duration: Duration) -> Option<Instant> {
        self.local().now().checked_add(duration)
    }

    pub(crate) fn address(&self, side: Side) -> std::io::Result<Address> {
        match self.local().core.try_borrow_mut() {
            Ok(mut core) => core.address(self.token, side),
            Err(_) => Err(std::io::ErrorKind::ResourceBusy.into()),
        }
    }

    pub(crate) fn peer_credentials(&self) -> std::io::Result<Credentials> {
        match self.local().core.try_borrow_mut() {
            Ok(core) => core.driver.credentials(self.token),
            Err(_) => Err(std::io::ErrorKind::ResourceBusy.into()),
        }
    }

    pub(crate) fn keep_descriptors(&self, descriptors_max: u8) -> std::io::Result<()> {
        match self.local().core.try_borrow_mut() {
            Ok(mut core) => core.driver.keep_descriptors(self.token, descriptors_max),
            Err(_) => Err(std::io::ErrorKind::ResourceBusy.into()),
        }
    }

    pub(crate) fn take_descriptors(&self) -> PassedDescriptors {
        match self.local().core.try_borrow_mut() {
            Ok(mut core) => core.driver.take_descriptors(self.token),
            Err(_) => PassedDescriptors::default(),
        }
    }

    pub(crate) fn send_descriptors(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
        let sent = self.with(|connection, core, token| connection.send_descriptors(core, token, bytes, descriptors));
        sent.unwrap_or_else(|error| {
            let is_busy = matches!(error, ChannelError::Busy);
            Err(if is_busy { std::io::ErrorKind::ResourceBusy } else { std::io::ErrorKind::NotConnected }.into())
        })
    }

    /// Resets the connection; from within a handler, as soon as the dispatch is over.
    pub(crate) fn reset(&self, reason: CloseReason) {
        let token = self.token;
        self.local().with_core(move |core| {
            core.with(token, |connection: &mut Connection<C, ChannelState>, _| ((), connection.reset(reason)));
        });
    }

    /// The handle is dropped: that of one half, or of both.
    pub(crate) fn release(&mut self, half: Half) {
        let Some(local) = self.local.take() else { return };
        let (token, panicking) = (self.token, std::thread::panicking());
        local.with_core(move |core| {
            // As a dispatch, since its codec may panic again.
            let last = core.with(token, |connection: &mut Connection<C, ChannelState>, core| {
                connection.on_handle_dropped(core, token, half, panicking)
            });
            if last == Some(true) {
                core.release(token);
            }
        });
    }
}

/// The connection is no longer there: a panic in its codec took it.
#[cold]
fn connection_lost() -> ChannelError {
    ChannelError::Closed(Rc::new(CloseReason::Panicked))
}
