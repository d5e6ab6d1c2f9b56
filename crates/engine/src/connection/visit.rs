//! One visit of a connection: what happened is taken in, messages are decoded and handled, what they wrote is
//! flushed, edges are told, and the connection is put to rest.
//!
//! Everything is bounded: messages, sends and rounds. Who has more to do is visited again, after the others.
//!
//! Closing in good order goes through these states, all of them with `closing` set: the codec's last word is written;
//! what waits is sent; our side is shut down; and the peer has a moment to end its side, since closing a socket
//! that has unread bytes would reset the connection and might take the last answer from the peer.

use std::any::{Any, TypeId};
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use tidegate_buffer::planted::{self, Bug};
use tidegate_buffer::{LoadError, Slice};
use tidegate_codec::{Codec, Output, Step};
use tidegate_sys::{Completion, Operation, Token};

use super::{Application, Connection, Fate, Link, Occasion, Occupant, Presence};
use crate::closed::Closed;
use crate::context::Context;
use crate::core::Core;
use crate::group::{Cast, Heard, Slow};
use crate::handler::{Event, Outcome, Switch};
use crate::limits::{FILE_PIECE_BYTES, LINGER_MAX, MESSAGES_PER_VISIT_MAX, SEND_BYTES_MAX, SENDS_PER_VISIT_MAX};
use crate::wheel::Tick;

/// Why a visit ends before its time.
pub(super) enum Stop<C> {
    Close { reason: Rc<Closed>, reset: bool },
    Switch(Switch<C>),
}

impl<C> Stop<C> {
    fn close(reason: Closed, reset: bool) -> Self {
        Self::Close { reason: Rc::new(reason), reset }
    }
}

pub(super) type Visited<C, T = ()> = Result<T, Stop<C>>;

/// What follows what was taken in.
enum Next {
    /// Decoding, flushing, telling.
    Work,
    /// Nothing but putting the connection to rest.
    Rest,
    /// The tasks that were woken; another visit follows when they have run, while the bytes are still in the scratch.
    Wait,
}

/// What one visit may still do.
pub(super) struct Budget {
    messages: u32,
    sends: u32,
    /// The handler may be told that what it watched is with the kernel.
    watched: bool,
}

impl Budget {
    /// For a flush between two codecs: nothing is decoded, and nobody is told of edges.
    pub(super) const fn barrier() -> Self {
        Self { messages: 0, sends: SENDS_PER_VISIT_MAX, watched: false }
    }
}

impl<C: Codec, A: Application<C>> Occupant for Connection<C, A> {
    fn visit(&mut self, core: &mut Core, token: Token, occasion: Occasion) -> Fate {
        if self.is_gone() {
            return self.haunt(&occasion);
        }
        let visited = match self.take_in(core, token, occasion) {
            Ok(Next::Work) => self.work(core, token),
            Ok(Next::Rest) => Ok(()),
            Ok(Next::Wait) => return Fate::Keep,
            Err(stop) => Err(stop),
        };
        let visited = visited.and_then(|()| self.rest(core, token));
        self.fate(visited)
    }

    fn hear(&mut self, core: &mut Core, token: Token, cast: &Cast) -> (Heard, Fate) {
        if self.is_gone() {
            return (Heard::Gone, Fate::Keep);
        }
        let heard = self.overhear(core, token, cast);
        let too_slow = heard == Heard::Gone;
        (heard, if too_slow { Fate::Close { reason: Rc::new(Closed::TooSlow), reset: true } } else { Fate::Keep })
    }

    fn gone(mut self: Box<Self>, core: &mut Core, reason: Rc<Closed>) -> Option<Box<dyn Occupant>> {
        core.tally.connections -= 1;
        core.tally.count_closed(reason.cause());
        self.link.outbound().clear();
        if !(planted::is_injected(Bug::ClosedUntold) && matches!(*reason, Closed::Broken(_))) {
            self.application.closed(&reason);
        }
        core.log.closed(core.time.now(), &self.link.peer(), &reason);
        if !self.application.outlives() {
            return None;
        }
        self.link.closing = Some(reason);
        // What was received before can still be asked for; it does not keep the scratch.
        self.link.input.compact(&core.pool);
        self.codec.compact(&core.pool);
        Some(self)
    }

