//! `Backplane` and `BackplaneRoom`: the seam between rooms and a broker that several processes share.
//!
//! A [`Room`](crate::Room) of [`Rooms`](crate::Rooms) with a backplane gives it each message instead of sending it to its
//! group. The backplane returns the messages of all nodes, those of this one too, in the order of the broker, and the room
//! sends these to its members. So members of all nodes receive the same order.
//!
//! Locks: a room calls its backplane while its own state is locked, so a backplane must not call a room from these methods.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use super::RoomLimits;

/// The place of a message in an ordered room: an offset that grows by one with each message, in an epoch. The epoch changes
/// when the broker has lost the room's data.
///
/// Its text, `EPOCH-OFFSET`, is kept by clients and returned: the ID of a server-sent event, for example.
///
/// ```
/// use tidegate::Position;
///
/// let position: Position = "00000000000019c4-7".parse()?;
/// assert_eq!((position.epoch, position.offset), (0x19c4, 7));
/// assert_eq!(position.to_string(), "00000000000019c4-7");
/// # Ok::<(), tidegate::engine::NoPosition>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The number of the epoch.
    pub epoch: u64,
    /// The number of the message in this epoch; the first one is 1.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.offset)
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let (epoch, offset) = text.split_once('-').ok_or(NoPosition)?;
        let are_digits = |part: &str, radix| !part.is_empty() && part.chars().all(|digit| digit.is_digit(radix));
        if epoch.len() != EPOCH_DIGITS || !are_digits(epoch, 16) || !are_digits(offset, 10) {
            return Err(NoPosition);
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| NoPosition)?;
        Ok(Self { epoch, offset: offset.parse().map_err(|_| NoPosition)? })
    }
}

/// A text is no [`Position`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPosition;

impl fmt::Display for NoPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a position: 16 hexadecimal digits, a hyphen and an offset")
    }
}

impl std::error::Error for NoPosition {}

/// The number of a running process among the nodes of a backplane: 128 random bits, new with each start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A message of a room between its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomMessage {
    /// Its bytes.
    pub bytes: Bytes,
    /// The kind of the bytes.
    pub form: MessageForm,
    /// It is not part of the history, has no position, and is delivered at most once.
    pub is_announcement: bool,
}

/// The kind of bytes of a [`RoomMessage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageForm {
    /// Bytes that the application has given to [`Room::publish`](crate::Room::publish). Each node encodes them.
    Plain,
    /// The bytes of an [`Encoded`](tidegate_codec::Encoded) message.
    Encoded,
    /// The members are closed: a [`Kick`] as bytes. The node that has published it does not get it back.
    Kick,
}

/// Why the members of a room are closed, on all nodes: [`Room::kick`](crate::Room::kick).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kick<'a> {
    /// The code, such as one of a WebSocket's close frame (RFC 6455 §7.4), which the rooms' encoding writes.
    pub code: u16,
    /// A text of at most 123 bytes, as a close frame has; a longer one is cut.
    pub reason: &'a str,
}

impl<'a> Kick<'a> {
    /// The code and the reason as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        [&self.code.to_be_bytes(), self.cut().reason.as_bytes()].concat().into()
    }

    /// The code and the reason of bytes; `None` if they are none.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (code, reason) = bytes.split_first_chunk::<2>()?;
        let reason = std::str::from_utf8(reason).ok()?;
        Some(Self { code: u16::from_be_bytes(*code), reason }.cut())
    }

    /// With a reason that fits into a close frame.
    pub(super) fn cut(self) -> Self {
        let mut end = self.reason.len().min(KICK_REASON_BYTES_MAX);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        Self { reason: self.reason.get(..end).unwrap_or_default(), ..self }
    }
}

/// A message of a room, with its position if the room is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomDelivery {
    /// The position; none for an announcement, and in a room without history.
    pub position: Option<Position>,
    /// The node that has published it.
    pub origin: NodeId,
    /// The message.
    pub message: RoomMessage,
}

/// The members of a room on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePresence {
    /// How many.
    pub count: usize,
    /// Descriptions of them; the first ones if there are more than the limit of the backplane.
    pub names: Vec<Bytes>,
}

