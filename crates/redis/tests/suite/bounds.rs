//! Clients that try to fill the memory of a server: through real sockets, and before they are authenticated.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{ListenOptions, SocketOptions};
use tidegate_engine::{Backend, Limits, Server, ServerHandle, task};
use tidegate_redis::{
    Answer, CallContext, ChannelPost, Channels, Command, Handler, HandlerConfig, OutgoingReply, ServerCodec, Service,
};
use tidegate_testkit::Embedded;

/// Has long replies, early and late.
struct Long;

impl Service for Long {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        let long = || OutgoingReply::bulk(vec![b'l'; LONG_BYTES]);
        match command.name() {
            b"LONG" => long().into(),
            b"LATE" => Answer::later(async move {
                task::sleep(Duration::from_millis(5)).await;
                long()
            }),
            b"LAST" => Answer::later(async move {
                task::sleep(Duration::from_millis(50)).await;
                OutgoingReply::ok()
            }),
            _ => Answer::Unknown,
        }
    }
}

const LONG_BYTES: usize = 100_000;

fn with_config(config: HandlerConfig) -> Embedded<ChannelPost> {
    Embedded::new(ServerCodec::default(), Handler::with(Long, Arc::new(config), Channels::new()))
}

#[test]
fn replies_that_wait_have_a_bound_of_bytes() {
    for command in ["LONG\r\n", "LATE\r\n"] {
        let config = HandlerConfig { queued_bytes_max: 10 * LONG_BYTES, ..HandlerConfig::default() };
        let mut pipe = with_config(config);
        let commands = format!("LAST\r\n{}", command.repeat(15));
        pipe.receive(commands.as_bytes());
        pipe.advance(Duration::from_millis(20));
        // Decoding is paused before more commands are executed.
        pipe.receive(command.repeat(100).as_bytes());
        assert!(!pipe.is_receiving(), "{command}");
        assert_eq!(pipe.take_written(), b"", "{command}");
        let mut written = 0;
        for _ in 0..200 {
            pipe.advance(Duration::from_millis(20));
            written += pipe.take_written().len();
        }
        let reply = format!("${LONG_BYTES}\r\n").len() + LONG_BYTES + 2;
        assert_eq!(written, b"+OK\r\n".len() + 115 * reply, "{command}");
    }
}

#[test]
fn replies_that_become_ready_wait_for_a_client_that_does_not_read() {
    let mut pipe = with_config(HandlerConfig::default());
    pipe.limit_peer_reads(0);
    pipe.receive(format!("LAST\r\n{}", "LATE\r\n".repeat(100)).as_bytes());
    pipe.advance(Duration::from_millis(100));
    assert!(!pipe.is_closed() && !pipe.is_reset());
    let mut written = 0;
    for _ in 0..400 {
        pipe.limit_peer_reads(50_000);
        pipe.run();
        written += pipe.take_written().len();
    }
    assert_eq!(written, b"+OK\r\n".len() + 100 * (format!("${LONG_BYTES}\r\n").len() + LONG_BYTES + 2));
}

#[test]
fn a_client_that_is_not_authenticated_has_the_limits_of_redis() {
    let config = || HandlerConfig { password: Some((*b"flow").into()), ..HandlerConfig::default() };
    let long = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{}\r\n", "x".repeat(20_000));
    let wide = format!("*11\r\n{}", "$4\r\nECHO\r\n".repeat(11));
    for (wire, error) in [(&long, "unauthenticated bulk length"), (&wide, "unauthenticated multibulk length")] {
        let mut pipe = with_config(config());
        pipe.receive(wire.as_bytes());
        assert_eq!(String::from_utf8_lossy(&pipe.take_written()), format!("-ERR Protocol error: {error}\r\n"));
        assert!(pipe.is_closed() || pipe.is_write_closed());

        for authenticate in ["AUTH flow\r\n", "HELLO 2 AUTH default flow\r\n"] {
            let mut pipe = with_config(config());
            pipe.receive([authenticate.as_bytes(), wire.as_bytes()].concat().as_slice());
            let written = pipe.take_written();
            assert!(!written.windows(15).any(|window| window == b"unauthenticated"), "{}", written.escape_ascii());
            pipe.receive([b"RESET\r\n", wire.as_bytes()].concat().as_slice());
            let written = pipe.take_written();
            assert!(String::from_utf8_lossy(&written).ends_with(&format!("{error}\r\n")), "{}", written.escape_ascii());
        }
    }
    // The limits themselves pass.
    let mut pipe = with_config(config());
    pipe.receive(format!("*2\r\n$4\r\nECHO\r\n$16384\r\n{}\r\n", "x".repeat(16_384)).as_bytes());
    pipe.receive(format!("*10\r\n{}", "$4\r\nECHO\r\n".repeat(10)).as_bytes());
    assert_eq!(pipe.take_written(), b"-NOAUTH Authentication required.\r\n".repeat(2));
}

