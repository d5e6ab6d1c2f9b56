//! Errors of protocols, sorted by blame.

use crate::reset_cause::ResetCause;

/// The side that caused an error. It decides at which level the end of a connection is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The peer broke the protocol.
    Peer,
    /// The application requested something that the protocol cannot express.
    Caller,
    /// A limit was reached: of size, of count, of time.
    Limit,
    /// The system failed: memory, descriptors, the network.
    System,
}

/// An error of a codec or a filter. [`derive(Fault)`](derive@crate::Fault) implements it, and writes the texts.
///
/// ```
/// use tidegate::codec::{Blame, Fault};
///
/// #[derive(Debug, Fault)]
/// enum Wrong {
///     #[fault(peer, "version {0} is not spoken here")]
///     Version(u8),
///     #[fault(limit, "a message is longer than {bytes_max} bytes")]
///     TooLong { bytes_max: usize },
/// }
///
/// assert_eq!(Wrong::Version(7).blame(), Blame::Peer);
/// assert_eq!(Wrong::TooLong { bytes_max: 128 }.to_string(), "a message is longer than 128 bytes");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the error of a codec or a filter",
    note = "derive it: `#[derive(Debug, tidegate::codec::Fault)]`, with `#[fault(peer, \"text\")]` or `#[fault(from)]` at each variant"
)]
pub trait Fault: std::error::Error + Send + Sync + 'static {
    /// The side that caused it.
    fn blame(&self) -> Blame;

    /// The cause that the peer of a stream gets, if the protocol has a more exact one than the blame. The stream is reset
    /// then, unless the cause is [`ResetCause::Unneeded`].
    fn reset_cause(&self) -> Option<ResetCause> {
        None
    }
}

impl Fault for std::convert::Infallible {
    fn blame(&self) -> Blame {
        match *self {}
    }
}
