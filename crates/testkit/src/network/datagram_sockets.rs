//! The state of the datagram sockets of a network, and their faults.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_buffer::{Address, Ancillary, DatagramError, Ecn};
use tidegate_sys::{DatagramOptions, Load};

use super::stream::Owner;
use super::table::Table;

/// Faults of datagrams: each number is "one in so many", on average; zero is never.
///
/// ```
/// use tidegate_testkit::network::{DatagramFaults, Network};
///
/// let network = Network::new(7);
/// network.set_datagram_faults(DatagramFaults { lost: 20, duplicated: 50, ..DatagramFaults::default() });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramFaults {
    /// The datagram does not arrive.
    pub lost: usize,
    /// The datagram arrives twice.
    pub duplicated: usize,
    /// The datagram takes up to 20 ms longer, so that later ones overtake it.
    pub delayed: usize,
    /// One bit of the payload is changed: a checksum does not find every error.
    pub corrupted: usize,
    /// The kernel has no room for a send, for up to 5 ms.
    pub blocked: usize,
}

/// Numbers of datagrams so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramCounts {
    /// Taken by the sending kernels.
    pub sent: u64,
    /// Put into the receive buffer of a socket.
    pub arrived: u64,
    /// Lost by a fault or by a cut route.
    pub lost: u64,
    /// Arrived twice by a fault.
    pub duplicated: u64,
    /// Delayed by a fault.
    pub delayed: u64,
    /// Corrupted by a fault.
    pub corrupted: u64,
    /// Dropped at a full receive buffer.
    pub overflowed: u64,
    /// Sent to a port without a socket.
    pub unreachable: u64,
    /// Sends that found no room, by a fault.
    pub blocked: u64,
}

/// The datagram sockets of all hosts.
#[derive(Debug)]
pub(super) struct DatagramSockets {
    pub(super) sockets: Table<DatagramSocket>,
    /// The sockets at each address, in the order in which they were bound. No code iterates this map.
    pub(super) ports: HashMap<SocketAddr, Vec<u64>>,
    /// The socket at each name of a Unix socket, which the whole network shares.
    pub(super) names: HashMap<Address, u64>,
    pub(super) faults: DatagramFaults,
    pub(super) counts: DatagramCounts,
    /// The largest packet that a link carries, in bytes.
    pub(super) mtu: usize,
    pub(super) next_port: u16,
}

/// A socket.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    /// Its address; without a meaning for a Unix socket.
    pub(super) local: SocketAddr,
    /// The name of a Unix socket. One without a name has an empty path.
    pub(super) name: Option<Address>,
    pub(super) owner: Option<Owner>,
    pub(super) queued: bool,
    pub(super) receiving: bool,
    pub(super) load: Load,
    /// When the line is free for the next datagram: without a fault none overtakes another.
    pub(super) free_at: Duration,
    pub(super) options: DatagramOptions,
    pub(super) inbound: VecDeque<Packet>,
    pub(super) inbound_bytes: usize,
    /// Datagrams that the full receive buffer has dropped.
    pub(super) drops: u64,
    pub(super) errors: Vec<DatagramError>,
    /// A send found no room.
    pub(super) blocked: bool,
    /// There is room again, which the driver has not reported.
    pub(super) has_room: bool,
}

/// A datagram in flight.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: Ecn,
    /// Of a Unix socket: the sender's name, and descriptors.
    pub(super) ancillary: Option<Box<Ancillary>>,
}

impl DatagramSocket {
    pub(super) fn new(local: SocketAddr, name: Option<Address>, options: &DatagramOptions) -> Self {
        Self {
            local,
            name,
            owner: None,
            queued: false,
            receiving: false,
            load: Load::default(),
            free_at: Duration::ZERO,
            options: options.clone(),
            inbound: VecDeque::new(),
            inbound_bytes: 0,
            drops: 0,
            errors: Vec::new(),
            blocked: false,
            has_room: false,
        }
    }

    pub(super) fn address(&self) -> Address {
        self.name.clone().unwrap_or(Address::Ip(self.local))
    }
}

impl DatagramSockets {
    pub(super) fn new() -> Self {
        Self {
            sockets: Table::new(),
            ports: HashMap::new(),
            names: HashMap::new(),
            faults: DatagramFaults::default(),
            counts: DatagramCounts::default(),
            mtu: MTU,
            next_port: PORT_FIRST,
        }
    }

    /// The socket that gets a datagram: of those that share the address, a hash of the source chooses one.
    pub(super) fn receiver(&self, packet: &Packet) -> Option<u64> {
        let group = self.ports.get(&packet.destination)?;
        let takes = |id: &u64| {
            let peer = self.sockets.get(*id).map(|socket| socket.options.peer);
            peer.is_some_and(|peer| peer.is_none_or(|peer| peer == packet.source))
        };
        let takers: Vec<u64> = group.iter().copied().filter(takes).collect();
        let hash = match packet.source.ip() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits() as u64 ^ (ip.to_bits() >> 64) as u64,
        };
        let hash = (hash ^ u64::from(packet.source.port())).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        takers.get((hash as usize).checked_rem(takers.len())?).copied()
    }
}

/// The MTU of Ethernet.
const MTU: usize = 1_500;

/// The first port of a socket that was bound to port 0.
const PORT_FIRST: u16 = 49_152;
