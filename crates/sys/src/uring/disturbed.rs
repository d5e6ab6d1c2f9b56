//! `Disturbed`: a kernel with bad luck. What a real one does now and then it does often.
//!
//! Only a build with `--cfg tidegate_injected` has it. `TIDEGATE_RING_FAULTS` is the seed that says what goes wrong,
//! and how often; without one everything is passed through. Nothing that it does breaks a connection: what is lost in a
//! driver over it is lost by a bug of the driver. The real kernel beneath goes at its own pace, so a seed does not
//! repeat a run to the letter, but what strikes, and how often, is the same.

use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::io;
use std::time::Duration;

use super::NOBODY;
use super::kernel::{Event, Kernel, RecvMode, Request};
use super::operation::{GENERATION_MASK, Kind, name, parse};
use crate::driver::Token;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// There is no room for a request, and none can be made.
    Full,
    /// Nothing is submitted by a wait.
    NotSubmitted,
    /// A request comes to nothing.
    Failed,
    /// Less is sent than was asked for.
    Short,
    /// An operation that was to go on ends.
    Dropped,
    /// An event is told later than others.
    Late,
    /// An event is told before others.
    Early,
    /// A buffer is not there yet.
    Withheld,
    /// An event is told again, for the slot's user before.
    Repeated,
}

/// The kernel.
pub(super) struct Disturbed<K> {
    kernel: K,
    luck: Option<Luck>,
    /// Operations that were to go on, and go on.
    lasting: BTreeMap<u64, Request>,
    /// Those of them that are made to end.
    dropped: BTreeSet<u64>,
    /// Events that the kernel has told, and the driver has not heard of.
    late: VecDeque<Event>,
    /// Those that it hears of in this turn.
    ready: VecDeque<Event>,
    withheld: Vec<(u16, *mut u8, u32)>,
}

impl<K: Kernel> Disturbed<K> {
    /// A kernel over another one.
    pub(super) fn new(kernel: K) -> Self {
        Self {
            kernel,
            luck: Luck::of_environment(),
            lasting: BTreeMap::new(),
            dropped: BTreeSet::new(),
            late: VecDeque::new(),
            ready: VecDeque::new(),
            withheld: Vec::new(),
        }
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        self.luck.as_mut().is_some_and(|luck| luck.strikes(fault))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.luck.as_mut().map_or(0, |luck| luck.below(bound))
    }

    /// Has the kernel end what nobody wants to end.
    fn drop_one(&mut self) {
        // Each makes a few turns more, in which it may strike again: seldom enough, or it would go on for ever.
        if self.below(4) > 0 || !self.strikes(Fault::Dropped) {
            return;
        }
        let place = self.below(self.lasting.len());
        let Some(operation) = self.lasting.keys().nth(place).copied() else { return };
        if self.kernel.push(Request::Cancel { name: operation }, name(NOBODY, Kind::Cancel)).is_ok() {
            self.dropped.insert(operation);
        }
    }

    /// Takes in what the kernel tells.
    fn gather(&mut self) {
        for _ in 0..self.kernel.completions() {
            let Some(mut event) = self.kernel.next() else { return };
            let repeated = self.old(event);
            if !event.more {
                let was = self.lasting.remove(&event.name);
                let receives = matches!(was, Some(Request::Receive { .. }));
                if self.dropped.remove(&event.name) && receives && event.came_to_nothing() && self.below(2) == 0 {
                    event.result = -libc::ENOBUFS;
                }
            }
            self.late.push_back(event);
            self.late.extend(repeated);
        }
    }

