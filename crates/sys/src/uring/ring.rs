//! The rings of a real kernel.

use std::alloc::{self, Layout};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

use super::kernel::{Event, Kernel, RecvMode, Request};

/// An io_uring with one ring of provided buffers.
pub(super) struct Ring {
    ring: IoUring,
    buffers: BufferRing,
    /// The kernel reports deferred work by a flag.
    reports_work: bool,
}

impl Ring {
    /// Sets the rings up on the thread that will use them.
    ///
    /// # Errors
    /// Those of the system, or `Unsupported` where the kernel is older than 6.0.
    pub(super) fn new(buffers: u16) -> io::Result<Self> {
        let (ring, reports_work) = set_up()?;
        let params = ring.params();
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        // Linux 6.0 brought this operation and the multishot receive.
        let is_recent = probe.is_supported(opcode::SendZc::CODE);
        if !(is_recent && params.is_feature_ext_arg() && params.is_feature_nodrop() && params.is_feature_fast_poll()) {
            let wanted = "the kernel's io_uring is older than that of Linux 6.0";
            return Err(io::Error::new(io::ErrorKind::Unsupported, wanted));
        }
        let buffers = BufferRing::new(buffers);
        // SAFETY: the memory belongs to `buffers`, has the size that is passed, and is freed after the ring was closed.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(buffers.address(), buffers.entries, BUFFER_GROUP, 0)?;
        }
        Ok(Self { ring, buffers, reports_work })
    }
}

