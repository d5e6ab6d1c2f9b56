//! `Faults`: what goes wrong in a network, how often, and how often it did.

use std::ops::AddAssign;

/// A way in which a network or a kernel makes things hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A segment takes longer than usual. Those behind it wait: bytes keep their order.
    Jitter,
    /// A receive yields less than has arrived.
    ShortRead,
    /// A segment arrives in two pieces, one later than the other.
    SplitRead,
    /// A send takes less than there is room for.
    ShortWrite,
    /// A send takes nothing though there is room.
    WouldBlock,
    /// Both ends of a stream are told that it was reset.
    Reset,
    /// Connecting is refused though somebody listens.
    Refused,
    /// Nothing answers when a host connects.
    TimedOut,
    /// Accepting fails for want of a descriptor.
    NoDescriptor,
    /// The driver's last word on a socket comes some time after it was closed.
    LateClose,
    /// Sockets of a driver get their say in another order than things happened to them.
    Reordered,
    /// The clock leaps ahead, and the time of day leaps either way.
    ClockJump,
}

impl Fault {
    /// All there are.
    pub const ALL: [Self; FAULTS] = [
        Self::Jitter,
        Self::ShortRead,
        Self::SplitRead,
        Self::ShortWrite,
        Self::WouldBlock,
        Self::Reset,
        Self::Refused,
        Self::TimedOut,
        Self::NoDescriptor,
        Self::LateClose,
        Self::Reordered,
        Self::ClockJump,
    ];

    /// Those that no connection may break of.
    pub const BENIGN: [Self; 9] = [
        Self::Jitter,
        Self::ShortRead,
        Self::SplitRead,
        Self::ShortWrite,
        Self::WouldBlock,
        Self::NoDescriptor,
        Self::LateClose,
        Self::Reordered,
        Self::ClockJump,
    ];
}

/// How often each fault strikes.
///
/// ```
/// use tidegate_testkit::network::{Fault, Faults};
///
/// // Everything that is benign, and one segment in fifty resets its stream.
/// let faults = Faults::benign().with(Fault::Reset, 50);
/// # drop(faults);
/// ```
#[derive(Debug, Clone)]
pub struct Faults {
    once_in: [usize; FAULTS],
}

impl Faults {
    /// No fault at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { once_in: [0; FAULTS] }
    }

    /// Those of [`Fault::BENIGN`], each often enough to matter.
    #[must_use]
    pub fn benign() -> Self {
        let faults = Fault::BENIGN.into_iter().fold(Self::none(), |faults, fault| faults.with(fault, 6));
        faults.with(Fault::NoDescriptor, 3).with(Fault::ClockJump, 200)
    }

    /// One occasion in `once_in`, on average, brings this fault; zero is never.
    #[must_use]
    pub const fn with(mut self, fault: Fault, once_in: usize) -> Self {
        self.once_in[fault as usize] = once_in;
        self
    }

    pub(super) const fn once_in(&self, fault: Fault) -> usize {
        self.once_in[fault as usize]
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// How often each fault has struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fired {
    counts: [u64; FAULTS],
}

impl Fired {
    /// How often this one has.
    #[must_use]
    pub const fn count(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    pub(super) const fn note(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }
}

impl AddAssign for Fired {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}

const FAULTS: usize = Fault::ClockJump as usize + 1;