    fn fail(&mut self, core: &mut Core, token: Token, reason: &mut Option<Closed>) -> Fate {
        if A::PULLS { self.server_failed(core, token, reason) } else { Fate::Keep }
    }

    fn presence(&self) -> Presence {
        if self.is_gone() { Presence::Gone } else { Presence::Open }
    }

    fn holds(&self) -> usize {
        self.link.memory() + self.codec.buffered_bytes() + self.codec.input_memory()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<C: Codec, A: Application<C>> Connection<C, A> {
    /// What the end of a visit means for the connection.
    pub(super) fn fate(&self, visited: Visited<C>) -> Fate {
        match visited {
            Ok(()) => Fate::Keep,
            Err(Stop::Close { reason, reset }) => Fate::Close { reason, reset },
            Err(Stop::Switch(switch)) => Fate::Switch(Box::new(|occupant| {
                let connection = occupant.into_any().downcast::<Self>().expect("the visitor switches itself");
                let Self { link, codec, application } = *connection;
                drop(application);
                switch.succeed(codec).install(link)
            })),
        }
    }

    /// Queues a message that comes to many. It is flushed at the end of the pass, by the visit that then puts the
    /// connection to rest as well. [`Heard::Gone`] says that it has to be cut off.
    fn overhear(&mut self, core: &mut Core, token: Token, cast: &Cast) -> Heard {
        if TypeId::of::<C>() != cast.kind() || self.link.is_closing() || self.link.is_write_shut() {
            return Heard::Deaf;
        }
        match cast.slow() {
            Slow::Skip if !self.link.is_writable() => return Heard::Skipped,
            Slow::Shed if self.link.cost(&self.codec) > self.link.settings().limits.water.cap => return Heard::Gone,
            Slow::Skip | Slow::Shed => {}
        }
        let blocked = self.codec.is_blocked();
        let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
        if self.codec.encoded(cast.bytes().clone(), &mut out).is_err() {
            return Heard::Skipped;
        }
        self.link.update_level(&self.codec);
        if blocked {
            // It may have waited for this before it could decode on.
            self.application.wake_reader();
        }
        self.again(core, token);
        Heard::Taken
    }

    /// Takes in what happened.
    #[inline]
    fn take_in(&mut self, core: &mut Core, token: Token, occasion: Occasion) -> Visited<C, Next> {
        match occasion {
            Occasion::Received(bytes) => {
                self.received(core, bytes);
                if A::PULLS && self.may_decode() && self.application.wake_reader() {
                    core.hot = Some(token);
                    return Ok(Next::Wait);
                }
            }
            Occasion::Sent(result) => self.sent(core, result)?,
            Occasion::Again => self.link.set(Link::AGAIN, false),
            occasion => return self.take_in_rarer(core, token, occasion),
        }
        Ok(Next::Work)
    }

    /// What does not happen with every message; apart, so that what does stays close together in the cache.
    #[cold]
    fn take_in_rarer(&mut self, core: &mut Core, token: Token, occasion: Occasion) -> Visited<C, Next> {
        match occasion {
            Occasion::Received(_) | Occasion::Sent(_) | Occasion::Again => {}
            Occasion::Ended => {
                self.link.set(Link::PEER_ENDED, true);
                if self.link.has(Link::SHUT) && self.link.is_closing() {
                    return Err(self.close_now());
                }
                self.application.wake_reader();
            }
            Occasion::Failed(error) => return Err(self.broken(error)),
            Occasion::Opened => {
                core.tally.connections += 1;
                self.link.set(Link::HANDSHAKE, !self.codec.is_established());
                self.call(core, token, |application, cx| application.open(cx))?;
            }
            Occasion::Switched => {
                self.link.set(Link::HANDSHAKE, !self.codec.is_established());
                self.link.forget_handler();
                self.call(core, token, |application, cx| application.open(cx))?;
            }
            Occasion::Timer => self.timers(core, token)?,
            Occasion::Posted(post) => {
                if let Ok(post) = post.downcast() {
                    self.tell(core, token, Event::Posted(*post))?;
                }
                // Letters come in batches: what they wrote is flushed once, at the end of the pass.
                self.again(core, token);
                return Ok(Next::Rest);
            }
            Occasion::Drain => self.drain(core, token)?,
            Occasion::Forsaken => self.forsaken(core),
            Occasion::Overdue => {
                let reset = !self.link.outbound_is_empty() || self.codec.ends_with_connection();
                return Err(Stop::close(Closed::Drained, reset));
            }
            Occasion::Shed => return Err(Stop::close(Closed::Shed, true)),
            Occasion::Panicked if self.codec.ends_with_connection() => {
                return Err(Stop::close(Closed::Panicked, true));
            }
            Occasion::Panicked => {
                self.link.closing = Some(Rc::new(Closed::Panicked));
                self.codec.fail(&mut Output::new(self.link.outbound(), &core.pool, &core.time));
            }
            Occasion::Accepted(_) | Occasion::Connected(_) | Occasion::Closed => {}
        }
        Ok(Next::Work)
    }

    fn received(&mut self, core: &mut Core, bytes: Slice) {
        core.tally.received_bytes += bytes.len() as u64;
        if self.link.has(Link::SHUT) && self.link.is_closing() {
            // It is still busy sending, and will not have read our last answer yet.
            self.link.progress = Tick::NEVER;
        }
        // Once it is closing, bytes are only of use to a handshake that our last bytes wait for.
        if !self.link.is_closing() || self.wants_input() {
            self.link.input.append(bytes, &core.pool);
        }
    }

    fn sent(&mut self, core: &mut Core, result: io::Result<usize>) -> Visited<C> {
        self.link.set(Link::SENDING, false);
        let sent = result.map_err(|error| match error.kind() {
            // Of a file that is shorter than its region; the peer must not take what it got for the whole.
            io::ErrorKind::UnexpectedEof => Stop::close(Closed::Failed(error.into()), true),
            _ => self.broken(error),
        })?;
        if sent > 0 {
            core.tally.sent_bytes += sent as u64;
            self.link.outbound().advance(sent as u64);
            if self.link.progress.is_set() && self.link.makes_room(sent as u64) {
                // Progress, even if it is within one large entry: the deadline starts anew.
                self.link.progress = Tick::NEVER;
            }
        }
        Ok(())
    }

    fn drain(&mut self, core: &mut Core, token: Token) -> Visited<C> {
        if self.link.is_closing() {
            return Ok(());
        }
        if self.application.heeds_drain() {
            self.drain_codec(core);
        }
        self.tell(core, token, Event::Drain)
    }

    /// None of the tasks that serve is left: now a drain is about what they have connected as well.
    fn forsaken(&mut self, core: &mut Core) {
        if !self.link.is_closing() && !self.application.heeds_drain() {
            self.drain_codec(core);
        }
        self.application.forsaken(self.codec.knows_its_end());
    }

    fn drain_codec(&mut self, core: &mut Core) {
        let drained = self.codec.drain(&mut Output::new(self.link.outbound(), &core.pool, &core.time));
        self.or_close(drained);
    }

    /// Decodes, flushes and tells, in rounds, until there is nothing left to do or the budget is used up.
    fn work(&mut self, core: &mut Core, token: Token) -> Visited<C> {
        let mut budget = Budget { messages: MESSAGES_PER_VISIT_MAX, sends: SENDS_PER_VISIT_MAX, watched: true };
        loop {
            let starved = self.decode(core, token, &mut budget)?;
            self.link.set(Link::BEHIND, !starved);
            if !self.link.is_closing() && self.codec.is_finished() {
                self.link.closing = Some(Rc::new(Closed::Done));
            }
            self.flush(core, token, &mut budget)?;
            let told = self.tell_edges(core, token, &mut budget)?;
            if budget.messages == 0 || budget.sends == 0 {
                if !self.link.take(Link::AGAIN) {
                    core.continue_later(token);
                }
                self.link.set(Link::AGAIN, true);
                return Ok(());
            }
            if !told && (starved || !self.may_decode()) {
                return Ok(());
            }
        }
    }

    /// Whether another message may be decoded now.
    #[inline]
    pub(super) fn may_decode(&self) -> bool {
        !self.link.is_closing()
            && !self.link.has(if planted::is_injected(Bug::PauseIgnored) {
                Link::READ_CLOSED
            } else {
                Link::PAUSED | Link::READ_CLOSED
            })
            && (self.link.is_writable() || self.application.reads_freely() || planted::is_injected(Bug::NoBackPressure))
    }

    /// Decodes and handles messages. Says whether it stopped for want of input.
    fn decode(&mut self, core: &mut Core, token: Token, budget: &mut Budget) -> Visited<C, bool> {
        if self.link.has(Link::HANDSHAKE) {
            self.shake_hands(core, token)?;
        }
        if self.has_risen() && !self.application.reads_freely() {
            // The application holds it no longer: what has come meanwhile is not late.
            self.codec.restart_timeouts(core.time.now());
        }
        while !A::PULLS && self.may_decode() && budget.messages > 0 {
            let ended = self.link.has(Link::PEER_ENDED);
            let (outbound, input) = self.link.queues();
            let before = (outbound.written(), self.codec.buffered_bytes());
            let mut reply = Output::new(outbound, &core.pool, &core.time);
            let step = if ended { self.codec.decode_eof(input, &mut reply) } else { self.codec.decode(input, &mut reply) };
            // What the handler sends is compared with the marks when it sends it.
            if outbound.written() != before.0 || self.codec.buffered_bytes() > before.1 {
                self.link.update_level(&self.codec);
                self.check_replies()?;
            }
            // What it may be else is asked apart: that it is a message is one comparison then.
            let Ok(Step::Message(message)) = step else {
                if matches!(step, Ok(Step::NeedMore)) {
                    return Ok(true);
                }
                self.decoded_last(core, token, step)?;
                continue;
            };
            budget.messages -= 1;
            core.tally.messages += 1;
            // Not through `call`: a message that passes through a closure is copied once more.
            let mut context = Context::new(&mut self.codec, &mut self.link, core, token);
            match self.application.message(message, &mut context) {
                // Nothing is in it that would have to be dropped.
                outcome @ Outcome::Continue => std::mem::forget(outcome),
                outcome => self.follow(core, token, outcome)?,
            }
        }
        if (A::PULLS || !self.may_decode()) && self.wants_input() {
            self.pump(core);
            if self.link.has(Link::PEER_ENDED) && !self.link.is_closing() && !self.codec.is_established() {
                self.end_handshake(core);
            }
        }
        Ok(A::PULLS)
    }

    /// Decoding has come to an end, for good or ill.
    #[cold]
    fn decoded_last(&mut self, core: &mut Core, token: Token, step: Result<Step<C::In>, C::Error>) -> Visited<C> {
        match step {
            Ok(Step::Message(_) | Step::NeedMore) => {}
            Ok(Step::End) => {
                self.link.set(Link::READ_CLOSED, true);
                if planted::is_injected(Bug::EndedTwice) {
                    self.tell(core, token, Event::ReadClosed)?;
                }
                self.tell(core, token, Event::ReadClosed)?;
            }
            Err(fault) => self.or_close(Err(fault)),
        }
        Ok(())
    }

    /// The peer has ended within the handshake, so what was sent can never leave. Nobody may ask for the message that
    /// would be the error: whoever waits for room, or for what was sent to be flushed, does not.
    #[cold]
    fn end_handshake(&mut self, core: &Core) {
        let (outbound, input) = self.link.queues();
        let ended = self.codec.decode_eof(input, &mut Output::new(outbound, &core.pool, &core.time));
        self.or_close(ended.map(drop));
    }

    /// Whether the codec wants bytes even if nobody wants its messages. While the peer does not read what waits on the
    /// wire, it is not made to say more.
    pub(super) fn wants_input(&self) -> bool {
        self.codec.wants_input()
            && !self.link.has(Link::DEAF)
            && self.link.wire_cost() <= self.link.settings().limits.water.replies_cap
    }

    /// The handshake comes before the first message, and so does the event that tells of its end.
    #[cold]
    fn shake_hands(&mut self, core: &mut Core, token: Token) -> Visited<C> {
        if self.wants_input() {
            self.pump(core);
        }
        if self.codec.is_established() {
            self.link.set(Link::HANDSHAKE, false);
            self.tell(core, token, Event::Established)?;
        }
        Ok(())
    }

    #[cold]
    fn pump(&mut self, core: &Core) {
        let (outbound, input) = self.link.queues();
        let pumped = self.codec.drive_handshake(input, &mut Output::new(outbound, &core.pool, &core.time));
        self.or_close(pumped);
    }

    /// The codec has replied: the marks do not hold it back in the middle of that, so there is a cap.
    pub(super) fn check_replies(&self) -> Visited<C> {
        if self.link.cost(&self.codec) > self.link.settings().limits.water.replies_cap {
            return Err(Stop::close(Closed::RepliesUnread, true));
        }
        Ok(())
    }

    /// Sends what waits, as far as the kernel and the budget go.
    pub(super) fn flush(&mut self, core: &mut Core, token: Token, budget: &mut Budget) -> Visited<C> {
        loop {
            self.write_out(core);
            if self.link.has(Link::SHUT) {
                // What the codec replied after that cannot be sent any more.
                self.link.outbound().clear();
            }
            while !self.link.has(Link::SENDING) && self.link.outbound().has_flushed() && budget.sends > 0 {
                budget.sends -= 1;
                let queue = self.link.outbound();
                match core.driver.submit(token, Operation::Send { queue, bytes_max: SEND_BYTES_MAX }) {
                    Some(Completion::Sent(result)) => self.sent(core, result)?,
                    _ => self.link.set(Link::SENDING, true),
                }
            }
            self.link.update_level(&self.codec);
            if budget.sends == 0 || self.link.has(Link::SENDING) || !self.load_file()? {
                break;
            }
        }
        if self.link.has(Link::SENDING) && !core.driver.is_sending(token) {
            // The peer does not read, and nobody knows for how long.
            self.link.outbound().shrink();
        }
        let unsent = planted::is_injected(Bug::ClosedUnsent) && self.link.is_closing();
        if unsent || (self.link.outbound().is_empty() && self.held() == 0) {
            self.all_sent(core, token)?;
        }
        Ok(())
    }

    /// Has the codec write what it held back, its last word included if this is the end.
    fn write_out(&mut self, core: &mut Core) {
        if !self.link.has(Link::MUTE) {
            let last = (self.link.is_closing() || self.link.is_write_shut()) && !self.link.has(Link::LAST_WORD);
            let mut out = Output::new(self.link.outbound(), &core.pool, &core.time);
            let mut flushed = self.codec.flush(&mut out);
            // Not while something is held back: files that a filter has to see are read piece by piece.
            if last && flushed.is_ok() && self.codec.is_established() && self.codec.buffered_bytes() == 0 {
                flushed = self.codec.close(&mut out);
                self.link.set(Link::LAST_WORD, true);
            }
            if let Err(fault) = flushed {
                // What it could not write is lost; what it wrote before is still sent.
                self.link.set(Link::MUTE, true);
                self.link.closing.get_or_insert_with(|| Rc::new(Closed::Protocol(Box::new(fault))));
            }
        }
        self.link.outbound().flush();
    }

    /// Bytes that the codec holds back and may still write. What waits for a handshake that will never end does not
    /// count.
    pub(super) fn held(&self) -> usize {
        let stuck = self.link.has(Link::DEAF | Link::PEER_ENDED) && !self.codec.is_established();
        if self.link.has(Link::MUTE) || stuck { 0 } else { self.codec.buffered_bytes() }
    }

    /// Reads a piece of a file for a filter that must see its bytes. Says whether there was one.
    fn load_file(&mut self) -> Visited<C, bool> {
        let Some(queue) = self.codec.file_to_load() else { return Ok(false) };
        let loaded = queue.load_file(FILE_PIECE_BYTES, |region, bytes| region.file.read_at(bytes, region.offset));
        loaded.map_err(|error| {
            let error = match error {
                LoadError::Read(error) => error,
                _ => io::ErrorKind::UnexpectedEof.into(),
            };
            Stop::close(Closed::Failed(error.into()), true)
        })
    }

    /// Everything is with the kernel: now our side may be shut down, and the connection closed.
    fn all_sent(&mut self, core: &mut Core, token: Token) -> Visited<C> {
        if self.link.has(Link::READ_CLOSED) && self.link.is_write_shut() {
            // Nothing more will come, and nothing more will be said.
            self.link.closing.get_or_insert_with(|| Rc::new(Closed::Done));
        }
        if self.link.is_closing() && self.link.has(Link::PEER_ENDED) {
            return Err(self.close_now());
        }
        if !(self.link.is_closing() || self.link.is_write_shut()) {
            return Ok(());
        }
        let shuts = !self.link.has(Link::SHUT);
        if shuts {
            self.link.set(Link::SHUT | Link::MUTE, true);
            self.link.progress = Tick::NEVER;
            core.driver.submit(token, Operation::ShutdownWrite);
        }
        if self.link.is_closing() && (self.link.take(Link::SHUT_WANTED) || shuts) {
            // The handler's deadline is of no use any more: it bounds the farewell.
            self.link.deadline = core.wheel.tick_after(core.time.now(), LINGER_MAX);
        }
        Ok(())
    }

    /// Tells the handler what has changed since it was last told. Says whether it was told anything.
    fn tell_edges(&mut self, core: &mut Core, token: Token, budget: &mut Budget) -> Visited<C, bool> {
        if self.link.is_closing() {
            return Ok(false);
        }
        let mut told = false;
        if self.link.has(Link::HANDSHAKE) && self.codec.is_established() {
            self.link.set(Link::HANDSHAKE, false);
            self.tell(core, token, Event::Established)?;
            told = true;
        }
        if self.link.has(Link::WATCHING) && self.watched_is_sent() {
            if std::mem::take(&mut budget.watched) {
                self.link.set(Link::WATCHING, false);
                self.tell(core, token, Event::Flushed)?;
                told = true;
            } else {
                self.again(core, token);
            }
        }
        if self.has_risen() {
            if !self.application.reads_freely() {
                // At once, even if it is told a turn later: bytes that come before are decoded before.
                self.codec.restart_timeouts(core.time.now());
            }
            if self.link.takes_edge(core.tally.turns) {
                self.link.set(Link::EDGE_DUE, false);
                if planted::is_injected(Bug::WritableTwice) {
                    self.tell(core, token, Event::Writable)?;
                }
                self.tell(core, token, Event::Writable)?;
                told = true;
            } else {
                // Once a turn, or writing and telling would chase each other.
                self.again(core, token);
            }
        }
        Ok(told)
    }

    /// Whether it can be written to again, and the application was not told yet.
    fn has_risen(&self) -> bool {
        self.link.has(Link::EDGE_DUE) && self.link.is_writable()
    }

    /// Whether everything up to the watched mark is with the kernel. The mark is translated to an offset on the wire
    /// as soon as the filters know it.
    #[inline(never)]
    pub(super) fn watched_is_sent(&mut self) -> bool {
        if !self.link.has(Link::SETTLED) {
            let Some(offset) = self.codec.wire_offset(tidegate_buffer::WritePosition(self.link.watched)) else { return false };
            self.link.watched = offset;
            self.link.set(Link::SETTLED, true);
        }
        self.link.outbound().sent().0 + u64::from(planted::is_injected(Bug::MarkOffByOne)) >= self.link.watched
    }

    /// Puts the connection to rest: no hold on the scratch, receiving switched as it should be, one timer (`deadlines.rs`).
    fn rest(&mut self, core: &mut Core, token: Token) -> Visited<C> {
        if planted::is_injected(Bug::RestForgotten) {
            let rest = self.link.input.len();
            self.link.input.consume(rest);
        }
        self.link.input.compact(&core.pool);
        self.codec.compact(&core.pool);
        if A::PULLS && self.link.is_closing() {
            self.application.closing();
        }
        if A::PULLS && !self.application.wants_message() && self.application.suspended() {
            self.again(core, token);
        }
        let receive = self.wants_bytes();
        if receive != self.link.has(Link::RECEIVING) {
            self.link.set(Link::RECEIVING, receive);
            core.driver.submit(token, Operation::Receive(receive));
        }
        let timer = self.next_timer(core, token);
        core.set_timer(token, timer);
        Ok(())
    }

    fn wants_bytes(&self) -> bool {
        if self.link.has(Link::PEER_ENDED) {
            return false;
        }
        if self.link.is_closing() {
            // To see the peer's end; and for a handshake that our last bytes wait for.
            return self.link.has(Link::SHUT) || self.wants_input();
        }
        // What was read already is decoded first: neither a flood of tiny messages nor what follows a request that has
        // not been answered yet must pile up.
        let read = !self.link.input.is_empty() || self.codec.input_memory() > 0;
        let full = self.link.has(Link::BEHIND) || (read && self.codec.is_blocked());
        let wanted = !A::PULLS || self.application.wants_message();
        (self.may_decode() && wanted && !full) || self.wants_input()
    }

    /// Calls the handler and follows its outcome.
    #[inline]
    fn call(
        &mut self,
        core: &mut Core,
        token: Token,
        call: impl FnOnce(&mut A, &mut Context<'_, C, A::Post>) -> Outcome<C>,
    ) -> Visited<C> {
        let mut context = Context::new(&mut self.codec, &mut self.link, core, token);
        match call(&mut self.application, &mut context) {
            Outcome::Continue => Ok(()),
            outcome => self.follow(core, token, outcome),
        }
    }

    /// Tells the handler of an event, unless the connection closes: then it is told that, and nothing else.
    #[inline(never)]
    pub(super) fn tell(&mut self, core: &mut Core, token: Token, event: Event<A::Post>) -> Visited<C> {
        if self.link.is_closing() {
            return Ok(());
        }
        self.call(core, token, |application, cx| application.event(event, cx))
    }

    #[cold]
    fn follow(&mut self, core: &mut Core, token: Token, outcome: Outcome<C>) -> Visited<C> {
        match outcome {
            Outcome::Continue => {}
            Outcome::Close => self.link.closing = Some(Rc::new(Closed::Done)),
            Outcome::Abort => return Err(Stop::close(Closed::Aborted, true)),
            Outcome::Fail(error) if self.codec.ends_with_connection() => {
                return Err(Stop::close(Closed::Failed(error), true));
            }
            Outcome::Fail(error) => {
                self.link.closing = Some(Rc::new(Closed::Failed(error)));
                self.codec.fail(&mut Output::new(self.link.outbound(), &core.pool, &core.time));
            }
            Outcome::Switch(switch) => {
                // A barrier: what the old codec has said leaves before anything of the new one.
                self.flush(core, token, &mut Budget::barrier())?;
                if !self.link.is_closing() {
                    return Err(Stop::Switch(switch));
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn again(&mut self, core: &mut Core, token: Token) {
        if !self.link.take(Link::AGAIN) {
            core.visit_again(token);
        }
        self.link.set(Link::AGAIN, true);
    }

    /// Begins to close if the codec failed. It is given no more bytes then.
    #[inline(never)]
    pub(super) fn or_close(&mut self, result: Result<(), C::Error>) {
        if let Err(fault) = result {
            self.link.set(Link::DEAF, true);
            self.link.closing.get_or_insert_with(|| Rc::new(Closed::Protocol(Box::new(fault))));
        }
    }

    /// The connection broke: for a reason that is known already, if it was closing. Where that is news to the peer, since
    /// it was our system that failed, it must not take what has come for all there is.
    fn broken(&mut self, error: io::Error) -> Stop<C> {
        Stop::Close { reason: self.reason_or(Closed::Broken(error)), reset: true }
    }

    /// Why the connection was being closed, if it was; except that it was not done if bytes are left.
    pub(super) fn reason_or(&mut self, other: Closed) -> Rc<Closed> {
        let undone = !self.link.outbound_is_empty() || self.held() > 0;
        match self.link.closing.take() {
            Some(reason) if !(undone && matches!(*reason, Closed::Done)) => reason,
            _ => Rc::new(other),
        }
    }

    /// The end of closing in good order.
    pub(super) fn close_now(&mut self) -> Stop<C> {
        let reason = self.link.closing.take().unwrap_or_else(|| Rc::new(Closed::Done));
        Stop::Close { reason, reset: false }
    }
}
