//! HTTP requests from a file of requests (`request_list.rs`), a HAR file (`har.rs`) or a line of curl (`curl.rs`), as
//! `RequestSource`s (`request_source.rs`). Each file has a bound on its bytes, and all have one on the number of requests.

mod curl;
mod har;
mod request_list;
mod request_source;

use std::path::Path;

pub(crate) use self::request_source::RequestSource;
use self::request_source::bytes_of;
use super::options::Options;

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
        resolved.http3 |= request.is_http3;
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

fn text_of(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes_of(path)?).map_err(|_| format!("'{}' is no text in UTF-8", path.display()))
}

/// The maximum number of requests of a load.
const REQUESTS_MAX: usize = 10_000;
