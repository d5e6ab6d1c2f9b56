//! `EventLoop`: one thread, one driver, one turn after the other.
//!
//! A turn: wait; timers that are due; completions, one at a time, each decoded, handled and flushed while it is hot;
//! letters from other threads; whoever asked to be visited again. Each of these is bounded. At the end of a turn
//! memory is looked at: if the budget is used up, receiving is held back and the connection with most bytes waiting is
//! shed, until there is room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_codec::Codec;
use tidegate_sys::{Address, Completion, Driver, Operation, Socket, Token, memory};

use crate::acceptor::Acceptor;
use crate::closed::Closed;
use crate::connection::{Connection, Link, Occasion, Settings};
use crate::core::{Core, quietly};
use crate::counters::{Counts, Published};
use crate::handler::Handler;
use crate::limits::{EXHAUSTED_PAUSE, LETTERS_PER_TURN_MAX, Limits};
use crate::remote::{Letter, Mailbox, Remote};

/// An event loop. [`Server`](crate::Server) makes one per thread; a test makes one over a driver of its own and turns it
/// by hand.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use std::path::PathBuf;
/// use std::time::Duration;
///
/// use tidegate_buffer::Pool;
/// use tidegate_codec::Slice;
/// use tidegate_codec::framing::Lines;
/// use tidegate_engine::{Context, EventLoop, Handler, Limits, Outcome};
/// use tidegate_sys::readiness::Readiness;
/// use tidegate_sys::{Address, Socket};
///
/// struct Echo;
///
/// impl Handler<Lines> for Echo {
///     type Post = ();
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         cx.send(line.into()).into()
///     }
/// }
///
/// // The driver receives into memory of the same pool as the loop's.
/// let pool = Pool::new();
/// let mut event_loop = EventLoop::new(Box::new(Readiness::new(&pool)?), pool);
/// let (mut peer, ours) = UnixStream::pair()?;
/// let unnamed = Address::Unix(PathBuf::new());
/// event_loop.adopt(Socket::from_stream(ours)?, &unnamed, Limits::default(), Lines::new(), Echo);
///
/// peer.write_all(b"ebb\n")?;
/// event_loop.turn(Some(Duration::from_secs(10)))?;
/// let mut answer = [0; 4];
/// peer.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"ebb\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EventLoop {
    core: Core,
    published: Arc<Published>,
    /// Letters that did not fit into the last turn.
    letters: std::vec::IntoIter<Letter>,
    /// When the last turn ended.
    ended: Instant,
    burst: Burst,
    exhausted: bool,
}

impl EventLoop {
    /// A loop over `driver`, whose memory is `pool`: the pool that the driver receives into. Its ledger holds the loop's
    /// budget, which is unlimited until somebody sets it; `memory_max` of [`Limits`] is looked at by
    /// [`Server`](crate::Server) only.
    #[must_use]
    pub fn new(driver: Box<dyn Driver>, pool: Pool) -> Self {
        Self {
            ended: driver.now(),
            core: Core::new(driver, pool),
            published: Arc::default(),
            letters: Vec::new().into_iter(),
            burst: Burst::default(),
            exhausted: false,
        }
    }

