//! Accepting: a poll that stays armed, and calls.
//!
//! A request to accept that stays armed was tried. It brings everybody who waits, wanted or not; it takes a descriptor
//! in advance, so that it fails before anybody has come; and the kernel wakes only one of several rings that wait at a
//! listener, so that whoever came when that one was about to go, waited for ever. The call costs nothing more: it tells
//! who is at the other end, which otherwise takes a call as well.

use super::Machine;
use super::kernel::{Event, Kernel};
use super::table::Flags;
use crate::driver::{Completion, Token};
use crate::socket;

impl<K: Kernel> Machine<K> {
    /// The poll of a listener has said something.
    pub(super) fn acceptable(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.line_up(token);
        }
        if event.result < 0 && event.came_to_nothing() {
            return None;
        }
        // Whatever it is, the call will tell.
        self.sockets.get_mut(token)?.flags.set(Flags::READABLE, true);
        self.poll_socket_later(token);
        None
    }

    /// Accepts the next connection, and has the one after that accepted in its turn.
    pub(super) fn accept(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if !socket.flags.contains(Flags::RECEIVING.union(Flags::READABLE)) || socket.flags.contains(Flags::CLOSING) {
            return None;
        }
        let accepted = socket::accept(&socket.descriptor).transpose();
        match &accepted {
            None => socket.flags.set(Flags::READABLE, false),
            // To try again at once would fail again, for as long as it lasts.
            Some(Err(_)) => {}
            Some(Ok(_)) => self.poll_socket_later(token),
        }
        accepted.map(Completion::Accepted)
    }
}
