//! The meaning of a response for a question: records that were asked for, and nothing else.

use crate::message_view::{MessageView, RecordView};
use crate::name::Name;
use crate::numbers::{Class, RecordType, ResponseCode};
use crate::record_data::RecordData;
use crate::records::Record;

/// The meaning of a response.
#[derive(Debug)]
pub(super) struct Meaning {
    /// The aliases that lead from the question's name, in their order.
    pub(super) aliases: Vec<Record>,
    /// The name at the end of the aliases.
    pub(super) target: Name,
    pub(super) end: End,
}

/// How the aliases of a response end.
#[derive(Debug)]
pub(super) enum End {
    /// With records of the type.
    Records(Vec<Record>),
    /// The target has no records of the type, or does not exist.
    Negative(ResponseCode, Option<Record>),
    /// The target is to be looked up.
    Unknown,
    /// There are too many aliases, or they lead back.
    Loop,
    /// The server failed or refused, or is not in charge of the name.
    Failure,
}

/// Reads the answer to a question. Records of names that neither the question nor an alias leads to are dropped, as are
/// those of names outside the server's bailiwick, and all of the authority and additional sections but an SOA above the
/// target.
pub(super) fn interpret(
    message: &MessageView<'_>,
    name: &Name,
    record_type: RecordType,
    bailiwick: &Name,
    aliases_max: usize,
) -> Meaning {
    let mut meaning = Meaning { aliases: Vec::new(), target: name.clone(), end: End::Failure };
    let response_code = message.response_code();
    if response_code != ResponseCode::NOERROR && response_code != ResponseCode::NXDOMAIN {
        return meaning;
    }
    loop {
        if !meaning.target.is_within(bailiwick) {
            meaning.end = End::Unknown;
            return meaning;
        }
        let (found, alias) = at_target(message, &meaning.target, record_type);
        if !found.is_empty() {
            meaning.end = End::Records(found);
            return meaning;
        }
        let Some(alias) = alias else { break };
        let RecordData::Cname(target) = alias.data() else { break };
        let target = target.to_name();
        let is_loop = target == meaning.target || meaning.aliases.iter().any(|alias| alias.name == target);
        meaning.aliases.push(alias.to_record());
        if is_loop || meaning.aliases.len() > aliases_max {
            meaning.end = End::Loop;
            return meaning;
        }
        meaning.target = target;
    }
    meaning.end = without_records(message, &meaning, response_code, bailiwick);
    meaning
}

/// The records of the type that the target has, and its alias.
fn at_target<'a>(
    message: &MessageView<'a>,
    target: &Name,
    record_type: RecordType,
) -> (Vec<Record>, Option<RecordView<'a>>) {
    let (mut found, mut alias) = (Vec::new(), None);
    for record in message.answers().filter(|record| record.class() == Class::IN && record.name() == *target) {
        if record.record_type() == record_type || record_type == RecordType::ANY {
            found.push(record.to_record());
        } else if record.record_type() == RecordType::CNAME {
            // A name has one canonical name; the first counts.
            alias = alias.or(Some(record));
        }
    }
    // The records of a set have one TTL (RFC 2181 §5.2).
    if record_type != RecordType::ANY {
        let ttl = found.iter().map(|record| record.ttl).min().unwrap_or(0);
        found.iter_mut().for_each(|record| record.ttl = ttl);
    }
    (found, alias)
}

fn without_records(message: &MessageView<'_>, meaning: &Meaning, response_code: ResponseCode, bailiwick: &Name) -> End {
    let (mut soa, mut has_referral) = (None, false);
    for record in message.authorities().filter(|record| record.class() == Class::IN) {
        let owner = record.name().to_name();
        let is_above = meaning.target.is_within(&owner) && owner.is_within(bailiwick);
        has_referral |= record.record_type() == RecordType::NS;
        if is_above && matches!(record.data(), RecordData::Soa(_)) {
            soa = Some(record.to_record());
        }
    }
    if soa.is_none() && response_code == ResponseCode::NOERROR {
        if !meaning.aliases.is_empty() {
            return End::Unknown;
        }
        if has_referral && !message.header().is_authoritative {
            return End::Failure;
        }
    }
    End::Negative(response_code, soa)
}
