//! An HTTP/1.1 gateway, with the server and the client role, over loopback.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http1::client::{Config, Outgoing};
use tidegate::http1::{Incoming, Method, Request, Response, Status, StreamedRequest, client};
use tidegate::{Backend, Channel, Client, EventLoop, Server, http1, task};

type Any = Box<dyn Error>;

async fn answer(mut channel: Channel<http1::Server>) -> Result<(), Any> {
    while let Some(Incoming::Head(head)) = channel.recv().await? {
        channel.send(Response::text(head.target().to_owned()).into())?;
    }
    Ok(())
}

/// Forwards each request to the backend, on one persistent connection.
async fn forward(mut near: Channel<http1::Server>, backend: String) -> Result<(), Any> {
    let config = Arc::new(Config::default().host("backend")?);
    let mut far = Client::to(&backend)?.connect(http1::Client::new(config)).await?;
    while let Some(Incoming::Head(head)) = near.recv().await? {
        far.send(Request::get(head.target())?.into())?;
        let mut body = Vec::new();
        loop {
            match far.recv().await?.ok_or("the backend has closed")? {
                client::Incoming::Data(data) => body.extend_from_slice(&data),
                client::Incoming::End => break,
                _ => {}
            }
        }
        near.send(Response::text(body).into())?;
    }
    Ok(())
}

fn ask(stream: &mut TcpStream, target: &str) -> String {
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("a peer that reads");
    let mut answer = Vec::new();
    while !answer.ends_with(target.as_bytes()) {
        let mut piece = [0; 1024];
        let length = stream.read(&mut piece).expect("an answer");
        assert!(length > 0, "no answer, but {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..length]);
    }
    String::from_utf8(answer).expect("answers are text")
}

/// The drain reaches connections that tasks have opened only after the last of these tasks has ended.
#[test]
fn a_draining_gateway_still_forwards_to_its_backend() {
    let backend = Server::bind("127.0.0.1:0").expect("an address").loops(1).serve(http1::Server::default, answer);
    let backend = backend.expect("a server");
    let address = backend.address().to_string();
    let gateway = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let gateway = gateway.serve(http1::Server::default, move |near| forward(near, address.clone()));
    let gateway = gateway.expect("a server");
    let front = gateway.address().to_string();
    let mut near = TcpStream::connect(&front).expect("it accepts");
    assert!(ask(&mut near, "/ebb").starts_with("HTTP/1.1 200 OK\r\n"));
    let draining = std::thread::spawn(move || gateway.drain(Duration::from_secs(120)));
    while TcpStream::connect(&front).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let last = ask(&mut near, "/flow");
    assert!(last.starts_with("HTTP/1.1 200 OK\r\n") && last.contains("\r\nConnection: close\r\n"), "{last}");
    draining.join().expect("it drains");
}

async fn refuse(mut channel: Channel<http1::Server>) -> Result<(), Any> {
    while let Some(Incoming::Head(_)) = channel.recv().await? {
        channel.send(Response::new(Status::CONTENT_TOO_LARGE).close().into())?;
    }
    Ok(())
}

/// The write half gets an error since the connection is closed; the read half still gets the response before it.
#[test]
fn a_client_reads_the_refusal_of_a_body_that_it_is_still_sending() {
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).serve(http1::Server::default, refuse);
    let server = server.expect("a server");
    let address = server.address().to_string();
    let upload = async {
        let config = Arc::new(Config::default().host("a")?);
        let (mut reader, mut writer) = Client::to(&address)?.connect(http1::Client::new(config)).await?.split();
        let sending = async {
            writer.send(StreamedRequest::new(Method::Put, "/tide")?.into())?;
            loop {
                writer.ready().await?;
                writer.send(Outgoing::Data(vec![b'~'; 10_000].into()))?;
            }
        };
        let receiving = async {
            let Some(client::Incoming::Head(head)) = reader.recv().await? else { return Err("no head".into()) };
            Ok::<_, Any>(head.status())
        };
        let sent = async { Ok::<Result<(), Any>, Any>(sending.await) };
        task::try_join(sent, receiving).await
    };
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let (sent, status) = event_loop.block_on(upload).expect("no panic").expect("an answer");
    assert_eq!(status, Status::CONTENT_TOO_LARGE);
    assert!(sent.is_err(), "the peer has closed");
}
