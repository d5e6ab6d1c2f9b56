//! A field block between its frames: HEADERS without END_HEADERS, and CONTINUATION (RFC 9113 §6.10).

use tidegate_codec::Charge;

/// A field block that is not complete.
#[derive(Debug)]
pub(crate) struct FieldBlock {
    pub(crate) about: BlockInfo,
    pub(crate) bytes: Vec<u8>,
    /// Counts the bytes in the ledger of the loop.
    pub(crate) charge: Charge,
}

/// The parts of HEADERS beside the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockInfo {
    pub(crate) stream: u32,
    pub(crate) ends: bool,
    pub(crate) depends_on_itself: bool,
}

impl FieldBlock {
    pub(crate) fn stream(&self) -> u32 {
        self.about.stream
    }
}
