//! Splits a line into words as a POSIX shell does: single quotes, double quotes, `$'…'` with its escapes, backslashes.
//! Variables, substitutions and operators are not expanded.

use std::iter::Peekable;
use std::str::Chars;

/// The words of a line.
///
/// # Errors
/// If a quote does not end.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, line.chars().peekable());
    while let Some(char) = chars.next() {
        match char {
            '\'' => word.get_or_insert_default().push_str(&single(&mut chars)?),
            '"' => word.get_or_insert_default().push_str(&double(&mut chars)?),
            '$' if chars.peek() == Some(&'\'') => {
                chars.next();
                word.get_or_insert_default().push_str(&escaped(&mut chars)?);
            }
            '\\' => match chars.next() {
                // The line goes on.
                Some('\n') => {}
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("it ends with a backslash".into()),
            },
            _ if char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('\'') => return Ok(text),
            Some(char) => text.push(char),
            None => return Err(open('\'')),
        }
    }
}

fn double(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('"') => return Ok(text),
            Some('\\') => match chars.next() {
                Some('\n') => {}
                Some(char @ ('"' | '\\' | '$' | '`')) => text.push(char),
                Some(char) => text.extend(['\\', char]),
                None => return Err(open('"')),
            },
            Some(char) => text.push(char),
            None => return Err(open('"')),
        }
    }
}

/// The rest of `$'…'`, as browsers write it.
fn escaped(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('\'') => return Ok(text),
            Some('\\') => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('x') => text.push(by_number(chars, 2)),
                Some('u') => text.push(by_number(chars, 4)),
                Some('U') => text.push(by_number(chars, 8)),
                Some(char) => text.push(char),
                None => return Err(open('\'')),
            },
            Some(char) => text.push(char),
            None => return Err(open('\'')),
        }
    }
}

/// The character of up to so many hexadecimal digits.
fn by_number(chars: &mut Peekable<Chars<'_>>, digits: usize) -> char {
    let mut number = 0;
    for _ in 0..digits {
        let Some(digit) = chars.peek().and_then(|char| char.to_digit(16)) else { break };
        number = number * 16 + digit;
        chars.next();
    }
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn open(quote: char) -> String {
    format!("a quote ({quote}) does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (line, words) in [
            ("", &[][..]),
            ("  a  b\tc ", &["a", "b", "c"]),
            ("a 'b c' \"d 'e'\" f''g", &["a", "b c", "d 'e'", "fg"]),
            ("a '' \"\"", &["a", "", ""]),
            ("a\\ b \\'c", &["a b", "'c"]),
            (r#""a\"b\\c\d\$""#, &["a\"b\\c\\d$"]),
            ("curl \\\n  -X GET", &["curl", "-X", "GET"]),
            (r"$'it\'s\n\x41\u00e9\\'", &["it's\nAé\\"]),
            ("$HOME", &["$HOME"]),
        ] {
            assert_eq!(
                split(line).as_deref(),
                Ok(words.iter().map(ToString::to_string).collect::<Vec<_>>()).as_deref(),
                "{line}"
            );
        }
    }

    #[test]
    fn a_quote_that_does_not_end_is_an_error() {
        for line in ["'a", "a \"b", "$'a", "\"a\\", "$'a\\", "a'b'c'"] {
            assert!(split(line).expect_err(line).contains("does not end"), "{line}");
        }
        assert!(split("a\\").expect_err("a backslash").contains("backslash"));
    }
}
