//! What a socket asks of the kernel: taking it over, arming, cancelling, letting go.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::SockRef;
use tidegate_buffer::injected::{self, Bug};

use super::Machine;
use super::kernel::{Kernel, RecvMode, Request};
use super::operation::{Kind, State, Transition, name};
use super::table::{Flags, Room};
use crate::address::Address;
use crate::driver::{Completion, Token};
use crate::options::SocketOptions;
use crate::socket::{self, Socket};

impl<K: Kernel> Machine<K> {
    pub(super) fn adopt(&mut self, token: Token, socket: Socket, flags: Flags) -> Option<Completion> {
        let Socket::Descriptor(descriptor) = socket else {
            return Some(Completion::Failed(io::ErrorKind::Unsupported.into()));
        };
        self.sockets.insert(token, descriptor, flags);
        self.line_up(token);
        None
    }

    /// Begins to connect. Whether the connection is made is seen by its becoming writable; its deadline is the loop's.
    pub(super) fn connect(
        &mut self,
        token: Token,
        address: &Address,
        local: Option<&Address>,
        options: &SocketOptions,
    ) -> Option<Completion> {
        match socket::connect(address, local, options) {
            Ok((descriptor, pending)) => {
                self.sockets.insert(token, descriptor, if pending { Flags::CONNECTING } else { Flags::NONE });
                self.line_up(token);
                (!pending).then_some(Completion::Connected(Ok(())))
            }
            Err(error) => Some(Completion::Connected(Err(error))),
        }
    }

    pub(super) fn switch(&mut self, token: Token, on: bool) {
        if let Some(socket) = self.sockets.get_mut(token) {
            socket.flags.set(Flags::RECEIVING, on);
            self.line_up(token);
        }
    }

    /// Has what a socket asks for looked at before the next wait.
    pub(super) fn line_up(&mut self, token: Token) {
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.raise(Flags::LINED_UP)
        {
            self.line.push_back(token);
        }
    }

