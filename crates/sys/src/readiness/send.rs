//! Sending: one gathering write from the loop's one array, or a piece of a file.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use tidegate_buffer::planted::{self, Bug};
use tidegate_buffer::{FileRegion, Gathered, Outbound};

use super::Readiness;
use super::table::{Entry, Flags};
use crate::driver::{Completion, Token};

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
            Gathered::File(region) => send_file(socket, &region, bytes_max),
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

/// Sends a piece of a file without passing it through memory. A file that ends within its region is an error: the
/// kernel would go on reporting zero bytes for ever.
fn send_file(socket: &Entry, region: &FileRegion, bytes_max: usize) -> io::Result<(usize, usize)> {
    let wanted = usize::try_from(region.length).unwrap_or(usize::MAX).min(bytes_max);
    let mut offset = region.offset;
    loop {
        match rustix::fs::sendfile(&socket.descriptor, &*region.file, Some(&mut offset), wanted) {
            Err(Errno::INTR) => {}
            Ok(0) if planted::has(Bug::ShortFile) => return Ok((wanted, 0)),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // A short count may be the file's doing as well as the socket's, so only the next call can tell whether
            // the socket is full.
            other => return Ok((other?, 0)),
        }
    }
}

/// The loop's one array for gathering writes. It never grows: what does not fit goes with the next call.
pub(super) struct IoVectors(Box<[MaybeUninit<IoSlice<'static>>]>);

impl IoVectors {
    pub(super) fn new() -> Self {
        Self(Box::new_uninit_slice(IOVECTORS))
    }

    /// The array, as if nothing was ever in it: what earlier writes left there is not looked at again.
    pub(super) fn empty<'a>(&mut self) -> &mut [MaybeUninit<IoSlice<'a>>] {
        let first = self.0.as_mut_ptr().cast::<MaybeUninit<IoSlice<'a>>>();
        // SAFETY: the two element types differ in a lifetime only, so the layout is the same; an element that is
        // `MaybeUninit` holds no promise, neither the old lifetime's nor the new one's; `self` is borrowed mutably
        // for as long as the result lives.
        unsafe { std::slice::from_raw_parts_mut(first, self.0.len()) }
    }
}

/// Linux sends no more than this in one call (MAX_RW_COUNT, of the smallest pages). A count that is short for that
/// reason must not be taken for a full buffer: no edge would follow.
const CALL_BYTES_MAX: usize = i32::MAX as usize & !4095;

/// UIO_MAXIOV of Linux: more are refused by the system.
const IOVECTORS: usize = 1024;
