//! Permissions. A service of your own checks a signature, or asks a database: an async function may await it.

pub(crate) fn may_subscribe(token: &str) -> bool {
    token.starts_with("sub-")
}

pub(crate) fn may_publish(token: &str) -> bool {
    token.starts_with("pub-")
}
