//! `Envelope`: a message between nodes.
//!
//! | bytes | value |
//! |---|---|
//! | 2 | `TG` |
//! | 1 | the version, 1 |
//! | 1 | bits: 1 announcement, 2 encoded, 4 presence; 8 kick, alone |
//! | 16 | the node that has sent it |
//! | 8 | its number among the messages of that node, in network order |
//! | | the message |

use bytes::{BufMut as _, Bytes, BytesMut};
use tidegate_engine::{Kick, MessageForm, NodeId, RoomMessage};

/// A message with its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) origin: NodeId,
    pub(crate) number: u64,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Message(RoomMessage),
    /// The members of the node, as in `presence_list.rs`.
    Presence(Bytes),
}

/// Why bytes are no envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoEnvelope {
    /// No node has sent them.
    Foreign,
    /// The sender has another version.
    OtherVersion,
}

impl Envelope {
    pub(crate) fn is_kick(&self) -> bool {
        matches!(&self.content, Content::Message(message) if message.form == MessageForm::Kick)
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let (flags, content) = match &self.content {
            Content::Message(message) if message.form == MessageForm::Kick => (KICK, &message.bytes),
            Content::Message(message) => {
                let encoded = if message.form == MessageForm::Encoded { ENCODED } else { 0 };
                (encoded | if message.is_announcement { ANNOUNCEMENT } else { 0 }, &message.bytes)
            }
            Content::Presence(list) => (PRESENCE, list),
        };
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + content.len());
        bytes.put_slice(MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(flags);
        bytes.put_slice(&self.origin.0);
        bytes.put_u64(self.number);
        bytes.put_slice(content);
        bytes.freeze()
    }

    pub(crate) fn parse(bytes: &Bytes) -> Result<Self, NoEnvelope> {
        let Some((magic, rest)) = bytes.split_first_chunk::<2>() else { return Err(NoEnvelope::Foreign) };
        let [version, flags, ..] = rest else { return Err(NoEnvelope::Foreign) };
        if magic != MAGIC {
            return Err(NoEnvelope::Foreign);
        }
        if *version != VERSION {
            return Err(NoEnvelope::OtherVersion);
        }
        let is_known = matches!(*flags, 0..=3 | PRESENCE | KICK);
        let ids = &rest[2..];
        let (Some((origin, ids)), true) = (ids.split_first_chunk::<16>(), is_known) else {
            return Err(NoEnvelope::Foreign);
        };
        let Some((number, _)) = ids.split_first_chunk::<8>() else { return Err(NoEnvelope::Foreign) };
        let content = bytes.slice(HEAD_BYTES..);
        let content = if *flags == PRESENCE {
            Content::Presence(content)
        } else if *flags == KICK {
            Kick::from_bytes(&content).ok_or(NoEnvelope::Foreign)?;
            Content::Message(RoomMessage { bytes: content, form: MessageForm::Kick, is_announcement: true })
        } else {
            let form = if flags & ENCODED > 0 { MessageForm::Encoded } else { MessageForm::Plain };
            Content::Message(RoomMessage { bytes: content, form, is_announcement: flags & ANNOUNCEMENT > 0 })
        };
        Ok(Self { origin: NodeId(*origin), number: u64::from_be_bytes(*number), content })
    }
}

const MAGIC: &[u8; 2] = b"TG";
const VERSION: u8 = 1;
const ANNOUNCEMENT: u8 = 1;
const ENCODED: u8 = 2;
const PRESENCE: u8 = 4;
const KICK: u8 = 8;
/// The bytes before the message.
pub(crate) const HEAD_BYTES: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_come_back_and_other_bytes_are_told_apart() {
        let message = |form, is_announcement| {
            Content::Message(RoomMessage { bytes: Bytes::from("high water"), form, is_announcement })
        };
        let contents = [
            message(MessageForm::Plain, false),
            message(MessageForm::Encoded, true),
            Content::Presence(Bytes::from("list")),
            Content::Message(RoomMessage {
                bytes: Kick { code: 4001, reason: "out" }.to_bytes(),
                form: MessageForm::Kick,
                is_announcement: true,
            }),
        ];
        for content in contents {
            let envelope = Envelope { origin: NodeId([7; 16]), number: 1 << 60, content };
            let bytes = envelope.to_bytes();
            assert_eq!(Envelope::parse(&bytes), Ok(envelope));
            for length in 0..HEAD_BYTES {
                assert!(Envelope::parse(&bytes.slice(..length)).is_err(), "{length}");
            }
            let with = |at: usize, value| {
                let mut bytes = bytes.to_vec();
                bytes[at] = value;
                Envelope::parse(&bytes.into())
            };
            assert_eq!(with(0, b'X'), Err(NoEnvelope::Foreign));
            assert_eq!(with(2, 2), Err(NoEnvelope::OtherVersion));
            assert_eq!(with(3, 16), Err(NoEnvelope::Foreign));
        }
    }
}
