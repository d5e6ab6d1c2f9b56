//! `AuthorityClient`: the HTTP client below `instant-acme`, and the bounds of an authority's responses.
//!
//! It passes on nothing that `instant-acme` could trip over: a body has a bound, a URL is one of https, `Retry-After` has a
//! bound. The last `Retry-After` is kept for the manager, since `instant-acme` does not report that of an error.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use serde_json::Value;
use tidegate_http_client::{Client, ClientLimits, Handle, HandleError};
use tidegate_tls::ClientConfig;

use crate::error::{IssueError, printable};
use crate::settings::{AcmeLimits, is_https};

/// The client of one attempt. Clones share the last `Retry-After`.
#[derive(Clone)]
pub(crate) struct AuthorityClient {
    handle: Handle,
    limits: Arc<AcmeLimits>,
    directory: Arc<str>,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl AuthorityClient {
    /// A client on this loop.
    pub(crate) fn new(tls: &ClientConfig, directory: &str, limits: &AcmeLimits) -> Self {
        let mut client_limits = ClientLimits::default();
        client_limits.connections_max = CONNECTIONS_MAX;
        client_limits.connections_per_origin_max = CONNECTIONS_MAX;
        let client = Client::builder().limits(client_limits).redirects(false).tls(tls.clone()).build();
        Self {
            handle: client.handle(),
            limits: Arc::new(limits.clone()),
            directory: directory.into(),
            retry_after: Arc::default(),
        }
    }

    /// How long the last response asks to wait, at most [`AcmeLimits::retry_after_max`].
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Duration>> {
        self.retry_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(self, parts: Parts, body: Bytes) -> Result<BytesResponse, IssueError> {
        let url = parts.uri.to_string();
        if !is_https(&url) {
            return Err(IssueError::malformed("a URL of the authority is not one of https"));
        }
        let is_get = parts.method == Method::GET;
        let is_directory = is_get && url == *self.directory;
        let mut request = self.handle.request(parts.method, url).timeout(self.limits.request_timeout);
        for (name, value) in &parts.headers {
            request = request.header(name.as_str(), value.as_bytes());
        }
        if !body.is_empty() {
            request = request.body(body);
        }
        *self.lock() = None;
        let received = request.send().await.map_err(|error| unreachable(&error))?;
        let mut response = Response::new(());
        *response.status_mut() = received.status();
        *response.headers_mut() = received.headers().clone();
        let wait = retry_after(received.headers(), self.limits.retry_after_max, SystemTime::now());
        *self.lock() = wait;
        // The renewal information has to have one; other responses may.
        let bounded = wait.or((is_get && !is_directory).then_some(RENEWAL_INFO_INTERVAL));
        response.headers_mut().remove(RETRY_AFTER);
        if let Some(wait) = bounded {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        let body = received.into_body().bytes(self.limits.response_bytes_max).await;
        let body = body.map_err(|error| match error {
            HandleError::TooLong => IssueError::malformed("the body is longer than AcmeLimits::response_bytes_max"),
            error => unreachable(&error),
        })?;
        if is_directory && response.status().is_success() {
            check_directory(&body)?;
        }
        Ok(BytesResponse { parts: response.into_parts().0, body: Box::new(body) })
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let (parts, body) = request.into_parts();
        let (client, body) = (self.clone(), whole(body));
        Box::pin(async move {
            let response = client.exchange(parts, body).await;
            response.map_err(|error| instant_acme::Error::Other(Box::new(error)))
        })
    }
}

fn unreachable(error: &HandleError) -> IssueError {
    IssueError::Unreachable(printable(&error.to_string()))
}

/// The bytes of a request's body, which has one frame and waits for nothing.
fn whole(mut body: impl Body<Data = Bytes, Error = Infallible> + Unpin) -> Bytes {
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

/// The wait of `Retry-After`: seconds or a date (RFC 9110 §10.2.3).
fn retry_after(headers: &HeaderMap, max: Duration, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => max,
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(max))
}

/// `instant-acme` takes the URLs of a directory for valid.
fn check_directory(body: &[u8]) -> Result<(), IssueError> {
    let directory: Value =
        serde_json::from_slice(body).map_err(|_| IssueError::malformed("the directory is no JSON object"))?;
    let urls = ["newNonce", "newAccount", "newOrder", "newAuthz", "revokeCert", "keyChange", "renewalInfo"];
    let is_valid = |name: &str| match directory.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(url)) => is_https(url),
        Some(_) => false,
    };
    let required = urls[..3].iter().all(|name| directory.get(name).is_some_and(Value::is_string));
    if required && urls.iter().all(|name| is_valid(name)) {
        return Ok(());
    }
    Err(IssueError::malformed("the directory lacks a URL, or has one that is not of https"))
}

/// One order is under way at a time.
const CONNECTIONS_MAX: usize = 2;

/// The time until the next question about the renewal, if the authority says nothing (RFC 9773 §4.3.3).
const RENEWAL_INFO_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_has_two_forms_and_a_bound() {
        let (day, now) = (Duration::from_secs(86_400), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers, day, now).map(|wait| wait.as_secs())
        };
        assert_eq!([of("0"), of(" 120 "), of("86401")], [Some(0), Some(120), Some(86_400)]);
        assert_eq!(of("18446744073709551616"), Some(86_400), "more than 64 bits");
        assert_eq!(of("Sun, 09 Sep 2001 01:47:40 GMT"), Some(60));
        assert_eq!(of("Sat, 08 Sep 2001 01:47:40 GMT"), Some(0), "a time that is past");
        assert_eq!([of(""), of("soon"), of("-1"), of("1.5")], [None; 4]);
        assert_eq!(retry_after(&HeaderMap::new(), day, now), None);
    }

    #[test]
    fn a_directory_has_urls_of_https() {
        let good = r#"{"newNonce":"https://a/1","newAccount":"https://a/2","newOrder":"https://a/3"}"#;
        check_directory(good.as_bytes()).unwrap();
        for (from, to) in [
            ("https://a/1", "http://a/1"),
            ("https://a/2", " https://a/2"),
            ("https://a/3", "https://a/\\u0000"),
            ("\"https://a/3\"", "7"),
            ("newOrder", "newDisorder"),
            ("}", ",\"renewalInfo\":\"a\"}"),
            ("{", "["),
        ] {
            assert!(check_directory(good.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
