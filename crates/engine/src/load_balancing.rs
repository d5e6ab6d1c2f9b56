//! `LoadBalancing`: which loop serves a fresh connection, and how one loop hands it to another.
//!
//! A connection never moves later: its memory, timers and tasks belong to its loop. So the kernel chooses unless this is set.
//!
//! Loops that hand connections to each other are a [`LoopGroup`]: one word for each loop, which contains how many
//! connections it has, how many are in transit to it, and whether it takes any. The accepting loop compares the words,
//! counts the connection at its destination, and only then sends it there, as a message to that loop's acceptor: so a
//! burst spreads evenly, even before any loop has read a message.
//!
//! **Each handed-over connection has a receiver.** A loop that will take no more sets a bit in the word in which other
//! loops count their connections to it, so it learns how many are in transit, and none comes behind that: it waits for
//! those. A mailbox that takes no message gives the connection back, and it stays where it was accepted. A connection
//! in transit to a loop that fails, or to one whose drain reaches its deadline, is closed, as is everything that the
//! loop has.
//!
//! Read next: `acceptor.rs`, which hands over and receives.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tidegate_sys::{Accepted, Token};

use crate::limits::HANDOFFS_MAX;
use crate::mailbox::{LoopMessage, Mailbox, MailboxError};

/// Which of a server's loops serves a fresh connection.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, LoadBalancing, Server};
///
/// let echo = |mut channel: Channel<Lines>| async move {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok::<_, Box<dyn std::error::Error>>(())
/// };
/// let server = Server::bind("127.0.0.1:0")?.load_balancing(LoadBalancing::LeastLoaded).serve(Lines::new, echo)?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoadBalancing {
    /// The loop that has accepted it. On TCP each loop has a listener of its own, and the kernel chooses among them by
    /// a hash of the addresses: even for many connections, and free. Loops share the queue of a Unix socket, and of a
    /// listener that was passed to the process: the first loop that is awake takes the waiting connections.
    #[default]
    Kernel,
    /// The loop that has the fewest connections of this server: for few connections that last long, for Unix sockets
    /// and for listeners from elsewhere. A connection that is handed over costs a message, which wakes the other loop
    /// if it sleeps; from then on it costs the same as any other.
    LeastLoaded,
}

/// The loops of a server that hand connections to each other.
#[derive(Debug)]
pub(crate) struct LoopGroup {
    /// Connections of the server, on all loops.
    live: Arc<AtomicUsize>,
    loads: Box<[LoopLoad]>,
}

/// One loop, as the others see it. Each has cache lines of its own: its word changes with every connection.
#[derive(Debug)]
#[repr(align(128))]
struct LoopLoad {
    /// The number of its connections, those in transit included; the number in transit, in units of [`IN_TRANSIT`]; and
    /// [`SHUT`].
    word: AtomicU64,
    inbox: OnceLock<Inbox>,
}

/// Where connections for a loop are sent.
#[derive(Debug)]
struct Inbox {
    mailbox: Arc<Mailbox>,
    acceptor: Token,
}

impl LoopGroup {
    /// A group of loops that take none yet.
    pub(crate) fn new(loops: usize, live: Arc<AtomicUsize>) -> Arc<Self> {
        let member = || LoopLoad { word: AtomicU64::new(SHUT), inbox: OnceLock::new() };
        Arc::new(Self { live, loads: (0..loops).map(|_| member()).collect() })
    }

    /// The place of a loop.
    pub(crate) fn handle(self: &Arc<Self>, number: usize) -> LoopHandle {
        LoopHandle { group: self.clone(), number }
    }
}

/// A loop's place in its group.
#[derive(Debug, Clone)]
pub(crate) struct LoopHandle {
    group: Arc<LoopGroup>,
    number: usize,
}

impl LoopHandle {
    fn load(&self) -> &LoopLoad {
        &self.group.loads[self.number]
    }

    /// Counts a connection that is served here.
    pub(crate) fn add_connection(&self) {
        self.load().word.fetch_add(ONE, Relaxed);
    }

    /// A connection of this loop is gone.
    pub(crate) fn remove_connection(&self) {
        self.load().word.fetch_sub(ONE, Relaxed);
    }

    /// From now on an acceptor of this loop receives connections, unless another acceptor of the loop does already.
    pub(crate) fn receive(&self, mailbox: &Arc<Mailbox>, acceptor: Token) -> Option<HandoffReceiver> {
        self.load().inbox.set(Inbox { mailbox: mailbox.clone(), acceptor }).ok()?;
        self.load().word.fetch_and(!SHUT, Relaxed);
        Some(HandoffReceiver(self.clone()))
    }

