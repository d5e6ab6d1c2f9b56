//! `DatagramOptions`: options of a datagram socket by name.

use std::net::{IpAddr, SocketAddr};

use super::steering::Steering;

/// Options of a datagram socket.
///
/// ```
/// use tidegate::sys::DatagramOptions;
///
/// let options = DatagramOptions { payload_bytes_max: 4096, ..DatagramOptions::default() };
/// assert!(!options.joins_runs && !options.broadcast);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramOptions {
    /// The longest payload that is received whole, in bytes, from 1 to 65,535; 2,048 by default, which is more than an
    /// Ethernet frame has. A longer one is truncated, and marked so. A loop has memory for a batch of these.
    pub payload_bytes_max: u16,
    /// Let the kernel join datagrams of one flow into runs (UDP_GRO). It pays where peers send many long datagrams in a
    /// row, and costs memory: a buffer has room for 64 payloads. Off by default.
    pub joins_runs: bool,
    /// The peer, if the socket is to be connected: datagrams of other sources are not received.
    pub peer: Option<SocketAddr>,
    /// Several sockets share the address (SO_REUSEPORT); the kernel distributes peers over them.
    pub reuse_port: bool,
    /// Which of the sockets that share the address gets a datagram; by a hash of both addresses unless set, and where a
    /// datagram has no number.
    pub steering: Option<Steering>,
    /// Receive only IPv6 at an IPv6 address (IPV6_V6ONLY). Off by default: a socket at `[::]` receives from IPv4 too, and
    /// its peers have IPv4 addresses.
    pub only_v6: bool,
    /// The size of the kernel's receive buffer, in bytes. By default the kernel chooses it.
    pub receive_buffer_bytes: Option<usize>,
    /// The size of the kernel's send buffer, in bytes. By default the kernel chooses it.
    pub send_buffer_bytes: Option<usize>,
    /// Permit datagrams to broadcast addresses. Off by default.
    pub broadcast: bool,
    /// Let hosts and routers fragment a datagram that is too long for a link. By default such a datagram fails
    /// ([`TooLong`](tidegate_buffer::DatagramErrorReason::TooLong)): a lost fragment loses the whole datagram, and many
    /// networks drop fragments. In either case the kernel ignores reports of routers about the path
    /// (IP_PMTUDISC_PROBE or IP_PMTUDISC_DONT), which any sender can forge.
    pub fragments: bool,
    /// Descriptors of a received datagram that are kept, at most 255; none by default. The rest are closed, and the datagram
    /// counts as truncated: any process that reaches a Unix socket can send descriptors, and would use up those of this
    /// process. The kernel opens none above the limit, unless [`control_messages`](Self::control_messages) is set.
    pub descriptors_max: u8,
    /// Report the process that sent each datagram through a Unix socket (SO_PASSCRED):
    /// [`Ancillary::credentials`](tidegate_buffer::Ancillary::credentials). Off by default.
    pub credentials: bool,
    /// Report the address and the interface that each datagram arrived at, its congestion mark and its time to live; on by
    /// default. Off, [`Datagram::local`](tidegate_buffer::Datagram::local), `ecn` and `ttl` are empty, the kernel chooses the
    /// source and the interface of a response, and an echo costs a tenth less. It suits a socket that is bound to one
    /// address, of a protocol without congestion marks; one at `0.0.0.0` or `[::]` needs the facts to respond from the
    /// right address. The segment size of a run and the kernel's drops are reported in either case.
    pub facts: bool,
    /// Report control messages of kinds that have no field of their own, as bytes:
    /// [`Ancillary::messages`](tidegate_buffer::Ancillary::messages). The kernel sends those for which an option of the
    /// socket is set. Off by default.
    pub control_messages: bool,
    /// Groups to join, from any source: the address of the group, and the index of the interface, zero for the kernel's
    /// choice. A group that stands here twice is joined once. The socket receives from these groups alone, whichever
    /// groups other processes have joined (IP_MULTICAST_ALL is off).
    pub groups: Vec<(IpAddr, u32)>,
    /// Groups to join, from one source each (RFC 3678 §5). The kernel drops datagrams to the group from others. One
    /// that stands here twice is joined once.
    pub source_groups: Vec<SourceGroup>,
}

/// A group, and a source to receive from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceGroup {
    /// The address of the group.
    pub group: IpAddr,
    /// The address of the sender, of the same family.
    pub source: IpAddr,
    /// The index of the interface; zero for the kernel's choice.
    pub interface: u32,
}

impl DatagramOptions {
    /// The memory that one receive needs.
    pub(crate) fn buffer_bytes(&self) -> usize {
        if self.joins_runs { self.payload_bytes() * RUN_DATAGRAMS_MAX } else { self.payload_bytes() }
    }

    /// The longest payload that is received whole, in bytes.
    pub(crate) fn payload_bytes(&self) -> usize {
        usize::from(self.payload_bytes_max.max(1))
    }
}

impl Default for DatagramOptions {
    fn default() -> Self {
        Self {
            payload_bytes_max: 2048,
            joins_runs: false,
            peer: None,
            reuse_port: false,
            steering: None,
            only_v6: false,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            broadcast: false,
            fragments: false,
            descriptors_max: 0,
            credentials: false,
            facts: true,
            control_messages: false,
            groups: Vec::new(),
            source_groups: Vec::new(),
        }
    }
}

/// Datagrams that the kernel joins, and splits, at most (UDP_GRO_CNT_MAX, UDP_MAX_SEGMENTS of older kernels).
pub(crate) const RUN_DATAGRAMS_MAX: usize = 64;
