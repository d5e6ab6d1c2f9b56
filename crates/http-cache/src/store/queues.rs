//! `Queues`: which key is evicted next, by S3-FIFO (Yang et al., SOSP 2023).
//!
//! A new key enters a small queue, of a tenth of the bytes. It moves to the main queue if it was used again before it came to
//! the end of the small one, and is evicted otherwise: a scan, or a flood of invented keys, passes through the small queue
//! and leaves the main one alone. A key that was evicted lately enters the main queue at once.

use std::collections::VecDeque;

/// The place of a key in the table, and its generation there: a token of a key that is gone is skipped.
pub(super) type Token = (usize, u32);

/// The order of eviction.
#[derive(Default)]
pub(super) struct Queues {
    small: VecDeque<Token>,
    main: VecDeque<Token>,
    /// Hashes of keys that were evicted lately.
    ghosts: VecDeque<u64>,
}

/// The queue of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Small,
    Main,
}

impl Queues {
    /// The queue for a new key.
    pub(super) fn enter(&mut self, hash: u64, token: Token) -> Queue {
        match self.ghosts.iter().position(|ghost| *ghost == hash) {
            Some(at) => {
                self.ghosts.swap_remove_back(at);
                self.main.push_back(token);
                Queue::Main
            }
            None => {
                self.small.push_back(token);
                Queue::Small
            }
        }
    }

    /// The oldest key of a queue.
    pub(super) fn pop(&mut self, queue: Queue) -> Option<Token> {
        match queue {
            Queue::Small => self.small.pop_front(),
            Queue::Main => self.main.pop_front(),
        }
    }

    /// A key that has been used stays.
    pub(super) fn keep(&mut self, token: Token) {
        self.main.push_back(token);
    }

    /// A key was evicted from the small queue.
    pub(super) fn note_evicted(&mut self, hash: u64) {
        if self.ghosts.len() >= GHOSTS_MAX {
            self.ghosts.pop_front();
        }
        self.ghosts.push_back(hash);
    }

    /// Drops the tokens of keys that are gone, once they are most of all.
    pub(super) fn compact(&mut self, live: usize, is_live: impl Fn(&Token) -> bool) {
        if self.small.len() + self.main.len() > 2 * live + 64 {
            self.small.retain(&is_live);
            self.main.retain(&is_live);
        }
    }
}

/// Hashes that are remembered: a search through them is short.
const GHOSTS_MAX: usize = 256;
