//! `CertificateFields`: the fields of an X.509 certificate on which its renewal depends (RFC 5280 §4.1), read from DER.
//!
//! The checks of the certificate are those of `webpki`. A parser of all of X.509 takes fifteen crates, and this is what
//! remains: the dates, the serial number, and the identifier of the authority's key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::renewal::Lifetime;

/// Borrows from the certificate.
pub(crate) struct CertificateFields<'a> {
    pub(crate) lifetime: Lifetime,
    /// The bytes of the integer, as they are.
    pub(crate) serial: &'a [u8],
    /// The identifier of the key that signed the certificate (RFC 5280 §4.2.1.1).
    pub(crate) authority_key: Option<&'a [u8]>,
}

impl<'a> CertificateFields<'a> {
    /// Returns `None` if this is no certificate of version 3 in DER.
    pub(crate) fn parse(certificate: &'a [u8]) -> Option<Self> {
        let mut outer = Der(certificate);
        let mut certificate = Der(outer.take(SEQUENCE)?);
        let mut fields = Der(certificate.take(SEQUENCE)?);
        fields.take(context(0))?;
        let serial = fields.take(INTEGER)?;
        // The algorithm of the signature, and the issuer.
        fields.take(SEQUENCE)?;
        fields.take(SEQUENCE)?;
        let mut validity = Der(fields.take(SEQUENCE)?);
        let lifetime = Lifetime { not_before: validity.time()?, not_after: validity.time()? };
        // The subject, and its key. Two identifiers may follow, which nothing uses.
        fields.take(SEQUENCE)?;
        fields.take(SEQUENCE)?;
        while !fields.0.is_empty() {
            let (tag, content) = fields.next()?;
            if tag == context(3) {
                return Some(Self { lifetime, serial, authority_key: authority_key(Der(content))? });
            }
        }
        Some(Self { lifetime, serial, authority_key: None })
    }
}

/// The identifier in the extension of that name. The outer `None` is a malformed extension.
fn authority_key(mut extensions: Der<'_>) -> Option<Option<&[u8]>> {
    let mut extensions = Der(extensions.take(SEQUENCE)?);
    while !extensions.0.is_empty() {
        let mut extension = Der(extensions.take(SEQUENCE)?);
        if extension.take(OBJECT_IDENTIFIER)? != AUTHORITY_KEY_IDENTIFIER {
            continue;
        }
        let (mut tag, mut content) = extension.next()?;
        if tag == BOOLEAN {
            (tag, content) = extension.next()?;
        }
        if tag != OCTET_STRING {
            return None;
        }
        let mut fields = Der(Der(content).take(SEQUENCE)?);
        return match fields.0.is_empty() {
            true => Some(None),
            // The first of three optional fields.
            false => fields.next().map(|(tag, content)| (tag == KEY_IDENTIFIER).then_some(content)),
        };
    }
    Some(None)
}

/// Elements one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The length follows, in one to three bytes: a certificate is shorter than 16 MiB.
            0x81..=0x83 => {
                let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (length.iter().fold(0, |length, &byte| (length << 8) | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, if it has this tag.
    fn take(&mut self, expected: u8) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == expected).map(|(_, content)| content)
    }

    /// RFC 5280 §4.1.2.5: `YYMMDDHHMMSSZ`, or with four digits of the year.
    fn time(&mut self) -> Option<SystemTime> {
        let (tag, text) = self.next()?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = digits(text, 2)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            GENERALIZED_TIME => digits(text, 4)?,
            _ => return None,
        };
        let (month, rest) = digits(rest, 2)?;
        let (day, rest) = digits(rest, 2)?;
        let (hour, rest) = digits(rest, 2)?;
        let (minute, rest) = digits(rest, 2)?;
        let (second, rest) = digits(rest, 2)?;
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        if rest != b"Z" || !is_date || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        let distance = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }
}

