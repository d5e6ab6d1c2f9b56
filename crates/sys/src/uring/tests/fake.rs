//! A fake kernel that injects every fault that a kernel is allowed to have.
//!
//! It makes real calls on real descriptors at random times, and reports their events at random times: late, and in
//! another order than they ended, except that the events of one request keep their order. [`Faults`] bounds the number
//! of faults, so that the kernel becomes idle. It records whether its last wait would have slept.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};

use super::look;
use super::random::Random;
use crate::uring::kernel::{Event, Kernel, RecvMode, Request};

/// How many faults of each kind the kernel may still inject; [`ALWAYS`] is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// Requests that are refused.
    pub(super) refuse: u32,
    /// Waits that complete nothing, and submit only some of the queued requests.
    pub(super) interrupt: u32,
    /// Requests and events that a wait skips.
    pub(super) delay: u32,
    /// Short sends and receives.
    pub(super) shorten: u32,
    /// Multishot requests that end, with or without a result.
    pub(super) lose: u32,
    /// Receives that end for lack of a buffer although the ring has one.
    pub(super) starve: u32,
    /// Cancellations that are too late: the request has just ended.
    pub(super) late: u32,
    /// Cancelled requests whose terminal event is repeated.
    pub(super) repeat: u32,
    /// Events with unknown names.
    pub(super) invent: u32,
    /// Polls that report the same events again.
    pub(super) renotify: u32,
}

/// A submitted request that has not ended.
#[derive(Debug)]
struct Pending {
    name: u64,
    request: Request,
    /// The parts of a send, copied when the request is submitted: headers and vectors may be freed then.
    parts: Vec<(*const u8, usize)>,
    /// The inode of the descriptor, which must not change until the request has ended.
    file: Option<u64>,
    /// Something has happened that the poll has not reported yet.
    changed: bool,
    /// The events that the poll saw last.
    seen: i16,
    /// The request was cancelled, and ends at a random time.
    cancelled: bool,
}

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) faults: Faults,
    /// Takes requests, and neither processes them nor reports events.
    pub(super) idles: bool,
    /// Completes no operation, not even a cancelled one.
    pub(super) stuck: bool,
    /// Reports itself as idle, as if the driver served a single connection.
    pub(super) serves_one: bool,
    /// The last wait would have slept: it reported nothing, and no event would follow by itself.
    pub(super) slept: bool,
    /// The number of waits since one reported something or would have slept.
    pub(super) fruitless: u32,
    /// The timeout of the last wait.
    pub(super) timeout: Option<Duration>,
    /// All submitted requests, in order.
    pub(super) requests: Vec<Request>,
    random: Random,
    /// The most queued requests; when the queue is full it is submitted early.
    pub(super) room: usize,
    queue: VecDeque<(Request, u64)>,
    pending: Vec<Pending>,
    /// Events to report, by request. The completion of a cancellation is a stream of its own.
    streams: Vec<(u64, VecDeque<Event>)>,
    done: VecDeque<Event>,
    ring: VecDeque<(u16, *mut u8, u32)>,
    /// Buffers that were provided and that no event has named yet, whether in the ring or filled.
    pub(super) buffers: HashMap<u16, usize>,
}

