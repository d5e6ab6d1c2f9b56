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
        self.link.description(core, protocols, inbound_bytes, outbound_bytes)
    }
}

impl Link {
    /// Compiled once, and not for each pipeline.
    #[inline(never)]
    fn description(
        &self,
        core: &Core,
        protocols: ProtocolNames,
        inbound_bytes: u64,
        outbound_bytes: u64,
    ) -> Description {
        let state = if self.intersects(Self::HANDSHAKE) {
            ConnectionState::Handshake
        } else if self.is_ending() {
            ConnectionState::Closing
        } else if outbound_bytes > 0 && self.intersects(Self::SENDING) {
            ConnectionState::WaitsForPeer
        } else if self.intersects(Self::PAUSED)
            || !self.intersects(Self::RECEIVING | Self::PEER_ENDED | Self::READ_CLOSED)
        {
            ConnectionState::WaitsForApplication
        } else {
            ConnectionState::Open
        };
        let (peer, is_accepted) = (self.peer(&core.sessions), self.settings().counts.is_some());
        Description { peer, is_accepted, protocols, state, inbound_bytes, outbound_bytes }
    }
}
