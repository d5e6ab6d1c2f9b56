//! `RequestSource`: a request of HTTP from a file of requests (`request_list.rs`), a HAR file (`har.rs`) or a line of curl
//! (`curl.rs`). Each has a bound on its bytes, and all have one on the number of requests.

mod curl;
mod har;
mod request_list;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::options::Options;
use super::url::Url;

/// A request with its own method, fields and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestSource {
    pub(crate) method: String,
    pub(crate) url: Url,
    /// Each `Name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// The options with the requests of `--requests`, `--har` and `--curl`. Their first URL is the one of the load, unless
/// the user gives one.
///
/// # Errors
/// If a file or the line cannot be used: names the part.
pub(crate) fn resolved(options: &Options) -> Result<Options, String> {
    let mut resolved = options.clone();
    let base = options.urls.first();
    if let Some(path) = &options.requests {
        resolved.sources =
            request_list::parse(&text_of(path)?, base).map_err(|why| format!("'{}' {why}", path.display()))?;
    }
    if let Some(path) = &options.har {
        let parsed = har::parse(&bytes_of(path)?, base).map_err(|why| format!("'{}' {why}", path.display()))?;
        if parsed.skipped > 0 {
            eprintln!("tidegate: {} requests of the HAR file go to other servers, and are left out", parsed.skipped);
        }
        resolved.sources = parsed.sources;
    }
    if let Some(line) = &options.curl {
        let request = curl::parse(line).map_err(|why| format!("--curl: {why}"))?;
        resolved.insecure |= request.is_insecure;
        resolved.http2 |= request.is_http2;
        resolved.sources = request.sources;
    }
    if resolved.sources.len() > REQUESTS_MAX {
        return Err(format!("{} requests are more than {REQUESTS_MAX}: give fewer", resolved.sources.len()));
    }
    if let Some(first) = resolved.sources.first()
        && base.is_none()
    {
        resolved.urls = vec![first.url.clone()];
    }
    Ok(resolved)
}

/// The bytes of a file.
fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error| format!("cannot read '{}': {error}", path.display());
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "'{}' has more than {FILE_BYTES_MAX} bytes: give a file with fewer requests, and a HAR file without the \
             content of responses",
            path.display()
        ));
    }
    Ok(bytes)
}

fn text_of(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes_of(path)?).map_err(|_| format!("'{}' is no text in UTF-8", path.display()))
}

/// Whether the load writes a field itself, or it belongs to the connection of a browser (RFC 9110 §7.6.1).
fn is_of_connection(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    name.starts_with(':') || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The maximum length of a file of requests.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The maximum number of requests of a load.
const REQUESTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_its_bound_is_refused_and_not_read() {
        let path = std::env::temp_dir().join(format!("tidegate-load-sources-{}", std::process::id()));
        let file = File::create(&path).expect("it is created");
        file.set_len(100_000_000).expect("a sparse file");
        let error = bytes_of(&path).expect_err("it is long");
        std::fs::remove_file(&path).expect("it is there");
        assert!(error.contains("more than 67108864 bytes"), "{error}");
        assert!(bytes_of(Path::new("/nowhere")).expect_err("it is absent").contains("/nowhere"));
    }
}
