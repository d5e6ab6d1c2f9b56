//! EDNS (RFC 6891): the content of the OPT record, read in place and to be written.

use bytes::Bytes;

use crate::header::FIXED_BYTES;
use crate::limits::{MESSAGE_BYTES_MAX, UDP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES_MIN};

/// The code of the option with a cookie (RFC 7873).
pub const COOKIE: u16 = 10;

/// The code of the option with padding (RFC 7830).
pub const PADDING: u16 = 12;

/// Padded queries have a multiple of this number of bytes (RFC 8467 §4.1).
pub(crate) const QUERY_BLOCK_BYTES: usize = 128;

/// Padded responses have a multiple of this number of bytes (RFC 8467 §4.1).
pub(crate) const RESPONSE_BLOCK_BYTES: usize = 468;

/// The code of the option with an extended error (RFC 8914).
pub const EXTENDED_ERROR: u16 = 15;

/// The OPT record of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdnsView<'a> {
    /// The payload that the sender accepts in a datagram: at least 512 bytes, whatever it wrote.
    pub udp_payload_bytes: u16,
    /// The upper eight bits of the response code.
    pub extended_response_code: u8,
    /// The version; only 0 is defined.
    pub version: u8,
    /// DO: the sender wants the records of DNSSEC.
    pub wants_dnssec: bool,
    options: &'a [u8],
}

/// A cookie of EDNS (RFC 7873).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie<'a> {
    /// The cookie of the client.
    pub client: [u8; 8],
    /// The cookie of the server, 8 to 32 bytes; empty if the client has none yet.
    pub server: &'a [u8],
}

/// An extended error (RFC 8914).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedError<'a> {
    /// The registered code.
    pub code: u16,
    /// A text for people.
    pub text: &'a [u8],
}

impl ExtendedError<'_> {
    /// An answer from the cache whose time has passed.
    pub const STALE_ANSWER: u16 = 3;
    /// A failure that is cached.
    pub const CACHED_ERROR: u16 = 13;
    /// A negative answer from the cache whose time has passed.
    pub const STALE_NXDOMAIN_ANSWER: u16 = 19;
    /// The client may not ask.
    pub const PROHIBITED: u16 = 18;
    /// No upstream could be reached.
    pub const NO_REACHABLE_AUTHORITY: u16 = 22;
    /// The network failed.
    pub const NETWORK_ERROR: u16 = 23;
}

impl<'a> EdnsView<'a> {
    /// Reads the OPT record whose type is at `fixed`.
    pub(crate) fn read(message: &'a [u8], fixed: usize) -> Option<Self> {
        let [_, _, a, b, extended_response_code, version, flags, _, c, d] = *message.get(fixed..fixed + FIXED_BYTES)?
        else {
            return None;
        };
        let start = fixed + FIXED_BYTES;
        let options = message.get(start..start + usize::from(u16::from_be_bytes([c, d])))?;
        let udp_payload_bytes = u16::from_be_bytes([a, b]).max(UDP_PAYLOAD_BYTES_MIN);
        Some(Self { udp_payload_bytes, extended_response_code, version, wants_dnssec: flags & 0x80 != 0, options })
    }

    /// Codes and data of the options.
    pub fn options(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let [a, b, c, d, behind @ ..] = rest else { return None };
            let (data, next) = behind.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))?;
            rest = next;
            Some((u16::from_be_bytes([*a, *b]), data))
        })
    }

    fn option(&self, code: u16) -> Option<&'a [u8]> {
        self.options().find_map(|(found, data)| (found == code).then_some(data))
    }

    /// The cookie; an error if the option has another length than RFC 7873 §4 allows, which is answered with FORMERR.
    ///
    /// # Errors
    /// The length of the option.
    pub fn cookie(&self) -> Result<Option<Cookie<'a>>, usize> {
        let Some(data) = self.option(COOKIE) else { return Ok(None) };
        match data.split_first_chunk::<8>() {
            Some((client, server)) if matches!(server.len(), 0 | 8..=32) => {
                Ok(Some(Cookie { client: *client, server }))
            }
            _ => Err(data.len()),
        }
    }

    /// Whether there is padding, which asks for a padded response (RFC 7830 §3).
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.option(PADDING).is_some()
    }

    /// The first extended error.
    #[must_use]
    pub fn extended_error(&self) -> Option<ExtendedError<'a>> {
        let (code, text) = self.option(EXTENDED_ERROR)?.split_first_chunk::<2>()?;
        Some(ExtendedError { code: u16::from_be_bytes(*code), text })
    }
}

/// An OPT record to write.
///
/// ```
/// use tidegate::dns::{Edns, Header, MessageView, MessageWriter};
///
/// let edns = Edns::default().extended_error(22, "no upstream answers");
/// let wire = MessageWriter::new(Header::query(1)).edns(&edns)?.finish();
/// let message = MessageView::parse(&wire)?;
/// let read = message.edns().expect("it was written");
/// assert_eq!((read.udp_payload_bytes, read.extended_error().map(|error| error.code)), (1_232, Some(22)));
/// # Ok::<(), tidegate::dns::DnsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edns {
    /// The payload that this side accepts in a datagram.
    pub udp_payload_bytes: u16,
    /// DO.
    pub wants_dnssec: bool,
    /// Codes and data of options, in this order.
    pub options: Vec<(u16, Bytes)>,
}

impl Default for Edns {
    fn default() -> Self {
        Self { udp_payload_bytes: UDP_PAYLOAD_BYTES, wants_dnssec: false, options: Vec::new() }
    }
}

impl Edns {
    /// Adds an option.
    #[must_use]
    pub fn option(mut self, code: u16, data: impl Into<Bytes>) -> Self {
        self.options.push((code, data.into()));
        self
    }

    /// Adds an extended error.
    #[must_use]
    pub fn extended_error(self, code: u16, text: &str) -> Self {
        self.option(EXTENDED_ERROR, [&code.to_be_bytes(), text.as_bytes()].concat())
    }

    /// Adds a cookie: the client's, and the server's, which may be empty.
    #[must_use]
    pub fn cookie(self, client: [u8; 8], server: &[u8]) -> Self {
        self.option(COOKIE, [&client[..], server].concat())
    }

    /// Adds padding (RFC 7830), so that a message with `other_bytes` bytes beside this record has a multiple of `block_bytes` bytes.
    /// One that would be longer than 65,535 bytes stays as it is.
    ///
    /// ```
    /// use tidegate::dns::Edns;
    ///
    /// let edns = Edns::default().padding(31, 128);
    /// assert_eq!(31 + edns.wire_bytes(), 128);
    /// ```
    #[must_use]
    pub fn padding(self, other_bytes: usize, block_bytes: usize) -> Self {
        let length = other_bytes + self.wire_bytes() + OPTION_HEADER_BYTES;
        let padded = length.next_multiple_of(block_bytes.max(1));
        if padded > MESSAGE_BYTES_MAX {
            return self;
        }
        self.option(PADDING, vec![0; padded - length])
    }

    /// Bytes of the record in wire form.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        1 + FIXED_BYTES + self.options.iter().map(|(_, data)| OPTION_HEADER_BYTES + data.len()).sum::<usize>()
    }
}

/// The code and the length of an option.
pub(crate) const OPTION_HEADER_BYTES: usize = 4;
