//! An HTTP client: prints the bodies of URLs, of `http` and of `https`.
//!
//! ```text
//! cargo run --example fetch                                                    # starts its own server, checks it, and exits
//! cargo run --release --example fetch -- https://example.com/                  # prints the body
//! cargo run --release --example fetch -- http://127.0.0.1:8080/a http://127.0.0.1:8080/b
//! ```
//!
//! It follows redirects, decompresses, and uses the proxies that the environment names. The body goes to the standard output
//! piece by piece, as it arrives; a status of 400 and more is an error, after the body.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;

use tidegate::compress::DecompressionLimits;
use tidegate::http::client::{Handle, Proxies};
use tidegate::http::{Client, Router, Server};
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Backend, EventLoop};

type Any = Box<dyn Error>;

fn client() -> Result<Client, Any> {
    let tls = ClientConfig::builder_with_platform_roots(&Provider::aws_lc_rs())?.build()?;
    let client = Client::builder().tls(tls).proxies(Proxies::from_environment()?);
    Ok(client.decompression(DecompressionLimits::default()).build())
}

/// Writes the body of a URL to `out`.
async fn fetch(client: &Client, url: &str, out: &mut impl Write) -> Result<(), Any> {
    let mut response = client.get(url).send().await?;
    while let Some(piece) = response.body_mut().next().await.transpose()? {
        out.write_all(&piece)?;
    }
    response.error_for_status()?;
    Ok(())
}

/// The same from any thread, for example in a tokio task.
async fn text(handle: &Handle, url: &str) -> Result<String, Any> {
    let response = handle.get(url).header("Accept", "text/plain").send().await?;
    let body = response.into_body().bytes(1_000_000).await?;
    Ok(String::from_utf8(body.to_vec())?)
}

fn main() -> Result<(), Any> {
    let urls: Vec<_> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        return demonstrate();
    }
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = client()?;
        let mut out = std::io::stdout();
        for url in &urls {
            fetch(&client, url, &mut out).await?;
        }
        out.flush()?;
        Ok(())
    })?
}

/// Fetches from a server of its own.
fn demonstrate() -> Result<(), Any> {
    let router = || Router::new().get("/ebb", || "ebb").get("/flow", async || "flow");
    let server = Server::bind("127.0.0.1:0")?.loops(1).start(router)?;
    let url = format!("http://{}", server.address());
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let (client, mut out) = (Client::new(), Vec::new());
        for path in ["ebb", "flow"] {
            fetch(&client, &format!("{url}/{path}"), &mut out).await?;
        }
        assert_eq!(out, b"ebbflow");
        assert_eq!(client.connections(), 1, "both come over one connection");
        assert!(fetch(&client, &format!("{url}/nothing"), &mut out).await.is_err(), "it is a 404");
        let handle = Client::spawn(Client::new)?;
        assert_eq!(text(&handle, &format!("{url}/flow")).await?, "flow");
        println!("fetched {} bytes from {url}", out.len());
        Ok(())
    })?
}
