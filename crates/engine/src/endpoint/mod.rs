//! Endpoints: datagram sockets of a loop, each with a protocol ([`Endpoint`]) or a handle for tasks.
//!
//! An endpoint is an entry of a slot like a connection, with the slot's timer. A batch of datagrams is one dispatch: the
//! protocol gets one datagram after the other, is asked once for datagrams to send, and the list goes to the driver with one
//! call. Datagrams for which the kernel has no room wait in the list, which is bounded and drops its oldest.
//!
//! | part | file |
//! |---|---|
//! | the entry | here |
//! | adding endpoints to a loop | `bind.rs` |
//! | the same for tasks: `DatagramChannel` | `channel.rs` |
//! | endpoints of a server: `EndpointListener` | `listener.rs` |
//! | datagrams that are for another loop | `steered.rs` |
//! | datagrams that are for another process | `predecessors.rs`, in bytes `relayed.rs` |
//! | protocols whose sessions carry streams | `sessions.rs`, its tables `session_tables.rs`, their memory `session_memory.rs`, a handle `session_handle.rs` |
//! | their streams | reading and writing `stream_io.rs`, requests that are answered at once `answers.rs` |

mod answers;
mod bind;
mod channel;
mod listener;
mod predecessors;
mod relayed;
mod session_handle;
mod session_memory;
mod session_tables;
mod sessions;
mod steered;
mod stream_io;

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tidegate_buffer::{Datagram, DatagramError, DatagramErrorReason, Membership, Pool, Transmits};
use tidegate_codec::Endpoint;
use tidegate_sys::{Completion, Operation, Token, Transmission};

pub use self::bind::{EndpointLimits, EndpointWaker};
pub use self::channel::{DatagramChannel, RecvFrom};
pub(crate) use self::listener::{Bind, BindPlace, GroupSteering, SocketGroup};
pub use self::listener::{EndpointListener, ServedEndpoint};
pub(crate) use self::predecessors::Predecessors;
pub use self::session_handle::{EndpointSession, SessionEndpoint};
pub use self::session_tables::SessionStreams;
pub use self::sessions::SessionLimits;
#[cfg(test)]
pub(crate) use self::steered::Generations;
use self::steered::{DatagramRoute, Forwarded, Outgoing, SwitchReceiving};
pub(crate) use self::steered::{SteeredLoops, SteeredPlace};
use crate::close_reason::CloseReason;
use crate::loop_core::Core;
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent};
use crate::successor::Successor;
use crate::wheel::DeadlineTick;

/// A datagram socket with its protocol.
struct EndpointEntry<E> {
    endpoint: E,
    /// Makes the protocol anew after a panic.
    make: Option<Box<dyn FnMut() -> E>>,
    transmits: Transmits,
    /// The kernel has no room.
    is_blocked: bool,
    is_draining: bool,
    /// The drops of the list and of the kernel that are in the loop's counts.
    counted_drops: (u64, u64),
    /// The loops that share the address, if a datagram has the number of its loop.
    steered: Option<Box<SteeredPlace>>,
    /// The server that receives from the same socket, if one may.
    successor: Option<Box<Successor>>,
}

impl<E: Endpoint> EndpointEntry<E> {
    fn new(endpoint: E, make: Option<Box<dyn FnMut() -> E>>, limits: EndpointLimits, pool: &Pool) -> Self {
        let bytes_max = limits.waiting_bytes_max.max(EndpointLimits::RUN_BYTES);
        let transmits = Transmits::new(pool).with_limits(limits.waiting_max, bytes_max);
        Self {
            endpoint,
            make,
            transmits,
            is_blocked: false,
            is_draining: false,
            counted_drops: (0, 0),
            steered: None,
            successor: None,
        }
    }

