//! Errors of protocols, sorted by blame.

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

/// An error of a codec or a filter.
///
/// ```
/// use std::fmt;
/// use tidegate::codec::{Blame, Fault};
///
/// #[derive(Debug)]
/// enum Wrong {
///     Version(u8),
///     TooLong { bytes_max: usize },
/// }
///
/// impl Fault for Wrong {
///     fn blame(&self) -> Blame {
///         match self {
///             Self::Version(_) => Blame::Peer,
///             Self::TooLong { .. } => Blame::Limit,
///         }
///     }
/// }
///
/// impl fmt::Display for Wrong {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         match self {
///             Self::Version(version) => write!(f, "version {version} is not spoken here"),
///             Self::TooLong { bytes_max } => write!(f, "a message is longer than {bytes_max} bytes"),
///         }
///     }
/// }
///
/// impl std::error::Error for Wrong {}
/// ```
pub trait Fault: std::error::Error + Send + Sync + 'static {
    /// The side that caused it.
    fn blame(&self) -> Blame;
}

impl Fault for std::convert::Infallible {
    fn blame(&self) -> Blame {
        match *self {}
    }
}
