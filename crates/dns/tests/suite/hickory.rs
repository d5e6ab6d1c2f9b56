//! The messages of this crate against those of hickory-proto: both read the other's, with the same meaning.

use hickory_proto::op::Message as Theirs;
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable};
use tidegate_dns::{Header, MessageView, MessageWriter, Question, RecordType, ResponseCode, Section};
use tidegate_testkit::{Random, replay, seeds};

use crate::support::{random_name, random_record};

#[test]
fn ten_thousand_messages_mean_the_same_to_both() {
    let mut compared = 0;
    for seed in seeds(10_000) {
        let mut random = Random::new(seed);
        let question = Question::new(random_name(&mut random), RecordType::A);
        let header = Header::query(random.below(65_536) as u16).response(ResponseCode::NOERROR);
        let mut writer = MessageWriter::new(header).question(&question).expect("it is the first");
        for section in [Section::Answer, Section::Authority, Section::Additional] {
            for _ in 0..random.below(4) {
                writer.record(section, &random_record(&mut random)).expect("it fits");
            }
        }
        let wire = writer.finish();
        let ours = MessageView::parse(&wire).unwrap_or_else(|error| panic!("{error}: {}", replay(seed)));
        let theirs = match Theirs::from_bytes(&wire) {
            Ok(theirs) => theirs,
            Err(error) => panic!("{error}: {ours:?} {}", replay(seed)),
        };
        compared += 1;
        assert_eq!(theirs.id, ours.header().id);
        assert_eq!(theirs.answers.len(), ours.answers().count());
        for (theirs, ours) in theirs.answers.iter().zip(ours.answers()) {
            assert_eq!(u16::from(theirs.record_type()), ours.record_type().0, "{}", replay(seed));
            assert_eq!(theirs.ttl, ours.ttl());
        }
        // The message that they write again means the same to us.
        let again = theirs.to_bytes().expect("they write it");
        let again = MessageView::parse(&again).unwrap_or_else(|error| panic!("{error}: {}", replay(seed)));
        let records = |message: &MessageView<'_>| -> Vec<String> {
            let all = message.answers().chain(message.authorities()).chain(message.additionals());
            all.map(|record| format!("{record:?}").to_ascii_lowercase()).collect()
        };
        assert_eq!(records(&again), records(&ours), "{}", replay(seed));
    }
    assert_eq!(compared, seeds(10_000).count());
}
