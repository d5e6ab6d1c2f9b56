//! `RecvSizer`: how many bytes one receive call of a socket requests; `ReceiveHints`: how many are best, as the loop
//! knows it of some sockets.

use tidegate_buffer::{RECEIVE_BYTES_MAX, ReceiveHint};

use crate::driver::Token;

/// The size of a socket's next receive. The loop has to keep the bytes that a codec does not consume, so the size
/// starts small, grows while receives are full, and shrinks when they are nearly empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecvSizer(u8);

impl RecvSizer {
    /// The number of bytes to request.
    pub(crate) const fn bytes(self) -> usize {
        BYTES_MIN << (self.0 & DOUBLINGS)
    }

    /// Records the length of a receive of at most `requested` bytes.
    pub(crate) fn record_length(&mut self, length: usize, requested: usize) {
        let little = length < self.bytes().min(requested) / 8;
        let mut doublings = self.0 & DOUBLINGS;
        if length == requested {
            doublings = (doublings + 1).min(DOUBLINGS_MAX);
        } else if little && self.0 & LAST_WAS_SMALL != 0 {
            doublings = doublings.saturating_sub(1);
        }
        self.0 = doublings | if little { LAST_WAS_SMALL } else { 0 };
    }
}

/// The hints for the next receives of a few sockets: those that received last. A table of fixed size costs no memory for
/// each socket; if two sockets share a place, the hint of one is lost, and its next receive has the usual size.
#[derive(Debug, Default)]
pub(crate) struct ReceiveHints {
    /// Empty until the first hint comes.
    places: Box<[Option<(Token, ReceiveHint)>]>,
}

impl ReceiveHints {
    /// Keeps a hint for the next receive of a socket.
    pub(crate) fn put(&mut self, token: Token, hint: ReceiveHint) {
        if self.places.is_empty() {
            self.places = vec![None; PLACES].into();
        }
        self.places[token.slot as usize % PLACES] = Some((token, hint));
    }

    /// The hint for the next receive of a socket, if there is one.
    pub(crate) fn take(&mut self, token: Token) -> Option<ReceiveHint> {
        let place = self.places.get_mut(token.slot as usize % PLACES)?;
        place.take_if(|(other, _)| *other == token).map(|(_, hint)| hint)
    }
}

/// The number of places: as many heavy sockets alternate without losing hints.
const PLACES: usize = 256;

/// The size of a socket's first receive: room for a usual request. If a peer sends requests and does not read the
/// responses, the loop has to keep no more than this.
const BYTES_MIN: usize = 2 * 1024;

/// Doublings up to the scratch's size.
const DOUBLINGS_MAX: u8 = 5;

/// The bits that count doublings.
const DOUBLINGS: u8 = 0b111;

/// Set if the last receive was small. The size shrinks after two in a row, since the rest after a full receive is small
/// as well.
const LAST_WAS_SMALL: u8 = 0b1000;

const _: () = assert!(DOUBLINGS_MAX <= DOUBLINGS);
const _: () = assert!(BYTES_MIN << DOUBLINGS_MAX == RECEIVE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_grows_after_a_full_receive_and_shrinks_after_two_small_ones() {
        let mut sizer = RecvSizer::default();
        let mut asked = |length| {
            sizer.record_length(length, sizer.bytes());
            sizer.bytes() / 1024
        };
        assert_eq!([asked(100), asked(2 * 1024), asked(1)], [2, 4, 4]);
        assert_eq!([4, 8, 16, 32, 64].map(|length| asked(length * 1024)), [8, 16, 32, 64, 64]);
        assert_eq!([asked(1), asked(9 * 1024), asked(1), asked(1), asked(1), asked(1)], [64, 64, 64, 32, 16, 8]);
    }

    #[test]
    fn a_receive_that_a_hint_has_shortened_counts_as_full() {
        let mut sizer = RecvSizer::default();
        sizer.record_length(1500, 1500);
        assert_eq!(sizer.bytes(), 4 * 1024);
        sizer.record_length(100, 100);
        sizer.record_length(100, 100);
        assert_eq!(sizer.bytes(), 16 * 1024);
    }

    #[test]
    fn a_hint_serves_one_receive_of_its_socket() {
        let mut hints = ReceiveHints::default();
        let bytes = |hint: Option<ReceiveHint>| hint.map_or(2_048, |hint| hint.receive_bytes(2_048));
        let [one, other] = [0, PLACES as u32].map(|slot| Token { slot, generation: 7 });
        assert_eq!(bytes(hints.take(one)), 2_048);
        hints.put(one, ReceiveHint { missing_bytes: 10, frame_bytes: 1_000, ..ReceiveHint::default() });
        assert_eq!(bytes(hints.take(other)), 2_048, "another socket at the same place");
        assert_eq!([bytes(hints.take(one)), bytes(hints.take(one))], [2_010, 2_048]);
        hints.put(one, ReceiveHint { missing_bytes: 10, ..ReceiveHint::default() });
        hints.put(other, ReceiveHint::default());
        assert_eq!(bytes(hints.take(one)), 2_048, "lost");
        assert_eq!(bytes(hints.take(other)), 2_048, "it knows nothing");
    }
}
