//! Sending: one gathering write from the loop's one array, or a piece of a file.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use tidegate_buffer::planted::{self, Bug};
use tidegate_buffer::{Gathered, Outbound};

use super::Readiness;
use super::table::{Entry, Flags};
use crate::driver::{Completion, Token};
use crate::gather::{CALL_BYTES_MAX, IOVECTORS, send_file};

impl Readiness {
    /// Sends once. What comes after a send that the kernel did not take whole waits for the edge.
    pub(super) fn send(&mut self, token: Token, queue: &Outbound, bytes_max: usize) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.has(Flags::SEND_BLOCKED) {
            return None;
        }
        let bytes_max = bytes_max.clamp(1, CALL_BYTES_MAX);
        let sent = match queue.gather(self.vectors.empty(), bytes_max) {
            Gathered::Nothing => Ok((0, 0)),
            Gathered::Parts(parts) if planted::has(Bug::PartsForgotten) && parts.len() == IOVECTORS => {
                send_parts(socket, parts).map(|_| (queue.pending() as usize, 0))
            }
            Gathered::Parts(parts) => send_parts(socket, parts),
            Gathered::File(region) => send_file(&socket.descriptor, &region, bytes_max),
        };
        match sent {
            Ok((sent, wanted)) => {
                socket.flags.set(Flags::SEND_BLOCKED, sent < wanted);
                Some(Completion::Sent(Ok(sent)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.flags.set(Flags::SEND_BLOCKED, true);
                None
            }
            Err(error) => Some(Completion::Sent(Err(error))),
        }
    }
}

/// Sends the parts in one call; returns how many bytes were sent, and how many were to be.
fn send_parts(socket: &Entry, parts: &[IoSlice<'_>]) -> io::Result<(usize, usize)> {
    let wanted = parts.iter().map(|part| part.len()).sum();
    loop {
        let sent = match parts {
            [part] => send(&socket.descriptor, part, SendFlags::NOSIGNAL),
            parts => sendmsg(&socket.descriptor, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
        };
        match sent {
            Err(Errno::INTR) => {}
            other => return Ok((other?, wanted)),
        }
    }
}
