//! Errors of protocols, sorted by whose fault they are.

/// Who is to blame for an error. It decides what is logged, what is counted, and what the peer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The peer broke the protocol.
    Peer,
    /// The application asked for something that the protocol cannot say.
    Caller,
    /// A limit was reached: of size, of count, of time.
    Limit,
    /// The system failed: memory, descriptors, the network.
    System,
}

/// An error of a codec or a filter.
pub trait Fault: std::error::Error + Send + Sync + 'static {
    /// Whose fault it is.
    fn blame(&self) -> Blame;
}

impl Fault for std::convert::Infallible {
    fn blame(&self) -> Blame {
        match *self {}
    }
}
