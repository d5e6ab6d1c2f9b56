//! Datagrams: a received one, with the facts that the kernel reports beside it, and one to send.
//!
//! The types are here because drivers and protocols both use them, and neither imports the other. They contain no
//! socket. `transmits.rs` has the list of datagrams that wait to be sent, `ancillary.rs` the data beside a payload,
//! `membership.rs` a multicast group to join.

mod ancillary;
mod membership;
mod transmits;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::ops::Deref;

use bytes::Bytes;

pub use self::ancillary::{Ancillary, AncillaryFull, ControlMessage, Credentials};
pub use self::membership::Membership;
pub use self::transmits::{TRANSMIT_ENTRY_BYTES, Transmits};
use crate::address::Address;
use crate::slice::Slice;

/// A received datagram, or a run of datagrams of one flow that the kernel joined (GRO).
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::codec::{Datagram, Pool};
///
/// let source: SocketAddr = "192.0.2.7:5300".parse()?;
/// let datagram = Datagram::new(Pool::new().copy(b"hello"), source);
/// assert_eq!((&*datagram.payload, datagram.source), (&b"hello"[..], source));
/// assert!(!datagram.truncated);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Datagram {
    /// The bytes. A handler that keeps them beyond its event calls [`Slice::detach`]: the slice keeps the memory of a
    /// whole batch.
    pub payload: Slice,
    /// The address that the peer sent from. It is not verified: any sender can forge it. For a Unix socket it is
    /// [`NO_SOURCE`](Self::NO_SOURCE), and [`Ancillary::peer`] has the name.
    pub source: SocketAddr,
    /// The address and the interface that the datagram arrived at, as far as they are known.
    pub local: LocalAddress,
    /// The congestion mark of the IP header.
    pub ecn: Ecn,
    /// The time to live (IPv4) or the hop limit (IPv6) of the received header, if the socket reports it.
    pub ttl: Option<u8>,
    /// The length of each datagram of a run, in bytes; the last one may be shorter. `None` for a single datagram.
    pub segment_size: Option<NonZeroU16>,
    /// The datagram was longer than the memory that it was received into: the rest is lost.
    pub truncated: bool,
    /// Data beside the payload: always of a Unix socket, otherwise if the socket asks for control messages as bytes.
    pub ancillary: Option<Box<Ancillary>>,
}

impl Datagram {
    /// The source of a datagram of a Unix socket: no address of IP.
    pub const NO_SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

    /// A single datagram, of which nothing else is known.
    #[must_use]
    pub fn new(payload: Slice, source: SocketAddr) -> Self {
        Self {
            payload,
            source,
            local: LocalAddress::default(),
            ecn: Ecn::NotCapable,
            ttl: None,
            segment_size: None,
            truncated: false,
            ancillary: None,
        }
    }

    /// The number of datagrams in it: one, unless it is a run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.segment_size.map_or(1, |size| self.payload.len().div_ceil(usize::from(size.get())).max(1))
    }

    /// The address that the peer sent from, of any family. A Unix socket without a name has an empty path.
    #[must_use]
    pub fn peer(&self) -> Address {
        let peer = self.ancillary.as_ref().and_then(|ancillary| ancillary.peer.clone());
        peer.unwrap_or(Address::Ip(self.source))
    }

    /// The datagrams of a run, one after the other; a single datagram yields itself. Only the last one of a run can be
    /// truncated. No bytes are copied. Ancillary data goes to each of them.
    ///
    /// ```
    /// use std::num::NonZeroU16;
    ///
    /// use tidegate::codec::{Datagram, Pool};
    ///
    /// let mut run = Datagram::new(Pool::new().copy(b"aabbc"), "192.0.2.7:5300".parse()?);
    /// run.segment_size = NonZeroU16::new(2);
    /// let payloads: Vec<_> = run.into_singles().map(|single| single.payload.to_vec()).collect();
    /// assert_eq!(payloads, [&b"aa"[..], b"bb", b"c"]);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn into_singles(self) -> impl Iterator<Item = Self> {
        Singles(Some(self))
    }
}

/// The rest of a run.
struct Singles(Option<Datagram>);

impl Iterator for Singles {
    type Item = Datagram;

    fn next(&mut self) -> Option<Datagram> {
        let mut run = self.0.take()?;
        let Some(size) = run.segment_size.map(|size| usize::from(size.get())) else { return Some(run) };
        if run.payload.len() <= size {
            run.segment_size = None;
            return Some(run);
        }
        let (payload, ancillary) = (run.payload.slice(..size), run.ancillary.clone());
        let first = Datagram { payload, segment_size: None, truncated: false, ancillary, ..run };
        run.payload.advance(size);
        self.0 = Some(run);
        Some(first)
    }
}

