//! `RequestBuilder`: a client's request, step by step.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use http::{Method, Uri};
#[cfg(any(feature = "json", feature = "form"))]
use serde::Serialize;
use tidegate_http_message::{Body, TraceContext};
use tidegate_http_upstream::basic_credentials;
use tidegate_http1::Fields;
use tidegate_sys::Address;

use super::core::ClientCore;
use super::error::ClientError;
use super::uri;

/// A request: a method, a URI, fields, a body, and how it is sent.
///
/// A mistake in a step, such as a field that cannot be sent, is the error of [`send`](Self::send).
///
/// ```no_run
/// use tidegate::http::Client;
/// use tidegate::http::client::ClientError;
///
/// # async fn example(client: Client) -> Result<(), ClientError> {
/// let response = client.post("http://sea.example/log").header("Harbour", "north").body("high water").send().await?;
/// println!("{}: {}", response.status(), response.text().await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    pub(super) client: Rc<ClientCore>,
    pub(super) request: Result<Request, ClientError>,
}

/// A request that can be sent.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) fields: Fields,
    pub(super) body: Body,
    /// The body was given in memory: it can be sent again.
    pub(super) was_whole: bool,
    pub(super) host: Option<String>,
    pub(super) at: Option<Address>,
    pub(super) expects_continue: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) head_timeout: Option<Duration>,
    pub(super) redirects: Option<bool>,
    pub(super) upgrade: Option<String>,
    /// A proxy makes a tunnel, whatever the scheme is.
    pub(super) tunnels: bool,
}

impl RequestBuilder {
    pub(super) fn new(client: Rc<ClientCore>, method: Method, uri: &str) -> Self {
        let uri = uri::parse_uri(uri);
        Self::of_uri(client, method, uri)
    }

    pub(super) fn of_uri(client: Rc<ClientCore>, method: Method, uri: Result<Uri, ClientError>) -> Self {
        let request = uri.map(|uri| Request {
            method,
            uri,
            fields: Fields::new(),
            body: Body::empty(),
            was_whole: true,
            host: None,
            at: None,
            expects_continue: false,
            timeout: None,
            head_timeout: None,
            redirects: None,
            upgrade: None,
            tunnels: false,
        });
        Self { client, request }
    }

    fn change(mut self, change: impl FnOnce(&mut Request) -> Result<(), ClientError>) -> Self {
        if let Ok(request) = &mut self.request
            && let Err(error) = change(request)
        {
            self.request = Err(error);
        }
        self
    }

    /// Adds a field. `Host` replaces the host of the URI, as [`host`](Self::host) does; `Expect: 100-continue` is the same
    /// as [`expect_continue`](Self::expect_continue). The client writes the fields of the connection and of the body's
    /// length by itself, so they are errors here.
    pub fn header(self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        let (name, value) = (name.as_ref(), value.as_ref());
        if name.eq_ignore_ascii_case("host") {
            return match std::str::from_utf8(value) {
                Ok(host) => self.host(host),
                Err(_) => self.change(|_| Err(ClientError::Request(tidegate_http1::InvalidRequest::Host))),
            };
        }
        if name.eq_ignore_ascii_case("expect") && value.eq_ignore_ascii_case(b"100-continue") {
            return self.expect_continue();
        }
        if name.eq_ignore_ascii_case("date") {
            return self.change(|request| Ok(request.fields.push_request_date(value)?));
        }
        self.change(|request| Ok(request.fields.push(name, value)?))
    }

    /// Replaces the fields with a block that was made once, such as a constant one.
    pub fn fields(self, fields: Fields) -> Self {
        self.change(|request| {
            request.fields = fields;
            Ok(())
        })
    }

    /// The value of `Host` in the place of the host of the URI.
    pub fn host(self, host: impl Into<String>) -> Self {
        self.change(|request| {
            request.host = Some(host.into());
            Ok(())
        })
    }

    /// Connects to this address, which may be a Unix socket, in the place of the host of the URI. The URI still decides on
    /// the scheme, on the name of the certificate, and on `Host`. Redirects to another origin are not followed.
    pub fn at(self, address: impl Into<Address>) -> Self {
        self.change(|request| {
            request.at = Some(address.into());
            Ok(())
        })
    }

    /// The body. One of a function or of a stream is sent as fast as the server reads, and chunked unless its length is
    /// known.
    pub fn body(self, body: impl Into<Body>) -> Self {
        self.change(|request| {
            request.body = body.into();
            Ok(())
        })
    }

