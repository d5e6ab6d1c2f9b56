//! `Question`, `Record` and `Rdata`: parts of messages with memory of their own.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;

use crate::error::DnsError;
use crate::layout;
use crate::name::Name;
use crate::numbers::{Class, RecordType};
use crate::record_data::{RecordData, expand};
use crate::text;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name that is asked for.
    pub name: Name,
    /// The type that is asked for.
    pub record_type: RecordType,
    /// The class that is asked for.
    pub class: Class,
}

impl Question {
    /// A question of the class IN.
    #[must_use]
    pub const fn new(name: Name, record_type: RecordType) -> Self {
        Self { name, record_type, class: Class::IN }
    }
}

/// A record.
///
/// ```
/// use tidegate::dns::{Rdata, Record};
///
/// let record = Record::new("tides.example".parse()?, 300, Rdata::a([192, 0, 2, 1].into()));
/// assert_eq!(record.to_string(), "tides.example. 300 IN A 192.0.2.1");
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner.
    pub name: Name,
    /// The class.
    pub class: Class,
    /// The time to live in seconds.
    pub ttl: u32,
    /// Type and data.
    pub data: Rdata,
}

impl Record {
    /// A record of the class IN. `ttl` is in seconds.
    #[must_use]
    pub const fn new(name: Name, ttl: u32, data: Rdata) -> Self {
        Self { name, class: Class::IN, ttl, data }
    }

    /// The type.
    #[must_use]
    pub const fn record_type(&self) -> RecordType {
        self.data.record_type
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {} {}", self.name, self.ttl, self.class, self.record_type(), self.data)
    }
}

/// The type and the data of a record, uncompressed. A clone shares the bytes.
///
/// ```
/// use tidegate::dns::{Name, Rdata, RecordData, RecordType};
///
/// let data = Rdata::parse(RecordType::HTTPS, r#"1 . alpn="h2,h3" port=8443"#, &Name::root())?;
/// let RecordData::Svcb(service) = data.view() else { panic!("a service binding") };
/// assert_eq!((service.priority, service.port()), (1, Some(8_443)));
/// assert_eq!(service.alpn().collect::<Vec<_>>(), [b"h2", b"h3"]);
/// assert_eq!(data.to_string(), r#"1 . alpn="h2,h3" port=8443"#);
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rdata {
    record_type: RecordType,
    wire: Bytes,
}

impl Rdata {
    /// Data of any type from their wire form, in which names are not compressed.
    ///
    /// # Errors
    /// [`DnsError::RecordData`] and those of names, if the bytes do not have the fields of the type.
    pub fn from_wire(record_type: RecordType, wire: Bytes) -> Result<Self, DnsError> {
        if wire.len() > usize::from(u16::MAX) {
            return Err(DnsError::RecordData);
        }
        if let Some(fields) = layout::fields(record_type) {
            layout::check(fields, &wire, 0, wire.len())?;
            // A pointer within the data would refer to another place as soon as they are in a message.
            let mut expanded = Vec::with_capacity(wire.len());
            expand(Some(fields), &wire, 0..wire.len(), &mut expanded);
            if expanded != wire {
                return Err(DnsError::CompressedName);
            }
        }
        Ok(Self { record_type, wire })
    }

    pub(crate) const fn from_checked(record_type: RecordType, wire: Bytes) -> Self {
        Self { record_type, wire }
    }

    /// Data in presentation form, or in the generic form `\# LENGTH HEX` (RFC 3597 §5). Relative names end in `origin`.
    ///
    /// # Errors
    /// [`DnsError::DataText`] and those of names.
    pub fn parse(record_type: RecordType, data: &str, origin: &Name) -> Result<Self, DnsError> {
        let tokens = text::tokens(data).ok_or(DnsError::DataText)?;
        let wire = text::parse_data(record_type, &tokens, origin).map_err(|refused| refused.error)?;
        Self::from_wire(record_type, wire.into())
    }

    /// The answer to ANY that is of no use to an amplifier (RFC 8482 §4.2).
    pub(crate) const fn any_refused() -> Self {
        Self::from_checked(RecordType::HINFO, Bytes::from_static(b"\x07RFC8482\x00"))
    }

    /// An IPv4 address.
    #[must_use]
    pub fn a(address: Ipv4Addr) -> Self {
        Self::from_checked(RecordType::A, Bytes::copy_from_slice(&address.octets()))
    }

    /// An IPv6 address.
    #[must_use]
    pub fn aaaa(address: Ipv6Addr) -> Self {
        Self::from_checked(RecordType::AAAA, Bytes::copy_from_slice(&address.octets()))
    }

    /// The canonical name of an alias.
    #[must_use]
    pub fn cname(target: &Name) -> Self {
        Self::from_checked(RecordType::CNAME, Bytes::copy_from_slice(target.wire()))
    }

    /// A name server.
    #[must_use]
    pub fn ns(server: &Name) -> Self {
        Self::from_checked(RecordType::NS, Bytes::copy_from_slice(server.wire()))
    }

    /// The name that an address refers to.
    #[must_use]
    pub fn ptr(target: &Name) -> Self {
        Self::from_checked(RecordType::PTR, Bytes::copy_from_slice(target.wire()))
    }

    /// A mail exchange.
    #[must_use]
    pub fn mx(preference: u16, exchange: &Name) -> Self {
        Self::from_checked(RecordType::MX, [&preference.to_be_bytes(), exchange.wire()].concat().into())
    }

    /// The host and port of a service.
    #[must_use]
    pub fn srv(priority: u16, weight: u16, port: u16, target: &Name) -> Self {
        let numbers = [priority.to_be_bytes(), weight.to_be_bytes(), port.to_be_bytes()].concat();
        Self::from_checked(RecordType::SRV, [&numbers, target.wire()].concat().into())
    }

    /// Texts.
    ///
    /// # Errors
    /// [`DnsError::RecordData`] without a text, or with one of more than 255 bytes.
    pub fn txt<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, DnsError> {
        let mut wire = Vec::new();
        for text in texts {
            wire.push(u8::try_from(text.len()).map_err(|_| DnsError::RecordData)?);
            wire.extend_from_slice(text);
        }
        Self::from_wire(RecordType::TXT, wire.into())
    }

    /// The start of a zone. `times` are refresh, retry, expire and minimum, in seconds.
    #[must_use]
    pub fn soa(primary: &Name, mailbox: &Name, serial: u32, times: [u32; 4]) -> Self {
        let mut wire = [primary.wire(), mailbox.wire(), &serial.to_be_bytes()].concat();
        times.iter().for_each(|time| wire.extend_from_slice(&time.to_be_bytes()));
        Self::from_checked(RecordType::SOA, wire.into())
    }

    /// The type.
    #[must_use]
    pub const fn record_type(&self) -> RecordType {
        self.record_type
    }

    /// The wire form.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// The fields.
    #[must_use]
    pub fn view(&self) -> RecordData<'_> {
        RecordData::read(self.record_type, &self.wire, 0..self.wire.len())
    }
}

impl fmt::Display for Rdata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write_data(self.record_type, &self.wire, f)
    }
}
