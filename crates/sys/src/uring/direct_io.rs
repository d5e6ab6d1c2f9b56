//! Receiving on heavy sockets: straight into the loop's one scratch, when the kernel reports that the socket is
//! readable.
//!
//! The ring reuses a buffer only after all the others. For a few hundred bytes that costs nothing. For tens of KiB it
//! means that neither the bytes that the kernel writes nor those that a codec reads are in the nearest cache. So a
//! heavy socket ([`Load`](crate::Load)) leaves the ring: its operation is a multishot poll, and the driver receives
//! from it by system calls, into memory that is in the cache from the socket before. Each call brings so many bytes
//! that its cost is negligible. A socket that is light again goes back to the ring.
//!
//! The poll only queues the socket. The loop serves the completions of the ring first, and heavy sockets after that.
//! The first receive of a new connection is a call as well, in the part of the turn for new connections.

use std::io;

use rustix::io::Errno;
use tidegate_buffer::Pool;
use tidegate_buffer::injected::{self, Bug};

use super::UringDriver;
use super::kernel::{Event, Kernel};
use super::operation::Kind;
use super::table::{Flags, SendRoom, SocketKind};
use crate::driver::{Completion, Token};
use crate::ready::ReadyQueue;
use crate::receive_space::ReceiveSpace;
use crate::socket::is_over;

/// Heavy sockets, and listeners.
#[derive(Debug)]
pub(super) struct DirectIo {
    pub(super) receive_space: ReceiveSpace,
    pub(super) pool: Pool,
    /// The sockets that have something to report.
    pub(super) ready: ReadyQueue<Token>,
}

impl DirectIo {
    pub(super) fn new(pool: &Pool) -> Self {
        Self { receive_space: ReceiveSpace::new(pool), pool: pool.clone(), ready: ReadyQueue::default() }
    }
}

impl<K: Kernel> UringDriver<K> {
    /// Queues a socket with those of its class, unless it is queued already.
    pub(super) fn poll_socket_later(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.raise(Flags::READY_QUEUED)
        {
            if socket.kind == SocketKind::Listener {
                self.direct_io.ready.push_listener(token);
            } else {
                self.direct_io.ready.push(token, socket.load);
            }
        }
    }

    /// The completion of a queued socket, if it has one.
    pub(super) fn poll_socket(&mut self, token: Token) -> Option<(Token, Completion)> {
        let socket = self.sockets.get_mut(token)?;
        socket.flags.set(Flags::READY_QUEUED, false);
        let reported = if socket.kind == SocketKind::Listener {
            self.accept(token)
        } else if socket.kind == SocketKind::Datagram {
            self.poll_datagrams(token)
        } else if socket.room == SendRoom::Found {
            self.report_room(token)
        } else {
            self.receive_much(token)
        };
        reported.map(|completion| (token, completion))
    }

    /// Handles an event of a heavy socket's poll.
    pub(super) fn polled(&mut self, token: Token, event: Event) -> Option<Completion> {
        if self.sockets.get(token)?.kind == SocketKind::Datagram {
            return self.datagrams_polled(token, event);
        }
        let reports = |events: libc::c_short| event.result > 0 && event.result & i32::from(events) != 0;
        let socket = self.sockets.get_mut(token)?;
        if event.result < 0 && !event.was_cancelled() {
            let error = io::Error::from_raw_os_error(-event.result);
            return socket.flags.raise(Flags::FAILED).then_some(Completion::Failed(error));
        }
        socket.flags.set(Flags::READABLE, event.result > 0 || socket.flags.contains(Flags::READABLE));
        if reports(libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLPRI) {
            socket.flags.set(Flags::HUNG_UP, true);
        }
        let flags = socket.flags;
        if !self.wants(flags) {
            self.note_paused(token);
            if reports(libc::POLLRDHUP) {
                self.enqueue(token);
            }
            // A socket that receives gets the bytes that arrived first, and then the error.
            return if reports(libc::POLLERR) { self.failed(token) } else { None };
        }
        if flags.contains(Flags::READABLE) {
            self.poll_socket_later(token);
        }
        None
    }

    fn receive_much(&mut self, token: Token) -> Option<Completion> {
        let flags = self.sockets.get(token)?.flags;
        // A call must not overtake a receive that the ring has.
        let is_polled = flags.contains(Flags::POLLED);
        let is_idle = self.sockets.get(token)?.operations.is_idle(Kind::Receive);
        let has_ring = !is_polled && !is_idle && !injected::is_injected(Bug::DirectReceiveReordered);
        if !flags.contains(Flags::READABLE) || has_ring || !self.wants(flags) {
            self.note_paused(token);
            return None;
        }
        if !is_polled {
            // From here on the ring receives for this socket.
            self.enqueue(token);
        }
        let socket = self.sockets.get_mut(token)?;
        let usual = socket.recv_sizer.bytes();
        let (size, received) = self.direct_io.receive_space.receive(token, &socket.descriptor, usual);
        match received {
            // The connection broke, and a send in flight took the error. That send is reported first, or a stream that
            // was reset would look like one that ended in order.
            Ok(0) if !socket.operations.is_idle(Kind::Send) && is_over(&socket.descriptor) => {
                self.poll_socket_later(token);
                None
            }
            Ok(0) => {
                let completion = socket.ended();
                self.enqueue(token);
                Some(completion)
            }
            Ok(length) => {
                socket.recv_sizer.record_length(length, size);
                socket.load.note_received(length);
                // The end is not reported again, so after a hang-up the driver receives until the end comes.
                let hung_up = socket.flags.contains(Flags::HUNG_UP);
                let drained = length < size && !hung_up;
                socket.flags.set(Flags::READABLE, !drained);
                if drained && !socket.load.is_heavy() {
                    socket.flags.set(Flags::HEAVY, false);
                    self.enqueue(token);
                }
                if !drained && is_polled {
                    self.poll_socket_later(token);
                }
                Some(Completion::Received(self.direct_io.receive_space.received(length)))
            }
            Err(errno) => {
                // Nothing can be received any more: if the connection broke, the error is the last report.
                let error = if errno == Errno::AGAIN { socket.error_of_empty()? } else { errno };
                socket.flags.set(Flags::FAILED, true);
                Some(Completion::Failed(io::Error::from(error)))
            }
        }
    }
}
