//! The expected result of a scanner, byte by byte by the RFCs.

pub(crate) mod opinion;

use tidegate_scan::{Field, FieldError, Level, Scanner, Stop, Task};

/// A scan of fields, with all that was noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen<'b> {
    pub(crate) fields: Vec<Field<'b>>,
    pub(crate) end: Result<usize, Stop<()>>,
}

/// Where lines begin, and their names and values end, and how that ends.
type Places = (Vec<(usize, usize, usize)>, Result<usize, Stop<()>>);

/// The bytes from one position on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From<'b>(pub(crate) &'b [u8], pub(crate) usize);

/// The fields of a head.
#[derive(Debug)]
struct Fields<'b, 'f>(From<'b>, &'f mut Vec<Field<'b>>);

impl Task for Fields<'_, '_> {
    type Output = Result<usize, Stop<()>>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        let Self(From(bytes, at), fields) = self;
        scanner.fields(bytes, at, |field| {
            fields.push(field);
            Ok(())
        })
    }
}

/// The ends of all that can begin somewhere: token, value, path and target with and without escaped octets, and host.
#[derive(Debug)]
struct Ends<'b>(From<'b>);

impl Task for Ends<'_> {
    type Output = [usize; 7];

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> [usize; 7] {
        let From(bytes, at) = self.0;
        [
            scanner.token_end(bytes, at),
            scanner.value_end(bytes, at),
            scanner.path_end(bytes, at),
            scanner.target_end(bytes, at),
            scanner.plain_path_end(bytes, at),
            scanner.plain_target_end(bytes, at),
            scanner.host_end(bytes, at),
        ]
    }
}

/// The result of `level`.
pub(crate) fn seen(level: Level, from: From<'_>) -> Seen<'_> {
    let mut fields = Vec::new();
    let end = level.run(Fields(from, &mut fields));
    Seen { fields, end }
}

/// The result of all levels, which must agree.
pub(crate) fn agreed(from: From<'_>) -> Seen<'_> {
    let [first, others @ ..] = &Level::all()[..] else { panic!("there is always one") };
    let found = seen(*first, from);
    let is_seamless = found.fields.windows(2).all(|two| two[0].end() == two[1].start());
    assert!(is_seamless, "lines that do not follow each other: {found:?}");
    for other in others {
        assert_eq!(found, seen(*other, from), "{} and {} about {from:?}", first.name(), other.name());
    }
    found
}

/// Asserts that all levels find the parts that the rules define.
pub(crate) fn check(From(bytes, at): From<'_>) {
    // In an allocation of just this size, in which a sanitizer reports a read beyond its end.
    let bytes: Box<[u8]> = bytes.into();
    let from = From(&bytes, at);
    let found = agreed(from);
    let places = found.fields.iter().map(|field| (field.start(), field.name_end(), field.value_end())).collect();
    assert_eq!((places, found.end), expected(from), "{from:?}");
    let ends = expected_ends(from);
    for level in Level::all() {
        assert_eq!(level.run(Ends(from)), ends, "{} about {from:?}", level.name());
    }
}

/// The fields by the rules (RFC 9112 §5, RFC 9110 §5.5), each byte for itself.
fn expected(From(bytes, at): From<'_>) -> Places {
    let (mut fields, mut start) = (Vec::new(), at);
    let end = loop {
        let line = bytes.get(start..).unwrap_or_default();
        let name = line.iter().take_while(|&&byte| is_token(byte)).count();
        match (name, line.get(name)) {
            (_, None) => break Err(Stop::Partial),
            (0, Some(b'\r')) => match line.get(1) {
                None => break Err(Stop::Partial),
                Some(b'\n') => break Ok(start + 2),
                Some(_) => break Err(Stop::Flawed(FieldError::NoColon)),
            },
            (0, Some(b' ' | b'\t')) => break Err(Stop::Flawed(FieldError::FoldedLine)),
            (_, Some(b'\r')) => break Err(Stop::Flawed(FieldError::NoColon)),
            (_, Some(b'\n')) => break Err(Stop::Flawed(FieldError::BareLf)),
            (1.., Some(b':')) => {}
            _ => break Err(Stop::Flawed(FieldError::Name)),
        }
        let value = line[name + 1..].iter().take_while(|&&byte| is_in_value(byte)).count();
        let length = name + 1 + value;
        match (line.get(length), line.get(length + 1)) {
            (None, _) | (Some(b'\r'), None) => break Err(Stop::Partial),
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), _) => break Err(Stop::Flawed(FieldError::BareCr)),
            (Some(b'\n'), _) => break Err(Stop::Flawed(FieldError::BareLf)),
            _ => break Err(Stop::Flawed(FieldError::Control)),
        }
        fields.push((start, start + name, start + length));
        start += length + 2;
    };
    (fields, end)
}

fn expected_ends(From(bytes, at): From<'_>) -> [usize; 7] {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = |belongs: &dyn Fn(u8) -> bool| at + rest.iter().take_while(|&&byte| belongs(byte)).count();
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%".contains(&byte);
    let is_path = |byte| is_target(byte) && byte != b'?';
    let path_end = at + target_length(rest, |byte| byte == b'?', |octet| octet == 0);
    let target_end = at + target_length(rest, |_| false, |_| false);
    let (plain_path_end, plain_target_end) = (end(&is_path), end(&is_target));
    [end(&is_token), end(&is_in_value), path_end, target_end, plain_path_end, plain_target_end, end(&is_host)]
}

/// How many bytes of a target there are before the first one that `ends` names, or an octet that `refuses` names is escaped.
fn target_length(bytes: &[u8], ends: impl Fn(u8) -> bool, refuses: impl Fn(u8) -> bool) -> usize {
    let mut length = 0;
    loop {
        length += match &bytes[length..] {
            [b'%', digits @ ..] => match digits.get(..2).and_then(octet) {
                Some(octet) if !refuses(octet) => 3,
                _ => return length,
            },
            [byte, ..] if is_target(*byte) && !ends(*byte) => 1,
            _ => return length,
        };
    }
}

/// The octet that two hexadecimal digits are.
fn octet(digits: &[u8]) -> Option<u8> {
    let is_number = digits.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|digits| u8::from_str_radix(digits, 16).ok())
}

/// The characters of RFC 3986 §2, but for `#` and `%`.
fn is_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=".contains(&byte)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_in_value(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=0x7e | 0x80..)
}
