//! DNS over HTTPS (RFC 8484): the routes of a server, and a server that a resolver asks. They are here, since the HTTP
//! crates and the DNS crate do not know each other.

#[cfg(feature = "http-client")]
pub use self::client::name_server;
#[cfg(feature = "http-server")]
pub use self::server::{DNS_PATH, dns_router};

/// The media type of messages.
const MESSAGE: &str = "application/dns-message";

#[cfg(feature = "http-server")]
mod server {
    use bytes::Bytes;
    use tidegate_dns::MessageView;
    use tidegate_dns::server::{LoopHandlers, QueryHandler, from_base64url};
    use tidegate_http::{ContentType, IntoResponse, Request, Response, Router, StatusCode};

    use super::MESSAGE;

    /// The path of [`dns_router`].
    pub const DNS_PATH: &str = "/dns-query";

    /// DNS over HTTPS (RFC 8484) at [`DNS_PATH`], with the handlers of a [`DnsServer`](tidegate_dns::server::DnsServer): GET with the
    /// parameter `dns`, and POST. Each loop makes it once.
    ///
    /// Responses have the time for which they hold in `Cache-Control` (RFC 8484 §5.1). A message that cannot be read is
    /// answered with 400, one of more than 65,535 bytes with 413, a body of another media type with 415, and another method
    /// with 405. Errors of DNS are answers, with 200.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tidegate::Listener;
    /// use tidegate::dns::Zone;
    /// use tidegate::dns::server::DnsServer;
    /// use tidegate::http::{self, dns_router};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None)?);
    /// let server = DnsServer::bind("127.0.0.1:0")?.loops(1);
    /// let handlers = server.handlers(move |_loop| zone.clone());
    /// let of_https = handlers.clone();
    /// // Browsers need `tls` here.
    /// let config = http::Config::new();
    /// let https = config.serve(Listener::bind("127.0.0.1:0")?, move || dns_router(&of_https));
    /// let server = server.listener(https).start_with(&handlers)?;
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn dns_router<H: QueryHandler + 'static>(handlers: &LoopHandlers<H>) -> Router {
        let (of_get, of_post) = (handlers.clone(), handlers.clone());
        let get = move |request: Request| {
            let handlers = of_get.clone();
            async move {
                let Some(query) = parameter(&request).and_then(from_base64url) else { return bad_request() };
                answer(&handlers, &request, &query).await
            }
        };
        let post = move |body: Bytes, request: Request| {
            let handlers = of_post.clone();
            async move {
                if !has_message(&request) {
                    return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
                }
                answer(&handlers, &request, &body).await
            }
        };
        Router::new().get(DNS_PATH, get).post(DNS_PATH, post).body_bytes_max(u64::from(u16::MAX))
    }

    async fn answer<H: QueryHandler + 'static>(
        handlers: &LoopHandlers<H>,
        request: &Request,
        query: &[u8],
    ) -> Response {
        let Some(service) = handlers.of_this_loop() else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let Ok(message) = service.answer(query, request.client().ip()).await else { return bad_request() };
        let seconds = MessageView::parse(&message).ok().and_then(|view| view.seconds_to_live()).unwrap_or(0);
        let response = Response::new().content_type(ContentType::from_static(MESSAGE));
        let response = response.header("Cache-Control", format!("max-age={seconds}"));
        response.map_or_else(|_| bad_request(), |response| response.body(message.into_bytes()))
    }

    /// The value of the parameter `dns`.
    fn parameter(request: &Request) -> Option<&[u8]> {
        let parameters = request.query()?.split('&');
        parameters.filter_map(|parameter| parameter.strip_prefix("dns=")).map(str::as_bytes).next()
    }

    fn has_message(request: &Request) -> bool {
        let media_type = request.header_str("content-type").unwrap_or_default();
        let name = media_type.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(MESSAGE)
    }

    fn bad_request() -> Response {
        StatusCode::BAD_REQUEST.into_response()
    }
}

#[cfg(feature = "http-client")]
mod client {
    use std::error::Error;

    use tidegate_dns::{EncodedMessage, Exchanging, NameServer};
    use tidegate_http_client::Client;

    use super::MESSAGE;

    /// A server that a [`StubResolver`](tidegate_dns::StubResolver) asks over HTTPS (RFC 8484), by POST to a URI such as
    /// `https://dns.example/dns-query`. Each loop makes its client once, whose settings have the authorities, and a
    /// [`Resolve`](tidegate_engine::Resolve) for the host of the URI, which the resolver itself cannot look up.
    ///
    /// ```no_run
    /// use tidegate::dns::{CacheConfig, ResolverConfig, SharedCache, StubResolver};
    /// use tidegate::http::{Client, name_server};
    /// use tidegate::tls::{ClientConfig, Provider};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = ClientConfig::builder_with_root_file(&Provider::aws_lc_rs(), "ca.pem".as_ref())?.build()?;
    /// let server = name_server("https://192.0.2.53/dns-query", move || Client::builder().tls(tls.clone()).build());
    /// let resolver = StubResolver::new(vec![server], ResolverConfig::default(), SharedCache::new(CacheConfig::default()));
    /// # drop(resolver);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name_server(uri: impl Into<String>, client: impl Fn() -> Client + Send + Sync + 'static) -> NameServer {
        let uri = uri.into();
        NameServer::by_requests(move || {
            let (client, uri) = (client(), uri.clone());
            move |query: EncodedMessage| -> Exchanging { Box::pin(exchange(client.clone(), uri.clone(), query)) }
        })
    }

    async fn exchange(client: Client, uri: String, query: EncodedMessage) -> Result<Vec<u8>, Box<dyn Error>> {
        let request = client.post(&uri).header("Content-Type", MESSAGE).header("Accept", MESSAGE);
        let response = request.body(query.into_bytes()).send().await?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("the server answers with {status}").into());
        }
        Ok(response.bytes().await?.to_vec())
    }
}