    fn on_datagrams(&mut self, core: &mut Core, token: Token, mut batch: Vec<Datagram>) {
        let (now, takes_runs) = (core.time.now(), self.endpoint.takes_runs());
        let mut elsewhere = None;
        for datagram in batch.drain(..) {
            let count = datagram.count() as u64;
            core.counters.datagrams_received += count;
            core.counters.messages += count;
            core.counters.received_bytes += datagram.payload.len() as u64;
            if takes_runs || datagram.segment_size.is_none() {
                self.handle(datagram, now, &mut elsewhere);
            } else {
                datagram.into_singles().for_each(|single| self.handle(single, now, &mut elsewhere));
            }
        }
        core.driver.give_back(batch);
        if let Some(elsewhere) = elsewhere {
            let counts = elsewhere.send(self.steered.as_deref());
            core.counters.datagrams_forwarded += counts.forwarded;
            core.counters.datagrams_to_predecessor += counts.to_predecessor;
            core.counters.datagrams_dropped += counts.dropped;
        }
        let drops = core.driver.datagram_drops(token);
        core.counters.datagrams_overflowed += drops - self.counted_drops.1;
        self.counted_drops.1 = drops;
    }

    /// Passes a datagram to the protocol, or puts it among those of another endpoint.
    fn handle(&mut self, datagram: Datagram, now: Instant, elsewhere: &mut Option<Outgoing>) {
        let Some(steered) = &self.steered else { return self.endpoint.handle_datagram(datagram, now) };
        match steered.route(&datagram.payload) {
            DatagramRoute::Here => self.endpoint.handle_datagram(datagram, now),
            DatagramRoute::Endpoint(to) => elsewhere.get_or_insert_default().push(to, &datagram),
            DatagramRoute::Predecessor(to) => elsewhere.get_or_insert_default().relay(steered, to, &datagram),
        }
    }

    /// A message of another thread: datagrams that came elsewhere, or that a successor comes or has gone.
    fn on_posted(&mut self, core: &mut Core, token: Token, post: Box<dyn Any + Send>) {
        match post.downcast::<Forwarded>() {
            Ok(forwarded) => self.on_forwarded(core, *forwarded),
            Err(post) => {
                if let Ok(switch) = post.downcast::<SwitchReceiving>() {
                    core.driver.submit(token, Operation::Receive(switch.on));
                }
            }
        }
    }

    /// Datagrams that came to another loop, which has counted them, or to a successor.
    fn on_forwarded(&mut self, core: &mut Core, forwarded: Forwarded) {
        let (now, count) = (core.time.now(), forwarded.count());
        core.counters.datagrams_dropped += self.steered.as_ref().map_or(0, |steered| steered.take_dropped());
        // The driver receives nothing either as long as memory is used up.
        if core.pool.ledger().is_exhausted() {
            core.counters.datagrams_dropped += count;
            return;
        }
        if forwarded.is_of_successor() {
            core.counters.datagrams_from_successor += count;
        }
        forwarded.into_datagrams(&core.pool).for_each(|datagram| self.endpoint.handle_datagram(datagram, now));
    }

    fn on_errors(&mut self, core: &mut Core, errors: Vec<DatagramError>) {
        let now = core.time.now();
        core.counters.datagram_errors += errors.len() as u64;
        errors.into_iter().for_each(|error| self.endpoint.failed(error, now));
    }

    /// Sends, sets the timer, and ends the endpoint if its drain is complete.
    fn pump(&mut self, core: &mut Core, token: Token) -> Disposition {
        let now = core.time.now();
        self.change_groups(core, token, now);
        self.endpoint.poll_transmit(now, &mut self.transmits);
        let is_full = self.transmits.room(EndpointLimits::RUN_BYTES as usize) == 0;
        let has_errors = self.flush(core, token);
        if !self.is_blocked && (is_full || has_errors) {
            // The protocol may have stopped for want of room, or may react to the errors.
            core.queues.continue_later(token);
        }
        let dropped = self.transmits.dropped();
        core.counters.datagrams_dropped += dropped - self.counted_drops.0;
        self.counted_drops.0 = dropped;
        let deadline = self.endpoint.poll_timeout();
        core.set_timer(token, deadline.map_or(DeadlineTick::NEVER, |at| core.wheel.tick(at)));
        if self.is_draining && self.transmits.is_empty() && self.endpoint.is_drained() {
            return Disposition::close(CloseReason::Done);
        }
        Disposition::Keep
    }

