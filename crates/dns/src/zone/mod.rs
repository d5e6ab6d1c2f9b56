//! `Zone`: the records of a zone, and the answers to questions about it (RFC 1034 §4.3.2, RFC 4592, RFC 6672).
//!
//! `parse.rs` reads a zone file, `error.rs` has its errors with their places, `answer.rs` the algorithm.

mod answer;
mod error;
mod parse;

use std::collections::BTreeMap;
use std::ops::Bound;

pub use answer::ZoneAnswer;
pub use error::{ZoneError, ZoneErrorKind};
pub use parse::ZoneLimits;

use crate::name::Name;
use crate::numbers::RecordType;
use crate::records::{Rdata, Record};

/// The records of one zone.
///
/// ```
/// use tidegate::dns::{Question, RecordType, ResponseCode, Zone};
///
/// let file = "\
/// $ORIGIN tides.example.
/// $TTL 300
/// @     SOA  ns root 1 7200 3600 1209600 60
///       NS   ns
/// ns    A    192.0.2.1
/// *.sea AAAA 2001:db8::5
/// ";
/// let zone = Zone::parse(file, None)?;
/// let answer = zone.answer(&Question::new("north.sea.tides.example".parse()?, RecordType::AAAA));
/// assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NOERROR, 1));
/// assert_eq!(answer.answers[0].to_string(), "north.sea.tides.example. 300 IN AAAA 2001:db8::5");
///
/// let error = Zone::parse("@ 300 SOA ns root 1 2 3 4\n", Some(&"a".parse()?)).expect_err("a number is missing");
/// assert_eq!((error.line, error.column), (1, 26));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Zone {
    origin: Name,
    soa: Record,
    /// By name in canonical order, in which the names below a name follow it.
    nodes: BTreeMap<Name, Vec<RecordSet>>,
}

/// The records of one name and one type.
#[derive(Debug, Clone)]
struct RecordSet {
    record_type: RecordType,
    ttl: u32,
    data: Vec<Rdata>,
}

impl Zone {
    /// The name of the zone.
    #[must_use]
    pub const fn origin(&self) -> &Name {
        &self.origin
    }

    /// The SOA.
    #[must_use]
    pub const fn soa(&self) -> &Record {
        &self.soa
    }

    /// How many records there are.
    #[must_use]
    pub fn record_count(&self) -> usize {
        self.nodes.values().flatten().map(|set| set.data.len()).sum()
    }

    fn set(&self, name: &Name, record_type: RecordType) -> Option<&RecordSet> {
        self.nodes.get(name)?.iter().find(|set| set.record_type == record_type)
    }

    /// Whether a name exists: it has records, or names below it have (RFC 8020).
    fn exists(&self, name: &Name) -> bool {
        self.nodes.contains_key(name)
            || self
                .nodes
                .range((Bound::Excluded(name.clone()), Bound::Unbounded))
                .next()
                .is_some_and(|(next, _)| next.is_within(name))
    }
}

impl RecordSet {
    fn records(&self, owner: &Name) -> impl Iterator<Item = Record> {
        self.data.iter().map(|data| Record::new(owner.clone(), self.ttl, data.clone()))
    }
}
