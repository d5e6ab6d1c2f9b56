//! Sending: one operation in flight for each socket, whose memory is lent by its queue; and pieces of files.

use std::io;
use std::os::fd::AsRawFd;

use tidegate_buffer::{Gathered, Lent, Outbound};

use super::Machine;
use super::kernel::{Event, Kernel, Request};
use super::operation::Kind;
use super::table::{Flags, NOTHING};
use crate::driver::{Completion, Token};
use crate::gather::{CALL_BYTES_MAX, IOVECTORS, IoVectors, send_file};

/// What sends in flight need.
pub(super) struct Sends {
    vectors: IoVectors,
    /// How many of them are in use until the next submission.
    used: usize,
    /// Headers of messages, in use likewise. They are apart from each other, so that none moves when another is added.
    headers: Vec<Box<libc::msghdr>>,
    headers_used: usize,
    /// What is lent, until the kernel has let go of it.
    lent: Vec<Lent>,
    vacant: Vec<u32>,
}

impl Sends {
    pub(super) fn new() -> Self {
        Self {
            vectors: IoVectors::new(),
            used: 0,
            headers: Vec::new(),
            headers_used: 0,
            lent: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Everything that was queued is with the kernel, which has copied vectors and headers.
    pub(super) fn submitted(&mut self) {
        (self.used, self.headers_used) = (0, 0);
    }

    fn keep(&mut self, lent: Lent) -> u32 {
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
        self.lent[place as usize] = Lent::default();
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
        std::mem::forget(std::mem::take(&mut self.lent));
    }
}

impl<K: Kernel> Machine<K> {
    /// Submits a send. What comes of it, comes later; of a piece of a file, at once.
    pub(super) fn send(&mut self, token: Token, queue: &Outbound, bytes_max: usize) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if socket.flags.has(Flags::CONNECTING) {
            socket.flags.set(Flags::SEND_WAITS, true);
            return None;
        }
        let busy = !socket.flights.is_idle(Kind::Send) || !socket.flights.is_idle(Kind::Writable);
        if busy || socket.flags.has(Flags::CLOSING) {
            return None;
        }
        let fd = socket.descriptor.as_raw_fd();
        let bytes_max = bytes_max.clamp(1, CALL_BYTES_MAX);
        if IOVECTORS - self.sends.used < VECTORS_MIN {
            if let Err(error) = self.kernel.submit() {
                return Some(Completion::Sent(Err(error)));
            }
            self.sends.submitted();
        }
        let room = &mut self.sends.vectors.empty()[self.sends.used..];
        let gathered = queue.gather(room, bytes_max);
        if let Gathered::Parts(parts) = gathered
            && parts.iter().map(|part| part.len()).sum::<usize>() >= BULK_BYTES
        {
            let sent = match parts {
                [part] => rustix::net::send(&socket.descriptor, part, rustix::net::SendFlags::NOSIGNAL),
                parts => rustix::net::sendmsg(&socket.descriptor, parts, &mut Default::default(), rustix::net::SendFlags::NOSIGNAL),
            };
            if let Ok(sent) = sent {
                return Some(Completion::Sent(Ok(sent)));
            }
        }
        let (request, parts) = match gathered {
            Gathered::Nothing => return Some(Completion::Sent(Ok(0))),
            Gathered::File(region) => {
                return match send_file(&socket.descriptor, &region, bytes_max) {
                    Ok((sent, _)) => Some(Completion::Sent(Ok(sent))),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let request = Request::Poll { fd, events: libc::POLLOUT, multishot: false };
                        let armed = self.arm(token, Kind::Writable, request);
                        armed.err().map(|error| Completion::Sent(Err(error)))
                    }
                    Err(error) => Some(Completion::Sent(Err(error))),
                };
            }
            Gathered::Parts([part]) => (Request::Send { fd, bytes: part.as_ptr(), length: part.len() as u32 }, 1),
            Gathered::Parts(parts) => {
                let (first, count) = (parts.as_ptr(), parts.len());
                (Request::SendMessage { fd, header: self.sends.header(first.cast(), count) }, count)
            }
        };
        let lent = self.sends.keep(queue.lend(parts));
        self.sockets.get_mut(token).into_iter().for_each(|socket| socket.lent = lent);
        if let Err(error) = self.arm(token, Kind::Send, request) {
            self.sockets.get_mut(token).into_iter().for_each(|socket| self.sends.give_back(&mut socket.lent));
            return Some(Completion::Sent(Err(error)));
        }
        None
    }
}

impl Sends {
    /// The header of a message of so many parts, which stay where they are until the next submission.
    fn header(&mut self, parts: *const libc::iovec, count: usize) -> *const libc::msghdr {
        self.used += count;
        if self.headers_used == self.headers.len() {
            // SAFETY: a header of zeros says that there is no address, no part and no control message.
            self.headers.push(Box::new(unsafe { std::mem::zeroed() }));
        }
        let header = &mut self.headers[self.headers_used];
        self.headers_used += 1;
        header.msg_iov = parts.cast_mut();
        header.msg_iovlen = count;
        &raw const **header
    }
}

/// What came of a send.
pub(super) fn sent(event: Event) -> Completion {
    Completion::Sent(match event.result {
        count @ 0.. => Ok(count as usize),
        errno if matches!(-errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => Ok(0),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    })
}

/// With less room in the array than this, what is queued is submitted first.
const VECTORS_MIN: usize = 64;

/// How much room for sends in flight is kept when none is.
const LENT_KEPT_MAX: usize = 1024;

const BULK_BYTES: usize = 8 * 1024;
