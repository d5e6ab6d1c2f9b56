//! A driver that wraps the network's and records operations and completions.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::ReceiveHint;
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Token, Waker};

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The loop has waited.
    Turn,
    Begun(Token, Begun),
    /// A completion, returned by the operation itself or later.
    Done(Token, Done, Promptly),
}

/// Whether the operation itself returned the completion.
pub(crate) type Promptly = bool;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Listen,
    Accept(bool),
    Adopt,
    Connect,
    Receive(bool),
    Send,
    Shut,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Accepted,
    Connected,
    Received,
    Ended,
    Sent(usize),
    Failed,
    Closed,
    Woken,
}

/// The records of shims. Clones share one journal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Vec<Seen>>>);

impl Journal {
    /// Wraps a driver.
    pub(crate) fn shim(&self) -> impl FnOnce(Box<dyn Driver>) -> Box<dyn Driver> + 'static {
        let journal = self.clone();
        |below| Box::new(Shim { below, journal })
    }

    pub(crate) fn read(&self) -> Vec<Seen> {
        self.0.borrow().clone()
    }

    pub(crate) fn count(&self, is_meant: impl FnMut(&&Seen) -> bool) -> usize {
        self.0.borrow().iter().filter(is_meant).count()
    }

    fn note(&self, seen: Seen) {
        self.0.borrow_mut().push(seen);
    }

    fn done(&self, token: Token, completion: &Completion, promptly: Promptly) {
        let done = match completion {
            Completion::Accepted(_) => Done::Accepted,
            Completion::Connected(_) => Done::Connected,
            Completion::Received(_) => Done::Received,
            Completion::Ended | Completion::HungUp => Done::Ended,
            Completion::Sent(sent) => Done::Sent(*sent.as_ref().unwrap_or(&0)),
            Completion::Failed(_) => Done::Failed,
            Completion::Closed => Done::Closed,
            Completion::Woken => Done::Woken,
            Completion::Datagrams(_) | Completion::Transmitted(_) | Completion::DatagramErrors(_) => {
                unreachable!("these tests have no datagrams")
            }
        };
        self.note(Seen::Done(token, done, promptly));
    }
}

struct Shim {
    below: Box<dyn Driver>,
    journal: Journal,
}

impl Driver for Shim {
    fn name(&self) -> &'static str {
        "shim"
    }

    fn waker(&self) -> Waker {
        self.below.waker()
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        let begun = match operation {
            Operation::Listen(_) => Begun::Listen,
            Operation::Accept(on) => Begun::Accept(on),
            Operation::Adopt(_) => Begun::Adopt,
            Operation::Connect { .. } => Begun::Connect,
            Operation::Receive(on) => Begun::Receive(on),
            Operation::Send { .. } => Begun::Send,
            Operation::ShutdownWrite => Begun::Shut,
            Operation::Close { .. } => Begun::Close,
            Operation::Bind { .. } | Operation::Transmit(_) => unreachable!("these tests have no datagrams"),
        };
        self.journal.note(Seen::Begun(token, begun));
        let completion = self.below.submit(token, operation)?;
        self.journal.done(token, &completion, true);
        Some(completion)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.journal.note(Seen::Turn);
        self.below.wait(timeout)
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        let (token, completion) = self.below.next(class)?;
        self.journal.done(token, &completion, false);
        Some((token, completion))
    }

    fn has_ready(&self) -> bool {
        self.below.has_ready()
    }

    fn has_input(&mut self, token: Token) -> bool {
        self.below.has_input(token)
    }

    fn pause_receives(&mut self, hold: bool) {
        self.below.pause_receives(hold);
    }

    fn note_work(&mut self, token: Token) {
        self.below.note_work(token);
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        self.below.hint_receive(token, hint);
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        self.below.unacknowledged(token)
    }

    fn now(&self) -> Instant {
        self.below.now()
    }

    fn system_time(&self) -> SystemTime {
        self.below.system_time()
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        self.below.address(token, side)
    }
}
