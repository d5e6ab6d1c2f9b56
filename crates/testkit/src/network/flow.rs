//! How bytes travel from one end of a stream to the other, and how a stream ends.

use std::io::{self, Read};
use std::time::Duration;

use tidegate_buffer::Outbound;
use tidegate_buffer::injected::{self, Bug};

use super::event_queue::Event;
use super::faults::NetworkFault;
use super::stream::{Endpoint, RECEIVE_BUFFER_BYTES, SEGMENT_BYTES, SEND_BUFFER_BYTES};
use super::world::{SocketRef, World};
use crate::wire::copy_front;

impl World {
    /// Moves as many bytes into the send buffer as it has room for.
    pub(super) fn send(&mut self, id: u64, queue: &Outbound, bytes_max: usize) -> Option<io::Result<usize>> {
        let end = self.ends.get_mut(id)?;
        if std::mem::replace(&mut end.in_flight, true) {
            self.violation = Some("a second send of a socket while one is in flight");
            return None;
        }
        let sent = self.try_to_send(id, queue, bytes_max);
        if sent.is_some()
            && let Some(end) = self.ends.get_mut(id)
        {
            end.in_flight = false;
        }
        sent
    }

    /// Sends and returns the result, or returns `None`: then a completion follows.
    fn try_to_send(&mut self, id: u64, queue: &Outbound, bytes_max: usize) -> Option<io::Result<usize>> {
        let end = self.ends.get_mut(id)?;
        if end.broken && !std::mem::replace(&mut end.break_reported, true) {
            return Some(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if end.broken || end.shut {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if end.send_buffer == SEND_BUFFER_BYTES && queue.has_flushed() && self.occurs(NetworkFault::FullBuffer) {
            self.shrink(id);
        }
        let end = self.ends.get_mut(id)?;
        let room = end.room();
        if end.blocked || end.connecting || room == 0 {
            end.load.note_blocked();
            end.blocked = true;
            return None;
        }
        if queue.has_flushed() && self.occurs(NetworkFault::WouldBlock) {
            self.stall(id);
            return None;
        }
        let mut bytes = Vec::new();
        let taken = match copy_front(queue, bytes_max.min(room), &mut bytes) {
            Ok(taken) => taken,
            Err(error) => return Some(Err(error)),
        };
        if injected::is_injected(Bug::PartsBeyondLimitLost) && taken > bytes.len() {
            return Some(Ok(taken));
        }
        if bytes.len() > 1 && self.occurs(NetworkFault::ShortWrite) {
            bytes.truncate(1 + self.random.below(bytes.len() - 1));
            self.stall(id);
        }
        let end = self.ends.get_mut(id)?;
        end.load.note_sent(bytes.len());
        end.unsent.extend(&bytes);
        self.transmit(id);
        if !bytes.is_empty() && self.occurs(NetworkFault::LateSend) {
            let pause = self.random_delay(LATE_SEND_MAX);
            self.ends.get_mut(id)?.taken = Some(bytes.len());
            self.put(pause, Event::SendDue { end: id });
            return None;
        }
        Some(Ok(bytes.len()))
    }

    /// Shrinks the send buffer for a while.
    fn shrink(&mut self, id: u64) {
        let (bytes, pause) = (1 + self.random.below(SMALL_BUFFER_BYTES_MAX), self.random_delay(SMALL_BUFFER_MAX));
        if let Some(end) = self.ends.get_mut(id) {
            end.send_buffer = bytes;
            self.put(pause, Event::BufferRestored { end: id });
        }
    }

    /// Blocks sending for a while, whatever room there is.
    fn stall(&mut self, id: u64) {
        let pause = self.random_delay(STALL_MAX);
        if let Some(end) = self.ends.get_mut(id) {
            (end.blocked, end.stalled) = (true, true);
            end.load.note_blocked();
            self.put(pause, Event::Unstalled { end: id });
        }
    }

    /// Sends segments while the other end has room, and then the FIN, if it is due.
    pub(super) fn transmit(&mut self, id: u64) {
        loop {
            let Some(end) = self.ends.get(id).filter(|end| !end.broken) else { return };
            let Some((to, peer)) = end.peer.and_then(|peer| Some((peer, self.ends.get(peer)?))) else { return };
            let window = RECEIVE_BUFFER_BYTES.saturating_sub(peer.inbound.len() + end.travelling);
            let length = end.unsent.len().min(window).min(SEGMENT_BYTES);
            if length == 0 {
                if end.shut && !end.fin_left && end.unsent.is_empty() {
                    self.send_fin(id, to);
                }
                return;
            }
            if self.occurs(NetworkFault::Reset) {
                return self.reset_both(id, to);
            }
            let splits = length > 1 && self.occurs(NetworkFault::SplitRead);
            let length = if splits { 1 + self.random.below(length - 1) } else { length };
            let Some(end) = self.ends.get_mut(id) else { return };
            let mut bytes = vec![0; length];
            end.unsent.read_exact(&mut bytes).expect("so many wait");
            end.travelling += length;
            end.unacknowledged += length;
            let at = self.arrival(id, length);
            self.put_at(at, Event::Data { to, bytes });
            if splits && let Some(end) = self.ends.get_mut(id) {
                end.last_arrival += SPLIT_GAP;
            }
        }
    }

    /// Sends the FIN. It follows the last bytes, or arrives with them if they are still in flight.
    fn send_fin(&mut self, id: u64, to: u64) {
        let Some(end) = self.ends.get_mut(id) else { return };
        end.fin_left = true;
        let (travels, arrival) = (end.travelling > 0, end.last_arrival);
        let joined = travels && self.occurs(NetworkFault::FinWithData);
        let at = if joined { arrival } else { self.arrival(id, 0) };
        self.put_at(at, Event::Fin { to, joined });
    }

    /// Bytes arrive at an end, which may be closed.
    pub(super) fn arrive(&mut self, to: u64, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(to) else { return };
        let (from, length) = (end.peer, bytes.len());
        let closed = end.closed;
        if !closed && !end.broken {
            end.inbound.extend(bytes);
        }
        let broken = end.broken;
        let back = self.latency_back(to);
        if let Some((from, sender)) = from.and_then(|from| Some((from, self.ends.get_mut(from)?))) {
            sender.travelling -= length;
            self.put(back, Event::Acknowledged { end: from, count: length });
        }
        if closed && !broken {
            // No application will read these bytes, so the sender must get a reset.
            self.reset(to);
        }
        self.enqueue(SocketRef::Endpoint(to));
    }

    /// Closes an end.
    pub(super) fn close(&mut self, id: u64, reset: bool) {
        let Some(end) = self.ends.get_mut(id).filter(|end| !end.closed) else { return };
        (end.owner, end.closed, end.shut) = (None, true, true);
        let has_unread = !end.inbound.is_empty();
        self.open_ends -= 1;
        if reset || has_unread {
            self.reset(id);
        } else {
            self.transmit(id);
        }
        self.remove_if_closed(id);
    }

    /// Removes a driver, and closes all of its sockets.
    pub(super) fn remove_driver(&mut self, driver: usize) {
        self.driver_states[driver].is_turned = false;
        for place in self.driver_states[driver].sockets.places() {
            match place {
                SocketRef::Endpoint(id) => self.close(id, false),
                SocketRef::Listener(id) => self.close_listener(id),
                SocketRef::Datagrams(id) => self.close_datagrams(id),
                SocketRef::Closed(_) => {}
            }
        }
        let is_lost = |end: &Endpoint| end.accepted_by == Some(driver) && end.owner.is_none() && !end.closed;
        let lost: Vec<_> = self.ends.iter().filter(|(_, end)| is_lost(end)).map(|(id, _)| id).collect();
        lost.into_iter().for_each(|id| self.close(id, false));
    }

    /// Shuts down the sending side of an end.
    pub(super) fn shut(&mut self, id: u64) {
        if let Some(end) = self.ends.get_mut(id) {
            end.shut = true;
            self.transmit(id);
        }
    }

    /// Breaks an end, and sends a reset to the other one.
    fn reset(&mut self, id: u64) {
        let Some(end) = self.ends.get(id).filter(|end| !end.broken) else { return };
        match end.peer {
            Some(to) => self.send_in_order(id, Endpoint::break_stream, Event::Reset { to }),
            None => self.ends.get_mut(id).into_iter().for_each(Endpoint::break_stream),
        }
    }

    /// The network breaks a stream: both ends get a reset.
    fn reset_both(&mut self, id: u64, to: u64) {
        self.send_in_order(id, Endpoint::break_stream, Event::Reset { to });
        self.enqueue(SocketRef::Endpoint(id));
    }

    /// Sends an event without bytes, behind everything that is in flight.
    fn send_in_order(&mut self, id: u64, change: impl FnOnce(&mut Endpoint), event: Event) {
        let at = self.arrival(id, 0);
        if let Some(end) = self.ends.get_mut(id) {
            change(end);
        }
        self.put_at(at, event);
    }

    /// The arrival time of a segment that leaves an end now.
    pub(super) fn arrival(&mut self, id: u64, bytes: usize) -> Duration {
        let Some(end) = self.ends.get(id) else { return self.now };
        let link = self.link_between(end.route);
        let takes = Duration::from_nanos(bytes as u64 * NANOS_PER_SECOND / link.bytes_per_second.max(1));
        let free_at = end.free_at.max(self.now) + takes;
        let jitter = if self.occurs(NetworkFault::Jitter) { self.random_delay(JITTER_MAX) } else { Duration::ZERO };
        let Some(end) = self.ends.get_mut(id) else { return self.now };
        end.free_at = free_at;
        end.last_arrival = end.last_arrival.max(free_at + link.latency + jitter);
        end.last_arrival
    }

    fn latency_back(&self, id: u64) -> Duration {
        self.ends.get(id).map_or(Duration::ZERO, |end| self.link_between(end.route).latency)
    }

    /// Removes both ends of a stream once both are closed: bytes in flight then concern no driver.
    fn remove_if_closed(&mut self, id: u64) {
        let Some(end) = self.ends.get(id) else { return };
        let peer = end.peer;
        if peer.and_then(|peer| self.ends.get(peer)).is_none_or(|peer| peer.closed) {
            self.ends.remove(id);
            peer.into_iter().for_each(|peer| drop(self.ends.remove(peer)));
        }
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How much longer than usual a segment may take.
const JITTER_MAX: Duration = Duration::from_millis(40);

/// The largest size of a shrunken send buffer.
const SMALL_BUFFER_BYTES_MAX: usize = 2000;

/// How long a send buffer may stay shrunken.
const SMALL_BUFFER_MAX: Duration = Duration::from_millis(100);

/// How late the completion of a send may be.
const LATE_SEND_MAX: Duration = Duration::from_millis(10);

/// How long sending may be blocked although there is room.
const STALL_MAX: Duration = Duration::from_millis(20);

/// The delay between the two pieces of a split segment.
const SPLIT_GAP: Duration = Duration::from_millis(1);
