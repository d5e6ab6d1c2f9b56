//! Bugs that can be injected, to see that the tests notice them. In a usual build there are none: only one that was made
//! with `--cfg tidegate_injected` looks at the environment, and the compiler removes the question from all others.
//!
//! Each is a bug that an event loop of somebody's once had. `.ci/injected` plants one after the other and runs the contract
//! of drivers, which has to fail each time.

/// A bug that can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A send that was taken in part, or not at all, is never told that it may go on.
    NoRearm,
    /// A mark counts as flushed when the byte before it was sent.
    MarkOffByOne,
    /// Letters to a loop that sleeps wake nobody.
    LostWakeUp,
    /// A slot that somebody has is given to the next as well, as if it had been given back twice.
    SlotGivenTwice,
    /// The handler is told of writability twice.
    WritableTwice,
    /// Bytes that came together with the end are read, and the end is not.
    FinMissed,
    /// What the queue held is not given back to the ledger when it is cleared.
    LedgerNotCharged,
    /// After a partial write the next one starts with a whole part again.
    PartRestarted,
    /// Of more parts than one write takes, those behind count as sent as well.
    PartsForgotten,
    /// A file that is shorter than its region counts as sent.
    ShortFile,
    /// A paused connection is told of messages.
    PauseIgnored,
    /// A deadline that is moved back does not come any more.
    DeadlineLost,
    /// After a failure, accepting does not go on.
    AcceptStops,
    /// Letters of one turn are delivered in reverse.
    PostsReversed,
    /// The peer's end is told once more.
    EndedTwice,
    /// What was sent after our own end was announced is accepted.
    SentAfterShutdown,
    /// What was received and not decoded is forgotten when a message is incomplete.
    RestForgotten,
    /// The last bytes are not waited for when a connection closes.
    ClosedUnsent,
    /// A handler is not told when its connection broke.
    ClosedUntold,
    /// Who is unwritable goes on reading.
    NoBackPressure,
    /// Memory is received into again although somebody keeps a view of it.
    ViewOverwritten,
    /// A send counts as done when it is submitted, and its memory as free.
    SendBelieved,
    /// The header of a message serves the next one before it was submitted.
    HeaderReused,
    /// What was cancelled counts as over before its last completion.
    CancelBelieved,
    /// A socket is closed although the kernel still has an operation of it.
    ClosedEarly,
    /// An event is believed although it belongs to a slot's earlier user.
    OldBelieved,
    /// Who found no buffer is not asked again.
    StarvedForgotten,
    /// A buffer that was looked at is not given back.
    BufferLost,
    /// A call receives what comes after the bytes that the ring has yet to tell of.
    CallOvertakes,
}

impl Bug {
    /// All there are.
    pub const ALL: [Self; 29] = [
        Self::NoRearm,
        Self::MarkOffByOne,
        Self::LostWakeUp,
        Self::SlotGivenTwice,
        Self::WritableTwice,
        Self::FinMissed,
        Self::LedgerNotCharged,
        Self::PartRestarted,
        Self::PartsForgotten,
        Self::ShortFile,
        Self::PauseIgnored,
        Self::DeadlineLost,
        Self::AcceptStops,
        Self::PostsReversed,
        Self::EndedTwice,
        Self::SentAfterShutdown,
        Self::RestForgotten,
        Self::ClosedUnsent,
        Self::ClosedUntold,
        Self::NoBackPressure,
        Self::ViewOverwritten,
        Self::SendBelieved,
        Self::HeaderReused,
        Self::CancelBelieved,
        Self::ClosedEarly,
        Self::OldBelieved,
        Self::StarvedForgotten,
        Self::BufferLost,
        Self::CallOvertakes,
    ];
}

/// Whether this one is injected: `TIDEGATE_INJECTED` names it.
#[cfg(tidegate_injected)]
#[must_use]
pub fn is_injected(bug: Bug) -> bool {
    injected() == Some(bug)
}

/// Whether this one is injected, which it is not in this build.
#[cfg(not(tidegate_injected))]
#[inline(always)]
#[must_use]
pub const fn is_injected(_: Bug) -> bool {
    false
}

/// Whether there is one.
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
