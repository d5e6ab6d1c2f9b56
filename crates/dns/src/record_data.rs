//! `RecordData`: the fields of a record's data, as views.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::error::DnsError;
use crate::layout::{self, Field};
use crate::name::NAME_BYTES_MAX;
use crate::name_view::{Compression, NameView};
use crate::numbers::RecordType;

/// The data of a record. Types without a variant are [`Opaque`](RecordData::Opaque): their bytes were checked if
/// [`Rdata`](crate::Rdata) has a presentation form for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordData<'a> {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// A name server.
    Ns(NameView<'a>),
    /// The canonical name.
    Cname(NameView<'a>),
    /// The name that an address or a service refers to.
    Ptr(NameView<'a>),
    /// The name that replaces the owner in all names below it.
    Dname(NameView<'a>),
    /// The start of a zone.
    Soa(Soa<'a>),
    /// A mail exchange, the lower preference first.
    Mx {
        /// Its preference.
        preference: u16,
        /// Its name; the root refuses mail (RFC 7505).
        exchange: NameView<'a>,
    },
    /// Texts.
    Txt(Texts<'a>),
    /// The host and port of a service.
    Srv {
        /// Lower ones first.
        priority: u16,
        /// The share among those of one priority.
        weight: u16,
        /// The port.
        port: u16,
        /// The host; the root means that there is no such service.
        target: NameView<'a>,
    },
    /// A rule that rewrites names.
    Naptr(Naptr<'a>),
    /// An authority that may issue certificates.
    Caa {
        /// 128 if the issuer must understand the tag.
        flags: u8,
        /// The property: `issue`, `issuewild`, `iodef`.
        tag: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The association of a TLS certificate.
    Tlsa {
        /// How the certificate is used.
        usage: u8,
        /// The part that is compared.
        selector: u8,
        /// How it is compared.
        matching_type: u8,
        /// The hash, or the part itself.
        association: &'a [u8],
    },
    /// A delegation signer.
    Ds {
        /// The tag of the key.
        key_tag: u16,
        /// Its algorithm.
        algorithm: u8,
        /// The algorithm of the digest.
        digest_type: u8,
        /// The digest.
        digest: &'a [u8],
    },
    /// A key of a zone.
    Dnskey {
        /// 256 for a key of the zone, 257 for one that signs keys.
        flags: u16,
        /// The algorithm.
        algorithm: u8,
        /// The key.
        key: &'a [u8],
    },
    /// A service binding, of SVCB or HTTPS.
    Svcb(Svcb<'a>),
    /// All other data.
    Opaque(&'a [u8]),
}

/// The data of an SOA record. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Soa<'a> {
    /// The primary server.
    pub primary: NameView<'a>,
    /// The mailbox of the person in charge.
    pub mailbox: NameView<'a>,
    /// The version of the zone.
    pub serial: u32,
    /// How often secondary servers look for a new version.
    pub refresh: u32,
    /// How soon they look again if that fails.
    pub retry: u32,
    /// How long they answer without a new version.
    pub expire: u32,
    /// The most that a negative answer is cached (RFC 2308).
    pub minimum: u32,
}

/// The data of a NAPTR record (RFC 3403).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naptr<'a> {
    /// Rules are processed in this order.
    pub order: u16,
    /// The preference among those of one order.
    pub preference: u16,
    /// Flags.
    pub flags: &'a [u8],
    /// The services.
    pub services: &'a [u8],
    /// The substitution.
    pub regexp: &'a [u8],
    /// The next name.
    pub replacement: NameView<'a>,
}

/// The data of an SVCB or HTTPS record (RFC 9460).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Svcb<'a> {
    /// Zero for an alias; otherwise lower ones first.
    pub priority: u16,
    /// The host; the root means the owner of the record.
    pub target: NameView<'a>,
    params: &'a [u8],
}

impl<'a> Svcb<'a> {
    /// Keys and values, in wire form.
    pub fn params(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.params;
        std::iter::from_fn(move || {
            let [a, b, c, d, behind @ ..] = rest else { return None };
            let (value, next) = behind.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))?;
            rest = next;
            Some((u16::from_be_bytes([*a, *b]), value))
        })
    }

    fn param(&self, key: u16) -> Option<&'a [u8]> {
        self.params().find_map(|(found, value)| (found == key).then_some(value))
    }

    /// The protocols of ALPN, in the order of preference.
    pub fn alpn(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        crate::name::labels_of_any_length(self.param(1).unwrap_or_default())
    }

    /// Whether the default protocol is not offered beside those of [`alpn`](Self::alpn).
    #[must_use]
    pub fn has_no_default_alpn(&self) -> bool {
        self.param(2).is_some()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.param(3).and_then(|value| value.try_into().ok()).map(u16::from_be_bytes)
    }

    /// IPv4 addresses to try before those of the target are known.
    pub fn ipv4_hints(&self) -> impl Iterator<Item = Ipv4Addr> + use<'a> {
        let hints = self.param(4).unwrap_or_default().chunks_exact(4);
        hints.filter_map(|hint| <[u8; 4]>::try_from(hint).ok()).map(Ipv4Addr::from)
    }

    /// IPv6 addresses to try before those of the target are known.
    pub fn ipv6_hints(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        let hints = self.param(6).unwrap_or_default().chunks_exact(16);
        hints.filter_map(|hint| <[u8; 16]>::try_from(hint).ok()).map(Ipv6Addr::from)
    }

    /// The ECHConfigList of Encrypted ClientHello.
    #[must_use]
    pub fn ech(&self) -> Option<&'a [u8]> {
        self.param(5)
    }

    /// Whether a key is mandatory that `is_known` does not know, so that the record must not be used (RFC 9460 §8).
    pub fn needs_unknown_key(&self, is_known: impl Fn(u16) -> bool) -> bool {
        let keys = self.param(0).unwrap_or_default().chunks_exact(2);
        keys.map(|key| u16::from_be_bytes([key[0], key[1]])).any(|key| !is_known(key))
    }
}

/// The texts of a TXT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texts<'a>(&'a [u8]);

impl<'a> Texts<'a> {
    /// The texts, each of up to 255 bytes.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        crate::name::labels_of_any_length(self.0)
    }

    /// All texts, one behind the other, as SPF and DKIM read them.
    #[must_use]
    pub fn concat(&self) -> Vec<u8> {
        self.iter().collect::<Vec<_>>().concat()
    }
}

