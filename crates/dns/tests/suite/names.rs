//! Names in wire form and in presentation form, equal without regard to case.

use tidegate_dns::{DnsError, MessageView, Name, RecordType};

use crate::support::{name, query, raw};

#[test]
fn a_label_has_63_bytes_at_most_and_a_name_255() {
    let label = "a".repeat(63);
    assert_eq!(name(&label).wire().len(), 65);
    assert_eq!(format!("{label}a").parse::<Name>(), Err(DnsError::NameText));
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(name(&longest).wire().len(), 255);
    assert_eq!(format!("{longest}a").parse::<Name>(), Err(DnsError::NameTooLong));
    assert_eq!(name("a").join(&name(&longest)).err(), Some(DnsError::NameTooLong));

    let wire = [&[63][..], label.as_bytes()].concat();
    let longest = [&wire[..], &wire, &wire, &[61], "a".repeat(61).as_bytes(), &[0]].concat();
    assert!(Name::from_wire(&longest).is_ok());
    let message = raw([1, 0, 0, 0], &[&longest[..], &[0, 1, 0, 1]].concat());
    assert!(MessageView::parse(&message).is_ok());
    let longer = [&wire[..], &wire, &wire, &[62], "a".repeat(62).as_bytes(), &[0]].concat();
    assert_eq!(Name::from_wire(&longer), Err(DnsError::NameTooLong));
    let message = raw([1, 0, 0, 0], &[&longer[..], &[0, 1, 0, 1]].concat());
    assert_eq!(MessageView::parse(&message).err(), Some(DnsError::NameTooLong));
    for first in [64, 0x80, 0xbf] {
        let wire = [&[first][..], &[b'a'; 191], &[0]].concat();
        assert_eq!(Name::from_wire(&wire), Err(DnsError::Label));
        let message = raw([1, 0, 0, 0], &[&wire[..], &[0, 1, 0, 1]].concat());
        assert_eq!(MessageView::parse(&message).err(), Some(DnsError::Label));
    }
}

#[test]
fn any_byte_in_a_label_is_the_same_in_both_forms() {
    for byte in 0..=255 {
        let original = Name::from_labels([&[byte, b'a', byte][..], b"x"]).expect("it is short");
        let text = original.to_string();
        assert!(text.is_ascii() && !text.contains(['\0', ' ', '\n']), "{text}");
        let again = name(&text);
        assert_eq!(again.wire(), original.wire(), "{text}");
        let message = query(1, &text, RecordType::A);
        let view = MessageView::parse(&message).expect("it is valid");
        let read = view.question().expect("it has one").name;
        assert!(read.is_identical(&original), "{text}");
        assert_eq!((read.to_string(), read.to_name().wire()), (text, original.wire()));
    }
    assert_eq!(name(r"a\.b.c").labels().collect::<Vec<_>>(), [&b"a.b"[..], b"c"]);
    assert_eq!(name(r"\000\255").labels().collect::<Vec<_>>(), [&[0, 255][..]]);
    assert_eq!(name("é").labels().collect::<Vec<_>>(), ["é".as_bytes()]);
}

#[test]
fn texts_that_are_no_names_are_refused() {
    for text in ["", "..", ".a", "a..b", r"a\", r"a\25", r"a\256", r"\2x5"] {
        assert_eq!(text.parse::<Name>(), Err(DnsError::NameText), "{text}");
    }
    for wire in [&[][..], &[1], &[3, b'a', b'b'], &[1, b'a']] {
        assert_eq!(Name::from_wire(wire), Err(DnsError::Truncated), "{wire:?}");
    }
    assert_eq!(Name::from_wire(&[0, 0]), Err(DnsError::TrailingBytes));
    assert_eq!(Name::from_labels([&b""[..]]), Err(DnsError::Label));
}

#[test]
fn only_ascii_letters_are_equal_in_both_cases() {
    assert_eq!(name("TIDE.Example"), name("tide.eXAMPLE."));
    assert_ne!(name(r"\193"), name(r"\225"));
    assert_ne!(name("a[b"), name("a{b"));
    assert_eq!(name("TIDE").cmp(&name("tide")), std::cmp::Ordering::Equal);
    // RFC 4034 §6.1.
    let mut sorted = [
        "z.example",
        "example",
        r"\001.z.example",
        "*.z.example",
        r"\200.z.example",
        "a.example",
        "yljkjljk.a.example",
        "Z.a.example",
        "zABC.a.EXAMPLE",
    ]
    .map(name);
    sorted.sort();
    let expected = [
        "example",
        "a.example",
        "yljkjljk.a.example",
        "Z.a.example",
        "zABC.a.EXAMPLE",
        "z.example",
        r"\001.z.example",
        "*.z.example",
        r"\200.z.example",
    ];
    assert_eq!(sorted, expected.map(name));
}

#[test]
fn a_name_is_within_another_by_whole_labels() {
    assert!(name("a.example").is_within(&name("EXAMPLE")));
    assert!(name("example").is_within(&name("example")));
    assert!(name("example").is_within(&Name::root()));
    assert!(!name("anexample").is_within(&name("example")));
    assert!(!name("example").is_within(&name("a.example")));
    // The label is `a`, then the bytes of a label `example`: its end looks like the other name.
    let tricky = Name::from_labels([&b"a\x07example"[..]]).expect("it is short");
    assert!(!tricky.is_within(&name("example")));
    let replaced = name("www.old.example").replace_suffix(&name("OLD.example"), &name("new.test"));
    assert_eq!(replaced, Ok(name("www.new.test")));
}
