//! One cookie of a request, found without parsing the others.

use tidegate_http1::RequestHead;

use crate::request::Request;

/// The value of the first cookie of this name (RFC 6265 §5.4), without quotes around it. Case matters.
#[must_use]
pub fn of<'a>(request: &'a Request, name: &str) -> Option<&'a [u8]> {
    of_head(request.head(), name)
}

/// The values of all cookies of this name, as [`of`] has the first one.
pub fn all_of<'a>(request: &'a Request, name: &str) -> impl Iterator<Item = &'a [u8]> {
    all_of_head(request.head(), name)
}

pub(crate) fn of_head<'a>(head: &'a RequestHead, name: &str) -> Option<&'a [u8]> {
    all_of_head(head, name).next()
}

fn all_of_head<'a>(head: &'a RequestHead, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let lines = head.headers().filter(|(found, _)| found.eq_ignore_ascii_case(b"cookie"));
    let cookies = lines.flat_map(|(_, value)| value.split(|byte| *byte == b';'));
    let values = cookies.filter_map(move |cookie| {
        let cookie = cookie.trim_ascii();
        cookie.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
    });
    values.map(|value| value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value))
}
