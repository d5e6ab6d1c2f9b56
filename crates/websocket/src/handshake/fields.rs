//! Lists of tokens in fields (RFC 9110 §5.6).

/// The elements of a list, without those that are empty.
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Whether a list has a token, in any case.
pub(super) fn has_token(value: &[u8], token: &str) -> bool {
    list(value).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
}

/// The text of a token.
pub(super) fn token(bytes: &[u8]) -> Option<&str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && text.bytes().all(is_token)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_their_elements_and_tokens_are_tokens() {
        let elements: Vec<_> = list(b" a, ,b ;c=1 ,, d").collect();
        assert_eq!(elements, [&b"a"[..], b"b ;c=1", b"d"]);
        assert!(has_token(b"keep-alive, Upgrade", "upgrade"));
        assert!(!has_token(b"upgrades", "upgrade"));
        assert_eq!(token(b"chat.v2"), Some("chat.v2"));
        for bytes in [&b""[..], b"a b", b"a\"", b"\xC3\xA9"] {
            assert_eq!(token(bytes), None);
        }
    }
}
