//! `LongReply`: the reply or push that arrives in pieces at present.
//!
//! A reply that its caller reads in pieces passes through. All others are joined, up to the limit of the client.

use crate::client_codec::ReplyPiece;
use crate::reply_writer::{ReplyWriter, begins_push};

/// The state of a connection between the pieces of one reply.
#[derive(Debug, Default)]
pub(crate) enum LongReply {
    /// No reply is under way.
    #[default]
    None,
    /// The reader of the first command in flight gets the pieces.
    Passed {
        /// The connection does not read until the reader has taken some.
        is_paused: bool,
    },
    /// The pieces are joined.
    Joined { wire: Vec<u8>, writer: ReplyWriter, is_push: bool },
}

impl LongReply {
    /// A reply or push begins with this piece. `is_read` if the first command in flight has a reader of pieces.
    pub(crate) fn begin(piece: &ReplyPiece, is_read: bool) -> Self {
        let is_push = begins_push(piece);
        if is_read && !is_push {
            return Self::Passed { is_paused: false };
        }
        Self::Joined { wire: Vec::new(), writer: ReplyWriter::default(), is_push }
    }

    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) const fn is_paused(&self) -> bool {
        matches!(self, Self::Passed { is_paused: true })
    }
}
