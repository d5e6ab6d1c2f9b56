//! `Builder`: headers to send, of either version.

use std::net::{IpAddr, SocketAddr};

use crate::crc32c;
use crate::error::Misuse;
use crate::header::{Addresses, Transport, UnixAddresses};
use crate::tlv;
use crate::v2::{HEAD_BYTES, LOCAL, PROXY, START, UNIX_ADDRESS_BYTES};

/// A header to send. Errors come when it is built.
///
/// ```
/// use tidegate::proxy_protocol::Builder;
///
/// let header = Builder::new("192.0.2.1:50000".parse()?, "198.51.100.1:443".parse()?);
/// assert_eq!(header.build_v1()?, b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\n");
///
/// let header = header.authority("sea.example").unique_id(b"tide-412").checksum();
/// assert!(header.build_v2()?.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until the header is built"]
pub struct Builder {
    addresses: Result<Addresses, Misuse>,
    transport: Transport,
    is_local: bool,
    tlvs: Vec<u8>,
    /// The first thing that cannot be expressed.
    misuse: Option<Misuse>,
    has_checksum: bool,
}

/// A proxy's report of its client's TLS, for [`Builder::ssl`].
#[derive(Debug, Clone)]
#[must_use = "it has to be added to a header"]
pub struct SslBuilder {
    client: u8,
    verify: u32,
    tlvs: Vec<u8>,
    misuse: Option<Misuse>,
}

impl Builder {
    /// A stream from `source` that the proxy received at `destination`.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        let ports = [source.port(), destination.port()];
        let addresses = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(Addresses::v4(source, destination, ports)),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(Addresses::v6(source, destination, ports)),
            _ => Err(Misuse::MixedFamilies),
        };
        Self::with(addresses, Transport::Stream, false)
    }

    /// A stream between Unix sockets. Version 2 alone expresses it.
    pub fn unix(source: &[u8], destination: &[u8]) -> Self {
        let fits = |address: &[u8]| address.len() <= UNIX_ADDRESS_BYTES && address.last() != Some(&0);
        let addresses = if fits(source) && fits(destination) {
            let (source, destination) = (source.to_vec(), destination.to_vec());
            Ok(Addresses::Unix(Box::new(UnixAddresses { source, destination })))
        } else {
            Err(Misuse::UnixAddress)
        };
        Self::with(addresses, Transport::Stream, false)
    }

    /// A connection whose addresses the proxy does not know.
    pub fn unspecified() -> Self {
        Self::with(Ok(Addresses::Unspecified), Transport::Unspecified, false)
    }

    /// A connection of the proxy itself, such as one that checks whether the server is alive. Version 2 alone expresses
    /// it.
    pub fn local() -> Self {
        Self::with(Ok(Addresses::Unspecified), Transport::Unspecified, true)
    }

    fn with(addresses: Result<Addresses, Misuse>, transport: Transport, is_local: bool) -> Self {
        Self { addresses, transport, is_local, tlvs: Vec::new(), misuse: None, has_checksum: false }
    }

    /// The proxy received datagrams. Version 2 alone expresses it.
    pub fn datagram(mut self) -> Self {
        self.transport = Transport::Datagram;
        self
    }

    /// The protocol that was negotiated.
    pub fn alpn(self, protocol: &[u8]) -> Self {
        self.add(tlv::ALPN, protocol, usize::MAX)
    }

    /// The name of the host that the client asked for.
    pub fn authority(self, name: &str) -> Self {
        self.add(tlv::AUTHORITY, name.as_bytes(), usize::MAX)
    }

    /// An identifier of the connection: at most 128 bytes.
    pub fn unique_id(self, id: &[u8]) -> Self {
        self.add(tlv::UNIQUE_ID, id, tlv::UNIQUE_ID_BYTES_MAX)
    }

    /// The name of the network namespace, in ASCII.
    pub fn netns(mut self, name: &str) -> Self {
        if !name.is_ascii() {
            self.misuse.get_or_insert(Misuse::NotAscii);
        }
        self.add(tlv::NETNS, name.as_bytes(), usize::MAX)
    }

    /// The report of the client's TLS.
    pub fn ssl(mut self, ssl: &SslBuilder) -> Self {
        self.misuse = self.misuse.or(ssl.misuse);
        let value = [&[ssl.client][..], &ssl.verify.to_be_bytes(), &ssl.tlvs].concat();
        self.add(tlv::SSL, &value, usize::MAX)
    }

    /// Padding of so many bytes, besides the three of its type and length.
    pub fn noop(self, bytes: u16) -> Self {
        self.add(tlv::NOOP, &vec![0; bytes.into()], usize::MAX)
    }

    /// A TLV of a type that has no method here.
    pub fn other(mut self, kind: u8, value: &[u8]) -> Self {
        let has_method = matches!(kind, tlv::ALPN..=tlv::UNIQUE_ID | tlv::SSL..=tlv::SSL_KEY_ALG | tlv::NETNS);
        if has_method {
            self.misuse.get_or_insert(Misuse::ReservedType);
        }
        self.add(kind, value, usize::MAX)
    }

    /// A checksum, which receivers check.
    pub fn checksum(mut self) -> Self {
        self.has_checksum = true;
        self
    }

    fn add(mut self, kind: u8, value: &[u8], bytes_max: usize) -> Self {
        if value.len() > bytes_max {
            self.misuse.get_or_insert(Misuse::ValueTooLong);
        }
        append(&mut self.tlvs, kind, value, &mut self.misuse);
        self
    }

    /// The header of version 1: a line.
    ///
    /// # Errors
    /// [`Misuse`]: mixed families, or addresses that version 1 cannot express.
    pub fn build_v1(&self) -> Result<Vec<u8>, Misuse> {
        let addresses = self.checked()?;
        let has_tlvs = !self.tlvs.is_empty() || self.has_checksum;
        if self.is_local || has_tlvs || self.transport == Transport::Datagram {
            return Err(Misuse::NotInVersion1);
        }
        let line = match addresses {
            Addresses::Unspecified => "PROXY UNKNOWN\r\n".to_owned(),
            Addresses::V4 { ips: [from, to], ports } => {
                format!("PROXY TCP4 {from} {to} {} {}\r\n", ports[0], ports[1])
            }
            Addresses::V6 { ips: [from, to], ports } => {
                format!("PROXY TCP6 {from} {to} {} {}\r\n", ports[0], ports[1])
            }
            Addresses::Unix(_) => return Err(Misuse::NotInVersion1),
        };
        Ok(line.into_bytes())
    }

    /// The header of version 2.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn build_v2(&self) -> Result<Vec<u8>, Misuse> {
        let addresses = self.checked()?;
        let family = match addresses {
            Addresses::Unspecified if self.has_checksum || !self.tlvs.is_empty() => return Err(Misuse::NoAddresses),
            Addresses::Unspecified => 0,
            Addresses::V4 { .. } => 0x10,
            Addresses::V6 { .. } => 0x20,
            Addresses::Unix(_) => 0x30,
        };
        let transport = match self.transport {
            Transport::Unspecified => 0,
            Transport::Stream => 1,
            Transport::Datagram => 2,
        };
        let command = if self.is_local { LOCAL } else { PROXY };
        let mut header = [START, &[command, family | transport, 0, 0]].concat();
        match addresses {
            Addresses::Unspecified => {}
            Addresses::V4 { ips, ports } => {
                ips.iter().for_each(|ip| header.extend_from_slice(&ip.octets()));
                ports.iter().for_each(|port| header.extend_from_slice(&port.to_be_bytes()));
            }
            Addresses::V6 { ips, ports } => {
                ips.iter().for_each(|ip| header.extend_from_slice(&ip.octets()));
                ports.iter().for_each(|port| header.extend_from_slice(&port.to_be_bytes()));
            }
            Addresses::Unix(addresses) => {
                for address in [&addresses.source, &addresses.destination] {
                    let end = header.len() + UNIX_ADDRESS_BYTES;
                    header.extend_from_slice(address);
                    header.resize(end, 0);
                }
            }
        }
        header.extend_from_slice(&self.tlvs);
        if self.has_checksum {
            header.extend_from_slice(&[tlv::CRC32C, 0, 4, 0, 0, 0, 0]);
        }
        let length = u16::try_from(header.len() - HEAD_BYTES).map_err(|_| Misuse::HeaderTooLong)?;
        header[HEAD_BYTES - 2..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        if self.has_checksum {
            let at = header.len() - 4;
            let checksum = crc32c::of_header(&header, at);
            header[at..].copy_from_slice(&checksum.to_be_bytes());
        }
        Ok(header)
    }

    fn checked(&self) -> Result<&Addresses, Misuse> {
        match (&self.addresses, self.misuse) {
            (Err(misuse), _) => Err(*misuse),
            (Ok(_), Some(misuse)) => Err(misuse),
            (Ok(addresses), None) => Ok(addresses),
        }
    }
}

