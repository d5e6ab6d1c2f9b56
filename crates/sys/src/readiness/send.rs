//! Sending: one gathering write from the loop's one array, or a piece of a file.

use std::io;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Gathered, Outbound};

use super::Readiness;
use super::table::Flags;
use crate::driver::{Completion, Token};
use crate::gather::{CALL_BYTES_MAX, IOVECTORS, length, send_file, send_parts, send_parts_before_file};
use crate::socket::took_error;

impl Readiness {
    /// Sends once. After a short send the next one waits for an edge.
    pub(super) fn send(&mut self, token: Token, queue: &Outbound, bytes_max: usize) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.contains(Flags::SEND_BLOCKED) {
            return None;
        }
        let bytes_max = bytes_max.clamp(1, CALL_BYTES_MAX);
        // The number of bytes sent, and of bytes offered.
        let sent = match queue.gather(self.vectors.empty(), bytes_max) {
            Gathered::Nothing => Ok((0, 0)),
            Gathered::Parts(parts) if injected::is_injected(Bug::PartsBeyondLimitLost) && parts.len() == IOVECTORS => {
                send_parts(&socket.descriptor, parts).map(|_| (queue.pending() as usize, 0))
            }
            Gathered::Parts(parts) => send_parts(&socket.descriptor, parts).map(|sent| (sent, length(parts))),
            Gathered::PartsBeforeFile(parts) => {
                send_parts_before_file(&socket.descriptor, parts).map(|sent| (sent, length(parts)))
            }
            // The file may cause a short count as well as the socket, so only the next call shows whether the socket is
            // full.
            Gathered::File(region) => send_file(&socket.descriptor, &region, bytes_max).map(|sent| (sent, 0)),
        };
        match sent {
            Ok((sent, wanted)) => {
                socket.load.note_sent(sent);
                if sent < wanted {
                    socket.load.note_blocked();
                }
                socket.flags.set(Flags::SEND_BLOCKED, sent < wanted);
                Some(Completion::Sent(Ok(sent)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.load.note_blocked();
                socket.flags.set(Flags::SEND_BLOCKED, true);
                None
            }
            Err(error) => {
                let is_broken = socket.flags.contains(Flags::BROKEN) || took_error(&socket.descriptor, &error);
                socket.flags.set(Flags::BROKEN, is_broken);
                Some(Completion::Sent(Err(error)))
            }
        }
    }
}
