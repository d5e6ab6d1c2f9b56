//! The one place that decides what a socket has to say to its loop.

use std::io::{self, Read};
use std::time::Duration;

use tidegate_buffer::Scratch;
use tidegate_buffer::injected::{self, Bug};
use tidegate_sys::{Accepted, Completion, Load, Socket, Token};

use super::agenda::Event;
use super::faults::Fault;
use super::stream::{Owner, SEGMENT_BYTES};
use super::world::{Place, World};

impl World {
    /// What a socket has to say, if anything. Who may have more to say is lined up again.
    pub(super) fn poll_socket(
        &mut self,
        desk: usize,
        place: Place,
        scratch: &mut Scratch,
    ) -> Option<(Token, Completion)> {
        let (owner, completion) = match place {
            Place::Closed(token) => (Owner { desk, token }, Completion::Closed),
            Place::Listener(id) => {
                let listener = self.listeners.get_mut(id)?;
                let owner = listener.owner?;
                if listener.has_a_say() && self.strikes(Fault::Delayed) {
                    return self.delay(place);
                }
                self.listeners.get_mut(id)?.lined_up = false;
                (owner, self.accept(desk, id)?)
            }
            Place::End(id) => {
                let held = self.driver_states[desk].receives_paused;
                let end = self.ends.get_mut(id)?;
                let owner = end.owner?;
                if end.has_a_say(held) && self.strikes(Fault::Delayed) {
                    return self.delay(place);
                }
                self.ends.get_mut(id)?.lined_up = false;
                (owner, self.say(id, held, scratch)?)
            }
        };
        self.told(owner, &completion);
        Some((owner.token, completion))
    }

    /// It stays lined up, so that nobody else lines it up meanwhile.
    fn delay(&mut self, place: Place) -> Option<(Token, Completion)> {
        let pause = self.some_time(DELAY_MAX);
        self.put(pause, Event::Attend { place });
        None
    }

    fn accept(&mut self, desk: usize, id: u64) -> Option<Completion> {
        let listener = self.listeners.get_mut(id).filter(|listener| listener.has_a_say())?;
        let next = *listener.backlog.front()?;
        if !listener.accepting {
            listener.one_more = false;
            self.fired.note(Fault::LateCancel);
        }
        if self.strikes(Fault::NoDescriptor) {
            // Not lined up again: it goes on with the next connection, or when it is asked to.
            return Some(Completion::Accepted(Err(io::Error::from_raw_os_error(EMFILE))));
        }
        self.listeners.get_mut(id)?.backlog.pop_front();
        self.line_up(Place::Listener(id));
        let end = self.ends.get_mut(next)?;
        end.accepted_by = Some(desk);
        Some(Completion::Accepted(Ok(Accepted { socket: Socket::Simulated(next), peer: end.remote.clone() })))
    }

    fn say(&mut self, id: u64, held: bool, scratch: &mut Scratch) -> Option<Completion> {
        let end = self.ends.get_mut(id)?;
        if end.connecting {
            let outcome = end.outcome.take()?;
            end.connecting = false;
            self.line_up(Place::End(id));
            return Some(Completion::Connected(outcome.map_err(Into::into)));
        }
        if end.send_is_due {
            let count = end.taken.take();
            (end.send_is_due, end.in_flight) = (false, false);
            self.line_up(Place::End(id));
            return count.map(|count| Completion::Sent(Ok(count)));
        }
        if end.broken && end.taken.take().is_some() {
            // Until this is told the bytes are the driver's, so nothing else can tell of the break.
            (end.in_flight, end.break_told) = (false, true);
            return Some(Completion::Sent(Err(io::ErrorKind::ConnectionReset.into())));
        }
        if end.is_writable_again() {
            (end.blocked, end.in_flight) = (false, false);
            self.line_up(Place::End(id));
            return (!injected::is_injected(Bug::NoRearm)).then_some(Completion::Sent(Ok(0)));
        }
        if end.broken {
            let told = std::mem::replace(&mut end.break_told, true);
            return (!told).then(|| Completion::Failed(io::ErrorKind::ConnectionReset.into()));
        }
        if !end.may_receive(held) || !end.is_readable() {
            return None;
        }
        let mut there = end.inbound.len();
        if !end.receiving {
            // What is on its way is in one buffer of a ring, which is not as large as the scratch.
            there = there.min(SEGMENT_BYTES);
            end.one_more = false;
            self.fired.note(Fault::LateCancel);
        }
        if there == 0 {
            end.end_told = true;
            return Some(Completion::Ended);
        }
        let short = there > 1 && self.strikes(Fault::ShortRead);
        let wanted = if short { 1 + self.random.below(there - 1) } else { there };
        Some(self.receive(id, wanted, scratch))
    }

    fn receive(&mut self, id: u64, wanted: usize, scratch: &mut Scratch) -> Completion {
        let space = scratch.space(wanted);
        let length = space.len();
        let (mut sender, mut joined) = (None, None);
        let mut load = Load::default();
        if let Some(end) = self.ends.get_mut(id) {
            end.inbound.read_exact(space).expect("so many have arrived");
            if injected::is_injected(Bug::FinMissed) && end.fin_came && end.inbound.is_empty() {
                end.end_told = true;
            }
            load = end.load;
            end.load.note_received(length);
            sender = end.peer;
            joined = end.owner.filter(|_| end.inbound.is_empty() && end.fin_came && end.fin_joined);
        }
        // Now there is room for more, of which the other end hears at once.
        if let Some(sender) = sender {
            self.transmit(sender);
        }
        match joined.zip(self.ends.get_mut(id)) {
            // The end came with the last bytes, and the driver reports both in one turn: within the class that it serves now.
            Some((owner, end)) => {
                end.lined_up = true;
                self.driver_states[owner.desk].ready.push_next(Place::End(id), load);
            }
            None => self.line_up(Place::End(id)),
        }
        Completion::Received(scratch.received(length))
    }
}

/// `EMFILE` of Linux.
const EMFILE: i32 = 24;

/// How much later than it could be something is told.
const DELAY_MAX: Duration = Duration::from_millis(5);
