//! Inline commands: a line of words, for people at a terminal. The rules of quotes are those of Redis.

use crate::error::RedisError;

/// The words of a line as bulk strings, and their number.
///
/// A word in double quotes has escapes: `\n`, `\r`, `\t`, `\b`, `\a`, `\xFF`, and any other byte for itself. A word in
/// single quotes has `\'` only. A closing quote is followed by a space or the end.
pub(crate) fn words(line: &[u8]) -> Result<(Vec<u8>, u32), RedisError> {
    let (mut wire, mut count, mut word) = (Vec::new(), 0, Vec::new());
    // Redis does not look behind a zero byte.
    let mut rest = line.split(|byte| *byte == 0).next().unwrap_or_default();
    loop {
        while let [byte, after @ ..] = rest
            && is_space(*byte)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Ok((wire, count));
        }
        word.clear();
        rest = one(rest, &mut word)?;
        wire.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        wire.extend_from_slice(&word);
        wire.extend_from_slice(b"\r\n");
        count += 1;
    }
}

/// Appends the first word, and returns the bytes behind it.
fn one<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RedisError> {
    loop {
        match rest {
            [] => return Ok(rest),
            [byte, ..] if is_space(*byte) => return Ok(&rest[1..]),
            [quote @ (b'"' | b'\''), after @ ..] => {
                let after = quoted(*quote, after, word)?;
                if after.first().is_some_and(|&byte| !is_space(byte)) {
                    return Err(RedisError::Quotes);
                }
                return Ok(after);
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Appends the bytes up to the closing quote, and returns those behind it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RedisError> {
    loop {
        let (byte, after) = match rest {
            [b'\\', b'\'', after @ ..] if quote == b'\'' => (b'\'', after),
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) * 16 + hex(*low), after)
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => (unescaped(*escaped), after),
            [byte, after @ ..] if *byte == quote => return Ok(after),
            [byte, after @ ..] => (*byte, after),
            [] => return Err(RedisError::Quotes),
        };
        word.push(byte);
        rest = after;
    }
}

const fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Result<(String, u32), RedisError> {
        words(line.as_bytes()).map(|(wire, count)| (wire.escape_ascii().to_string().replace("\\r\\n", " "), count))
    }

    #[test]
    fn words_and_quotes_are_those_of_redis() {
        assert_eq!(split("  GET  a "), Ok(("$3 GET $1 a ".into(), 2)));
        assert_eq!(split(r#"SET "a b" 'c\'d'"#), Ok((r"$3 SET $3 a b $3 c\'d ".into(), 3)));
        assert_eq!(split(r#"ECHO "\x41\t\q""#), Ok((r"$4 ECHO $3 A\tq ".into(), 2)));
        assert_eq!(split(r#"ECHO """#), Ok(("$4 ECHO $0  ".into(), 2)));
        assert_eq!(split("\x0B\x0C PING\x0B"), Ok(("$4 PING ".into(), 1)));
        assert_eq!(split("PING\0 a \""), Ok(("$4 PING ".into(), 1)));
        assert_eq!(split("GET \"a\0\""), Err(RedisError::Quotes));
        for wrong in [r#"GET "a"#, "GET 'a", r#"GET "a"b"#, "\"", r#"GET "a\""#] {
            assert_eq!(split(wrong), Err(RedisError::Quotes), "{wrong}");
        }
    }
}
