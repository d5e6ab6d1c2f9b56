//! Sending: one operation in flight for each socket, whose memory is lent by its queue; and pieces of files.

use std::io;
use std::os::fd::AsRawFd;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Gathered, Outbound, SendGuard};

use super::kernel::{Event, Kernel, Request};
use super::operation::Kind;
use super::table::{Flags, NOTHING, Room};
use super::{Machine, leak};
use crate::driver::{Completion, Token};
use crate::gather::{CALL_BYTES_MAX, IOVECTORS, IoVectors, length, send_file, send_parts};
use crate::ready::HEAVY_SEND_BYTES;

/// What sends in flight need.
pub(super) struct Sends {
    vectors: IoVectors,
    /// How many of them are in use until the next submission.
    used: usize,
    /// Headers of messages, in use likewise: room for `HEADERS`, written through its pointer, so that none ever moves.
    headers: Vec<libc::msghdr>,
    headers_used: usize,
    /// What is lent, until the kernel has let go of it.
    lent: Vec<SendGuard>,
    vacant: Vec<u32>,
}

impl Sends {
    pub(super) fn new() -> Self {
        Self {
            vectors: IoVectors::new(),
            used: 0,
            headers: Vec::with_capacity(HEADERS),
            headers_used: 0,
            lent: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Everything that was queued is with the kernel, which has copied vectors and headers.
    pub(super) fn submitted(&mut self) {
        (self.used, self.headers_used) = (0, 0);
    }

    fn keep(&mut self, lent: SendGuard) -> u32 {
        match self.vacant.pop() {
            Some(place) => {
                self.lent[place as usize] = lent;
                place
            }
            None => {
                self.lent.push(lent);
                self.lent.len() as u32 - 1
            }
        }
    }

    /// The kernel has let go of what was lent.
    pub(super) fn give_back(&mut self, place: &mut u32) {
        let place = std::mem::replace(place, NOTHING);
        if place == NOTHING {
            return;
        }
        self.lent[place as usize] = SendGuard::default();
        self.vacant.push(place);
        if self.vacant.len() == self.lent.len() {
            // Nobody sends: what a burst needed goes as well.
            self.lent.truncate(LENT_KEPT_MAX);
            self.lent.shrink_to(LENT_KEPT_MAX);
            self.vacant.truncate(0);
            self.vacant.shrink_to(LENT_KEPT_MAX);
            self.vacant.extend(0..self.lent.len() as u32);
        }
    }

    pub(super) fn leak(&mut self) {
        leak(std::mem::take(&mut self.lent));
    }
}

impl<K: Kernel> Machine<K> {
    /// Sends what is much, and pieces of files, at once; submits what is little. What comes of that comes later.
    pub(super) fn send(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.contains(Flags::CONNECTING) {
            socket.flags.set(Flags::SEND_WAITS, true);
            return None;
        }
        if socket.room != Room::Free || !socket.operations.is_idle(Kind::Send) || socket.flags.contains(Flags::CLOSING)
        {
            return None;
        }
        let fd = socket.descriptor.as_raw_fd();
        let is_alone = !self.sent_alone && self.kernel.is_idle();
        let bytes_max = bytes_max.clamp(1, CALL_BYTES_MAX);
        if self.sends.are_full() {
            if self.kernel.submit().is_err() || self.kernel.queued() > 0 {
                return self.send_later(token);
            }
            self.sends.submitted();
        }
        // It may be a while before the kernel has let go of them.
        queue.compact();
        let room = &mut self.sends.vectors.empty()[self.sends.used..];
        let places = room.len();
        let (request, parts, bytes) = match queue.gather(room, bytes_max) {
            Gathered::Nothing => return Some(Completion::Sent(Ok(0))),
            Gathered::File(region) => {
                let sent = send_file(&socket.descriptor, &region, bytes_max);
                return self.sent_at_once(token, sent);
            }
            Gathered::Parts(parts) if injected::is_injected(Bug::PartsForgotten) && parts.len() == places => {
                let sent = send_parts(&socket.descriptor, parts).map(|_| queue.pending() as usize);
                return Some(Completion::Sent(sent));
            }
            Gathered::Parts(parts) => {
                let bytes = length(parts);
                if bytes >= BULK_BYTES_MIN || is_alone {
                    self.sent_alone |= bytes < BULK_BYTES_MIN;
                    let sent = send_parts(&socket.descriptor, parts);
                    return self.sent_at_once(token, sent);
                }
                match parts {
                    [part] => (Request::Send { fd, bytes: part.as_ptr(), length: bytes as u32 }, 1, bytes),
                    parts => {
                        let (first, count) = (parts.as_ptr(), parts.len());
                        (Request::SendMessage { fd, header: self.sends.header(first.cast(), count) }, count, bytes)
                    }
                }
            }
        };
        socket.lent = self.sends.keep(queue.lend(parts));
        if self.arm(token, Kind::Send, request).is_err() {
            self.sockets.get_mut(token).into_iter().for_each(|socket| self.sends.give_back(&mut socket.lent));
            return self.send_later(token);
        }
        if injected::is_injected(Bug::HeaderReused) {
            self.sends.submitted();
        }
        if injected::is_injected(Bug::SendBelieved) {
            self.sockets.get_mut(token).into_iter().for_each(|socket| self.sends.give_back(&mut socket.lent));
            return Some(Completion::Sent(Ok(bytes)));
        }
        None
    }

    /// Tells what came of a call, or waits until another can be made.
    fn sent_at_once(&mut self, token: Token, sent: io::Result<usize>) -> Option<Completion> {
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room(token),
            Err(error) => Some(Completion::Sent(Err(error))),
            Ok(sent) => {
                self.note_sent(token, sent);
                Some(Completion::Sent(Ok(sent)))
            }
        }
    }

    /// Takes note of how much was sent. A socket that becomes heavy is received from by calls from here on.
    fn note_sent(&mut self, token: Token, sent: usize) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        socket.load.note_sent(sent);
        if socket.load.is_heavy() && socket.flags.raise(Flags::BULK) {
            self.line_up(token);
        }
    }

