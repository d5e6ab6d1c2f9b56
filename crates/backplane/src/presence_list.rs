//! The members of a room on one node as bytes: a number that grows with each list, the count, and some names.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tidegate_engine::NodePresence;

/// A list with its number: an older list does not replace a newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresenceList {
    pub(crate) number: u64,
    pub(crate) members: NodePresence,
}

impl PresenceList {
    /// The list as bytes, without the names for which there is no room.
    pub(crate) fn to_bytes(&self, bytes_max: usize) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64(self.number);
        bytes.put_u64(self.members.count as u64);
        for name in &self.members.names {
            let Ok(length) = u16::try_from(name.len()) else { continue };
            if bytes.len() + 2 + name.len() > bytes_max + HEAD_BYTES {
                break;
            }
            bytes.put_u16(length);
            bytes.put_slice(name);
        }
        bytes.freeze()
    }

    /// `None` if the bytes are no list.
    pub(crate) fn parse(mut bytes: Bytes, names_max: usize) -> Option<Self> {
        if bytes.len() < HEAD_BYTES {
            return None;
        }
        let (number, count) = (bytes.get_u64(), bytes.get_u64());
        let mut names = Vec::new();
        while bytes.len() >= 2 {
            let length = usize::from(bytes.get_u16());
            if length > bytes.len() {
                return None;
            }
            let name = bytes.split_to(length);
            if names.len() < names_max {
                // A copy: the name outlives the message.
                names.push(Bytes::copy_from_slice(&name));
            }
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(COUNT_MAX);
        bytes.is_empty().then_some(Self { number, members: NodePresence { count, names } })
    }
}

/// The number and the count: a list without names.
pub(crate) const HEAD_BYTES: usize = 16;
/// More members on one node are no true count.
const COUNT_MAX: usize = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_and_are_bounded() {
        let names: Vec<Bytes> = ["gull", "", "tern"].map(Bytes::from).to_vec();
        let list = PresenceList { number: 7, members: NodePresence { count: 300, names } };
        let bytes = list.to_bytes(100);
        assert_eq!(PresenceList::parse(bytes.clone(), 10), Some(list.clone()));
        assert_eq!(PresenceList::parse(bytes.clone(), 1).map(|list| list.members.names.len()), Some(1));
        assert_eq!(PresenceList::parse(list.to_bytes(8), 10).map(|list| list.members.names.len()), Some(2));
        let whole = [0, 6, 8].map(|names| HEAD_BYTES + names);
        for length in 0..bytes.len() {
            assert_eq!(PresenceList::parse(bytes.slice(..length), 10).is_some(), whole.contains(&length), "{length}");
        }
    }
}
