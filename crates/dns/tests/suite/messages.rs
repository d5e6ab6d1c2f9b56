//! Messages that are malformed, each with its error, and the content of views.

use tidegate_dns::{
    Class, DnsError, Edns, Header, MessageView, MessageWriter, Name, ProtocolLimits, Question, Rdata, Record,
    RecordData, RecordType, ResponseCode, Section,
};

use crate::support::{name, query, raw};

fn refused(wire: &[u8]) -> DnsError {
    MessageView::parse(wire).expect_err("it is malformed")
}

/// A record with the root as owner.
fn record(record_type: u16, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [&[0][..], &record_type.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &length, data].concat()
}

#[test]
fn pointers_forwards_in_loops_and_in_long_chains_are_refused() {
    // To itself, forwards, to each other, and to the start of the name that contains it.
    for body in [
        &[0xc0, 12, 0, 1, 0, 1][..],
        &[0xc0, 14, 0, 0, 1, 0, 1],
        &[0xff, 0xff, 0, 1, 0, 1],
        &[1, b'a', 0xc0, 12, 0, 1, 0, 1],
    ] {
        assert_eq!(refused(&raw([1, 0, 0, 0], body)), DnsError::Pointer, "{body:?}");
    }
    let pair = [&[0][..], &[0, 1, 0, 1], &[0xc0, 19, 0xc0, 17]].concat();
    assert_eq!(refused(&raw([1, 1, 0, 0], &pair)), DnsError::Pointer);
    // Pointers to pointers, 1,000 of them, in the data of a record whose type is opaque.
    let mut chain = vec![0];
    for at in 0..1_000_u16 {
        let target = if at == 0 { 23 } else { 24 + 2 * (at - 1) };
        chain.extend_from_slice(&(0xc000 | target).to_be_bytes());
    }
    let user = |target: u16| [&(0xc000 | target).to_be_bytes()[..], &record(1, &[192, 0, 2, 1])[1..]].concat();
    let with = |target| raw([0, 2, 0, 0], &[record(4_711, &chain), user(target)].concat());
    assert_eq!(refused(&with(24 + 2 * 999)), DnsError::Pointer);
    assert!(MessageView::parse(&with(24 + 2 * 20)).is_ok());
    assert_eq!(refused(&raw([1, 0, 0, 0], &[0xc0])), DnsError::Truncated);
}

#[test]
fn names_are_not_compressed_where_their_types_forbid_it() {
    let target = |record_type: u16, before: &[u8], behind: &[u8]| {
        let data = [before, &[0xc0, 12], behind].concat();
        raw([1, 1, 0, 0], &[&[1, b'a', 0, 0, 1, 0, 1][..], &record(record_type, &data)].concat())
    };
    for (record_type, before, behind) in [(65, &[0, 1][..], &[][..]), (47, &[], &[0, 1, 0x40]), (46, &[0; 18], &[1])] {
        assert_eq!(refused(&target(record_type, before, behind)), DnsError::CompressedName);
    }
    // SRV and NAPTR are read compressed (RFC 3597 §4).
    let wire = target(33, &[0, 1, 0, 2, 0, 53], &[]);
    let message = MessageView::parse(&wire).expect("it is valid");
    let answer = message.answers().next().expect("one record");
    let RecordData::Srv { target, port, .. } = answer.data() else { panic!("{answer:?}") };
    assert_eq!((target.to_name(), port), (name("a"), 53));
    assert_eq!(answer.to_rdata().wire(), &[0, 1, 0, 2, 0, 53, 1, b'a', 0]);
}