    /// Settles all that are lined up. Where the kernel takes no more, the others keep their place.
    pub(super) fn arm_all(&mut self) -> io::Result<()> {
        while let Some(token) = self.line.pop_front() {
            if let Err(error) = self.arm_socket(token) {
                if let Some(socket) = self.sockets.get_mut(token) {
                    socket.flags.set(Flags::LINED_UP, true);
                    self.line.push_front(token);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Arms and cancels what the state of a socket asks for: the one place that does, except for sends.
    fn arm_socket(&mut self, token: Token) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        socket.flags.set(Flags::LINED_UP, false);
        let (flags, flights, fd) = (socket.flags, socket.operations, socket.descriptor.as_raw_fd());
        if flags.contains(Flags::CLOSING) {
            return Kind::OF_SOCKETS.into_iter().try_for_each(|kind| self.cancel(token, kind));
        }
        if flags.contains(Flags::CONNECTING) {
            return self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot: false });
        }
        if flags.contains(Flags::LISTENER) {
            if flags.contains(Flags::RECEIVING.union(Flags::READABLE)) {
                self.poll_socket_later(token);
            }
            return self.arm(token, Kind::Accept, Request::Poll { fd, events: libc::POLLIN, multishot: true });
        }
        if socket.flags.take(Flags::SEND_WAITS) && !injected::is_injected(Bug::NoRearm) {
            self.told.push_back((token, Completion::Sent(Ok(0))));
        }
        if socket.room == Room::Awaited {
            self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot: true })?;
        }
        let wanted = self.wants(flags);
        self.arm_receive(token, wanted)?;
        self.report_failure(token, wanted);
        let is_told_of = flags.intersects(Flags::FAILED.union(Flags::BULK));
        if !wanted && !is_told_of && flights.is_idle(Kind::HangUp) {
            // That a connection broke is told even to who asks for nothing.
            self.arm(token, Kind::HangUp, Request::Poll { fd, events: 0, multishot: true })?;
        }
        Ok(())
    }

    /// That a connection broke is not told before what came first; but if that is not wanted any more, it has to be now:
    /// the poll that has said so says so once.
    fn report_failure(&mut self, token: Token, wanted: bool) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let has_come = socket.operations.is_idle(Kind::Receive) || socket.flags.contains(Flags::BULK);
        if wanted || !has_come || !socket.flags.contains(Flags::HUNG_UP) || socket.flags.contains(Flags::FAILED) {
            return;
        }
        if let Ok(Err(errno)) = rustix::net::sockopt::socket_error(&socket.descriptor) {
            socket.flags.set(Flags::FAILED, true);
            self.told.push_back((token, Completion::Failed(errno.into())));
        }
    }

    pub(super) fn arm_receive(&mut self, token: Token, wanted: bool) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        let (flags, fd) = (socket.flags, socket.descriptor.as_raw_fd());
        let bulk = flags.contains(Flags::BULK);
        self.note_paused(token);
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        match socket.operations.state(Kind::Receive) {
            State::Idle if bulk && !flags.contains(Flags::FAILED) => {
                socket.flags.set(Flags::POLLED, true);
                let events = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;
                self.arm(token, Kind::Receive, Request::Poll { fd, events, multishot: true })
            }
            State::Idle if wanted && socket.load.is_new() && flags.contains(Flags::READABLE) => {
                // A call finds out whether its bytes are there already, in the turn's time for new connections.
                socket.flags.set(Flags::POLLED, false);
                self.poll_socket_later(token);
                Ok(())
            }
            State::Idle if wanted && !flags.contains(Flags::STARVED) => {
                socket.flags.set(Flags::POLLED, false);
                // What stays armed may bring far more than is wanted, so only a socket that brings little gets it: not one
                // of which nothing is known, nor one that has more than the last receive brought.
                let once = flags.contains(Flags::ONE_SHOT) || socket.load.is_new();
                let wish = match flags.contains(Flags::READABLE) {
                    true => RecvMode::Once,
                    false if once => RecvMode::OnceLater,
                    false => RecvMode::Always,
                };
                self.arm(token, Kind::Receive, Request::Receive { fd, wish })
            }
            State::Armed if flags.contains(Flags::POLLED) && bulk => {
                if wanted && flags.contains(Flags::READABLE) {
                    self.poll_socket_later(token);
                }
                Ok(())
            }
            State::Armed if flags.contains(Flags::POLLED) || bulk => self.cancel(token, Kind::Receive),
            // A receive that comes once may as well come; and who is held back has not stopped.
            State::Armed if !wanted && !flags.intersects(Flags::ONE_SHOT.union(Flags::RECEIVING)) => {
                socket.flags.set(Flags::ONE_SHOT, true);
                self.cancel(token, Kind::Receive)
            }
            _ => Ok(()),
        }
    }

    /// Takes note of a socket that would receive if receiving were not held back.
    pub(super) fn note_paused(&mut self, token: Token) {
        if !self.receives_paused {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.contains(Flags::RECEIVING)
            && !std::mem::replace(&mut socket.paused, true)
        {
            self.paused_sockets.push(token);
        }
    }

    /// Whether the loop is to have what arrives.
    pub(super) fn wants(&self, flags: Flags) -> bool {
        let over = flags.intersects(Flags::ENDED.union(Flags::FAILED).union(Flags::CLOSING));
        flags.contains(Flags::RECEIVING) && !over && !self.receives_paused
    }

    /// Submits an operation, unless the kernel has one of that kind.
    pub(super) fn arm(&mut self, token: Token, kind: Kind, request: Request) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.operations.step(kind, Transition::Arm) {
            if let Err(error) = self.kernel.push(request, name(token, kind)) {
                // As if it had ended at once.
                socket.operations.step(kind, Transition::Last);
                return Err(error);
            }
            self.in_flight += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token, kind: Kind) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.operations.state(kind) == State::Armed {
            self.kernel.push(Request::Cancel { name: name(token, kind) }, name(token, Kind::Cancel))?;
            socket.operations.step(kind, Transition::Cancel);
            if injected::is_injected(Bug::CancelBelieved) {
                socket.operations.step(kind, Transition::Last);
                self.in_flight -= 1;
            }
        }
        Ok(())
    }

    /// Lets go of a socket: at once if the kernel has nothing of it, otherwise when it has let go as well.
    pub(super) fn close(&mut self, token: Token, reset: bool) -> Option<Completion> {
        let Some(socket) = self.sockets.get_mut(token) else { return Some(Completion::Closed) };
        socket.flags.set(Flags::CLOSING, true);
        // Who is to be cut off stays so, though the driver goes before it has closed the socket.
        socket.flags.set(Flags::RESET, reset || socket.flags.contains(Flags::RESET));
        if self.release(token) {
            return Some(Completion::Closed);
        }
        self.line_up(token);
        None
    }

    /// Closes a socket that was let go of, if the last of its operations has ended.
    pub(super) fn release(&mut self, token: Token) -> bool {
        let Some(socket) = self.sockets.get(token) else { return false };
        let is_over = socket.operations.are_over() || injected::is_injected(Bug::ClosedEarly);
        if !socket.flags.contains(Flags::CLOSING) || !is_over {
            return false;
        }
        if let Some(socket) = self.sockets.remove(token)
            && socket.flags.contains(Flags::RESET)
        {
            // A linger time of zero makes close send RST. If it cannot be set, an orderly close has to do.
            let _ = SockRef::from(&socket.descriptor).set_linger(Some(Duration::ZERO));
        }
        true
    }
}

/// Whether the kernel has something to tell, or no memory, before it takes more.
pub(super) fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR))
}
