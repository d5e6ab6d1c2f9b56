//! Tasks that serve one connection by another: the effects of a drain, and of a broken connection, on both.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use tidegate_codec::framing::{Lines, Raw};
use tidegate_engine::{Channel, Client, EventLoop, Server, ServerHandle, task};

type Any = Box<dyn Error>;

/// Passes the other server's bytes on.
async fn download(mut near: Channel<Raw>, upstream: Client) -> Result<(), Any> {
    let mut far = upstream.connect(Raw).await?;
    while let Some(bytes) = far.recv().await? {
        near.send(bytes.into())?;
        near.ready().await?;
    }
    Ok(())
}

/// A forwarder, its client, and the other server's end.
fn forwarder() -> (ServerHandle, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Client::at(listener.local_addr().unwrap());
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let server = server.serve(|| Raw, move |near| download(near, upstream.clone())).unwrap();
    let client = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (far, _) = listener.accept().unwrap();
    (server, client, far)
}

#[test]
fn a_drain_spares_client_connections_that_serving_tasks_need() {
    let (server, mut client, mut far) = forwarder();
    far.write_all(b"ebb").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    let address = server.address().ip().unwrap();
    let drain = std::thread::spawn(move || server.drain(PATIENCE));
    // The drain has begun when the listener is closed.
    while TcpStream::connect(address).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    far.write_all(b" and flow").unwrap();
    drop(far);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b" and flow");
    drop(client);
    drain.join().unwrap();
}

#[test]
fn a_forwarder_passes_an_upstream_reset_on_as_a_reset() {
    let (server, mut client, mut far) = forwarder();
    far.write_all(b"ebb").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    server.drain(PATIENCE);
}

#[test]
fn a_drain_ends_client_connections_once_no_serving_task_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::at(listener.local_addr().unwrap());
    let mut event_loop = EventLoop::readiness().unwrap();
    let mut channel = event_loop.block_on(async move { client.connect(Lines::new()).await.unwrap() }).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let listening = event_loop.spawn(async move { channel.recv().await.unwrap().is_none() && channel.is_draining() });
    // The deadline is never reached: the end of the connection, which its peer reports, comes before the loop has ended.
    event_loop.drain(NEVER);
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || ended.send(far.read_to_end(&mut Vec::new()).is_ok()));
    event_loop.run().unwrap();
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(true));
    assert!(event_loop.block_on(listening).unwrap().unwrap());
}

#[test]
fn a_connection_made_during_a_drain_is_notified_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::at(listener.local_addr().unwrap());
    let mut event_loop = EventLoop::readiness().unwrap();
    let connecting = event_loop.spawn(async move {
        task::sleep(Duration::from_millis(20)).await;
        let mut channel = client.connect(Lines::new()).await.unwrap();
        channel.recv().await.unwrap().is_none()
    });
    // A serving task, for which the drain waits meanwhile.
    let kept = Client::at(listener.local_addr().unwrap());
    let mut kept = event_loop.block_on(async move { kept.connect(Lines::new()).await.unwrap() }).unwrap();
    event_loop.spawn(async move { while kept.recv().await.is_ok_and(|line| line.is_none()) && !kept.is_draining() {} });
    event_loop.drain(PATIENCE);
    assert!(event_loop.block_on(connecting).unwrap().unwrap());
}

const PATIENCE: Duration = Duration::from_secs(120);

/// A deadline that no test reaches: one that waits for it hangs.
const NEVER: Duration = Duration::from_secs(30 * 86_400);
