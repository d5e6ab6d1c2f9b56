//! The interface between the driver and a kernel: requests in, events out. Tests implement it with a fake kernel.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// An operation for the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    /// Receive into a provided buffer: multishot or once.
    Receive { fd: RawFd, mode: RecvMode },
    /// Send bytes that lie in one piece.
    Send { fd: RawFd, bytes: *const u8, length: u32 },
    /// Send the parts that a header points to. The header may be freed once the request was submitted.
    SendMessage { fd: RawFd, header: *const libc::msghdr },
    /// Wait for events of a descriptor.
    Poll { fd: RawFd, events: i16, multishot: bool },
    /// Cancel the operation of this name.
    Cancel { name: u64 },
}

/// How to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecvMode {
    /// Multishot: whenever bytes arrive.
    Always,
    /// Once.
    Once,
    /// Once, and probably no bytes are there yet: the kernel polls first.
    OnceLater,
}

/// A completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// The request's name.
    pub(super) name: u64,
    /// A count of bytes, the events of a poll, or a negated errno.
    pub(super) result: i32,
    /// Whether more events of this request follow.
    pub(super) more: bool,
    /// The provided buffer in which the bytes are.
    pub(super) buffer: Option<u16>,
    /// Whether the socket has more bytes to receive already.
    pub(super) nonempty: bool,
}

impl Event {
    /// Whether the request was cancelled or interrupted: nothing is lost, and it can be made again.
    pub(super) const fn was_cancelled(self) -> bool {
        matches!(-self.result, libc::ECANCELED | libc::EINTR | libc::EAGAIN)
    }
}

/// A kernel.
pub(super) trait Kernel {
    /// Queues a request, and submits those before it if there is no room. If that fails, the request is not queued.
    fn push(&mut self, request: Request, name: u64) -> io::Result<()>;

    /// Submits the queued requests.
    fn submit(&mut self) -> io::Result<()>;

    /// The number of queued requests. The memory that they point to has to stay until there are none.
    fn queued(&mut self) -> usize;

    /// Submits the queued requests, and waits until there are events or `timeout` has passed. If nothing is queued and
    /// no work is deferred, a wait of zero needs no system call.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Whether the kernel has deferred work that may bring events, and that it does during a wait.
    fn has_deferred_work(&mut self) -> bool;

    /// Whether nothing is queued and, as far as is known without a system call, no event can be read.
    fn is_idle(&mut self) -> bool {
        self.queued() == 0 && self.completions() == 0 && !self.has_deferred_work()
    }

    /// The number of events that can be read now.
    fn completions(&mut self) -> usize;

    /// The next event.
    fn next(&mut self) -> Option<Event>;

    /// Provides a buffer to receive into. The kernel owns it until an event names it.
    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32);

    /// Leaks the memory that the kernel may still read, because operations have not ended.
    fn leak(&mut self) {}
}
