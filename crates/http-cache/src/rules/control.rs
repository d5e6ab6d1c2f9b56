//! `Directives`: `Cache-Control` of a request or a response (RFC 9111 §5.2), and its targeted form (RFC 9213).

/// The directives of a message.
///
/// A number that is not valid counts as 0, so the response is stale (RFC 9111 §4.2.1). Of several the least counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) no_store: bool,
    /// Without names of fields.
    pub(crate) no_cache: bool,
    /// Without names of fields.
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) only_if_cached: bool,
    /// In seconds, as all numbers.
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    /// `u64::MAX` for any staleness.
    pub(crate) max_stale: Option<u64>,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
    /// The names that `no-cache` and `private` list: such fields are not stored.
    pub(crate) withheld: Vec<Box<[u8]>>,
    /// There is a field.
    pub(crate) is_present: bool,
}

impl Directives {
    /// Adds the directives of a field line.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.is_present = true;
        for member in Members(line) {
            let (name, value) = match member.iter().position(|&byte| byte == b'=') {
                Some(at) => (&member[..at], Some(&member[at + 1..])),
                None => (member, None),
            };
            self.set(name, value);
        }
    }

    fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let number = || seconds(value.unwrap_or_default());
        match name.len() {
            6 if is("public") => self.public = true,
            7 if is("private") => self.private |= !self.withhold(value),
            7 if is("max-age") => least(&mut self.max_age, number()),
            8 if is("no-store") => self.no_store = true,
            8 if is("no-cache") => self.no_cache |= !self.withhold(value),
            8 if is("s-maxage") => least(&mut self.s_maxage, number()),
            9 if is("min-fresh") => self.min_fresh = Some(number()),
            9 if is("max-stale") => self.max_stale = Some(if value.is_some() { number() } else { u64::MAX }),
            14 if is("only-if-cached") => self.only_if_cached = true,
            14 if is("stale-if-error") => least(&mut self.stale_if_error, number()),
            15 if is("must-revalidate") => self.must_revalidate = true,
            15 if is("must-understand") => self.must_understand = true,
            16 if is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if is("stale-while-revalidate") => least(&mut self.stale_while_revalidate, number()),
            _ => {}
        }
    }

    /// Notes the listed names. Returns whether there are any; more than the bound count as none, so that the directive is
    /// about the whole response.
    fn withhold(&mut self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return false };
        let names = unquoted(value).split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let mut names = names.filter(|name| !name.is_empty());
        let before = self.withheld.len();
        self.withheld.extend(names.by_ref().take(WITHHELD_MAX.saturating_sub(before)).map(Box::from));
        self.withheld.len() > before && names.next().is_none()
    }

    /// The directives of a targeted field, which is a structured dictionary (RFC 9213 §2.1): `None` if it is not valid.
    pub(crate) fn targeted<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut directives = Self::default();
        for line in lines {
            for member in Members(line) {
                let (name, value) = match member.iter().position(|&byte| byte == b'=') {
                    Some(at) => (&member[..at], Some(&member[at + 1..])),
                    None => (member, None),
                };
                let is_number = NUMBERS.iter().any(|number| number.as_bytes() == name);
                let is_valid = match value {
                    _ if !is_key(name) => false,
                    Some(value) if is_number => !value.is_empty() && value.iter().all(u8::is_ascii_digit),
                    Some(value) => is_item(value),
                    None => !is_number,
                };
                if !is_valid {
                    return None;
                }
                if value != Some(b"?0") {
                    // `?1` is what a name alone means.
                    directives.set(name, value.filter(|value| *value != b"?1"));
                }
            }
            directives.is_present = true;
        }
        directives.is_present.then_some(directives)
    }
}

/// A key of a structured dictionary (RFC 9651 §3.1.2).
fn is_key(name: &[u8]) -> bool {
    let is_first = name.first().is_some_and(|first| first.is_ascii_lowercase() || *first == b'*');
    is_first && name.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'))
}

/// Whether a value begins as an item of a structured field does.
fn is_item(value: &[u8]) -> bool {
    value
        .first()
        .is_some_and(|first| first.is_ascii_alphanumeric() || matches!(first, b'"' | b'?' | b'*' | b':' | b'-'))
}

