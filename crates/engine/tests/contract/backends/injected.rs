//! `BrokenDriver`: the injected bugs that a driver can have at its interface, for any driver. Bugs within a driver or the
//! engine are where they would be: `crates/buffer/src/injected.rs` lists all of them.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::injected::{Bug, is_injected};
use tidegate_buffer::{Credentials, ReceiveHint, Slice};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Token, Wake, Waker};

/// The driver itself, or with the injected bug, if that is one of these.
pub(super) fn inject(driver: Box<dyn Driver>) -> Box<dyn Driver> {
    if [Bug::NoRearm, Bug::EofLost, Bug::LostWakeUp].into_iter().any(is_injected) {
        Box::new(BrokenDriver { driver, received: HashSet::new() })
    } else {
        driver
    }
}

struct BrokenDriver {
    driver: Box<dyn Driver>,
    /// The sockets whose last completion was bytes.
    received: HashSet<Token>,
}

impl BrokenDriver {
    fn is_lost(&mut self, token: Token, completion: &Completion) -> bool {
        let follows_bytes = self.received.remove(&token);
        match completion {
            Completion::Sent(Ok(0)) => is_injected(Bug::NoRearm),
            Completion::Ended => follows_bytes && is_injected(Bug::EofLost),
            Completion::Received(_) => {
                self.received.insert(token);
                false
            }
            _ => false,
        }
    }
}

impl Driver for BrokenDriver {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    fn waker(&self) -> Waker {
        if is_injected(Bug::LostWakeUp) { Waker::new(Arc::new(NoWake)) } else { self.driver.waker() }
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        self.driver.submit(token, operation)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.driver.wait(timeout)
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        loop {
            let (token, completion) = self.driver.next(class)?;
            if !self.is_lost(token, &completion) {
                return Some((token, completion));
            }
        }
    }

    fn pause_receives(&mut self, pause: bool) {
        self.driver.pause_receives(pause);
    }

    fn watch_end(&mut self, token: Token) {
        self.driver.watch_end(token);
    }

    fn note_work(&mut self, token: Token) {
        self.driver.note_work(token);
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        self.driver.hint_receive(token, hint);
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        self.driver.unacknowledged(token)
    }

    fn has_ready(&self) -> bool {
        self.driver.has_ready()
    }

    fn has_input(&mut self, token: Token) -> bool {
        self.driver.has_input(token)
    }

    fn receive_rest(&mut self, token: Token) -> Option<Slice> {
        self.driver.receive_rest(token)
    }

    fn is_sending(&self, token: Token) -> bool {
        self.driver.is_sending(token)
    }

    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn system_time(&self) -> SystemTime {
        self.driver.system_time()
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        self.driver.address(token, side)
    }

    fn credentials(&self, token: Token) -> io::Result<Credentials> {
        self.driver.credentials(token)
    }
}

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}
