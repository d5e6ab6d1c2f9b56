//! How bytes get from one end of a stream to the other, and how a stream ends.

use std::io::{self, Read};
use std::time::Duration;

use tidegate_buffer::planted::{self, Bug};
use tidegate_buffer::{Outbound, Scratch};
use tidegate_sys::{Accepted, Completion, Socket, Token};

use super::faults::Fault;
use super::stream::{End, Owner, RECEIVE_BUFFER_BYTES, SEGMENT_BYTES};
use super::world::{Event, Place, World};
use crate::wire::copy_front;

impl World {
    /// The one place that decides what a socket has to say. Who may have more to say is lined up again.
    pub(super) fn attend(&mut self, desk: usize, place: Place, scratch: &mut Scratch) -> Option<(Token, Completion)> {
        let (owner, completion) = match place {
            Place::Closed(token) => (Owner { desk, token }, Completion::Closed),
            Place::Listener(id) => {
                let listener = self.listeners.get_mut(&id)?;
                listener.lined_up = false;
                (listener.owner?, self.accept(id)?)
            }
            Place::End(id) => {
                let end = self.ends.get_mut(&id)?;
                end.lined_up = false;
                (end.owner?, self.say(id, scratch)?)
            }
        };
        self.told(owner, &completion);
        Some((owner.token, completion))
    }

    fn accept(&mut self, id: u64) -> Option<Completion> {
        let listener = self.listeners.get(&id).filter(|listener| listener.accepting)?;
        let next = *listener.backlog.front()?;
        if self.strikes(Fault::NoDescriptor) {
            // Not lined up again: it goes on with the next connection, or when it is asked to.
            return Some(Completion::Accepted(Err(io::Error::from_raw_os_error(EMFILE))));
        }
        self.listeners.get_mut(&id)?.backlog.pop_front();
        self.line_up(Place::Listener(id));
        let peer = self.ends.get(&next)?.remote.clone();
        Some(Completion::Accepted(Ok(Accepted { socket: Socket::Simulated(next), peer })))
    }

    fn say(&mut self, id: u64, scratch: &mut Scratch) -> Option<Completion> {
        let end = self.ends.get_mut(&id)?;
        if end.connecting {
            let outcome = end.outcome.take()?;
            end.connecting = false;
            self.line_up(Place::End(id));
            return Some(Completion::Connected(outcome.map_err(Into::into)));
        }
        if end.is_writable_again() {
            end.blocked = false;
            self.line_up(Place::End(id));
            return (!planted::has(Bug::NoRearm)).then_some(Completion::Sent(Ok(0)));
        }
        if end.broken {
            let told = std::mem::replace(&mut end.break_told, true);
            return (!told).then(|| Completion::Failed(io::ErrorKind::ConnectionReset.into()));
        }
        let held = end.owner.is_none_or(|owner| self.desks[owner.desk].held);
        if !end.receiving || held || !end.is_readable() {
            return None;
        }
        if end.inbound.is_empty() {
            end.end_told = true;
            return Some(Completion::Ended);
        }
        let there = end.inbound.len();
        let short = there > 1 && self.strikes(Fault::ShortRead);
        let wanted = if short { 1 + self.random.below(there - 1) } else { there };
        Some(self.receive(id, wanted, scratch))
    }

    fn receive(&mut self, id: u64, wanted: usize, scratch: &mut Scratch) -> Completion {
        let space = scratch.space(wanted);
        let length = space.len();
        let mut sender = None;
        if let Some(end) = self.ends.get_mut(&id) {
            end.inbound.read_exact(space).expect("so many have arrived");
            if planted::has(Bug::FinMissed) && end.fin_came && end.inbound.is_empty() {
                end.end_told = true;
            }
            sender = end.peer;
        }
        // Now there is room for more, of which the other end hears at once.
        if let Some(sender) = sender {
            self.transmit(sender);
        }
        self.line_up(Place::End(id));
        Completion::Received(scratch.received(length))
    }

