//! `Preamble`: the first bytes of a stream, which name the session of WebTransport that it belongs to, if it does.

use tidegate_codec::Direction;

use crate::varint;

/// The bytes of a stream so far, of which a type and the number of a session may be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preamble {
    bytes: [u8; 16],
    length: u8,
    signal: u64,
}

/// The kind of a stream, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// There are too few.
    Unknown,
    /// It belongs to this session.
    OfSession(u64),
    /// It is none of WebTransport.
    Other,
}

impl Preamble {
    pub(crate) fn new(direction: Direction) -> Self {
        Self { bytes: [0; 16], length: 0, signal: signal(direction) }
    }

    /// Takes the next byte. Two integers are complete with sixteen bytes.
    pub(crate) fn push(&mut self, byte: u8) -> StreamKind {
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
            self.length += 1;
        }
        let bytes = self.bytes();
        match varint::read(bytes) {
            None => StreamKind::Unknown,
            Some((kind, _)) if kind != self.signal => StreamKind::Other,
            Some((_, first)) => match varint::read(&bytes[first..]) {
                None => StreamKind::Unknown,
                Some((session, _)) => StreamKind::OfSession(session),
            },
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(self.bytes.len())]
    }
}

/// The first bytes of a stream of this side.
pub(crate) fn write(direction: Direction, session: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10);
    varint::write(signal(direction), &mut bytes);
    varint::write(session, &mut bytes);
    bytes
}

fn signal(direction: Direction) -> u64 {
    match direction {
        Direction::Bidirectional => 0x41,
        Direction::Unidirectional => 0x54,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(direction: Direction, wire: &[u8]) -> (StreamKind, usize) {
        let mut preamble = Preamble::new(direction);
        for (place, byte) in wire.iter().enumerate() {
            match preamble.push(*byte) {
                StreamKind::Unknown => assert_eq!(preamble.bytes(), &wire[..=place]),
                kind => return (kind, place + 1),
            }
        }
        (StreamKind::Unknown, wire.len())
    }

    #[test]
    fn a_preamble_is_read_as_written_and_no_byte_behind_it() {
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            for session in [0, 4, 400, 4_000_000, varint::MAX - 3] {
                let mut wire = write(direction, session);
                let length = wire.len();
                wire.extend_from_slice(b"tide");
                assert_eq!(read(direction, &wire), (StreamKind::OfSession(session), length));
                for end in 0..length {
                    assert_eq!(read(direction, &wire[..end]).0, StreamKind::Unknown);
                }
            }
        }
    }

    #[test]
    fn another_type_is_known_with_its_last_byte() {
        assert_eq!(read(Direction::Bidirectional, &[1, 7, 7]), (StreamKind::Other, 1), "HEADERS");
        assert_eq!(read(Direction::Unidirectional, &[0, 4]), (StreamKind::Other, 1), "a control stream");
        assert_eq!(read(Direction::Unidirectional, &[0x40, 0x41, 0]), (StreamKind::Other, 2), "of the other direction");
        assert_eq!(read(Direction::Bidirectional, &[0xc0, 0, 0, 0, 0, 0, 0, 0x41, 4]), (StreamKind::OfSession(4), 9));
    }
}
