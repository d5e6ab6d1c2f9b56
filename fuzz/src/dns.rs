//! DNS: a message that is read is written again with the same meaning, any split of a stream yields the same messages, and
//! a zone file is a zone or an error within the file.
//!
//! The first byte has the part: a message, the streams of both roles with the seed of the split, or a zone file.

use tidegate_codec::Codec;
use tidegate_dns::{
    Class, ClientCodec, MessageView, MessageWriter, Name, Question, Rdata, Record, RecordType, Section, ServerCodec,
    Zone,
};
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;
use crate::framings::WIRE_BYTES_MAX;

/// One message, one stream, or one zone file.
pub fn dns(data: &[u8]) {
    let mut choices = Choices::new(data);
    let flags = choices.byte();
    let rest = choices.rest();
    let rest = &rest[..rest.len().min(WIRE_BYTES_MAX)];
    let seed = u64::from(flags >> 2);
    match flags & 3 {
        0 => message(rest),
        1 => stream(ServerCodec::default, rest, seed),
        2 => stream(ClientCodec::default, rest, seed),
        _ => zone_file(&String::from_utf8_lossy(rest)),
    }
}

fn stream<C: Codec<In = tidegate_dns::Message>>(make: impl Fn() -> C, wire: &[u8], seed: u64) {
    Contract::new(make).seed(seed).check_once(wire);
}

/// A message that is read has the same records when it was written again.
fn message(wire: &[u8]) {
    let Ok(message) = MessageView::parse(wire) else { return };
    let mut writer = MessageWriter::new(*message.header());
    if let Some(question) = message.question() {
        let question = question.to_question();
        let text = question.name.to_string();
        assert_eq!(text.parse::<Name>().as_ref(), Ok(&question.name), "its own form: {text}");
        writer = writer.question(&question).expect("it is the first");
    }
    for (section, record) in records(&message) {
        let _ = record.data.view();
        let text = record.data.to_string();
        // Data of other classes are opaque, so bytes that look like a pointer are no name.
        let is_in = record.class == Class::IN;
        assert!(
            !is_in || Rdata::parse(record.record_type(), &text, &Name::root()).as_ref() == Ok(&record.data),
            "{text}"
        );
        // A message whose names were compressed better than ours are may be longer than a message can be.
        if writer.record(section, &record).is_err() {
            return;
        }
    }
    let again = writer.finish();
    let again = MessageView::parse(&again).expect("it was written here");
    assert_eq!(again.question(), message.question());
    let (ours, theirs) = (records(&again), records(&message));
    assert_eq!(ours.len(), theirs.len());
    for ((our_section, ours), (section, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!((our_section, &ours.name, ours.ttl, ours.class), (section, &theirs.name, theirs.ttl, theirs.class));
        assert!(ours.data.wire().eq_ignore_ascii_case(theirs.data.wire()), "{ours} {theirs}");
    }
}

/// The records of all sections, without OPT.
fn records(message: &MessageView<'_>) -> Vec<(Section, Record)> {
    let answers = message.answers().map(|record| (Section::Answer, record));
    let authorities = message.authorities().map(|record| (Section::Authority, record));
    let additionals = message.additionals().map(|record| (Section::Additional, record));
    let all = answers.chain(authorities).chain(additionals);
    let all = all.filter(|(_, record)| record.record_type() != RecordType::OPT);
    all.map(|(section, record)| (section, record.to_record())).collect()
}

fn zone_file(text: &str) {
    match Zone::parse(text, None) {
        Ok(zone) => {
            let question = Question::new(zone.origin().clone(), RecordType::SOA);
            let answer = zone.answer(&question);
            assert_eq!(answer.answers.first().map(Record::record_type), Some(RecordType::SOA));
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1 && error.column >= 1, "{error}");
        }
    }
}