/// A broker's connection that rooms share. `tidegate::backplane::Backplane` is one.
pub trait Backplane: Send + Sync + 'static {
    /// The first member of this node has entered a room: its messages are wanted.
    fn attach(&self, name: &Arc<str>, limits: &RoomLimits, room: Arc<dyn BackplaneRoom>);

    /// The last member of this node has left the room.
    fn detach(&self, name: &Arc<str>);

    /// Members of this node have entered or left.
    fn presence_changed(&self, name: &Arc<str>);

    /// Publishes a message to the members of all nodes.
    ///
    /// # Errors
    /// [`BackplaneFull`] if as many messages wait for the broker as may.
    fn publish(&self, name: &Arc<str>, limits: &RoomLimits, message: RoomMessage) -> Result<(), BackplaneFull>;
}

/// As many messages wait for the broker as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackplaneFull;

/// A room as its backplane sees it. One thread calls these methods, in the order of the broker's messages.
pub trait BackplaneRoom: Send + Sync {
    /// The subscription is confirmed, and the history is read. `messages` is the history, oldest first.
    fn opened(&self, position: Option<Position>, messages: Vec<RoomDelivery>);

    /// A message. Returns whether all loops with members took it.
    fn deliver(&self, delivery: RoomDelivery) -> bool;

    /// Messages are lost before this point; the next one has the position after this one.
    fn gap(&self, position: Option<Position>);

    /// The connection to the broker is lost (`false`), or the room receives messages again.
    fn connected(&self, is_connected: bool);

    /// The members of this node, with at most so many names.
    fn presence(&self, names_max: usize) -> NodePresence;

    /// The members of another node have changed. `None`: it has no members any more.
    fn node_presence(&self, node: NodeId, presence: Option<NodePresence>);

    /// The subscription ends, unless the room has members again: then this returns `false`.
    fn try_close(&self) -> bool;
}

/// An event of a room with its [encoding](crate::Rooms::encoding).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoomEvent<'a> {
    /// A message that was [published](crate::Room::publish).
    Message {
        /// Its bytes.
        bytes: &'a Bytes,
        /// Its position, if it is part of the history.
        position: Option<Position>,
    },
    /// Messages before this point are lost, or, for a newcomer that [returns](crate::Room::enter_after), cannot be
    /// recovered: the application reads its state again.
    Gap {
        /// The position after which messages follow.
        position: Option<Position>,
    },
    /// The connection to the broker is lost. Messages of other nodes, and of this one, are late or lost.
    Down,
    /// The room receives messages again.
    Up,
    /// The members are [kicked](crate::Room::kick): the result is the last message before their connections close.
    Kicked(Kick<'a>),
}

/// A description of a member that nodes send to each other.
///
/// ```
/// use tidegate::Bytes;
/// use tidegate::engine::MemberName;
///
/// #[derive(Clone)]
/// struct Pilot(u32);
///
/// impl MemberName for Pilot {
///     fn to_bytes(&self) -> Bytes {
///         Bytes::copy_from_slice(&self.0.to_be_bytes())
///     }
///
///     fn from_bytes(bytes: &[u8]) -> Option<Self> {
///         Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
///     }
/// }
/// ```
pub trait MemberName: Sized + Send + Sync + 'static {
    /// The description as bytes.
    fn to_bytes(&self) -> Bytes;

    /// The description from bytes of another node. `None` if they are none: the member is not listed.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl MemberName for () {
    fn to_bytes(&self) -> Bytes {
        Bytes::new()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl MemberName for String {
    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(std::str::from_utf8(bytes).ok()?.to_owned())
    }
}

impl MemberName for Arc<str> {
    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(Into::into)
    }
}

/// The digits of an epoch in the text of a position.
const EPOCH_DIGITS: usize = 16;
/// A control frame of a WebSocket has 125 bytes, two of which are the code (RFC 6455 §5.5).
const KICK_REASON_BYTES_MAX: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kick_comes_back_and_its_reason_is_cut_at_a_character() {
        let kick = Kick { code: 4001, reason: "signed out" };
        assert_eq!(Kick::from_bytes(&kick.to_bytes()), Some(kick));
        let long = "ü".repeat(100);
        let bytes = Kick { code: 1008, reason: &long }.to_bytes();
        assert_eq!(Kick::from_bytes(&bytes).map(|kick| kick.reason.len()), Some(122));
        for bytes in [&b""[..], b"\x0f", b"\x0f\xa1\xff"] {
            assert_eq!(Kick::from_bytes(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