/// A datagram to send, or a run of datagrams of one length to one destination, which the kernel splits (GSO).
///
/// ```
/// use tidegate::codec::{Ecn, Transmit};
///
/// let transmit = Transmit::new(b"hello".to_vec(), "192.0.2.7:5300".parse()?);
/// assert_eq!((&*transmit.payload, transmit.ecn, transmit.count()), (&b"hello"[..], Ecn::NotCapable, 1));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Transmit {
    /// The bytes.
    pub payload: Payload,
    /// The destination; `None` on a connected socket, whose peer it is then.
    pub destination: Option<SocketAddr>,
    /// The local address and the interface to send from. By default the kernel chooses.
    pub local: LocalAddress,
    /// The congestion mark of the IP header.
    pub ecn: Ecn,
    /// The length of each datagram of a run, in bytes; the last one may be shorter. `None` for a single datagram. The
    /// driver sends the datagrams one by one where the system cannot split a run.
    pub segment_size: Option<NonZeroU16>,
    /// Data beside the payload: a Unix socket as the destination, descriptors, control messages as bytes.
    pub ancillary: Option<Box<Ancillary>>,
}

impl Transmit {
    /// A single datagram to `destination`.
    #[must_use]
    pub fn new(payload: impl Into<Payload>, destination: SocketAddr) -> Self {
        Self {
            payload: payload.into(),
            destination: Some(destination),
            local: LocalAddress::default(),
            ecn: Ecn::NotCapable,
            segment_size: None,
            ancillary: None,
        }
    }

    /// A single datagram to the Unix socket that `ancillary` names, or to the peer of a connected socket.
    ///
    /// ```
    /// use tidegate::codec::{Ancillary, Transmit};
    ///
    /// let transmit = Transmit::with_ancillary(b"ready".to_vec(), Ancillary::of("unix:/run/notify".parse()?));
    /// assert_eq!(transmit.destination, None);
    /// # Ok::<(), tidegate::sys::BadAddress>(())
    /// ```
    #[must_use]
    pub fn with_ancillary(payload: impl Into<Payload>, ancillary: Ancillary) -> Self {
        Self { destination: None, ancillary: Some(Box::new(ancillary)), ..Self::new(payload, Datagram::NO_SOURCE) }
    }

    /// A response to a datagram: back to its source, from the address and the interface that it arrived at, without
    /// its congestion mark. A server with several addresses responds so from the address that the peer expects.
    ///
    /// ```
    /// use tidegate::codec::{Datagram, Pool, Transmit};
    ///
    /// let query = Datagram::new(Pool::new().copy(b"ping"), "192.0.2.7:5300".parse()?);
    /// let response = Transmit::response(&query, b"pong".to_vec());
    /// assert_eq!(response.destination, Some(query.source));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn response(datagram: &Datagram, payload: impl Into<Payload>) -> Self {
        let local = match datagram.local.address {
            // No datagram leaves from an address of a group.
            Some(address) if is_group(address) => LocalAddress { address: None, ..datagram.local },
            _ => datagram.local,
        };
        match datagram.ancillary.as_ref().and_then(|ancillary| ancillary.peer.clone()) {
            // A sender without a name gets no response; the driver reports the datagram as refused.
            Some(peer) => Self::with_ancillary(payload, Ancillary::of(peer)),
            None => Self { local, ..Self::new(payload, datagram.source) },
        }
    }

    /// The number of datagrams in it: one, unless it is a run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.segment_size.map_or(1, |size| self.payload.len().div_ceil(usize::from(size.get())).max(1))
    }
}

fn is_group(address: IpAddr) -> bool {
    address.is_multicast() || address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST)
}

/// The bytes of a datagram to send.
#[derive(Debug, Clone)]
pub enum Payload {
    /// A view of the loop's memory: a received payload that is sent on, or a part of one. Cloning copies no bytes.
    Slice(Slice),
    /// A buffer of its own. [`Transmits`] uses it again after it was sent.
    Buffer(Vec<u8>),
    /// Bytes that threads share.
    Bytes(Bytes),
}

