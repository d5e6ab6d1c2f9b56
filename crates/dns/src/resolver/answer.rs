//! `Answer` and `LookupError`: the results of a lookup.

use std::net::IpAddr;

use crate::error::DnsError;
use crate::name::Name;
use crate::numbers::ResponseCode;
use crate::record_data::RecordData;
use crate::records::Record;

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// `NOERROR` or `NXDOMAIN`.
    pub response_code: ResponseCode,
    /// The aliases from the question's name, then the records of the type. Without the latter, the name has none.
    pub records: Vec<Record>,
    /// The SOA of a negative answer.
    pub soa: Option<Record>,
    /// Whether the time of the answer has passed, and no server answered in time (RFC 8767).
    pub is_stale: bool,
}

impl Answer {
    /// The addresses among the records.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.records.iter().filter_map(|record| match record.data.view() {
            RecordData::A(address) => Some(IpAddr::V4(address)),
            RecordData::Aaaa(address) => Some(IpAddr::V6(address)),
            _ => None,
        })
    }

    /// The name at the end of the aliases; `name` is that of the question.
    #[must_use]
    pub fn canonical_name(&self, name: &Name) -> Name {
        let targets = self.records.iter().rev().find_map(|record| match record.data.view() {
            RecordData::Cname(target) => Some(target.to_name()),
            _ => None,
        });
        targets.unwrap_or_else(|| name.clone())
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LookupError {
    /// No server answered in time.
    Timeout,
    /// Every server failed or refused.
    Failed,
    /// The servers failed a short while ago (RFC 9520), and are not asked again yet.
    CachedFailure,
    /// The aliases of a name lead back or are too many.
    Aliases,
    /// Too many lookups are in flight, or too many callers wait for this one.
    Overloaded,
    /// The name or the type cannot be looked up: a type such as AXFR or OPT.
    Question,
}

impl std::fmt::Display for LookupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Timeout => "no DNS server answered in time",
            Self::Failed => "every DNS server failed or refused",
            Self::CachedFailure => "the DNS servers failed a short while ago",
            Self::Aliases => "the aliases of a name lead back or are too many",
            Self::Overloaded => "too many DNS lookups are in flight",
            Self::Question => "the question cannot be looked up",
        })
    }
}

impl std::error::Error for LookupError {}

impl From<DnsError> for LookupError {
    fn from(_: DnsError) -> Self {
        Self::Question
    }
}