    /// Takes what there is room for into the send buffer.
    pub(super) fn send(&mut self, id: u64, queue: &Outbound, bytes_max: usize) -> Option<io::Result<usize>> {
        let end = self.ends.get_mut(&id)?;
        if end.broken && !std::mem::replace(&mut end.break_told, true) {
            return Some(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if end.broken || end.shut {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = end.room();
        if end.blocked || end.connecting || room == 0 {
            end.blocked = true;
            return None;
        }
        if queue.has_flushed() && self.strikes(Fault::WouldBlock) {
            self.stall(id);
            return None;
        }
        let mut bytes = Vec::new();
        let taken = match copy_front(queue, bytes_max.min(room), &mut bytes) {
            Ok(taken) => taken,
            Err(error) => return Some(Err(error)),
        };
        if planted::has(Bug::PartsForgotten) && taken > bytes.len() {
            return Some(Ok(taken));
        }
        if bytes.len() > 1 && self.strikes(Fault::ShortWrite) {
            bytes.truncate(1 + self.random.below(bytes.len() - 1));
            self.stall(id);
        }
        self.ends.get_mut(&id)?.unsent.extend(&bytes);
        self.transmit(id);
        Some(Ok(bytes.len()))
    }

    /// Takes nothing more for a while, whatever room there is.
    fn stall(&mut self, id: u64) {
        let pause = self.some_time(STALL_MAX);
        if let Some(end) = self.ends.get_mut(&id) {
            (end.blocked, end.stalled) = (true, true);
            self.put(pause, Event::Unstalled { end: id });
        }
    }

    /// Sends segments for as long as the other end has room, and then the end, if it is due.
    pub(super) fn transmit(&mut self, id: u64) {
        loop {
            let Some(end) = self.ends.get(&id).filter(|end| !end.broken) else { return };
            let Some((to, peer)) = end.peer.and_then(|peer| Some((peer, self.ends.get(&peer)?))) else { return };
            let window = RECEIVE_BUFFER_BYTES.saturating_sub(peer.inbound.len() + end.travelling);
            let length = end.unsent.len().min(window).min(SEGMENT_BYTES);
            if length == 0 {
                if end.shut && !end.fin_left && end.unsent.is_empty() {
                    self.leave(id, |end| end.fin_left = true, Event::Fin { to });
                }
                return;
            }
            if self.strikes(Fault::Reset) {
                return self.cut(id, to);
            }
            let splits = length > 1 && self.strikes(Fault::SplitRead);
            let length = if splits { 1 + self.random.below(length - 1) } else { length };
            let Some(end) = self.ends.get_mut(&id) else { return };
            let mut bytes = vec![0; length];
            end.unsent.read_exact(&mut bytes).expect("so many wait");
            end.travelling += length;
            end.unacknowledged += length;
            let at = self.arrival(id, length);
            self.put_at(at, Event::Data { to, bytes });
            if splits && let Some(end) = self.ends.get_mut(&id) {
                end.last_arrival += SPLIT_GAP;
            }
        }
    }

    /// Bytes come to an end, which may not be there any more.
    pub(super) fn arrive(&mut self, to: u64, bytes: Vec<u8>) {
        let Some(end) = self.ends.get_mut(&to) else { return };
        let (from, length) = (end.peer, bytes.len());
        let closed = end.closed;
        if !closed && !end.broken {
            end.inbound.extend(bytes);
        }
        let (back, broken) = (self.latency_back(to), self.ends[&to].broken);
        if let Some((from, sender)) = from.and_then(|from| Some((from, self.ends.get_mut(&from)?))) {
            sender.travelling -= length;
            self.put(back, Event::Acknowledged { end: from, count: length });
        }
        if closed && !broken {
            // Nobody will read it, and the sender has to know.
            self.reset(to);
        }
        self.line_up(Place::End(to));
    }

    /// An end is let go of.
    pub(super) fn close(&mut self, id: u64, reset: bool) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.owner, end.closed, end.shut) = (None, true, true);
        if reset || !end.inbound.is_empty() {
            self.reset(id);
        } else {
            self.transmit(id);
        }
        self.forget(id);
    }

    /// A listener is let go of, and with it who waits to be accepted.
    pub(super) fn close_listener(&mut self, id: u64) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        for end in listener.backlog {
            self.close(end, true);
        }
    }

    /// Nothing more will be sent.
    pub(super) fn shut(&mut self, id: u64) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.shut = true;
            self.transmit(id);
        }
    }

    /// Breaks an end off and tells the other one.
    fn reset(&mut self, id: u64) {
        let Some(end) = self.ends.get(&id).filter(|end| !end.broken) else { return };
        match end.peer {
            Some(to) => self.leave(id, End::break_off, Event::Reset { to }),
            None => self.ends.get_mut(&id).into_iter().for_each(End::break_off),
        }
    }

    /// The network cuts a stream: both ends hear of it.
    fn cut(&mut self, id: u64, to: u64) {
        self.leave(id, End::break_off, Event::Reset { to });
        self.line_up(Place::End(id));
    }

    /// Sends something without bytes, behind everything that is on the way.
    fn leave(&mut self, id: u64, change: impl FnOnce(&mut End), event: Event) {
        let at = self.arrival(id, 0);
        if let Some(end) = self.ends.get_mut(&id) {
            change(end);
        }
        self.put_at(at, event);
    }

    /// When what leaves an end now will arrive.
    pub(super) fn arrival(&mut self, id: u64, bytes: usize) -> Duration {
        let Some(end) = self.ends.get(&id) else { return self.now };
        let link = self.link_between(end.route);
        let takes = Duration::from_nanos(bytes as u64 * NANOS_PER_SECOND / link.bytes_per_second.max(1));
        let free_at = end.free_at.max(self.now) + takes;
        let jitter = if self.strikes(Fault::Jitter) { self.some_time(JITTER_MAX) } else { Duration::ZERO };
        let Some(end) = self.ends.get_mut(&id) else { return self.now };
        end.free_at = free_at;
        end.last_arrival = end.last_arrival.max(free_at + link.latency + jitter);
        end.last_arrival
    }

    fn latency_back(&self, id: u64) -> Duration {
        self.ends.get(&id).map_or(Duration::ZERO, |end| self.link_between(end.route).latency)
    }

    /// Forgets both ends of a stream when nobody has either: what is on the way concerns nobody any more.
    fn forget(&mut self, id: u64) {
        let Some(end) = self.ends.get(&id) else { return };
        let peer = end.peer;
        if peer.and_then(|peer| self.ends.get(&peer)).is_none_or(|peer| peer.closed) {
            self.ends.remove(&id);
            peer.into_iter().for_each(|peer| drop(self.ends.remove(&peer)));
        }
    }
}

/// `EMFILE` of Linux.
const EMFILE: i32 = 24;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How long a segment may take beyond what it usually does.
const JITTER_MAX: Duration = Duration::from_millis(40);

/// How long sending may be held back though there is room.
const STALL_MAX: Duration = Duration::from_millis(20);

/// What is between the two pieces of a segment.
const SPLIT_GAP: Duration = Duration::from_millis(1);
