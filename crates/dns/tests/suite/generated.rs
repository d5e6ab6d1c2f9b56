//! Random messages, by seed: a written message is read the same, and a copy is written the same again.

use tidegate_dns::{
    Edns, Header, MessageView, MessageWriter, Name, Question, Rdata, Record, RecordType, ResponseCode, Section,
};
use tidegate_testkit::{Random, replay, seeds};

use crate::support::{random_name, random_record};

const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

#[test]
fn what_is_written_is_read_the_same() {
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let question = Question::new(random_name(&mut random), RecordType(random.below(300) as u16));
        let records = SECTIONS.map(|_| (0..random.below(4)).map(|_| random_record(&mut random)).collect::<Vec<_>>());
        let header = Header::query(random.below(65_536) as u16).response(ResponseCode(random.below(16) as u16));
        let mut writer = MessageWriter::new(header).question(&question).expect("it is the first");
        for (section, records) in SECTIONS.into_iter().zip(&records) {
            records.iter().for_each(|record| writer.record(section, record).expect("it fits"));
        }
        let wire = writer.edns(&Edns::default().option(65_001, random.bytes(9))).expect("it fits").finish();
        let message = MessageView::parse(&wire).unwrap_or_else(|error| panic!("{error}: {}", replay(seed)));
        assert_eq!((*message.header(), message.question().map(|q| q.to_question())), (header, Some(question)));
        let read =
            [message.answers().collect(), message.authorities().collect(), message.additionals().collect::<Vec<_>>()];
        for (read, written) in read.iter().zip(&records) {
            for (read, written) in read.iter().zip(written) {
                assert_same(&read.to_record(), written, seed);
            }
        }
        // A copy by views has the same bytes but for the OPT record.
        let mut copy =
            MessageWriter::new(header).question(&message.question().expect("it has one").to_question()).expect("first");
        for (section, records) in SECTIONS.into_iter().zip(&read) {
            let records = records.iter().filter(|record| record.record_type() != RecordType::OPT);
            records.for_each(|record| copy.view(section, record).expect("it fits"));
        }
        let copy = copy.finish();
        assert_eq!(copy[12..], wire[12..copy.len()], "{}", replay(seed));
    }
}

/// Equal, except for the case of names that were compressed, and for the highest bit of the TTL.
fn assert_same(read: &Record, written: &Record, seed: u64) {
    assert_eq!((&read.name, read.ttl, read.class), (&written.name, written.ttl, written.class), "{}", replay(seed));
    let lower = |data: &Rdata| data.to_string().to_ascii_lowercase();
    assert_eq!(lower(&read.data), lower(&written.data), "{}", replay(seed));
    let again = Rdata::parse(written.record_type(), &written.data.to_string(), &Name::root());
    assert_eq!(again.as_ref(), Ok(&written.data), "{}", replay(seed));
}

#[test]
fn no_mutation_makes_a_view_panic() {
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let mut writer = MessageWriter::new(Header::query(1))
            .question(&Question::new(random_name(&mut random), RecordType::A))
            .expect("first");
        for _ in 0..4 {
            writer.record(Section::Answer, &random_record(&mut random)).expect("it fits");
        }
        let mut wire = writer.edns(&Edns::default()).expect("it fits").finish().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(wire.len());
            wire[at] = random.below(256) as u8;
        }
        wire.truncate(wire.len() - random.below(2) * random.below(20));
        let Ok(message) = MessageView::parse(&wire) else { continue };
        let text = format!("{message:?}");
        assert!(!text.is_empty());
        for record in message.answers().chain(message.authorities()).chain(message.additionals()) {
            let _ = record.data();
            let owned = record.to_rdata();
            let _ = owned.to_string();
        }
    }
}
