//! Names, messages and random records that several modules need.

use std::io;

use tidegate_dns::{EncodedMessage, Header, MessageWriter, Name, Question, Rdata, Record, RecordType};
use tidegate_engine::Backend;
use tidegate_testkit::Random;

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Calls until no signal has interrupted the call: the kernel interrupts a call with a time-out to run the work of a ring.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub(crate) fn query(id: u16, text: &str, record_type: RecordType) -> EncodedMessage {
    let question = Question::new(name(text), record_type);
    MessageWriter::new(Header::query(id)).question(&question).expect("it is the first").finish()
}

/// A message with this header's counts and these bytes behind the header.
pub(crate) fn raw(counts: [u16; 4], body: &[u8]) -> Vec<u8> {
    let mut wire = vec![0x12, 0x34, 0x01, 0x00];
    counts.iter().for_each(|count| wire.extend_from_slice(&count.to_be_bytes()));
    wire.extend_from_slice(body);
    wire
}

/// The frame of a message on a stream.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// A name of up to five labels out of few, so that suffixes repeat; now and then with any bytes.
pub(crate) fn random_name(random: &mut Random) -> Name {
    let words: [&[u8]; 6] = [b"tide", b"GATE", b"a", b"example", b"very-long-label-that-fills-the-message", b"x\0.y"];
    let labels: Vec<&[u8]> = (0..random.below(5)).map(|_| words[random.below(words.len())]).collect();
    Name::from_labels(labels).expect("it is short")
}

/// A record with data of one of the types that have fields.
pub(crate) fn random_record(random: &mut Random) -> Record {
    let (one, two) = (random_name(random), random_name(random));
    let parse = |record_type: RecordType, text: &str| {
        Rdata::parse(record_type, text, &Name::root()).unwrap_or_else(|error| panic!("{record_type} {text}: {error}"))
    };
    let number = random.below(65_536);
    let data = match random.below(20) {
        0 => Rdata::a([192, 0, 2, number as u8].into()),
        1 => Rdata::aaaa([0x2001, 0xdb8, 0, 0, 0, 0, 0, number as u16].into()),
        2 => Rdata::ns(&one),
        3 => Rdata::cname(&one),
        4 => Rdata::soa(&one, &two, number as u32, [1, 2, 3, 4]),
        5 => Rdata::ptr(&one),
        6 => Rdata::mx(number as u16, &one),
        7 => Rdata::txt([&random.bytes(number % 256)[..], b"ebb"]).expect("it is short"),
        8 => Rdata::srv(1, number as u16, 53, &one),
        9 => parse(RecordType::NAPTR, &format!("{number} 10 \"u\" \"E2U+sip\" \"!^.*$!sip:a@b!\" {one}")),
        10 => parse(RecordType::DNAME, &one.to_string()),
        11 => parse(RecordType::CAA, "128 issue \"ca.example; policy=\\\"ev\\\"\""),
        12 => parse(RecordType::TLSA, "3 1 1 00112233445566778899aabbccddeeff"),
        13 => parse(RecordType::DS, &format!("{number} 13 2 00ff11ee")),
        14 => parse(RecordType::DNSKEY, "257 3 13 dGlkZWdhdGU="),
        15 => parse(RecordType::RRSIG, &format!("A 13 2 300 20261127000000 20261101000000 {number} {one} dGlkZQ==")),
        16 => parse(RecordType::NSEC, &format!("{one} A MX TYPE1234")),
        17 => parse(RecordType::SVCB, &format!("{number} {one} alpn=h2,h3 port=8443 ipv4hint=192.0.2.1 key667=ebb")),
        18 => parse(RecordType::HTTPS, &format!("1 {one} alpn=h2 no-default-alpn ech=dGlkZQ== ipv6hint=2001:db8::1")),
        _ => parse(RecordType(4_711), "\\# 3 00ff10"),
    };
    Record::new(random_name(random), number as u32, data)
}

/// The backends that the system has.
pub(crate) fn backends() -> Vec<Backend> {
    match tidegate_sys::uring::Uring::probe() {
        Ok(_) => vec![Backend::Epoll, Backend::Uring],
        Err(error) => {
            println!("skipped: there is no io_uring here: {error}");
            vec![Backend::Epoll]
        }
    }
}
