//! `TableStreams`: the state of a connection beside its tables.

use foldhash::HashMap;
use tidegate_codec::StreamNumber;

use super::inbound::InboundFrames;
use super::outbound::OutboundFrames;
use super::waiting::WaitingBytes;

/// The request streams of a connection whose frames are rewritten, and the QPACK streams of this side.
#[derive(Debug, Default)]
pub(crate) struct TableStreams {
    pub(super) requests: HashMap<u64, Box<StreamFrames>>,
    pub(super) waiting: WaitingBytes,
    /// Bytes of the tables, and of waiting sections and instructions, in the sum of the endpoint.
    pub(super) counted: usize,
    /// The encoder stream and the decoder stream.
    pub(super) own: [OwnStream; 2],
}

impl TableStreams {
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Bytes of sections and of instructions that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.bytes() + self.own.iter().map(|own| own.unsent.capacity()).sum::<usize>()
    }
}

/// The frames of a request stream.
#[derive(Debug, Default)]
pub(super) struct StreamFrames {
    pub(super) inbound: InboundFrames,
    pub(super) outbound: OutboundFrames,
}

/// A unidirectional stream of this side, once it was opened.
#[derive(Debug, Default)]
pub(super) struct OwnStream {
    pub(super) number: Option<StreamNumber>,
    /// Bytes that QUIC does not take yet.
    pub(super) unsent: Vec<u8>,
}

/// A connection without tables costs one pointer more, and a request stream of one with tables this.
const _: () = assert!(size_of::<TableStreams>() <= 208 && size_of::<StreamFrames>() <= 192);
