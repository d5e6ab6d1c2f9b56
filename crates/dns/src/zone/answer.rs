//! The answer to a question about a zone.

use super::Zone;
use crate::name::Name;
use crate::numbers::{Class, RecordType, ResponseCode};
use crate::record_data::RecordData;
use crate::records::{Question, Rdata, Record};

/// The records of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAnswer {
    /// `NOERROR`, `NXDOMAIN`, or `REFUSED` for a name outside the zone.
    pub response_code: ResponseCode,
    /// Whether the zone has authority over the name; it has none below a delegation.
    pub is_authoritative: bool,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section: the SOA of a negative answer, or the NS records of a delegation.
    pub authorities: Vec<Record>,
    /// Addresses of names in the other sections.
    pub additionals: Vec<Record>,
}

impl ZoneAnswer {
    fn new(response_code: ResponseCode) -> Self {
        Self {
            response_code,
            is_authoritative: response_code != ResponseCode::REFUSED,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
        }
    }
}

impl Zone {
    /// Answers a question.
    #[must_use]
    pub fn answer(&self, question: &Question) -> ZoneAnswer {
        if question.class != Class::IN || !question.name.is_within(&self.origin) || is_refused(question.record_type) {
            return ZoneAnswer::new(ResponseCode::REFUSED);
        }
        let mut answer = ZoneAnswer::new(ResponseCode::NOERROR);
        let mut name = question.name.clone();
        for _ in 0..=ALIASES_MAX {
            match self.step(&name, question.record_type, &mut answer) {
                // The client looks up names of other zones itself.
                Some(target) if target.is_within(&self.origin) && !is_seen(&answer, &target) => name = target,
                _ => break,
            }
        }
        self.add_addresses(&mut answer);
        answer
    }

    /// Adds the zone's records of a name; returns the target of an alias.
    fn step(&self, name: &Name, record_type: RecordType, answer: &mut ZoneAnswer) -> Option<Name> {
        if let Some(cut) = self.cut(name, record_type) {
            // The first answer decides about authority (RFC 1034 §4.3.2 step 3b).
            answer.is_authoritative = !answer.answers.is_empty();
            let set = self.set(&cut, RecordType::NS)?;
            answer.authorities.extend(set.records(&cut));
            return None;
        }
        if let Some((owner, target)) = self.dname(name) {
            let set = self.set(&owner, RecordType::DNAME)?;
            answer.answers.extend(set.records(&owner));
            let Ok(target) = name.replace_suffix(&owner, &target) else {
                answer.response_code = ResponseCode(6); // YXDOMAIN: the new name is too long (RFC 6672 §2.2)
                return None;
            };
            answer.answers.push(Record::new(name.clone(), set.ttl, Rdata::cname(&target)));
            return Some(target);
        }
        let source = if self.exists(name) { Some(name.clone()) } else { self.wildcard(name) };
        let Some(source) = source else {
            answer.response_code = ResponseCode::NXDOMAIN;
            self.add_soa(answer);
            return None;
        };
        if record_type == RecordType::ANY {
            // RFC 8482 §4.2: a short answer, which an amplification attack cannot use.
            let ttl = self.soa.ttl;
            answer.answers.push(Record::new(name.clone(), ttl, Rdata::any_refused()));
            return None;
        }
        if let Some(set) = self.set(&source, record_type) {
            answer.answers.extend(set.records(name));
            return None;
        }
        let Some(alias) = self.set(&source, RecordType::CNAME) else {
            self.add_soa(answer);
            return None;
        };
        answer.answers.extend(alias.records(name));
        match alias.data.first().map(Rdata::view) {
            Some(RecordData::Cname(target)) => Some(target.to_name()),
            _ => None,
        }
    }

    /// The highest delegation at or above a name, and below the zone. The DS records of a delegation belong to this zone.
    fn cut(&self, name: &Name, record_type: RecordType) -> Option<Name> {
        let ancestors = std::iter::successors(Some(name.clone()), Name::parent);
        let below = ancestors.take_while(|ancestor| *ancestor != self.origin);
        let is_cut = |ancestor: &Name| {
            self.set(ancestor, RecordType::NS).is_some() && !(record_type == RecordType::DS && ancestor == name)
        };
        below.filter(is_cut).last()
    }

    /// The DNAME above a name, and its target.
    fn dname(&self, name: &Name) -> Option<(Name, Name)> {
        let ancestors = std::iter::successors(name.parent(), Name::parent);
        ancestors.take_while(|ancestor| ancestor.is_within(&self.origin)).find_map(|ancestor| {
            let set = self.set(&ancestor, RecordType::DNAME)?;
            let RecordData::Dname(target) = set.data.first()?.view() else { return None };
            Some((ancestor, target.to_name()))
        })
    }

    /// The wildcard that covers a name that does not exist: the one below its closest encloser (RFC 4592 §3.3.1).
    fn wildcard(&self, name: &Name) -> Option<Name> {
        let encloser = std::iter::successors(name.parent(), Name::parent).find(|ancestor| self.exists(ancestor))?;
        let labels = std::iter::once(&b"*"[..]).chain(encloser.labels());
        Name::from_labels(labels).ok().filter(|wildcard| self.nodes.contains_key(wildcard))
    }

    fn add_soa(&self, answer: &mut ZoneAnswer) {
        let RecordData::Soa(soa) = self.soa.data.view() else { return };
        // RFC 2308 §3.
        let ttl = self.soa.ttl.min(soa.minimum);
        answer.authorities.push(Record { ttl, ..self.soa.clone() });
    }

    /// Adds addresses that the zone has for names in the answer and in a delegation, its glue included.
    fn add_addresses(&self, answer: &mut ZoneAnswer) {
        let mut names: Vec<Name> = Vec::new();
        for record in answer.answers.iter().chain(&answer.authorities) {
            let target = match record.data.view() {
                RecordData::Ns(target) | RecordData::Mx { exchange: target, .. } => target,
                RecordData::Srv { target, .. } => target,
                RecordData::Svcb(service) => service.target,
                _ => continue,
            };
            let target = target.to_name();
            if names.len() < ADDITIONAL_NAMES_MAX && !names.contains(&target) {
                names.push(target);
            }
        }
        for name in names {
            for record_type in [RecordType::A, RecordType::AAAA] {
                if let Some(set) = self.set(&name, record_type) {
                    answer.additionals.extend(set.records(&name));
                }
            }
        }
    }
}

/// Whether an alias of the answer is at this name already.
fn is_seen(answer: &ZoneAnswer, name: &Name) -> bool {
    answer.answers.iter().any(|record| record.record_type() == RecordType::CNAME && record.name == *name)
}

/// Transfers of zones are refused, as are all other types that no zone has, but ANY.
fn is_refused(record_type: RecordType) -> bool {
    record_type.is_meta() && record_type != RecordType::ANY
}

const ALIASES_MAX: usize = 16;
const ADDITIONAL_NAMES_MAX: usize = 16;