impl Payload {
    /// Memory that it occupies outside of the loop's pool, in bytes.
    #[must_use]
    pub fn outside_bytes(&self) -> usize {
        match self {
            Self::Slice(_) => 0,
            Self::Buffer(buffer) => buffer.capacity(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl Payload {
    /// Removes the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, count: usize) {
        match self {
            Self::Slice(slice) => slice.advance(count),
            Self::Buffer(buffer) => drop(buffer.drain(..count)),
            Self::Bytes(bytes) => drop(bytes.split_to(count)),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Slice(slice) => slice,
            Self::Buffer(buffer) => buffer,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Slice> for Payload {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(buffer: Vec<u8>) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Our side of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LocalAddress {
    /// The address: the destination in the received header, or the source of a datagram to send. `None` if it is
    /// unknown, or left to the kernel.
    pub address: Option<IpAddr>,
    /// The index of the interface; zero if it is unknown, or left to the kernel.
    pub interface: u32,
}

/// The congestion mark of an IP header (RFC 3168 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not-ECT: the sender does not react to marks.
    #[default]
    NotCapable = 0b00,
    /// ECT(1).
    Ect1 = 0b01,
    /// ECT(0).
    Ect0 = 0b10,
    /// CE: a router marked congestion.
    Congested = 0b11,
}

impl Ecn {
    /// The mark in the two low bits of a traffic class or a type of service.
    ///
    /// ```
    /// use tidegate::codec::Ecn;
    ///
    /// assert_eq!(Ecn::from_traffic_class(0xB9), Ecn::Ect1);
    /// assert_eq!(Ecn::Congested.bits(), 3);
    /// ```
    #[must_use]
    pub const fn from_traffic_class(byte: u8) -> Self {
        match byte & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Congested,
        }
    }

    /// The two bits of the header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// The system reports that a datagram was not delivered, or cannot be sent. The socket stays usable.
///
/// A report of the network (ICMP) is not authenticated. A protocol treats it as a hint, never as a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramError {
    /// The destination of the datagram, if it is known.
    pub destination: Option<SocketAddr>,
    /// The reason.
    pub reason: DatagramErrorReason,
}

/// Why a datagram was not delivered or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramErrorReason {
    /// The network reports that no socket has the destination's port.
    PortUnreachable,
    /// The network reports that the host or its network cannot be reached, or the kernel has no route to it.
    Unreachable,
    /// The datagram is longer than the path or the interface carries, in bytes of an IP packet if it is known. A value
    /// below 1,280 is probably forged.
    TooLong {
        /// The largest packet that is carried.
        mtu: Option<u32>,
    },
    /// The kernel refuses the datagram for another reason: its address, a filter, its options.
    Refused(io::ErrorKind),
    /// The kernel refuses to join or leave a multicast group, which is the destination.
    Membership(io::ErrorKind),
}

impl std::fmt::Display for DatagramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason: &dyn std::fmt::Display = match &self.reason {
            DatagramErrorReason::PortUnreachable => &"no socket has the port",
            DatagramErrorReason::Unreachable => &"the destination is unreachable",
            DatagramErrorReason::TooLong { .. } => &"the datagram is too long for the path",
            DatagramErrorReason::Refused(kind) => kind,
            DatagramErrorReason::Membership(kind) => {
                let group = self.destination.map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |group| group.ip());
                return write!(f, "the multicast group {group} was not joined or left: {kind}");
            }
        };
        match self.destination {
            Some(destination) => write!(f, "a datagram to {destination} was not delivered: {reason}"),
            None => write!(f, "a datagram was not delivered: {reason}"),
        }
    }
}

impl std::error::Error for DatagramError {}

const _: () = assert!(size_of::<Datagram>() <= 96);
const _: () = assert!(size_of::<Transmit>() <= 112);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    fn source() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 7], 5300))
    }

    #[test]
    fn a_run_yields_each_of_its_datagrams_once_and_marks_the_last_as_truncated() {
        let pool = Pool::new();
        for length in 0..20_usize {
            let bytes: Vec<u8> = (0..length as u8).collect();
            for size in 1..8_u16 {
                let mut run = Datagram::new(pool.copy(&bytes), source());
                (run.segment_size, run.truncated) = (NonZeroU16::new(size), true);
                let count = run.count();
                let singles: Vec<_> = run.into_singles().collect();
                assert_eq!(singles.len(), count);
                let joined: Vec<u8> = singles.iter().flat_map(|single| single.payload.to_vec()).collect();
                assert_eq!(joined, bytes);
                assert!(singles.iter().all(|single| single.segment_size.is_none()));
                let marked: Vec<_> = singles.iter().map(|single| single.truncated).collect();
                assert!(marked.iter().rev().skip(1).all(|truncated| !truncated) && marked[count - 1]);
            }
        }
    }

    #[test]
    fn a_response_to_a_group_leaves_the_source_address_to_the_kernel() {
        let mut query = Datagram::new(Pool::new().copy(b"?"), source());
        query.local = LocalAddress { address: Some(IpAddr::from([10, 0, 0, 1])), interface: 3 };
        assert_eq!(Transmit::response(&query, Vec::new()).local, query.local);
        for group in [IpAddr::from([224, 0, 0, 251]), IpAddr::from([255; 4])] {
            query.local.address = Some(group);
            let local = Transmit::response(&query, Vec::new()).local;
            assert_eq!(local, LocalAddress { address: None, interface: 3 });
        }
    }

    #[test]
    fn marks_convert_to_bits_and_back() {
        for bits in 0..=u8::MAX {
            assert_eq!(Ecn::from_traffic_class(bits).bits(), bits & 3);
        }
    }
}
