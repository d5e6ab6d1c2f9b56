//! `Trace`: a hash of everything that drivers were told, in order.

use tidegate_sys::{Completion, Token};

/// Two runs with the same hash went the same way; which bytes there were is not looked at, only how many.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    hash: u64,
}

impl Trace {
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes note of what a driver is told, and when.
    pub(super) fn note(&mut self, nanos: u128, driver: usize, token: Token, completion: &Completion) {
        let (kind, count) = match completion {
            Completion::Accepted(Ok(_)) => (1, 1),
            Completion::Accepted(Err(_)) => (1, 0),
            Completion::Connected(result) => (2, u64::from(result.is_ok())),
            Completion::Received(bytes) => (3, bytes.len() as u64),
            Completion::Ended => (4, 0),
            Completion::Sent(Ok(count)) => (5, *count as u64),
            Completion::Sent(Err(_)) => (6, 0),
            Completion::Failed(_) => (7, 0),
            Completion::Closed => (8, 0),
            Completion::Woken => (9, 0),
        };
        let named = u64::from(token.generation) << 32 | u64::from(token.slot);
        for word in [nanos as u64, driver as u64, named, kind, count] {
            self.mix(word);
        }
    }

    const fn mix(&mut self, word: u64) {
        // Each step can be undone, so no difference gets lost on the way.
        self.hash = (self.hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.hash ^= self.hash >> 29;
    }
}
