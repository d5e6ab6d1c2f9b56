//! The bytes of a capture file: its header, and Ethernet, IP and TCP around the bytes of a stream.
//!
//! The format is that of libpcap with microseconds (draft-ietf-opsawg-pcap); IPv4 is RFC 791, IPv6 RFC 8200, TCP
//! RFC 9293. Checksums are right, so that Wireshark reports no errors with any settings.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The header of a file: the magic number in our byte order, version 2.4, and Ethernet.
pub(crate) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    header[4..6].copy_from_slice(&2_u16.to_le_bytes());
    header[6..8].copy_from_slice(&4_u16.to_le_bytes());
    header[16..20].copy_from_slice(&(1_u32 << 16).to_le_bytes());
    header[20..24].copy_from_slice(&ETHERNET.to_le_bytes());
    header
}

/// One TCP segment.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    pub(crate) flags: u8,
    /// Since the Unix epoch.
    pub(crate) time: Duration,
    pub(crate) payload: Box<[u8]>,
}

impl Frame {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const PUSH: u8 = 8;
    pub(crate) const ACK: u8 = 16;

    /// Bytes of memory that it takes while it waits.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.payload.len()
    }

    /// Its bytes in a file, at most.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        (RECORD_HEADER_BYTES + ETHERNET_BYTES + IPV6_BYTES + TCP_BYTES + self.payload.len()) as u64
    }

    /// Appends its record.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let ip = self.ip();
        let length = ETHERNET_BYTES + ip.len() + TCP_BYTES + self.payload.len();
        for word in [self.time.as_secs() as u32, self.time.subsec_micros(), length as u32, length as u32] {
            to.extend_from_slice(&word.to_le_bytes());
        }
        // Locally administered addresses, made up.
        let (destination, source) = if self.from < self.to { (2, 1) } else { (1, 2) };
        to.extend_from_slice(&[2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source]);
        to.extend_from_slice(if ip.len() == IPV4_BYTES { &[0x08, 0x00] } else { &[0x86, 0xdd] });
        to.extend_from_slice(&ip);
        to.extend_from_slice(&self.tcp());
        to.extend_from_slice(&self.payload);
    }

    fn ip(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(IPV6_BYTES);
        let tcp_bytes = (TCP_BYTES + self.payload.len()) as u16;
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                header.extend_from_slice(&[0x45, 0]);
                header.extend_from_slice(&(IPV4_BYTES as u16 + tcp_bytes).to_be_bytes());
                // Do not fragment; a time to live of 64; TCP; the checksum comes later.
                header.extend_from_slice(&[0, 0, 0x40, 0, 64, TCP, 0, 0]);
                header.extend_from_slice(&from.octets());
                header.extend_from_slice(&to.octets());
                let checksum = Checksum::default().add(&header).finish();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (from, to) => {
                header.extend_from_slice(&[0x60, 0, 0, 0]);
                header.extend_from_slice(&tcp_bytes.to_be_bytes());
                header.extend_from_slice(&[TCP, 64]);
                header.extend_from_slice(&v6(from));
                header.extend_from_slice(&v6(to));
            }
        }
        header
    }

    fn tcp(&self) -> [u8; TCP_BYTES] {
        let mut header = [0; TCP_BYTES];
        header[..2].copy_from_slice(&self.from.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        header[12] = (TCP_BYTES as u8 / 4) << 4;
        header[13] = self.flags;
        header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        let checksum = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Checksum::default().add(&from.octets()).add(&to.octets()),
            (from, to) => Checksum::default().add(&v6(from)).add(&v6(to)),
        };
        // The rest of the pseudo header: the protocol and the length. Both fit 16 bits, so IPv4 and IPv6 agree.
        let length = (TCP_BYTES + self.payload.len()) as u16;
        let checksum = checksum.add(&[0, TCP]).add(&length.to_be_bytes());
        let checksum = checksum.add(&header).add(&self.payload).finish();
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The checksum of the internet protocols (RFC 1071). Every piece but the last has an even length.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(self, bytes: &[u8]) -> Self {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
        Self(self.0 + sum + rest.first().map_or(0, |byte| u64::from(*byte) << 8))
    }

    fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

pub(crate) const FILE_HEADER_BYTES: usize = 24;

/// Bytes of a stream in one frame, at most: with the headers they fit the 16 bits of a length in IPv4.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 32 * 1024;

const _: () = assert!(PAYLOAD_BYTES_MAX + TCP_BYTES + IPV4_BYTES <= u16::MAX as usize);

/// The number of Ethernet among link types.
const ETHERNET: u32 = 1;

/// TCP's number among the IP protocols.
const TCP: u8 = 6;

const RECORD_HEADER_BYTES: usize = 16;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
