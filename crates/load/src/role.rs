//! `Role`: the purpose of a connection.

/// The role of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It sends requests, waits for all responses, and repeats; at scheduled times, if there is a rate.
    Active,
    /// It sends one request, and is idle after the response.
    Idle,
    /// It sends requests and never reads.
    NeverRead,
    /// It receives broadcasts on a WebSocket, and sends none.
    Listener,
}