#[test]
fn counts_that_lie_are_found() {
    assert_eq!(refused(&[0; 11]), DnsError::Truncated);
    assert!(MessageView::parse(&[0; 12]).is_ok());
    let question = [1, b'a', 0, 0, 1, 0, 1];
    assert_eq!(refused(&raw([1, 0, 0, 0], &question[..6])), DnsError::Truncated);
    assert_eq!(refused(&raw([1, 1, 0, 0], &question)), DnsError::Truncated);
    assert_eq!(refused(&raw([0, 0, 0, 0], &question)), DnsError::TrailingBytes);
    assert_eq!(refused(&raw([2, 0, 0, 0], &[question, question].concat())), DnsError::QuestionCount);
    assert_eq!(refused(&raw([65_535, 0, 0, 0], &question)), DnsError::QuestionCount);
    let most = [0, 65_535, 65_535, 65_535];
    assert_eq!(refused(&raw(most, &[])), DnsError::TooManyRecords { records_max: 4_096 });
    assert_eq!(refused(&raw([0, 4_096, 0, 0], &record(1, &[0; 4]))), DnsError::Truncated);
    let limits = ProtocolLimits { records_max: 1, ..ProtocolLimits::default() };
    let two = raw([0, 1, 1, 0], &[record(1, &[0; 4]), record(1, &[0; 4])].concat());
    assert_eq!(MessageView::parse_with(&two, &limits).err(), Some(DnsError::TooManyRecords { records_max: 1 }));
    // The data of a record end behind the message.
    let mut long = raw([0, 1, 0, 0], &record(1, &[0; 4]));
    long.pop();
    assert_eq!(refused(&long), DnsError::Truncated);
}

#[test]
fn every_prefix_of_a_message_is_refused() {
    let mut writer = MessageWriter::new(Header::query(1).response(ResponseCode::NOERROR));
    let soa = Rdata::soa(&name("ns.tides.example"), &name("root.tides.example"), 1, [1, 2, 3, 4]);
    writer.record(Section::Answer, &Record::new(name("tides.example"), 60, soa)).expect("it fits");
    let wire = writer.edns(&Edns::default().extended_error(22, "ebb")).expect("it fits").finish();
    assert!(MessageView::parse(&wire).is_ok());
    for end in 0..wire.len() {
        assert!(MessageView::parse(&wire[..end]).is_err(), "{end}");
    }
}

#[test]
fn the_fields_of_a_record_fill_its_data() {
    let soa = [&[0, 0][..], &[0; 20]].concat();
    let valid: &[(u16, &[u8])] = &[
        (1, &[192, 0, 2, 1]),
        (28, &[0; 16]),
        (6, &soa),
        (15, &[0, 1, 0]),
        (16, b"\x03ebb"),
        (16, b"\x00"),
        (33, &[0, 0, 0, 0, 0, 0, 0]),
        (257, b"\x00\x05issueca"),
        (64, &[0, 1, 0, 0, 1, 0, 3, 2, b'h', b'2']),
    ];
    for (record_type, data) in valid {
        assert!(MessageView::parse(&raw([0, 1, 0, 0], &record(*record_type, data))).is_ok(), "{record_type}");
        let longer = [data, &[0xff][..]].concat();
        let has_rest = matches!(record_type, 257);
        assert_eq!(MessageView::parse(&raw([0, 1, 0, 0], &record(*record_type, &longer))).is_ok(), has_rest);
        let shorter = &data[..data.len() - 1];
        let wire = raw([0, 1, 0, 0], &record(*record_type, shorter));
        let result = MessageView::parse(&wire);
        assert_eq!(result.is_ok(), has_rest, "{record_type}");
    }
    let malformed: &[(u16, &[u8])] = &[
        (16, b""),                                                      // TXT without a text
        (16, b"\x04ebb"),                                               // a text beyond the data
        (64, &[0, 1, 0, 0, 3, 0, 2, 0, 80, 0, 1, 0, 3, 2, b'h', b'2']), // keys that descend
        (64, &[0, 1, 0, 0, 3, 0, 2, 0, 80, 0, 3, 0, 2, 0, 80]),         // a key twice
        (64, &[0, 1, 0, 0, 3, 0, 3, 0, 80, 1]),                         // a port of three bytes
        (64, &[0, 1, 0, 0, 1, 0, 1, 0]),                                // an empty protocol
        (64, &[0, 1, 0, 0, 4, 0, 5, 0, 0, 0, 0, 0]),                    // an address of five bytes
        (47, &[0, 0, 0]),                                               // an empty window
        (47, &[0, 0, 33]),                                              // a window of 33 bytes
        (47, &[0, 0, 1, 0]),                                            // a window that ends with a zero
        (50, &[1, 0, 0, 1, 0, 0]),                                      // no hash
        (46, &[0; 17]),
        (35, &[0, 0, 0, 0, 5]),
    ];
    for (record_type, data) in malformed {
        assert!(MessageView::parse(&raw([0, 1, 0, 0], &record(*record_type, data))).is_err(), "{record_type} {data:?}");
    }
}

