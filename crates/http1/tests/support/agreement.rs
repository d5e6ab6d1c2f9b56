//! Another parser's opinion of what was accepted: `httparse` accepts it too, and sees the same in it.

use tidegate_http1::ResponseHead;

use super::Request;

/// Of the first request in `wire`.
///
/// # Panics
/// If `httparse` refuses it, or sees something else.
pub(crate) fn of_request(request: &Request, wire: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut other = httparse::Request::new(&mut headers);
    let status = other.parse(wire);
    assert!(matches!(status, Ok(httparse::Status::Complete(_))), "{status:?}: {request:?}");
    assert_eq!((Some(request.method.as_str()), Some(request.target.as_str())), (other.method, other.path));
    assert_eq!(request.headers, other.headers.iter().map(text).collect::<Vec<_>>());
}

/// Of the response head that is all of `wire`.
///
/// # Panics
/// If `httparse` refuses it, or sees something else.
pub(crate) fn of_response(head: &ResponseHead, wire: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut other = httparse::Response::new(&mut headers);
    let status = other.parse(wire);
    assert_eq!(status, Ok(httparse::Status::Complete(wire.len())), "{head:?}");
    assert_eq!((other.code, other.version), (Some(head.status().code()), Some(u8::from(head.version() > OLD))));
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers: Vec<_> = head.headers().map(|(name, value)| (lossy(name), lossy(value))).collect();
    assert_eq!(headers, other.headers.iter().map(text).collect::<Vec<_>>());
}

fn text(header: &httparse::Header<'_>) -> (String, String) {
    (header.name.to_owned(), String::from_utf8_lossy(header.value).trim_matches([' ', '\t']).to_owned())
}

const OLD: tidegate_http1::Version = tidegate_http1::Version::Http10;

/// As many as the codec accepts.
const HEADERS_MAX: usize = 100;
