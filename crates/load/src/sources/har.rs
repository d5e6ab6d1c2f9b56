//! `--har FILE`: the requests of an HTTP Archive (HAR 1.2), which browsers save. Responses are skipped.

use serde::Deserialize;

use super::{RequestSource, is_of_connection};
use crate::results::Protocol;
use crate::url::Url;

#[derive(Debug, Deserialize)]
struct Har {
    log: HarLog,
}

#[derive(Debug, Deserialize)]
struct HarLog {
    entries: Vec<HarEntry>,
}

#[derive(Debug, Deserialize)]
struct HarEntry {
    request: HarRequest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HarRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<HarField>,
    post_data: Option<HarBody>,
}

#[derive(Debug, Deserialize)]
struct HarField {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct HarBody {
    #[serde(default)]
    text: String,
}

/// The requests of a HAR file to one server.
#[derive(Debug)]
pub(super) struct HarRequests {
    pub(super) sources: Vec<RequestSource>,
    /// Requests to other servers.
    pub(super) skipped: usize,
}

/// Parses a HAR file. The server is that of `base`, or of the first request.
///
/// # Errors
/// If it is no HAR file, or has no request to the server.
pub(super) fn parse(bytes: &[u8], base: Option<&Url>) -> Result<HarRequests, String> {
    let har: Har = serde_json::from_slice(bytes).map_err(|error| format!("is no HAR file: {error}"))?;
    let mut requests = HarRequests { sources: Vec::new(), skipped: 0 };
    let mut server = base.cloned();
    for HarEntry { request } in har.log.entries {
        let url = request.url.parse::<Url>().ok().filter(|url| url.protocol() == Protocol::Http);
        let Some(url) = url.filter(|url| server.as_ref().is_none_or(|server| server.server() == url.server())) else {
            requests.skipped += 1;
            continue;
        };
        let server = server.get_or_insert_with(|| url.clone());
        let fields = request.headers.into_iter().filter(|field| !is_of_connection(&field.name));
        // The same server may have another name in the URL of the load.
        let fields =
            fields.filter(|field| !field.name.eq_ignore_ascii_case("host") || server.authority() != field.value);
        let headers = fields.map(|HarField { name, value }| format!("{name}: {value}")).collect();
        let body = request.post_data.map_or_else(Vec::new, |body| body.text.into_bytes());
        requests.sources.push(RequestSource { method: request.method, url, headers, body });
    }
    match (requests.sources.is_empty(), server) {
        (false, _) => Ok(requests),
        (true, Some(server)) => Err(format!("has no request to '{server}'")),
        (true, None) => Err("has no request of HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAR: &str = r#"{"log": {"version": "1.2", "entries": [
        {"request": {"method": "GET", "url": "https://a/b?c", "headers": [
            {"name": ":authority", "value": "a"}, {"name": "Host", "value": "a"}, {"name": "Connection", "value": "keep-alive"},
            {"name": "Accept", "value": "*/*"}]}, "response": {"content": {"text": "ignored"}}},
        {"request": {"method": "GET", "url": "https://other/", "headers": []}},
        {"request": {"method": "GET", "url": "wss://a/", "headers": []}},
        {"request": {"method": "POST", "url": "https://a/d", "headers": [{"name": "Content-Length", "value": "4"}],
            "postData": {"mimeType": "text/plain", "text": "ebbs"}}}]}}"#;

    #[test]
    fn requests_to_the_first_server_are_taken_and_others_counted() {
        let HarRequests { sources, skipped } = parse(HAR.as_bytes(), None).expect("it is right");
        let seen: Vec<_> = sources.iter().map(|one| (&*one.method, one.url.target(), one.headers.concat())).collect();
        assert_eq!(seen, [("GET", "/b?c", "Accept: */*".to_owned()), ("POST", "/d", String::new())]);
        assert_eq!((&*sources[1].body, skipped), (&b"ebbs"[..], 2));
        let other = "https://other/x".parse().expect("a URL");
        assert_eq!(parse(HAR.as_bytes(), Some(&other)).expect("one request").sources.len(), 1);
    }

    #[test]
    fn a_file_without_requests_to_the_server_is_refused() {
        let nowhere = "https://nowhere/".parse().expect("a URL");
        for (text, base, part) in [
            ("", None, "no HAR file"),
            ("{\"log\": {}}", None, "entries"),
            ("{\"log\": {\"entries\": []}}", None, "no request of HTTP"),
            (HAR, Some(&nowhere), "no request to 'https://nowhere/'"),
            (&HAR[..HAR.len() / 2], None, "no HAR file"),
            (&"[".repeat(100_000), None, "no HAR file"),
        ] {
            let error = parse(text.as_bytes(), base).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
