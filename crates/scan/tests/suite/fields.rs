//! Every level finds the parts that the rules define: at every split, with every byte at every place, in every rest of
//! a window.

use tidegate_scan::{FieldError, Level, Scanner, Stop, Task, fields};

use crate::support::{self, From, agreed, check};

const BROWSER: &[u8] = include_bytes!("support/browser.txt");

#[test]
fn a_head_is_partial_at_every_split_and_then_whole() {
    let head = [BROWSER, b"GET / HTTP/1.1\r\n"].concat();
    for length in 0..=head.len() {
        check(From(&head[..length], 0));
        let found = agreed(From(&head[..length], 0));
        let expected = if length < BROWSER.len() { Err(Stop::Partial) } else { Ok(BROWSER.len()) };
        assert_eq!(found.end, expected, "{length} bytes");
    }
}

#[test]
fn every_byte_is_judged_alike_at_every_place() {
    // Names, values and line ends that begin and end before, in, and behind the first window.
    for (name, value) in [(1, 0), (7, 5), (20, 30), (62, 3), (70, 80)] {
        let head = format!("{}:{}\r\nA: b\r\n\r\n", "n".repeat(name), "v".repeat(value)).into_bytes();
        for place in 0..head.len() {
            for byte in 0..=255 {
                let mut other = head.clone();
                other[place] = byte;
                check(From(&other, 0));
            }
        }
    }
}

#[test]
fn lines_of_every_length_are_seen_at_every_place_of_a_window() {
    for first in 1..=140 {
        for second in [1, 2, 14, 15, 16, 30, 31, 32, 61, 62, 63, 64, 65, 130] {
            let head =
                format!("{}:\r\n{}:x\t\r\nA:{}\r\n\r\n", "n".repeat(first), "m".repeat(second), "v".repeat(first));
            check(From(head.as_bytes(), 0));
            check(From(&head.as_bytes()[..head.len() - 1], 0));
        }
    }
}

#[test]
fn a_scan_begins_anywhere_and_nothing_is_beyond_the_end() {
    for at in 0..=BROWSER.len() + 3 {
        check(From(BROWSER, at));
    }
    check(From(b"", usize::MAX - 100));
    check(From(BROWSER, usize::MAX - 100));
}

#[test]
fn escaped_octets_are_seen_at_every_place_of_a_block() {
    for escape in ["%41", "%4a", "%fF", "%00", "%0", "%", "%g0", "%0g", "%%41", "%41%42", "%41%0"] {
        for place in 0..70 {
            for behind in [0, 1, 2, 28, 40] {
                for rest in ["", " HTTP/1.1\r\n", "?%00 ", "%41?%4 "] {
                    let target = format!("/{}{escape}{}{rest}", "a".repeat(place), "b".repeat(behind));
                    check(From(target.as_bytes(), 0));
                }
            }
        }
    }
}

#[test]
fn random_bytes_are_judged_alike() {
    let kinds = b"\r\n\r\n\r\n:: \tnamevalue-#?/%%00\0\x7f\x80\xff\x1f";
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..60_000 {
        let bytes: Vec<u8> = (0..round % 160)
            .map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let drawn = (random >> 40) as usize;
                // Mostly bytes that continue a line.
                if drawn & 7 == 0 { kinds[(drawn >> 3) % kinds.len()] } else { b'a' + (drawn >> 3) as u8 % 26 }
            })
            .collect();
        check(From(&bytes, round % 3));
    }
}

#[test]
fn each_flaw_is_reported_as_its_own() {
    let flaw = |head: &[u8]| match agreed(From(head, 0)).end {
        Err(Stop::Flawed(flaw)) => flaw,
        other => panic!("{other:?}"),
    };
    assert_eq!(flaw(b" a: b\r\n\r\n"), FieldError::FoldedLine);
    assert_eq!(flaw(b"a: b\r\n\tc\r\n\r\n"), FieldError::FoldedLine);
    assert_eq!(flaw(b": b\r\n\r\n"), FieldError::Name);
    assert_eq!(flaw(b"a : b\r\n\r\n"), FieldError::Name);
    assert_eq!(flaw(b"a\0: b\r\n\r\n"), FieldError::Name);
    assert_eq!(flaw(b"a\r\n\r\n"), FieldError::NoColon);
    assert_eq!(flaw(b"\ra: b\r\n\r\n"), FieldError::NoColon);
    assert_eq!(flaw(b"a: b\n\r\n"), FieldError::BareLf);
    assert_eq!(flaw(b"a: b\r\n\n"), FieldError::BareLf);
    assert_eq!(flaw(b"a\n: b\r\n\n"), FieldError::BareLf);
    assert_eq!(flaw(b"a: b\rc\r\n\r\n"), FieldError::BareCr);
    assert_eq!(flaw(b"a: b\r\r\n\r\n"), FieldError::BareCr);
    assert_eq!(flaw(b"a: \x7f\r\n\r\n"), FieldError::Control);
}

#[test]
fn no_field_is_reported_after_a_refused_one() {
    /// Refuses a field after so many.
    struct Few(usize);

    impl Task for Few {
        type Output = (usize, Result<usize, Stop<&'static str>>);

        #[inline(always)]
        fn run<S: Scanner>(self, scanner: S) -> Self::Output {
            let mut heard = 0;
            let end = scanner.fields(BROWSER, 0, |_| {
                heard += 1;
                if heard > self.0 { Err("enough") } else { Ok(()) }
            });
            (heard, end)
        }
    }

    for level in Level::all() {
        assert_eq!(level.run(Few(0)), (1, Err(Stop::Refused("enough"))));
        assert_eq!(level.run(Few(7)), (8, Err(Stop::Refused("enough"))));
        assert_eq!(level.run(Few(25)), (25, Ok(BROWSER.len())));
    }
}

#[test]
fn the_best_level_is_the_first_one_and_chosen_again() {
    for _ in 0..3 {
        let mut found = Vec::new();
        let end = fields(BROWSER, 0, |field| {
            found.push(field);
            Ok(())
        });
        assert_eq!(support::Seen { fields: found, end }, support::seen(Level::all()[0], From(BROWSER, 0)));
    }
    assert_eq!(Level::all().last().map(|level| level.name()), Some("portable"));
}
