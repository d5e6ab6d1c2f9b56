//! `Slices`: long work on the bytes of a body, a slice of it at a time.
//!
//! Compressing, decompressing and parsing take a hundred times as long as passing bytes on. So their code waits for a turn
//! of the loop before each slice, and other connections are served in between (`task/long_work.rs` in the engine).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tidegate_engine::task::LongWork;

/// Divides the bytes of a body into slices, and waits for a turn before each of them.
#[derive(Debug)]
pub struct Slices {
    slice_bytes: usize,
    /// The nanoseconds left of the slice.
    left: usize,
    turn: LongWork,
}

impl Slices {
    /// Slices of so many bytes.
    #[must_use]
    pub fn new(slice_bytes: usize) -> Self {
        Self { slice_bytes, left: 0, turn: LongWork::default() }
    }

    /// Waits for the turn to do the next slice unless something is left of this one. Returns how many bytes are left.
    pub fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if self.left == 0 {
            ready!(Pin::new(&mut self.turn).poll(cx));
            self.left = self.slice_bytes;
        }
        Poll::Ready(self.left)
    }

    /// So many bytes are done.
    pub fn take(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// The work that follows needs a turn of its own.
    pub fn end(&mut self) {
        self.left = 0;
    }
}

/// A body of more bytes than this is parsed in a turn of its own.
pub const LONG_BODY_BYTES: usize = 64 * 1024;

/// How long parsing a byte takes, in nanoseconds: JSON to a type of the application.
pub const PARSING_NANOS: u64 = 10;
