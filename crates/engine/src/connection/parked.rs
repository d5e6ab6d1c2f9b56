//! A finished stream ([`finished.rs`](super::finished)) that waits for the window of its peer, in one small piece of memory.
//!
//! It has no queue and no link. An event, and the turn of the stream to write, make it a connection again.

use std::any::Any;
use std::rc::Rc;

use tidegate_buffer::{Input, ParkedQueue, Writability};
use tidegate_sys::Token;

use super::Link;
use super::finished::{FinishedApplication, FinishedConnection};
use super::link::{NOT_WATCHED, Registration};
use crate::close_reason::CloseReason;
use crate::group::{Delivery, DeliveryOutcome};
use crate::inspection::{ConnectionState, Description, ProtocolNames};
use crate::loop_core::Core;
use crate::session::StreamId;
use crate::slot_entry::{Disposition, Reduction, SlotEntry, SlotEvent, SocketState};
use crate::wheel::DeadlineTick;

/// The stream.
pub(super) struct ParkedStream {
    queue: ParkedQueue,
    link: ParkedLink,
    application: FinishedApplication,
}

/// The parts of a [`Link`] that such a stream needs again: its input is empty, and it has no deadline but that of its peer.
struct ParkedLink {
    registration: Registration,
    closing: Option<Rc<CloseReason>>,
    progress: DeadlineTick,
    /// As in [`Link`], for a queue that counts its bytes from zero.
    acknowledged: u32,
    flags: u16,
    level: Writability,
    write_side_and_turn: u8,
}

impl ParkedStream {
    /// Parks a finished stream, if its queue can be.
    pub(super) fn park(entry: Box<dyn SlotEntry>) -> Box<dyn SlotEntry> {
        let mut connection =
            entry.into_any().downcast::<FinishedConnection>().expect("the connection offers this itself");
        let (link, ..) = connection.parts();
        if !link.input.is_empty() {
            return connection;
        }
        let sent = link.sent() as u32;
        let Some(queue) = link.outbound().park() else { return connection };
        let (link, application) = connection.into_finished();
        let Link { registration, closing, progress, acknowledged, flags, level, write_side_and_turn, .. } = link;
        let acknowledged = acknowledged.wrapping_sub(sent);
        let link = ParkedLink { registration, closing, progress, acknowledged, flags, level, write_side_and_turn };
        Box::new(Self { queue, link, application })
    }

    /// The stream with its queue and its link.
    fn unpark(self) -> FinishedConnection {
        let Self { queue, link, application } = self;
        let ParkedLink { registration, closing, progress, acknowledged, flags, level, write_side_and_turn } = link;
        let link = Link {
            outbound: queue.unpark(),
            input: Input::new(),
            registration,
            closing,
            watched: NOT_WATCHED,
            deadline: DeadlineTick::NEVER,
            progress,
            acknowledged,
            flags,
            level,
            write_side_and_turn,
        };
        FinishedConnection::finished(link, application)
    }

    fn unparked(entry: Box<dyn SlotEntry>) -> Box<dyn SlotEntry> {
        let parked = entry.into_any().downcast::<Self>().expect("the stream offers this itself");
        Box::new(parked.unpark())
    }
}

impl SlotEntry for ParkedStream {
    fn dispatch(&mut self, _: &mut Core, _: Token, event: SlotEvent) -> Disposition {
        Disposition::Switch(Box::new(|entry| (Self::unparked(entry), event)))
    }

    fn deliver(&mut self, _: &mut Core, _: Token, _: &Delivery) -> (DeliveryOutcome, Disposition) {
        (DeliveryOutcome::NotApplicable, Disposition::Keep)
    }

    fn on_closed(self: Box<Self>, core: &mut Core, reason: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        Box::new(self.unpark()).on_closed(core, reason)
    }

    fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes()
    }

    fn describe_stream(&self, core: &Core) -> Option<Description> {
        let registration = &self.link.registration;
        Some(Description {
            peer: core.sessions.of(registration.stream()?)?.1,
            is_accepted: registration.settings().counts.is_some(),
            protocols: ProtocolNames::default(),
            state: ConnectionState::Closing,
            inbound_bytes: 0,
            outbound_bytes: self.queue.pending(),
        })
    }

    fn socket_state(&self) -> SocketState {
        SocketState::Session
    }

    fn stream(&self) -> Option<StreamId> {
        self.link.registration.stream()
    }

    fn is_ending(&self) -> bool {
        true
    }

    fn restoration(&self) -> Option<Reduction> {
        Some(Self::unparked)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

const _: () = assert!(size_of::<ParkedStream>() <= 120);
