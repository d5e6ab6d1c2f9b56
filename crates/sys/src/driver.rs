//! `Driver`: the interface between an event loop and the system.
//!
//! The interface is completion-based, since readiness can imitate completion, and not the other way round. A driver
//! owns its operations in flight. It borrows the queue of a send only during `submit`, but the memory of the bytes has
//! to stay until the completion.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{
    Address, Credentials, Datagram, DatagramError, Membership, Outbound, ReceiveHint, Slice, Transmits,
};

use crate::datagram::DatagramOptions;
use crate::options::SocketOptions;
use crate::passed_descriptors::PassedDescriptors;
use crate::ready::Class;
use crate::socket::Socket;
use crate::wake::Waker;

/// Identifies a socket to its driver: a slot of the loop, and the generation of the slot's occupant. The driver drops
/// completions for an earlier occupant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// The slot.
    pub slot: u32,
    /// The generation: it differs for each successive occupant of the slot.
    pub generation: u32,
}

/// An operation for a driver, on the socket of a token.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Take over a listening socket, and accept from it until `Accept(false)`.
    Listen(Socket),
    /// Resume or stop accepting. A connection whose accept is under way is still reported.
    Accept(bool),
    /// Take over a connected stream. It does not receive yet.
    Adopt(Socket),
    /// Connect a new stream to an address.
    Connect {
        /// The address of the peer.
        address: &'a Address,
        /// The local address; `None` leaves it to the system. Port 0 takes any free port.
        local: Option<&'a Address>,
        /// Options of the stream.
        options: &'a SocketOptions,
    },
    /// Resume or stop receiving. A receive that is under way may still complete.
    Receive(bool),
    /// Send the flushed bytes of the queue, at most `bytes_max` in one system call. At most one send per socket is in
    /// flight.
    Send {
        /// The queue that has the bytes.
        queue: &'a mut Outbound,
        /// The most bytes that one system call sends.
        bytes_max: usize,
    },
    /// Take over a bound datagram socket. It does not receive yet.
    Bind {
        /// The socket.
        socket: Socket,
        /// The options that it was opened with.
        options: &'a DatagramOptions,
    },
    /// Send datagrams. The driver takes those that are sent, lost or refused out of the list, before it returns
    /// [`Completion::Transmitted`]; those for which the kernel has no room stay.
    Transmit(&'a mut Transmits),
    /// Shut down the sending side: the peer reads the end of the stream.
    ShutdownWrite,
    /// Close the socket. With `reset` the peer gets a connection reset.
    Close {
        /// Whether to reset the connection.
        reset: bool,
    },
}

/// The result of an operation, or an event of a socket.
#[derive(Debug)]
pub enum Completion {
    /// A connection was accepted, or accepting failed. After a failure, such as a lack of descriptors, the driver tries
    /// again with the next connection that arrives or the next [`Operation::Accept`], not at once: most causes last.
    Accepted(io::Result<Accepted>),
    /// Connecting succeeded or failed.
    Connected(io::Result<()>),
    /// Bytes were received. They are in the driver's scratch.
    Received(Slice),
    /// The peer has shut down its sending side; reported once.
    Ended,
    /// The peer has shut down its sending side, and the socket does not receive, or has reported that end. Bytes of the
    /// peer may be unread. Reported once for a call of [`Driver::watch_end`].
    HungUp,
    /// So many bytes were sent. Zero means that no byte was sent, and that the loop can send again. A file that is
    /// shorter than its region is an error of the kind `UnexpectedEof`.
    Sent(io::Result<usize>),
    /// Datagrams were received. Their payloads are views of the driver's memory. The loop [gives the
    /// vector back](Driver::give_back).
    Datagrams(Vec<Datagram>),
    /// The result of [`Operation::Transmit`]; later, after one that was blocked, that there is room again.
    Transmitted(Transmission),
    /// The network reports that datagrams were not delivered. The socket stays usable.
    DatagramErrors(Vec<DatagramError>),
    /// The connection broke; reported once.
    Failed(io::Error),
    /// The last completion of a token: the kernel uses no memory of the socket any more, so the loop can free it.
    Closed,
    /// A [`Waker`] was used.
    Woken,
}

/// The result of sending a list of datagrams.
#[derive(Debug, Default)]
pub struct Transmission {
    /// Datagrams that the kernel took, those of runs counted one by one.
    pub sent: u64,
    /// Their payloads, in bytes.
    pub bytes: u64,
    /// Datagrams that this host has lost: those that the kernel refused, and those for which a device had no room.
    pub lost: u64,
    /// The kernel has no room: the rest waits, and another [`Completion::Transmitted`] follows.
    pub is_blocked: bool,
    /// Datagrams that the kernel refused, and reports of the network about earlier ones.
    pub errors: Vec<DatagramError>,
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The stream, not blocking.
    pub socket: Socket,
    /// The address of the peer.
    pub peer: Address,
}

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Local,
    /// The peer's.
    Peer,
}

/// The source of I/O of one event loop.
///
/// Every method is a leaf: a driver runs no code of the application, and frees nothing that the application owns.
pub trait Driver {
    /// The name of the driver: `epoll`, `uring`.
    fn name(&self) -> &'static str;

