//! `ForwardAuth`: another service decides whether a request passes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use tidegate_http::gateway::{is_of_connection, is_same};
use tidegate_http::{IntoResponse, InvalidField, Next, Request, Response, TrustedProxies};
use tidegate_http_client::{Client, ClientError, ClientLimits, Response as Answer};
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use crate::question;

/// Another service decides whether a request passes, as with nginx `auth_request`, Traefik `ForwardAuth` and Caddy
/// `forward_auth`.
///
/// For each request, the service gets a GET with the fields of the client, and with `X-Forwarded-Method`, `-Proto`, `-Host`,
/// `-Uri` and `-For`, which say what the client has asked for. A body is not sent.
///
/// | the service answers | the client's request |
/// |---|---|
/// | 2xx | passes; the fields that [`copy`](Self::copy) names are added to it |
/// | 3xx but 304, 4xx | gets this response as it is: a redirect to a login, a 401, a 403 |
/// | 304, 5xx, not at all | gets a 503 |
/// | later than [`timeout`](Self::timeout) | gets a 504 |
///
/// Fields of the client with a name that `copy` has, or that a server may read as such a name, are removed in any case. A
/// request with several `Authorization` fields gets a 400, and the service is not asked.
///
/// | limit | default | stops |
/// |---|--:|---|
/// | [`timeout`](Self::timeout) | 5 s | a service that hangs |
/// | [`body_bytes_max`](Self::body_bytes_max) | 64 KiB | a long refusal: the client gets a 503 |
/// | [`connections_max`](Self::connections_max) | 64 for each loop | a flood of connections to the service; further requests wait |
///
/// Connections are kept, those of each loop by itself.
///
/// ```
/// use tidegate::http::Router;
/// use tidegate::http::auth::ForwardAuth;
///
/// let forward = ForwardAuth::new("http://127.0.0.1:9091/verify")?.copy(["Remote-User", "Remote-Groups"])?;
/// let router = move || Router::new().get("/", || "secret").wrap(forward.require());
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ForwardAuth {
    uri: Uri,
    copied: Arc<[Box<str>]>,
    sent: Option<Arc<[Box<str>]>>,
    timeout: Duration,
    body_bytes_max: usize,
    connections_max: usize,
    fails_open: bool,
    trusted: TrustedProxies,
    #[cfg(feature = "tls")]
    tls: Option<ClientConfig>,
}

/// The URL of a service that cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidService {
    /// It is no URL, or has no host.
    Url,
    /// Its scheme is neither `http` nor `https`.
    Scheme,
}

impl ForwardAuth {
    /// Asks the service at this URL.
    ///
    /// # Errors
    /// [`InvalidService`] if this is no URL of `http` or `https` with a host.
    pub fn new(url: &str) -> Result<Self, InvalidService> {
        Ok(Self {
            uri: service_uri(url)?,
            copied: Arc::default(),
            sent: None,
            timeout: Duration::from_secs(5),
            body_bytes_max: 64 * 1024,
            connections_max: 64,
            fails_open: false,
            trusted: TrustedProxies::default(),
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// The names of fields that go from the service's response to the request: a function and an upstream see them as if the
    /// client had sent them, and the client cannot send them.
    ///
    /// # Errors
    /// [`InvalidField`] if a name is that of no field, or of one that the codec reads, such as `Content-Length`.
    pub fn copy<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self, InvalidField> {
        self.copied = checked_names(names)?;
        Ok(self)
    }

    /// The names of the client's fields that the service gets: all, unless set, but for those about the body, conditions and
    /// ranges. A service that needs `Cookie` and `Authorization` alone gets no others.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub fn request_fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self, InvalidField> {
        self.sent = Some(checked_names(names)?);
        Ok(self)
    }

    /// How long the service may take to answer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long the body of a refusal may be.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// How many connections to the service a loop may have; at least one.
    #[must_use]
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections.max(1);
        self
    }

    /// Whether requests pass while the service does not answer, or answers with 5xx. They do not, unless set: a client
    /// that overloads the service would pass without a decision.
    #[must_use]
    pub fn fails_open(mut self, fails_open: bool) -> Self {
        self.fails_open = fails_open;
        self
    }

    /// The proxies in front of this server: the service gets the client, the host and the scheme that they name.
    #[must_use]
    pub fn trusted(mut self, trusted: TrustedProxies) -> Self {
        self.trusted = trusted;
        self
    }

    /// How the certificate of a service of `https` is verified.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: ClientConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Async middleware that asks the service. Each call makes a client with connections of its own, for one loop.
    pub fn require(&self) -> impl AsyncFn(Request, Next) -> Response + 'static {
        let (forward, client) = (self.clone(), self.client());
        async move |mut request: Request, next: Next| {
            if has_several_authorizations(&request) {
                return StatusCode::BAD_REQUEST.into_response();
            }
            let granted = match forward.ask(&client, &request).await {
                Ok(Ok(granted)) => granted,
                Ok(Err(refusal)) => return refusal,
                Err(failure) if forward.fails_open => {
                    tracing::warn!(subsystem = "http", service = %forward.uri, "passed without an answer: {failure}");
                    Vec::new()
                }
                Err(failure) => {
                    tracing::warn!(subsystem = "http", service = %forward.uri, "refused without an answer: {failure}");
                    return failure.status().into_response();
                }
            };
            let further: Vec<_> = granted.iter().map(|(name, value)| (&**name, &**value)).collect();
            let keeps = |name: &str| !forward.copied.iter().any(|copied| is_same(copied.as_bytes(), name.as_bytes()));
            if forward.copied.is_empty() || request.edit_headers(keeps, &further).is_ok() {
                return next.run(request).await;
            }
            // The client's `Connection` names one of the fields, or they are too long together.
            StatusCode::BAD_REQUEST.into_response()
        }
    }

