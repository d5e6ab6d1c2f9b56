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

/// Answers PING until a line that begins so.
async fn until(peer: &mut Peer, start: &str) -> Result<String, Box<dyn std::error::Error>> {
    loop {
        match peer.line().await? {
            line if line.starts_with(start) => return Ok(line),
            line if line == "PING" => peer.send("PONG\r\n")?,
            _ => {}
        }
    }
}

#[test]
fn a_server_that_names_no_subscription_may_have_refused_each_that_it_has_not_confirmed() {
    let serve = |channel| async move {
        let mut peer = Peer::greet(channel).await?;
        until(&mut peer, "SUB a 1").await?;
        until(&mut peer, "SUB b 2").await?;
        peer.expect("SUB c 3").await?;
        peer.send("-ERR 'maximum subscriptions exceeded'\r\n-ERR 'maximum subscriptions exceeded'\r\n")?;
        // Only these two are subscribed again.
        until(&mut peer, "UNSUB 2").await?;
        peer.expect("SUB b 4").await?;
        peer.send("-ERR 'maximum subscriptions exceeded'\r\n")?;
        until(&mut peer, "UNSUB 3").await?;
        peer.expect("SUB c 5").await?;
        until(&mut peer, "END").await.map(drop)
    };
    run(serve, |client| async move {
        let mut tides = client.subscribe("a").expect("a filter");
        client.flush().await.expect("the server answers");
        ["b", "c"].iter().for_each(|filter| tides.subscribe(*filter).expect("a filter"));
        client.flush().await.expect("the server answers");
        assert_eq!(["a", "b", "c"].map(|filter| tides.is_refused(filter)), [false, true, true]);
        assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
        for filter in ["b", "c"] {
            assert_eq!(tides.recv().await, Some(SubscriberEvent::Refused(filter.into())));
        }
        for (filter, is_refused) in [("a", false), ("b", true), ("c", false)] {
            tides.subscribe(filter).expect("a filter");
            client.flush().await.expect("the server answers");
            assert_eq!(tides.is_refused(filter), is_refused, "{filter}");
        }
        assert_eq!(client.counts().subscriptions, 3);
    });
}

#[test]
fn requests_fail_when_the_server_refuses_their_inbox_and_the_next_one_has_another() {
    let serve = |channel| async move {
        let mut peer = Peer::greet(channel).await?;
        let sub = until(&mut peer, "SUB _INBOX").await?;
        let inbox = sub.split(' ').nth(1).ok_or("a filter")?.to_owned();
        peer.send(&format!("-ERR 'Permissions Violation for Subscription to \"{inbox}\"'\r\n"))?;
        until(&mut peer, "UNSUB 1").await?;
        until(&mut peer, "SUB _INBOX").await?;
        let request = until(&mut peer, "PUB tides ").await?;
        let reply = request.split(' ').nth(2).ok_or("a reply")?.to_owned();
        peer.send(&format!("MSG {reply} 2 3\r\nebb\r\n"))?;
        until(&mut peer, "END").await.map(drop)
    };
    run(serve, |client| async move {
        assert_eq!(client.request("tides", "").await, Err(ClientError::MaybeProcessed(Failure::Refused)));
        assert_eq!(client.request("tides", "").await.expect("a reply").payload, "ebb");
    });
}

/// Serves a connection of a server that shuts down.
async fn lame_duck(channel: Channel<Raw>, number: usize) -> PeerResult {
    let mut peer = Peer::greet(channel).await?;
    until(&mut peer, "PUB tides").await?;
    peer.send(&format!("INFO {{\"client_id\":{number},\"ldm\":true,\"max_payload\":1048576,\"headers\":true}}\r\n"))?;
    until(&mut peer, "END").await.map(drop)
}

#[test]
fn clients_of_a_server_that_shuts_down_leave_it_at_different_times() {
    let network = Network::new(7);
    let numbers = std::rc::Rc::new(std::cell::Cell::new(0));
    let serve = move |channel| {
        numbers.set(numbers.get() + 1);
        lame_duck(channel, numbers.get())
    };
    network.host("10.0.0.1").node().serve(4222, Limits::default(), || Raw, serve).expect("a port");
    let broker = Broker::default();
    let make = move |_: &_| (ServerCodec::default(), Handler::new(&broker));
    network.host("10.0.0.9").node().listen(4222, Limits::default(), make).expect("the port is free");
    let moving: Vec<_> = (0..20_u64)
        .map(|number| {
            let node = network.host(&format!("10.0.1.{number}")).node();
            node.spawn(async move {
                let builder = Client::to("10.0.0.1,10.0.0.9").expect("an address").backoff_seed(number);
                let client = builder.lame_duck_delay(Duration::from_secs(3)).start();
                let mut tides = client.subscribe("a").expect("a filter");
                assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
                client.publish("tides", "").expect("it is taken");
                let began = task::now();
                assert_eq!(tides.recv().await, Some(SubscriberEvent::Down));
                let left_after = task::now() - began;
                assert_eq!(tides.recv().await, Some(SubscriberEvent::Gap));
                assert_eq!(tides.recv().await, Some(SubscriberEvent::Up));
                assert_eq!(client.counts().lame_ducks, 1);
                left_after
            })
        })
        .collect();
    let mut times: Vec<_> = moving.into_iter().map(|one| network.run_task(Duration::from_secs(60), one)).collect();
    times.sort_unstable();
    println!("the clients leave after {times:?}");
    assert!(times[19] < Duration::from_millis(3200) && times[19] - times[0] > Duration::from_millis(1500));
    let closest = times.windows(2).map(|two| two[1] - two[0]).max().expect("20 clients");
    assert!(closest < Duration::from_secs(1), "they are spread");
}

#[test]
fn a_client_leaves_a_server_that_shuts_down_with_the_reply_that_it_awaits() {
    let network = Network::new(7);
    let serve = |channel| async move {
        let mut peer = Peer::greet(channel).await?;
        let reply = until(&mut peer, "PUB tides ").await?.split(' ').nth(2).ok_or("a reply")?.to_owned();
        peer.send("INFO {\"ldm\":true,\"max_payload\":1048576,\"headers\":true}\r\n")?;
        task::sleep(Duration::from_secs(3)).await;
        // A message behind the delay stays for the next server.
        peer.send(&format!("MSG {reply} 2 3\r\nebb\r\n"))?;
        while let Ok(line) = peer.line().await {
            assert!(!line.starts_with("PUB"), "{line}");
        }
        PeerResult::Ok(())
    };
    network.host("10.0.0.1").node().serve(4222, Limits::default(), || Raw, serve).expect("a port");
    let broker = Broker::default();
    let make = move |_: &_| (ServerCodec::default(), Handler::new(&broker));
    network.host("10.0.0.9").node().listen(4222, Limits::default(), make).expect("the port is free");
    let asking = network.host("10.0.0.2").node().spawn(async move {
        let builder = Client::to("10.0.0.1,10.0.0.9").expect("an address");
        let client = builder.lame_duck_delay(Duration::from_secs(1)).start();
        let mut tides = client.subscribe("late").expect("a filter");
        let of_publish = client.clone();
        let publishing = task::spawn(async move {
            task::sleep(Duration::from_secs(2)).await;
            of_publish.publish("late", "flow").expect("it is taken");
        });
        let reply = client.request("tides", "").await;
        publishing.await.expect("no panic");
        (reply, next_message(&mut tides).await, client.counts().connections)
    });
    let (reply, late, connections) = network.run_task(Duration::from_secs(60), asking);
    assert_eq!((reply.expect("a reply").payload, late.payload, connections), ("ebb".into(), "flow".into(), 2));
}
