//! Datagram sockets: receiving a batch at a time, sending, and errors of the network.
//!
//! A datagram socket is registered for reading only: the kernel reports room whenever it has sent a datagram, which
//! would wake the loop each time. It is registered for writing as well while a send waits.

use std::os::fd::AsRawFd;

use mio::Interest;
use mio::unix::SourceFd;
use tidegate_buffer::Transmits;

use super::table::Flags;
use super::{BOTH, Readiness, enqueue, to_mio};
use crate::datagram::{DatagramIo, DatagramOptions, Received};
use crate::driver::{Completion, Token, Transmission};
use crate::socket::Socket;

impl Readiness {
    /// Takes over a datagram socket.
    pub(super) fn bind(&mut self, token: Token, socket: Socket, options: &DatagramOptions) -> Option<Completion> {
        let Socket::Descriptor(descriptor) = socket else {
            return Some(Completion::Failed(std::io::ErrorKind::Unsupported.into()));
        };
        let datagrams = self.datagrams.get_or_insert_with(|| Box::new(DatagramIo::new(&self.pool)));
        let added = datagrams.add(token.slot, &descriptor, options);
        let registered = added.and_then(|()| self.register(token, descriptor, Flags::DATAGRAM));
        if let Err(error) = registered {
            self.forget_datagrams(token);
            return Some(Completion::Failed(error));
        }
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

    pub(super) fn transmit(&mut self, token: Token, transmits: &mut Transmits) -> Option<Completion> {
        let (socket, datagrams) = (self.sockets.get_mut(token)?, self.datagrams.as_mut()?);
        if socket.flags.contains(Flags::SEND_BLOCKED) {
            return Some(Completion::Transmitted(Transmission { is_blocked: true, ..Transmission::default() }));
        }
        let transmission = datagrams.send(token.slot, &*socket, transmits);
        socket.load.note_sent(transmission.bytes as usize);
        if transmission.is_blocked {
            socket.load.note_blocked();
            socket.flags.set(Flags::SEND_BLOCKED, true);
            self.set_interest(token, BOTH);
        }
        Some(Completion::Transmitted(transmission))
    }

    /// The next report of a datagram socket: room to send, errors of the network, a batch.
    pub(super) fn poll_datagrams(&mut self, token: Token) -> Option<Completion> {
        let (socket, datagrams) = (self.sockets.get_mut(token)?, self.datagrams.as_mut()?);
        if socket.flags.take(Flags::WRITABLE) && socket.flags.take(Flags::SEND_BLOCKED) {
            enqueue(&mut self.ready, socket, token);
            self.set_interest(token, Interest::READABLE);
            return Some(Completion::Transmitted(Transmission::default()));
        }
        if socket.flags.take(Flags::ERROR) {
            let errors = datagrams.network_errors(token.slot, &*socket);
            if !errors.is_empty() {
                // There may be more of them, and datagrams.
                socket.flags.set(Flags::ERROR, true);
                enqueue(&mut self.ready, socket, token);
                return Some(Completion::DatagramErrors(errors));
            }
        }
        if !socket.flags.contains(Flags::RECEIVING) || !socket.flags.contains(Flags::READABLE) {
            return None;
        }
        if let Some(paused) = &mut self.paused_sockets {
            if socket.flags.raise(Flags::RECV_PAUSED) {
                paused.push(token);
            }
            return None;
        }
        match datagrams.receive(token.slot, &*socket) {
            Received::Batch(batch, may_have_more) => {
                socket.load.note_received(batch.iter().map(|datagram| datagram.payload.len()).sum());
                if may_have_more {
                    enqueue(&mut self.ready, socket, token);
                } else {
                    socket.flags.set(Flags::READABLE, false);
                }
                Some(Completion::Datagrams(batch))
            }
            Received::Errors(errors) => {
                enqueue(&mut self.ready, socket, token);
                Some(Completion::DatagramErrors(errors))
            }
            Received::Nothing => {
                socket.flags.set(Flags::READABLE, false);
                None
            }
        }
    }

    fn set_interest(&self, token: Token, interest: Interest) {
        if let Some(socket) = self.sockets.get(token) {
            let fd = socket.as_raw_fd();
            // It fails only for want of memory: then the datagrams wait for the next one that is sent.
            let _ = self.poll.registry().reregister(&mut SourceFd(&fd), to_mio(token), interest);
        }
    }
}
