//! Whether a page of the host itself sends a request: a script of any site can open a WebSocket, or a session of WebTransport,
//! to any server, with the cookies of its user.

/// Whether an origin is that of the host for which the request is.
pub(crate) fn is_same_site(origin: &[u8], host: &str) -> bool {
    let authority = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_bytes()))
}
