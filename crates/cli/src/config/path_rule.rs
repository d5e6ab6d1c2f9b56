//! `PathRule`: which paths a route is for: one, all below a prefix, or those of a pattern.

use std::collections::HashSet;

use tidegate::http::{UdpProxy, normal_path};

/// The paths of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PathRule {
    /// One path, or a pattern with parameters.
    Exact(String),
    /// The prefix itself and all paths below it, in whole segments; empty for all paths.
    Prefix(String),
}

impl PathRule {
    /// All paths.
    pub(crate) const ALL: Self = Self::Prefix(String::new());

    /// `/path`, `/prefix/*`, `/pattern/{name}` or `/pattern/{*rest}`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(format!("`{}` is not a path: it begins with a slash", text.escape_debug()));
        }
        if text.contains(['?', '#', ' ']) || text.contains("//") || text.chars().any(char::is_control) {
            return Err(format!("`{}` is not a path: it has no query, space or empty segment", text.escape_debug()));
        }
        let is_dot_segment = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..");
        if text.split('/').any(is_dot_segment) {
            return Err(format!("`{text}` never matches: clients remove the segments `.` and `..`"));
        }
        if ["%7b", "%7d"].iter().any(|brace| text.to_ascii_lowercase().contains(brace)) {
            return Err(format!("`{}` has an encoded brace, which no route matches", text.escape_debug()));
        }
        if let Some(prefix) = text.strip_suffix("/*") {
            if prefix.contains(['{', '}', '*']) {
                return Err(format!("`{text}` is a pattern and a prefix: write `{{*rest}}` in place of the star"));
            }
            return Ok(Self::Prefix(normal_path(prefix)));
        }
        check_parameters(text)?;
        Ok(Self::Exact(normal_path(text)))
    }

    /// The path of UDP targets that clients use unless they know another one (RFC 9298 §3.4).
    pub(crate) fn of_udp_targets() -> Self {
        Self::Exact(UdpProxy::PATH.into())
    }

    /// Whether a pattern has these parameters.
    pub(crate) fn has_parameters(&self, names: &[&str]) -> bool {
        let Self::Exact(path) = self else { return false };
        names.iter().all(|name| path.contains(&format!("{{{name}}}")))
    }

    /// The patterns that a router has for it; that of a fallback is empty.
    pub(crate) fn patterns(&self) -> Vec<String> {
        match self {
            Self::Exact(path) => vec![path.clone()],
            Self::Prefix(prefix) if prefix.is_empty() => vec![String::new()],
            // `{*rest}` matches at least one byte.
            Self::Prefix(prefix) => vec![prefix.clone(), format!("{prefix}/"), format!("{prefix}/{{*rest}}")],
        }
    }

    /// The prefix, which `strip-path` removes.
    pub(crate) fn prefix(&self) -> Option<&str> {
        match self {
            Self::Prefix(prefix) => Some(prefix),
            Self::Exact(_) => None,
        }
    }
}

/// Checks the parts of a pattern in braces.
fn check_parameters(text: &str) -> Result<(), String> {
    let mut names = HashSet::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '*']) {
        if rest.as_bytes()[at] == b'*' {
            return Err(format!(
                "`{text}`: a star stands at the end, as in `/files/*`, or in braces, as in `{{*rest}}`"
            ));
        }
        let Some((name, after)) = rest[at..].strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
            return Err(format!("`{text}`: braces enclose the name of a parameter, as in `/users/{{id}}`"));
        };
        let (name, is_rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_name {
            return Err(format!("`{text}`: `{name}` is not the name of a parameter"));
        }
        if !names.insert(name) {
            return Err(format!("`{text}` has two parameters `{name}`"));
        }
        if is_rest && !(after.is_empty() && rest[..at].ends_with('/')) {
            return Err(format!("`{text}`: `{{*{name}}}` is the last segment"));
        }
        if !after.is_empty() && !after.starts_with('/') {
            return Err(format!("`{text}`: a parameter ends its segment"));
        }
        rest = after;
    }
    if names.len() > PARAMETERS_MAX {
        return Err(format!("`{text}` has more than {PARAMETERS_MAX} parameters"));
    }
    Ok(())
}

/// As many as a router takes.
const PARAMETERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::PathRule;

    #[test]
    fn paths_are_exact_prefixes_or_patterns() {
        for (text, expected) in [
            ("/", PathRule::Exact("/".into())),
            ("/%61b", PathRule::Exact("/ab".into())),
            ("/*", PathRule::ALL),
            ("/api/*", PathRule::Prefix("/api".into())),
            ("/users/{id}/{*rest}", PathRule::Exact("/users/{id}/{*rest}".into())),
            ("/v{n}", PathRule::Exact("/v{n}".into())),
        ] {
            assert_eq!(PathRule::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "api", "", "/a?b", "/a b", "/a//b", "/a*", "/*/a", "/{a", "/a}", "/{}", "/{a}/{a}", "/{*a}/b", "/{a}b",
            "/{a}/*", "/x{*a}", "/a/../b", "/a/.", "/%2E./*",
        ] {
            assert!(PathRule::parse(text).is_err(), "{text}");
        }
    }
}
