//! Tunnels through SOCKS proxies.

use tidegate_codec::Pipeline;
use tidegate_engine::{self as engine, Channel};
use tidegate_socks as socks;

use super::error::{ProxyError, UpstreamError, proxy_closed};
use super::forward_proxy::{ForwardProxy, ProxyKind};

/// Has a SOCKS proxy connect to a server. The channel carries the bytes of the server then.
pub(super) async fn connect<D: Pipeline>(
    connect: &engine::Client,
    proxy: &ForwardProxy,
    target: socks::Target,
    codec_of_server: D,
) -> Result<Channel<D>, UpstreamError> {
    let misuse = |_| UpstreamError::Proxy(ProxyError::Target);
    let mut codec = match proxy.kind {
        ProxyKind::Socks4 | ProxyKind::Socks4a => {
            let user = proxy.credentials.as_ref().map_or("", |(user, _)| user);
            socks::Client::v4(target, user).map_err(misuse)?
        }
        _ => socks::Client::v5(target),
    };
    if let Some((user, password)) = &proxy.credentials
        && matches!(proxy.kind, ProxyKind::Socks5 | ProxyKind::Socks5h)
    {
        codec = codec.credentials(user, password).map_err(misuse)?;
    }
    let mut channel = connect.connect(codec).await.map_err(UpstreamError::Connect)?;
    match channel.recv().await.map_err(proxy_closed)? {
        Some(Ok(_)) => {}
        Some(Err(refusal)) => return Err(UpstreamError::Proxy(ProxyError::Socks(refusal))),
        None => return Err(UpstreamError::Proxy(ProxyError::Ended)),
    }
    channel.switch(|_| codec_of_server).map_err(proxy_closed)
}
