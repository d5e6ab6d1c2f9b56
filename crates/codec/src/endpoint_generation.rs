//! `EndpointGeneration`: the place of a server among those that have the same datagram sockets one after the other.
//!
//! A datagram of a session is for the process that has the session. After a restart the successor alone receives from the
//! sockets, and passes the datagrams of earlier generations on to their processes. So a protocol whose datagrams name the
//! generation and the endpoint that they are for keeps its sessions.

/// An endpoint among those of all generations at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointPlace {
    /// The generation of its server, modulo 256.
    pub generation: u8,
    /// The place of its socket in the group of those that share the address.
    pub place: u8,
}

/// The generation of a server's endpoints at one address, which they share, and the state that a successor needs.
///
/// The engine calls it at a restart, and [`endpoint_of`](Self::endpoint_of) for each datagram. It never calls
/// [`succeed`](Self::succeed) after an endpoint of the same generation was made.
pub trait EndpointGeneration: Send + Sync {
    /// Its number, modulo 256. A successor has another one than all generations that live.
    fn number(&self) -> u8;

    /// The endpoint that a datagram is for; `None` if the datagram names none, and is for the newest generation. Any sender
    /// can forge it.
    fn endpoint_of(&self, payload: &[u8]) -> Option<EndpointPlace>;

    /// The state for a successor: its number, and its secrets.
    fn state(&self) -> Vec<u8>;

    /// Becomes the successor of a generation with this state, while these `living` endpoints of earlier ones go on. Returns
    /// whether the state is sound; if it is not, nothing has changed.
    fn succeed(&self, state: &[u8], living: &[EndpointPlace]) -> bool;

    /// A successor receives from the sockets from now on. Returns which sessions are being established: their datagrams need
    /// not name an endpoint yet.
    fn supersede(&self) -> Vec<u8>;

    /// There is no successor after all, or none is left.
    fn resume(&self);

    /// The sessions of earlier generations that are being established, as [`supersede`](Self::supersede) has returned them.
    fn inherit(&self, establishing: &[u8]);

    /// An endpoint of an earlier generation is gone.
    fn on_gone(&self, place: EndpointPlace);
}
