//! `Utf8`: whether a text is UTF-8, checked as its bytes arrive.

/// The state between two pieces of a text: the beginning of a character that is not complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Utf8 {
    begun: [u8; 3],
    length: u8,
}

/// The bytes are no part of a text in UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid;

impl Utf8 {
    /// Checks the next bytes. Bytes that no continuation makes valid are refused at once.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<(), Invalid> {
        while self.length > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            let mut character = [0; 4];
            let count = usize::from(self.length);
            character[..count].copy_from_slice(&self.begun[..count]);
            character[count] = byte;
            self.length = 0;
            self.begin(&character[..=count])?;
        }
        let (whole, begun) = bytes.split_at(bytes.len() - unfinished(bytes));
        simdutf8::basic::from_utf8(whole).map_err(|_| Invalid)?;
        self.begin(begun)
    }

    /// Whether the text may end here.
    pub(crate) fn is_complete(self) -> bool {
        self.length == 0
    }

    /// Stores a character of which bytes are missing, or nothing if it is complete.
    fn begin(&mut self, bytes: &[u8]) -> Result<(), Invalid> {
        match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_none() && error.valid_up_to() == 0 && bytes.len() <= 3 => {
                self.begun[..bytes.len()].copy_from_slice(bytes);
                self.length = bytes.len() as u8;
                Ok(())
            }
            Err(_) => Err(Invalid),
        }
    }
}

/// How many bytes at the end begin a character that needs more.
fn unfinished(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(3)..];
    for (back, byte) in last.iter().rev().enumerate() {
        let needed = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if back + 1 < needed { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the text is judged in these pieces.
    fn judge(pieces: &[&[u8]]) -> Option<bool> {
        let mut state = Utf8::default();
        for piece in pieces {
            state.check(piece).ok()?;
        }
        Some(state.is_complete())
    }

    #[test]
    fn every_split_of_text_is_judged_like_the_whole() {
        let texts: [&[u8]; 14] = [
            "tide \u{e9}\u{20ac}\u{10348} gate".as_bytes(),
            "\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}".as_bytes(),
            b"\xCE\xBA\xE1\xBD\xB9\xCF\x83\xCE\xBC\xCE\xB5\xED\xA0\x80edited",
            b"\xF4\x90\x80\x80",
            b"\xC0\xAF",
            b"\xE0\x80\xAF",
            b"\xF0\x80\x80\xAF",
            b"\x80",
            b"abc\xFF",
            b"abc\xFE",
            b"\xF8\x88\x80\x80\x80",
            b"ab\xE2\x82",
            b"ab\xF0\x9F\x98",
            b"",
        ];
        for text in texts {
            let whole = judge(&[text]);
            let valid = std::str::from_utf8(text);
            let expected = match valid {
                Ok(_) => Some(true),
                Err(error) if error.error_len().is_none() => Some(false),
                Err(_) => None,
            };
            assert_eq!(whole, expected, "{}", text.escape_ascii());
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    let pieces = [&text[..first], &text[first..second], &text[second..]];
                    assert_eq!(judge(&pieces), whole, "{} at {first} and {second}", text.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn bytes_that_nothing_makes_valid_are_refused_before_the_character_ends() {
        assert_eq!(Utf8::default().check(b"\xF4\x90"), Err(Invalid));
        assert_eq!(Utf8::default().check(b"\xED\xA0"), Err(Invalid));
        let mut state = Utf8::default();
        assert_eq!(state.check(b"\xF4"), Ok(()));
        assert_eq!(state.check(b"\x90"), Err(Invalid));
    }
}
