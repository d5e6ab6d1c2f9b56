//! Variables of the environment in texts: `${NAME}`, `${NAME:-default}`, and `$${` for the characters `${` themselves.
//!
//! They are replaced in the texts of a parsed file, so a variable adds no keys and ends no quotes.

/// The text with its variables replaced, and whether it had any.
///
/// # Errors
/// The text of the mistake: a variable that is not set and has no default, or a brace that is not closed.
pub(super) fn substitute(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<(String, bool), String> {
    let mut out = String::with_capacity(text.len());
    let mut has_variables = false;
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let Some((inner, after)) = inner.split_once('}') else {
            return Err("`${` without `}`; write `$${` for these characters themselves".into());
        };
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        if !is_name(name) {
            return Err(format!("`{name}` is not the name of a variable; write `$${{` for the characters themselves"));
        }
        // As in a shell, a default also replaces an empty variable.
        match (lookup(name).filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                return Err(format!("the environment has no variable `{name}`; `${{{name}:-...}}` gives a default"));
            }
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(format!("the text with its variables is longer than {TEXT_BYTES_MAX} bytes"));
        }
        has_variables = true;
        rest = after;
    }
    out.push_str(rest);
    Ok((out, has_variables))
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

/// The longest text with variables.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_mistakes_name_them() {
        let lookup = |name: &str| match name {
            "HOME_PORT" => Some("8080".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, expected) in [
            ("plain $ {x} $x", ("plain $ {x} $x", false)),
            ("127.0.0.1:${HOME_PORT}", ("127.0.0.1:8080", true)),
            ("${NONE:-a:-b}/${HOME_PORT}", ("a:-b/8080", true)),
            ("${EMPTY}|${EMPTY:-x}", ("|x", true)),
            ("$${HOME_PORT} ${NONE:-}", ("${HOME_PORT} ", true)),
        ] {
            let (text, has_variables) = substitute(text, lookup).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((&*text, has_variables), expected);
        }
        for (text, expected) in
            [("a ${NONE}", "NONE"), ("${HOME_PORT", "without"), ("${}", "not the name"), ("${1a}", "1a")]
        {
            let error = substitute(text, lookup).expect_err(text);
            assert!(error.contains(expected), "{error}");
        }
    }
}
