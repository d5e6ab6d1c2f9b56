//! The layout of the connection ids that this side chooses: 8 bytes.
//!
//! The first byte is random. The second one has the number of the loop in its low seven bits and the generation of the
//! process in the highest, XORed with the first byte, so that two ids of a connection do not show that they have the same.
//! The rest is random. So a program that sees a datagram knows the loop and the process that it is for (RFC 9000 §5.1).

use tidegate_sys::Steering;

/// Loops and generations that an id can tell apart.
const LOOP_BITS: u8 = 0x7f;

/// Which endpoint chose a connection id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number of the loop, modulo 128.
    pub(crate) loop_number: u8,
    /// The generation of the process, modulo 2.
    pub(crate) generation: u8,
}

impl Origin {
    pub(crate) fn new(loop_number: usize, generation: u8) -> Self {
        Self { loop_number: loop_number as u8 & LOOP_BITS, generation: generation & 1 }
    }

    /// Marks an id of random bytes.
    pub(crate) fn mark(self, id: &mut [u8]) {
        if let [first, second, ..] = id {
            *second = (self.generation << 7 | self.loop_number) ^ *first;
        }
    }

    /// The endpoint that chose an id.
    pub(crate) fn of(id: &[u8]) -> Option<Self> {
        let [first, second, ..] = id else { return None };
        let byte = first ^ second;
        Some(Self { loop_number: byte & LOOP_BITS, generation: byte >> 7 })
    }
}

/// Where datagrams have the number of the loop: those with a short header (RFC 9000 §17.3), whose connection id begins
/// behind the first byte. The id in a long header may be one that the client chose.
pub(crate) const STEERING: Steering =
    Steering { only_if: Some((0, LONG_HEADER, 0)), xor_offset: Some(1), offset: 2, mask: LOOP_BITS };

/// The highest bit of a datagram (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;

/// The length of the ids that this side chooses, in bytes.
pub(crate) const LENGTH: usize = 8;

#[cfg(test)]
mod tests {
    use super::{Origin, STEERING};

    #[test]
    fn a_short_header_has_the_number_of_the_loop_where_the_rule_reads_it() {
        for number in [0, 3, 127] {
            let mut datagram = [0x40, 0x5a, 0, 1, 2, 3, 4, 5, 6];
            Origin::new(number, 1).mark(&mut datagram[1..]);
            assert_eq!(STEERING.number(&datagram), Some(number));
            datagram[0] = 0xc0;
            assert_eq!(STEERING.number(&datagram), None);
        }
    }

    #[test]
    fn an_id_says_which_endpoint_chose_it() {
        for first in 0..=u8::MAX {
            for origin in [Origin::new(0, 0), Origin::new(127, 1), Origin::new(5, 1)] {
                let mut id = [first, 0, 1, 2, 3, 4, 5, 6];
                origin.mark(&mut id);
                assert_eq!(Origin::of(&id), Some(origin));
                assert_eq!((id[0], id[2]), (first, 1));
            }
        }
        assert_eq!(Origin::of(&[1]), None);
    }
}
