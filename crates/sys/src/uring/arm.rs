//! Requests of a socket: adopting it, arming, cancelling, closing.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::SockRef;
use tidegate_buffer::injected::{self, Bug};

use super::UringDriver;
use super::kernel::{Kernel, RecvMode, Request};
use super::operation::{Kind, OperationState, Transition, name};
use super::table::{Flags, SendRoom, SocketKind};
use crate::driver::{Completion, Token};
use crate::options::SocketOptions;
use crate::socket::{self, Socket, has_peer_ended};
use tidegate_buffer::Address;

impl<K: Kernel> UringDriver<K> {
    pub(super) fn adopt(&mut self, token: Token, socket: Socket, kind: SocketKind, flags: Flags) -> Option<Completion> {
        let Socket::Descriptor(descriptor) = socket else {
            return Some(Completion::Failed(io::ErrorKind::Unsupported.into()));
        };
        self.sockets.insert(token, descriptor, kind, flags);
        self.enqueue(token);
        None
    }

    /// Begins to connect. The socket becomes writable when the connection is made; its deadline is the loop's.
    pub(super) fn connect(
        &mut self,
        token: Token,
        address: &Address,
        local: Option<&Address>,
        options: &SocketOptions,
    ) -> Option<Completion> {
        match socket::connect(address, local, options) {
            Ok((descriptor, pending)) => {
                let flags = if pending { Flags::CONNECTING } else { Flags::NONE };
                self.sockets.insert(token, descriptor, SocketKind::Stream, flags);
                self.enqueue(token);
                (!pending).then_some(Completion::Connected(Ok(())))
            }
            Err(error) => Some(Completion::Connected(Err(error))),
        }
    }

    pub(super) fn switch(&mut self, token: Token, on: bool) {
        if let Some(socket) = self.sockets.get_mut(token) {
            socket.flags.set(Flags::RECEIVING, on);
            self.enqueue(token);
        }
    }

    /// Queues the socket so that its requests are armed before the next wait.
    pub(super) fn enqueue(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.raise(Flags::ARM_QUEUED)
        {
            self.arm_queue.push_back(token);
        }
    }

