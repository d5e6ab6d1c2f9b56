//! `Role`: the side of a connection.

/// The side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It receives masked frames.
    Server,
    /// It sends masked frames.
    Client,
}
