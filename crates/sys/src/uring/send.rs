//! Sending: at most one operation in flight for each socket, with memory that the socket's queue lends; and pieces of
//! files.

use std::io;
use std::os::fd::AsRawFd;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Gathered, Outbound, SendGuard};

use super::kernel::{Event, Kernel, Request};
use super::operation::Kind;
use super::table::{Flags, NOTHING, SendRoom};
use super::{UringDriver, leak};
use crate::driver::{Completion, Token};
use crate::gather::{CALL_BYTES_MAX, IOVECTORS, IoVectors, length, send_file, send_parts, send_parts_before_file};
use crate::ready::HEAVY_SEND_BYTES;
use crate::socket::took_error;

/// The memory of sends in flight: vectors, headers, and the guards of lent bytes.
pub(super) struct Sends {
    vectors: IoVectors,
    /// The number of vectors that are in use until the next submission.
    used: usize,
    /// Headers of messages, also in use until the next submission. The capacity is `HEADERS`; headers are written
    /// through the pointer, so that they never move.
    headers: Vec<libc::msghdr>,
    headers_used: usize,
    /// The guards of lent bytes, until the kernel has released the bytes.
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

    /// Frees vectors and headers: every queued request was submitted, and the kernel has copied them.
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

    /// Drops a guard: the kernel has released the lent bytes.
    pub(super) fn give_back(&mut self, place: &mut u32) {
        let place = std::mem::replace(place, NOTHING);
        if place == NOTHING {
            return;
        }
        self.lent[place as usize] = SendGuard::default();
        self.vacant.push(place);
        if self.vacant.len() == self.lent.len() {
            // No send is in flight: the memory that a burst needed is freed.
            self.lent.truncate(SPARE_GUARDS_MAX);
            self.lent.shrink_to(SPARE_GUARDS_MAX);
            self.vacant.truncate(0);
            self.vacant.shrink_to(SPARE_GUARDS_MAX);
            self.vacant.extend(0..self.lent.len() as u32);
        }
    }

    pub(super) fn leak(&mut self) {
        leak(std::mem::take(&mut self.lent));
    }
}

impl<K: Kernel> UringDriver<K> {
    /// Sends many bytes and pieces of files by a system call, and submits small sends to the ring. The result of a
    /// submitted send is reported later.
    pub(super) fn send(&mut self, token: Token, queue: &mut Outbound, bytes_max: usize) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.contains(Flags::CONNECTING) {
            socket.flags.set(Flags::SEND_WAITS, true);
            return None;
        }
        if matches!(socket.room, SendRoom::Awaited | SendRoom::Found)
            || !socket.operations.is_idle(Kind::Send)
            || socket.flags.contains(Flags::CLOSING)
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
        // The queue's bytes may be lent for a while, so they should not keep whole segments.
        queue.compact();
        let room = &mut self.sends.vectors.empty()[self.sends.used..];
        let places = room.len();
        let (request, parts, bytes) = match queue.gather(room, bytes_max) {
            Gathered::Nothing => return Some(Completion::Sent(Ok(0))),
            Gathered::File(region) => {
                let sent = send_file(&socket.descriptor, &region, bytes_max);
                return self.sent_at_once(token, sent);
            }
            Gathered::PartsBeforeFile(parts) => {
                // A call, as for the file: both leave in the same turn.
                let sent = send_parts_before_file(&socket.descriptor, parts);
                return self.sent_at_once(token, sent);
            }
            Gathered::Parts(parts) if injected::is_injected(Bug::PartsBeyondLimitLost) && parts.len() == places => {
                let sent = send_parts(&socket.descriptor, parts).map(|_| queue.pending() as usize);
                return Some(Completion::Sent(sent));
            }
            Gathered::Parts(parts) => {
                let bytes = length(parts);
                if bytes >= SEPARATE_SEND_BYTES_MIN || is_alone {
                    self.sent_alone |= bytes < SEPARATE_SEND_BYTES_MIN;
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
        self.submit_send(token, request, bytes)
    }

    /// Submits a send of so many bytes, which are lent to it.
    fn submit_send(&mut self, token: Token, request: Request, bytes: usize) -> Option<Completion> {
        if self.arm(token, Kind::Send, request).is_err() {
            self.sockets.get_mut(token).into_iter().for_each(|socket| self.sends.give_back(&mut socket.lent));
            return self.send_later(token);
        }
        if injected::is_injected(Bug::HeaderReusedEarly) {
            self.sends.submitted();
        }
        if injected::is_injected(Bug::SendDoneAtSubmit) {
            self.sockets.get_mut(token).into_iter().for_each(|socket| self.sends.give_back(&mut socket.lent));
            return Some(Completion::Sent(Ok(bytes)));
        }
        None
    }

    /// Reports the result of a system call, or waits for room if the kernel had none.
    fn sent_at_once(&mut self, token: Token, sent: io::Result<usize>) -> Option<Completion> {
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room(token),
            Err(error) => Some(self.send_failed(token, error)),
            Ok(sent) => {
                self.note_sent(token, sent);
                Some(Completion::Sent(Ok(sent)))
            }
        }
    }

    /// Records how much was sent. A socket that becomes heavy receives by system calls from here on.
    fn note_sent(&mut self, token: Token, sent: usize) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        socket.load.note_sent(sent);
        if socket.load.is_heavy() && socket.flags.raise(Flags::HEAVY) {
            self.enqueue(token);
        }
    }