    /// A value as a JSON body.
    #[cfg(feature = "json")]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.change(|request| {
            let body = serde_json::to_vec(value).map_err(|error| ClientError::Encoding(error.into()))?;
            request.body = body.into();
            set_field(&mut request.fields, "Content-Type", "application/json")
        })
    }

    /// A value as a form: `application/x-www-form-urlencoded`.
    #[cfg(feature = "form")]
    pub fn form<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.change(|request| {
            let body = serde_html_form::to_string(value).map_err(|error| ClientError::Encoding(error.into()))?;
            request.body = body.into();
            set_field(&mut request.fields, "Content-Type", "application/x-www-form-urlencoded")
        })
    }

    /// Adds the pairs of a value to the query of the URI.
    #[cfg(feature = "form")]
    pub fn query<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.change(|request| {
            let pairs = serde_html_form::to_string(value).map_err(|error| ClientError::Encoding(error.into()))?;
            request.uri = uri::with_query(&request.uri, &pairs)?;
            Ok(())
        })
    }

    /// A name and a password (RFC 7617). They are sent to the origin of this request, and to no other one that it is
    /// redirected to.
    pub fn basic_auth(self, name: &str, password: &str) -> Self {
        self.change(|request| set_field(&mut request.fields, "Authorization", &basic_credentials(name, password)))
    }

    /// A bearer token (RFC 6750), as for [`basic_auth`](Self::basic_auth).
    pub fn bearer_auth(self, token: &str) -> Self {
        self.change(|request| set_field(&mut request.fields, "Authorization", &format!("Bearer {token}")))
    }

    /// Passes a trace on: `traceparent` and `tracestate` (W3C Trace Context), whose parent is the span of `context`, in the
    /// place of fields of these names. A request that is sent for another one has the context of that one, or, with a span of
    /// its own, a [child](TraceContext::child) of it. Redirects pass it on as well.
    ///
    /// ```
    /// use tidegate::http::{Client, Extension, TraceContext};
    /// use tidegate::http::client::ClientError;
    ///
    /// async fn level(Extension(trace): Extension<TraceContext>) -> Result<String, ClientError> {
    ///     let client = Client::new();
    ///     client.get("http://gauge.example/level").trace(&trace).send().await?.text().await
    /// }
    /// # drop(level);
    /// ```
    pub fn trace(self, context: &TraceContext) -> Self {
        self.change(|request| {
            set_field(&mut request.fields, "traceparent", &context.traceparent())?;
            request.fields.remove("tracestate");
            match context.tracestate() {
                Some(state) => Ok(request.fields.push("tracestate", state)?),
                None => Ok(()),
            }
        })
    }

    /// Waits for `100 Continue` before the body is sent, at most
    /// [`continue_timeout`](crate::ClientLimits::continue_timeout): a server that refuses the request spares the
    /// body. After a 417 (Expectation Failed) a request whose body is in memory is sent again without waiting.
    pub fn expect_continue(self) -> Self {
        self.change(|request| {
            request.expects_continue = true;
            Ok(())
        })
    }

    /// Asks for another protocol on the connection (RFC 9110 §7.8), such as `websocket`. A server that agrees answers with
    /// 101: then [`Response::into_channel`](crate::Response::into_channel) continues with that protocol. The body has to be in memory.
    pub fn upgrade(self, protocol: impl Into<String>) -> Self {
        self.change(|request| {
            request.upgrade = Some(protocol.into());
            Ok(())
        })
    }

    /// Has a proxy make a tunnel, whatever the scheme is.
    #[cfg(feature = "websocket")]
    pub(super) fn through_tunnel(self) -> Self {
        self.change(|request| {
            request.tunnels = true;
            Ok(())
        })
    }

    /// Whether the request has a field of this name.
    #[cfg(feature = "websocket")]
    pub(super) fn has_header(&self, name: &str) -> bool {
        let is_it = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
        self.request.as_ref().is_ok_and(|request| request.fields.iter().any(|(found, _)| is_it(found)))
    }

    /// How long the request may take, with its redirects, up to the end of the response's body, in the place of
    /// [`request_timeout`](crate::ClientLimits::request_timeout).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.change(|request| {
            request.timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long the head of the response may take once the request is sent, where that is shorter than
    /// [`head_timeout`](crate::ClientLimits::head_timeout).
    pub fn head_timeout(self, timeout: Duration) -> Self {
        self.change(|request| {
            request.head_timeout = Some(timeout);
            Ok(())
        })
    }

    /// Whether redirects of this request are followed, in the place of
    /// [`ClientBuilder::redirects`](crate::ClientBuilder::redirects).
    pub fn redirects(self, follows: bool) -> Self {
        self.change(|request| {
            request.redirects = Some(follows);
            Ok(())
        })
    }
}

pub(super) fn set_field(fields: &mut Fields, name: &str, value: &str) -> Result<(), ClientError> {
    fields.remove(name);
    Ok(fields.push(name, value)?)
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RequestBuilder");
        match &self.request {
            // Fields may have credentials.
            Ok(request) => debug.field("method", &request.method).field("uri", &request.uri),
            Err(error) => debug.field("error", error),
        };
        debug.finish_non_exhaustive()
    }
}