    /// Hands a connection, which is counted in the server already, to the loop that has the fewest; gives it back if
    /// that is this loop, or if the other does not take it.
    pub(crate) fn hand_over(&self, accepted: Accepted) -> Option<Accepted> {
        let Some(other) = self.least_loaded() else { return Some(accepted) };
        let (inbox, handoff) = match other.reserve(accepted) {
            Ok(expected) => expected,
            Err(accepted) => return Some(accepted),
        };
        let refused = inbox.mailbox.send(LoopMessage::Post { token: inbox.acceptor, post: handoff }).err()?;
        let message = match refused {
            // That loop takes no further connection either.
            MailboxError::Ended(message) => {
                other.load().word.fetch_or(SHUT, Relaxed);
                message
            }
            MailboxError::Full(message) => message,
        };
        other.remove_connection();
        message.into_post::<HandoffConnection>().into_accepted()
    }

    /// The loop that has the fewest connections, if it has fewer than this one. Each loop starts the search behind
    /// itself, so that the loops do not all choose the same one of several.
    fn least_loaded(&self) -> Option<Self> {
        let members = &self.group.loads;
        let mut fewest = count(self.load().word.load(Relaxed));
        let mut found = None;
        for number in (self.number + 1..members.len()).chain(0..self.number) {
            let word = members[number].word.load(Relaxed);
            if count(word) < fewest && is_open(word) {
                fewest = count(word);
                found = Some(number);
            }
        }
        found.map(|number| self.group.handle(number))
    }

    /// Counts a connection that is about to be sent to this loop; takes the count back if the loop receives none any
    /// more.
    fn reserve(&self, accepted: Accepted) -> Result<(&Inbox, Box<HandoffConnection>), Accepted> {
        let member = self.load();
        let before = member.word.fetch_add(ONE + IN_TRANSIT, Relaxed);
        match member.inbox.get().filter(|_| is_open(before)) {
            Some(inbox) => Ok((inbox, Box::new(HandoffConnection { accepted: Some(accepted), to: self.clone() }))),
            None => {
                member.word.fetch_sub(ONE + IN_TRANSIT, Relaxed);
                Err(accepted)
            }
        }
    }
}

/// A loop's side that receives connections. Dropping it stops that.
#[derive(Debug)]
pub(crate) struct HandoffReceiver(LoopHandle);

impl HandoffReceiver {
    /// Stops receiving. Returns whether connections are in transit, or may be: a sender that counts one and then does
    /// not send it takes the count back without a message.
    pub(crate) fn shut(&self) -> bool {
        in_transit(self.0.load().word.fetch_or(SHUT, Relaxed)) > 0
    }
}

impl Drop for HandoffReceiver {
    fn drop(&mut self) {
        self.shut();
    }
}

/// A connection in transit to another loop, counted there and in the server. If it is dropped, the loop has ended: the
/// connection is closed and its places are free.
#[derive(Debug)]
pub(crate) struct HandoffConnection {
    accepted: Option<Accepted>,
    to: LoopHandle,
}

impl HandoffConnection {
    /// The connection has arrived. Its places become those of the connection that is made from it.
    pub(crate) fn into_accepted(mut self) -> Option<Accepted> {
        self.to.load().word.fetch_sub(IN_TRANSIT, Relaxed);
        self.accepted.take()
    }
}

impl Drop for HandoffConnection {
    fn drop(&mut self) {
        if self.accepted.is_some() {
            self.to.load().word.fetch_sub(ONE + IN_TRANSIT, Relaxed);
            self.to.group.live.fetch_sub(1, Relaxed);
        }
    }
}

/// Whether a loop takes connections: it does not once it drains or has ended, nor while it does not read the
/// connections that were sent to it.
fn is_open(word: u64) -> bool {
    word & SHUT == 0 && in_transit(word) < HANDOFFS_MAX
}

fn count(word: u64) -> u64 {
    word % IN_TRANSIT
}

fn in_transit(word: u64) -> u64 {
    (word & !SHUT) / IN_TRANSIT
}

/// A connection, in the word of a loop.
const ONE: u64 = 1;

/// A connection that is in transit to a loop.
const IN_TRANSIT: u64 = 1 << 32;

/// The loop takes no connections from others.
const SHUT: u64 = 1 << 63;

#[cfg(test)]
mod tests;