/// Reads fields one after the other.
struct Reader<'a> {
    message: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DnsError> {
        let bytes = self.message[..self.end].get(self.at..self.at + N).ok_or(DnsError::RecordData)?;
        self.at += N;
        bytes.try_into().map_err(|_| DnsError::RecordData)
    }

    fn u8(&mut self) -> Result<u8, DnsError> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, DnsError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DnsError> {
        self.array().map(u32::from_be_bytes)
    }

    fn name(&mut self) -> Result<NameView<'a>, DnsError> {
        let (name, next) = NameView::read(&self.message[..self.end], self.at, Compression::Allowed)?;
        self.at = next;
        Ok(name)
    }

    fn text(&mut self) -> Result<&'a [u8], DnsError> {
        let length = usize::from(self.u8()?);
        let text = self.message[..self.end].get(self.at..self.at + length).ok_or(DnsError::RecordData)?;
        self.at += length;
        Ok(text)
    }

    fn rest(&self) -> &'a [u8] {
        self.message.get(self.at..self.end).unwrap_or_default()
    }
}

impl<'a> RecordData<'a> {
    /// Reads data that lie in `range` of a message; data that do not match their type are opaque.
    pub(crate) fn read(record_type: RecordType, message: &'a [u8], range: Range<usize>) -> Self {
        let opaque = message.get(range.clone()).unwrap_or_default();
        let mut reader = Reader { message: &message[..range.end.min(message.len())], at: range.start, end: range.end };
        Self::read_fields(record_type, &mut reader).unwrap_or(Self::Opaque(opaque))
    }

    fn read_fields(record_type: RecordType, from: &mut Reader<'a>) -> Result<Self, DnsError> {
        let fields = layout::fields(record_type).ok_or(DnsError::RecordData)?;
        layout::check(fields, from.message, from.at, from.end)?;
        Ok(match record_type {
            RecordType::A => Self::A(Ipv4Addr::from(from.array::<4>()?)),
            RecordType::AAAA => Self::Aaaa(Ipv6Addr::from(from.array::<16>()?)),
            RecordType::NS => Self::Ns(from.name()?),
            RecordType::CNAME => Self::Cname(from.name()?),
            RecordType::PTR => Self::Ptr(from.name()?),
            RecordType::DNAME => Self::Dname(from.name()?),
            RecordType::SOA => Self::Soa(Soa {
                primary: from.name()?,
                mailbox: from.name()?,
                serial: from.u32()?,
                refresh: from.u32()?,
                retry: from.u32()?,
                expire: from.u32()?,
                minimum: from.u32()?,
            }),
            RecordType::MX => Self::Mx { preference: from.u16()?, exchange: from.name()? },
            RecordType::TXT | RecordType::SPF => Self::Txt(Texts(from.rest())),
            RecordType::SRV => {
                Self::Srv { priority: from.u16()?, weight: from.u16()?, port: from.u16()?, target: from.name()? }
            }
            RecordType::NAPTR => Self::Naptr(Naptr {
                order: from.u16()?,
                preference: from.u16()?,
                flags: from.text()?,
                services: from.text()?,
                regexp: from.text()?,
                replacement: from.name()?,
            }),
            RecordType::CAA => Self::Caa { flags: from.u8()?, tag: from.text()?, value: from.rest() },
            RecordType::TLSA => Self::Tlsa {
                usage: from.u8()?,
                selector: from.u8()?,
                matching_type: from.u8()?,
                association: from.rest(),
            },
            RecordType::DS => {
                Self::Ds { key_tag: from.u16()?, algorithm: from.u8()?, digest_type: from.u8()?, digest: from.rest() }
            }
            RecordType::DNSKEY => {
                let (flags, _protocol) = (from.u16()?, from.u8()?);
                Self::Dnskey { flags, algorithm: from.u8()?, key: from.rest() }
            }
            RecordType::SVCB | RecordType::HTTPS => {
                Self::Svcb(Svcb { priority: from.u16()?, target: from.name()?, params: from.rest() })
            }
            _ => return Err(DnsError::RecordData),
        })
    }
}

/// Appends the data in `range`, with their names uncompressed. Data that do not have these fields are appended as they
/// are.
pub(crate) fn expand(fields: Option<&[Field]>, message: &[u8], range: Range<usize>, out: &mut Vec<u8>) {
    let (mut at, end, start) = (range.start, range.end, out.len());
    let message = &message[..end];
    for &field in fields.unwrap_or_default() {
        let Ok(next) = layout::field_end(field, message, at, end) else {
            out.truncate(start);
            at = range.start;
            break;
        };
        match field {
            Field::CompressedName | Field::LenientName | Field::PlainName => {
                let mut buffer = [0; NAME_BYTES_MAX];
                if let Ok((name, _)) = NameView::read(message, at, Compression::Allowed) {
                    let length = name.write_wire(&mut buffer);
                    out.extend_from_slice(&buffer[..length]);
                }
            }
            _ => out.extend_from_slice(&message[at..next]),
        }
        at = next;
    }
    out.extend_from_slice(&message[at..end]);
}
