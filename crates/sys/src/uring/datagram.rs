//! Datagram sockets: a poll that stays armed, and the calls of the other driver.
//!
//! A multishot `recvmsg` request was considered and not taken: each of its completions is one datagram with one
//! provided buffer, where one `recvmmsg` call brings a batch into memory that is in the cache (decision 149).

use tidegate_buffer::{Datagram, Transmits};

use super::UringDriver;
use super::kernel::{Event, Kernel};
use super::table::{Flags, SendRoom, SocketKind};
use crate::datagram::{DatagramIo, DatagramOptions, Received};
use crate::driver::{Completion, Token, Transmission};
use crate::socket::Socket;

impl<K: Kernel> UringDriver<K> {
    /// Takes over a datagram socket.
    pub(super) fn bind(&mut self, token: Token, socket: Socket, options: &DatagramOptions) -> Option<Completion> {
        let Socket::Descriptor(descriptor) = socket else {
            return Some(Completion::Failed(std::io::ErrorKind::Unsupported.into()));
        };
        let pool = self.direct_io.pool.clone();
        let datagrams = self.datagrams.get_or_insert_with(|| Box::new(DatagramIo::new(&pool)));
        if let Err(error) = datagrams.add(token.slot, &descriptor, options) {
            self.forget_datagrams(token);
            return Some(Completion::Failed(error));
        }
        // Its receive operation is a poll.
        self.sockets.insert(token, descriptor, SocketKind::Datagram, Flags::POLLED);
        self.enqueue(token);
        None
    }

    /// Forgets a socket, and the memory that it shared if it was the last one.
    pub(super) fn forget_datagrams(&mut self, token: Token) {
        if let Some(datagrams) = &mut self.datagrams
            && datagrams.remove(token.slot)
        {
            self.datagrams = None;
        }
    }

    /// Handles an event of the poll for datagrams and errors.
    pub(super) fn datagrams_polled(&mut self, token: Token, event: Event) -> Option<Completion> {
        let socket = self.sockets.get_mut(token)?;
        if event.result < 0 && event.was_cancelled() {
            return None;
        }
        // Whatever the event is, a call returns the result.
        socket.flags.set(Flags::READABLE, true);
        if event.result < 0 || event.result & i32::from(libc::POLLERR) != 0 {
            socket.flags.set(Flags::HUNG_UP, true);
        }
        self.poll_socket_later(token);
        None
    }

    pub(super) fn transmit(&mut self, token: Token, transmits: &mut Transmits) -> Option<Completion> {
        let (socket, datagrams) = (self.sockets.get_mut(token)?, self.datagrams.as_mut()?);
        if socket.room != SendRoom::Free {
            return Some(Completion::Transmitted(Transmission { is_blocked: true, ..Transmission::default() }));
        }
        let transmission = datagrams.send(token.slot, &socket.descriptor, transmits);
        socket.load.note_sent(transmission.bytes as usize);
        if transmission.is_blocked {
            socket.load.note_blocked();
            socket.room = SendRoom::Awaited;
            self.enqueue(token);
        }
        Some(Completion::Transmitted(transmission))
    }

    /// The next report of a datagram socket: room to send, errors of the network, a batch.
    pub(super) fn poll_datagrams(&mut self, token: Token) -> Option<Completion> {
        let (socket, datagrams) = (self.sockets.get_mut(token)?, self.datagrams.as_mut()?);
        let flags = socket.flags;
        if flags.contains(Flags::CLOSING) {
            return None;
        }
        if socket.room == SendRoom::Found {
            socket.room = SendRoom::Free;
            self.poll_socket_later(token);
            return Some(Completion::Transmitted(Transmission::default()));
        }
        if socket.flags.take(Flags::HUNG_UP) {
            let errors = datagrams.network_errors(token.slot, &socket.descriptor);
            if !errors.is_empty() {
                // There may be more of them, and datagrams.
                socket.flags.set(Flags::HUNG_UP, true);
                self.poll_socket_later(token);
                return Some(Completion::DatagramErrors(errors));
            }
        }
        if !flags.contains(Flags::RECEIVING.union(Flags::READABLE)) {
            return None;
        }
        if self.receives_paused {
            self.note_paused(token);
            return None;
        }
        match datagrams.receive(token.slot, &socket.descriptor) {
            Received::Batch(batch, may_have_more) => {
                socket.load.note_received(batch.iter().map(|datagram| datagram.payload.len()).sum());
                socket.flags.set(Flags::READABLE, may_have_more);
                if may_have_more {
                    self.poll_socket_later(token);
                }
                Some(Completion::Datagrams(batch))
            }
            Received::Errors(errors) => {
                self.poll_socket_later(token);
                Some(Completion::DatagramErrors(errors))
            }
            Received::Nothing => {
                socket.flags.set(Flags::READABLE, false);
                None
            }
        }
    }

    pub(super) fn give_back(&mut self, batch: Vec<Datagram>) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.give_back(batch);
        }
    }
}