    /// The same of an operation that nobody has any more.
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
        self.strikes(Fault::Repeated).then_some(old)
    }

    /// Chooses what is heard of in this turn, and in which order. Events of one socket stay in theirs: a send that took
    /// the error of a broken connection is why a receive finds its end.
    fn choose(&mut self) {
        let slot = |event: &Event| parse(event.name).0;
        let mut held = BTreeSet::new();
        for event in std::mem::take(&mut self.late) {
            if held.contains(&slot(&event)) || self.strikes(Fault::Late) {
                held.insert(slot(&event));
                self.late.push_back(event);
                continue;
            }
            let mut place = self.ready.len();
            if self.strikes(Fault::Early) {
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

impl<K: Kernel> Kernel for Disturbed<K> {
    fn push(&mut self, request: Request, name: u64) -> io::Result<()> {
        if self.luck.is_none() {
            return self.kernel.push(request, name);
        }
        if self.strikes(Fault::Full) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        if !matches!(request, Request::Cancel { .. }) && self.strikes(Fault::Failed) {
            let errors = harmless(request);
            let result = -errors[self.below(errors.len())];
            self.late.push_back(Event { name, result, more: false, buffer: None, nonempty: false });
            return Ok(());
        }
        let request = if self.strikes(Fault::Short) { shorter(request, |bound| self.below(bound)) } else { request };
        self.kernel.push(request, name)?;
        if lasts(request) {
            self.lasting.insert(name, request);
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.strikes(Fault::Full) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.kernel.submit()
    }

    fn queued(&mut self) -> usize {
        self.kernel.queued()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.luck.is_none() {
            return self.kernel.wait(timeout);
        }
        if self.below(2) == 0 {
            self.provide_withheld();
        }
        // A loop with nothing to do is let alone: it is to sleep.
        let is_busy = self.kernel.queued() > 0 || !self.late.is_empty();
        if is_busy {
            self.drop_one();
        }
        if !(is_busy && self.strikes(Fault::NotSubmitted)) {
            let rests = self.late.is_empty() && self.ready.is_empty();
            self.kernel.wait(if rests { timeout } else { Some(Duration::ZERO) })?;
        }
        self.gather();
        self.choose();
        Ok(())
    }

    fn has_deferred_work(&mut self) -> bool {
        self.kernel.has_deferred_work()
    }

    fn is_idle(&mut self) -> bool {
        // Under bad luck everything goes by the ring, where luck is had.
        self.luck.is_none() && self.kernel.is_idle()
    }

    fn completions(&mut self) -> usize {
        if self.luck.is_none() { self.kernel.completions() } else { self.ready.len() }
    }

    fn next(&mut self) -> Option<Event> {
        if self.luck.is_none() { self.kernel.next() } else { self.ready.pop_front() }
    }

    fn provide(&mut self, buffer: u16, address: *mut u8, length: u32) {
        if self.strikes(Fault::Withheld) {
            self.withheld.push((buffer, address, length));
        } else {
            self.kernel.provide(buffer, address, length);
        }
    }

    fn leak(&mut self) {
        self.kernel.leak();
    }
}

/// Whether many events come of it.
const fn lasts(request: Request) -> bool {
    matches!(request, Request::Receive { wish: RecvMode::Always, .. } | Request::Poll { multishot: true, .. })
}

/// How a request can end without anything having happened to its socket.
const fn harmless(request: Request) -> &'static [i32] {
    match request {
        Request::Receive { .. } => &[libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::ENOBUFS],
        // That there is no room is said of a send only where an edge will follow.
        Request::Send { .. } | Request::SendMessage { .. } => &[libc::ECANCELED, libc::EINTR],
        _ => &[libc::ECANCELED, libc::EINTR, libc::EAGAIN],
    }
}

/// A send of less: of a message, some of its first part.
fn shorter(request: Request, mut below: impl FnMut(usize) -> usize) -> Request {
    let (fd, bytes, length) = match request {
        Request::Send { fd, bytes, length } => (fd, bytes, length as usize),
        Request::SendMessage { fd, header } => {
            // SAFETY: the driver keeps a header until the next submission.
            let header = unsafe { &*header };
            // SAFETY: it keeps the parts as well, and there is one at least.
            let part = unsafe { &*header.msg_iov };
            (fd, part.iov_base.cast_const().cast(), part.iov_len)
        }
        other => return other,
    };
    Request::Send { fd, bytes, length: 1 + below(length) as u32 }
}

/// What strikes next, by a seed.
struct Luck {
    state: u64,
    /// Of 256 occasions, how many each fault strikes at.
    rates: [u8; FAULTS],
}

impl Luck {
    /// That of `TIDEGATE_RING_FAULTS`, with as many rings as this thread has made, and its name, which is the test's.
    fn of_environment() -> Option<Self> {
        thread_local!(static RINGS: Cell<u64> = const { Cell::new(0) });
        let seed: u64 = match std::env::var("TIDEGATE_RING_FAULTS") {
            Ok(seed) => seed.parse().expect("TIDEGATE_RING_FAULTS is a number"),
            Err(_) => return None,
        };
        let mut hasher = DefaultHasher::new();
        std::thread::current().name().hash(&mut hasher);
        (seed, RINGS.replace(RINGS.get() + 1)).hash(&mut hasher);
        let mut luck = Self { state: hasher.finish(), rates: [0; FAULTS] };
        luck.rates = std::array::from_fn(|_| RATES[luck.below(RATES.len())]);
        Some(luck)
    }

    fn strikes(&mut self, fault: Fault) -> bool {
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
