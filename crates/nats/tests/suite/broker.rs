//! The broker, seen by a client of bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_engine::ServerHandle;
use tidegate_nats::{Broker, BrokerConfig, ServerInfo};

use crate::support::serve;

/// A connection of bytes. A read that gets nothing for a minute fails.
struct Peer(TcpStream);

impl Peer {
    fn to(server: &ServerHandle) -> Self {
        let stream = TcpStream::connect(server.address().ip().expect("an IP address")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("an option");
        Self(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a line comes");
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text").trim_end().to_owned()
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        // A reset ends it as well.
        drop(self.0.read_to_string(&mut rest));
        rest
    }
}

#[test]
fn info_comes_first_and_verbose_clients_get_an_acknowledgement_of_each_operation() {
    let server = serve(&Broker::default());
    let mut peer = Peer::to(&server);
    let info = peer.line();
    let info = ServerInfo::from_json(info.strip_prefix("INFO ").expect("INFO").as_bytes()).expect("its JSON");
    assert!(info.headers && info.max_payload == 1 << 20 && !info.auth_required && info.proto == 1);
    peer.send("CONNECT {\"verbose\":true,\"headers\":true}\r\nSUB a 1\r\nPUB a 3\r\nebb\r\nUNSUB 1\r\nPING\r\n");
    // The message lies before or behind the acknowledgement of PUB.
    let mut lines = peer.lines(7);
    lines.sort();
    assert_eq!(lines, ["+OK", "+OK", "+OK", "+OK", "MSG a 1 3", "PONG", "ebb"]);
    server.drain(Duration::ZERO);
}

#[test]
fn a_pong_comes_behind_the_messages_that_were_published_before_its_ping() {
    let server = serve(&Broker::default());
    let mut peer = Peer::to(&server);
    peer.line();
    peer.send("CONNECT {\"verbose\":false}\r\nSUB a.* 1\r\nSUB a.b g 2\r\nPUB a.b r 3\r\nebb\r\nPING\r\n");
    let mut messages = [peer.lines(2).join(" "), peer.lines(2).join(" ")];
    messages.sort();
    assert_eq!(messages, ["MSG a.b 1 r 3 ebb", "MSG a.b 2 r 3 ebb"]);
    assert_eq!(peer.line(), "PONG");
    // Its own messages do not come back without echo, and a subscription with a known ID changes nothing.
    peer.send("CONNECT {\"verbose\":false,\"echo\":false}\r\nPUB a.b 0\r\n\r\nSUB c 1\r\nPING\r\n");
    assert_eq!(peer.line(), "PONG");
    // Headers are left out for a client that does not know them.
    let mut other = Peer::to(&server);
    other.line();
    other.send("CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB a.x 12 15\r\nNATS/1.0\r\n\r\nebb\r\nPING\r\n");
    assert_eq!(other.line(), "PONG");
    assert_eq!(peer.lines(2), ["MSG a.x 1 3", "ebb"]);
    server.drain(Duration::ZERO);
}

#[test]
fn each_operation_that_is_refused_has_its_error() {
    let config = BrokerConfig { subscriptions_max: 2, filter_tokens_max: 3, ..BrokerConfig::default() };
    let server = serve(&Broker::new(config));
    let mut peer = Peer::to(&server);
    peer.line();
    peer.send(
        "PUB a.* 0\r\n\r\nPUB a..b 0\r\n\r\nSUB a.>.b 1\r\nSUB a.b.c.d 1\r\nSUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPING\r\n",
    );
    let expected = [
        "-ERR 'Invalid Publish Subject'",
        "-ERR 'Invalid Publish Subject'",
        "-ERR 'Invalid Subject'",
        "-ERR 'Invalid Subject'",
        "-ERR 'Maximum Subscriptions Exceeded'",
        "PONG",
    ];
    assert_eq!(peer.lines(6), expected);
    for (wire, error) in [
        ("GET / HTTP/1.1\r\n", "-ERR 'Unknown Protocol Operation'\r\n"),
        ("PUB a 1048577\r\n", "-ERR 'Maximum Payload Violation'\r\n"),
        ("PUB a b c d\r\n", "-ERR 'Parser Error'\r\n"),
        ("CONNECT nonsense\r\n", "-ERR 'Parser Error'\r\n"),
    ] {
        let mut peer = Peer::to(&server);
        peer.line();
        peer.send(wire);
        assert_eq!(peer.rest(), error, "{wire}");
    }
    let long = format!("SUB {}", "a".repeat(5000));
    let mut peer = Peer::to(&server);
    peer.line();
    peer.send(long);
    assert_eq!(peer.rest(), "-ERR 'Maximum Control Line Exceeded'\r\n");
    server.drain(Duration::ZERO);
}

#[test]
fn a_client_that_does_not_read_is_cut_and_the_others_go_on() {
    let broker = Broker::new(BrokerConfig { pending_bytes_max: 1 << 20, ..BrokerConfig::default() });
    let server = serve(&broker);
    let (mut slow, mut publisher) = (Peer::to(&server), Peer::to(&server));
    slow.line();
    publisher.line();
    slow.send("SUB a 1\r\nPING\r\n");
    assert_eq!(slow.line(), "PONG");
    let message = ["PUB a 100000\r\n".as_bytes(), &[b'a'; 100_000], b"\r\n"].concat();
    // The kernel takes some MiB on its own.
    let mut published = 0;
    while broker.counts().slow_consumers == 0 {
        published += 1;
        assert!(published < 10_000, "a gigabyte waits");
        publisher.send(&message);
        publisher.send("PING\r\n");
        assert_eq!(publisher.line(), "PONG");
    }
    assert_eq!(broker.counts().slow_consumers, 1);
    drop(slow);
    publisher.send("SUB a 1\r\nPUB a 3\r\nebb\r\n");
    assert_eq!(publisher.lines(2), ["MSG a 1 3", "ebb"]);
    server.drain(Duration::ZERO);
}

#[test]
fn a_client_that_must_authenticate_itself_may_do_nothing_before() {
    let config = BrokerConfig { token: Some("tide".to_owned()), ..BrokerConfig::default() };
    let broker = Broker::new(config);
    let server = serve(&broker);
    for wire in ["PING\r\n", "SUB > 1\r\n", "PUB a 0\r\n\r\n", "CONNECT {}\r\n", "CONNECT {\"auth_token\":\"tid\"}\r\n"]
    {
        let mut peer = Peer::to(&server);
        assert!(peer.line().contains("\"auth_required\":true"));
        peer.send(wire);
        assert_eq!(peer.rest(), "-ERR 'Authorization Violation'\r\n", "{wire}");
    }
    assert_eq!((broker.counts().refused, broker.counts().subscriptions), (5, 0));
    server.drain(Duration::ZERO);
}

#[test]
fn a_member_of_a_queue_group_that_may_have_no_more_messages_loses_none() {
    let broker = Broker::default();
    let server = serve(&broker);
    let (mut limited, mut other) = (Peer::to(&server), Peer::to(&server));
    for (peer, subscribe) in
        [(&mut limited, "SUB w g 1\r\nUNSUB 1 1\r\nPING\r\n"), (&mut other, "SUB w g 1\r\nPING\r\n")]
    {
        peer.line();
        peer.send(subscribe);
        assert_eq!(peer.line(), "PONG");
    }
    let reached: Vec<_> = (0..10).map(|number| broker.publish("w", number.to_string())).collect();
    assert_eq!(reached, [1; 10]);
    limited.send("PING\r\n");
    other.send("PING\r\n");
    let count = |peer: &mut Peer| (0..).take_while(|_| peer.line() != "PONG").count() / 2;
    assert_eq!((count(&mut limited), count(&mut other)), (1, 9));
    // The connection that has had its message has removed its subscription, without a further word of its client.
    assert_eq!(broker.counts().subscriptions, 1);
    server.drain(Duration::ZERO);
}
