//! `CertificateNames`: the subject of a certificate and its alternative names, as texts.
//!
//! Certificates of clients come from peers. Their authority chooses the names, so no character of a name is taken to be
//! harmless: those that separate parts of the texts are escaped.

use std::fmt::Write as _;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::certificates::{certificates, read};
use crate::error::ConfigError;

/// The names in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateNames {
    subject: String,
    dns: Vec<String>,
    uris: Vec<String>,
}

impl CertificateNames {
    /// Reads the names of a certificate; `None` for one that is malformed.
    ///
    /// ```
    /// use tidegate_tls::CertificateNames;
    ///
    /// let made = rcgen::generate_simple_self_signed(["sea.example".to_owned()])?;
    /// let names = CertificateNames::of(made.cert.der()).expect("a certificate");
    /// assert_eq!(names.dns(), ["sea.example"]);
    /// assert_eq!(names.alternatives(), "DNS:sea.example");
    /// # Ok::<(), rcgen::Error>(())
    /// ```
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let dns = certificate.valid_dns_names().map(str::to_owned).collect();
        let uris = certificate.valid_uri_names().map(str::to_owned).collect();
        Some(Self { subject: subject_text(certificate.subject()), dns, uris })
    }

    /// The same for the first certificate of a PEM file.
    ///
    /// # Errors
    /// If the file cannot be read, or has no certificate.
    pub fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let chain = certificates(path, &read(path)?)?;
        let names = chain.first().and_then(Self::of);
        names.ok_or_else(|| ConfigError::Certificate(path.to_owned()))
    }

    /// The subject as RFC 4514 writes it, the most specific part first: `CN=ebb,O=Harbour`. Empty if there is none.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The names of hosts; `*.example.org` for each label below `example.org`.
    #[must_use]
    pub fn dns(&self) -> &[String] {
        &self.dns
    }

    /// The alternative names that are hosts and URIs: `DNS:sea.example,URI:spiffe://sea.example/ebb`. A comma or a backslash
    /// within a name has a backslash before it.
    #[must_use]
    pub fn alternatives(&self) -> String {
        let dns = self.dns.iter().map(|name| ("DNS:", name));
        let mut text = String::new();
        for (kind, name) in dns.chain(self.uris.iter().map(|name| ("URI:", name))) {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(kind);
            for character in name.chars() {
                if matches!(character, ',' | '\\') {
                    text.push('\\');
                }
                text.push(character);
            }
        }
        text
    }

    /// Whether a client that requests this host accepts the certificate, as far as its names go (RFC 6125 §6.4). Case does
    /// not matter.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let is_equal = |name: &String| name.eq_ignore_ascii_case(host);
        let is_below = |name: &String| {
            let parent = host.split_once('.').map(|(_, parent)| parent);
            name.strip_prefix("*.").zip(parent).is_some_and(|(domain, parent)| domain.eq_ignore_ascii_case(parent))
        };
        self.dns.iter().any(|name| is_equal(name) || is_below(name))
    }
}

/// The text of a name, from the DER of its parts (X.501; RFC 5280 §4.1.2.4), the last part first (RFC 4514 §2.1). The text
/// ends where the DER is malformed.
fn subject_text(der: &[u8]) -> String {
    let mut parts = Vec::new();
    let mut rest = der;
    while let Some((SET, set, after)) = element(rest) {
        rest = after;
        let (mut attributes, mut text) = (set, String::new());
        while let Some((SEQUENCE, attribute, after)) = element(attributes) {
            attributes = after;
            let Some((OBJECT_IDENTIFIER, kind, value)) = element(attribute) else { break };
            let Some((tag, value, _)) = element(value) else { break };
            if !text.is_empty() {
                text.push('+');
            }
            push_kind(&mut text, kind);
            text.push('=');
            push_escaped(&mut text, &value_text(tag, value));
        }
        parts.push(text);
    }
    parts.reverse();
    parts.join(",")
}

/// The tag and the content of the first element, and the bytes behind it (X.690 §8.1).
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        // No part of a name is longer.
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

/// A value as text. A string of two bytes a character is a BMPString; all others are taken as UTF-8.
fn value_text(tag: u8, value: &[u8]) -> String {
    if tag == BMP_STRING {
        let units: Vec<u16> = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value).into_owned()
}

/// Adds the short name of an attribute (RFC 4514 §3), or its identifier in numbers.
fn push_kind(text: &mut String, identifier: &[u8]) {
    if let Some((_, name)) = KINDS.iter().find(|(known, _)| *known == identifier) {
        return text.push_str(name);
    }
    let (mut number, mut is_first) = (0u64, true);
    for byte in identifier {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if is_first {
            let root = (number / 40).min(2);
            let _ = write!(text, "{root}.{}", number - 40 * root);
        } else {
            let _ = write!(text, ".{number}");
        }
        (number, is_first) = (0, false);
    }
}

/// Adds a value in which no character is a separator (RFC 4514 §2.4).
fn push_escaped(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        let is_edge = (at == 0 && matches!(character, ' ' | '#')) || (at == last && character == ' ');
        if is_edge || matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=') {
            text.push('\\');
        }
        if character == '\0' {
            text.push_str("\\00");
        } else {
            text.push(character);
        }
    }
}

const SET: u8 = 0x31;
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;

/// The attributes that have short names.
const KINDS: [(&[u8], &str); 10] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn names(subject: &[(DnType, &str)], alternatives: Vec<SanType>) -> CertificateNames {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = alternatives;
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        CertificateNames::of(made.der()).unwrap()
    }

    #[test]
    fn a_subject_is_written_from_its_most_specific_part() {
        let subject =
            [(DnType::CountryName, "SE"), (DnType::OrganizationName, "Sea, Ltd"), (DnType::CommonName, " ebb+=#")];
        let own = [(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a@b")];
        assert_eq!(names(&subject, Vec::new()).subject(), "CN=\\ ebb\\+\\=#,O=Sea\\, Ltd,C=SE");
        assert_eq!(names(&own, Vec::new()).subject(), "1.2.840.113549.1.9.1=a@b");
        assert_eq!(names(&[], Vec::new()).subject(), "");
    }

    #[test]
    fn alternative_names_are_hosts_and_uris() {
        let dns = |name: &str| SanType::DnsName(name.to_owned().try_into().unwrap());
        let uri = SanType::URI("spiffe://sea/a,b".to_owned().try_into().unwrap());
        let names = names(&[], vec![dns("Sea.example"), dns("*.harbour.example"), uri]);
        assert_eq!(names.alternatives(), "DNS:Sea.example,DNS:*.harbour.example,URI:spiffe://sea/a\\,b");
        for (host, expected) in [
            ("sea.EXAMPLE", true),
            ("a.harbour.example", true),
            ("harbour.example", false),
            ("a.b.harbour.example", false),
            ("example", false),
        ] {
            assert_eq!(names.covers(host), expected, "{host}");
        }
    }

    #[test]
    fn malformed_names_end_the_text_and_nothing_else() {
        let whole = [0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 3, 0x0c, 2, b'a', b'b'];
        assert_eq!(subject_text(&whole), "CN=ab");
        for end in 0..whole.len() {
            let _ = subject_text(&whole[..end]);
        }
        assert_eq!(subject_text(&[0x31, 0x84, 0xff, 0xff, 0xff, 0xff]), "");
        assert_eq!(subject_text(&[0x31, 0x82, 0xff, 0xff, 0]), "");
    }
}
