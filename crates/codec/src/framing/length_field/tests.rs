//! Unit tests of [`LengthField`].

use super::super::tests::{encode, run};
use super::*;

/// A codec, and bytes whose first frame decodes to `message` and is encoded again to the same bytes.
#[track_caller]
fn both_ways(framing: &LengthField, wire: &[u8], message: &[u8]) {
    let (messages, end) = run(framing.clone(), wire);
    assert_eq!((messages, end), (vec![message.escape_ascii().to_string()], Ok(())));
    assert_eq!(framing.encoded(message).unwrap(), wire);
    assert_eq!(encode(framing.clone(), message.to_vec()).unwrap(), wire);
}

#[test]
fn every_width_and_order_is_read_and_written() {
    for width in 1..=8 {
        let mut wire = vec![0; width];
        wire[width - 1] = 3;
        both_ways(&LengthField::new(width), &[&wire[..], b"ebb"].concat(), b"ebb");
        wire.reverse();
        both_ways(&LengthField::builder(width).little_endian().build(), &[&wire[..], b"ebb"].concat(), b"ebb");
    }
}

#[test]
fn an_empty_message_is_a_message() {
    both_ways(&LengthField::new(2), b"\0\0", b"");
}

#[test]
fn offset_adjustment_and_strip_combine() {
    // The field counts the whole frame.
    both_ways(&LengthField::builder(2).adjustment(-2).build(), b"\0\x05ebb", b"ebb");
    // Nothing is stripped.
    both_ways(&LengthField::builder(2).strip(0).build(), b"\0\x03ebb", b"\0\x03ebb");
    // A header before the field; both stay, and the field is within the message.
    both_ways(&LengthField::builder(1).offset(2).strip(0).build(), b"TY\x03ebb", b"TY\x03ebb");
    // Half the header is stripped, and written as zeros.
    both_ways(&LengthField::builder(1).offset(2).strip(1).build(), b"\0Y\x03ebb", b"Y\x03ebb");
    // The cut goes through the field.
    both_ways(&LengthField::builder(2).strip(1).build(), b"\0\x03ebb", b"\x03ebb");
    // A header behind the field; the length does not count it, and it is stripped as well.
    both_ways(&LengthField::builder(1).adjustment(2).strip(3).build(), b"\x03\0\0ebb", b"ebb");
}

#[test]
fn a_field_within_the_message_is_set_right() {
    let framing = LengthField::builder(1).offset(2).strip(0).build();
    assert_eq!(framing.encoded(b"TY\xffebb").unwrap(), &b"TY\x03ebb"[..]);
    assert_eq!(framing.encoded(b"TY"), Err(FramingError::WrongLength { bytes: 2, expected: 3 }));
}

#[test]
fn a_declared_length_is_refused_as_soon_as_it_is_there() {
    let framing = LengthField::builder(4).frame_bytes_max(10).build();
    assert_eq!(run(framing.clone(), b"\0\0\0\x06abcdef").0, ["abcdef"]);
    let too_long = Err(FramingError::TooLong { bytes_max: 10 });
    assert_eq!(run(framing.clone(), b"\0\0\0\x07").1, too_long);
    assert_eq!(run(framing, b"\xff\xff\xff\xff").1, too_long);
}

#[test]
fn no_value_of_any_parameter_overflows() {
    for adjustment in [i64::MIN, i64::MIN + 1, -9, -8, -1, 0, 1, i64::MAX - 8, i64::MAX] {
        for declared in [0, 1, 8, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX - 8, u64::MAX] {
            for offset in [0, 56] {
                for strip in [0, 8, 64] {
                    let framing = LengthField::builder(8).offset(offset).adjustment(adjustment).strip(strip).build();
                    let wire = [&vec![0; offset][..], &declared.to_be_bytes()].concat();
                    let total = i128::from(declared) + i128::from(adjustment) + wire.len() as i128;
                    let end = run(framing.clone(), &wire).1;
                    if total < wire.len().max(strip) as i128 {
                        assert_eq!(end, Err(FramingError::DeclaredTooShort { declared }));
                    } else if total > FRAME_BYTES_MAX as i128 {
                        assert_eq!(end, Err(FramingError::TooLong { bytes_max: FRAME_BYTES_MAX }));
                    } else if total > wire.len() as i128 {
                        assert_eq!(end, Err(FramingError::Truncated { bytes: wire.len() }));
                    } else {
                        assert_eq!(end, Ok(()));
                    }
                    // Must not panic, and an accepted frame must be right.
                    if let Ok(wire) = framing.encoded(&[b'x'; 70]) {
                        assert_eq!(run(framing, &wire).0.len(), 1);
                    }
                }
            }
        }
    }
}

#[test]
fn a_length_that_the_field_cannot_hold_is_refused() {
    assert_eq!(encode(LengthField::new(1), vec![0; 255]).unwrap().len(), 256);
    assert_eq!(encode(LengthField::new(1), vec![0; 256]), Err(FramingError::Undeclarable { bytes: 256 }));
    // Bytes that are not counted but required: with fewer, the length would be negative.
    let framing = LengthField::builder(1).adjustment(2).build();
    assert_eq!(framing.encoded(b"ab").unwrap(), &b"\0ab"[..]);
    assert_eq!(framing.encoded(b"a"), Err(FramingError::Undeclarable { bytes: 1 }));
    let limited = LengthField::builder(4).frame_bytes_max(10).build();
    assert_eq!(limited.encoded(b"abcdefg"), Err(FramingError::TooLong { bytes_max: 10 }));
}

#[test]
fn bytes_left_at_the_end_are_a_truncated_frame() {
    for wire in [&b"\0"[..], b"\0\x03", b"\0\x03eb"] {
        assert_eq!(run(LengthField::new(2), wire).1, Err(FramingError::Truncated { bytes: wire.len() }));
    }
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let refused: [fn() -> LengthField; 7] = [
        || LengthField::new(0),
        || LengthField::new(9),
        || LengthField::builder(4).offset(61).build(),
        || LengthField::builder(4).offset(usize::MAX).build(),
        || LengthField::builder(4).strip(65).build(),
        || LengthField::builder(4).frame_bytes_max(3).build(),
        || LengthField::builder(4).frame_bytes_max(usize::MAX).build(),
    ];
    for (index, build) in refused.into_iter().enumerate() {
        assert!(std::panic::catch_unwind(build).is_err(), "number {index} was built");
    }
}
