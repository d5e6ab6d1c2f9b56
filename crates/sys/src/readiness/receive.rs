//! Receiving into the loop's scratch.

use rustix::io::Errno;

use super::table::Flags;
use super::{Readiness, enqueue};
use crate::driver::{Completion, Token};

impl Readiness {
    /// Receives once.
    pub(super) fn receive(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        let usual = socket.recv_sizer.bytes();
        let (size, received) = self.receive_space.receive(token, &socket.descriptor, usual);
        match received {
            Ok(0) if socket.flags.contains(Flags::BROKEN) => {
                socket.flags.set(Flags::READABLE, false);
                socket.flags.set(Flags::FAILED, true);
                Some(Completion::Failed(Errno::CONNRESET.into()))
            }
            Ok(0) => {
                socket.flags.set(Flags::READABLE, false);
                socket.flags.set(Flags::ENDED, true);
                if socket.flags.intersects(Flags::ERROR.union(Flags::WATCHED)) {
                    enqueue(&mut self.ready, socket, token);
                }
                Some(Completion::Ended)
            }
            Ok(length) => {
                socket.recv_sizer.record_length(length, size);
                socket.load.note_received(length);
                let hung_up = socket.flags.intersects(Flags::HUNG_UP.union(Flags::ERROR));
                let drained = length < size && !hung_up;
                if drained {
                    socket.flags.set(Flags::READABLE, false);
                } else {
                    enqueue(&mut self.ready, socket, token);
                }
                Some(Completion::Received(self.receive_space.received(length)))
            }
            Err(Errno::AGAIN) => {
                socket.flags.set(Flags::READABLE, false);
                // Nothing can be received any more, so the error is the last report.
                if socket.flags.contains(Flags::ERROR) {
                    socket.flags.set(Flags::ENDED, true);
                    enqueue(&mut self.ready, socket, token);
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
