use super::*;
use crate::qpack::{self, SectionState, TableDecoder};

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        let is_secret = tidegate_http_stream::is_secret(name.as_bytes(), value.as_bytes());
        qpack::encode(name.as_bytes(), value.as_bytes(), is_secret, &mut section);
    }
    section
}

fn encoded(table: &mut TableEncoder, stream: u64, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    table.encode(stream, &section(fields), true, &mut out);
    out
}

/// Passes instructions both ways.
fn exchange(encoder: &mut TableEncoder, decoder: &mut TableDecoder) {
    if let Some(bytes) = encoder.poll_instructions() {
        decoder.handle_instructions(&bytes).expect("instructions of ours");
    }
    if let Some(bytes) = decoder.poll_instructions() {
        encoder.handle_instructions(&bytes).expect("answers of ours");
    }
}

fn rewritten(decoder: &mut TableDecoder, stream: u64, section: &[u8]) -> Vec<u8> {
    assert_ne!(decoder.check(stream, section), Ok(SectionState::Blocked));
    let mut out = Vec::new();
    assert_eq!(decoder.rewrite(stream, section, 100_000, &mut out), Ok(true));
    out
}

const HEAD: [(&str, &str); 3] = [("user-agent", "a ship on the sea"), ("x-tide", "ebb and flow"), (":method", "GET")];

#[test]
fn a_field_is_a_reference_once_the_peer_has_it() {
    let (mut encoder, mut decoder) = (TableEncoder::new(4096, 0, 4096), TableDecoder::new(4096, 0));
    let mut lengths = Vec::new();
    for number in 0..4 {
        let wire = encoded(&mut encoder, number * 4, &HEAD);
        exchange(&mut encoder, &mut decoder);
        lengths.push(wire.len());
        let plain = rewritten(&mut decoder, number * 4, &wire);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        qpack::decode(&plain, &mut Vec::new(), |name, value| one.push((name.to_vec(), value.to_vec()))).expect("ours");
        let _ =
            qpack::decode(&section(&HEAD), &mut Vec::new(), |name, value| other.push((name.to_vec(), value.to_vec())));
        assert_eq!(one, other);
        exchange(&mut encoder, &mut decoder);
    }
    let whole = section(&HEAD).len();
    assert_eq!(lengths, [whole, whole, 5, 5]);
    assert_eq!((encoder.sections_count, encoder.referenced.len()), (0, 0), "all were acknowledged");
}

#[test]
fn a_stream_waits_only_if_the_peer_permits_it() {
    let mut encoder = TableEncoder::new(4096, 1, 4096);
    encoded(&mut encoder, 0, &HEAD);
    let wire = encoded(&mut encoder, 4, &HEAD);
    assert_eq!(wire.len(), 5, "behind its own insertions");
    assert_eq!(wire[1] & 0x80, 0x80, "the base is before them");
    assert_eq!(encoded(&mut encoder, 8, &HEAD).len(), section(&HEAD).len(), "a second stream would wait");
    assert_eq!(encoded(&mut encoder, 4, &HEAD).len(), 5, "the one that waits may");
    encoder.handle_instructions(&[0x84]).expect("it was decoded");
    assert_eq!(encoded(&mut encoder, 8, &HEAD).len(), 5, "the entries are known");
}

#[test]
fn secrets_are_never_inserted() {
    let mut encoder = TableEncoder::new(4096, 9, 4096);
    let secrets = [
        ("authorization", "Basic dGlkZTplYmI="),
        ("cookie", "session=0123"),
        ("set-cookie", "a-long-cookie-of-a-session=1"),
    ];
    for stream in 0..4 {
        assert_eq!(encoded(&mut encoder, stream * 4, &secrets), section(&secrets));
    }
    assert_eq!(encoder.poll_instructions(), None);
}

