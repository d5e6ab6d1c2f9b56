//! `FaultyKernel`: a kernel wrapper that injects faults. It makes the rare behaviour of a real kernel frequent.
//!
//! Only a build with `--cfg tidegate_injected` contains it. `TIDEGATE_RING_FAULTS` is the seed, which decides the kinds
//! of faults and their rates; without a seed the wrapper passes everything through. No fault breaks a connection: if a
//! driver over this kernel loses something, the driver has a bug. The real kernel has its own timing, so a seed does
//! not reproduce a run exactly, but the kinds of faults and their rates are the same.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::io;
use std::time::Duration;

use super::kernel::{Event, Kernel, RecvMode, Request};
use super::operation::{GENERATION_MASK, Kind, NO_SOCKET, name, parse};
use crate::driver::Token;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The queue has no room for a request, and cannot be submitted.
    Full,
    /// A wait submits nothing.
    NotSubmitted,
    /// A request ends without effect.
    Failed,
    /// A send is shorter than requested.
    Short,
    /// A multishot operation ends.
    Dropped,
    /// An event is reported after later ones.
    Late,
    /// An event is reported before earlier ones.
    Early,
    /// A provided buffer reaches the ring late.
    Withheld,
    /// An event is repeated under the name of the slot's previous occupant.
    Repeated,
}

/// A kernel that injects faults into another one.
pub(super) struct FaultyKernel<K> {
    kernel: K,
    faults: Option<Faults>,
    /// Multishot operations that have not ended.
    multishot: BTreeMap<u64, Request>,
    /// Those of them that the wrapper has cancelled.
    dropped: BTreeSet<u64>,
    /// Events that the kernel has reported and the wrapper still delays.
    late: VecDeque<Event>,
    /// Events that the driver can read in this turn.
    ready: VecDeque<Event>,
    withheld: Vec<(u16, *mut u8, u32)>,
    /// The last request was refused, or the last wait has submitted nothing. Neither happens twice in succession: a kernel
    /// that takes no requests for long fills no buffers meanwhile.
    refused: bool,
    skipped: bool,
}

impl<K: Kernel> FaultyKernel<K> {
    /// Wraps a kernel.
    pub(super) fn new(kernel: K) -> Self {
        Self {
            kernel,
            faults: Faults::from_environment(),
            multishot: BTreeMap::new(),
            dropped: BTreeSet::new(),
            late: VecDeque::new(),
            ready: VecDeque::new(),
            withheld: Vec::new(),
            refused: false,
            skipped: false,
        }
    }

    fn occurs(&mut self, fault: Fault) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.occurs(fault))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.faults.as_mut().map_or(0, |faults| faults.below(bound))
    }

    /// Cancels one multishot operation without a request of the driver.
    fn drop_one(&mut self) {
        // Each cancellation causes a few more turns, which may cancel again. The rate is low enough for this to end.
        if self.below(4) > 0 || !self.occurs(Fault::Dropped) {
            return;
        }
        let place = self.below(self.multishot.len());
        let Some(operation) = self.multishot.keys().nth(place).copied() else { return };
        if self.kernel.push(Request::Cancel { name: operation }, name(NO_SOCKET, Kind::Cancel)).is_ok() {
            self.dropped.insert(operation);
        }
    }

    /// Reads the kernel's events.
    fn gather(&mut self) {
        for _ in 0..self.kernel.completions() {
            let Some(mut event) = self.kernel.next() else { return };
            let repeated = self.old(event);
            if !event.more {
                let was = self.multishot.remove(&event.name);
                let receives = matches!(was, Some(Request::Receive { .. }));
                if self.dropped.remove(&event.name) && receives && event.was_cancelled() && self.below(2) == 0 {
                    event.result = -libc::ENOBUFS;
                }
            }
            self.late.push_back(event);
            self.late.extend(repeated);
        }
    }

    /// An event of the same kind, named after the slot's previous occupant.
    fn old(&mut self, event: Event) -> Option<Event> {
        let (slot, generation, kind) = parse(event.name);
        let result = match kind {
            Kind::Receive => 0,
            Kind::Send => 1,
            Kind::Writable => i32::from(libc::POLLOUT),
            Kind::HangUp => i32::from(libc::POLLERR),
            Kind::Accept => -libc::EMFILE,
            Kind::Wake | Kind::Cancel => return None,
        };
        let generation = (generation.wrapping_sub(1)) & GENERATION_MASK as u32;
        let name = name(Token { slot, generation }, kind);
        let old = Event { name, result, more: false, buffer: None, nonempty: false };
        self.occurs(Fault::Repeated).then_some(old)
    }

    /// Chooses the events of this turn, and their order. Events of one socket keep their order: if a send took the
    /// error of a broken connection, the receive after it finds the end of the stream.
    fn choose(&mut self) {
        let slot = |event: &Event| parse(event.name).0;
        let mut delayed = BTreeSet::new();
        for event in std::mem::take(&mut self.late) {
            if delayed.contains(&slot(&event)) || self.occurs(Fault::Late) {
                delayed.insert(slot(&event));
                self.late.push_back(event);
                continue;
            }
            let mut place = self.ready.len();
            if self.occurs(Fault::Early) {
                let first = self.ready.iter().rposition(|other| slot(other) == slot(&event)).map_or(0, |last| last + 1);
                place = first + self.below(place + 1 - first);
            }
            self.ready.insert(place, event);
        }
    }

    fn provide_withheld(&mut self) {
        for (buffer, address, length) in std::mem::take(&mut self.withheld) {
            self.kernel.provide(buffer, address, length);
        }
    }
}

