//! Receiving into the loop's scratch.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tidegate_buffer::RECEIVE_BYTES_MAX;
use tidegate_buffer::planted::{self, Bug};

use super::table::Flags;
use super::{Readiness, line_up};
use crate::driver::{Completion, Token};

impl Readiness {
    /// Receives once. The size adapts: what a codec does not use up has to be kept, so a socket starts small, grows
    /// while receives are full and shrinks when they are nearly empty.
    pub(super) fn receive(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        let size = RECEIVE_BYTES_MIN << socket.receive_shift;
        let space = self.scratch.space(size);
        let received = loop {
            match recv(&socket.descriptor, &mut *space, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => break other.map(|(length, _)| length),
            }
        };
        match received {
            Ok(0) => {
                socket.flags.set(Flags::READABLE, false);
                socket.flags.set(Flags::ENDED, true);
                if socket.flags.has(Flags::ERROR) {
                    line_up(&mut self.attention, socket, token);
                }
                Some(Completion::Ended)
            }
            Ok(length) => {
                // Twice in a row: the rest behind a full receive is small, and says nothing.
                let little = length < size / 8;
                if length == size {
                    socket.receive_shift = (socket.receive_shift + 1).min(RECEIVE_SHIFT_MAX);
                } else if little && socket.flags.has(Flags::RECEIVED_LITTLE) {
                    socket.receive_shift = socket.receive_shift.saturating_sub(1);
                }
                socket.flags.set(Flags::RECEIVED_LITTLE, little);
                let hung_up = socket.flags.has_any(Flags::HUNG_UP.and(Flags::ERROR)) && !planted::has(Bug::FinMissed);
                let drained = length < size && !hung_up;
                if drained {
                    socket.flags.set(Flags::READABLE, false);
                } else {
                    line_up(&mut self.attention, socket, token);
                }
                Some(Completion::Received(self.scratch.received(length)))
            }
            Err(Errno::AGAIN) => {
                socket.flags.set(Flags::READABLE, false);
                // Nothing can be received any more, so the error itself is what is left to tell.
                if socket.flags.has(Flags::ERROR) {
                    socket.flags.set(Flags::ENDED, true);
                    line_up(&mut self.attention, socket, token);
                }
                None
            }
            Err(errno) => {
                socket.flags.set(Flags::READABLE, false);
                socket.flags.set(Flags::ENDED, true);
                socket.flags.set(Flags::FAILED, true);
                Some(Completion::Failed(errno.into()))
            }
        }
    }
}

/// The first receive of a socket asks for this much.
const RECEIVE_BYTES_MIN: usize = 16 * 1024;

/// Doublings up to the scratch's size.
const RECEIVE_SHIFT_MAX: u8 = 2;

const _: () = assert!(RECEIVE_BYTES_MIN << RECEIVE_SHIFT_MAX == RECEIVE_BYTES_MAX);
