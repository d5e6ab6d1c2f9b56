//! `Core`: what a loop lends to whoever is visited.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use tidegate_buffer::Pool;
use tidegate_codec::Time;
use tidegate_sys::{Completion, Driver, Operation, Side, Socket, Token};

use crate::closed::Closed;
use crate::connection::{Fate, Occasion, Occupant};
use crate::counters::Tally;
use crate::log::Log;
use crate::remote::Mailbox;
use crate::slots::Slots;
use crate::wheel::{Tick, Wheel};

/// The driver, the memory, the slots and the timers of a loop.
pub(crate) struct Core {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) pool: Pool,
    pub(crate) time: Time,
    pub(crate) slots: Slots,
    pub(crate) wheel: Wheel,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) tally: Tally,
    pub(crate) log: Log,
    /// Connections that want to be visited again at the end of this pass, or in the next.
    again: VecDeque<Token>,
    /// When the drain that is under way ends.
    pub(crate) drain_until: Option<Instant>,
}

impl Core {
    pub(crate) fn new(driver: Box<dyn Driver>, pool: Pool) -> Self {
        let now = driver.now();
        Self {
            time: Time::new(now, driver.wall()),
            mailbox: Mailbox::new(driver.waker()),
            driver,
            pool,
            slots: Slots::default(),
            wheel: Wheel::new(now),
            tally: Tally::default(),
            log: Log::new(now),
            again: VecDeque::new(),
            drain_until: None,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// Visits whoever has the slot of `token`, if they are there.
    #[inline]
    pub(crate) fn visit(&mut self, token: Token, occasion: Occasion) {
        match self.slots.take(token) {
            Some(occupant) => self.enter(token, occupant, occasion),
            // What was posted to somebody who is gone is a user's.
            None => quietly(move || drop(occasion)),
        }
    }

    /// Visits an occupant that is not in its slot, and does with it what the visit came to.
    pub(crate) fn enter(&mut self, token: Token, mut occupant: Box<dyn Occupant>, mut occasion: Occasion) {
        // A loop, since a peer may have sent ahead what makes a connection switch, and switch again.
        loop {
            let visited = catch_unwind(AssertUnwindSafe(|| occupant.visit(self, token, occasion)));
            let fate = match visited {
                Ok(fate) => fate,
                Err(panic) => self.after_panic(token, &mut *occupant, panic),
            };
            match fate {
                Fate::Keep => return self.slots.put(token, occupant),
                Fate::Switch(succeed) => match catch_unwind(AssertUnwindSafe(|| succeed(occupant))) {
                    Ok(successor) => (occupant, occasion) = (successor, Occasion::Switched),
                    Err(panic) => return self.lost_in_switch(token, panic),
                },
                Fate::Close { reason, reset } => return self.close(token, occupant, reason, reset),
            }
        }
    }

    /// Gives a connection a slot and its socket to the driver, and visits it for the first time.
    pub(crate) fn admit(&mut self, socket: Socket, connection: Box<dyn Occupant>) -> io::Result<Token> {
        let token = self.slots.reserve();
        if let Some(Completion::Failed(error)) = self.driver.submit(token, Operation::Adopt(socket)) {
            self.release(token);
            return Err(error);
        }
        self.enter(token, connection, Occasion::Opened);
        Ok(token)
    }

    /// Asks for another visit once this pass is over.
    pub(crate) fn visit_again(&mut self, token: Token) {
        self.again.push_back(token);
    }

    pub(crate) fn wants_visits(&self) -> usize {
        self.again.len()
    }

    pub(crate) fn next_again(&mut self) -> Option<Token> {
        self.again.pop_front()
    }

    /// Sets, moves or clears the timer of a slot.
    #[inline]
    pub(crate) fn set_timer(&mut self, token: Token, deadline: Tick) {
        self.wheel.set(&mut self.slots, token.slot, deadline);
    }

    /// Gives back what a slot held; the driver has nothing of it any more.
    pub(crate) fn release(&mut self, token: Token) {
        if self.slots.contains(token) {
            self.wheel.forget(&mut self.slots, token.slot);
            self.slots.release(token);
        }
    }

    /// A panic ends this connection only; what the protocol has to say about it is said.
    fn after_panic(&mut self, token: Token, occupant: &mut dyn Occupant, panic: Box<dyn Any + Send>) -> Fate {
        discard(panic);
        let last_word = catch_unwind(AssertUnwindSafe(|| occupant.visit(self, token, Occasion::Panicked)));
        last_word.unwrap_or_else(|panic| {
            discard(panic);
            Fate::Close { reason: Closed::Panicked, reset: false }
        })
    }

    /// Closes the socket first, and only then releases what was queued: nobody is told of writability meanwhile.
    pub(crate) fn close(&mut self, token: Token, occupant: Box<dyn Occupant>, reason: Closed, reset: bool) {
        let told = catch_unwind(AssertUnwindSafe(move || {
            self.close_socket_then(token, reset, |core| occupant.gone(core, reason));
        }));
        if let Err(panic) = told {
            discard(panic);
        }
    }

    /// A panic between two handlers: neither is left to be told.
    fn lost_in_switch(&mut self, token: Token, panic: Box<dyn Any + Send>) {
        discard(panic);
        self.tally.connections -= 1;
        self.tally.count_closed(Closed::Panicked.cause());
        match self.driver.address(token, Side::Peer) {
            Ok(peer) => self.log.closed(self.time.now(), &peer, &Closed::Panicked),
            Err(_) => self.log.closed(self.time.now(), &"somebody who is gone", &Closed::Panicked),
        }
        self.close_socket_then(token, false, |_| {});
    }

    fn close_socket_then(&mut self, token: Token, reset: bool, then: impl FnOnce(&mut Self) + 'static) {
        match self.driver.submit(token, Operation::Close { reset }) {
            Some(Completion::Closed) => {
                self.release(token);
                then(self);
            }
            _ => self.slots.put(token, Box::new(Closing(Some(Box::new(then))))),
        }
    }
}

/// What is left of a connection while the driver still has operations of it in flight: its memory, until the driver's
/// last word.
struct Closing(Option<Farewell>);

/// What is to be done once a connection's memory is free.
type Farewell = Box<dyn FnOnce(&mut Core)>;

impl Occupant for Closing {
    fn visit(&mut self, core: &mut Core, token: Token, occasion: Occasion) -> Fate {
        if let (Occasion::Closed, Some(then)) = (occasion, self.0.take()) {
            core.release(token);
            then(core);
        }
        Fate::Keep
    }

    fn gone(self: Box<Self>, _: &mut Core, _: Closed) {}

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Does something of a user's that has to be done outside of a visit, such as dropping what was posted. If it panics,
/// nobody else is affected.
pub(crate) fn quietly(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
        discard(panic);
    }
}

/// Drops what a panic carried. That may panic again; nobody could do anything about it.
fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