/// Builds a ring with those options for a loop of one thread that the kernel knows. Also returns whether the kernel
/// reports deferred work.
fn set_up() -> io::Result<(IoUring, bool)> {
    let with = |single: bool, cooperative: bool| {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_clamp().setup_submit_all();
        if single {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        if cooperative {
            // The kernel sets a flag in memory when there is deferred work, so finding that there is none takes no
            // system call.
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        Ok((builder.build(SUBMISSIONS)?, cooperative))
    };
    let unknown = |error: &io::Error| error.kind() == io::ErrorKind::InvalidInput;
    match with(true, true) {
        Err(error) if unknown(&error) => with(false, true).or_else(|error| match unknown(&error) {
            true => with(false, false),
            false => Err(error),
        }),
        other => other,
    }
}

impl Kernel for Ring {
    fn push(&mut self, request: Request, name: u64) -> io::Result<()> {
        let entry = build(request).user_data(name);
        loop {
            // SAFETY: the memory that the request points to stays until its terminal completion: the driver keeps the
            // memory of sends, and that of messages' headers until the next submission; buffers belong to the ring.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        self.ring.submit().map(drop)
    }

    fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let no_wait = timeout == Some(Duration::ZERO) || !self.ring.completion().is_empty();
        let waited = match timeout {
            _ if no_wait && self.ring.submission().is_empty() && !self.has_deferred_work() => return Ok(()),
            _ if no_wait => self.poll(),
            None => self.ring.submitter().submit_and_wait(1),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        ignore_interrupts(waited)
    }

    fn has_deferred_work(&mut self) -> bool {
        let submissions = self.ring.submission();
        !self.reports_work || submissions.taskrun() || submissions.cq_overflow()
    }

    fn completions(&mut self) -> usize {
        self.ring.completion().len()
    }

    fn next(&mut self) -> Option<Event> {
        let entry = self.ring.completion().next()?;
        let flags = entry.flags();
        Some(Event {
            name: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(flags),
            buffer: cqueue::buffer_select(flags),
            nonempty: cqueue::sock_nonempty(flags),
        })
    }

    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32) {
        self.buffers.provide(buffer, address, length);
    }

    fn leak(&mut self) {
        self.buffers.is_leaked = true;
    }
}

impl Ring {
    /// Submits the queued requests without waiting. The call requests events, since only then the kernel does its
    /// deferred work.
    fn poll(&mut self) -> io::Result<usize> {
        let queued = self.ring.submission().len() as u32;
        // SAFETY: the call passes numbers only; `push` guarantees the memory that the queued requests point to.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, ENTER_GETEVENTS, None) }
    }
}

/// Neither a signal nor a timeout is a failure. If the queue of completions is full, or the kernel has no memory for
/// more, completions are read first.
fn ignore_interrupts(result: io::Result<usize>) -> io::Result<()> {
    const TRANSIENT: [i32; 4] = [libc::EINTR, libc::ETIME, libc::EBUSY, libc::EAGAIN];
    match result {
        Err(error) if error.raw_os_error().is_some_and(|errno| TRANSIENT.contains(&errno)) => Ok(()),
        other => other.map(drop),
    }
}

fn build(request: Request) -> squeue::Entry {
    match request {
        Request::Receive { fd, mode: RecvMode::Always } => opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP).build(),
        Request::Receive { fd, mode } => {
            let later = if mode == RecvMode::OnceLater { POLL_FIRST } else { 0 };
            let receive = opcode::Recv::new(Fd(fd), std::ptr::null_mut(), 0).buf_group(BUFFER_GROUP).ioprio(later);
            receive.build().flags(squeue::Flags::BUFFER_SELECT)
        }
        Request::Send { fd, bytes, length } => opcode::Send::new(Fd(fd), bytes, length).flags(SEND_FLAGS).build(),
        Request::SendMessage { fd, header } => opcode::SendMsg::new(Fd(fd), header).flags(SEND_FLAGS as u32).build(),
        Request::Poll { fd, events, multishot } => {
            opcode::PollAdd::new(Fd(fd), u32::from(events as u16)).multi(multishot).build()
        }
        Request::Cancel { name } => opcode::AsyncCancel2::new(CancelBuilder::user_data(name)).build(),
    }
}

/// The ring through which buffers are provided: memory that the kernel reads, a page or two of it.
struct BufferRing {
    entries: u16,
    first: NonNull<BufRingEntry>,
    tail: u16,
    /// Whether the memory is leaked because the kernel may still read it.
    is_leaked: bool,
}

impl BufferRing {
    fn new(entries: u16) -> Self {
        assert!(entries.is_power_of_two(), "the number of entries is a power of two");
        let layout = Self::layout(entries);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        let first = NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { entries, first, tail: 0, is_leaked: false }
    }

    fn layout(entries: u16) -> Layout {
        let bytes = usize::from(entries) * size_of::<BufRingEntry>();
        Layout::from_size_align(bytes, PAGE_BYTES).expect("the ring takes a few pages at most")
    }

    fn address(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32) {
        let place = usize::from(self.tail & (self.entries - 1));
        // SAFETY: the place is less than the number of entries.
        let entry = unsafe { self.first.as_ptr().add(place) };
        // SAFETY: the kernel does not read this entry before the tail includes it, and nothing else writes it; zeroed
        // memory is a valid entry.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address as u64);
        entry.set_len(length);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `first` is the start of the ring, where the kernel reads the tail.
        let tail = unsafe { BufRingEntry::tail(self.first.as_ptr()) };
        // SAFETY: the tail is aligned as part of an entry, lives as long as the ring, and is only accessed atomically
        // once the kernel knows of it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the kernel sees the entry's fields before the new tail.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        if self.is_leaked {
            return;
        }
        // SAFETY: the memory was allocated with this layout. The ring, a field before this one, is closed and had no
        // operation in flight.
        unsafe { alloc::dealloc(self.first.as_ptr().cast(), Self::layout(self.entries)) };
    }
}

/// The most requests that are queued between two calls to the kernel. When the queue is full it is submitted early.
const SUBMISSIONS: u32 = 256;

/// The size of the completion queue. Completions that do not fit wait in the kernel.
const COMPLETIONS: u32 = 2048;

/// The one group of provided buffers.
const BUFFER_GROUP: u16 = 0;

const PAGE_BYTES: usize = 4096;

/// A send does not wait in the kernel for room, or its memory would be lent for as long.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// `IORING_RECVSEND_POLL_FIRST`.
const POLL_FIRST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ignores_transient_errors_only() {
        let wait = |errno| ignore_interrupts(Err(io::Error::from_raw_os_error(errno)));
        assert!([libc::EINTR, libc::ETIME, libc::EBUSY, libc::EAGAIN].into_iter().all(|errno| wait(errno).is_ok()));
        assert!([libc::EBADF, libc::EINVAL, libc::ENXIO].into_iter().all(|errno| wait(errno).is_err()));
    }
}