#[test]
fn an_opt_record_comes_once_among_the_additional_ones_with_the_root_as_owner() {
    let opt = record(41, &[]);
    assert!(MessageView::parse(&raw([0, 0, 0, 1], &opt)).is_ok());
    assert_eq!(refused(&raw([0, 0, 0, 2], &[&opt[..], &opt].concat())), DnsError::Opt);
    assert_eq!(refused(&raw([0, 1, 0, 0], &opt)), DnsError::Opt);
    assert_eq!(refused(&raw([0, 0, 1, 0], &opt)), DnsError::Opt);
    assert_eq!(refused(&raw([0, 0, 0, 1], &[&[1, b'a'][..], &opt].concat())), DnsError::Opt);
    assert_eq!(refused(&raw([0, 0, 0, 1], &record(41, &[0, 10, 0, 9, 1]))), DnsError::RecordData);
    assert_eq!(refused(&raw([0, 0, 0, 1], &record(41, &[0, 10, 0]))), DnsError::RecordData);
    let many = raw([0, 0, 0, 1], &record(41, &[0, 12, 0, 0].repeat(1_000)));
    assert_eq!(refused(&many), DnsError::TooManyOptions { options_max: 64 });
}

#[test]
fn cookies_and_extended_errors_are_read() {
    let edns =
        Edns { wants_dnssec: true, ..Edns::default() }.cookie(*b"tidegate", b"12345678").extended_error(3, "old");
    let header = Header { response_code: ResponseCode::BADVERS, ..Header::query(1).response(ResponseCode::NOERROR) };
    let wire = MessageWriter::new(header).edns(&edns).expect("it fits").finish();
    assert_eq!(wire.len(), 12 + edns.wire_bytes());
    let message = MessageView::parse(&wire).expect("it is valid");
    assert_eq!(message.response_code(), ResponseCode::BADVERS);
    let read = message.edns().expect("it has one");
    assert!(read.wants_dnssec);
    let cookie = read.cookie().expect("its length is right").expect("it has one");
    assert_eq!((&cookie.client, cookie.server), (b"tidegate", &b"12345678"[..]));
    assert_eq!(read.extended_error().map(|error| (error.code, error.text)), Some((3, &b"old"[..])));

    for (length, is_valid) in [(7, false), (8, true), (9, false), (15, false), (16, true), (40, true), (41, false)] {
        let edns = Edns::default().option(10, vec![0; length]);
        let wire = MessageWriter::new(Header::query(1)).edns(&edns).expect("it fits").finish();
        let message = MessageView::parse(&wire).expect("it is valid");
        assert_eq!(message.edns().expect("it has one").cookie().is_ok(), is_valid, "{length}");
    }
    // Payloads below 512 bytes mean 512 (RFC 6891 §6.2.3).
    let tiny = Edns { udp_payload_bytes: 1, ..Edns::default() };
    let wire = MessageWriter::new(Header::query(1)).edns(&tiny).expect("it fits").finish();
    assert_eq!(MessageView::parse(&wire).expect("it is valid").edns().expect("it has one").udp_payload_bytes, 512);
}

#[test]
fn a_ttl_with_the_highest_bit_is_zero() {
    let mut wire = raw([0, 1, 0, 0], &record(1, &[0; 4]));
    for (bytes, ttl) in [([0x7f, 0xff, 0xff, 0xff], i32::MAX as u32), ([0x80, 0, 0, 0], 0), ([0xff; 4], 0)] {
        wire[17..21].copy_from_slice(&bytes);
        let message = MessageView::parse(&wire).expect("it is valid");
        assert_eq!(message.answers().next().map(|record| record.ttl()), Some(ttl));
    }
}

