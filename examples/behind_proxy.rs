//! The address of a client behind a proxy, by the PROXY protocol: a handler and a channel that answer with it.
//!
//! ```sh
//! cargo run --example behind_proxy -- 127.0.0.1:7000
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::proxy_protocol::{Builder, Header, Networks, Policy, ReceivesHeader, SendsHeader};
use tidegate::{
    Address, Channel, ChannelError, Client, Context, EventLoop, Handler, Listener, Outcome, Server, ServerHandle,
    Slice, StartError,
};

/// Answers each line with the address of the client.
struct Whoami;

impl Handler<ReceivesHeader<Lines>> for Whoami {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, ReceivesHeader<Lines>>) -> Outcome<ReceivesHeader<Lines>> {
        let client = client(cx.codec().header(), &cx.peer());
        cx.send(client.into()).into()
    }
}

/// The same as a task. It takes the header, so that an idle connection keeps no memory for it.
async fn whoami(mut channel: Channel<ReceivesHeader<Lines>>) -> Result<(), ChannelError> {
    let Some(mut line) = channel.recv().await? else { return Ok(()) };
    let header = channel.with_codec(ReceivesHeader::take_header)?;
    let client = client(header.as_ref(), &channel.peer()?);
    loop {
        println!("{client}: {}", line.escape_ascii());
        channel.send(client.clone().into())?;
        match channel.recv().await? {
            Some(next) => line = next,
            None => return Ok(()),
        }
    }
}

/// The address that the proxy has reported. Without one, as for a check of the proxy itself, the peer is the client.
fn client(header: Option<&Header>, peer: &Address) -> String {
    header.and_then(Header::source).map_or_else(|| peer.to_string(), |source| source.to_string())
}

/// Serves handlers at the first address and channels at the second. Only proxies on this machine are believed.
fn start(handlers: &str, channels: &str) -> Result<ServerHandle, StartError> {
    let policy = Arc::new(Policy::required(Networks::local()));
    let codec = move |peer: &Address| ReceivesHeader::new(&policy, peer.ip().map(|address| address.ip()), Lines::new());
    let other = codec.clone();
    Server::new()
        .listener(Listener::bind(handlers)?.handle_each(move |_| {
            let codec = codec.clone();
            move |peer: &Address| (codec(peer), Whoami)
        }))
        .listener(Listener::bind(channels)?.serve_each(move |_| (other.clone(), whoami)))
        .run()
}

/// Connects as a proxy does, on behalf of a client.
async fn ask(server: &Address, client: SocketAddr) -> Result<String, Box<dyn Error>> {
    let header = Builder::new(client, "198.51.100.1:443".parse()?).authority("sea.example").checksum().build_v2()?;
    let proxy = Client::at(server.clone());
    let mut channel = proxy.connect(SendsHeader::new(header, Lines::new())).await?;
    channel.send("who am I?".into())?;
    let answer = channel.recv().await?.ok_or("the server has closed")?;
    Ok(String::from_utf8(answer.to_vec())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args().nth(1) {
        start(&address, "127.0.0.1:0")?.wait();
        return Ok(());
    }
    let server = start("127.0.0.1:0", "127.0.0.1:0")?;
    for listener in server.listeners() {
        let address = listener.addresses()[0].clone();
        let mut event_loop = EventLoop::on(tidegate::Backend::Auto)?;
        let answer = event_loop.block_on(async move { ask(&address, "192.0.2.1:50000".parse()?).await })??;
        println!("the server sees {answer}");
        assert_eq!(answer, "192.0.2.1:50000");
    }
    server.drain(Duration::from_secs(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate::Limits;
    use tidegate_testkit::Embedded;

    use super::*;

    fn answer(policy: Policy, peer: [u8; 4], bytes: &[u8]) -> (String, bool) {
        let codec = ReceivesHeader::new(&Arc::new(policy), Some(peer.into()), Lines::new());
        let mut pipe = Embedded::with_limits(codec, Whoami, Limits::default());
        pipe.receive(bytes);
        pipe.run();
        (String::from_utf8(pipe.take_written()).unwrap(), pipe.is_write_closed() || pipe.is_closed())
    }

    #[test]
    fn the_client_is_the_one_that_the_proxy_reports_and_only_a_trusted_proxy_is_believed() {
        let wire = b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\nwho am I?\n";
        let required = || Policy::required(Networks::local());
        assert_eq!(answer(required(), [127, 0, 0, 1], wire), ("192.0.2.1:50000\n".into(), false));
        assert_eq!(answer(required(), [10, 0, 0, 1], wire), (String::new(), true));
        assert_eq!(answer(required(), [127, 0, 0, 1], b"who am I?\n"), (String::new(), true));
        let optional = || Policy::optional(Networks::local());
        let (own, closed) = answer(optional(), [127, 0, 0, 1], b"who am I?\n");
        assert!(!closed && own != "192.0.2.1:50000\n", "{own}");
    }
}
