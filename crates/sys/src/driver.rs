//! `Driver`: the seam between an event loop and the system.
//!
//! It is shaped for completion, since readiness can imitate that and not the other way round. What a driver has in
//! flight it owns; a queue that is being sent is borrowed by the driver only during `submit`, but its memory has to
//! stay until the completion.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Outbound, Slice};

use crate::address::Address;
use crate::options::SocketOptions;
use crate::ready::Class;
use crate::socket::Socket;
use crate::wake::Waker;

/// Names a socket to its driver: a slot of the loop, and which of the slot's successive users is meant. A completion
/// for a user who is gone is dropped by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// The slot.
    pub slot: u32,
    /// The slot's how-manieth user.
    pub generation: u32,
}

/// Something that a driver is to do with the socket of a token.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Take a listening socket over, and accept from it until told otherwise.
    Listen(Socket),
    /// Go on, or stop, accepting. Who was on their way still comes.
    Accept(bool),
    /// Take a connected stream over. Nothing is received yet.
    Adopt(Socket),
    /// Connect a new stream to an address.
    Connect {
        /// Where to.
        address: &'a Address,
        /// Where from, unless that is the system's choice. Port 0 takes any that is free.
        local: Option<&'a Address>,
        /// Options of the stream.
        options: &'a SocketOptions,
    },
    /// Go on, or stop, receiving. A completion that was on its way still comes.
    Receive(bool),
    /// Send what was flushed in the queue, at most `bytes_max` bytes in one system call. At most one send per socket
    /// is in flight.
    Send {
        /// Where the bytes are.
        queue: &'a mut Outbound,
        /// How many of them, at most.
        bytes_max: usize,
    },
    /// Tell the peer that nothing more will be sent.
    ShutdownWrite,
    /// Let go of the socket. With `reset` the peer is told that the connection was cut off.
    Close {
        /// Whether to cut it off.
        reset: bool,
    },
}

/// What came of an operation, or what happened to a socket.
#[derive(Debug)]
pub enum Completion {
    /// A connection was accepted, or accepting failed. After a failure, such as the want of a descriptor, it goes on
    /// with the next connection that arrives or with the next [`Operation::Accept`], not at once: most causes last.
    Accepted(io::Result<Accepted>),
    /// Connecting came to an end.
    Connected(io::Result<()>),
    /// Bytes were received; they lie in the driver's scratch.
    Received(Slice),
    /// The peer has shut down its sending side; told once.
    Ended,
    /// So many bytes were sent. With zero nothing was, but sending can be tried again. A file that is shorter than
    /// its region is an error of the kind `UnexpectedEof`.
    Sent(io::Result<usize>),
    /// The connection broke; told once.
    Failed(io::Error),
    /// The driver's last word on a token: everything that the socket held may be freed.
    Closed,
    /// A [`Waker`] was used.
    Woken,
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The stream, not blocking.
    pub socket: Socket,
    /// Who is at the other end.
    pub peer: Address,
}

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Local,
    /// The other.
    Peer,
}

/// The floor under one event loop.
///
/// Every method is a leaf: a driver runs no code of a user, and frees nothing that a user owns.
pub trait Driver {
    /// What it is called: `epoll`, `uring`.
    fn name(&self) -> &'static str;

    /// Something that ends a [`wait`](Driver::wait) from any thread.
    fn waker(&self) -> Waker;

    /// Starts an operation on the socket of `token`. If it came to an end at once, its completion is returned;
    /// otherwise that comes through [`next`](Driver::next).
    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion>;

    /// Waits until there are completions, `timeout` has passed, or the waker was used.
    ///
    /// # Errors
    /// The system's, if waiting itself fails; being interrupted is none.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next completion of this turn, of one class of sockets. The loop asks for one class after the other, in the
    /// order of [`Class::ALL`], and for as many completions as it has time for. A turn is bounded: sockets that have
    /// more to say are asked again after the next [`wait`](Driver::wait), which does not block then.
    fn next(&mut self, class: Class) -> Option<(Token, Completion)>;

    /// The next completion of this turn, of whatever class: for a caller that does not bound its turns.
    fn next_of_any(&mut self) -> Option<(Token, Completion)> {
        Class::ALL.into_iter().find_map(|class| self.next(class))
    }

    /// Holds back, or goes on with, receiving on all sockets at once: what a loop does while its memory is used up.
    fn pause_receives(&mut self, hold: bool);

    /// Bytes that were sent on a connection and that the peer has not acknowledged yet, if the system tells.
    fn unacknowledged(&self, _token: Token) -> Option<u64> {
        None
    }

    /// Whether queued sockets have something to report. If not, the loop asks for none but light ones; and the next
    /// [`wait`](Driver::wait) does not block if so.
    fn has_ready(&self) -> bool;

    /// Whether the kernel, or the driver, holds bytes of the peer that the loop has asked for and has not received. A
    /// driver that cannot rule it out answers `true`.
    fn has_input(&mut self, _token: Token) -> bool {
        false
    }

    /// Whether a send is on its way of which the next turn tells, whatever the peer does: until then there is no need
    /// to watch over the peer.
    fn is_sending(&self, _token: Token) -> bool {
        false
    }

    /// The time that deadlines are measured in.
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
    /// The system's: the address of a peer is gone once the connection broke.
    fn address(&self, token: Token, side: Side) -> io::Result<Address>;
}

const _: () = assert!(size_of::<Option<(Token, Completion)>>() <= 64);
