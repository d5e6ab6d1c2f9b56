//! Texts that the file may not have, since their usual meaning does not hold here: patterns as names of hosts, and
//! variables in values, which would be sent as they are; and names of fields.

use tidegate::http::Template;

/// Why a name is no host that a request can name; `None` for one that is, and for `*.` before one.
pub(crate) fn refuse_host(name: &str) -> Option<String> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    if host.contains('*') {
        return Some(format!(
            "`{name}` never matches: a star stands for all labels at the beginning, as in `*.example.org`"
        ));
    }
    if !host.is_ascii() {
        return Some(format!("`{name}` never matches: requests name such a host in ASCII, as `xn--...`"));
    }
    let name_without_dot = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name_without_dot.split('.').all(is_label) {
        return None;
    }
    // A URL, or a host with a port.
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    let meant = rest.split(['/', ':']).next().unwrap_or_default();
    let advice =
        if meant != name && refuse_host(meant).is_none() { format!("; write `{meant}`") } else { String::new() };
    Some(format!("`{name}` is not the name of a host{advice}"))
}

/// Whether requests and responses can have a field of this name. A pattern has none, although `*` may stand in a name.
pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
}

/// The name by which a host is compared.
pub(crate) fn host_key(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The template of a value with placeholders; `None` for a value that is sent as it is.
///
/// # Errors
/// An unknown placeholder, and a variable of another server.
pub(super) fn placeholders(value: &str) -> Result<Option<Template>, String> {
    let mut has_placeholder = false;
    let mut rest = value;
    while let Some(variable) = find_variable(rest) {
        if !variable.starts_with('{') {
            return Err(format!("`{variable}` would be sent as it is: placeholders are written such as {{client.ip}}"));
        }
        has_placeholder = true;
        rest = rest.split_once(variable).map_or("", |(_, behind)| behind);
    }
    match has_placeholder {
        true => value.parse().map(Some).map_err(|error| format!("`{}`: {error}", value.escape_debug())),
        false => Ok(None),
    }
}

/// Why a value is refused that looks like one with a variable of another server; `None` for another value.
pub(crate) fn refuse_variable(value: &str) -> Option<String> {
    find_variable(value).map(|variable| format!("`{variable}` would be sent as it is: there are no variables"))
}

/// `$name` and `${name}` (nginx), `{name}` and `{a.b}` (Caddy, Traefik), `%{name}` (Apache), `%[name]` (HAProxy) and
/// `%NAME%` (Envoy). Such a text in quotes, as in JSON, is none.
fn find_variable(value: &str) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:>()/$%,".contains(&byte);
    for (at, byte) in value.bytes().enumerate() {
        let rest = &value[at..];
        let after = rest.as_bytes().get(1).copied().unwrap_or_default();
        let ends_with = |open: usize, close: char| {
            let inner = rest.get(open..)?.split_once(close)?.0;
            let is_name = inner.bytes().all(is_part) && inner.bytes().any(|byte| byte.is_ascii_alphabetic());
            is_name.then(|| &rest[..open + inner.len() + 1])
        };
        let found = match byte {
            b'$' if after == b'{' => ends_with(2, '}'),
            b'$' if after.is_ascii_alphabetic() || after == b'_' => {
                let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
                let end = rest[1..].find(|character| !is_word(character)).map_or(rest.len(), |end| end + 1);
                Some(&rest[..end])
            }
            b'{' => ends_with(1, '}'),
            b'%' if after == b'{' => ends_with(2, '}'),
            b'%' if after == b'[' => ends_with(2, ']'),
            b'%' if after.is_ascii_uppercase() => ends_with(1, '%').filter(|found| found.contains('_')),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_other_servers_replace_is_found() {
        for (value, variable) in [
            ("$remote_addr", "$remote_addr"),
            ("https://$host$request_uri", "$host"),
            ("a ${client_ip}!", "${client_ip}"),
            ("{client.ip}", "{client.ip}"),
            ("{http.request.header.X-A}", "{http.request.header.X-A}"),
            ("{remote_host}:{port}", "{remote_host}"),
            ("%{REMOTE_ADDR}s", "%{REMOTE_ADDR}"),
            ("%[src]", "%[src]"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "%DOWNSTREAM_REMOTE_ADDRESS%"),
        ] {
            assert_eq!(find_variable(value), Some(variable), "{value}");
        }
        for value in [
            "max-age=60",
            "costs $5, or 5$",
            "{\"group\":\"default\",\"max_age\":1}",
            "{}",
            "{1}",
            "100%",
            "a%20b%2Fc",
            "%7E%C3%A4",
            "$",
            "default-src 'self'; img-src *",
        ] {
            assert_eq!(find_variable(value), None, "{value}");
        }
    }

    #[test]
    fn a_host_that_no_request_names_is_refused() {
        for name in
            ["*.*.example.org", "*", "*.", "a.*", "", ".", "a..b", "a b", "a:1", "a/b", "$host", "m\u{fc}ller.example"]
        {
            assert!(refuse_host(name).is_some(), "{name}");
        }
        for name in ["sea.example", "*.sea.example", "SEA.Example.", "a_b-c", "10.0.0.1", "xn--mller-kva.example"] {
            assert_eq!(refuse_host(name), None, "{name}");
        }
        assert_eq!(host_key("SEA.Example."), "sea.example");
    }
}