impl Fake {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let room = 1 + random.below(40);
        Self {
            faults: Faults::default(),
            idles: false,
            stuck: false,
            serves_one: false,
            slept: false,
            fruitless: 0,
            timeout: None,
            requests: Vec::new(),
            random,
            room,
            queue: VecDeque::new(),
            pending: Vec::new(),
            streams: Vec::new(),
            done: VecDeque::new(),
            ring: VecDeque::new(),
            buffers: HashMap::new(),
        }
    }

    /// Marks the polls of a descriptor as changed: something has happened to it from outside.
    pub(super) fn notify(&mut self, fd: RawFd) {
        for pending in &mut self.pending {
            pending.changed |= fd_of(&pending.request) == Some(fd);
        }
    }

    /// The number of buffers in the ring.
    pub(super) fn ring(&self) -> usize {
        self.ring.len()
    }

    /// The number of requests in flight for this descriptor.
    pub(super) fn in_flight(&self, fd: RawFd) -> usize {
        self.pending.iter().filter(|pending| fd_of(&pending.request) == Some(fd)).count()
    }

    /// Injects an event, before all others.
    pub(super) fn inject(&mut self, event: Event) {
        self.done.push_back(event);
    }

    /// Ends the request of this name with this result.
    pub(super) fn lose(&mut self, name: u64, result: i32, buffer: Option<u16>) {
        self.submit_some(usize::MAX);
        let place = self.pending.iter().position(|pending| pending.name == name).expect("it has the request");
        self.pending.remove(place);
        self.put(Event { name, result, more: false, buffer, nonempty: false });
    }

    /// Takes a buffer out of the ring, as a receive without a result may do.
    pub(super) fn take_buffer(&mut self) -> u16 {
        self.ring.pop_front().expect("a buffer").0
    }

    /// Whether to inject a fault of this kind now. Counts it.
    fn injects(&mut self, once_in: usize, of: impl Fn(&mut Faults) -> &mut u32) -> bool {
        let left = of(&mut self.faults);
        match *left {
            ALWAYS => true,
            0 => false,
            _ if self.random.below(once_in) > 0 => false,
            _ => {
                *left -= 1;
                true
            }
        }
    }

    fn put(&mut self, event: Event) {
        match self.streams.iter_mut().find(|(name, _)| *name == event.name) {
            Some((_, events)) => events.push_back(event),
            None => self.streams.push((event.name, VecDeque::from([event]))),
        }
    }

    fn submit_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some((request, name)) = self.queue.pop_front() else { return };
            self.requests.push(request);
            if let Request::Cancel { name: of } = request {
                self.cancel(of, name);
                continue;
            }
            let twin = self.pending.iter().any(|pending| pending.name == name);
            assert!(!twin, "two requests of the same name: {request:?}");
            let fd = fd_of(&request).expect("only cancellations have no descriptor");
            let file = Some(inode(fd).expect("the request is for an open descriptor"));
            let parts = parts_of(&request);
            let changed = true;
            self.pending.push(Pending { name, request, parts, file, changed, seen: 0, cancelled: false });
        }
    }

    fn cancel(&mut self, name: u64, own: u64) {
        let result = match self.pending.iter().position(|pending| pending.name == name) {
            None => -libc::ENOENT,
            Some(_) if self.stuck => 0,
            Some(place) => {
                // The request may have ended just before.
                if self.injects(2, |faults| &mut faults.late) {
                    self.run(place);
                }
                match self.pending.iter().position(|pending| pending.name == name) {
                    None => -libc::ENOENT,
                    Some(place) => {
                        self.pending[place].cancelled = true;
                        if !self.injects(2, |faults| &mut faults.delay) {
                            self.end(place);
                        }
                        0
                    }
                }
            }
        };
        self.put(Event { name: own, result, more: false, buffer: None, nonempty: false });
    }

    /// Ends a cancelled request.
    fn end(&mut self, place: usize) {
        let pending = self.pending.remove(place);
        let event = Event { name: pending.name, result: -libc::ECANCELED, more: false, buffer: None, nonempty: false };
        // A cancelled receive may have taken a buffer.
        let takes = matches!(pending.request, Request::Receive { .. }) && self.random.below(4) == 0;
        let buffer = if takes { self.ring.pop_front().map(|(buffer, ..)| buffer) } else { None };
        self.put(Event { buffer, ..event });
    }

    /// Tries to make progress on a request.
    fn run(&mut self, place: usize) {
        let pending = &self.pending[place];
        let (name, request) = (pending.name, pending.request);
        let fd = fd_of(&request).expect("only cancellations have no descriptor");
        assert_eq!(inode(fd), pending.file, "closed while the kernel had {request:?}");
        // SAFETY: the descriptor is open, as asserted above.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let end = |result| Event { name, result, more: false, buffer: None, nonempty: false };
        let event = match request {
            Request::Receive { mode, .. } => self.receive(file, name, mode),
            Request::Send { .. } | Request::SendMessage { .. } => self.send(file, place).map(end),
            Request::Poll { events, multishot, .. } => self.poll(place, events, multishot),
            Request::Cancel { .. } => None,
        };
        if let Some(event) = event {
            if !event.more {
                self.pending.remove(place);
            }
            self.put(event);
        }
    }

    fn receive(&mut self, file: BorrowedFd<'_>, name: u64, mode: RecvMode) -> Option<Event> {
        let more = mode == RecvMode::Always;
        let end = |result| Event { name, result, more: false, buffer: None, nonempty: false };
        if more && self.injects(8, |faults| &mut faults.lose) {
            return Some(end(-[libc::ECANCELED, libc::EINTR, libc::EAGAIN][self.random.below(3)]));
        }
        if self.injects(8, |faults| &mut faults.starve) {
            return Some(end(-libc::ENOBUFS));
        }
        let Some(&(buffer, address, length)) = self.ring.front() else {
            return (look(file.as_raw_fd(), libc::POLLIN) != 0).then(|| end(-libc::ENOBUFS));
        };
        let mut length = length as usize;
        if self.injects(6, |faults| &mut faults.shorten) {
            length = 1 + self.random.below(length);
        }
        // SAFETY: the driver has provided the memory, initialised and of at least this length, and the kernel owns it
        // until an event names it.
        let space = unsafe { std::slice::from_raw_parts_mut(address, length) };
        match rustix::net::recv(file, space, RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => None,
            Err(errno) => Some(end(-errno.raw_os_error())),
            Ok((0, _)) => Some(end(0)),
            Ok((length, _)) => {
                self.ring.pop_front();
                let more = more && !self.injects(8, |faults| &mut faults.lose);
                let nonempty = look(file.as_raw_fd(), libc::POLLIN) != 0;
                Some(Event { name, result: length as i32, more, buffer: Some(buffer), nonempty })
            }
        }
    }

    fn send(&mut self, file: BorrowedFd<'_>, place: usize) -> Option<i32> {
        let parts = self.pending[place].parts.clone();
        let mut bytes = Vec::new();
        for (first, length) in parts {
            // SAFETY: the driver keeps the bytes of a send in place until the terminal event. This fake kernel tests
            // that: otherwise the peer reads other bytes.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(first, length) });
        }
        if self.injects(4, |faults| &mut faults.shorten) {
            bytes.truncate(1 + self.random.below(bytes.len()));
        }
        match rustix::net::send(file, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::AGAIN) => (self.random.below(2) == 0).then_some(-libc::EAGAIN),
            Err(errno) => Some(-errno.raw_os_error()),
            Ok(sent) => Some(sent as i32),
        }
    }

    fn poll(&mut self, place: usize, events: i16, multishot: bool) -> Option<Event> {
        let renotifies = multishot && self.injects(8, |faults| &mut faults.renotify);
        let loses = multishot && self.injects(8, |faults| &mut faults.lose);
        let fd = fd_of(&self.pending[place].request)?;
        let mask = look(fd, events);
        let pending = &mut self.pending[place];
        let news = std::mem::take(&mut pending.changed) || mask != pending.seen;
        pending.seen = mask;
        let event = |result, more| Event { name: pending.name, result, more, buffer: None, nonempty: false };
        match mask {
            0 if loses => Some(event(-libc::ECANCELED, false)),
            0 => None,
            mask if news || renotifies || !multishot => Some(event(i32::from(mask), multishot && !loses)),
            _ => None,
        }
    }

    /// Makes progress on the requests in flight, in random order. Skips some, unless `all`.
    fn work(&mut self, all: bool) {
        if self.stuck {
            return;
        }
        let mut names: Vec<_> = self.pending.iter().map(|pending| pending.name).collect();
        for last in (1..names.len()).rev() {
            names.swap(last, self.random.below(last + 1));
        }
        for name in names {
            if !all && self.injects(2, |faults| &mut faults.delay) {
                continue;
            }
            let Some(place) = self.pending.iter().position(|pending| pending.name == name) else { continue };
            if self.pending[place].cancelled {
                self.end(place);
                continue;
            }
            // A multishot request may have several events at once.
            for _ in 0..1 + self.random.below(4) {
                if let Some(place) = self.pending.iter().position(|pending| pending.name == name) {
                    self.run(place);
                }
            }
        }
    }

    /// Reports events in random order; events of one stream keep theirs. Leaves some, unless `all`.
    pub(super) fn deliver(&mut self, all: bool) {
        while !self.streams.is_empty() {
            if !all && self.injects(3, |faults| &mut faults.delay) {
                return;
            }
            let stream = self.random.below(self.streams.len());
            let (_, events) = &mut self.streams[stream];
            let event = events.pop_front().expect("streams are not empty");
            if events.is_empty() {
                self.streams.swap_remove(stream);
            }
            self.done.push_back(event);
            let again = event.result == -libc::ECANCELED && event.buffer.is_none();
            if again && self.injects(2, |faults| &mut faults.repeat) {
                self.done.push_back(event);
            }
        }
    }

    fn invent(&mut self) {
        if self.injects(4, |faults| &mut faults.invent) {
            let name = self.random.bits();
            let more = self.random.below(2) == 0;
            self.done.push_back(Event { name, result: -libc::ECANCELED, more, buffer: None, nonempty: false });
        }
    }
}

