//! Unix datagram sockets of a network: names that all hosts share, and datagrams that arrive at once.
//!
//! As on Linux, the sender learns at once that no socket has the name, and a full queue of one receiver loses the datagrams to
//! that one alone. No fault loses, delays or changes a datagram; a blocked send is a fault of these sockets too. Descriptors
//! come along; the network knows no processes, so no datagram has credentials.

use std::io;
use std::path::PathBuf;

use tidegate_buffer::{Address, Ancillary, Datagram, DatagramError, DatagramErrorReason, Slice, Transmit};
use tidegate_sys::{DatagramOptions, Transmission};

use super::datagram_sockets::{DatagramSocket, Packet};
use super::world::World;

impl World {
    /// Opens a socket at a name, or without a name if the path is empty.
    pub(super) fn bind_unix_datagrams(&mut self, name: &Address, options: &DatagramOptions) -> io::Result<u64> {
        if !matches!(name, Address::Unix(_) | Address::Abstract(_)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let is_named = *name != Address::Unix(PathBuf::new());
        if is_named && self.datagrams.names.contains_key(name) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let socket = DatagramSocket::new(Datagram::NO_SOURCE, Some(name.clone()), options);
        let id = self.datagrams.sockets.insert(socket);
        if is_named {
            self.datagrams.names.insert(name.clone(), id);
        }
        Ok(id)
    }

    /// Sends a datagram from the socket of this name.
    pub(super) fn transmit_unix(&mut self, from: Address, transmit: &Transmit, transmission: &mut Transmission) {
        let to = transmit.ancillary.as_ref().and_then(|ancillary| ancillary.peer.as_ref());
        let receiver = to.map(|name| self.datagrams.names.get(name).copied());
        let reason = match receiver {
            _ if transmit.destination.is_some() => DatagramErrorReason::Refused(io::ErrorKind::InvalidInput),
            None => DatagramErrorReason::Refused(io::ErrorKind::InvalidInput),
            Some(None) if matches!(to, Some(Address::Unix(_))) => DatagramErrorReason::Refused(io::ErrorKind::NotFound),
            Some(None) => DatagramErrorReason::PortUnreachable,
            Some(Some(receiver)) => {
                self.deliver_unix(receiver, from, transmit, transmission);
                return;
            }
        };
        transmission.errors.push(DatagramError { destination: transmit.destination, reason });
        transmission.lost += 1;
    }

    fn deliver_unix(&mut self, receiver: u64, from: Address, transmit: &Transmit, transmission: &mut Transmission) {
        let mut ancillary = transmit.ancillary.as_deref().cloned().unwrap_or_default();
        ancillary.peer = Some(from);
        let bytes = transmit.payload.to_vec();
        let length = bytes.len() as u64;
        let (source, destination) = (Datagram::NO_SOURCE, Datagram::NO_SOURCE);
        let packet = Packet { source, destination, bytes, ecn: transmit.ecn, ancillary: Some(Box::new(ancillary)) };
        if self.put_inbound(receiver, packet) {
            self.datagrams.counts.sent += 1;
            transmission.sent += 1;
            transmission.bytes += length;
        } else {
            transmission.lost += 1;
        }
    }
}

/// A received datagram, with as many of its descriptors as the socket keeps.
pub(super) fn unix_datagram(payload: Slice, sent: &Ancillary, descriptors_max: usize, mut truncated: bool) -> Datagram {
    let mut ancillary = sent.clone();
    let mut descriptors = ancillary.take_descriptors();
    truncated |= descriptors.len() > descriptors_max;
    descriptors.truncate(descriptors_max);
    for descriptor in descriptors {
        // There was room for more when it was sent.
        let _ = ancillary.attach_shared(descriptor);
    }
    Datagram { truncated, ancillary: Some(Box::new(ancillary)), ..Datagram::new(payload, Datagram::NO_SOURCE) }
}