/// The number in so many digits, and the rest.
fn digits(text: &[u8], count: usize) -> Option<(i64, &[u8])> {
    let (number, rest) = text.split_at_checked(count)?;
    let is_number = number.iter().all(u8::is_ascii_digit);
    is_number.then(|| (number.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')), rest))
}

/// In the Gregorian calendar. Years begin in March here, so that the leap day is their last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - DAYS_FROM_MARCH_0_TO_1970
}

const DAYS_FROM_MARCH_0_TO_1970: i64 = 719_468;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// Context-specific and primitive, 0.
const KEY_IDENTIFIER: u8 = 0x80;

/// Context-specific and constructed.
const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// 2.5.29.35.
const AUTHORITY_KEY_IDENTIFIER: [u8; 3] = [0x55, 0x1d, 0x23];

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, Issuer, KeyPair, SerialNumber, date_time_ymd};
    use x509_parser::extensions::ParsedExtension;
    use x509_parser::parse_x509_certificate;

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        params.signed_by(&key, &issuer).unwrap().der().to_vec()
    }

    /// Compares the fields with those of a complete parser.
    fn assert_read(certificate: &[u8]) {
        let fields = CertificateFields::parse(certificate).unwrap();
        let (_, expected) = parse_x509_certificate(certificate).unwrap();
        let seconds = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_secs() as i64,
            Err(before) => -(before.duration().as_secs() as i64),
        };
        assert_eq!(seconds(fields.lifetime.not_before), expected.validity().not_before.timestamp());
        assert_eq!(seconds(fields.lifetime.not_after), expected.validity().not_after.timestamp());
        assert_eq!(fields.serial, expected.tbs_certificate.raw_serial());
        let key = expected.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(found) => found.key_identifier.as_ref().map(|key| key.0),
            _ => None,
        });
        assert_eq!(fields.authority_key, key);
    }

    #[test]
    fn fields_are_those_of_another_parser() {
        for has_key_identifier in [false, true] {
            assert_read(&certificate(|params| params.use_authority_key_identifier_extension = has_key_identifier));
        }
        assert_read(&certificate(|params| params.serial_number = Some(SerialNumber::from_slice(&[0xff; 20]))));
        // The year decides which form a date has; leap days, and the ends of months and years.
        for (year, month, day) in [
            (1950, 1, 1),
            (1969, 12, 31),
            (1970, 1, 1),
            (1999, 12, 31),
            (2000, 2, 29),
            (2000, 3, 1),
            (2024, 2, 29),
            (2049, 12, 31),
            (2050, 1, 1),
            (2100, 2, 28),
            (2100, 3, 1),
            (9999, 12, 31),
        ] {
            assert_read(&certificate(|params| {
                params.not_before = date_time_ymd(year, month, day);
                params.not_after = date_time_ymd(year, month, day);
            }));
        }
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_is_an_answer_and_no_panic() {
        let whole = certificate(|params| params.use_authority_key_identifier_extension = true);
        assert!((0..whole.len()).all(|length| CertificateFields::parse(&whole[..length]).is_none()));
        for at in 0..whole.len() {
            for changed in [0, 0x7f, 0x80, 0x84, 0xff, whole[at] ^ 1] {
                let mut bytes = whole.clone();
                bytes[at] = changed;
                let _ = CertificateFields::parse(&bytes);
            }
        }
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        for (tag, text) in [
            (UTC_TIME, "250230000000"),
            (UTC_TIME, "251301000000Z"),
            (UTC_TIME, "250100000000Z"),
            (UTC_TIME, "250101240000Z"),
            (UTC_TIME, "250101006000Z"),
            (UTC_TIME, "25010100000Z"),
            (UTC_TIME, "2501010000+0Z"),
            (UTC_TIME, "250101000000Z0"),
            (GENERALIZED_TIME, "250101000000Z"),
            (OCTET_STRING, "250101000000Z"),
        ] {
            let bytes = [&[tag, text.len() as u8], text.as_bytes()].concat();
            assert!(Der(&bytes).time().is_none(), "{text}");
        }
    }
}