    /// What came of a send that was submitted.
    pub(super) fn sent(&mut self, token: Token, event: Event) -> Option<Completion> {
        match event.result {
            count @ 0.. => {
                self.note_sent(token, count as usize);
                Some(Completion::Sent(Ok(count as usize)))
            }
            errno if -errno == libc::EAGAIN => {
                self.wait_for_room(token);
                // It is over, though nothing was sent. Who tries again finds that it has to wait.
                Some(Completion::Sent(Ok(0)))
            }
            _ if event.came_to_nothing() => Some(Completion::Sent(Ok(0))),
            errno => Some(Completion::Sent(Err(io::Error::from_raw_os_error(-errno)))),
        }
    }

    /// The kernel's buffer is full. The poll that waits for room stays armed, since one that comes once says at once of
    /// a peer that has ended that it has ended, again and again.
    fn wait_for_room(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        socket.room = Room::Awaited;
        socket.load.note_blocked();
        socket.flags.set(Flags::BULK, true);
        self.line_up(token);
        None
    }

    /// The poll of a socket whose sends wait for room has said something.
    pub(super) fn has_room(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.line_up(token);
        }
        let socket = self.sockets.get_mut(token)?;
        let speaks = if event.result < 0 { !event.came_to_nothing() } else { event.result & ROOM != 0 };
        if speaks && socket.room == Room::Awaited {
            socket.room = Room::Found;
            self.poll_socket_later(token);
        }
        None
    }

    /// Reports that there is room to send again. Such a socket is heavy, so it waits for its place in the queue.
    pub(super) fn report_room(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        socket.room = Room::Free;
        if socket.flags.contains(Flags::CLOSING) {
            return None;
        }
        if socket.flags.contains(Flags::READABLE) {
            self.poll_socket_later(token);
        }
        (!injected::is_injected(Bug::NoRearm)).then_some(Completion::Sent(Ok(0)))
    }

    /// The kernel takes nothing more for now. Why, the next wait tells, if it lasts.
    fn send_later(&mut self, token: Token) -> Option<Completion> {
        self.sockets.get_mut(token)?.flags.set(Flags::SEND_WAITS, true);
        self.line_up(token);
        None
    }
}

impl Sends {
    /// Whether what is queued has to be submitted before anything else can be.
    fn are_full(&self) -> bool {
        IOVECTORS - self.used < VECTORS_MIN || self.headers_used == HEADERS
    }

    /// The header of a message of so many parts, which stay where they are until the next submission.
    fn header(&mut self, parts: *const libc::iovec, count: usize) -> *const libc::msghdr {
        assert!(self.headers_used < HEADERS, "it is looked at before parts are gathered");
        // SAFETY: a header of zeros says that there is no address, no part and no control message.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.cast_mut();
        header.msg_iovlen = count;
        // SAFETY: the place lies within the capacity, as was just asserted.
        let place = unsafe { self.headers.as_mut_ptr().add(self.headers_used) };
        // SAFETY: the place is ours, and the kernel has copied what it was used for before: `submitted` says so.
        unsafe { place.write(header) };
        self.used += count;
        self.headers_used += 1;
        place
    }
}

/// From here on what is to be sent goes by a call of its own, while it is warm: a send that is submitted goes when all
/// others have been queued, and its memory comes back another turn later. For the same reason the first small send goes
/// by a call while the ring is idle: a request on an otherwise idle loop costs one turn and not two. Those after it
/// share the next call to the kernel.
const BULK_BYTES_MIN: usize = HEAVY_SEND_BYTES;

/// What a poll says where it makes sense to send again: there is room, or the connection broke.
const ROOM: i32 = (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) as i32;

/// Messages of several parts between two submissions.
const HEADERS: usize = 64;

/// With less room in the array than this, what is queued is submitted first.
const VECTORS_MIN: usize = 64;

/// How much room for sends in flight is kept when none is.
const LENT_KEPT_MAX: usize = 1024;