fn least(place: &mut Option<u64>, number: u64) {
    *place = Some(place.map_or(number, |other| other.min(number)));
}

/// A number of seconds, with quotes or without (RFC 9111 §5.2); 0 if it is not valid, and at most 2³¹ (§1.2.2).
fn seconds(value: &[u8]) -> u64 {
    let digits = unquoted(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let number =
        digits.iter().fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    number.min(SECONDS_MAX)
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// The members of a list whose commas may stand in quoted strings.
pub(crate) struct Members<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let (mut is_quoted, mut is_escaped) = (false, false);
            let end = self.0.iter().position(|&byte| {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' if is_quoted => is_escaped = true,
                    b'"' => is_quoted = !is_quoted,
                    b',' => return !is_quoted,
                    _ => {}
                }
                false
            });
            let (member, rest) = match end {
                Some(end) => (&self.0[..end], &self.0[end + 1..]),
                None => (self.0, &[][..]),
            };
            self.0 = rest;
            let member = member.trim_ascii();
            if !member.is_empty() {
                return Some(member);
            }
        }
    }
}

/// The largest number of seconds: 68 years.
pub(crate) const SECONDS_MAX: u64 = 1 << 31;

/// How many names a directive may list.
const WITHHELD_MAX: usize = 32;

/// The directives whose values are numbers, in a targeted field.
const NUMBERS: [&str; 4] = ["max-age", "s-maxage", "stale-if-error", "stale-while-revalidate"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let mut directives = Directives::default();
        lines.iter().for_each(|line| directives.add(line.as_bytes()));
        directives
    }

    #[test]
    fn a_number_that_is_not_valid_is_zero_and_the_least_counts() {
        for (lines, expected) in [
            (&["max-age=3600"][..], Some(3600)),
            (&["MaX-aGe=3600"], Some(3600)),
            (&["max-age=\"3600\""], Some(3600)),
            (&["max-age=003600"], Some(3600)),
            (&["foobar, max-age=3600"], Some(3600)),
            (&["max-age=1800, max-age=1"], Some(1)),
            (&["max-age=1", "max-age=1800"], Some(1)),
            (&["extension=\"max-age=3600\", max-age=1"], Some(1)),
            (&["max-age=1, extension=\"max-age=3600\""], Some(1)),
            (&["max-age =3600"], None),
            (&["max-age= 3600"], Some(0)),
            (&["max-age='3600'"], Some(0)),
            (&["max-age=3600.0"], Some(0)),
            (&["max-age=a3600"], Some(0)),
            (&["max-age=3600a"], Some(0)),
            (&["max-age=-1"], Some(0)),
            (&["max-age"], Some(0)),
            (&["max-age=2147483648"], Some(SECONDS_MAX)),
            (&["max-age=99999999999999999999999"], Some(SECONDS_MAX)),
            (&["x-max-age=3600"], None),
            (&["\"max-age=3600"], None),
        ] {
            assert_eq!(of(lines).max_age, expected, "{lines:?}");
        }
    }

    #[test]
    fn directives_with_names_withhold_fields() {
        let directives = of(&["no-cache=\"a, b\", private=\"c\""]);
        assert!(!directives.no_cache && !directives.private);
        assert_eq!(directives.withheld, [b"a", b"b", b"c"].map(|name| Box::from(&name[..])));
        assert!(
            of(&["no-cache"]).no_cache && of(&["private=\"\""]).private && of(&["no-cache=\"a\", no-cache"]).no_cache
        );
    }

    #[test]
    fn a_targeted_field_is_a_structured_dictionary() {
        for (line, expected) in [
            ("max-age=3600", Some(Some(3600))),
            ("foobar, max-age=3600", Some(Some(3600))),
            ("max-age=99999999999", Some(Some(SECONDS_MAX))),
            ("no-store", Some(None)),
            ("max-age =100", None),
            ("max-age= 100", None),
            ("MaX-aGe=3600", None),
            ("max-age=\"10000\"", None),
            ("max-age=10000, &&&&&", None),
            ("max-age", None),
        ] {
            let directives = Directives::targeted([line.as_bytes()].into_iter());
            assert_eq!(directives.map(|directives| directives.max_age), expected, "{line}");
        }
        assert_eq!(Directives::targeted(std::iter::empty()), None);
    }
}
