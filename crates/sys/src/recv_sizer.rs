//! `RecvSizer`: how many bytes one receive call of a socket requests.

use tidegate_buffer::RECEIVE_BYTES_MAX;

/// The size of a socket's next receive. The loop has to keep the bytes that a codec does not consume, so the size
/// starts small, grows while receives are full, and shrinks when they are nearly empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecvSizer(u8);

impl RecvSizer {
    /// The number of bytes to request.
    pub(crate) const fn bytes(self) -> usize {
        BYTES_MIN << (self.0 & DOUBLINGS)
    }

    /// Records the length of a receive.
    pub(crate) fn record_length(&mut self, length: usize) {
        let little = length < self.bytes() / 8;
        let mut doublings = self.0 & DOUBLINGS;
        if length == self.bytes() {
            doublings = (doublings + 1).min(DOUBLINGS_MAX);
        } else if little && self.0 & LAST_WAS_SMALL != 0 {
            doublings = doublings.saturating_sub(1);
        }
        self.0 = doublings | if little { LAST_WAS_SMALL } else { 0 };
    }
}

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
            sizer.record_length(length);
            sizer.bytes() / 1024
        };
        assert_eq!([asked(100), asked(2 * 1024), asked(1)], [2, 4, 4]);
        assert_eq!([4, 8, 16, 32, 64].map(|length| asked(length * 1024)), [8, 16, 32, 64, 64]);
        assert_eq!([asked(1), asked(9 * 1024), asked(1), asked(1), asked(1), asked(1)], [64, 64, 64, 32, 16, 8]);
    }
}