impl Kernel for Fake {
    fn push(&mut self, request: Request, name: u64) -> io::Result<()> {
        if self.injects(4, |faults| &mut faults.refuse) {
            let errno = [libc::EBUSY, libc::EAGAIN, libc::EINTR][self.random.below(3)];
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.queue.len() >= self.room {
            self.submit_some(usize::MAX);
        }
        self.queue.push_back((request, name));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.injects(4, |faults| &mut faults.refuse) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.submit_some(usize::MAX);
        Ok(())
    }

    fn queued(&mut self) -> usize {
        self.queue.len()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        (self.slept, self.timeout) = (false, timeout);
        if self.injects(4, |faults| &mut faults.interrupt) {
            let some = self.random.below(self.queue.len() + 1);
            self.submit_some(some);
            return Ok(());
        }
        self.submit_some(usize::MAX);
        if self.idles {
            return Ok(());
        }
        self.work(false);
        self.invent();
        self.deliver(false);
        if self.done.is_empty() && timeout != Some(Duration::ZERO) {
            self.work(true);
            self.deliver(true);
            self.slept = self.done.is_empty();
        }
        self.fruitless = if self.slept || !self.done.is_empty() { 0 } else { self.fruitless + 1 };
        assert!(self.fruitless < IDLE_WAITS_MAX, "the driver spins");
        Ok(())
    }

    fn has_deferred_work(&mut self) -> bool {
        !self.streams.is_empty()
    }

    fn is_idle(&mut self) -> bool {
        self.serves_one
    }

    fn completions(&mut self) -> usize {
        self.done.len()
    }

    fn next(&mut self) -> Option<Event> {
        let event = self.done.pop_front()?;
        if let Some(buffer) = event.buffer {
            self.buffers.remove(&buffer);
        }
        Some(event)
    }

    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32) {
        let before = self.buffers.insert(buffer, address as usize);
        assert!(before.is_none(), "buffer {buffer} is provided twice");
        self.ring.push_back((buffer, address, length));
    }
}

