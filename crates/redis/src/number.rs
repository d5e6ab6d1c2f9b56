//! Numbers on the wire: lengths, integers, doubles.
//!
//! A length has one spelling: no sign, no leading zeros. An integer of a reply may have a sign.

use crate::error::RedisError;

/// A length, up to 2^63 - 1.
#[inline]
pub(crate) fn length(digits: &[u8]) -> Result<u64, RedisError> {
    match digits {
        [digit @ b'0'..=b'9'] => Ok(u64::from(digit - b'0')),
        [b'1'..=b'9', ..] if digits.len() <= LENGTH_DIGITS_MAX => {
            let mut number: u64 = 0;
            for digit in digits {
                let digit = digit.wrapping_sub(b'0');
                if digit > 9 {
                    return Err(RedisError::Length);
                }
                number = number * 10 + u64::from(digit);
            }
            if number <= i64::MAX as u64 { Ok(number) } else { Err(RedisError::Length) }
        }
        _ => Err(RedisError::Length),
    }
}

/// An integer of 64 bits, with an optional sign.
pub(crate) fn integer(text: &[u8]) -> Result<i64, RedisError> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(RedisError::Scalar);
    }
    digits
        .iter()
        .try_fold(0_i64, |number, digit| {
            let digit = i64::from(digit - b'0');
            let number = number.checked_mul(10)?;
            if is_negative { number.checked_sub(digit) } else { number.checked_add(digit) }
        })
        .ok_or(RedisError::Scalar)
}

/// An integer in its one spelling: without a plus and leading zeros.
pub(crate) fn plain_integer(text: &[u8]) -> Option<i64> {
    let number = integer(text).ok()?;
    (itoa::Buffer::new().format(number).as_bytes() == text).then_some(number)
}

/// Whether the text is a whole number of any length.
pub(crate) fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A double, with `inf`, `-inf` and `nan`.
pub(crate) fn double(text: &[u8]) -> Result<f64, RedisError> {
    match text {
        b"inf" | b"+inf" => return Ok(f64::INFINITY),
        b"-inf" => return Ok(f64::NEG_INFINITY),
        b"nan" | b"-nan" => return Ok(f64::NAN),
        _ => {}
    }
    let is_decimal = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    let text = std::str::from_utf8(text).ok().filter(|_| is_decimal).ok_or(RedisError::Scalar)?;
    text.parse().map_err(|_| RedisError::Scalar)
}

/// A double as Redis writes it. [`double`] reads the same number.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
    } else if number != 0.0 && !(1e-5..1e17).contains(&number.abs()) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

/// The digits of 2^63 - 1. A number of so many digits fits into 64 bits without a sign.
const LENGTH_DIGITS_MAX: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_one_spelling() {
        assert_eq!(length(b"0"), Ok(0));
        assert_eq!(length(b"9223372036854775807"), Ok(i64::MAX as u64));
        for wrong in ["", "-0", "-1", "+1", "01", "00", " 1", "1 ", "1a", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(length(wrong.as_bytes()), Err(RedisError::Length), "{wrong}");
        }
    }

    #[test]
    fn integers_have_64_bits() {
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!((integer(b"+7"), integer(b"-0"), integer(b"007")), (Ok(7), Ok(0), Ok(7)));
        for wrong in ["", "-", "+", "1.0", "9223372036854775808", "-9223372036854775809", "--1", "+-1"] {
            assert_eq!(integer(wrong.as_bytes()), Err(RedisError::Scalar), "{wrong}");
        }
    }

    #[test]
    fn doubles_are_read_as_they_are_written() {
        for number in [0.0, -0.0, 1.5, 1e300, -2.5e-300, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY]
        {
            assert_eq!(double(double_text(number).as_bytes()).map(f64::to_bits), Ok(number.to_bits()), "{number}");
        }
        assert!(double(double_text(f64::NAN).as_bytes()).is_ok_and(f64::is_nan));
        for wrong in ["", "infinity", "1,5", "0x10", "NaN", "e"] {
            assert_eq!(double(wrong.as_bytes()), Err(RedisError::Scalar), "{wrong}");
        }
    }
}
