//! TLVs: type, length and value, behind the addresses of version 2. Those of SSL contain others, one level deep: two
//! loops check them, and nothing recurses.

use crate::error::{Error, Exceeded, Violation};

pub(crate) const ALPN: u8 = 0x01;
pub(crate) const AUTHORITY: u8 = 0x02;
pub(crate) const CRC32C: u8 = 0x03;
pub(crate) const NOOP: u8 = 0x04;
pub(crate) const UNIQUE_ID: u8 = 0x05;
pub(crate) const SSL: u8 = 0x20;
pub(crate) const SSL_VERSION: u8 = 0x21;
pub(crate) const SSL_CN: u8 = 0x22;
pub(crate) const SSL_CIPHER: u8 = 0x23;
pub(crate) const SSL_SIG_ALG: u8 = 0x24;
pub(crate) const SSL_KEY_ALG: u8 = 0x25;
pub(crate) const NETNS: u8 = 0x30;

/// The bytes before a value: its type and its length.
pub(crate) const TLV_HEAD_BYTES: usize = 3;

/// The bytes of an SSL value before its own TLVs.
pub(crate) const SSL_HEAD_BYTES: usize = 5;

pub(crate) const UNIQUE_ID_BYTES_MAX: usize = 128;

/// One TLV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tlv<'a> {
    /// The protocol that was negotiated, as in TLS.
    Alpn(&'a [u8]),
    /// The name of the host that the client asked for.
    Authority(&'a str),
    /// The checksum, which was right.
    Crc32c(u32),
    /// Padding.
    Noop(&'a [u8]),
    /// The identifier that the proxy gave the connection, of at most 128 bytes.
    UniqueId(&'a [u8]),
    /// The client's TLS.
    Ssl(Ssl<'a>),
    /// The name of the network namespace.
    Netns(&'a str),
    /// Another type, unread.
    Other {
        /// The type.
        kind: u8,
        /// The value.
        value: &'a [u8],
    },
}

/// A proxy's report of the client's TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ssl<'a> {
    client: u8,
    verify: u32,
    tlvs: &'a [u8],
}

impl<'a> Ssl<'a> {
    /// Whether the client connected over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.client & 1 != 0
    }

    /// Whether the client presented a certificate on this connection.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.client & 2 != 0
    }

    /// Whether the client presented a certificate in the TLS session, at least once.
    #[must_use]
    pub fn had_certificate_in_session(&self) -> bool {
        self.client & 4 != 0
    }

    /// Whether the client presented a certificate and the proxy verified it.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verify == 0 && self.client & 6 != 0
    }

    /// The result of the verification: zero if it succeeded.
    #[must_use]
    pub fn verify_result(&self) -> u32 {
        self.verify
    }

    /// The TLS version, such as `TLSv1.3`.
    #[must_use]
    pub fn version(&self) -> Option<&'a str> {
        self.text(SSL_VERSION)
    }

    /// The common name in the client's certificate.
    #[must_use]
    pub fn common_name(&self) -> Option<&'a str> {
        self.text(SSL_CN)
    }

    /// The name of the cipher.
    #[must_use]
    pub fn cipher(&self) -> Option<&'a str> {
        self.text(SSL_CIPHER)
    }

    /// The algorithm that signed the proxy's certificate.
    #[must_use]
    pub fn signature_algorithm(&self) -> Option<&'a str> {
        self.text(SSL_SIG_ALG)
    }

    /// The algorithm of the key of the proxy's certificate.
    #[must_use]
    pub fn key_algorithm(&self) -> Option<&'a str> {
        self.text(SSL_KEY_ALG)
    }

    /// All of these, with their types, in their order.
    pub fn tlvs(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        Raw(self.tlvs)
    }

    fn text(&self, kind: u8) -> Option<&'a str> {
        self.tlvs().find(|tlv| tlv.0 == kind).and_then(|tlv| str::from_utf8(tlv.1).ok())
    }
}

/// The TLVs of a header.
#[derive(Debug, Clone)]
pub struct Tlvs<'a>(Raw<'a>);

impl<'a> Tlvs<'a> {
    /// Of bytes that [`check`] has accepted.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Raw(bytes))
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (kind, value) = self.0.next()?;
        let other = Tlv::Other { kind, value };
        Some(match kind {
            ALPN => Tlv::Alpn(value),
            AUTHORITY => str::from_utf8(value).map_or(other, Tlv::Authority),
            CRC32C => value.try_into().map_or(other, |bytes| Tlv::Crc32c(u32::from_be_bytes(bytes))),
            NOOP => Tlv::Noop(value),
            UNIQUE_ID => Tlv::UniqueId(value),
            SSL => value.split_first_chunk().map_or(other, |([client, verify @ ..], tlvs): (&[u8; 5], _)| {
                Tlv::Ssl(Ssl { client: *client, verify: u32::from_be_bytes(*verify), tlvs })
            }),
            NETNS => str::from_utf8(value).map_or(other, Tlv::Netns),
            _ => other,
        })
    }
}

/// Types and values. It ends where a TLV is incomplete.
#[derive(Debug, Clone)]
struct Raw<'a>(&'a [u8]);

impl<'a> Iterator for Raw<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([kind, length @ ..], rest): (&[u8; TLV_HEAD_BYTES], _) = self.0.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        self.0 = rest;
        Some((*kind, value))
    }
}

/// Checks the TLVs of a header. Returns the offset of the checksum in `bytes`, if there is one.
pub(crate) fn check(bytes: &[u8], tlvs_max: u16) -> Result<Option<usize>, Error> {
    let mut left = tlvs_max;
    let mut checksum = None;
    let mut tlvs = Raw(bytes);
    while let Some((kind, value)) = next(&mut tlvs, &mut left)? {
        let is_valid = match kind {
            AUTHORITY => str::from_utf8(value).is_ok(),
            NETNS => value.is_ascii(),
            UNIQUE_ID => value.len() <= UNIQUE_ID_BYTES_MAX,
            SSL => {
                check_ssl(value, &mut left)?;
                true
            }
            CRC32C => {
                if checksum.replace(bytes.len() - tlvs.0.len() - value.len()).is_some() {
                    return Err(Error::Peer(Violation::Checksum));
                }
                value.len() == 4
            }
            _ => true,
        };
        if !is_valid {
            return Err(Error::Peer(Violation::TlvValue));
        }
    }
    Ok(checksum)
}

/// Checks the TLVs within one of SSL, which contain no others.
fn check_ssl(value: &[u8], left: &mut u16) -> Result<(), Error> {
    let Some(bytes) = value.get(SSL_HEAD_BYTES..) else { return Err(Error::Peer(Violation::TlvValue)) };
    let mut tlvs = Raw(bytes);
    while let Some((kind, value)) = next(&mut tlvs, left)? {
        let is_valid = match kind {
            SSL_CN => str::from_utf8(value).is_ok(),
            SSL_VERSION | SSL_CIPHER | SSL_SIG_ALG | SSL_KEY_ALG => value.is_ascii(),
            _ => true,
        };
        if !is_valid {
            return Err(Error::Peer(Violation::TlvValue));
        }
    }
    Ok(())
}

/// The next TLV, of those that the limit allows. An incomplete one is an error.
fn next<'a>(tlvs: &mut Raw<'a>, left: &mut u16) -> Result<Option<(u8, &'a [u8])>, Error> {
    if tlvs.0.is_empty() {
        return Ok(None);
    }
    *left = left.checked_sub(1).ok_or(Error::Limit(Exceeded::Tlvs))?;
    tlvs.next().map(Some).ok_or(Error::Peer(Violation::TlvTruncated))
}
