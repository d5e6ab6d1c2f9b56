//! `--requests FILE`: a request a line, `METHOD URL [BODY]` or an object of JSON. Empty lines, and lines that begin with
//! `#`, are skipped.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::RequestSource;
use crate::url::Url;

/// A line that is an object of JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
}

/// Parses the lines. A URL that begins with `/` is one of the server of `base`.
///
/// # Errors
/// The number of the line that cannot be used, and why.
pub(super) fn parse(text: &str, base: Option<&Url>) -> Result<Vec<RequestSource>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let sources: Vec<_> = lines
        .map(|(number, line)| {
            request(line.trim(), base).map_err(|why| format!("has a mistake on line {number}: {why}"))
        })
        .collect::<Result<_, _>>()?;
    if sources.is_empty() {
        return Err("has no request: write lines of METHOD URL [BODY]".into());
    }
    Ok(sources)
}

fn request(line: &str, base: Option<&Url>) -> Result<RequestSource, String> {
    if line.starts_with('{') {
        let parsed: RequestLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let RequestLine { method, url, headers, body } = parsed;
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let usual = if body.is_empty() { "GET" } else { "POST" };
        let method = method.unwrap_or_else(|| usual.to_owned());
        return Ok(RequestSource { method, url: url_of(&url, base)?, headers, body: body.into_bytes() });
    }
    let mut parts = line.splitn(3, ' ').map(str::trim);
    let (Some(method), Some(url)) = (parts.next(), parts.next()) else {
        return Err(format!("'{line}' has no URL: write METHOD URL [BODY]"));
    };
    let body = parts.next().unwrap_or_default().as_bytes().to_vec();
    Ok(RequestSource { method: method.to_owned(), url: url_of(url, base)?, headers: Vec::new(), body })
}

fn url_of(text: &str, base: Option<&Url>) -> Result<Url, String> {
    match base {
        Some(base) if text.starts_with('/') => Ok(base.with_target(text)),
        None if text.starts_with('/') => Err(format!("'{text}' has no server: give the load a URL as well")),
        _ => text.parse().map_err(|error: crate::url::BadUrl| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests() {
        let text = "# two forms\nGET http://a/b\n\nPOST http://a/c a body with  spaces\r\n\
                    {\"url\": \"http://a/d\", \"headers\": {\"X\": \"y\"}, \"body\": \"z\"}\nDELETE /e\n";
        let base = "http://a:80/".parse().expect("a URL");
        let sources = parse(text, Some(&base)).expect("it is right");
        let seen: Vec<_> = sources
            .iter()
            .map(|one| (&*one.method, one.url.target(), one.headers.concat(), String::from_utf8_lossy(&one.body)))
            .collect();
        let expected = [
            ("GET", "/b", String::new(), "".into()),
            ("POST", "/c", String::new(), "a body with  spaces".into()),
            ("POST", "/d", "X: y".to_owned(), "z".into()),
            ("DELETE", "/e", String::new(), "".into()),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        for (text, part) in [
            ("", "no request"),
            ("# nothing\n\n", "no request"),
            ("GET http://a/\nGET\n", "line 2: 'GET' has no URL"),
            ("GET ftp://a/", "line 1: 'ftp://a/'"),
            ("GET /a", "line 1: '/a' has no server"),
            ("{\"url\": 5}", "line 1: "),
            ("{\"url\": \"http://a/\", \"metod\": \"GET\"}", "metod"),
            ("{\"url\"", "line 1: EOF"),
        ] {
            let error = parse(text, None).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