    /// Arms the requests of all sockets in the queue. Where the kernel takes no more, the others keep their place.
    pub(super) fn arm_all(&mut self) -> io::Result<()> {
        while let Some(token) = self.arm_queue.pop_front() {
            if let Err(error) = self.arm_socket(token) {
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.flags.set(Flags::ARM_QUEUED, true);
                    self.arm_queue.push_front(token);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Arms and cancels the requests that the state of a socket requires: the one place that does, except for sends.
    fn arm_socket(&mut self, token: Token) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        socket.flags.set(Flags::ARM_QUEUED, false);
        let (flags, kind, operations, fd) =
            (socket.flags, socket.kind, socket.operations, socket.descriptor.as_raw_fd());
        if flags.contains(Flags::CLOSING) {
            return Kind::OF_SOCKETS.into_iter().try_for_each(|kind| self.cancel(token, kind));
        }
        if flags.contains(Flags::CONNECTING) {
            return self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot: false });
        }
        if kind == SocketKind::Listener {
            if flags.contains(Flags::RECEIVING.union(Flags::READABLE)) {
                self.poll_socket_later(token);
            }
            return self.arm(token, Kind::Accept, Request::Poll { fd, events: libc::POLLIN, multishot: true });
        }
        if socket.flags.take(Flags::SEND_WAITS) {
            self.due_completions.push_back((token, Completion::Sent(Ok(0))));
        }
        if socket.room == SendRoom::Awaited {
            // Each datagram that leaves makes room: a poll that stays armed would report each.
            let multishot = kind != SocketKind::Datagram;
            self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot })?;
        }
        if kind == SocketKind::Datagram {
            if flags.intersects(Flags::READABLE) {
                self.poll_socket_later(token);
            }
            return self.arm(token, Kind::Receive, Request::Poll { fd, events: libc::POLLIN, multishot: true });
        }
        let wanted = self.wants(flags);
        self.arm_receive(token, wanted)?;
        self.report_failure(token, wanted);
        self.report_end(token);
        let is_reported = flags.intersects(Flags::FAILED.union(Flags::HEAVY));
        if !wanted && !is_reported && operations.is_idle(Kind::HangUp) {
            // A broken connection is reported even on a socket that neither receives nor sends.
            let is_watched = kind == SocketKind::WatchedStream && !flags.contains(Flags::ENDED);
            let events = if is_watched { libc::POLLRDHUP } else { 0 };
            self.arm(token, Kind::HangUp, Request::Poll { fd, events, multishot: true })?;
        }
        Ok(())
    }

    /// A failure is reported after the bytes that arrived before it. If the loop does not want those bytes any more,
    /// the failure is reported now: the poll has reported it and does not report it again.
    fn report_failure(&mut self, token: Token, wanted: bool) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let has_come = socket.operations.is_idle(Kind::Receive) || socket.flags.contains(Flags::HEAVY);
        if wanted || !has_come || !socket.flags.contains(Flags::HUNG_UP) || socket.flags.contains(Flags::FAILED) {
            return;
        }
        if let Ok(Err(errno)) = rustix::net::sockopt::socket_error(&socket.descriptor) {
            socket.flags.set(Flags::FAILED, true);
            self.due_completions.push_back((token, Completion::Failed(errno.into())));
        }
    }

    /// Has the end of the peer be reported, also while the socket does not receive.
    pub(super) fn watch_end(&mut self, token: Token) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        if socket.kind == SocketKind::Stream {
            socket.kind = SocketKind::WatchedStream;
            let flags = socket.flags;
            // A poll for failures alone was armed before. If the kernel does not take its end now, the poll stays, and the
            // end is found when the socket receives.
            let _ = self.cancel(token, Kind::HangUp);
            if flags.intersects(Flags::ENDED.union(Flags::HUNG_UP)) || !flags.contains(Flags::RECEIVING) {
                self.enqueue(token);
            }
        }
    }

    /// Reports the end of the peer, if the loop wants to know, and the socket does not find it by receiving.
    fn report_end(&mut self, token: Token) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let flags = socket.flags;
        if socket.kind != SocketKind::WatchedStream || flags.contains(Flags::FAILED) {
            return;
        }
        let may_have_ended = flags.contains(Flags::HUNG_UP) && !flags.contains(Flags::RECEIVING);
        // Urgent bytes set the flag as well.
        if flags.contains(Flags::ENDED) || (may_have_ended && has_peer_ended(&socket.descriptor)) {
            socket.kind = SocketKind::Stream;
            self.due_completions.push_back((token, Completion::HungUp));
        }
    }

    pub(super) fn arm_receive(&mut self, token: Token, wanted: bool) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        let (flags, fd) = (socket.flags, socket.descriptor.as_raw_fd());
        let is_heavy = flags.contains(Flags::HEAVY);
        self.note_paused(token);
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        match socket.operations.state(Kind::Receive) {
            OperationState::Idle if is_heavy && !flags.contains(Flags::FAILED) => {
                socket.flags.set(Flags::POLLED, true);
                let events = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;
                self.arm(token, Kind::Receive, Request::Poll { fd, events, multishot: true })
            }
            OperationState::Idle if wanted && socket.load.is_new() && flags.contains(Flags::READABLE) => {
                // A call finds out whether its bytes are there already, in the turn's time for new connections.
                socket.flags.set(Flags::POLLED, false);
                self.poll_socket_later(token);
                Ok(())
            }
            OperationState::Idle if wanted && !flags.contains(Flags::STARVED) => {
                socket.flags.set(Flags::POLLED, false);
                // A multishot receive may bring far more than is wanted, so only a socket that brings little gets one:
                // not a new socket, nor one that has more bytes than the last receive brought.
                let once = flags.contains(Flags::ONE_SHOT) || socket.load.is_new();
                let mode = match flags.contains(Flags::READABLE) {
                    true => RecvMode::Once,
                    false if once => RecvMode::OnceLater,
                    false => RecvMode::Always,
                };
                self.arm(token, Kind::Receive, Request::Receive { fd, mode })
            }
            OperationState::Armed if flags.contains(Flags::POLLED) && is_heavy => {
                if wanted && flags.contains(Flags::READABLE) {
                    self.poll_socket_later(token);
                }
                Ok(())
            }
            OperationState::Armed if flags.contains(Flags::POLLED) || is_heavy => self.cancel(token, Kind::Receive),
            // A single-shot receive may complete; and a socket of a paused driver has not stopped receiving.
            OperationState::Armed if !wanted && !flags.intersects(Flags::ONE_SHOT.union(Flags::RECEIVING)) => {
                // The kernel may refuse the request for now: until it takes it, the flag must not say that the receive
                // ends by itself.
                self.cancel(token, Kind::Receive)?;
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.flags.set(Flags::ONE_SHOT, true);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Remembers a socket that would receive if the driver's receives were not paused.
    pub(super) fn note_paused(&mut self, token: Token) {
        if !self.receives_paused {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.contains(Flags::RECEIVING)
            && socket.flags.raise(Flags::RECV_PAUSED)
        {
            self.paused_sockets.push(token);
        }
    }

    /// Whether the loop wants the bytes that arrive.
    pub(super) fn wants(&self, flags: Flags) -> bool {
        let over = flags.intersects(Flags::ENDED.union(Flags::FAILED).union(Flags::CLOSING));
        flags.contains(Flags::RECEIVING) && !over && !self.receives_paused
    }

    /// Submits an operation, unless the kernel already has one of that kind.
    pub(super) fn arm(&mut self, token: Token, kind: Kind, request: Request) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.operations.step(kind, Transition::Arm) {
            if let Err(error) = self.kernel.push(request, name(token, kind)) {
                // The operation counts as ended.
                socket.operations.step(kind, Transition::Last);
                return Err(error);
            }
            self.in_flight += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token, kind: Kind) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.operations.state(kind) == OperationState::Armed {
            self.kernel.push(Request::Cancel { name: name(token, kind) }, name(token, Kind::Cancel))?;
            socket.operations.step(kind, Transition::Cancel);
            if injected::is_injected(Bug::CancelDoneAtSubmit) {
                socket.operations.step(kind, Transition::Last);
                self.in_flight -= 1;
            }
        }
        Ok(())
    }

    /// Closes a socket: at once if the kernel has no operation of it, otherwise after the last of them has ended.
    pub(super) fn close(&mut self, token: Token, reset: bool) -> Option<Completion> {
        let Some(socket) = self.sockets.get_mut(token) else { return Some(Completion::Closed) };
        socket.flags.set(Flags::CLOSING, true);
        // A reset that was requested stays requested, even if the driver is dropped before it has closed the socket.
        socket.flags.set(Flags::RESET, reset || socket.flags.contains(Flags::RESET));
        if self.release(token) {
            return Some(Completion::Closed);
        }
        self.enqueue(token);
        None
    }

    /// Closes a socket that is marked as closing, if the last of its operations has ended.
    pub(super) fn release(&mut self, token: Token) -> bool {
        let Some(socket) = self.sockets.get(token) else { return false };
        let is_over = socket.operations.are_over() || injected::is_injected(Bug::ClosedDuringOperation);
        if !socket.flags.contains(Flags::CLOSING) || !is_over {
            return false;
        }
        let Some(socket) = self.sockets.remove(token) else { return true };
        self.direct_io.receive_space.forget(token);
        if socket.kind == SocketKind::Datagram {
            self.forget_datagrams(token);
        } else if socket.flags.contains(Flags::RESET) {
            // A linger time of zero makes close send RST. If it cannot be set, an orderly close has to do.
            let _ = SockRef::from(&socket.descriptor).set_linger(Some(Duration::ZERO));
        }
        true
    }
}

/// Whether the kernel refuses requests for now: its completions have to be read first, or it has no memory.
pub(super) fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR))
}