#[test]
fn an_entry_in_use_is_not_dropped() {
    // Two entries of about 60 bytes have room.
    let mut encoder = TableEncoder::new(128, 9, 128);
    let fields = ["one", "two", "six"].map(|name| [(name, "a value of twenty-five by")]);
    for field in &fields[..2] {
        encoded(&mut encoder, 0, field);
        encoded(&mut encoder, 4, field);
    }
    assert_eq!(encoder.table.inserted(), 2);
    for _ in 0..4 {
        encoded(&mut encoder, 8, &fields[2]);
    }
    assert_eq!(encoder.table.inserted(), 2, "both are in use");
    encoder.handle_instructions(&[0x84]).expect("of the first section");
    encoded(&mut encoder, 8, &fields[2]);
    assert_eq!(encoder.table.inserted(), 3, "the first one is not");
    encoder.handle_instructions(&[0x44]).expect("the second section is not read");
    assert_eq!(encoder.handle_instructions(&[0x44]), Ok(1), "nothing of that stream is left");
    assert!(encoder.table.get(1).is_some(), "it stays until room is needed, and is not acknowledged");
}

#[test]
fn a_peer_that_acknowledges_nothing_gets_literals() {
    let mut encoder = TableEncoder::new(4096, u64::MAX, 4096);
    encoded(&mut encoder, 0, &HEAD);
    for stream in 1..3_000 {
        encoded(&mut encoder, stream * 4, &HEAD);
    }
    assert_eq!(encoder.sections_count, SECTIONS_MAX);
    assert_eq!(encoded(&mut encoder, 0, &HEAD), section(&HEAD));
    let held = encoder.sections.values().map(VecDeque::len).sum::<usize>();
    assert_eq!((held, encoder.recent.len() <= RECENT_MAX), (SECTIONS_MAX, true));
}

#[test]
fn acknowledgments_of_nothing_are_refused() {
    for wire in [&[0x80][..], &[0x84], &[0x00], &[0x03], &[0x3f, 0xff, 0xff, 0x7f]] {
        let mut encoder = TableEncoder::new(4096, 9, 4096);
        encoded(&mut encoder, 0, &HEAD);
        encoded(&mut encoder, 8, &HEAD);
        assert_eq!(encoder.table.inserted(), 2);
        assert_eq!(encoder.handle_instructions(wire), Err(Violation::DecoderStream), "{wire:?}");
    }
    let mut encoder = TableEncoder::new(4096, 9, 4096);
    encoded(&mut encoder, 0, &HEAD);
    encoded(&mut encoder, 8, &HEAD);
    assert_eq!(encoder.handle_instructions(&[0x02, 0x88]), Ok(0), "an increment, and the section of that stream");
    assert_eq!(encoder.handle_instructions(&[0x88]), Err(Violation::DecoderStream), "twice");
    assert_eq!(encoder.handle_instructions(&[0x01]), Err(Violation::DecoderStream), "beyond the insertions");
}

#[test]
fn a_section_that_is_not_sent_leaves_nothing() {
    let mut encoder = TableEncoder::new(4096, 9, 4096);
    encoded(&mut encoder, 0, &HEAD);
    encoded(&mut encoder, 4, &HEAD);
    encoder.retract(4);
    assert_eq!((encoder.sections_count, encoder.referenced.len(), encoder.sections.capacity()), (0, 0, 0));
    let mut out = Vec::new();
    assert!(!encoder.encode(4, &section(&HEAD), false, &mut out), "nothing was acknowledged");
    assert_eq!(out, section(&HEAD));
}

#[test]
fn fields_that_are_used_are_inserted_again() {
    let (mut encoder, mut decoder) = (TableEncoder::new(512, 0, 512), TableDecoder::new(512, 0));
    let mut short = 0;
    for number in 0..200 {
        let other = format!("a value that comes twice {}", number / 2);
        let fields = [HEAD[0], ("x-other", &other)];
        let wire = encoded(&mut encoder, number * 4, &fields);
        exchange(&mut encoder, &mut decoder);
        rewritten(&mut decoder, number * 4, &wire);
        exchange(&mut encoder, &mut decoder);
        short += usize::from(wire.len() < section(&[("x-other", &other)]).len() + 4);
    }
    assert!(encoder.table.oldest() > 50, "entries were dropped");
    assert!(short > 180, "{short} sections of 200 have a reference to the first field");
}
