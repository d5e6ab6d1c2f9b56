//! Bugs that can be injected, to show that the tests detect them. A usual build has none: only a build with `--cfg
//! tidegate_injected` reads the environment; in all others the compiler removes the check.
//!
//! Each is a bug that a real event loop once had. `cargo xtask injected` injects one after the other and runs the contract
//! tests of drivers, which must fail each time.

/// A bug that can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// After a partial or refused send, the driver never reports that the connection can send again.
    NoRearm,
    /// A write position counts as flushed when the byte before it was sent.
    WritePositionOffByOne,
    /// A message to a sleeping loop does not wake it.
    LostWakeUp,
    /// A slot in use is allocated a second time, as after a double free.
    DoubleSlotAllocation,
    /// The handler receives the writable event twice.
    WritableTwice,
    /// The end of the stream is not reported if it follows bytes directly.
    EofLost,
    /// Clearing a queue does not release its bytes from the ledger.
    LedgerNotCharged,
    /// After a partial write the next one starts with a whole part again.
    PartRestarted,
    /// When a queue has more parts than one write takes, the parts beyond the limit count as sent as well.
    PartsBeyondLimitLost,
    /// A file that is shorter than its region counts as sent.
    ShortFile,
    /// A paused connection receives messages.
    PauseIgnored,
    /// A deadline that is moved back never fires.
    DeadlineLost,
    /// After a failed accept, accepting does not resume.
    AcceptNotResumed,
    /// Messages posted in one iteration are delivered in reverse order.
    PostsReversed,
    /// The end of the peer's stream is reported twice.
    EofReportedTwice,
    /// A send after our own shutdown is accepted.
    SentAfterShutdown,
    /// Received bytes that are not decoded are lost when a message is incomplete.
    PartialInputLost,
    /// A close does not wait until the last bytes are sent.
    ClosedBeforeFlush,
    /// A handler receives no closed event when its connection breaks.
    ClosedEventLost,
    /// An unwritable connection continues to read.
    NoBackPressure,
    /// Memory is received into again although a view of it still exists.
    ViewOverwritten,
    /// A send counts as done when it is submitted, and its memory as free.
    SendDoneAtSubmit,
    /// The header of a message serves the next one before it was submitted.
    HeaderReusedEarly,
    /// A cancelled operation counts as finished before its last completion.
    CancelDoneAtSubmit,
    /// A socket is closed although an operation on it is still in the kernel.
    ClosedDuringOperation,
    /// An event for the earlier occupant of a slot is accepted.
    StaleEventAccepted,
    /// A receive that found no buffer is not submitted again.
    StarvedReceiveLost,
    /// A buffer is not returned after it was read.
    BufferLeaked,
    /// A direct receive overtakes bytes that the ring has not yet reported.
    DirectReceiveReordered,
    /// A stream that closes keeps the part of its session's window that it occupies.
    WindowLeaked,
    /// A stream is not notified when its session has taken bytes and it is writable again.
    StreamLevelLost,
    /// A reset behind the end of a stream discards bytes received before.
    ResetAfterEnd,
    /// A session reads nothing while one of its streams has unread bytes.
    SessionStopsReading,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 33] = [
        Self::NoRearm,
        Self::WritePositionOffByOne,
        Self::LostWakeUp,
        Self::DoubleSlotAllocation,
        Self::WritableTwice,
        Self::EofLost,
        Self::LedgerNotCharged,
        Self::PartRestarted,
        Self::PartsBeyondLimitLost,
        Self::ShortFile,
        Self::PauseIgnored,
        Self::DeadlineLost,
        Self::AcceptNotResumed,
        Self::PostsReversed,
        Self::EofReportedTwice,
        Self::SentAfterShutdown,
        Self::PartialInputLost,
        Self::ClosedBeforeFlush,
        Self::ClosedEventLost,
        Self::NoBackPressure,
        Self::ViewOverwritten,
        Self::SendDoneAtSubmit,
        Self::HeaderReusedEarly,
        Self::CancelDoneAtSubmit,
        Self::ClosedDuringOperation,
        Self::StaleEventAccepted,
        Self::StarvedReceiveLost,
        Self::BufferLeaked,
        Self::DirectReceiveReordered,
        Self::WindowLeaked,
        Self::StreamLevelLost,
        Self::ResetAfterEnd,
        Self::SessionStopsReading,
    ];
}

/// Whether this one is injected: `TIDEGATE_INJECTED` names it.
#[cfg(tidegate_injected)]
#[must_use]
pub fn is_injected(bug: Bug) -> bool {
    injected() == Some(bug)
}

/// Whether this one is injected: never in this build.
#[cfg(not(tidegate_injected))]
#[inline(always)]
#[must_use]
pub const fn is_injected(_: Bug) -> bool {
    false
}

/// Whether any is injected.
#[must_use]
pub fn any() -> bool {
    Bug::ALL.into_iter().any(is_injected)
}

#[cfg(tidegate_injected)]
fn injected() -> Option<Bug> {
    static INJECTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    *INJECTED.get_or_init(|| {
        let name = std::env::var("TIDEGATE_INJECTED").ok()?;
        let bug = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
        Some(bug.unwrap_or_else(|| panic!("TIDEGATE_INJECTED is `{name}`, which is none of {:?}", Bug::ALL)))
    })
}
