//! Control messages and socket addresses as bytes: encoding and decoding, without `unsafe`.
//!
//! A control message has a header, with its length, a level and a kind, and data; each begins at a multiple of the word
//! size. The kernel writes them, but a length that does not fit ends the list here all the same.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tidegate_buffer::{Address, Ancillary, ControlMessage, Credentials, Ecn, LocalAddress};

/// Memory for the control messages of one datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; CONTROL_BYTES]);

/// Memory for the address of one datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Name([u8; NAME_BYTES]);

/// The facts that the kernel reports beside a datagram.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) local: LocalAddress,
    pub(super) ecn: Ecn,
    pub(super) ttl: Option<u8>,
    pub(super) segment_size: Option<NonZeroU16>,
    /// The datagrams that the kernel has dropped at this socket so far, modulo 2^32.
    pub(super) drops: Option<u32>,
    /// The process that sent the datagram through a Unix socket.
    pub(super) credentials: Option<Credentials>,
    /// The numbers of descriptors that the kernel has opened for this process.
    pub(super) descriptors: Vec<i32>,
    /// Other messages, if they are wanted.
    pub(super) others: Vec<ControlMessage>,
}

/// An entry of a socket's error queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuedError {
    pub(super) errno: i32,
    /// A report of the network, not of this host.
    pub(super) is_remote: bool,
    /// The largest packet of the path, for `EMSGSIZE`.
    pub(super) mtu: u32,
}

impl Control {
    pub(super) const EMPTY: Self = Self([0; CONTROL_BYTES]);