impl<K: Kernel> Kernel for FaultyKernel<K> {
    fn push(&mut self, request: Request, name: u64) -> io::Result<()> {
        if self.faults.is_none() {
            return self.kernel.push(request, name);
        }
        self.refused = self.occurs(Fault::Full) && !self.refused;
        if self.refused {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        if !matches!(request, Request::Cancel { .. }) && self.occurs(Fault::Failed) {
            let errors = harmless(request);
            let result = -errors[self.below(errors.len())];
            self.late.push_back(Event { name, result, more: false, buffer: None, nonempty: false });
            return Ok(());
        }
        let request = if self.occurs(Fault::Short) { shorter(request, |bound| self.below(bound)) } else { request };
        self.kernel.push(request, name)?;
        if is_multishot(request) {
            self.multishot.insert(name, request);
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.occurs(Fault::Full) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.kernel.submit()
    }

    fn queued(&mut self) -> usize {
        self.kernel.queued()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.faults.is_none() {
            return self.kernel.wait(timeout);
        }
        if self.below(2) == 0 {
            self.provide_withheld();
        }
        // A loop with nothing to do gets no faults, so that it can sleep.
        let is_busy = self.kernel.queued() > 0 || !self.late.is_empty();
        if is_busy {
            self.drop_one();
        }
        self.skipped = is_busy && self.occurs(Fault::NotSubmitted) && !self.skipped;
        if !self.skipped {
            let may_block = self.late.is_empty() && self.ready.is_empty();
            self.kernel.wait(if may_block { timeout } else { Some(Duration::ZERO) })?;
        }
        self.gather();
        self.choose();
        Ok(())
    }

    fn has_deferred_work(&mut self) -> bool {
        self.kernel.has_deferred_work()
    }

    fn is_idle(&mut self) -> bool {
        // With faults, everything goes through the ring, where the faults are injected.
        self.faults.is_none() && self.kernel.is_idle()
    }

    fn completions(&mut self) -> usize {
        if self.faults.is_none() { self.kernel.completions() } else { self.ready.len() }
    }

    fn next(&mut self) -> Option<Event> {
        if self.faults.is_none() { self.kernel.next() } else { self.ready.pop_front() }
    }

    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32) {
        if self.occurs(Fault::Withheld) {
            self.withheld.push((buffer, address, length));
        } else {
            self.kernel.provide(buffer, address, length);
        }
    }

    fn leak(&mut self) {
        self.kernel.leak();
    }
}

/// Whether the request has many events.
const fn is_multishot(request: Request) -> bool {
    matches!(request, Request::Receive { mode: RecvMode::Always, .. } | Request::Poll { multishot: true, .. })
}

/// The errors with which a request can end without an effect on its socket.
const fn harmless(request: Request) -> &'static [i32] {
    match request {
        Request::Receive { .. } => &[libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::ENOBUFS],
        // Without EAGAIN: the driver then waits for an edge of the poll, which would not come.
        Request::Send { .. } | Request::SendMessage { .. } => &[libc::ECANCELED, libc::EINTR],
        _ => &[libc::ECANCELED, libc::EINTR, libc::EAGAIN],
    }
}

/// A shorter send; of a message, some of its first part.
fn shorter(request: Request, mut below: impl FnMut(usize) -> usize) -> Request {
    let (fd, bytes, length) = match request {
        Request::Send { fd, bytes, length } => (fd, bytes, length as usize),
        Request::SendMessage { fd, header } => {
            // SAFETY: the driver keeps a header until the next submission.
            let header = unsafe { &*header };
            // SAFETY: the driver keeps the parts as well, and there is at least one.
            let part = unsafe { &*header.msg_iov };
            (fd, part.iov_base.cast_const().cast(), part.iov_len)
        }
        other => return other,
    };
    Request::Send { fd, bytes, length: 1 + below(length) as u32 }
}

/// The source of faults, from a seed.
struct Faults {
    state: u64,
    /// The probability of each fault, in 256ths.
    rates: [u8; FAULTS],
}

impl Faults {
    /// Seeded by `TIDEGATE_RING_FAULTS`, the number of rings that this thread has made, and the thread's name, which is
    /// the test's.
    fn from_environment() -> Option<Self> {
        thread_local!(static RINGS: Cell<u64> = const { Cell::new(0) });
        let seed: u64 = match std::env::var("TIDEGATE_RING_FAULTS") {
            Ok(seed) => seed.parse().expect("TIDEGATE_RING_FAULTS is a number"),
            Err(_) => return None,
        };
        let mut hasher = DefaultHasher::new();
        std::thread::current().name().hash(&mut hasher);
        (seed, RINGS.replace(RINGS.get() + 1)).hash(&mut hasher);
        let mut faults = Self { state: hasher.finish(), rates: [0; FAULTS] };
        faults.rates = std::array::from_fn(|_| RATES[faults.below(RATES.len())]);
        Some(faults)
    }

    fn occurs(&mut self, fault: Fault) -> bool {
        self.below(256) < usize::from(self.rates[fault as usize])
    }

    /// A number below `bound`: splitmix64, Steele, Lea and Flood 2014.
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % bound.max(1) as u64) as usize
    }
}

const FAULTS: usize = Fault::Repeated as usize + 1;

/// Never, now and then, often, most of the time.
const RATES: [u8; 4] = [0, 8, 32, 100];