    /// Joins and leaves the groups that the protocol asks for. Those beyond the bound follow in a later turn.
    fn change_groups(&mut self, core: &mut Core, token: Token, now: Instant) {
        for _ in 0..MEMBERSHIPS_PER_TURN_MAX {
            let Some(membership) = self.endpoint.poll_membership() else { return };
            if let Err(error) = core.driver.set_membership(token, &membership) {
                self.endpoint.failed(membership_error(&membership, &error), now);
            }
        }
        core.queues.continue_later(token);
    }

    /// Passes the list to the driver. Returns whether the protocol has got errors.
    fn flush(&mut self, core: &mut Core, token: Token) -> bool {
        if self.is_blocked || self.transmits.is_empty() {
            return false;
        }
        let Some(Completion::Transmitted(transmission)) =
            core.driver.submit(token, Operation::Transmit(&mut self.transmits))
        else {
            return false;
        };
        let Transmission { sent, bytes, lost, is_blocked, errors } = transmission;
        core.counters.datagrams_sent += sent;
        core.counters.datagrams_lost += lost;
        core.counters.sent_bytes += bytes;
        self.is_blocked = is_blocked;
        self.transmits.release_memory();
        let has_errors = !errors.is_empty();
        self.on_errors(core, errors);
        has_errors
    }

    /// The protocol has panicked: its state is lost, and another one takes its place. Without one the socket closes.
    fn replace(&mut self, core: &mut Core) -> Disposition {
        core.counters.endpoints_panicked += 1;
        let now: Instant = core.time.now();
        core.log.endpoint_panicked(now);
        let Some(make) = &mut self.make else { return Disposition::close(CloseReason::Panicked) };
        self.endpoint = make();
        Disposition::Keep
    }
}

/// The report of a change of groups that the system has refused.
fn membership_error(membership: &Membership, error: &io::Error) -> DatagramError {
    let destination = Some(SocketAddr::new(membership.group, 0));
    DatagramError { destination, reason: DatagramErrorReason::Membership(error.kind()) }
}

/// Groups that an endpoint joins or leaves in one turn.
const MEMBERSHIPS_PER_TURN_MAX: usize = 64;

impl<E: Endpoint> EndpointEntry<E> {
    /// Takes an event in. Returns the disposition if the dispatch ends with that.
    fn take_in(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Option<Disposition> {
        match event {
            SlotEvent::Datagrams(batch) => self.on_datagrams(core, token, batch),
            SlotEvent::DatagramErrors(errors) => self.on_errors(core, errors),
            SlotEvent::TransmitRoom => self.is_blocked = false,
            SlotEvent::Timer => self.endpoint.handle_timeout(core.time.now()),
            SlotEvent::Posted(post) => self.on_posted(core, token, post),
            SlotEvent::Opened | SlotEvent::Scheduled => {}
            SlotEvent::Panicked => match self.replace(core) {
                Disposition::Keep => {}
                closing => return Some(closing),
            },
            SlotEvent::Drain => {
                self.is_draining = true;
                let has_sessions = self.steered.as_ref().is_some_and(|steered| steered.has_generation());
                if !has_sessions && self.successor.as_ref().is_some_and(|successor| successor.is_there()) {
                    // The successor gets the datagrams from now on: here a query would be refused.
                    core.driver.submit(token, Operation::Receive(false));
                }
                self.endpoint.drain(core.time.now());
            }
            SlotEvent::DrainTimeout => return Some(Disposition::close(CloseReason::Drained)),
            SlotEvent::Failed(error) => return Some(Disposition::close(CloseReason::Broken(error))),
            // An endpoint can give back the datagrams that wait to be sent, and nothing else.
            SlotEvent::Shed => {
                self.transmits.drop_all();
                return Some(Disposition::Keep);
            }
            _ => return Some(Disposition::Keep),
        }
        None
    }
}

impl<E: Endpoint + 'static> SlotEntry for EndpointEntry<E> {
    fn dispatch(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Disposition {
        self.take_in(core, token, event).unwrap_or_else(|| self.pump(core, token))
    }

    fn on_closed(self: Box<Self>, core: &mut Core, _reason: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        core.counters.endpoints -= 1;
        None
    }

    fn memory_bytes(&self) -> usize {
        self.transmits.memory_bytes()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
