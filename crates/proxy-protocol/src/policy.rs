//! `Policy`: whether a connection begins with a header, and whose header counts.

use std::time::Duration;

use crate::networks::Networks;

/// Whether connections begin with a header, and from which networks.
///
/// | policy | a trusted peer | any other peer |
/// |---|---|---|
/// | [`off`](Policy::off) | is not checked: the codec above gets all bytes | the same |
/// | [`optional`](Policy::optional) | may send a header | is refused if it sends a header |
/// | [`required`](Policy::required) | has to send a header | is refused |
///
/// The default is off. With `optional` the first bytes decide whether there is a header, so it suits a protocol whose
/// client speaks first and that never begins with `PROXY ` or with the twelve bytes of version 2.
///
/// ```
/// use tidegate::proxy_protocol::{Limits, Networks, Policy};
///
/// let balancers: Networks = "10.1.0.0/16".parse()?;
/// let policy = Policy::required(balancers).limits(Limits { tlvs_max: 8, ..Limits::default() });
/// # drop(policy);
/// # Ok::<(), tidegate::proxy_protocol::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Policy {
    presence: Presence,
    trusted: Networks,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    #[default]
    Off,
    Optional,
    Required,
}

impl Policy {
    /// No header is expected.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Peers in the trusted networks may send a header.
    #[must_use]
    pub fn optional(trusted: Networks) -> Self {
        Self { presence: Presence::Optional, trusted, limits: Limits::default() }
    }

    /// Every connection comes from a trusted network and begins with a header.
    #[must_use]
    pub fn required(trusted: Networks) -> Self {
        Self { presence: Presence::Required, trusted, limits: Limits::default() }
    }

    /// The limits of a header.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The networks whose headers count.
    #[must_use]
    pub fn trusted(&self) -> &Networks {
        &self.trusted
    }

    pub(crate) fn presence(&self) -> Presence {
        self.presence
    }

    pub(crate) fn header_limits(&self) -> &Limits {
        &self.limits
    }
}

/// The limits of a header. A line of version 1 has at most 107 bytes, as specified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header of version 2, all included; 4,096 unless set. The specification recommends at most 536, which
    /// the certificate of a client exceeds.
    pub header_bytes_max: u16,
    /// TLVs of a header, those within others included; 64 unless set.
    pub tlvs_max: u16,
    /// How long a peer may take to send its header; 5 seconds unless set. The time begins with the connection where the
    /// policy requires a header, and otherwise with the first byte.
    pub header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { header_bytes_max: 4096, tlvs_max: 64, header_timeout: Duration::from_secs(5) }
    }
}