    /// Handles the completion of a submitted send.
    pub(super) fn sent(&mut self, token: Token, event: Event) -> Option<Completion> {
        match event.result {
            count @ 0.. => {
                self.note_sent(token, count as usize);
                Some(Completion::Sent(Ok(count as usize)))
            }
            errno if -errno == libc::EAGAIN => {
                self.wait_for_room(token);
                // The operation has ended, and nothing was sent. A second attempt waits for room.
                Some(Completion::Sent(Ok(0)))
            }
            _ if event.was_cancelled() => Some(Completion::Sent(Ok(0))),
            errno => Some(self.send_failed(token, io::Error::from_raw_os_error(-errno))),
        }
    }

    /// Reports that a send failed. If it took the error of the connection, the socket remembers that.
    fn send_failed(&mut self, token: Token, error: io::Error) -> Completion {
        if let Some(socket) = self.sockets.get_mut(token)
            && took_error(&socket.descriptor, &error)
        {
            socket.room = SendRoom::Broken;
        }
        Completion::Sent(Err(error))
    }

    /// Waits for room in the kernel's buffer, which is full. The poll is multishot: after the peer has shut down its
    /// side, a single-shot poll would report that at once each time it is armed.
    fn wait_for_room(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        socket.room = SendRoom::Awaited;
        socket.load.note_blocked();
        socket.flags.set(Flags::HEAVY, true);
        self.enqueue(token);
        None
    }

    /// Handles an event of the poll that waits for room to send.
    pub(super) fn has_room(&mut self, token: Token, event: Event) -> Option<Completion> {
        if !event.more {
            self.enqueue(token);
        }
        let socket = self.sockets.get_mut(token)?;
        let may_send = if event.result < 0 { !event.was_cancelled() } else { event.result & ROOM != 0 };
        if may_send && socket.room == SendRoom::Awaited {
            socket.room = SendRoom::Found;
            self.poll_socket_later(token);
        }
        None
    }

    /// Reports that there is room to send again. Such a socket is heavy, so it waits for its place in the queue.
    pub(super) fn report_room(&mut self, token: Token) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        socket.room = SendRoom::Free;
        if socket.flags.contains(Flags::CLOSING) {
            return None;
        }
        if socket.flags.contains(Flags::READABLE) {
            self.poll_socket_later(token);
        }
        Some(Completion::Sent(Ok(0)))
    }

    /// Lets the loop send again after the next wait: the kernel takes no request for now. If the cause lasts, that wait
    /// returns it.
    fn send_later(&mut self, token: Token) -> Option<Completion> {
        self.sockets.get_mut(token)?.flags.set(Flags::SEND_WAITS, true);
        self.enqueue(token);
        None
    }
}

impl Sends {
    /// Whether the queued requests have to be submitted before a send can use vectors and headers.
    fn are_full(&self) -> bool {
        IOVECTORS - self.used < VECTORS_MIN || self.headers_used == HEADERS
    }

    /// The header of a message of `count` parts, which stay in place until the next submission.
    fn header(&mut self, parts: *const libc::iovec, count: usize) -> *const libc::msghdr {
        assert!(self.headers_used < HEADERS, "`are_full` was checked before parts were gathered");
        // SAFETY: zeros are a valid header, without an address, parts or control messages.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.cast_mut();
        // An `i32` in musl, with zeros beside it: the kernel reads a `usize` in that place. `count` is at most `IOVECTORS`.
        header.msg_iovlen = count as _;
        // SAFETY: the place lies within the capacity, as asserted above.
        let place = unsafe { self.headers.as_mut_ptr().add(self.headers_used) };
        // SAFETY: `self` owns the place, and the kernel has copied its earlier header, as the caller of `submitted`
        // guarantees.
        unsafe { place.write(header) };
        self.used += count;
        self.headers_used += 1;
        place
    }
}

/// From this size on a send is a system call of its own, while its bytes are in the cache: a submitted send starts when
/// all others of the turn were queued, and its memory comes back one turn later. For the same reason the first small
/// send is a system call while the ring is idle: a request on an otherwise idle loop then costs one turn and not two.
/// The small sends after it share the next call to the kernel.
const SEPARATE_SEND_BYTES_MIN: usize = HEAVY_SEND_BYTES;

/// The events of a poll after which the driver sends again: there is room, or the connection broke.
const ROOM: i32 = (libc::POLLOUT | libc::POLLERR | libc::POLLHUP) as i32;

/// The most messages of several parts between two submissions.
const HEADERS: usize = 64;

/// With fewer free vectors than this, the queued requests are submitted first.
const VECTORS_MIN: usize = 64;

/// The capacity for guards that is kept when no send is in flight.
const SPARE_GUARDS_MAX: usize = 1024;
