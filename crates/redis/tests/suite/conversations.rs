//! The handler of a server in whole conversations: the same replies in whatever pieces the commands arrive, over both
//! drivers, and on a simulated network with faults.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_engine::{Backend, Client as Target, Limits, Server, task};
use tidegate_redis::{
    Answer, CallContext, ChannelPost, Channels, Command, Handler, HandlerConfig, OutgoingReply, ProtocolLimits,
    ServerCodec, Service,
};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Embedded, Random, replay, seeds};

/// Counts, repeats, and sleeps.
#[derive(Default)]
struct Quay {
    count: i64,
}

impl Service for Quay {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        let number = String::from_utf8_lossy(command.argument(1).unwrap_or_default()).parse().unwrap_or(0);
        match command.name() {
            b"INCR" => {
                self.count += 1;
                OutgoingReply::Integer(self.count).into()
            }
            b"LONG" => OutgoingReply::bulk(vec![b'l'; number]).into(),
            b"SLEEP" => Answer::later(async move {
                task::sleep(Duration::from_millis(number as u64)).await;
                OutgoingReply::Integer(number as i64)
            }),
            _ => Answer::Unknown,
        }
    }
}

/// A server's pipeline; commands above 200 bytes are refused.
fn make() -> (ServerCodec, Handler<Quay>) {
    let limits = ProtocolLimits { whole_bytes_max: 200, ..ProtocolLimits::default() };
    let config = HandlerConfig { password: Some((*b"flow").into()), ..HandlerConfig::default() };
    (ServerCodec::new(limits), Handler::with(Quay::default(), Arc::new(config), Channels::new()))
}

/// Commands of each kind, and their replies.
fn conversation() -> (Vec<u8>, Vec<u8>) {
    let long = format!("*2\r\n$4\r\nECHO\r\n$300\r\n{}\r\n", "x".repeat(300));
    let parts = [
        ("INCR\r\nAUTH flow\r\n", "-NOAUTH Authentication required.\r\n+OK\r\n"),
        ("*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nINCR\r\n\r\nPING a\r\n", "$3\r\na\r\n\r\n:1\r\n$1\r\na\r\n"),
        ("SLEEP 20\r\nINCR\r\nSLEEP 5\r\nINCR\r\n", ":20\r\n:2\r\n:5\r\n:3\r\n"),
        (
            "MULTI\r\nINCR\r\nECHO \"a b\"\r\nEXEC\r\nMULTI\r\nINCR\r\nDISCARD\r\n",
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:4\r\n$3\r\na b\r\n+OK\r\n+QUEUED\r\n+OK\r\n",
        ),
        (&long, "-ERR the command is longer than this server accepts\r\n"),
        ("SUBSCRIBE a\r\nPUBLISH a x\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
        (
            "PSUBSCRIBE b*\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\n",
            "-ERR Can't execute 'publish': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context\r\n*3\r\n$10\r\npsubscribe\r\n$2\r\nb*\r\n:2\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n\
             *3\r\n$12\r\npunsubscribe\r\n$2\r\nb*\r\n:0\r\n",
        ),
        ("LONG 9\r\nSLEEP 1\r\nQUIT\r\nINCR\r\n", "$9\r\nlllllllll\r\n:1\r\n+OK\r\n"),
    ];
    let join = |all: &[&str]| all.concat().into_bytes();
    (join(&parts.map(|(commands, _)| commands)), join(&parts.map(|(_, replies)| replies)))
}

fn embedded(pieces: &[&[u8]]) -> Vec<u8> {
    let (codec, handler) = make();
    let mut pipe: Embedded<ChannelPost> = Embedded::new(codec, handler);
    pieces.iter().for_each(|piece| pipe.receive(piece));
    pipe.advance(Duration::from_millis(100));
    let written = pipe.take_written();
    assert!(pipe.is_closed() || pipe.is_write_closed(), "QUIT closes");
    pipe.receive_fin();
    let pool = pipe.pool().clone();
    drop(pipe);
    assert_eq!(pool.ledger().used(), 0, "memory is left");
    written
}

#[test]
fn replies_are_the_same_at_every_split_and_byte_by_byte() {
    let (commands, replies) = conversation();
    assert_eq!(String::from_utf8_lossy(&embedded(&[&commands])), String::from_utf8_lossy(&replies));
    for at in 0..commands.len() {
        let (head, rest) = commands.split_at(at);
        assert!(embedded(&[head, rest]) == replies, "split at {at}");
    }
    let bytes: Vec<_> = commands.chunks(1).collect();
    assert!(embedded(&bytes) == replies, "byte by byte");
}

#[test]
fn replies_are_the_same_in_random_pieces_over_both_drivers() {
    let (commands, replies) = conversation();
    for backend in [Backend::Epoll, Backend::Uring] {
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).backend(backend);
        let Ok(server) = server.start(make) else { continue };
        for seed in seeds(10) {
            let mut random = Random::new(seed);
            let mut stream = TcpStream::connect(server.address().ip().expect("an IP address")).expect("a connection");
            let mut rest = &commands[..];
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(1 + random.below(rest.len().min(60)));
                // The server may have closed the connection behind QUIT.
                if stream.write_all(piece).is_err() {
                    break;
                }
                rest = more;
            }
            let mut received = Vec::new();
            let end = stream.read_to_end(&mut received);
            assert!(received == replies, "{end:?} after {}, {}", received.escape_ascii(), replay(seed));
        }
        server.drain(Duration::ZERO);
    }
}

