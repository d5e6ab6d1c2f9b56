//! `Faults`: what goes wrong in a network, how often, and how often it did.

use std::fmt;
use std::ops::AddAssign;

use crate::random::seeds;

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
    /// A send buffer has room for few bytes only, for a while: one to two thousand.
    FullBuffer,
    /// The end of a stream arrives together with its last bytes, and is told in the same turn as they are.
    FinWithData,
    /// A send is taken, and only some time later told to have been, as io_uring does.
    LateSend,
    /// What happened to a socket is told some time later.
    Delayed,
    /// A completion was on its way when receiving or accepting was stopped, and still comes, as with io_uring: one.
    LateCancel,
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
        Self::FullBuffer,
        Self::FinWithData,
        Self::LateSend,
        Self::Delayed,
        Self::LateCancel,
        Self::LateClose,
        Self::Reordered,
        Self::ClockJump,
    ];

    /// Those that no connection may break of.
    pub const BENIGN: [Self; 14] = [
        Self::Jitter,
        Self::ShortRead,
        Self::SplitRead,
        Self::ShortWrite,
        Self::WouldBlock,
        Self::NoDescriptor,
        Self::FullBuffer,
        Self::FinWithData,
        Self::LateSend,
        Self::Delayed,
        Self::LateCancel,
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

/// How often each fault has struck. It is displayed as a table, a line for each.
///
/// ```
/// use tidegate_testkit::network::{Fault, Faults, Fired, Network};
/// use tidegate_testkit::seeds;
///
/// let mut fired = Fired::default();
/// for seed in seeds(10) {
///     let network = Network::new(seed);
///     network.set_faults(Faults::none().with(Fault::Jitter, 6));
///     // ...
///     fired += network.fired();
/// }
/// println!("{fired}");
/// # assert_eq!(fired.to_string().lines().count(), Fault::ALL.len());
/// // A suite that never met what it is for has shown nothing.
/// # if false {
/// fired.assert_all(&[Fault::Jitter]);
/// # }
/// ```
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

    /// Fails a suite in which one of these never struck. If `TIDEGATE_SEED` asks for one seed only, it does not: one run
    /// need not meet everything.
    ///
    /// # Panics
    /// With the names of those that have not struck.
    pub fn assert_all(&self, faults: &[Fault]) {
        let missing: Vec<_> = faults.iter().filter(|fault| self.count(**fault) == 0).collect();
        let is_suite = seeds(2).count() > 1;
        assert!(!is_suite || missing.is_empty(), "{missing:?} never struck; what did:\n{self}");
    }

    pub(super) const fn note(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }
}

impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.counts.iter().max().map_or(0, |most| most.to_string().len());
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            let end = if place > 0 { "\n" } else { "" };
            write!(f, "{end}{:<14}{:>width$}", format!("{fault:?}"), self.count(fault))?;
        }
        Ok(())
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