fn on_each_backend(limits: &Limits, test: impl Fn(&ServerHandle, &Channels)) {
    for backend in [Backend::Epoll, Backend::Uring] {
        let channels = Channels::new();
        let of_server = channels.clone();
        let stream = SocketOptions { send_buffer_bytes: Some(32 << 10), ..SocketOptions::default() };
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).backend(backend).limits(limits.clone());
        let server = server.options(ListenOptions { stream, ..ListenOptions::default() });
        let make = move || (ServerCodec::default(), Handler::with(Long, Arc::default(), of_server.clone()));
        let Ok(server) = server.start(make) else { continue };
        test(&server, &channels);
        server.drain(Duration::ZERO);
    }
}

fn connect(server: &ServerHandle) -> TcpStream {
    TcpStream::connect(server.address().ip().expect("an IP address")).expect("a connection")
}

fn ping(stream: &mut TcpStream) {
    stream.write_all(b"PING\r\n").expect("it is sent");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn a_client_that_pipelines_ten_million_commands_and_never_reads_is_disconnected() {
    let limits = Limits { write_timeout: Duration::from_millis(300), ..Limits::default() };
    on_each_backend(&limits, |server, _| {
        let (mut greedy, mut other) = (connect(server), connect(server));
        let commands = b"PING\r\n".repeat(1_000);
        let sent = (0..10_000).take_while(|_| greedy.write_all(&commands).is_ok()).count();
        assert!(sent < 10_000, "the server takes all commands");
        ping(&mut other);
        let used = server.counts().iter().map(|counts| counts.memory_bytes).sum::<u64>();
        assert!(used < 1 << 20, "{used} bytes");
    });
}

#[test]
fn one_subscriber_of_a_thousand_that_never_reads_is_disconnected_and_the_others_miss_nothing() {
    on_each_backend(&Limits::default(), |server, channels| {
        let mut readers: Vec<_> = (0..1_000).map(|_| connect(server)).collect();
        for reader in &mut readers {
            reader.write_all(b"SUBSCRIBE tide\r\n").expect("it is sent");
            let mut acknowledged = [0; 33];
            reader.read_exact(&mut acknowledged).expect("an acknowledgement");
        }
        let silent = readers.pop().expect("a thousand");
        let (message, mut subscribers) = (vec![b'm'; 16 << 10], 1_000);
        let mut received = vec![0; message.len() + 37];
        let mut rounds = 0;
        while subscribers == 1_000 {
            rounds += 1;
            assert!(rounds < 1_000, "the silent subscriber is never disconnected");
            subscribers = channels.publish(b"tide", &message);
            for reader in &mut readers {
                reader.read_exact(&mut received).expect("each message");
                assert!(received.starts_with(b"*3\r\n$7\r\nmessage\r\n$4\r\ntide\r\n$16384\r\nmm"));
            }
        }
        assert_eq!(subscribers, 999);
        drop(silent);
    });
}

#[test]
fn names_of_channels_and_patterns_have_bounds() {
    let config = HandlerConfig {
        subscription_bytes_max: 20,
        patterns_max: 1,
        pattern_bytes_max: 8,
        channel_bytes_max: 12,
        ..HandlerConfig::default()
    };
    let mut pipe = with_config(config);
    pipe.receive(b"HELLO 3\r\n");
    drop(pipe.take_written());
    let acknowledged = |word: &str, name: &str, count: usize| {
        format!(">3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:{count}\r\n", word.len(), name.len())
    };
    let long_name = "-ERR the name of a channel has more than 12 bytes\r\n";
    let long_pattern = "-ERR a pattern has more than 8 bytes\r\n";
    let too_many = "-ERR too many subscriptions\r\n";
    for (command, reply) in [
        ("SUBSCRIBE channel.56789", long_name.to_owned()),
        ("PUBLISH channel.56789 ebb", long_name.to_owned()),
        ("PSUBSCRIBE pattern.*", long_pattern.to_owned()),
        ("PUBSUB CHANNELS pattern.*", long_pattern.to_owned()),
        ("PSUBSCRIBE a*", acknowledged("psubscribe", "a*", 1)),
        ("PSUBSCRIBE b*", too_many.to_owned()),
        ("SUBSCRIBE channel.5678", acknowledged("subscribe", "channel.5678", 2)),
        ("SUBSCRIBE channel", too_many.to_owned()),
        ("SUBSCRIBE channel.5678", acknowledged("subscribe", "channel.5678", 2)),
        ("UNSUBSCRIBE channel.5678", acknowledged("unsubscribe", "channel.5678", 1)),
        ("SUBSCRIBE channel", acknowledged("subscribe", "channel", 2)),
        ("PUBLISH channel.5678 ebb", ":0\r\n".to_owned()),
        ("PUBSUB CHANNELS *", "*1\r\n$7\r\nchannel\r\n".to_owned()),
    ] {
        pipe.receive(format!("{command}\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&pipe.take_written()), reply, "{command}");
    }
}

#[test]
fn the_patterns_of_all_connections_have_a_bound() {
    let channels = Channels::new();
    let config = Arc::new(HandlerConfig { all_patterns_max: 3, ..HandlerConfig::default() });
    let connect = || Embedded::new(ServerCodec::default(), Handler::with(Long, config.clone(), channels.clone()));
    let (mut one, mut other) = (connect(), connect());
    let long = "l".repeat(64);
    let too_many = "-ERR too many patterns of all clients\r\n";
    let mut talk = |is_one: bool, command: String| {
        let pipe = if is_one { &mut one } else { &mut other };
        pipe.receive(format!("{command}\r\n").as_bytes());
        String::from_utf8_lossy(&pipe.take_written()).into_owned()
    };
    for (is_one, command, has_room) in [
        (true, "PSUBSCRIBE a*".to_owned(), true),
        (false, "PSUBSCRIBE a*".to_owned(), true),
        // It counts as two.
        (false, format!("PSUBSCRIBE {long}"), true),
        (false, "PSUBSCRIBE b*".to_owned(), false),
        (true, "PSUBSCRIBE a*".to_owned(), true),
        (false, format!("PUNSUBSCRIBE {long}"), true),
        (true, "PSUBSCRIBE b* c* d*".to_owned(), false),
        (true, "PUNSUBSCRIBE c*".to_owned(), true),
        (false, "PSUBSCRIBE d*".to_owned(), true),
    ] {
        let reply = talk(is_one, command.clone());
        assert_eq!(!reply.contains(too_many), has_room, "{command}: {reply}");
    }
    assert_eq!(channels.publish(b"dd", b"ebb"), 1);
    assert_eq!(channels.publish(b"cc", b"ebb"), 0);
}

#[test]
fn the_names_of_a_connection_are_memory_of_the_connection() {
    on_each_backend(&Limits::default(), |server, _| {
        let used = || server.counts().iter().map(|counts| counts.memory_bytes).sum::<u64>();
        let names: Vec<_> = (0..4_000).map(|number| format!("{number:01000}")).collect();
        let mut stream = connect(server);
        ping(&mut stream);
        let before = used();
        stream.write_all(b"HELLO 3\r\n").expect("it is sent");
        for batch in names.chunks(100) {
            let mut command = format!("*{}\r\n$9\r\nSUBSCRIBE\r\n", 1 + batch.len());
            batch.iter().for_each(|name| write!(command, "${}\r\n{name}\r\n", name.len()).expect("a string"));
            stream.write_all(command.as_bytes()).expect("it is sent");
            let mut acknowledgements = vec![0; 100 * 1_000];
            stream.read_exact(&mut acknowledgements).expect("acknowledgements");
        }
        while used() < before + 4_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(b"UNSUBSCRIBE\r\n").expect("it is sent");
        let mut reader = stream.try_clone().expect("a copy");
        let reading = std::thread::spawn(move || drop(std::io::copy(&mut reader, &mut std::io::sink())));
        while used() > before + 1_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stream.shutdown(std::net::Shutdown::Both).expect("it is open");
        reading.join().expect("no panic");
    });
}
