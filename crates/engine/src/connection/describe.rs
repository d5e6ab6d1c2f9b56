//! The description of a connection for an operator.

use tidegate_codec::Pipeline;

use super::{Application, Connection, Link};
use crate::inspection::{ConnectionState, Description, ProtocolNames};
use crate::loop_core::Core;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    pub(super) fn description(&self, core: &Core) -> Description {
        let mut protocols = ProtocolNames::default();
        self.codec.protocols(&mut |name| protocols.add(name));
        let outbound_bytes = self.link.pending_bytes() + self.codec.buffered_bytes() as u64;
        let inbound_bytes = (self.link.input.len() + self.codec.input_memory()) as u64;
        let state = if self.link.intersects(Link::HANDSHAKE) {
            ConnectionState::Handshake
        } else if self.link.is_ending() {
            ConnectionState::Closing
        } else if outbound_bytes > 0 && self.link.intersects(Link::SENDING) {
            ConnectionState::WaitsForPeer
        } else if self.link.intersects(Link::PAUSED)
            || !self.link.intersects(Link::RECEIVING | Link::PEER_ENDED | Link::READ_CLOSED)
        {
            ConnectionState::WaitsForApplication
        } else {
            ConnectionState::Open
        };
        Description {
            peer: self.link.peer(&core.sessions),
            is_accepted: self.link.settings().counts.is_some(),
            protocols,
            state,
            inbound_bytes,
            outbound_bytes,
        }
    }
}