/// A client that sends the conversation in pieces, with pauses, and reads with pauses. Returns its replies.
fn simulated(seed: u64, faults: FaultRates) -> Vec<u8> {
    let network = Network::new(seed);
    network.set_faults(faults);
    let address = network.host("10.0.0.1").node().listen(6379, Limits::default(), |_: &_| make()).expect("a port");
    let node = network.host("10.0.0.2").node();
    let mut random = Random::new(seed);
    let (commands, _) = conversation();
    let talking = node.spawn(async move {
        let mut received = Vec::new();
        let Ok(mut channel) = Target::at(address).connect(Raw).await else { return received };
        let mut rest = &commands[..];
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(1 + random.below(rest.len().min(60)));
            if channel.send(piece.to_vec().into()).is_err() {
                break;
            }
            rest = more;
            task::sleep(Duration::from_millis(random.below(4) as u64)).await;
        }
        while let Ok(Some(bytes)) = channel.recv().await {
            received.extend_from_slice(&bytes);
            task::sleep(Duration::from_millis(random.below(20) as u64)).await;
        }
        received
    });
    let received = network.run_task(Duration::from_secs(600), talking);
    assert!(network.run_until(Duration::from_secs(300), || network.open_endpoints() <= 1), "a connection is left");
    received
}

#[test]
fn replies_are_the_same_under_faults_that_a_stream_survives() {
    let (_, replies) = conversation();
    for seed in seeds(20) {
        let received = simulated(seed, FaultRates::benign());
        assert!(received == replies, "{} {}", received.escape_ascii(), replay(seed));
    }
}

#[test]
fn a_connection_that_breaks_has_the_first_of_its_replies() {
    let (_, replies) = conversation();
    let mut broken = 0;
    for seed in seeds(40) {
        let received = simulated(seed, FaultRates::benign().with(NetworkFault::Reset, 60));
        assert!(replies.starts_with(&received), "{} {}", received.escape_ascii(), replay(seed));
        broken += usize::from(received.len() < replies.len());
    }
    assert!(broken > 0, "nothing breaks");
}

const SUBSCRIBERS: usize = 8;

/// Subscribers that read at random, and a publisher. Each has all messages in order, or its connection has ended.
#[test]
fn subscribers_miss_no_message_without_noticing_under_faults() {
    let mut broken = 0;
    for (seed, breaks) in seeds(10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let network = Network::new(seed);
        network.set_faults(if breaks {
            FaultRates::benign().with(NetworkFault::Reset, 1)
        } else {
            FaultRates::benign()
        });
        let channels = Channels::new();
        let of_server = channels.clone();
        let make =
            move |_: &_| (ServerCodec::default(), Handler::with(Quay::default(), Arc::default(), of_server.clone()));
        let server = network.host("10.0.0.1").node();
        let address = server.listen(6379, Limits::default(), make).expect("a port");
        let node = network.host("10.0.0.2").node();
        let message = |number: usize| format!("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\n{number:04}\r\n");
        let all: String = (0..100).map(message).collect();
        let tasks: Vec<_> = (0..SUBSCRIBERS)
            .map(|number| {
                let (address, mut random) = (address.clone(), Random::new(seed + number as u64));
                node.spawn(async move {
                    let mut received = Vec::new();
                    let Ok(mut channel) = Target::at(address).connect(Raw).await else { return received };
                    drop(channel.send(b"SUBSCRIBE a\r\n"[..].into()));
                    while let Ok(Ok(Some(bytes))) = task::timeout(Duration::from_secs(60), channel.recv()).await {
                        received.extend_from_slice(&bytes);
                        task::sleep(Duration::from_millis(random.below(9) as u64)).await;
                    }
                    received
                })
            })
            .collect();
        // Those whose connection has not broken yet.
        network.run_until(Duration::from_secs(5), || channels.publish(b"b", b"") == 1);
        for number in 0..100 {
            channels.publish(b"a", format!("{number:04}").as_bytes());
            network.run_for(Duration::from_millis(1));
        }
        for task in tasks {
            let received = String::from_utf8(network.run_task(Duration::from_secs(600), task)).expect("text");
            let messages = received.strip_prefix("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n").unwrap_or("");
            let first = messages.get(..message(0).len()).map_or(0, |first| all.find(first).expect("a message"));
            assert!(all[first..].starts_with(messages), "{messages} {}", replay(seed));
            let is_complete = messages.len() == all.len() - first && !messages.is_empty();
            assert!(is_complete || breaks, "{received} {}", replay(seed));
            broken += usize::from(!is_complete);
        }
    }
    assert!(broken > 0, "nothing breaks");
}
