//! Compares a scanner with `httparse`, which is more lenient; the differences are listed here.

use tidegate_scan::{FieldError, Level, Scanner, Stop, Task};

use super::{From, Seen, agreed};

/// Asserts that `httparse` finds the same fields from `at` on. The only difference: it accepts LF for CR LF.
pub(crate) fn compare_fields(found: &Seen<'_>, From(bytes, at): From<'_>) {
    let block = bytes.get(at..).unwrap_or_default();
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let other = httparse::parse_headers(block, &mut headers);
    if matches!(other, Err(httparse::Error::TooManyHeaders)) {
        return;
    }
    match (found.end, other) {
        (Ok(end), Ok(httparse::Status::Complete((length, headers)))) => {
            assert_eq!(end, at + length, "the end of {block:?}");
            assert_eq!(found.fields.len(), headers.len(), "the fields of {block:?}");
            for (field, header) in found.fields.iter().zip(headers) {
                let value = trimmed(field.value());
                assert_eq!((field.name(), value), (header.name.as_bytes(), header.value), "{block:?}");
            }
        }
        (Err(Stop::Partial), Ok(httparse::Status::Partial))
        | (Err(Stop::Flawed(FieldError::BareLf)), _)
        | (Err(Stop::Flawed(_)), Err(_)) => {}
        (found, other) => panic!("{found:?}, but httparse {other:?}: {block:?}"),
    }
}

/// A request's method, target, and where its fields begin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    end: usize,
}

#[derive(Debug)]
struct Line<'b>(&'b [u8]);

impl<'b> Task for Line<'b> {
    type Output = Option<RequestLine<'b>>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        let bytes = self.0;
        let method_end = scanner.token_end(bytes, 0);
        let target_start = method_end + 1;
        let target_end = scanner.target_end(bytes, target_start);
        let is_one = method_end > 0 && bytes.get(method_end) == Some(&b' ') && target_end > target_start;
        let version = bytes.get(target_end..)?.first_chunk::<11>()?;
        let is_one = is_one && (version == b" HTTP/1.1\r\n" || version == b" HTTP/1.0\r\n");
        let (method, target) = (bytes.get(..method_end)?, bytes.get(target_start..target_end)?);
        is_one.then_some(RequestLine { method, target, end: target_end + version.len() })
    }
}

/// Every request that the scanner accepts, `httparse` accepts with the same parts. The reverse holds unless the request
/// begins with empty lines, a line of it ends with LF alone, or its target has `%` or a character that no URI has.
pub(crate) fn compare_request(bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut other = httparse::Request::new(&mut headers);
    let status = other.parse(bytes);
    let lines: Vec<_> = Level::all().iter().map(|level| level.run(Line(bytes))).collect();
    assert!(lines.windows(2).all(|two| two[0] == two[1]), "{lines:?}: {bytes:?}");
    let line = lines[0].as_ref();
    let found = line.map(|line| agreed(From(bytes, line.end)));
    match (line, found, status) {
        (Some(line), Some(Seen { fields, end: Ok(end) }), status) => {
            if status == Err(httparse::Error::TooManyHeaders) {
                return;
            }
            assert_eq!(status, Ok(httparse::Status::Complete(end)), "{bytes:?}");
            let words = (other.method.map(str::as_bytes), other.path.map(str::as_bytes));
            assert_eq!((Some(line.method), Some(line.target)), words, "{bytes:?}");
            let found = fields.iter().map(|field| (field.name(), trimmed(field.value())));
            let there = other.headers.iter().map(|header| (header.name.as_bytes(), header.value));
            assert!(found.eq(there), "{fields:?}, but httparse {other:?}: {bytes:?}");
        }
        (_, _, Ok(httparse::Status::Complete(end))) => {
            let head = &bytes[..end];
            let begins_empty = matches!(head[0], b'\r' | b'\n');
            let has_bare_lf = head.starts_with(b"\n") || head.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r');
            let target = other.path.unwrap_or_default();
            let is_other_target =
                target.contains(['"', '#', '%', '<', '>', '\\', '^', '`', '{', '|', '}']) || !target.is_ascii();
            assert!(begins_empty || has_bare_lf || is_other_target, "{line:?}, but httparse {other:?}: {bytes:?}");
        }
        _ => {}
    }
}

fn trimmed(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

const HEADERS_MAX: usize = 64;
