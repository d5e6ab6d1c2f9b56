//! Messages on a stream: every split, lengths that lie, both roles.

use tidegate_codec::Step;
use tidegate_dns::{
    ClientCodec, DnsError, Edns, EncodedMessage, Header, MessageView, MessageWriter, ProtocolLimits, RecordType,
    ResponseCode, Section, ServerCodec,
};
use tidegate_testkit::contract::{self, Contract};
use tidegate_testkit::{CodecHarness, Random, seeds};

use crate::support::{frame, query, random_record, raw};

fn response(random: &mut Random) -> EncodedMessage {
    let mut writer = MessageWriter::new(Header::query(1).response(ResponseCode::NOERROR));
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        for _ in 0..random.below(3) {
            writer.record(section, &random_record(random)).expect("it fits");
        }
    }
    writer.edns(&Edns::default().extended_error(0, "flow")).expect("it fits").finish()
}

#[test]
fn messages_are_the_same_in_every_split() {
    let queries = [query(1, "a.example", RecordType::A), query(2, "b.example", RecordType::HTTPS)];
    let wire: Vec<u8> = queries.iter().flat_map(|query| frame(query)).collect();
    let seen = contract::check(ServerCodec::default, &wire);
    assert_eq!((seen.messages.len(), seen.has_failed()), (2, false), "{seen}");
    contract::never_panics(ServerCodec::default, &wire, 500);
    for seed in seeds(4) {
        let mut random = Random::new(seed);
        let wire = [frame(&response(&mut random)), frame(&response(&mut random))].concat();
        let seen = contract::check(ClientCodec::default, &wire);
        assert_eq!((seen.messages.len(), seen.has_failed()), (2, false), "seed {seed}: {seen}");
        contract::never_panics(ClientCodec::default, &wire, 100);
    }
}

#[test]
fn a_message_is_received_as_it_was_sent() {
    let sent = query(7, "Tides.Example", RecordType::SRV);
    let mut client = CodecHarness::new(ClientCodec::default());
    client.encode(sent.clone()).expect("it is valid");
    client.flush().expect("there is no filter");
    let received = CodecHarness::new(ServerCodec::default()).decode(&client.take_sent()).expect("it is valid");
    assert_eq!(received[0].wire(), &sent[..]);
}

#[test]
fn lengths_that_no_message_has_end_the_stream() {
    for length in 0..12_u8 {
        let error = CodecHarness::new(ServerCodec::default()).decode(&[0, length]).expect_err("it is too short");
        assert_eq!(error, DnsError::Truncated);
    }
    let limits = ProtocolLimits { message_bytes_max: 512, ..ProtocolLimits::default() };
    Contract::new(|| ServerCodec::new(limits)).refuses_before_allocating(&[0x02, 0x01, 0, 0]);
    // The rest of a declared length never comes: it is no message, and at the end an error.
    let mut server = CodecHarness::new(ServerCodec::default());
    server.receive(&[0xff, 0xff, 0, 1]);
    assert!(matches!(server.step(), Ok(Step::NeedMore)));
    assert_eq!(server.decode_eof().err(), Some(DnsError::TruncatedStream));
}

#[test]
fn a_malformed_query_is_answered_and_the_next_is_read() {
    let two_questions = raw([2, 0, 0, 0], &[1, b'a', 0, 0, 1, 0, 1, 1, b'a', 0, 0, 1, 0, 1]);
    let wire = [frame(&two_questions), frame(&query(9, "a", RecordType::A))].concat();
    let mut server = CodecHarness::new(ServerCodec::default());
    let read = server.decode(&wire).expect("the stream goes on");
    assert_eq!((read.len(), read[0].view().header().id), (1, 9));
    server.flush().expect("there is no filter");
    let reply = server.take_sent();
    let message = MessageView::parse(&reply[2..]).expect("it is valid");
    assert_eq!((message.header().id, message.response_code()), (0x1234, ResponseCode::FORMERR));
    assert_eq!(usize::from(reply[1]), reply.len() - 2);
}

#[test]
fn each_role_refuses_the_messages_of_its_own() {
    let mut random = Random::new(1);
    let error = CodecHarness::new(ServerCodec::default()).decode(&frame(&response(&mut random)));
    assert_eq!(error.err(), Some(DnsError::Direction));
    let error = CodecHarness::new(ClientCodec::default()).decode(&frame(&query(1, "a", RecordType::A)));
    assert_eq!(error.err(), Some(DnsError::Direction));
    let malformed = raw([0, 9, 0, 0], &[]);
    assert!(CodecHarness::new(ClientCodec::default()).decode(&frame(&malformed)).is_err());
}
