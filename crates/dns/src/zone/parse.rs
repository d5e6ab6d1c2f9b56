//! Zone files (RFC 1035 §5, `$TTL` of RFC 2308 §4).

use std::collections::BTreeMap;

use super::{RecordSet, Zone, ZoneError, ZoneErrorKind};
use crate::name::Name;
use crate::numbers::{Class, RecordType};
use crate::records::{Rdata, Record};
use crate::text::lexer::{LexError, Lexer, Token, ZoneEntry};
use crate::text::{duration, parse_data};

/// Bounds of a zone file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLimits {
    /// Records; 1,000,000.
    pub records_max: usize,
}

impl Default for ZoneLimits {
    fn default() -> Self {
        Self { records_max: 1_000_000 }
    }
}

/// The state between entries.
struct Parser {
    origin: Option<Name>,
    default_ttl: Option<u32>,
    last_ttl: Option<u32>,
    owner: Option<Name>,
    soa: Option<Record>,
    nodes: BTreeMap<Name, Vec<RecordSet>>,
    count: usize,
}

/// A record of the file, with the place of its first word.
struct ParsedRecord {
    owner: Name,
    ttl: u32,
    data: Rdata,
    place: (usize, usize),
}

const fn at(token: &Token<'_>, kind: ZoneErrorKind) -> ZoneError {
    ZoneError { line: token.line, column: token.column, kind }
}

/// The place behind the last token, for a word that is missing.
fn behind(tokens: &[Token<'_>], kind: ZoneErrorKind) -> ZoneError {
    let place =
        tokens.last().map_or((1, 1), |last| (last.line, last.column + last.text.len() + usize::from(last.is_quoted)));
    ZoneError { line: place.0, column: place.1, kind }
}

impl Zone {
    /// Reads a zone file with the usual limits. `origin` completes relative names until `$ORIGIN`. The zone's name is the
    /// owner of its SOA, which comes first.
    ///
    /// # Errors
    /// [`ZoneError`], with line and column.
    pub fn parse(file: &str, origin: Option<&Name>) -> Result<Self, ZoneError> {
        Self::parse_with(file, origin, ZoneLimits::default())
    }

    /// Reads a zone file.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_with(file: &str, origin: Option<&Name>, limits: ZoneLimits) -> Result<Self, ZoneError> {
        let mut parser = Parser {
            origin: origin.cloned(),
            default_ttl: None,
            last_ttl: None,
            owner: None,
            soa: None,
            nodes: BTreeMap::new(),
            count: 0,
        };
        let mut lexer = Lexer::new(file);
        while let Some(entry) = lexer.next_entry() {
            let entry = entry.map_err(|refused| {
                let kind = match refused.error {
                    LexError::Quote => ZoneErrorKind::Quote,
                    LexError::Parenthesis => ZoneErrorKind::Parenthesis,
                };
                ZoneError { line: refused.line, column: refused.column, kind }
            })?;
            parser.entry(&entry, limits)?;
        }
        let soa = parser.soa.ok_or(ZoneError { line: 1, column: 1, kind: ZoneErrorKind::Empty })?;
        Ok(Self { origin: soa.name.clone(), soa, nodes: parser.nodes })
    }
}

impl Parser {
    fn entry(&mut self, entry: &ZoneEntry<'_>, limits: ZoneLimits) -> Result<(), ZoneError> {
        let Some(first) = entry.tokens.first() else { return Ok(()) };
        if first.text.starts_with('$') && !first.is_quoted && !entry.is_indented {
            return self.directive(&entry.tokens);
        }
        let record = self.record(entry)?;
        self.count += 1;
        if self.count > limits.records_max {
            return Err(at(first, ZoneErrorKind::TooManyRecords));
        }
        self.add(record)
    }

