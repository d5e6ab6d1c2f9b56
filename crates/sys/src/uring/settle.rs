//! What a socket asks of the kernel: taking it over, arming, cancelling, letting go.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::SockRef;
use tidegate_buffer::planted::{self, Bug};

use super::Machine;
use super::kernel::{Kernel, Request, Wish};
use super::operation::{Kind, State, Step, name};
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
    pub(super) fn settle_all(&mut self) -> io::Result<()> {
        while let Some(token) = self.line.pop_front() {
            if let Err(error) = self.settle(token) {
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
    fn settle(&mut self, token: Token) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        socket.flags.set(Flags::LINED_UP, false);
        let (flags, flights, fd) = (socket.flags, socket.flights, socket.descriptor.as_raw_fd());
        if flags.has(Flags::CLOSING) {
            return Kind::OF_SOCKETS.into_iter().try_for_each(|kind| self.cancel(token, kind));
        }
        if flags.has(Flags::CONNECTING) {
            return self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot: false });
        }
        if flags.has(Flags::LISTENER) {
            if flags.has(Flags::RECEIVING.and(Flags::READABLE)) {
                self.attend_later(token);
            }
            return self.arm(token, Kind::Accept, Request::Poll { fd, events: libc::POLLIN, multishot: true });
        }
        if socket.flags.take(Flags::SEND_WAITS) && !planted::is_injected(Bug::NoRearm) {
            self.told.push_back((token, Completion::Sent(Ok(0))));
        }
        if socket.room == Room::Awaited {
            self.arm(token, Kind::Writable, Request::Poll { fd, events: libc::POLLOUT, multishot: true })?;
        }
        let wanted = self.wants(flags);
        self.settle_receive(token, wanted)?;
        self.settle_failure(token, wanted);
        let is_told_of = flags.has_any(Flags::FAILED.and(Flags::BULK));
        if !wanted && !is_told_of && flights.is_idle(Kind::HangUp) {
            // That a connection broke is told even to who asks for nothing.
            self.arm(token, Kind::HangUp, Request::Poll { fd, events: 0, multishot: true })?;
        }
        Ok(())
    }

    /// That a connection broke is not told before what came first; but if that is not wanted any more, it has to be now:
    /// the poll that has said so says so once.
    fn settle_failure(&mut self, token: Token, wanted: bool) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let has_come = socket.flights.is_idle(Kind::Receive) || socket.flags.has(Flags::BULK);
        if wanted || !has_come || !socket.flags.has(Flags::HUNG_UP) || socket.flags.has(Flags::FAILED) {
            return;
        }
        if let Ok(Err(errno)) = rustix::net::sockopt::socket_error(&socket.descriptor) {
            socket.flags.set(Flags::FAILED, true);
            self.told.push_back((token, Completion::Failed(errno.into())));
        }
    }

    pub(super) fn settle_receive(&mut self, token: Token, wanted: bool) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        let (flags, fd) = (socket.flags, socket.descriptor.as_raw_fd());
        let bulk = flags.has(Flags::BULK);
        self.note_held(token);
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        match socket.flights.state(Kind::Receive) {
            State::Idle if bulk && !flags.has(Flags::FAILED) => {
                socket.flags.set(Flags::POLLED, true);
                let events = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;
                self.arm(token, Kind::Receive, Request::Poll { fd, events, multishot: true })
            }
            State::Idle if wanted && socket.load.is_new() && flags.has(Flags::READABLE) => {
                // A call finds out whether its bytes are there already, in the turn's time for new connections.
                socket.flags.set(Flags::POLLED, false);
                self.attend_later(token);
                Ok(())
            }
            State::Idle if wanted && !flags.has(Flags::STARVED) => {
                socket.flags.set(Flags::POLLED, false);
                // What stays armed may bring far more than is wanted, so only a socket that brings little gets it: not one
                // of which nothing is known, nor one that has more than the last receive brought.
                let once = flags.has(Flags::ONE_SHOT) || socket.load.is_new();
                let wish = match flags.has(Flags::READABLE) {
                    true => Wish::Once,
                    false if once => Wish::OnceLater,
                    false => Wish::Always,
                };
                self.arm(token, Kind::Receive, Request::Receive { fd, wish })
            }
            State::Armed if flags.has(Flags::POLLED) && bulk => {
                if wanted && flags.has(Flags::READABLE) {
                    self.attend_later(token);
                }
                Ok(())
            }
            State::Armed if flags.has(Flags::POLLED) || bulk => self.cancel(token, Kind::Receive),
            // A receive that comes once may as well come; and who is held back has not stopped.
            State::Armed if !wanted && !flags.has_any(Flags::ONE_SHOT.and(Flags::RECEIVING)) => {
                socket.flags.set(Flags::ONE_SHOT, true);
                self.cancel(token, Kind::Receive)
            }
            _ => Ok(()),
        }
    }

    /// Takes note of a socket that would receive if receiving were not held back.
    pub(super) fn note_held(&mut self, token: Token) {
        if !self.held {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(token)
            && socket.flags.has(Flags::RECEIVING)
            && !std::mem::replace(&mut socket.held, true)
        {
            self.held_sockets.push(token);
        }
    }

    /// Whether the loop is to have what arrives.
    pub(super) fn wants(&self, flags: Flags) -> bool {
        let over = flags.has_any(Flags::ENDED.and(Flags::FAILED).and(Flags::CLOSING));
        flags.has(Flags::RECEIVING) && !over && !self.held
    }

    /// Submits an operation, unless the kernel has one of that kind.
    pub(super) fn arm(&mut self, token: Token, kind: Kind, request: Request) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.flights.step(kind, Step::Arm) {
            if let Err(error) = self.kernel.push(request, name(token, kind)) {
                // As if it had ended at once.
                socket.flights.step(kind, Step::Last);
                return Err(error);
            }
            self.in_flight += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token, kind: Kind) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(token) else { return Ok(()) };
        if socket.flights.state(kind) == State::Armed {
            self.kernel.push(Request::Cancel { name: name(token, kind) }, name(token, Kind::Cancel))?;
            socket.flights.step(kind, Step::Cancel);
            if planted::is_injected(Bug::CancelBelieved) {
                socket.flights.step(kind, Step::Last);
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
        socket.flags.set(Flags::RESET, reset || socket.flags.has(Flags::RESET));
        if self.release(token) {
            return Some(Completion::Closed);
        }
        self.line_up(token);
        None
    }

    /// Closes a socket that was let go of, if the last of its operations has ended.
    pub(super) fn release(&mut self, token: Token) -> bool {
        let Some(socket) = self.sockets.get(token) else { return false };
        let is_over = socket.flights.are_over() || planted::is_injected(Bug::ClosedEarly);
        if !socket.flags.has(Flags::CLOSING) || !is_over {
            return false;
        }
        if let Some(socket) = self.sockets.remove(token)
            && socket.flags.has(Flags::RESET)
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
