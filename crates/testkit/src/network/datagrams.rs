//! Datagram sockets of a network: ports apart from those of TCP, and datagrams that are lost, duplicated, delayed and
//! corrupted.
//!
//! A datagram travels alone: a cut route loses it, a full receive buffer drops it, and a port without a socket sends a
//! report back to its source. The state of the sockets is in `datagram_sockets.rs`, Unix sockets are in `unix_datagrams.rs`.
//! Runs are split by the sender's kernel; no kernel joins datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_buffer::{Datagram, DatagramError, DatagramErrorReason, LocalAddress, Scratch, Transmit, Transmits};
use tidegate_sys::{Completion, DatagramOptions, Transmission};

use super::datagram_sockets::{DatagramFaults, DatagramSocket, Packet};
use super::event_queue::Event;
use super::faults::NetworkFault;
use super::unix_datagrams::unix_datagram;
use super::world::{PORT_FIRST, SocketRef, World};

impl World {
    /// Opens a socket at a host. For port 0 it gets a free one.
    pub(super) fn bind_datagrams(&mut self, ip: IpAddr, port: u16, options: &DatagramOptions) -> io::Result<u64> {
        let datagrams = &mut self.datagrams;
        let port = match port {
            0 => loop {
                let port = datagrams.next_port;
                datagrams.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
                if !datagrams.ports.contains_key(&SocketAddr::new(ip, port)) {
                    break port;
                }
            },
            port => port,
        };
        let local = SocketAddr::new(ip, port);
        let group = datagrams.ports.entry(local).or_default();
        let shares = |id: &u64| datagrams.sockets.get(*id).is_some_and(|socket| socket.options.reuse_port);
        let may_bind = group.is_empty() || options.reuse_port && group.iter().all(shares);
        if !may_bind {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let id = datagrams.sockets.insert(DatagramSocket::new(local, None, options));
        group.push(id);
        Ok(id)
    }

    /// Closes a socket: the datagrams in its receive buffer are lost.
    pub(super) fn close_datagrams(&mut self, id: u64) {
        let Some(socket) = self.datagrams.sockets.remove(id) else { return };
        if let Some(name) = &socket.name {
            self.datagrams.names.remove(name);
            return;
        }
        if let Some(group) = self.datagrams.ports.get_mut(&socket.local) {
            group.retain(|other| *other != id);
            if group.is_empty() {
                self.datagrams.ports.remove(&socket.local);
            }
        }
    }

    /// Sends a list of datagrams, as far as there is room.
    pub(super) fn transmit_datagrams(&mut self, id: u64, transmits: &mut Transmits) -> Transmission {
        let mut transmission = Transmission::default();
        while let Some(transmit) = transmits.pop() {
            let Some(socket) = self.datagrams.sockets.get(id) else { break };
            if socket.blocked || self.occurs_to_datagram(|faults| faults.blocked) {
                transmits.push_back_oldest(transmit);
                transmission.is_blocked = true;
                self.block_datagrams(id);
                break;
            }
            match self.datagrams.sockets.get(id).and_then(|socket| socket.name.clone()) {
                Some(name) => self.transmit_unix(name, &transmit, &mut transmission),
                None => self.transmit_one(id, &transmit, &mut transmission),
            }
            transmits.recycle(transmit.payload);
        }
        transmission
    }

    fn block_datagrams(&mut self, id: u64) {
        let pause = self.random_delay(BLOCKED_MAX);
        if let Some(socket) = self.datagrams.sockets.get_mut(id)
            && !std::mem::replace(&mut socket.blocked, true)
        {
            socket.load.note_blocked();
            self.datagrams.counts.blocked += 1;
            self.put(pause, Event::DatagramRoom { socket: id });
        }
    }

    fn transmit_one(&mut self, id: u64, transmit: &Transmit, transmission: &mut Transmission) {
        let Some(socket) = self.datagrams.sockets.get(id) else { return };
        let (source, mtu) = (socket.local, self.datagrams.mtu);
        let Some(destination) = transmit.destination.or(socket.options.peer) else {
            let reason = DatagramErrorReason::Refused(io::ErrorKind::InvalidInput);
            transmission.errors.push(DatagramError { destination: None, reason });
            transmission.lost += transmit.count() as u64;
            return;
        };
        let size = transmit.segment_size.map_or(usize::MAX, |size| usize::from(size.get()));
        let bytes = &*transmit.payload;
        let empty: Option<&[u8]> = bytes.is_empty().then_some(&[]);
        for bytes in empty.into_iter().chain(bytes.chunks(size)) {
            if bytes.len() + HEADER_BYTES > mtu {
                let reason = DatagramErrorReason::TooLong { mtu: Some(mtu as u32) };
                transmission.errors.push(DatagramError { destination: Some(destination), reason });
                transmission.lost += 1;
                continue;
            }
            transmission.sent += 1;
            transmission.bytes += bytes.len() as u64;
            self.datagrams.counts.sent += 1;
            self.dispatch_packet(
                id,
                Packet { source, destination, bytes: bytes.to_vec(), ecn: transmit.ecn, ancillary: None },
            );
        }
    }

    /// Puts a datagram on its way.
    fn dispatch_packet(&mut self, id: u64, mut packet: Packet) {
        let route = (packet.source.ip(), packet.destination.ip());
        let link = self.link_between(route);
        if self.is_cut(route) || self.occurs_to_datagram(|faults| faults.lost) {
            self.datagrams.counts.lost += 1;
            return;
        }
        if !packet.bytes.is_empty() && self.occurs_to_datagram(|faults| faults.corrupted) {
            self.datagrams.counts.corrupted += 1;
            let place = self.random.below(packet.bytes.len());
            packet.bytes[place] ^= 1 << self.random.below(8);
        }
        let takes = Duration::from_nanos(packet.bytes.len() as u64 * 1_000_000_000 / link.bytes_per_second.max(1));
        let now = self.now;
        let leaves = self.datagrams.sockets.get_mut(id).map_or(takes, |socket| {
            socket.free_at = socket.free_at.max(now) + takes;
            socket.free_at - now
        });
        let mut after = leaves + link.latency;
        if self.occurs_to_datagram(|faults| faults.duplicated) {
            self.datagrams.counts.duplicated += 1;
            let later = self.random_delay(DELAY_MAX);
            self.put(after + later, Event::Datagram { packet: Box::new(packet.clone()) });
        }
        if self.occurs_to_datagram(|faults| faults.delayed) {
            self.datagrams.counts.delayed += 1;
            after += self.random_delay(DELAY_MAX);
        }
        self.put(after, Event::Datagram { packet: Box::new(packet) });
    }

    fn occurs_to_datagram(&mut self, rate: impl FnOnce(&DatagramFaults) -> usize) -> bool {
        let once_in = rate(&self.datagrams.faults);
        once_in > 0 && self.random.once_in(once_in)
    }

    /// A datagram arrives at its host.
    pub(super) fn datagram_arrives(&mut self, packet: Packet) {
        let route = (packet.source.ip(), packet.destination.ip());
        if self.is_cut(route) {
            self.datagrams.counts.lost += 1;
            return;
        }
        let Some(id) = self.datagrams.receiver(&packet) else {
            self.datagrams.counts.unreachable += 1;
            // A host that does not exist reports nothing.
            if self.driver_states.iter().any(|state| state.ip == packet.destination.ip()) {
                let back = self.link_between((route.1, route.0)).latency;
                let (source, destination) = (packet.source, packet.destination);
                self.put(back, Event::PortUnreachable { source, destination });
            }
            return;
        };
        if !self.put_inbound(id, packet) {
            self.datagrams.counts.overflowed += 1;
            self.datagrams.sockets.get_mut(id).into_iter().for_each(|socket| socket.drops += 1);
        }
    }

    /// Puts a datagram into the receive buffer of a socket. Returns whether there was room.
    pub(super) fn put_inbound(&mut self, id: u64, packet: Packet) -> bool {
        let Some(socket) = self.datagrams.sockets.get_mut(id) else { return true };
        let limit = socket.options.receive_buffer_bytes.unwrap_or(RECEIVE_BUFFER_BYTES);
        let cost = packet.bytes.len() + PACKET_BYTES;
        if socket.inbound_bytes + cost > limit && !socket.inbound.is_empty() {
            return false;
        }
        socket.inbound_bytes += cost;
        socket.inbound.push_back(packet);
        self.datagrams.counts.arrived += 1;
        self.enqueue(SocketRef::Datagrams(id));
        true
    }

    /// A report that a port has no socket arrives at the source of a datagram.
    pub(super) fn port_unreachable(&mut self, source: SocketAddr, destination: SocketAddr) {
        if self.is_cut((destination.ip(), source.ip())) {
            return;
        }
        let group = self.datagrams.ports.get(&source).cloned().unwrap_or_default();
        // A kernel reports it to a socket that may have sent to that destination.
        for id in group.into_iter().take(1) {
            if let Some(socket) = self.datagrams.sockets.get_mut(id) {
                let reason = DatagramErrorReason::PortUnreachable;
                socket.errors.push(DatagramError { destination: Some(destination), reason });
                self.enqueue(SocketRef::Datagrams(id));
            }
        }
    }

    pub(super) fn datagram_room(&mut self, id: u64) {
        if let Some(socket) = self.datagrams.sockets.get_mut(id) {
            (socket.blocked, socket.has_room) = (false, true);
            self.enqueue(SocketRef::Datagrams(id));
        }
    }

    /// The next completion of a datagram socket.
    pub(super) fn poll_datagrams(&mut self, id: u64, paused: bool, scratch: &mut Scratch) -> Option<Completion> {
        let socket = self.datagrams.sockets.get_mut(id)?;
        if std::mem::take(&mut socket.has_room) {
            self.enqueue(SocketRef::Datagrams(id));
            return Some(Completion::Transmitted(Transmission::default()));
        }
        if !socket.errors.is_empty() {
            let errors = std::mem::take(&mut socket.errors);
            self.enqueue(SocketRef::Datagrams(id));
            return Some(Completion::DatagramErrors(errors));
        }
        if !socket.receiving || paused || socket.inbound.is_empty() {
            return None;
        }
        let several = socket.inbound.len().min(BATCH_MAX);
        let is_short = several > 1 && self.occurs(NetworkFault::ShortRead);
        let count = if is_short { 1 + self.random.below(several - 1) } else { several };
        let batch = self.take_batch(id, count, scratch);
        self.enqueue(SocketRef::Datagrams(id));
        Some(Completion::Datagrams(batch))
    }

    fn take_batch(&mut self, id: u64, count: usize, scratch: &mut Scratch) -> Vec<Datagram> {
        let Some(socket) = self.datagrams.sockets.get_mut(id) else { return Vec::new() };
        let most = usize::from(socket.options.payload_bytes_max.max(1));
        let packets: Vec<Packet> = socket.inbound.drain(..count).collect();
        socket.inbound_bytes -= packets.iter().map(|packet| packet.bytes.len() + PACKET_BYTES).sum::<usize>();
        let kept = |packet: &Packet| packet.bytes.len().min(most);
        let total: usize = packets.iter().map(kept).sum();
        socket.load.note_received(total);
        let space = scratch.space(total);
        let mut at = 0;
        for packet in &packets {
            space[at..at + kept(packet)].copy_from_slice(&packet.bytes[..kept(packet)]);
            at += kept(packet);
        }
        let mut received = scratch.received(total);
        let batch = packets.iter().map(|packet| {
            let payload = received.slice(..kept(packet));
            received.advance(kept(packet));
            if let Some(ancillary) = &packet.ancillary {
                let descriptors_max = usize::from(socket.options.descriptors_max);
                return unix_datagram(payload, ancillary, descriptors_max, packet.bytes.len() > most);
            }
            Datagram {
                local: LocalAddress { address: Some(packet.destination.ip()), interface: 1 },
                ecn: packet.ecn,
                ttl: Some(64),
                truncated: packet.bytes.len() > most,
                ..Datagram::new(payload, packet.source)
            }
        });
        batch.collect()
    }
}

/// The headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// The receive buffer of Linux by default, and the room that a datagram takes in it beside its payload.
const RECEIVE_BUFFER_BYTES: usize = 212_992;
const PACKET_BYTES: usize = 512;

const BATCH_MAX: usize = 64;
const DELAY_MAX: Duration = Duration::from_millis(20);
const BLOCKED_MAX: Duration = Duration::from_millis(5);
