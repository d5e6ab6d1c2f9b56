//! Tunnels through proxies of SOCKS.

use tidegate_codec::Pipeline;
use tidegate_engine::{self as engine, Channel};
use tidegate_socks as socks;

use super::error::{ClientError, ProxyError, proxy_closed};
use super::proxy::{Proxy, ProxyKind};

/// Has a proxy of SOCKS connect to an origin. The channel carries the bytes of the origin then.
pub(super) async fn connect<D: Pipeline>(
    connect: &engine::Client,
    proxy: &Proxy,
    target: socks::Target,
    codec_of_origin: D,
) -> Result<Channel<D>, ClientError> {
    let misuse = |_| ClientError::Proxy(ProxyError::Target);
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
    let mut channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
    match channel.recv().await.map_err(proxy_closed)? {
        Some(Ok(_)) => {}
        Some(Err(refusal)) => return Err(ClientError::Proxy(ProxyError::Socks(refusal))),
        None => return Err(ClientError::Proxy(ProxyError::Ended)),
    }
    channel.switch(|_| codec_of_origin).map_err(proxy_closed)
}