fn fd_of(request: &Request) -> Option<RawFd> {
    match request {
        Request::Receive { fd, .. }
        | Request::Send { fd, .. }
        | Request::SendMessage { fd, .. }
        | Request::Poll { fd, .. } => Some(*fd),
        Request::Cancel { .. } => None,
    }
}

/// The parts of a send. Copies the vectors, but not the bytes.
fn parts_of(request: &Request) -> Vec<(*const u8, usize)> {
    match *request {
        Request::Send { bytes, length, .. } => vec![(bytes, length as usize)],
        Request::SendMessage { header, .. } => {
            // SAFETY: the driver keeps the header until the request is submitted, which is now.
            let header = unsafe { *header };
            // SAFETY: the driver keeps the vectors that the header points to for as long.
            let vectors = unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen as _) };
            vectors.iter().map(|vector| (vector.iov_base.cast_const().cast(), vector.iov_len)).collect()
        }
        _ => Vec::new(),
    }
}

/// The inode of a descriptor, if it is open.
fn inode(fd: RawFd) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor may be closed or reused: the call only queries the inode, and fails if it is closed.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fstat(file).ok().map(|stat| stat.st_ino)
}

/// The fault is injected at every opportunity.
pub(super) const ALWAYS: u32 = u32::MAX;

/// More waits in a row than this that find nothing and may not sleep mean that the driver spins.
const IDLE_WAITS_MAX: u32 = 100;