    fn directive(&mut self, tokens: &[Token<'_>]) -> Result<(), ZoneError> {
        let [keyword, value] = tokens else { return Err(at(&tokens[0], ZoneErrorKind::Directive)) };
        match keyword.text.to_ascii_uppercase().as_str() {
            "$ORIGIN" => self.origin = Some(self.name(value)?),
            "$TTL" => self.default_ttl = Some(ttl(value.text).ok_or_else(|| at(value, ZoneErrorKind::Ttl))?),
            _ => return Err(at(keyword, ZoneErrorKind::Directive)),
        }
        Ok(())
    }

    fn name(&self, token: &Token<'_>) -> Result<Name, ZoneError> {
        let is_relative = token.text == "@" || !token.text.ends_with('.') || token.text.ends_with("\\.");
        if is_relative && self.origin.is_none() {
            return Err(at(token, ZoneErrorKind::NoOrigin));
        }
        let root = Name::root();
        let origin = self.origin.as_ref().unwrap_or(&root);
        Name::parse_relative(token.text, origin).map_err(|error| at(token, ZoneErrorKind::Name(error)))
    }

    fn record(&mut self, entry: &ZoneEntry<'_>) -> Result<ParsedRecord, ZoneError> {
        let mut tokens = &entry.tokens[..];
        let first = &tokens[0];
        if !entry.is_indented {
            self.owner = Some(self.name(first)?);
            tokens = &tokens[1..];
        }
        let owner = self.owner.clone().ok_or_else(|| at(first, ZoneErrorKind::NoOwner))?;
        let (mut own_ttl, mut has_class) = (None, false);
        // TTL and class come in any order. A type never begins with a digit.
        let record_type = loop {
            let Some((token, rest)) = tokens.split_first() else {
                return Err(behind(&entry.tokens, ZoneErrorKind::Type));
            };
            tokens = rest;
            if own_ttl.is_none() && token.text.starts_with(|first: char| first.is_ascii_digit()) {
                own_ttl = Some(ttl(token.text).ok_or_else(|| at(token, ZoneErrorKind::Ttl))?);
            } else if let (false, Ok(class)) = (has_class, token.text.parse::<Class>())
                && token.text.parse::<RecordType>().is_err()
            {
                if class != Class::IN {
                    return Err(at(token, ZoneErrorKind::Class));
                }
                has_class = true;
            } else {
                let record_type: RecordType = token.text.parse().map_err(|_| at(token, ZoneErrorKind::Type))?;
                if record_type.is_meta() {
                    return Err(at(token, ZoneErrorKind::MetaType));
                }
                break record_type;
            }
        };
        let root = Name::root();
        let origin = self.origin.as_ref().unwrap_or(&root);
        let place = |token: usize, error| {
            let kind = ZoneErrorKind::Data(error);
            tokens.get(token).map_or_else(|| behind(&entry.tokens, kind), |token| at(token, kind))
        };
        let wire = parse_data(record_type, tokens, origin).map_err(|refused| place(refused.token, refused.error))?;
        // Fields that are valid alone may contradict each other, as two parameters with one key.
        let data = Rdata::from_wire(record_type, wire.into()).map_err(|error| place(0, error))?;
        let ttl = own_ttl.or(self.default_ttl).or(self.last_ttl);
        let ttl = ttl.ok_or_else(|| at(first, ZoneErrorKind::NoTtl))?;
        self.last_ttl = Some(ttl);
        Ok(ParsedRecord { owner, ttl, data, place: (first.line, first.column) })
    }

    fn add(&mut self, record: ParsedRecord) -> Result<(), ZoneError> {
        let ParsedRecord { owner, ttl, data, place: (line, column) } = record;
        let refuse = |kind| Err(ZoneError { line, column, kind });
        let record_type = data.record_type();
        match &self.soa {
            None if record_type != RecordType::SOA => return refuse(ZoneErrorKind::Soa),
            None => self.soa = Some(Record::new(owner.clone(), ttl, data.clone())),
            Some(_) if record_type == RecordType::SOA => return refuse(ZoneErrorKind::Soa),
            Some(soa) if !owner.is_within(&soa.name) => return refuse(ZoneErrorKind::OutOfZone),
            Some(_) => {}
        }
        let sets = self.nodes.entry(owner).or_default();
        let is_beside_alias = |set: &RecordSet| {
            let is_alias = |record_type| record_type == RecordType::CNAME;
            let is_signature = |record_type| matches!(record_type, RecordType::RRSIG | RecordType::NSEC);
            (is_alias(set.record_type) && !is_signature(record_type))
                || (is_alias(record_type) && !is_signature(set.record_type))
        };
        if sets.iter().any(is_beside_alias) {
            return refuse(ZoneErrorKind::CnameAndOther);
        }
        match sets.iter_mut().find(|set| set.record_type == record_type) {
            // The records of a set have one TTL (RFC 2181 §5.2), and a record counts once.
            Some(set) => {
                set.ttl = set.ttl.min(ttl);
                if !set.data.contains(&data) {
                    set.data.push(data);
                }
            }
            None => sets.push(RecordSet { record_type, ttl, data: vec![data] }),
        }
        Ok(())
    }
}

fn ttl(text: &str) -> Option<u32> {
    duration(text).filter(|seconds| *seconds <= i32::MAX as u32)
}
