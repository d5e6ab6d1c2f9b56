//! What the handles of a connection have in common: how they reach it.

use std::marker::PhantomData;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::Mark;
use tidegate_codec::Codec;
use tidegate_sys::{Address, Side, Token};

use super::ChannelError;
use crate::closed::Closed;
use crate::connection::{Connection, Ends, Fate, Half};
use crate::context::SendError;
use crate::core::Core;
use crate::local::Local;
use crate::wheel::Tick;

/// A loop, and the number of a connection there.
pub(crate) struct Handle<C> {
    /// `None` once it has passed its connection on to another handle.
    local: Option<Rc<Local>>,
    token: Token,
    codec: PhantomData<fn() -> C>,
}

impl<C: Codec> Handle<C> {
    pub(crate) fn new(local: Rc<Local>, token: Token) -> Self {
        Self { local: Some(local), token, codec: PhantomData }
    }

    pub(crate) fn local(&self) -> &Rc<Local> {
        self.local.as_ref().expect("a handle is not used after it has passed its connection on")
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Passes the connection on: this handle is dropped without a word.
    pub(crate) fn pass_on<D: Codec>(&mut self) -> Handle<D> {
        Handle { local: self.local.take(), token: self.token, codec: PhantomData }
    }

    /// A handle of the same connection, for its other half.
    pub(crate) fn twin(&self) -> Self {
        Self { local: self.local.clone(), token: self.token, codec: PhantomData }
    }

    pub(crate) fn is_twin_of(&self, other: &Self) -> bool {
        self.token == other.token && Rc::ptr_eq(self.local(), other.local())
    }

    /// Reaches the connection.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut Connection<C, Ends>, &mut Core, Token) -> T,
    ) -> Result<T, ChannelError> {
        self.with_fate(|connection, core, token| (act(connection, core, token), Fate::Keep))
    }

    #[inline]
    pub(crate) fn with_fate<T>(
        &self,
        act: impl FnOnce(&mut Connection<C, Ends>, &mut Core, Token) -> (T, Fate),
    ) -> Result<T, ChannelError> {
        let token = self.token;
        let mut core = self.local().core.try_borrow_mut().map_err(|_| ChannelError::Busy)?;
        let acted = core.with(token, |connection, core| act(connection, core, token));
        // Its codec panicked, and so the connection is being closed.
        acted.ok_or_else(|| ChannelError::Closed(Rc::new(Closed::Panicked)))
    }

    pub(crate) fn send(&self, message: C::Out) -> Result<Mark, SendError<C::Out, C::Error>> {
        let mut message = Some(message);
        let sent =
            self.with(|connection, core, token| connection.send(core, token, message.take().expect("it is sent once")));
        match (sent, message) {
            (Ok(sent), _) => sent,
            (Err(ChannelError::Busy), Some(message)) => Err(SendError::Busy(message)),
            (Err(_), Some(message)) => Err(SendError::Closed(message)),
            (Err(_), None) => Err(SendError::Panicked),
        }
    }

    #[inline]
    pub(crate) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<C::In>, ChannelError>> {
        if !self.local().tasks.admits_message() {
            // A peer that has sent much at once does not keep the others waiting.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.with(|connection, core, token| connection.pull(core, token, cx.waker()));
        polled.unwrap_or_else(|error| Poll::Ready(Err(error)))
    }

    pub(crate) fn wake_by(&self, at: Instant) {
        // If it cannot be reached there is nothing to wait for either.
        let _ = self.with(|connection, core, token| {
            let tick = core.wheel.tick(at);
            connection.wake_by(core, token, tick);
        });
    }

    pub(crate) fn set_deadline(&self, at: Option<Instant>) {
        let _ = self.with(|connection, core, token| {
            let tick = at.map_or(Tick::NEVER, |at| core.wheel.tick(at));
            connection.set_deadline(core, token, tick);
        });
    }

    pub(crate) fn after(&self, duration: Duration) -> Option<Instant> {
        self.local().now().checked_add(duration)
    }

    pub(crate) fn address(&self, side: Side) -> std::io::Result<Address> {
        match self.local().core.try_borrow() {
            Ok(core) => core.driver.address(self.token, side),
            Err(_) => Err(std::io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// The handle is dropped: that of one half, or of both.
    pub(crate) fn release(&mut self, half: Half) {
        let Some(local) = self.local.take() else { return };
        let (token, panicking) = (self.token, std::thread::panicking());
        local.with_core(move |core| {
            let last = core.with(token, |connection: &mut Connection<C, Ends>, core| {
                connection.dropped(core, token, half, panicking)
            });
            if last == Some(true) {
                core.release(token);
            }
        });
    }
}
