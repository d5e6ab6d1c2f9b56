use super::*;
use crate::qpack;

type Fields = Vec<(String, String)>;

fn decoder(capacity: u32) -> TableDecoder {
    let mut table = TableDecoder::new(capacity, 2);
    let mut wire = Vec::new();
    integer::write(capacity, 5, 0x20, &mut wire);
    table.handle_instructions(&wire).expect("the announced capacity");
    table
}

/// Insert With Literal Name.
fn insert(name: &str, value: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    integer::write(name.len() as u32, 5, 0x40, &mut wire);
    wire.extend_from_slice(name.as_bytes());
    integer::write(value.len() as u32, 7, 0, &mut wire);
    wire.extend_from_slice(value.as_bytes());
    wire
}

fn filled(capacity: u32, entries: u32) -> TableDecoder {
    let mut table = decoder(capacity);
    for number in 0..entries {
        table.handle_instructions(&insert("n", &number.to_string())).expect("it has room");
    }
    table
}

fn rewritten(table: &mut TableDecoder, section: &[u8]) -> Result<Fields, QpackError> {
    let (mut out, mut fields) = (Vec::new(), Fields::new());
    match table.check(0, section)? {
        SectionState::Incomplete => return Err(QpackError::Truncated),
        SectionState::Blocked => return Err(QpackError::Blocked),
        SectionState::Static | SectionState::Ready => {}
    }
    assert!(table.rewrite(0, section, 10_000, &mut out)?, "it is not that large");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    qpack::decode(&out, &mut Vec::new(), |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn fields(expected: &[(&str, &str)]) -> Result<Fields, QpackError> {
    Ok(expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

/// RFC 9204, Appendix B.2 to B.5.
#[test]
fn the_examples_of_the_standard_hold() {
    let mut table = TableDecoder::new(220, 1);
    let section = b"\x03\x81\x10\x11";
    assert_eq!(table.check(4, section), Ok(SectionState::Blocked));
    let inserts = b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path";
    assert_eq!(table.handle_instructions(inserts), Ok(0));
    assert_eq!(table.take_unblocked(), [4]);
    let mut out = Vec::new();
    assert_eq!(table.rewrite(4, section, 1000, &mut out), Ok(true));
    let mut seen = Vec::new();
    qpack::decode(&out, &mut Vec::new(), |name, value| seen.push([name, b"=", value].concat())).expect("it is whole");
    assert_eq!(seen, [&b":authority=www.example.com"[..], b":path=/sample/path"]);
    assert_eq!(table.poll_instructions(), Some(vec![0x84]));

    table.handle_instructions(b"\x4acustom-key\x0ccustom-value").expect("speculative");
    assert_eq!(table.poll_instructions(), Some(vec![0x01]));
    table.handle_instructions(b"\x02").expect("duplicate");
    let expected = fields(&[(":authority", "www.example.com"), (":path", "/"), ("custom-key", "custom-value")]);
    assert_eq!(rewritten(&mut table, b"\x05\x00\x80\xc1\x81"), expected);
    table.cancel(8);
    assert_eq!(table.poll_instructions(), Some(vec![0x80, 0x48]));

    table.handle_instructions(b"\x81\x0dcustom-value2").expect("with the name of an entry");
    assert_eq!((table.table.oldest(), table.table.inserted()), (1, 5));
    assert_eq!(rewritten(&mut table, b"\x06\x00\x80"), fields(&[("custom-key", "custom-value2")]));
}

#[test]
fn every_split_of_the_instructions_gives_the_same_table() {
    let mut wire = insert("tide", "ebb");
    // A name and a value in Huffman codes, a static name, the name of an entry, a duplicate, a capacity.
    let (name, value) = (b"tide", b"flow and ebb");
    wire.push(0x60 | huffman::encoded_bytes(name) as u8);
    huffman::encode(name, &mut wire);
    wire.push(0x80 | huffman::encoded_bytes(value) as u8);
    huffman::encode(value, &mut wire);
    wire.extend_from_slice(b"\xc1\x05/tide\x80\x03new\x01\x3f\xe1\x01");
    let read = |pieces: &[&[u8]]| {
        let mut table = decoder(300);
        for piece in pieces {
            table.handle_instructions(piece).expect("instructions");
        }
        assert_eq!(table.partial, b"");
        rewritten(&mut table, b"\x06\x00\x80\x81\x82\x83\x84")
    };
    let expected =
        fields(&[(":path", "/tide"), (":path", "new"), (":path", "/tide"), ("tide", "flow and ebb"), ("tide", "ebb")]);
    for split in 0..=wire.len() {
        assert_eq!(read(&[&wire[..split], &wire[split..]]), expected, "{split}");
    }
    assert_eq!(read(&wire.chunks(1).collect::<Vec<_>>()), expected, "byte by byte");
}

#[test]
fn instructions_beyond_the_table_are_refused() {
    let long = "x".repeat(100);
    let mut endless_string = vec![0x40 | 0x1f];
    endless_string.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]);
    for (name, wire) in [
        ("a capacity above the announced one", vec![0x3f, 0x80, 0x01 + 0x60]),
        ("an entry above the capacity", insert("tide", &long)),
        ("a name above the capacity", vec![0x5f, 0x7f]),
        ("a coded value above four capacities", vec![0x41, b'n', 0xff, 0xff, 0x7f]),
        ("a string of 2^62 bytes", endless_string),
        ("a string that is no Huffman code", vec![0x41, b'n', 0x81, 0xff]),
        ("a duplicate of nothing", vec![0x00]),
        ("the name of no entry", vec![0x80, 0x00]),
        ("the name of no static field", vec![0xff, 0x24, 0x00]),
        ("an index without end", vec![0x9f | 0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let mut table = decoder(128);
        assert_eq!(table.handle_instructions(&wire), Err(Violation::EncoderStream), "{name}");
    }
    let mut table = TableDecoder::new(128, 0);
    assert_eq!(table.handle_instructions(&insert("a", "b")), Err(Violation::EncoderStream), "before the capacity");
    let mut table = filled(128, 3);
    assert_eq!(table.handle_instructions(&[0x03]), Err(Violation::EncoderStream), "an entry that was dropped");
    let mut table = decoder(128);
    assert_eq!(table.handle_instructions(&insert("tide", &"x".repeat(92))), Ok(0), "as large as the table");
}

#[test]
fn a_smaller_capacity_drops_entries_that_sections_refer_to() {
    let mut table = filled(256, 4);
    assert_eq!(rewritten(&mut table, b"\x05\x00\x83\x80"), fields(&[("n", "0"), ("n", "3")]));
    table.handle_instructions(&[0x3f, 0x24]).expect("a capacity of 67 bytes");
    assert_eq!(rewritten(&mut table, b"\x05\x00\x83\x80"), Err(QpackError::Index), "it was dropped");
    let mut table = filled(256, 4);
    table.handle_instructions(&[0x3f, 0x24]).expect("a capacity of 67 bytes");
    assert_eq!(rewritten(&mut table, b"\x05\x00\x80"), fields(&[("n", "3")]));
    table.handle_instructions(&[0x20]).expect("a capacity of 0");
    assert_eq!(table.table.oldest(), 4);
    assert_eq!(table.handle_instructions(&insert("a", "b")), Err(Violation::EncoderStream));
}

#[test]
fn references_to_entries_that_there_are_not_are_refused() {
    // 10 insertions, of which a table of 4 entries has 6 to 9. Ten is encoded as 10 % 8 + 1.
    for (name, section, error) in [
        ("dropped", &b"\x03\x00\x84"[..], QpackError::Index),
        ("before all", b"\x03\x00\xbf\x00", QpackError::Index),
        ("behind the base", b"\x03\x00\x10", QpackError::Index),
        ("far behind the base", b"\x03\x00\x1f\x7f", QpackError::Index),
        ("a name that was dropped", b"\x03\x00\x44\x00", QpackError::Index),
        ("a name behind the base", b"\x03\x00\x00\x00", QpackError::Index),
        ("a base before all", b"\x03\x8a\x80", QpackError::Base),
        ("a base before the entries", b"\x03\x85\x80", QpackError::Index),
        ("a value that is cut off", b"\x03\x00\x40\x02x", QpackError::Truncated),
        ("an index that is cut off", b"\x03\x00\xbf", QpackError::Truncated),
        ("an index of 2^62", b"\x03\x00\xbf\xff\xff\xff\xff\xff\xff\xff\xff\x3f", QpackError::Integer),
        ("a literal of 2^62", b"\x03\x00\x80\x27\xff\xff\xff\xff\xff\xff\xff\xff\x3f", QpackError::Integer),
        ("no reference at all", b"\x03\x00\xc1", QpackError::InsertCount),
        ("a count above the references", b"\x03\x00\x81", QpackError::InsertCount),
    ] {
        assert_eq!(rewritten(&mut filled(136, 10), section), Err(error), "{name}");
    }
    let mut table = filled(136, 10);
    assert_eq!(rewritten(&mut table, b"\x03\x00\x80\x81\x82\x43\x01x").map(|fields| fields.len()), Ok(4));
    assert_eq!(
        rewritten(&mut table, b"\x03\x83\x13\x10\x00\x01x").map(|fields| fields.len()),
        Ok(3),
        "behind a base of 6"
    );
}

/// RFC 9204 §4.5.1.1: a table of 4 entries, and a count from 0 on that wraps at 8.
#[test]
fn insert_counts_wrap() {
    for inserted in 0..40_u64 {
        let table = filled(128, inserted as u32);
        assert_eq!(table.required(0), Ok(0));
        for encoded in 9..12 {
            assert_eq!(table.required(encoded), Err(QpackError::InsertCount), "above twice the entries");
        }
        for encoded in 1..=8 {
            // The one count of this remainder among the last four, the present one, and the next three.
            let lowest = (inserted + 4).saturating_sub(7);
            let expected = (lowest..=inserted + 4).find(|count| *count > 0 && count % 8 + 1 == encoded);
            let required = table.required(encoded);
            match expected {
                Some(expected) => assert_eq!(required, Ok(expected), "{encoded} behind {inserted}"),
                None => assert_eq!(required, Err(QpackError::InsertCount), "{encoded} behind {inserted}"),
            }
        }
    }
    let table = TableDecoder::new(31, 0);
    assert_eq!(table.required(1), Err(QpackError::InsertCount), "a table without room for an entry");
}

#[test]
fn no_more_streams_wait_than_were_announced() {
    let mut table = filled(128, 1);
    let section = b"\x04\x00\x80";
    assert_eq!(table.check(0, &section[..1]), Ok(SectionState::Incomplete));
    for stream in [0, 4, 0, 4] {
        assert_eq!(table.check(stream, section), Ok(SectionState::Blocked), "{stream}");
    }
    assert_eq!(table.check(8, section), Err(QpackError::Blocked));
    assert_eq!(table.check(8, b"\x02\x00\x80"), Ok(SectionState::Ready), "another one needs not wait");
    table.cancel(4);
    assert_eq!(table.check(8, section), Ok(SectionState::Blocked), "in place of the one that was reset");
    table.handle_instructions(&insert("a", "b")).expect("it has room");
    assert_eq!(table.take_unblocked(), [], "one of two");
    table.handle_instructions(&insert("a", "b")).expect("it has room");
    assert_eq!((table.take_unblocked(), table.take_unblocked()), (vec![0, 8], vec![]));
}

#[test]
fn references_expand_to_a_bound() {
    let mut table = decoder(4096);
    table.handle_instructions(&insert("bomb", &"x".repeat(4000))).expect("it has room");
    let section = [&[2, 0][..], &[0x80; 30_000]].concat();
    let mut out = Vec::new();
    assert_eq!(table.rewrite(0, &section, 16 * 1024, &mut out), Ok(false));
    assert!(out.len() < 17 * 1024, "{} bytes", out.len());
    assert_eq!(table.poll_instructions(), Some(vec![0x80]), "it was decoded all the same");
    let broken = [&section[..], &[0x81]].concat();
    assert_eq!(table.rewrite(0, &broken, 1024, &mut Vec::new()), Err(QpackError::Index), "and is checked to its end");
}

#[test]
fn a_name_that_is_secret_stays_secret() {
    let mut table = filled(128, 1);
    for (section, first) in [(b"\x02\x00\x60\x01x", 0x31), (b"\x02\x80\x08\x01x", 0x31), (b"\x02\x00\x40\x01x", 0x21)] {
        let mut out = Vec::new();
        assert_eq!(table.rewrite(0, section, 1000, &mut out), Ok(true));
        assert_eq!(out, [&[0, 0, first, b'n', 1][..], b"x"].concat());
    }
}

#[test]
fn instructions_without_sections_are_counted() {
    let mut table = filled(128, 0);
    let wire: Vec<u8> = (0..70).flat_map(|_| insert("a", "b")).collect();
    assert_eq!(table.handle_instructions(&wire), Ok(71 - 64), "the capacity is one of them");
    assert_eq!(table.handle_instructions(&wire), Ok(70));
    let required = table.table.inserted() % 8 + 1;
    assert_eq!(rewritten(&mut table, &[required as u8, 0, 0x80]), fields(&[("a", "b")]));
    assert_eq!(table.handle_instructions(&insert("a", "b")), Ok(0), "a section has used them");
}

#[test]
fn memory_is_that_of_the_entries() {
    let mut table = decoder(4096);
    for number in 0..10_000 {
        table.handle_instructions(&insert("n", &number.to_string())).expect("it has room");
        table.poll_instructions();
    }
    assert!(table.table.inserted() - table.table.oldest() <= 4096 / 34);
    table.handle_instructions(&[0x20]).expect("a capacity of 0");
    assert_eq!((table.partial.capacity(), table.output.capacity(), table.blocked.capacity()), (0, 0, 0));
}

#[test]
fn a_value_without_room_behind_its_name_is_not_waited_for() {
    // Of the 224 bytes for both the name leaves 24, which are at most 96 coded ones.
    let name = [&[0x5f, 0xa9, 0x01][..], &[b'n'; 200]].concat();
    for (value, outcome) in [
        (24, Ok(0)),
        (25, Err(Violation::EncoderStream)),
        (0x80 | 96, Ok(0)),
        (0x80 | 97, Err(Violation::EncoderStream)),
    ] {
        assert_eq!(decoder(256).handle_instructions(&[&name[..], &[value]].concat()), outcome, "{value:#x}");
    }
    let mut table = decoder(256);
    table.handle_instructions(&insert(&"n".repeat(30), "")).expect("an entry");
    assert_eq!(table.handle_instructions(&[0x80, 0x7f, 0x44]), Err(Violation::EncoderStream), "195 bytes, of 194");
}

#[test]
fn copies_of_long_entries_count_as_many_instructions() {
    let mut table = TableDecoder::new(65_536, 0);
    table.handle_instructions(&[0x3f, 0xe1, 0xff, 0x03]).expect("the capacity");
    let insert = [&b"\x44tide\x7f\x81\xd1\x01"[..], &[b'x'; 26_880]].concat();
    assert_eq!(table.handle_instructions(&insert), Ok(0));
    assert_eq!(table.handle_instructions(&[0, 0]), Ok(0), "54 of 64");
    assert_eq!(table.handle_instructions(&[0]), Ok(2 + 3 * 27 - 64));
    assert_eq!(table.handle_instructions(&[0]), Ok(27));
}