#[test]
fn a_record_that_does_not_fit_leaves_nothing() {
    let question = Question::new(name("tides.example"), RecordType::TXT);
    let header = Header::query(1).response(ResponseCode::NOERROR);
    let edns = Edns::default();
    let mut writer =
        MessageWriter::with_bytes_max(header, 512).reserve(edns.wire_bytes()).question(&question).expect("first");
    let text = |length: usize| Rdata::txt([&vec![b'a'; length][..]]).expect("it is short");
    let long = Record::new(name("long.tides.example"), 60, text(200));
    writer.record(Section::Answer, &long).expect("it fits");
    writer.record(Section::Answer, &long).expect("it fits");
    assert_eq!(
        writer.record(Section::Answer, &Record::new(name("new.tides.example"), 60, text(200))),
        Err(DnsError::Full)
    );
    writer.set_truncated();
    // The name of the refused record was forgotten with it.
    writer.record(Section::Answer, &Record::new(name("new.tides.example"), 60, text(1))).expect("it fits");
    assert_eq!(writer.record(Section::Answer, &long), Err(DnsError::Full));
    let wire = writer.edns(&edns).expect("room was kept").finish();
    assert!(wire.len() <= 512, "{}", wire.len());
    let message = MessageView::parse(&wire).expect("it is valid");
    let names: Vec<Name> = message.answers().map(|record| record.name().to_name()).collect();
    assert_eq!(names, ["long.tides.example", "long.tides.example", "new.tides.example"].map(name));
    assert!(message.header().is_truncated && message.edns().is_some());
}

#[test]
fn sections_are_written_in_their_order() {
    let mut writer = MessageWriter::new(Header::query(1));
    let record = Record::new(name("a"), 60, Rdata::a([192, 0, 2, 1].into()));
    writer.record(Section::Authority, &record).expect("it fits");
    assert_eq!(writer.record(Section::Answer, &record), Err(DnsError::SectionOrder));
    assert!(writer.question(&Question::new(name("a"), RecordType::A)).is_err());
}

#[test]
fn encoding_many_names_has_no_quadratic_cost() {
    // 5,000 names whose suffixes are all different, then the longest names: the message fills without a comparison of
    // each name with each. With one it would take minutes.
    let mut writer = MessageWriter::new(Header::query(1));
    let mut count = 0;
    for index in 0..5_000 {
        let owner = name(&format!("a{index}.b{index}.c{index}"));
        if writer.record(Section::Answer, &Record::new(owner, 60, Rdata::a([192, 0, 2, 1].into()))).is_ok() {
            count += 1;
        }
    }
    let wire = writer.finish();
    assert_eq!(MessageView::parse(&wire).expect("it is valid").answers().count(), count);
    let deep = Name::from_labels((0..126).map(|_| &b"a"[..])).expect("it has 253 bytes");
    let mut writer = MessageWriter::new(Header::query(1));
    for _ in 0..4_000 {
        writer.record(Section::Answer, &Record::new(deep.clone(), 60, Rdata::ns(&deep))).expect("it fits");
    }
    let wire = writer.finish();
    assert!(wire.len() < 12 + 300 + 4_000 * 16, "{}", wire.len());
    assert_eq!(MessageView::parse(&wire).expect("it is valid").answers().count(), 4_000);
}

#[test]
fn addresses_of_other_classes_are_opaque() {
    let mut wire = raw([0, 1, 0, 0], &record(1, b"\x03ebb!"));
    assert_eq!(refused(&wire), DnsError::RecordData);
    wire[16] = 3;
    let message = MessageView::parse(&wire).expect("it is valid");
    let answer = message.answers().next().expect("one record");
    assert_eq!((answer.class(), answer.data()), (Class::CH, RecordData::Opaque(b"\x03ebb!")));
}

#[test]
fn a_query_has_the_case_of_its_name() {
    let wire = query(1, "TiDeS.example", RecordType::A);
    let message = MessageView::parse(&wire).expect("it is valid");
    let question = message.question().expect("it has one");
    assert!(question.name.is_identical(&name("TiDeS.example")) && !question.name.is_identical(&name("tides.example")));
    assert!(question.name == name("tides.EXAMPLE"));
}
