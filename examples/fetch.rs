//! An HTTP/1.1 client: requests URLs in sequence on one connection, and prints the status and length of each response.
//!
//! ```text
//! cargo run --example fetch                                           # starts its own server, checks it, and exits
//! cargo run --example fetch -- http://127.0.0.1:8080/ /bytes/5000     # requests the URL, and then another target
//! cargo run --example fetch -- --post 1073741824 http://127.0.0.1:8080/echo
//! ```
//!
//! `--post BYTES` sends a chunked body of this length with each request, and waits while the peer does not read.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use tidegate::http1::client::{Config, Incoming, Outgoing};
use tidegate::http1::{Method, Request, StreamedRequest, client};
use tidegate::{Backend, Channel, Client, EventLoop, ReadHalf, Server, WriteHalf, http1, task};

type Any = Box<dyn Error>;

/// The requests.
struct Asked {
    host: String,
    targets: Vec<String>,
    post: Option<u64>,
}

/// The status and length of a response.
struct Fetched {
    status: u16,
    bytes: u64,
}

async fn fetch_all(asked: &Asked) -> Result<Vec<Fetched>, Any> {
    let config =
        Arc::new(Config::new(client::Limits { body_bytes_max: u64::MAX, ..Default::default() }).host(&asked.host)?);
    let client = Client::to(&asked.host)?;
    let (mut reader, mut writer) = client.connect(http1::Client::new(config)).await?.split();
    let mut fetched = Vec::new();
    for target in &asked.targets {
        writer.send(match asked.post {
            None => Request::get(target)?.into(),
            Some(_) => StreamedRequest::new(Method::Post, target)?.into(),
        })?;
        let uploading = async {
            // A server may refuse the body and close while it is being sent: the response matters, not this error.
            let _: Result<(), Any> = upload(&mut writer, asked.post).await;
            Ok(())
        };
        // Concurrently: a peer that echoes stops reading while we do not read from it.
        let ((), response) = task::try_join(uploading, receive(&mut reader)).await?;
        println!("{} {target} {} bytes", response.status, response.bytes);
        fetched.push(response);
    }
    Ok(fetched)
}

/// Sends a body of `post` bytes, if there is one, as fast as the peer reads.
async fn upload(writer: &mut WriteHalf<http1::Client>, post: Option<u64>) -> Result<(), Any> {
    let Some(mut rest) = post else { return Ok(()) };
    while rest > 0 {
        writer.ready().await?;
        let length = rest.min(PIECE.len() as u64);
        writer.send(Outgoing::Data(PIECE[..length as usize].into()))?;
        rest -= length;
    }
    writer.send(Outgoing::End)?;
    Ok(())
}

/// Receives the response to one request.
async fn receive(reader: &mut ReadHalf<http1::Client>) -> Result<Fetched, Any> {
    let mut fetched = Fetched { status: 0, bytes: 0 };
    while let Some(incoming) = reader.recv().await? {
        match incoming {
            Incoming::Interim(_) | Incoming::Trailers(_) => {}
            Incoming::Head(head) => {
                fetched.status = head.status().code();
                if !head.has_body() {
                    return Ok(fetched);
                }
            }
            Incoming::Data(data) => fetched.bytes += data.len() as u64,
            Incoming::End => return Ok(fetched),
        }
    }
    Err("the connection ended before the response".into())
}

fn main() -> Result<(), Any> {
    let mut names: Vec<_> = std::env::args().skip(1).collect();
    if names.is_empty() {
        return demonstrate();
    }
    let post = if names[0] == "--post" {
        let bytes = names.get(1).ok_or("--post needs a number of bytes")?.parse()?;
        names.drain(..2);
        Some(bytes)
    } else {
        None
    };
    let url = names.first().ok_or("a URL is missing")?;
    let rest = url.strip_prefix("http://").ok_or("a URL begins with http://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, path) = (host.to_owned(), if path.is_empty() { "/" } else { path }.to_owned());
    names[0] = path;
    EventLoop::on(Backend::Auto)?.block_on(fetch_all(&Asked { host, targets: names, post }))?.map(drop)
}

/// Checks a server of its own, which responds with the length of the body.
fn demonstrate() -> Result<(), Any> {
    let server = Server::bind("127.0.0.1:0")?.loops(1).serve(http1::Server::default, serve)?;
    let asked = |targets: &[&str], post| Asked {
        host: server.address().to_string(),
        targets: targets.iter().map(ToString::to_string).collect(),
        post,
    };
    for asked in [asked(&["/ebb", "/flow"], None), asked(&["/tide"], Some(1_000_000))] {
        let fetched = EventLoop::on(Backend::Auto)?.block_on(fetch_all(&asked))??;
        assert!(fetched.iter().all(|one| one.status == 200 && one.bytes > 0), "the server answers all");
    }
    Ok(())
}

async fn serve(mut channel: Channel<http1::Server>) -> Result<(), Any> {
    let mut bytes = 0;
    while let Some(incoming) = channel.recv().await? {
        let is_whole = match incoming {
            http1::Incoming::Head(head) => !head.has_body(),
            http1::Incoming::Data(data) => {
                bytes += data.len();
                false
            }
            http1::Incoming::Trailers(_) | http1::Incoming::Preface => false,
            http1::Incoming::End => true,
        };
        if is_whole {
            channel.send(http1::Response::text(format!("{bytes} bytes came")).into())?;
            bytes = 0;
        }
    }
    Ok(())
}

/// The content of uploads, repeated.
static PIECE: [u8; 16 * 1024] = [b'~'; 16 * 1024];
