//! The one place that decides which completion a socket reports to its loop.

use std::io::{self, Read};
use std::time::Duration;

use tidegate_buffer::{RECEIVE_BYTES_MAX, Scratch};
use tidegate_sys::{Accepted, Completion, Load, Socket, Token};

use super::event_queue::Event;
use super::faults::NetworkFault;
use super::stream::{Owner, SEGMENT_BYTES};
use super::world::{SocketRef, World};

impl World {
    /// The next completion of a socket, if it has one. A socket that may have more is queued again.
    pub(super) fn poll_socket(
        &mut self,
        driver: usize,
        place: SocketRef,
        scratch: &mut Scratch,
    ) -> Option<(Token, Completion)> {
        let (owner, completion) = match place {
            SocketRef::Closed(token) => (Owner { driver, token }, Completion::Closed),
            SocketRef::Listener(id) => {
                let listener = self.listeners.get_mut(id)?;
                let owner = listener.owner?;
                if listener.is_ready() && self.occurs(NetworkFault::Delayed) {
                    return self.delay(place);
                }
                self.listeners.get_mut(id)?.queued = false;
                (owner, self.accept(driver, id)?)
            }
            SocketRef::Datagrams(id) => {
                let paused = self.driver_states[driver].receives_paused;
                let owner = self.datagrams.sockets.get(id)?.owner?;
                if self.occurs(NetworkFault::Delayed) {
                    return self.delay(place);
                }
                self.datagrams.sockets.get_mut(id)?.queued = false;
                (owner, self.poll_datagrams(id, paused, scratch)?)
            }
            SocketRef::Endpoint(id) => {
                let paused = self.driver_states[driver].receives_paused;
                let end = self.ends.get_mut(id)?;
                let owner = end.owner?;
                if end.is_ready(paused) && self.occurs(NetworkFault::Delayed) {
                    return self.delay(place);
                }
                self.ends.get_mut(id)?.queued = false;
                (owner, self.poll_endpoint(id, paused, scratch)?)
            }
        };
        self.report(owner, &completion);
        Some((owner.token, completion))
    }

    /// Delays a completion. The socket stays marked as queued, so that no other event queues it meanwhile.
    fn delay(&mut self, place: SocketRef) -> Option<(Token, Completion)> {
        let pause = self.random_delay(DELAY_MAX);
        self.put(pause, Event::Poll { place });
        None
    }

    fn accept(&mut self, driver: usize, id: u64) -> Option<Completion> {
        let listener = self.listeners.get_mut(id).filter(|listener| listener.is_ready())?;
        let next = *listener.backlog.front()?;
        if !listener.accepting {
            listener.one_more = false;
            self.fault_counts.note(NetworkFault::LateCancel);
        }
        if self.occurs(NetworkFault::NoDescriptor) {
            // Not queued again: accepting continues with the next connection, or when the loop submits `Accept`.
            return Some(Completion::Accepted(Err(io::Error::from_raw_os_error(EMFILE))));
        }
        self.listeners.get_mut(id)?.backlog.pop_front();
        self.enqueue(SocketRef::Listener(id));
        let end = self.ends.get_mut(next)?;
        end.accepted_by = Some(driver);
        Some(Completion::Accepted(Ok(Accepted { socket: Socket::Simulated(next), peer: end.remote.clone() })))
    }

    fn poll_endpoint(&mut self, id: u64, paused: bool, scratch: &mut Scratch) -> Option<Completion> {
        let end = self.ends.get_mut(id)?;
        if end.connecting {
            let outcome = end.outcome.take()?;
            end.connecting = false;
            self.enqueue(SocketRef::Endpoint(id));
            return Some(Completion::Connected(outcome.map_err(Into::into)));
        }
        if end.send_is_due {
            let count = end.taken.take();
            (end.send_is_due, end.in_flight) = (false, false);
            self.enqueue(SocketRef::Endpoint(id));
            return count.map(|count| Completion::Sent(Ok(count)));
        }
        if end.broken && end.taken.take().is_some() {
            // Until this completion the driver owns the bytes, so it must be the first to report the reset.
            (end.in_flight, end.break_reported) = (false, true);
            return Some(Completion::Sent(Err(io::ErrorKind::ConnectionReset.into())));
        }
        if end.is_writable_again() {
            (end.blocked, end.in_flight) = (false, false);
            self.enqueue(SocketRef::Endpoint(id));
            return Some(Completion::Sent(Ok(0)));
        }
        if end.broken {
            let was_reported = std::mem::replace(&mut end.break_reported, true);
            return (!was_reported).then(|| Completion::Failed(io::ErrorKind::ConnectionReset.into()));
        }
        if end.is_end_due() {
            end.is_watched = false;
            self.enqueue(SocketRef::Endpoint(id));
            return Some(Completion::HungUp);
        }
        if !end.may_receive(paused) || !end.is_readable() {
            return None;
        }
        let mut there = end.inbound.len();
        if !end.receiving {
            // A late completion carries one buffer of a ring, which is smaller than the scratch.
            there = there.min(SEGMENT_BYTES);
            end.one_more = false;
            self.fault_counts.note(NetworkFault::LateCancel);
        }
        if there == 0 {
            end.end_reported = true;
            self.enqueue(SocketRef::Endpoint(id));
            return Some(Completion::Ended);
        }
        if let Some(hint) = end.receive_hint.take() {
            there = there.min(hint.receive_bytes(RECEIVE_BYTES_MAX));
        }
        let short = there > 1 && self.occurs(NetworkFault::ShortRead);
        let wanted = if short { 1 + self.random.below(there - 1) } else { there };
        Some(self.receive(id, wanted, scratch))
    }

    fn receive(&mut self, id: u64, wanted: usize, scratch: &mut Scratch) -> Completion {
        let space = scratch.space(wanted);
        let length = space.len();
        let (mut sender, mut joined) = (None, None);
        let mut load = Load::default();
        if let Some(end) = self.ends.get_mut(id) {
            end.inbound.read_exact(space).expect("at least as many bytes have arrived");
            load = end.load;
            end.load.note_received(length);
            sender = end.peer;
            joined = end.owner.filter(|_| end.inbound.is_empty() && end.fin_received && end.fin_joined);
        }
        // Now there is room for more, and the other end transmits at once.
        if let Some(sender) = sender {
            self.transmit(sender);
        }
        match joined.zip(self.ends.get_mut(id)) {
            // The FIN came with the last bytes, and the driver reports both in one turn, within the class that it
            // serves now.
            Some((owner, end)) => {
                end.queued = true;
                self.driver_states[owner.driver].ready.push_next(SocketRef::Endpoint(id), load);
            }
            None => self.enqueue(SocketRef::Endpoint(id)),
        }
        Completion::Received(scratch.received(length))
    }
}

/// `EMFILE` of Linux.
const EMFILE: i32 = 24;

/// How long a completion may be delayed.
const DELAY_MAX: Duration = Duration::from_millis(5);
