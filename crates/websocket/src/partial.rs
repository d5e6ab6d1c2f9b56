//! `PartialMessage`: a message that is not complete after one frame, or that is compressed or yielded in pieces; and the
//! deadline of any message of which a part has come.

use std::time::Instant;

use tidegate_buffer::{Input, Pool, Slice};

use crate::message::Kind;

/// The state of a message that is partly received.
#[derive(Debug)]
pub(crate) struct PartialMessage {
    pub(crate) kind: Kind,
    pub(crate) is_compressed: bool,
    /// Whether it is yielded piece by piece.
    pub(crate) in_pieces: bool,
    /// Whether the last step of decompression has written all that its input gives.
    pub(crate) is_drained: bool,
    /// How many of the bytes that end a compressed message were decompressed.
    pub(crate) tail: u8,
    pub(crate) empty_frames: u32,
    /// Bytes of the message so far, after decompression.
    pub(crate) written: u64,
    /// Bytes that came compressed.
    pub(crate) read: u64,
    /// Its bytes stay in the input of the connection, since one frame without compression has them all. The partial has
    /// nothing but the deadline then.
    pub(crate) is_in_input: bool,
    /// By when the peer has to complete the message, or to have sent enough of it since `counted`. `None`: it has no
    /// deadline yet.
    pub(crate) due: Option<Instant>,
    /// Payload bytes that the peer had sent when the present period began.
    pub(crate) counted: u64,
    /// Bytes that were not yielded.
    assembled: Input,
}

impl PartialMessage {
    pub(crate) fn new(kind: Kind, is_compressed: bool) -> Self {
        Self {
            kind,
            is_compressed,
            in_pieces: false,
            is_drained: true,
            tail: 0,
            empty_frames: 0,
            written: 0,
            read: 0,
            is_in_input: false,
            due: None,
            counted: 0,
            assembled: Input::new(),
        }
    }

    /// The deadline of a message whose bytes stay in the input.
    pub(crate) fn in_input(kind: Kind) -> Self {
        Self { is_in_input: true, ..Self::new(kind, false) }
    }

    /// Bytes of memory that it keeps, as far as the ledger of the loop has them.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.assembled.memory_bytes()
    }

    /// Appends bytes, in memory of their own: none of them may pin the scratch of the loop.
    pub(crate) fn push(&mut self, bytes: Slice, pool: &Pool) {
        self.assembled.append(bytes, pool);
        self.assembled.compact(pool);
    }

    pub(crate) fn has_bytes(&self) -> bool {
        !self.assembled.is_empty()
    }

    /// Takes the bytes that were not yielded.
    pub(crate) fn take(&mut self) -> Slice {
        self.assembled.take_all()
    }
}