    fn client(&self) -> Client {
        let mut limits = ClientLimits::default();
        limits.connections_max = self.connections_max;
        limits.connections_per_origin_max = self.connections_max;
        limits.collected_body_bytes_max = self.body_bytes_max;
        // The request has a deadline of its own, which says that it was one.
        [limits.pool_timeout, limits.connect_timeout] = [self.timeout; 2];
        [limits.head_timeout, limits.body_timeout] = [self.timeout.saturating_mul(2); 2];
        let builder = Client::builder().limits(limits).redirects(false);
        #[cfg(feature = "tls")]
        let builder = match &self.tls {
            Some(tls) => builder.tls(tls.clone()),
            None => builder,
        };
        builder.build()
    }

    /// The fields for the request, or the response that refuses it.
    async fn ask(&self, client: &Client, request: &Request) -> Result<Result<Fields, Response>, Failure> {
        let question = client.request_to(Method::GET, self.uri.clone()).timeout(self.timeout);
        let question = question::with_fields_of(question, request, self.sent.as_deref(), &self.trusted);
        let answer = question.send().await?;
        let status = answer.status();
        if status.is_success() {
            let granted = self.granted(&answer);
            // A body that is read to its end leaves the connection to the next request; nobody needs it.
            if answer.content_length().is_some_and(|length| length <= self.body_bytes_max as u64) {
                let _ = answer.bytes().await;
            }
            return Ok(Ok(granted));
        }
        let is_refusal = (status.is_redirection() && status != StatusCode::NOT_MODIFIED) || status.is_client_error();
        if is_refusal { Ok(Err(refusal(answer).await?)) } else { Err(Failure::Status(status)) }
    }

    fn granted(&self, answer: &Answer) -> Fields {
        let is_copied = |name: &str| self.copied.iter().any(|copied| copied.eq_ignore_ascii_case(name));
        let copied = answer.headers().filter(|(name, _)| is_copied(name));
        copied.map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    }
}

/// Whether a request has several `Authorization` fields, of which the service and a server behind this one may read others.
fn has_several_authorizations(request: &Request) -> bool {
    request.header_bytes().filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization")).nth(1).is_some()
}

/// Names and values.
type Fields = Vec<(String, Vec<u8>)>;

/// The response of the service, for the client.
async fn refusal(answer: Answer) -> Result<Response, Failure> {
    let mut response = Response::status(answer.status());
    let mut of_connection = Vec::new();
    for (_, list) in answer.headers().filter(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        of_connection.extend(list.split(|&byte| byte == b',').map(|name| name.trim_ascii().to_ascii_lowercase()));
    }
    for (name, value) in answer.headers() {
        let lower = name.to_ascii_lowercase();
        if is_of_connection(lower.as_bytes()) || lower == "trailer" || of_connection.contains(&lower.into_bytes()) {
            continue;
        }
        response.add_header(name, value).map_err(|_| Failure::Field)?;
    }
    Ok(response.body(answer.bytes().await?))
}

/// Why the service has not decided.
#[derive(Debug)]
enum Failure {
    Client(ClientError),
    Status(StatusCode),
    /// A field that cannot be passed on.
    Field,
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Client(error) if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Status(status) => write!(f, "the service answered with {status}"),
            Self::Field => f.write_str("a field of the service's response cannot be passed on"),
        }
    }
}

/// The URL of a service.
pub(crate) fn service_uri(url: &str) -> Result<Uri, InvalidService> {
    let uri: Uri = url.parse().map_err(|_| InvalidService::Url)?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("http" | "https") | None => Err(InvalidService::Url),
        Some(_) => Err(InvalidService::Scheme),
    }
}

fn checked_names<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Arc<[Box<str>]>, InvalidField> {
    let check = |name: N| {
        let name = name.into();
        if is_of_connection(name.as_bytes()) {
            return Err(InvalidField::Reserved);
        }
        Response::new().add_header(&name, "").map(|()| name.into())
    };
    names.into_iter().map(check).collect()
}

impl fmt::Debug for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardAuth").field("uri", &self.uri).field("copied", &self.copied).finish_non_exhaustive()
    }
}

impl fmt::Display for InvalidService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url => "it is no URL with a host, such as `http://127.0.0.1:9091/verify`",
            Self::Scheme => "its scheme is neither http nor https",
        })
    }
}

impl Error for InvalidService {}
