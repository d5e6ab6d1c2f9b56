//! Accepting: a poll that stays armed, and calls.
//!
//! A multishot accept request was tried and rejected, for three reasons. It accepts every connection in the backlog,
//! wanted or not. It allocates a descriptor in advance, so it fails before any connection has arrived. And the kernel
//! wakes only one of several rings that wait on a listener, so a connection queued on a ring that was closing was never
//! accepted. The call costs nothing more: it returns the address of the peer, which otherwise takes a call as well.

use super::UringDriver;
use super::kernel::{Event, Kernel};
use super::table::Flags;
use crate::driver::{Completion, Token};
use crate::socket;

impl<K: Kernel> UringDriver<K> {
    /// Handles an event of a listener's poll.
    pub(super) fn acceptable(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.enqueue(token);
        }
        if event.result < 0 && event.was_cancelled() {
            return None;
        }
        // Whatever the event is, the accept call returns the result.
        self.sockets.get_mut(token)?.flags.set(Flags::READABLE, true);
        self.poll_socket_later(token);
        None
    }

    /// Accepts the next connection, and queues the listener again for the one after it.
    pub(super) fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if !socket.flags.contains(Flags::RECEIVING.union(Flags::READABLE)) || socket.flags.contains(Flags::CLOSING) {
            return None;
        }
        let accepted = socket::accept(&socket.descriptor).transpose();
        match &accepted {
            None => socket.flags.set(Flags::READABLE, false),
            // An immediate retry would fail again, for as long as the cause lasts.
            Some(Err(_)) => {}
            Some(Ok(_)) => self.poll_socket_later(token),
        }
        accepted.map(Completion::Accepted)
    }
}
