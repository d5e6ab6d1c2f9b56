//! `FaultRates`: the faults of a network, how often each is to occur, and how often it did.

use std::fmt;
use std::ops::AddAssign;

use crate::random::seeds;

/// A fault of a network or a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// A segment takes longer than usual. The segments behind it wait: bytes stay in order.
    Jitter,
    /// A receive returns fewer bytes than have arrived.
    ShortRead,
    /// A segment arrives in two pieces, one later than the other.
    SplitRead,
    /// A send takes fewer bytes than there is room for.
    ShortWrite,
    /// A send takes nothing though there is room.
    WouldBlock,
    /// Both ends of a stream receive a reset.
    Reset,
    /// A connect is refused although a listener exists.
    Refused,
    /// A connect gets no answer.
    TimedOut,
    /// An accept fails for lack of a descriptor.
    NoDescriptor,
    /// A send buffer shrinks for a while, to between 1 and 2000 bytes.
    FullBuffer,
    /// The end of a stream arrives together with its last bytes, and the driver reports both in the same turn.
    FinWithData,
    /// The completion of a send comes some time after its bytes were taken, as with io_uring.
    LateSend,
    /// A completion of a socket is delayed.
    Delayed,
    /// One completion still comes after receiving or accepting was stopped, as with io_uring.
    LateCancel,
    /// The completion of a close comes some time after the close.
    LateClose,
    /// The driver reports completions of different sockets in another order than they occurred.
    Reordered,
    /// A loop that sleeps is woken late by another loop or thread: a message to it, a broadcast, or the wake-up of a task
    /// waits that long.
    LateWakeUp,
    /// The monotonic clock jumps ahead, and the system time jumps in either direction.
    ClockJump,
}

impl NetworkFault {
    /// All faults.
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
        Self::LateWakeUp,
        Self::ClockJump,
    ];

    /// The faults that must not break any connection.
    pub const BENIGN: [Self; 15] = [
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
        Self::LateWakeUp,
        Self::ClockJump,
    ];
}

/// How often each fault occurs.
///
/// ```
/// use tidegate_testkit::network::{NetworkFault, FaultRates};
///
/// // Everything that is benign, and one segment in fifty resets its stream.
/// let faults = FaultRates::benign().with(NetworkFault::Reset, 50);
/// # drop(faults);
/// ```
#[derive(Debug, Clone)]
pub struct FaultRates {
    once_in: [usize; FAULTS],
}

impl FaultRates {
    /// No fault at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { once_in: [0; FAULTS] }
    }

    /// The faults of [`NetworkFault::BENIGN`], each often enough to matter.
    #[must_use]
    pub fn benign() -> Self {
        let faults = NetworkFault::BENIGN.into_iter().fold(Self::none(), |faults, fault| faults.with(fault, 6));
        faults.with(NetworkFault::NoDescriptor, 3).with(NetworkFault::ClockJump, 200)
    }

    /// The fault occurs at one occasion in `once_in`, on average; zero is never.
    #[must_use]
    pub const fn with(mut self, fault: NetworkFault, once_in: usize) -> Self {
        self.once_in[fault as usize] = once_in;
        self
    }

    pub(super) const fn once_in(&self, fault: NetworkFault) -> usize {
        self.once_in[fault as usize]
    }
}

impl Default for FaultRates {
    fn default() -> Self {
        Self::none()
    }
}

/// How often each fault has occurred. It is displayed as a table, a line for each.
///
/// ```
/// use tidegate_testkit::network::{NetworkFault, FaultRates, FaultCounts, Network};
/// use tidegate_testkit::seeds;
///
/// let mut fault_counts = FaultCounts::default();
/// for seed in seeds(10) {
///     let network = Network::new(seed);
///     network.set_faults(FaultRates::none().with(NetworkFault::Jitter, 6));
///     // ...
///     fault_counts += network.fault_counts();
/// }
/// println!("{fault_counts}");
/// # assert_eq!(fault_counts.to_string().lines().count(), NetworkFault::ALL.len());
/// // A suite in which its faults never occurred has shown nothing.
/// # if false {
/// fault_counts.assert_all(&[NetworkFault::Jitter]);
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    counts: [u64; FAULTS],
}

impl FaultCounts {
    /// How often `fault` has occurred.
    #[must_use]
    pub const fn count(&self, fault: NetworkFault) -> u64 {
        self.counts[fault as usize]
    }

    /// Asserts that each of these faults has occurred. It asserts nothing if `TIDEGATE_SEED` selects a single seed, since
    /// one run need not meet every fault.
    ///
    /// # Panics
    /// With the names of the faults that have not occurred.
    pub fn assert_all(&self, faults: &[NetworkFault]) {
        let missing: Vec<_> = faults.iter().filter(|fault| self.count(**fault) == 0).collect();
        let is_suite = seeds(2).count() > 1;
        assert!(!is_suite || missing.is_empty(), "{missing:?} never occurred; these did:\n{self}");
    }

    pub(super) const fn note(&mut self, fault: NetworkFault) {
        self.counts[fault as usize] += 1;
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.counts.iter().max().map_or(0, |most| most.to_string().len());
        for (place, fault) in NetworkFault::ALL.into_iter().enumerate() {
            let end = if place > 0 { "\n" } else { "" };
            write!(f, "{end}{:<14}{:>width$}", format!("{fault:?}"), self.count(fault))?;
        }
        Ok(())
    }
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}

const FAULTS: usize = NetworkFault::ClockJump as usize + 1;
