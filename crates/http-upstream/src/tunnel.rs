//! Tunnels through HTTP proxies: CONNECT (RFC 9110 §9.3.6).

use tidegate_codec::{Filters, Pipeline};
use tidegate_engine::Channel;
use tidegate_http1::client::Incoming;
use tidegate_http1::{Method, Request};

use super::codec::ClientCodec;
use super::error::{ProxyError, UpstreamError, proxy_closed};
use super::forward_proxy::ForwardProxy;

/// Has an HTTP proxy connect to a server. The channel carries the bytes of the server then, with the codec that `to`
/// makes for it.
pub(super) async fn connect<C: ClientCodec, D: Pipeline>(
    mut channel: Channel<C>,
    proxy: &ForwardProxy,
    authority: String,
    to: impl FnOnce(Filters) -> D + 'static,
) -> Result<Channel<D>, UpstreamError> {
    let mut request = Request::new(Method::Connect, authority)?;
    if let Some(authorization) = proxy.authorization() {
        request = request.field("Proxy-Authorization", authorization)?;
    }
    if let Err(error) = channel.send(request.into()) {
        return Err(proxy_closed(error.into()));
    }
    loop {
        match channel.recv().await.map_err(proxy_closed)? {
            Some(Incoming::Head(head)) if (200..300).contains(&head.status().code()) => break,
            Some(Incoming::Head(head)) => return Err(UpstreamError::Proxy(ProxyError::Refused(head.status()))),
            Some(_) => {}
            None => return Err(UpstreamError::Proxy(ProxyError::Ended)),
        }
    }
    channel.switch(|codec| to(codec.into_filters())).map_err(proxy_closed)
}
