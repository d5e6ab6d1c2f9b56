//! Another parser as a second opinion: `httparse` accepts every accepted head, with the same meaning.

use super::Request;

/// Checks the first request in `wire`, unless its target is not UTF-8, which `httparse` refuses.
///
/// # Panics
/// If `httparse` refuses it, or sees something else.
pub(crate) fn of_request(request: &Request, wire: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut other = httparse::Request::new(&mut headers);
    let wire = with_known_version(wire);
    let line = wire.split(|&byte| byte == b'\n').find(|line| !matches!(*line, [] | [b'\r'])).unwrap_or_default();
    if std::str::from_utf8(line).is_err() {
        return;
    }
    let status = other.parse(&wire);
    assert!(matches!(status, Ok(httparse::Status::Complete(_))), "{status:?}: {request:?}");
    assert_eq!((Some(request.method.as_str()), Some(request.target.as_str())), (other.method, other.path));
    assert_eq!(request.headers, other.headers.iter().map(text).collect::<Vec<_>>());
}

/// The same bytes, with HTTP/1.1 on their first line in place of a higher minor version, which `httparse` refuses.
pub(crate) fn with_known_version(wire: &[u8]) -> Vec<u8> {
    let mut wire = wire.to_vec();
    let start = wire.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let length = wire[start..].iter().position(|byte| *byte == b'\r').unwrap_or(0);
    // A status line begins with its version, and a request line ends with it.
    let version_end = if wire.starts_with(b"HTTP/1.") { b"HTTP/1.x".len() } else { start + length };
    if let [.., b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'2'..=b'9'] = &mut wire[..version_end] {
        *minor = b'1';
    }
    wire
}

pub(crate) fn text(header: &httparse::Header<'_>) -> (String, String) {
    (header.name.to_owned(), String::from_utf8_lossy(header.value).trim_matches([' ', '\t']).to_owned())
}

/// As many as the codec accepts.
pub(crate) const HEADERS_MAX: usize = 100;
