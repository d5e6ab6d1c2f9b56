//! `PipelinedMethods`: the requests that a server has yielded behind the one in progress, in one word.
//!
//! Such requests are alike (see [`Server::read_ahead`](crate::Server::read_ahead)): of each, the codec needs to know
//! nothing but whether it is a HEAD.

/// The requests behind the one in progress, the oldest in the lowest bit: set if it is a HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PipelinedMethods(pub(crate) u64);

impl PipelinedMethods {
    pub(crate) const fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT & COUNT_BITS) as usize
    }

    pub(crate) const fn is_full(self) -> bool {
        self.count() == CEILING
    }

    /// Whether the codec may yield one more.
    pub(crate) const fn is_allowed(self) -> bool {
        self.0 & ALLOWED != 0
    }

    pub(crate) const fn allow(&mut self, allow: bool) {
        self.0 = if allow { self.0 | ALLOWED } else { self.0 & !ALLOWED };
    }

    /// Whether more than these requests has arrived.
    pub(crate) const fn has_more_input(self) -> bool {
        self.0 & MORE_INPUT != 0
    }

    pub(crate) const fn set_more_input(&mut self, more: bool) {
        self.0 = if more { self.0 | MORE_INPUT } else { self.0 & !MORE_INPUT };
    }

    /// Adds a request, of which there must be room.
    pub(crate) fn push(&mut self, is_head: bool) {
        debug_assert!(!self.is_full(), "the caller has looked");
        self.0 |= u64::from(is_head) << self.count();
        self.0 += ONE;
    }

    /// Removes the oldest request: whether it is a HEAD.
    pub(crate) fn pop(&mut self) -> Option<bool> {
        if self.count() == 0 {
            return None;
        }
        let heads = self.0 & HEADS;
        self.0 = ((self.0 & !HEADS) - ONE) | (heads >> 1);
        Some(heads & 1 != 0)
    }
}

/// The most requests that fit.
const CEILING: usize = 32;
const HEADS: u64 = (1 << CEILING) - 1;
const COUNT_SHIFT: u32 = CEILING as u32;
const COUNT_BITS: u64 = 63;
const ONE: u64 = 1 << COUNT_SHIFT;
const ALLOWED: u64 = 1 << 62;
const MORE_INPUT: u64 = 1 << 63;

const _: () = assert!(CEILING as u64 <= COUNT_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_in_the_order_in_which_they_came() {
        let mut ahead = PipelinedMethods::default();
        assert_eq!(ahead.pop(), None);
        let is_head = |number: usize| matches!(number % 7, 1 | 2 | 5);
        ahead.set_more_input(true);
        (0..CEILING).for_each(|number| ahead.push(is_head(number)));
        assert!(ahead.is_full() && ahead.has_more_input() && !ahead.is_allowed());
        ahead.allow(true);
        for number in 0..CEILING {
            assert_eq!(ahead.pop(), Some(is_head(number)));
            assert_eq!(ahead.count(), CEILING - 1 - number);
            assert!(ahead.has_more_input() && ahead.is_allowed());
        }
        ahead.allow(false);
        ahead.set_more_input(false);
        assert_eq!(ahead, PipelinedMethods::default());
    }
}
