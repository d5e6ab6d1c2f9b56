//! `RecvSizer`: how much a socket is asked for by one call.

use tidegate_buffer::RECEIVE_BYTES_MAX;

/// What a codec does not use up has to be kept, so a socket starts small, grows while receives are full and shrinks
/// when they are nearly empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecvSizer(u8);

impl RecvSizer {
    /// Bytes to ask for.
    pub(crate) const fn bytes(self) -> usize {
        BYTES_MIN << (self.0 & DOUBLINGS)
    }

    /// Takes note of what came.
    pub(crate) fn learn(&mut self, length: usize) {
        let little = length < self.bytes() / 8;
        let mut doublings = self.0 & DOUBLINGS;
        if length == self.bytes() {
            doublings = (doublings + 1).min(DOUBLINGS_MAX);
        } else if little && self.0 & HAD_LITTLE != 0 {
            doublings = doublings.saturating_sub(1);
        }
        self.0 = doublings | if little { HAD_LITTLE } else { 0 };
    }
}

/// The first receive of a socket asks for this much: room for a usual request. Of a peer that sends more than it reads
/// the answers of, no more than this has to be kept.
const BYTES_MIN: usize = 2 * 1024;

/// Doublings up to the scratch's size.
const DOUBLINGS_MAX: u8 = 5;

/// The bits that count doublings.
const DOUBLINGS: u8 = 0b111;

/// The last receive brought little. Twice in a row: the rest behind a full receive is small, and says nothing.
const HAD_LITTLE: u8 = 0b1000;

const _: () = assert!(DOUBLINGS_MAX <= DOUBLINGS);
const _: () = assert!(BYTES_MIN << DOUBLINGS_MAX == RECEIVE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_what_comes_and_shrinks_when_little_came_twice() {
        let mut sizer = RecvSizer::default();
        let mut asked = |length| {
            sizer.learn(length);
            sizer.bytes() / 1024
        };
        assert_eq!([asked(100), asked(2 * 1024), asked(1)], [2, 4, 4]);
        assert_eq!([4, 8, 16, 32, 64].map(|length| asked(length * 1024)), [8, 16, 32, 64, 64]);
        assert_eq!([asked(1), asked(9 * 1024), asked(1), asked(1), asked(1), asked(1)], [64, 64, 64, 32, 16, 8]);
    }
}