impl SslBuilder {
    /// A client that connected over this TLS version, such as `TLSv1.3`, in ASCII.
    pub fn new(version: &str) -> Self {
        Self { client: 1, verify: 1, tlvs: Vec::new(), misuse: None }.add(tlv::SSL_VERSION, version, true)
    }

    /// The client presented a certificate on this connection; `verify` is zero if it was verified.
    pub fn certificate(mut self, verify: u32) -> Self {
        (self.client, self.verify) = (self.client | 2, verify);
        self
    }

    /// The client presented a certificate in the TLS session; `verify` is zero if it was verified.
    pub fn certificate_in_session(mut self, verify: u32) -> Self {
        (self.client, self.verify) = (self.client | 4, verify);
        self
    }

    /// The common name in the client's certificate.
    pub fn common_name(self, name: &str) -> Self {
        self.add(tlv::SSL_CN, name, false)
    }

    /// The name of the cipher, in ASCII.
    pub fn cipher(self, name: &str) -> Self {
        self.add(tlv::SSL_CIPHER, name, true)
    }

    /// The algorithm that signed the proxy's certificate, in ASCII.
    pub fn signature_algorithm(self, name: &str) -> Self {
        self.add(tlv::SSL_SIG_ALG, name, true)
    }

    /// The algorithm of the key of the proxy's certificate, in ASCII.
    pub fn key_algorithm(self, name: &str) -> Self {
        self.add(tlv::SSL_KEY_ALG, name, true)
    }

    fn add(mut self, kind: u8, text: &str, is_ascii: bool) -> Self {
        if is_ascii && !text.is_ascii() {
            self.misuse.get_or_insert(Misuse::NotAscii);
        }
        append(&mut self.tlvs, kind, text.as_bytes(), &mut self.misuse);
        self
    }
}

fn append(tlvs: &mut Vec<u8>, kind: u8, value: &[u8], misuse: &mut Option<Misuse>) {
    let Ok(length) = u16::try_from(value.len()) else {
        misuse.get_or_insert(Misuse::ValueTooLong);
        return;
    };
    tlvs.push(kind);
    tlvs.extend_from_slice(&length.to_be_bytes());
    tlvs.extend_from_slice(value);
}