    /// Accepts from a listener, and makes a codec and a handler for each stream that comes. `live` counts the
    /// connections of all loops that share `limits`.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn listen<C, H, M>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        make: M,
    ) -> io::Result<()>
    where
        C: Codec,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        let token = self.core.slots.reserve();
        if let Some(Completion::Failed(error)) = self.core.driver.submit(token, Operation::Listen(listener)) {
            self.core.release(token);
            return Err(error);
        }
        let settings = Settings::new(limits, live);
        self.core.slots.put(token, Box::new(Acceptor::new(settings, make)));
        Ok(())
    }

    /// Takes over a connected stream, and tells its handler [`open`](Handler::open).
    ///
    /// # Errors
    /// The driver's, if it refuses the stream; the handler is dropped without a word then.
    pub fn adopt<C, H>(
        &mut self,
        socket: Socket,
        peer: &Address,
        limits: Limits,
        codec: C,
        handler: H,
    ) -> io::Result<Remote<H::Post>>
    where
        C: Codec,
        H: Handler<C>,
    {
        let settings = Settings::new(limits, Arc::new(AtomicUsize::new(1)));
        let link = Link::new(settings, peer, &self.core.pool);
        let token = self.core.admit(socket, Box::new(Connection::new(link, codec, handler)))?;
        Ok(Remote::new(self.core.mailbox.clone(), token))
    }

    /// Begins to drain: nothing more is accepted, every connection is told, and after `deadline` those that are left are
    /// closed.
    pub fn drain(&mut self, deadline: Duration) {
        let until = self.core.time.now().checked_add(deadline);
        let until = until.unwrap_or_else(|| self.core.time.now() + Duration::from_secs(86_400));
        self.core.drain_until = Some(until);
        for token in self.tokens() {
            self.core.visit(token, Occasion::Drain);
        }
    }

    /// Whether a drain has come to its end.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.core.is_draining() && self.core.slots.len() == 0
    }

    /// Turns until a drain has come to its end.
    ///
    /// # Errors
    /// The driver's, if waiting fails.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.is_drained() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// One turn. It waits for something to happen, at most for `patience`.
    ///
    /// # Errors
    /// The driver's, if waiting fails.
    pub fn turn(&mut self, patience: Option<Duration>) -> io::Result<()> {
        let timeout = self.timeout(patience);
        if timeout != Some(Duration::ZERO) {
            self.before_sleep();
        }
        self.core.driver.wait(timeout)?;
        let begun = self.core.driver.now();
        self.published.begin_turn(self.core.tally.turns + 1);
        let driver = &self.core.driver;
        self.core.time.advance(begun, || driver.wall());
        self.fire_timers(begun);
        let held = self.complete();
        self.deliver();
        self.visit_again();
        self.mind_memory(held);
        self.ended = self.core.driver.now();
        let took = self.ended.saturating_duration_since(begun);
        if self.core.tally.count_turn(took) {
            self.core.log.slow_turn(self.ended, took);
        }
        self.published.publish(&self.core.tally, self.core.pool.ledger().used());
        self.published.end_turn();
        Ok(())
    }

    /// What the loop has done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.published.read()
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        self.core.mailbox.clone()
    }

    fn timeout(&self, patience: Option<Duration>) -> Option<Duration> {
        // Letters that came while older ones were delivered have used up their wake-up.
        if self.core.wants_visits() > 0 || self.letters.len() > 0 || self.core.mailbox.has_letters() {
            return Some(Duration::ZERO);
        }
        // The clock was read a moment ago, when the last turn ended.
        let now = self.ended;
        let drain = self.core.drain_until.map(|until| until.saturating_duration_since(now));
        let exhausted = self.exhausted.then_some(EXHAUSTED_PAUSE);
        [patience, self.core.wheel.timeout(now), drain, exhausted].into_iter().flatten().min()
    }

    fn fire_timers(&mut self, now: Instant) {
        while let Some(slot) = self.core.wheel.expire(&mut self.core.slots, now) {
            if let Some(token) = self.core.slots.token(slot) {
                self.core.visit(token, Occasion::Timer);
            }
        }
        if self.core.drain_until.is_some_and(|until| until <= now) {
            for token in self.tokens() {
                self.core.visit(token, Occasion::Overdue);
            }
        }
    }

    /// Visits whoever a completion is for, one at a time. The driver bounds their number. Says whether receiving is
    /// held back.
    fn complete(&mut self) -> bool {
        let mut held = self.exhausted;
        while let Some((token, completion)) = self.core.driver.next() {
            let occasion = match completion {
                Completion::Received(bytes) => Occasion::Received(bytes),
                Completion::Sent(result) => Occasion::Sent(result),
                Completion::Accepted(result) => Occasion::Accepted(result),
                Completion::Ended => Occasion::Ended,
                Completion::Failed(error) | Completion::Connected(Err(error)) => Occasion::Failed(error),
                Completion::Connected(Ok(())) => Occasion::Again,
                Completion::Closed => Occasion::Closed,
                Completion::Woken => continue,
            };
            self.core.visit(token, occasion);
            if self.core.pool.ledger().is_exhausted() && !held {
                held = true;
                self.core.driver.hold_receives(true);
            }
        }
        held
    }

    fn deliver(&mut self) {
        if self.letters.len() == 0 {
            if !self.core.mailbox.has_letters() {
                return;
            }
            self.letters = self.core.mailbox.collect().into_iter();
        }
        for _ in 0..LETTERS_PER_TURN_MAX {
            match self.letters.next() {
                Some(Letter::Post { token, post }) => self.core.visit(token, Occasion::Posted(post)),
                Some(Letter::Drain(deadline)) => self.drain(deadline),
                None => {
                    // What held them goes as well.
                    self.letters = Vec::new().into_iter();
                    return;
                }
            }
        }
    }

    /// Visits whoever asked for it before this began; who asks now has to wait for the next turn.
    fn visit_again(&mut self) {
        for _ in 0..self.core.wants_visits() {
            if let Some(token) = self.core.next_again() {
                self.core.visit(token, Occasion::Again);
            }
        }
    }

    /// Sheds connections while the budget is used up, those with most bytes waiting first, until an eighth of it is
    /// free again.
    fn mind_memory(&mut self, held: bool) {
        let ledger = self.core.pool.ledger();
        let enough = ledger.budget() - ledger.budget() / 8;
        if !held && !ledger.is_exhausted() {
            return;
        }
        if ledger.is_exhausted() {
            let mut holders: Vec<_> = self.core.slots.iter().map(|(token, who)| (who.holds(), token)).collect();
            // Who holds nothing would be cut off in vain.
            holders.retain(|&(held, _)| held > 0);
            holders.sort_unstable();
            while let Some((_, token)) = holders.pop()
                && self.core.pool.ledger().used() > enough
            {
                self.core.visit(token, Occasion::Shed);
            }
        }
        // Receiving goes on as soon as the budget is not used up, not only when an eighth of it is free: what is left
        // may be halves of messages, whose other halves have to be read before anything is given back.
        let hold = self.core.pool.ledger().is_exhausted();
        if hold && !self.exhausted {
            self.core.log.warn(self.core.time.now(), "memory is used up and nothing is left to shed; reading waits");
        }
        self.exhausted = hold;
        self.core.driver.hold_receives(hold);
    }

    /// Nothing is to be done: the moment to give memory back after a burst.
    fn before_sleep(&mut self) {
        let held = self.core.slots.len() * CONNECTION_BYTES + self.core.pool.ledger().used();
        if self.burst.is_over(held) {
            self.core.pool.trim();
            memory::give_back();
        }
    }

    fn tokens(&self) -> Vec<Token> {
        self.core.slots.iter().map(|(token, _)| token).collect()
    }
}

impl Drop for EventLoop {
    /// Connections that are left are closed; their handlers are told.
    fn drop(&mut self) {
        // If it ends by a panic of its own, it was in the middle of a turn.
        self.published.end_turn();
        let letters = self.core.mailbox.end();
        quietly(move || drop(letters));
        for token in self.tokens() {
            if let Some(occupant) = self.core.slots.take(token) {
                self.core.close(token, occupant, Closed::LoopEnded, false);
            }
        }
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop")
            .field("driver", &self.core.driver.name())
            .field("slots", &self.core.slots.len())
            .finish_non_exhaustive()
    }
}

/// Tells when much memory was in use and little is now.
#[derive(Debug, Default)]
struct Burst {
    peak: usize,
}

impl Burst {
    fn is_over(&mut self, held: usize) -> bool {
        self.peak = self.peak.max(held);
        let over = self.peak >= BURST_BYTES_MIN && held <= self.peak / 4;
        if over {
            self.peak = held;
        }
        over
    }
}

/// What a connection costs, roughly, beside its buffers.
const CONNECTION_BYTES: usize = 320;

/// Less than this is not worth a walk over the allocator's free lists.
const BURST_BYTES_MIN: usize = 512 * 1024;
