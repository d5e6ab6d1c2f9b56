//! The client against servers that are written by hand: PONGs that are late, connections that break, a server that reads nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Backend, Channel, EventLoop, Limits, task};
use tidegate_nats::{Broker, Client, ClientError, Failure, Handler, OutgoingMessage, ServerCodec, SubscriberEvent};
use tidegate_testkit::network::Network;

use crate::support::next_message;

type PeerResult = Result<(), Box<dyn std::error::Error>>;

/// The server's end of a connection.
struct Peer {
    channel: Channel<Raw>,
    received: Vec<u8>,
}

impl Peer {
    /// Answers the beginning of a connection.
    async fn greet(channel: Channel<Raw>) -> Result<Self, Box<dyn std::error::Error>> {
        let mut peer = Self { channel, received: Vec::new() };
        peer.send("INFO {\"server_id\":\"a\",\"max_payload\":1048576,\"headers\":true}\r\n")?;
        assert!(peer.line().await?.starts_with("CONNECT {"));
        peer.expect("PING").await?;
        peer.send("PONG\r\n")?;
        Ok(peer)
    }

    fn send(&mut self, text: &str) -> PeerResult {
        self.channel.send(text.as_bytes().to_vec().into())?;
        Ok(())
    }

    async fn line(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        loop {
            if let Some(end) = self.received.windows(2).position(|end| end == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).collect();
                return Ok(String::from_utf8(line)?.trim_end().to_owned());
            }
            let more = self.channel.recv().await?.ok_or("the client closes the connection")?;
            self.received.extend_from_slice(&more);
        }
    }

    async fn expect(&mut self, line: &str) -> PeerResult {
        let received = self.line().await?;
        if received == line { Ok(()) } else { Err(format!("{received:?} in the place of {line:?}").into()) }
    }
}

/// Runs a test with a server that serves each connection this way.
fn run<S, T>(serve: impl Fn(Channel<Raw>) -> S + 'static, test: impl FnOnce(Client) -> T + 'static)
where
    S: Future<Output = PeerResult> + 'static,
    T: Future<Output = ()> + 'static,
{
    let network = Network::new(7);
    let server = network.host("10.0.0.1").node();
    server.serve(4222, Limits::default(), || Raw, serve).expect("a port");
    let node = network.host("10.0.0.2").node();
    let testing = node.spawn(async move {
        test(Client::to("10.0.0.1").expect("an address").backoff(SHORT, SHORT).start()).await;
    });
    network.run_task(Duration::from_secs(600), testing);
}

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn a_drain_waits_for_the_pong_of_the_ping_behind_its_unsub() {
    let serve = |channel| async move {
        let mut peer = Peer::greet(channel).await?;
        peer.expect("SUB a 1").await?;
        peer.expect("PING").await?;
        peer.send("PONG\r\n")?;
        // The PING of a flush before the drain, whose PONG is late.
        peer.expect("PING").await?;
        peer.expect("UNSUB 1").await?;
        peer.expect("PING").await?;
        peer.send("PONG\r\nMSG a 1 3\r\nebb\r\nPONG\r\n")?;
        peer.line().await.map(drop)
    };
    run(serve, |client| async move {
        let mut tides = client.subscribe("a").expect("a filter");
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
        let of_flush = client.clone();
        let flushing = task::spawn(async move { of_flush.flush().await });
        task::sleep(SHORT).await;
        tides.drain().await.expect("the server answers");
        assert_eq!(flushing.await.expect("no panic"), Ok(()));
        assert_eq!(next_message(&mut tides).await.payload, "ebb");
        assert_eq!(tides.recv().await, None);
    });
}

#[test]
fn a_flush_fails_once_after_messages_that_a_lost_connection_may_have_lost() {
    let serve = |channel| async move {
        let mut peer = Peer::greet(channel).await?;
        peer.expect("PING").await?;
        peer.send("PONG\r\n")?;
        loop {
            match &*peer.line().await? {
                "PING" => peer.send("PONG\r\n")?,
                // The payload; the connection breaks behind it.
                "lost" => return Ok(()),
                _ => {}
            }
        }
    };
    run(serve, |client| async move {
        client.publish("a", "kept").expect("it is taken");
        client.flush().await.expect("the server answers");
        client.publish("a", "lost").expect("it is taken");
        while client.counts().connections < 2 {
            task::sleep(SHORT).await;
        }
        assert_eq!(client.flush().await, Err(ClientError::MaybeProcessed(Failure::ConnectionLost)));
        assert_eq!(client.flush().await, Ok(()));
    });
}

#[test]
fn a_connection_that_drains_closes_with_the_last_reply() {
    let network = Network::new(7);
    let broker = Broker::default();
    let make = move |_: &_| (ServerCodec::default(), Handler::new(&broker));
    network.host("10.0.0.1").node().listen(4222, Limits::default(), make).expect("the port is free");
    let client = || Client::to("10.0.0.1").expect("an address").start();
    let answering = network.host("10.0.0.2").node().spawn(async move {
        let client = client();
        let mut requests = client.subscribe("shout").expect("a filter");
        let request = next_message(&mut requests).await;
        task::sleep(Duration::from_secs(1)).await;
        client.publish(request.reply.expect("a request has it"), "EBB").expect("it is taken");
        client.flush().await.expect("the server answers");
    });
    let node = network.host("10.0.0.3").node();
    let asking = node.spawn(async move {
        let client = client();
        client.flush().await.expect("the server answers");
        task::sleep(Duration::from_secs(1)).await;
        let reply = client.request("shout", "ebb").await;
        // The client is still there when the reply has come.
        task::draining().await;
        (client, reply)
    });
    network.run_until(Duration::from_millis(1500), || false);
    node.drain(Duration::from_secs(3600));
    let (client, reply) = network.run_task(Duration::from_secs(60), asking);
    assert_eq!(reply.expect("a reply").payload, "EBB");
    network.run_task(Duration::from_secs(60), answering);
    assert!(network.run_until(Duration::from_secs(60), || node.is_drained()), "the connection stays open");
    drop(client);
}

#[test]
fn requests_expire_in_time_behind_bytes_that_the_server_does_not_read() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(b"INFO {\"max_payload\":1048576,\"headers\":true}\r\n").expect("it is sent");
            let mut lines = BufReader::new(stream.try_clone().expect("a copy"));
            for _ in 0..2 {
                lines.read_line(&mut String::new()).expect("a line");
            }
            // Those of CONNECT, of the subscribers and of the flush.
            stream.write_all(&b"PONG\r\n".repeat(3)).expect("it is sent");
            (stream, lines)
        });
        let test = async move {
            let long = Duration::from_secs(3600);
            let client = Client::to(&address).expect("an address").timeout(long).ping_after(long).start();
            client.flush().await.expect("the server answers");
            let message = Bytes::from(vec![b'x'; 1 << 20]);
            (0..24).for_each(|_| client.publish("a", message.clone()).expect("it is taken"));
            task::sleep(Duration::from_millis(50)).await;
            let patient = client.request_with(OutgoingMessage::new("a", ""), long);
            task::sleep(Duration::from_millis(50)).await;
            let hasty = client.request_with(OutgoingMessage::new("a", ""), Duration::from_millis(50));
            assert_eq!(hasty.await, Err(ClientError::NotSent(Failure::Deadline)));
            drop(patient);
        };
        let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
        result.expect("the loop runs").expect("the request expires");
        drop(server.join().expect("no panic"));
    }
}
