//! Subjects: which ones are valid, and which filter matches which subject.
//!
//! A subject is a sequence of tokens with dots between them. In a filter the token `*` matches any token, and `>` as the last
//! token matches one token or more.

/// Whether a message may be published to this subject: no token is empty, none is a wildcard, and no byte is a space or a
/// control character.
///
/// ```
/// use tidegate::nats::is_subject;
///
/// assert!(is_subject(b"tides.brest"));
/// assert!(!is_subject(b"tides.*") && !is_subject(b"tides..brest") && !is_subject(b"tides brest"));
/// ```
#[must_use]
pub fn is_subject(subject: &[u8]) -> bool {
    is_filter(subject) && !tokens(subject).any(|token| matches!(token, b"*" | b">"))
}

/// Whether a subscription may have this filter: as a subject, with wildcards.
///
/// ```
/// use tidegate::nats::is_filter;
///
/// assert!(is_filter(b"tides.*") && is_filter(b"tides.>"));
/// assert!(!is_filter(b"tides.>.brest"));
/// ```
#[must_use]
pub fn is_filter(filter: &[u8]) -> bool {
    let mut tokens = tokens(filter).peekable();
    while let Some(token) = tokens.next() {
        let is_last = tokens.peek().is_none();
        if token.is_empty() || !is_token(token) || (token == b">" && !is_last) {
            return false;
        }
    }
    true
}

/// Whether a filter matches a subject.
///
/// ```
/// use tidegate::nats::matches_subject;
///
/// assert!(matches_subject(b"tides.*", b"tides.brest") && matches_subject(b"tides.>", b"tides.brest.high"));
/// assert!(!matches_subject(b"tides.>", b"tides"));
/// ```
#[must_use]
pub fn matches_subject(filter: &[u8], subject: &[u8]) -> bool {
    let (mut wanted, mut given) = (tokens(filter), tokens(subject));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(b">"), Some(_)) => return true,
            (Some(wanted), Some(given)) if wanted == b"*" || wanted == given => {}
            _ => return false,
        }
    }
}

/// The tokens of a subject.
pub(crate) fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.split(|byte| *byte == b'.')
}

/// Whether these bytes may be an argument of an operation.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}