    /// A handle that ends a [`wait`](Driver::wait) from any thread.
    fn waker(&self) -> Waker;

    /// Starts an operation on the socket of `token`. Returns its completion if the operation ends at once; otherwise
    /// [`next`](Driver::next) returns it later.
    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion>;

    /// Waits until there are completions, `timeout` has passed, or the waker was used.
    ///
    /// # Errors
    /// Those of the system, if waiting itself fails. An interruption is no error.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next completion of this turn, of one class of sockets. The loop takes one class after the other, in the
    /// order of [`Class::ALL`], and as many completions as it has time for. A turn is bounded: sockets that have more
    /// to report continue after the next [`wait`](Driver::wait), which does not block then.
    fn next(&mut self, class: Class) -> Option<(Token, Completion)>;

    /// The next completion of this turn, of any class: for a caller that does not bound its turns.
    fn next_of_any(&mut self) -> Option<(Token, Completion)> {
        Class::ALL.into_iter().find_map(|class| self.next(class))
    }

    /// Pauses or resumes receiving on all sockets at once. A loop pauses it while its memory is used up.
    fn pause_receives(&mut self, pause: bool);

    /// Has the driver report [`Completion::HungUp`] once the peer ends its side, also while the socket does not receive. A
    /// socket whose end was found already reports it in the next turn.
    fn watch_end(&mut self, _token: Token) {}

    /// Sizes the next receive of a socket, unless the hint would be of no use to the driver.
    fn hint_receive(&mut self, _token: Token, _hint: ReceiveHint) {}

    /// The last bytes that a socket received have caused much work: it is heavy, however few they were.
    fn note_work(&mut self, _token: Token) {}

    /// The number of bytes that were sent on a connection and that the peer has not acknowledged yet, if the system
    /// reports it.
    fn unacknowledged(&self, _token: Token) -> Option<u64> {
        None
    }

    /// Whether queued sockets have something to report. If so, the next [`wait`](Driver::wait) does not block. If not,
    /// the loop takes completions of light sockets only.
    fn has_ready(&self) -> bool;

    /// Whether the kernel or the driver has bytes of the peer that the loop wants and has not received. A driver that
    /// cannot rule it out returns `true`.
    fn has_input(&mut self, _token: Token) -> bool {
        false
    }

    /// Receives once from a connection that has failed: the kernel keeps the bytes that came before the failure, and a
    /// socket that did not receive has left them there. `None` if there are no bytes, and while receives are paused.
    fn receive_rest(&mut self, _token: Token) -> Option<Slice> {
        None
    }

    /// Takes the vector of a batch, with the rest of its datagrams, so that a busy socket allocates nothing.
    fn give_back(&mut self, batch: Vec<Datagram>) {
        drop(batch);
    }

    /// Datagrams that the kernel has dropped at this socket, since the loop received too slowly. The count is as old as
    /// the last datagram.
    fn datagram_drops(&self, _token: Token) -> u64 {
        0
    }

    /// Whether a send is in flight that the next turn completes, whatever the peer does. Until then the loop need not
    /// check the peer's progress.
    fn is_sending(&self, _token: Token) -> bool {
        false
    }

    /// The monotonic time, for deadlines.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// The time of day.
    fn system_time(&self) -> SystemTime {
        SystemTime::now()
    }

    /// The address of one side of a connection, or of a listener.
    ///
    /// # Errors
    /// Those of the system: the peer's address is unavailable once the connection broke.
    fn address(&self, token: Token, side: Side) -> io::Result<Address>;

    /// The process at the other end of a Unix stream, at the time when it connected or began to listen (SO_PEERCRED).
    ///
    /// # Errors
    /// Those of the system; `Unsupported` for a socket of another family, and in a simulation.
    fn credentials(&self, _token: Token) -> io::Result<Credentials> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has a datagram socket join or leave a multicast group. Joining a second time changes nothing.
    ///
    /// # Errors
    /// Those of the system; `Unsupported` in a simulation.
    fn set_membership(&mut self, _token: Token, _membership: &Membership) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has a Unix stream keep up to `descriptors_max` of the descriptors that the peer passes, until they are
    /// [taken](Self::take_descriptors). Others are closed. Zero, as at the start, keeps none.
    ///
    /// # Errors
    /// `Unsupported` for a socket of another family, and in a simulation.
    fn keep_descriptors(&mut self, _token: Token, _descriptors_max: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes the descriptors that came with the received bytes of a Unix stream.
    fn take_descriptors(&mut self, _token: Token) -> PassedDescriptors {
        PassedDescriptors::default()
    }

    /// Sends bytes over a Unix stream at once, and descriptors with the first of them. No other send of the socket is in
    /// flight. Returns the number of bytes that the kernel took, at least one.
    ///
    /// # Errors
    /// Those of the system: `WouldBlock` if there is no room; `InvalidInput` without bytes or without descriptors, and for
    /// more than 253; `Unsupported` for a socket of another family, and in a simulation.
    fn send_descriptors(&mut self, _token: Token, _: &[u8], _descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

const _: () = assert!(size_of::<Option<(Token, Completion)>>() <= 64);
