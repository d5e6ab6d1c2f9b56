//! `Choices`: the bytes of a fuzzer as a sequence of decisions.
//!
//! Where possible, one byte is one decision: a fuzzer that changes a byte then changes one thing. When the bytes are
//! used up, every decision is the first choice.

/// The remaining decisions.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether no byte is left.
    pub(crate) const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All remaining bytes.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                *byte
            }
            None => 0,
        }
    }

    /// A number below `bound`, which is at most 256.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// One of `choices`.
    pub(crate) fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    /// A length up to `most`: exact up to 127, then in growing steps.
    pub(crate) fn length(&mut self, most: usize) -> usize {
        let length = match usize::from(self.byte()) {
            short @ 0..128 => short,
            long => (16 + (long & 15)) << ((long >> 4) & 7),
        };
        length.min(most)
    }

    /// At most `most` bytes, unchanged.
    pub(crate) fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(most.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bytes_every_decision_is_the_first_choice() {
        let mut choices = Choices::new(&[7]);
        assert_eq!((choices.below(4), choices.below(4), choices.pick(&["a", "b"])), (3, 0, &"a"));
        assert!(choices.is_over() && choices.length(99) == 0 && choices.rest().is_empty());
    }

    #[test]
    fn lengths_are_exact_while_short_and_bounded_by_the_maximum() {
        assert_eq!(Choices::new(&[127]).length(1000), 127);
        assert_eq!(Choices::new(&[255]).length(10_000), 31 << 7);
        assert_eq!(Choices::new(&[255]).length(1000), 1000);
    }
}
