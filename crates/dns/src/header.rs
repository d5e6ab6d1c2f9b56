//! `Header`: the first twelve bytes of a message, without the counts.

use crate::numbers::{Opcode, ResponseCode};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 12;

/// Bytes of the type, class, TTL and length of a record.
pub(crate) const FIXED_BYTES: usize = 10;

/// The header of a message, without the counts of its sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The number by which a response is found to belong to its query.
    pub id: u16,
    /// QR.
    pub is_response: bool,
    /// The operation.
    pub opcode: Opcode,
    /// AA: the server has authority over the name of the question.
    pub is_authoritative: bool,
    /// TC: records are missing, since the message would have been too long.
    pub is_truncated: bool,
    /// RD.
    pub recursion_desired: bool,
    /// RA.
    pub recursion_available: bool,
    /// AD: the server has verified the records (RFC 4035).
    pub authentic_data: bool,
    /// CD: the server shall not verify.
    pub checking_disabled: bool,
    /// The lower four bits of the response code; an OPT record has the others.
    pub response_code: ResponseCode,
}

impl Header {
    /// The header of a query for a server that resolves: RD is set.
    #[must_use]
    pub const fn query(id: u16) -> Self {
        Self {
            id,
            is_response: false,
            opcode: Opcode::QUERY,
            is_authoritative: false,
            is_truncated: false,
            recursion_desired: true,
            recursion_available: false,
            authentic_data: false,
            checking_disabled: false,
            response_code: ResponseCode::NOERROR,
        }
    }

    /// The header of a response to the query that has this one: ID, operation, RD and CD are those of the query.
    #[must_use]
    pub const fn response(&self, response_code: ResponseCode) -> Self {
        Self {
            is_response: true,
            is_authoritative: false,
            is_truncated: false,
            recursion_available: false,
            authentic_data: false,
            response_code,
            ..*self
        }
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [id_high, id_low, high, low, ..] = *bytes.get(..HEADER_BYTES)? else { return None };
        Some(Self {
            id: u16::from_be_bytes([id_high, id_low]),
            is_response: high & 0x80 != 0,
            opcode: Opcode(high >> 3 & 15),
            is_authoritative: high & 4 != 0,
            is_truncated: high & 2 != 0,
            recursion_desired: high & 1 != 0,
            recursion_available: low & 0x80 != 0,
            authentic_data: low & 0x20 != 0,
            checking_disabled: low & 0x10 != 0,
            response_code: ResponseCode(u16::from(low & 15)),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; 4] {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let [id_high, id_low] = self.id.to_be_bytes();
        let high = bit(self.is_response, 0x80)
            | (self.opcode.0 & 15) << 3
            | bit(self.is_authoritative, 4)
            | bit(self.is_truncated, 2)
            | bit(self.recursion_desired, 1);
        let low = bit(self.recursion_available, 0x80)
            | bit(self.authentic_data, 0x20)
            | bit(self.checking_disabled, 0x10)
            | (self.response_code.0 & 15) as u8;
        [id_high, id_low, high, low]
    }
}