    /// Writes the messages for a datagram to send, and returns their length in bytes.
    pub(super) fn encode(&mut self, to_v6: bool, local: LocalAddress, ecn: Ecn, segment_size: Option<u16>) -> usize {
        let mut end = 0;
        if local.address.is_some() || local.interface != 0 {
            let interface = (local.interface as i32).to_ne_bytes();
            if to_v6 {
                let mut info = [0; 20];
                if let Some(IpAddr::V6(address)) = local.address {
                    info[..16].copy_from_slice(&address.octets());
                }
                info[16..].copy_from_slice(&interface);
                end = self.push(end, libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
            } else {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&interface);
                if let Some(IpAddr::V4(address)) = local.address {
                    info[4..8].copy_from_slice(&address.octets());
                }
                end = self.push(end, libc::SOL_IP, libc::IP_PKTINFO, &info);
            }
        }
        if ecn != Ecn::NotCapable {
            let (level, kind) = if to_v6 { (libc::SOL_IPV6, libc::IPV6_TCLASS) } else { (libc::SOL_IP, libc::IP_TOS) };
            end = self.push(end, level, kind, &i32::from(ecn.bits()).to_ne_bytes());
        }
        if let Some(size) = segment_size {
            end = self.push(end, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        end
    }

    /// Writes ancillary data after the first `end` bytes, and returns the length of all of it.
    pub(super) fn encode_ancillary(&mut self, mut end: usize, ancillary: &Ancillary) -> usize {
        let descriptors = ancillary.descriptors();
        if !descriptors.is_empty() {
            let numbers: Vec<u8> = descriptors.iter().flat_map(|one| one.as_raw_fd().to_ne_bytes()).collect();
            end = self.push(end, libc::SOL_SOCKET, libc::SCM_RIGHTS, &numbers);
        }
        for message in ancillary.messages() {
            end = self.push(end, message.level, message.kind, &message.data);
        }
        end
    }

    fn push(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        let length = HEADER_BYTES + data.len();
        let message = &mut self.0[at..at + length.next_multiple_of(WORD)];
        message.fill(0);
        message[..WORD].copy_from_slice(&length.to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES..length].copy_from_slice(data);
        at + length.next_multiple_of(WORD)
    }

    /// The facts in the first `length` bytes; messages that are none of them only if `with_others`.
    pub(super) fn facts(&self, length: usize, with_others: bool) -> Facts {
        let mut facts = Facts::default();
        for (level, kind, data) in self.messages(length) {
            match (level, kind) {
                (libc::SOL_IP, libc::IP_PKTINFO) => {
                    if let (Some(interface), Some(address)) = (word(data, 0), array::<4>(data, 8)) {
                        facts.local = LocalAddress { address: Some(IpAddr::from(address)), interface };
                    }
                }
                (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                    if let (Some(address), Some(interface)) = (array::<16>(data, 0), word(data, 16)) {
                        let address = Ipv6Addr::from(address).to_canonical();
                        facts.local = LocalAddress { address: Some(address), interface };
                    }
                }
                (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                    facts.ecn = Ecn::from_traffic_class(data.first().copied().unwrap_or(0) | low_byte(data));
                }
                (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => {
                    facts.ttl = word(data, 0).and_then(|ttl| u8::try_from(ttl).ok());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = word(data, 0).and_then(|size| u16::try_from(size).ok());
                    facts.segment_size = size.and_then(NonZeroU16::new);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => facts.drops = word(data, 0),
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let numbers = data.chunks_exact(4).filter_map(|number| word(number, 0));
                    facts.descriptors.extend(numbers.map(|number| number as i32));
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    if let (Some(process), Some(user), Some(group)) = (word(data, 0), word(data, 4), word(data, 8)) {
                        facts.credentials = Some(Credentials { process: process as i32, user, group });
                    }
                }
                (level, kind) if with_others => {
                    facts.others.push(ControlMessage { level, kind, data: data.to_vec() });
                }
                _ => {}
            }
        }
        facts
    }

    /// The entry of an error queue in the first `length` bytes.
    pub(super) fn queued_error(&self, length: usize) -> Option<QueuedError> {
        let of_errors = |(level, kind, _): &(i32, i32, &[u8])| {
            matches!((*level, *kind), (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR))
        };
        let (_, _, data) = self.messages(length).find(of_errors)?;
        let origin = *data.get(4)?;
        let is_remote = origin == ORIGIN_ICMP || origin == ORIGIN_ICMP6;
        Some(QueuedError { errno: word(data, 0)? as i32, is_remote, mtu: word(data, 8)? })
    }

    fn messages(&self, length: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.0[..length.min(CONTROL_BYTES)];
        std::iter::from_fn(move || {
            let length = usize::from_ne_bytes(array(rest, 0)?);
            let data = rest.get(HEADER_BYTES..length)?;
            let (level, kind) = (word(rest, WORD)? as i32, word(rest, WORD + 4)? as i32);
            rest = rest.get(length.next_multiple_of(WORD)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

impl Name {
    pub(super) const EMPTY: Self = Self([0; NAME_BYTES]);

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Writes an address for a socket of IPv6, or of IPv4, and returns its length in bytes.
    pub(super) fn encode(&mut self, address: SocketAddr, socket_is_v6: bool) -> usize {
        let port = address.port().to_be_bytes();
        match address {
            SocketAddr::V4(address) if !socket_is_v6 => {
                self.0[..NAME_V4_BYTES].fill(0);
                self.0[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                self.0[2..4].copy_from_slice(&port);
                self.0[4..8].copy_from_slice(&address.ip().octets());
                NAME_V4_BYTES
            }
            _ => {
                let (ip, flow, scope) = match address {
                    SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), 0, 0),
                    SocketAddr::V6(address) => (*address.ip(), address.flowinfo(), address.scope_id()),
                };
                self.0[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                self.0[2..4].copy_from_slice(&port);
                self.0[4..8].copy_from_slice(&flow.to_ne_bytes());
                self.0[8..24].copy_from_slice(&ip.octets());
                self.0[24..28].copy_from_slice(&scope.to_ne_bytes());
                NAME_V6_BYTES
            }
        }
    }

    /// Writes the address of a Unix socket that [`is_unix_name`] accepts, and returns its length in bytes.
    pub(super) fn encode_unix(&mut self, address: &Address) -> usize {
        self.0.fill(0);
        self.0[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        let (start, name) = match address {
            Address::Unix(path) => (2, path.as_os_str().as_bytes()),
            Address::Abstract(name) => (3, name.as_slice()),
            Address::Ip(_) | Address::Vsock { .. } => (2, &[][..]),
        };
        let name = &name[..name.len().min(UNIX_NAME_BYTES_MAX)];
        self.0[start..start + name.len()].copy_from_slice(name);
        start + name.len()
    }

    /// The address of a Unix socket in the first `length` bytes.
    pub(super) fn decode_unix(&self, length: usize) -> Address {
        match self.0.get(2..length.min(NAME_BYTES)).unwrap_or_default() {
            [0, name @ ..] if !name.is_empty() => Address::Abstract(name.to_vec()),
            path => {
                let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                Address::Unix(PathBuf::from(OsStr::from_bytes(&path[..end])))
            }
        }
    }

    /// The address in the first `length` bytes, if it is one of IP. An IPv4 address within IPv6 is one of IPv4.
    pub(super) fn decode(&self, length: usize) -> Option<SocketAddr> {
        let name = &self.0[..length.min(NAME_BYTES)];
        let family = i32::from(u16::from_ne_bytes(array(name, 0)?));
        let port = u16::from_be_bytes(array(name, 2)?);
        match family {
            libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(array::<4>(name, 4)?), port).into()),
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(array::<16>(name, 8)?);
                match ip.to_canonical() {
                    IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, port).into()),
                    // The flow label is no part of a peer's identity.
                    IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, port, 0, word(name, 24)?).into()),
                }
            }
            _ => None,
        }
    }
}

/// Room for the control messages of a datagram on a Unix socket: its sender's credentials and at most so many descriptors.
/// The kernel opens no descriptor for which there is no room, and reports the datagram as truncated (MSG_CTRUNC).
pub(super) fn unix_control_bytes(has_credentials: bool, descriptors_max: usize) -> usize {
    let credentials = if has_credentials { HEADER_BYTES + CREDENTIALS_BYTES.next_multiple_of(WORD) } else { 0 };
    let descriptors = if descriptors_max > 0 { HEADER_BYTES + descriptors_max * size_of::<i32>() } else { 0 };
    (credentials + descriptors).min(CONTROL_BYTES)
}

/// Whether an address is the name of a Unix socket that a system call accepts.
pub(super) fn is_unix_name(address: &Address) -> bool {
    let name = match address {
        Address::Unix(path) if path.as_os_str().as_bytes().contains(&0) => return false,
        Address::Unix(path) => path.as_os_str().as_bytes(),
        Address::Abstract(name) => name,
        Address::Ip(_) | Address::Vsock { .. } => return false,
    };
    (1..=UNIX_NAME_BYTES_MAX).contains(&name.len())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

/// The low byte of a word; a mark is a byte or a word.
fn low_byte(data: &[u8]) -> u8 {
    word(data, 0).unwrap_or(0) as u8
}

const WORD: usize = size_of::<usize>();
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const CREDENTIALS_BYTES: usize = size_of::<libc::ucred>();

/// All messages of a dual-stack socket: two addresses, two marks, two lifetimes, a segment size, drops, and an error with
/// the address of its sender.
pub(super) const CONTROL_BYTES: usize = 320;
const NAME_BYTES: usize = size_of::<libc::sockaddr_storage>();
const NAME_V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const NAME_V6_BYTES: usize = size_of::<libc::sockaddr_in6>();

/// The longest name: a path has a zero byte after it, an abstract name one before it.
const UNIX_NAME_BYTES_MAX: usize = 107;

/// The messages that [`Control::encode`] writes at most.
const ENCODED_BYTES_MAX: usize = 40 + 24 + 24;

const _: () = assert!(ENCODED_BYTES_MAX + Ancillary::BYTES_MAX <= CONTROL_BYTES);

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

const _: () = assert!(HEADER_BYTES == WORD + 8);
const _: () = assert!(size_of::<Name>() == NAME_BYTES && size_of::<Control>() == CONTROL_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_unchanged_and_mapped_ones_as_ipv4() {
        let mut name = Name::EMPTY;
        let v4: SocketAddr = "192.0.2.7:5300".parse().expect("an address");
        let v6: SocketAddr = SocketAddrV6::new("fe80::7".parse().expect("an address"), 53, 0, 4).into();
        for (address, socket_is_v6, length) in [(v4, false, 16), (v4, true, 28), (v6, true, 28)] {
            assert_eq!(name.encode(address, socket_is_v6), length);
            assert_eq!(name.decode(length), Some(address));
            (0..length).for_each(|length| assert_eq!(name.decode(length.min(4)), None));
        }
    }

    #[test]
    fn the_facts_of_a_sent_datagram_decode_to_themselves() {
        let mut control = Control::EMPTY;
        let local = LocalAddress { address: Some("2001:db8::1".parse().expect("an address")), interface: 3 };
        let length = control.encode(true, local, Ecn::Congested, Some(1200));
        let messages: Vec<_> = control.messages(length).map(|(level, kind, data)| (level, kind, data.len())).collect();
        assert_eq!(
            messages,
            [
                (libc::SOL_IPV6, libc::IPV6_PKTINFO, 20),
                (libc::SOL_IPV6, libc::IPV6_TCLASS, 4),
                (libc::SOL_UDP, libc::UDP_SEGMENT, 2)
            ]
        );
        let facts = control.facts(length, false);
        assert_eq!((facts.local, facts.ecn), (local, Ecn::Congested));
        assert_eq!(control.encode(false, LocalAddress::default(), Ecn::NotCapable, None), 0);
    }

    #[test]
    fn names_of_unix_sockets_come_back_unchanged() {
        let mut name = Name::EMPTY;
        let long = [b'x'; UNIX_NAME_BYTES_MAX];
        let names = [
            Address::Unix("/run/a.sock".into()),
            Address::Unix(PathBuf::from(OsStr::from_bytes(&long))),
            Address::Abstract(b"a\0b".to_vec()),
            Address::Abstract(long.to_vec()),
        ];
        for address in names {
            assert!(is_unix_name(&address));
            let length = name.encode_unix(&address);
            assert_eq!((name.decode_unix(length), name.decode(length)), (address, None));
        }
        assert_eq!(name.decode_unix(0), Address::Unix(PathBuf::new()));
        let refused = [
            Address::Unix(PathBuf::new()),
            Address::Unix("/a\0b".into()),
            Address::Abstract(vec![b'x'; UNIX_NAME_BYTES_MAX + 1]),
            Address::Vsock { cid: 2, port: 3 },
        ];
        refused.iter().for_each(|address| assert!(!is_unix_name(address), "{address}"));
    }

    #[test]
    fn the_longest_ancillary_data_fits_beside_all_facts() {
        let mut control = Control::EMPTY;
        let local = LocalAddress { address: Some("2001:db8::1".parse().expect("an address")), interface: 3 };
        let facts = control.encode(true, local, Ecn::Congested, Some(1200));
        let mut ancillary = Ancillary::default();
        let data = vec![7; Ancillary::BYTES_MAX - HEADER_BYTES];
        let message = ControlMessage { level: 1, kind: 99, data };
        ancillary.push(message.clone()).expect("there is room");
        let length = control.encode_ancillary(facts, &ancillary);
        assert_eq!(control.facts(length, true).others.last(), Some(&message));
        assert!(control.facts(length, false).others.is_empty());
    }

    #[test]
    fn lengths_that_do_not_fit_end_the_list() {
        for length in [0_usize, 1, 15, 17, CONTROL_BYTES + 1, usize::MAX - 6] {
            let mut control = Control::EMPTY;
            control.0[..WORD].copy_from_slice(&length.to_ne_bytes());
            let count = control.messages(CONTROL_BYTES).count();
            assert!(count <= 1, "{length}: {count}");
            for cut in 0..CONTROL_BYTES {
                let _ = control.facts(cut, true);
                assert_eq!(control.queued_error(cut), None);
            }
        }
    }
}
